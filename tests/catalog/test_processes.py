"""Two processes at once on one stream: nothing is lost, nothing is numbered twice."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from errata.catalog import buckets, commits, ledger, streams
from errata.catalog.database import Catalog, open_catalog
from errata.catalog.stream_commits import commit_append
from errata.catalog.transaction import BasisConflict
from errata.model.commit import Cause
from errata.model.stream import Stream
from fixtures.catalog import a_batch, a_bucket

TESTS = Path(__file__).resolve().parents[1]
BATCHES = 12


def write(url: str, writer: str) -> None:
    """Append batches behind whatever is there, again whenever the other one came first."""
    catalog = open_catalog(url)
    for number in range(BATCHES):
        while True:
            basis = streams.stream_state(catalog, "ticks")
            low = (basis.vs_max or 0) + 1
            batch = a_batch(f"{writer}-{number}", [a_bucket(low, low + 4, 5, path=f"{writer}-{number}")])
            try:
                commit_append(catalog, basis, batch, Cause("append", user=writer))
                break
            except BasisConflict:
                continue
    catalog.close()


def test_two_processes_lose_nothing(catalog: Catalog, catalog_url: str, ticks: Stream) -> None:
    command = [sys.executable, str(Path(__file__)), catalog_url]
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}
    running = [subprocess.Popen([*command, writer], env=environ) for writer in ("ann", "bob")]
    try:
        assert [process.wait(timeout=60) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
            process.wait()

    standing = streams.stream_state(catalog, ticks.name)
    found = buckets.visible_buckets(catalog, standing.stream_id, commits.newest_commit(catalog))
    assert sorted(each.path or "" for each in found) == sorted(
        f"{w}-{n}" for w in ("ann", "bob") for n in range(BATCHES)
    )
    assert standing.rows == 5 * 2 * BATCHES
    assert all(one.vs_max < other.vs_min for one, other in pairwise(found))
    assert [each.commit_id for each in commits.list_commits(catalog)] == list(range(1, 2 * BATCHES + 2))
    assert ledger.find_batch(catalog, standing.stream_id, "bob-0") is not None


if __name__ == "__main__":
    write(*sys.argv[1:])
