"""Kill -9 at every step between the first file and the commit, then again: the archive is the oracle's, once."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.catalog import commits, ledger, quarantine, streams
from errata.catalog.database import open_catalog
from errata.catalog.stream_commits import commit_append
from errata.catalog.transaction import BatchConflict
from errata.model.batch import Op
from errata.model.commit import Cause
from errata.model.feed import LandedFileAction, LandingFolder
from errata.model.stream import DuplicatePolicy, Stream
from errata.model.time import SECOND
from fixtures.catalog import NOW
from fixtures.flows import House, a_feed, build, canonical_row
from fixtures.kills import Committers, committers, kill_while_taking_in
from fixtures.oracle.history import History
from fixtures.postgres import FreshDatabase
from fixtures.sources import NO_NUMBER, Line, Source, record, write

LARGE = "x" * 90_000
"""Three rows with this are too much for the catalog, so that there are files."""


def a_line(second: int, who: str = "a", op: Op | None = None, note: str = "", **values: object) -> Line:
    return Line({"at": NOW - (1_000 - second) * SECOND, "who": who, "price": 1.0, "note": note, **values}, op)


BEFORE = [Source("0.csv", [a_line(0), a_line(5), a_line(9)])]
BATCH = [
    Source("1.csv", [a_line(second, note=LARGE + str(second)) for second in range(10, 20)]),
    Source("2.jsonl", [a_line(8), a_line(9), a_line(9, price=2.0), a_line(3, op=Op.DELETE), a_line(4, who="b")]),
    Source("3.csv.gz", [a_line(21, price=NO_NUMBER), a_line(22, who="c"), a_line(22, who="b")]),
]
"""Rows on time in files and inline, late, corrections, repeated, contradicting, and bad."""


def a_stream(folder: Path) -> Stream:
    return a_feed(
        slack=2 * SECOND,
        bucket_rows=3,
        on_duplicate=DuplicatePolicy.QUARANTINE,
        landing=LandingFolder(str(folder / "landing"), 0, LandedFileAction.MOVE),
    )


def the_oracle(stream: Stream) -> History:
    history = History(stream)
    for batch in (BEFORE, BATCH):
        sound = [(source, line) for source in batch for _, line in source.placed() if not line.broken]
        history.append([record(source, line, stream, place) for place, (source, line) in enumerate(sound)], NOW)
    return history


def is_the_oracle(house: House, stream: Stream) -> None:
    """The batch is there: every row once, every revision once, and one entry in the ledger."""
    history = the_oracle(stream)
    assert house.rows() == [canonical_row(row) for row in history.scan()]
    numbered = [replace(each, values=canonical_row(dict(each.values))) for each in history.pending()]
    assert house.pending() == numbered
    standing = streams.stream_state(house.catalog, "feed")
    assert (standing.stable, standing.rows) == (history.stable(), len(history.scan()))
    assert [commit.cause.flow for commit in commits.list_commits(house.catalog)] == ["apply", "append", "append"]
    held = [(Path(each.row.file).name, each.row.line) for each in quarantine.quarantined_rows(house.catalog)]
    assert sorted(held) == [("2.jsonl", 3), ("3.csv.gz", 2)]


def is_as_before(house: House) -> None:
    """Nothing of the batch is to be seen."""
    assert commits.newest_commit(house.catalog) == 2
    assert [row["at"] for row in house.rows()] == [line.values["at"] for line in BEFORE[0].lines]
    assert house.pending() == []
    assert quarantine.quarantined_rows(house.catalog) == []
    assert streams.stream_state(house.catalog, "feed").changed_in == 2


MOMENTS = ["job", "committing", "moving 2"]
"""While tasks write, before the transaction, and after it, with one landed file moved and others not."""


@pytest.fixture(scope="module")
def killed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, House]]:
    """Houses in which the flow was killed, one for each moment."""
    houses = {}
    for moment in MOMENTS:
        folder = tmp_path_factory.mktemp("killed")
        stream = a_stream(folder)
        house = build(folder, f"sqlite:///{folder}/errata.db", stream)
        house.append(BEFORE, batch_id="before")
        for source in BATCH:
            path = write(folder / "landing", source, stream)
            os.utime(path, (1, 1))
        (folder / "project.pickle").write_bytes(pickle.dumps(house.site.project))
        houses[moment] = house
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda moment: kill_while_taking_in(houses[moment].folder, moment), MOMENTS))
    yield houses
    for house in houses.values():
        house.catalog.close()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_flow_that_is_killed_and_run_again(killed: dict[str, House], moment: str) -> None:
    house = killed[moment]
    landing = house.folder / "landing"
    committed = moment == "moving 2"
    if committed:
        is_the_oracle(house, house.site.project.streams["feed"])
    else:
        is_as_before(house)
        assert house.files(), "it was killed after something had been written"
    moved = sorted(path.name for path in (landing / "taken").glob("*"))
    assert moved == ([BATCH[0].name] if moment == "moving 2" else [])
    for _ in range(2):
        report = ingest_batch(house.site, IngestRequest("feed", landed=True))
        assert (report.commit_id is None) == committed
        committed = True
        is_the_oracle(house, house.site.project.streams["feed"])
        assert sorted(path.name for path in (landing / "taken").iterdir()) == [source.name for source in BATCH]
        assert [path.name for path in landing.iterdir()] == ["taken"]
    assert {bucket.path for bucket in house.stored() if bucket.path} <= house.files()


@pytest.fixture(scope="module")
def server() -> Iterator[Committers]:
    with committers() as running:
        yield running


class _Prepared(Exception):
    """Thrown in the place of the commit."""


def prepare(house: House, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the flow write the batch's buckets, and keep what it would commit."""
    path = house.folder / "arrived.pickle"

    def keep(_catalog: object, basis: object, arrived: object, *_: object) -> int:
        assert hasattr(arrived, "bad")
        path.write_bytes(pickle.dumps((basis, replace(arrived, bad=list(arrived.bad)))))
        raise _Prepared

    with monkeypatch.context() as patched:
        patched.setattr("errata.archive.ingest.batch.commit_append", keep)
        with pytest.raises(_Prepared):
            house.append(BATCH, batch_id="monday")
    return path


