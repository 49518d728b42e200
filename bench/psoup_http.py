"""Invocations over HTTP while rows arrive: how many a second, and how long each takes.

    this process ── requests at fixed times, over kept connections ──► errata serve (a process of its own)
    a third process ── takes rows in, a batch a second ──► the catalog and the archive of both

All share the machine. A request's time begins when it is due, not when it is sent, so that a server that falls behind
is not spared. Every batch is a commit: each query's answer is worked out again for it, and sent as often as it is asked
for until the next.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing.synchronize
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pyarrow.parquet as pq

from bench.measure import Metric, Outcome
from bench.psoup_archive import make_archive
from bench.psoup_workload import ATTRIBUTES, rows
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.catalog.tokens import create_token
from errata.declare.site import open_site
from errata.psoup.materialise import materialise
from errata.psoup.register import register

Signal = multiprocessing.synchronize.Event
WINDOW = 2**16
WIDTH = 16
"""Width of the two intervals of a query: one row in 226 lies in both, so that an answer has about 290 rows."""


@dataclass(frozen=True, slots=True)
class LoadAmounts:
    """How much is sent, and to what."""

    rate: int = 500
    """Requests a second."""
    seconds: float = 20.0
    warm_seconds: float = 5.0
    connections: int = 50
    queries: int = 100
    rows: int = 2**17
    batch_rows: int = 2_000
    batch_seconds: float = 1.0


@dataclass
class LoadResult:
    """What came back."""

    millis: list[float] = field(default_factory=list)
    """From when a request was due until its response was complete."""
    failed: int = 0
    rows: int = 0
    commits: set[int] = field(default_factory=set)
    seconds: float = 0.0


def http_figures(folder: Path, given: LoadAmounts) -> Outcome:
    """The figures of one run."""
    archive = make_archive(folder, {"r": given.rows})
    site = archive.site
    draw = Random(18)
    texts = [_text(draw) for _ in range(given.queries)]
    handles = [each.handle for each in register(site, texts, owner="bench")]
    materialise(site)
    token = create_token(site.catalog, "bench", rate=1_000_000)
    site.catalog.close()
    project = folder / "errata.yaml"
    with _served(project) as address, _fed(project, given):
        asyncio.run(_send(address, token, handles, given, given.warm_seconds))
        found = asyncio.run(_send(address, token, handles, given, given.seconds))
        size = _answer_size(address, token, handles)
    times = np.sort(np.array(found.millis))
    served = len(times) / found.seconds
    return Outcome(
        [
            Metric("http.rate", served, "invocations/s", f">= {0.99 * given.rate:g}"),
            Metric("http.p50", float(np.percentile(times, 50)), "ms"),
            Metric("http.p99", float(np.percentile(times, 99)), "ms", "<= 100"),
            Metric("http.max", float(times[-1]), "ms"),
            Metric("http.failed", float(found.failed), "responses", "<= 0"),
            Metric("http.commits", float(len(found.commits)), "commits seen", ">= 2"),
            Metric("http.answer_rows", size, "rows"),
        ]
    )


def _text(draw: Random) -> str:
    left, right = draw.sample(ATTRIBUTES, 2)
    low, bottom = draw.randrange(256 - WIDTH), draw.randrange(256 - WIDTH)
    within = f"{left} BETWEEN {low} AND {low + WIDTH} AND {right} BETWEEN {bottom} AND {bottom + WIDTH}"
    return f"SELECT n, {left}, {right} FROM r WHERE {within} BEGIN (NOW - {WINDOW}) END (NOW)"


@contextmanager
def _served(project: Path) -> Iterator[str]:
    """The address of `errata serve` over the project."""
    command = [str(Path(sys.executable).with_name("errata")), "--project", str(project), "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            said = server.stderr.readline()
            found = re.search(r"http://\S+:\d+", said)
            if found is None:
                raise RuntimeError(f"the server says {said!r}")
            yield found[0]
        finally:
            server.terminate()
            server.wait(30)


@contextmanager
def _fed(project: Path, amounts: LoadAmounts) -> Iterator[None]:
    """Rows arrive until the block ends."""
    context = multiprocessing.get_context("spawn")
    begun, stop = context.Event(), context.Event()
    feeder = context.Process(target=_feed, args=(project, amounts, begun, stop))
    feeder.start()
    if not begun.wait(120):
        raise RuntimeError("no rows arrive")
    try:
        yield
    finally:
        stop.set()
        feeder.join(60)


def _feed(project: Path, amounts: LoadAmounts, begun: Signal, stop: Signal) -> None:
    """Take a batch in every so often."""
    start, number = amounts.rows, 0
    with open_site(project) as site:
        while not stop.wait(amounts.batch_seconds):
            number += 1
            made = rows(amounts.batch_rows, seed=number)
            ids = np.arange(start, start + amounts.batch_rows)
            start += amounts.batch_rows
            file = project.parent / f"arrived-{number}.parquet"
            pq.write_table(made.set_column(0, "n", [ids]), file)
            ingest_batch(site, IngestRequest("r", (str(file),)))
            begun.set()


async def _send(address: str, token: str, handles: Sequence[str], amounts: LoadAmounts, seconds: float) -> LoadResult:
    """Send requests at their times, over so many connections."""
    found = LoadResult()
    host, _, port = address.removeprefix("http://").partition(":")
    requests = [
        f"GET /v1/queries/{each}/answer HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        for each in handles
    ]
    begun = time.perf_counter()
    due = iter(range(int(amounts.rate * seconds)))
    draw = Random(1)

    async def connection() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for number in due:
            at = begun + number / amounts.rate
            if (wait := at - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            writer.write(draw.choice(requests))
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length is not None else 0)
            found.millis.append((time.perf_counter() - at) * 1_000)
            commit = re.search(rb"errata-commit: (\d+)", head)
            if commit is None or b" 200 " not in head[:20]:
                found.failed += 1
            else:
                found.commits.add(int(commit[1]))
        writer.close()

    await asyncio.gather(*(connection() for _ in range(amounts.connections)))
    found.seconds = time.perf_counter() - begun
    return found


def _answer_size(address: str, token: str, handles: Sequence[str]) -> float:
    """The mean number of rows of an answer."""
    totals = []
    for each in handles:
        asked = urllib.request.Request(
            f"{address}/v1/queries/{each}/answer?limit=1", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(asked) as response:
            totals.append(json.load(response)["total"])
    return float(np.mean(totals))
