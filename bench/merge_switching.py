"""Plan switching with and without feedback: figure 10 of the logical merge (VI-E.3).

Two plans of one query select rows by a condition whose cost depends on the data: the first is expensive where `x` is
small, the second where it is large, and both keep the same rows. `x` is small in one stretch of the stream, large in
the next, and so on. The stream comes in batches, and after each a run brings everything up to date:

    one plan    each of the two alone
    merged      both feed a merged stream, without feedback: the stream is as far as the quicker one, and all of the
                work of both is done
    feedback    the same with feedback: the plan that was quicker last goes first, and leaves nothing to the other

The cost is that of a function over strings, evaluated row by row. Each way has a project of its own with the same
batches; the time is that of the runs alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from matplotlib.axes import Axes

from bench.measure import Metric, Outcome, Picture, talk
from errata.answer.runs import exit_code, run
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan
from errata.catalog import streams
from errata.catalog.database import open_catalog
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import FILE_NAME, load_project
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.model.commit import Cause

HALF = 50
"""Values of `x` are from 0 to 99; below this they are small."""

_READINGS = """\
project: bench
catalog: sqlite:///errata.db
warehouse: ./warehouse
streams:
  readings: {columns: {at: bigint, x: int, text: string}, key: [at], order: at}
"""
_CHOSEN = "  chosen: {columns: {at: bigint, x: int}, key: [at], order: at, feeds: {%s}}\n"
WAYS: Mapping[str, tuple[Sequence[str], str]] = {
    "plan 0 alone": (["plan_0"], ""),
    "plan 1 alone": (["plan_1"], ""),
    "merged": (["plan_0", "plan_1"], ""),
    "feedback": (["plan_0", "plan_1"], ", feedback: yes"),
}
"""By way: the plans, and what is declared of their feeds."""


@dataclass(frozen=True, slots=True)
class SwitchingAmounts:
    """How much comes, and how costly it is."""

    stretches: int
    """Stretches of the stream in which `x` is small, or large."""
    batches: int
    """Batches of a stretch, on average: it is half as long to one and a half times."""
    rows: int
    """Rows of a batch."""
    cost: int
    """Ten thousands of characters that the condition works through, for a row for which it is expensive."""


def switching_figures(amounts: SwitchingAmounts, folder: Path) -> Outcome:
    """Figure 10."""
    batches = made_batches(amounts)
    seconds: dict[str, list[float]] = {}
    found: dict[str, list[int]] = {}
    _measure("merged", batches[:1], 1, folder / "warm_up")  # engines and modules are loaded
    for way in WAYS:
        talk.log(f"plan switching: {way}, {len(batches)} batches of {amounts.rows:,} rows")
        seconds[way], found[way] = _measure(way, batches, amounts.cost, folder / way.replace(" ", "_"))
    if len({tuple(each) for each in found.values()}) != 1:
        raise AssertionError("all ways keep the same rows")
    title = "Rows merged by time, in runs after each batch"
    return Outcome(_metrics(seconds), [Picture("figure10", title, _drawing(seconds, amounts))])


def _metrics(seconds: Mapping[str, Sequence[float]]) -> list[Metric]:
    total = {way: sum(each) for way, each in seconds.items()}
    told = [Metric(f"plan switching, {way}", each, "s") for way, each in total.items()]
    return [
        *told,
        Metric("plan switching, without feedback beside with it", total["merged"] / total["feedback"], "times", ">= 5"),
    ]


def made_batches(amounts: SwitchingAmounts) -> list[pa.Table]:
    """The stream in batches; each stretch has small or large values throughout."""
    chance = np.random.default_rng(10)
    found: list[pa.Table] = []
    for stretch in range(amounts.stretches):
        for _ in range(round(amounts.batches * chance.uniform(0.5, 1.5))):
            at = np.arange(amounts.rows) + len(found) * amounts.rows
            x = chance.integers(0, HALF, amounts.rows) + HALF * (stretch % 2)
            columns = {"at": at, "x": pa.array(x, pa.int32()), "text": pc.cast(pa.array(at), pa.string())}
            found.append(pa.table(columns))
    return found


def condition(cost: int, *, small: bool) -> str:
    """A condition that is true for nine rows of ten, and expensive where `x` is small, or large."""
    pieces = ["lpad(text, 10000, 'abcdefgh')"] * cost
    worked = f"concat({', '.join(pieces)})"
    for old, new in ("ab", "ba"), ("cd", "dc"), ("ef", "fe"), ("gh", "hg"), ("a", "e"), ("e", "a"):
        worked = f"replace({worked}, '{old}', '{new}')"
    return f"x % 10 < 9 AND CASE WHEN x {'<' if small else '>='} {HALF} THEN length({worked}) >= 0 ELSE TRUE END"


def _measure(way: str, batches: Sequence[pa.Table], cost: int, folder: Path) -> tuple[list[float], list[int]]:
    """The seconds of each batch's run, and what was kept in the end."""
    site = _make_site(way, cost, folder)
    try:
        seconds = [_run(site, batch, folder / f"{number}.parquet") for number, batch in enumerate(batches)]
        state = streams.stream_state(site.catalog, "chosen")
        rows = scan_rows(site.session(), site.catalog, site.warehouse, ArchiveScan(state, state.changed_in)).toArrow()
        return seconds, sorted(rows["at"].to_pylist())
    finally:
        site.catalog.close()


def _make_site(way: str, cost: int, folder: Path) -> Site:
    plans, more = WAYS[way]
    (folder / "queries").mkdir(parents=True)
    for name in plans:
        text = f"SELECT at, x FROM readings WHERE {condition(cost, small=name == 'plan_0')}"
        (folder / "queries" / f"{name}.sql").write_text(text)
    feeds = ", ".join(f"of_{name}: {{query: {name}{more}}}" for name in plans)
    declared = "".join(f"  {name}: {{sql: queries/{name}.sql}}\n" for name in plans)
    (folder / FILE_NAME).write_text(f"{_READINGS}{_CHOSEN % feeds}queries:\n{declared}")
    project = load_project(folder / FILE_NAME)
    apply_plan(plan_apply(project))
    return Site(project, open_catalog(project.catalog), Warehouse(project.warehouse), Cause(""))


def _run(site: Site, batch: pa.Table, file: Path) -> float:
    pq.write_table(batch, file)
    ingest_batch(site, IngestRequest("readings", [str(file)]))
    began = time.perf_counter()
    code = exit_code(run(site))
    took = time.perf_counter() - began
    if code:
        raise AssertionError(f"a run without faults ends with 0, this one with {code}")
    return took


def _drawing(seconds: Mapping[str, Sequence[float]], amounts: SwitchingAmounts) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for way, each in seconds.items():
            rows = np.arange(1, len(each) + 1) * amounts.rows / 1000
            axes.plot(np.cumsum(each), rows, label=way)
        axes.set_xlabel("seconds")
        axes.set_ylabel("thousand rows")
        axes.legend()

    return draw