@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.long), "postgresql"])
def test_a_transaction_that_is_killed_at_every_statement(
    kind: str,
    fresh_database: FreshDatabase,
    server: Committers,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = fresh_database(kind)
    stream = a_stream(tmp_path)
    house = build(tmp_path, url, stream)
    house.append(BEFORE, batch_id="before")
    prepared = prepare(house, monkeypatch)
    house.catalog.close()
    whole = server.commit(fresh_database(kind, like=url), prepared, 0)
    assert whole["sound"]
    # Each statement before and after, the commit, and when all is done.
    assert whole["steps"] >= 2 * 12 + 2
    for step in range(1, whole["steps"]):
        assert server.commit(url, prepared, step) == {"killed": True, "sound": False, "steps": step}
        is_as_before(house)
    house.catalog.close()
    retried = House(tmp_path, replace(house.site, catalog=open_catalog(fresh_database(kind, like=url), house.clock)))
    report = retried.append(BATCH, batch_id="monday")
    assert (report.already_ingested, report.commit_id) == (False, 3)
    is_the_oracle(retried, stream)
    retried.catalog.close()

    assert server.commit(url, prepared, whole["steps"])["killed"]
    is_the_oracle(house, stream)
    _, arrived = pickle.loads(prepared.read_bytes())
    with pytest.raises(BatchConflict):
        commit_append(house.catalog, streams.stream_state(house.catalog, "feed"), arrived, Cause("append"))
    report = house.append(BATCH, batch_id="monday")
    assert (report.already_ingested, report.commit_id) == (True, 3)
    is_the_oracle(house, stream)
    taken = ledger.find_batch(house.catalog, 1, "monday")
    assert taken is not None
    assert taken.counts == report.counts
    house.catalog.close()
