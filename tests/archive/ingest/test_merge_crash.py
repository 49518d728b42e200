"""Kill -9 in the middle of a merged batch, then again: rows, state, feeds and disagreements are all there, or none."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.revisions.apply import apply_stream_revisions
from errata.catalog import commits, feeds, quarantine, streams
from errata.catalog.database import open_catalog
from errata.model.bucket import Role
from errata.model.feed import EmitPolicy, Feed, LandedFileAction, LandingFolder, MergePolicy, StableRule
from errata.model.stream import Stream
from fixtures.flows import House, build
from fixtures.kills import Committers, committers, kill_while_taking_in
from fixtures.postgres import FreshDatabase
from fixtures.quotes import quotes, row, stable, write

LARGE = "x" * 30_000
"""Rows with this are too much for the catalog, so that there are files."""

BEFORE = {
    "a": [row(1, until=4), row(2), row(3), row(5, who=LARGE), row(6, who=LARGE + "y"), stable(2)],
    "b": [row(2), row(3, price=2.0)],
}
BATCH = {
    "a": [
        row(7, who=LARGE + "z"),
        {"_op": "adjust", "who": "x", "at": 1, "until": 9},
        row(1, who="late"),
        {"_op": "delete", "who": "x", "at": 2},
        {"who": "bad", "at": "noon"},
    ],
    "b": [row(3, price=1.0), row(6, price=3.0), row(6, who="x", price=4.0), stable(6)],
}
"""Rows of earlier batches that are released, corrections, late and bad ones, an agreement and what contradicts."""


def a_stream(folder: Path) -> Stream:
    declared = [
        Feed(name, LandingFolder(str(folder / name), 0, LandedFileAction.MOVE), stable=StableRule.MARKS)
        for name in BEFORE
    ]
    return replace(quotes(*declared, policy=MergePolicy(emit=EmitPolicy.HALF_FROZEN)), name="feed")


def land(folder: Path, batch: dict[str, list[dict[str, Any]]], name: str) -> None:
    for feed, lines in batch.items():
        path = write(folder / feed / f"{name}.jsonl", lines)
        os.utime(path, (1, 1))


def take(house: House) -> IngestReport:
    return ingest_batch(house.site, IngestRequest("feed", landed=True))


def seen(house: House) -> dict[str, Any]:
    """All that there is to see of the stream, without ids."""
    stood = streams.stream_state(house.catalog, "feed")
    known = feeds.feeds_of(house.catalog, stood.stream_id)
    state = house.stored("feed", role=Role.MERGE)
    merge = feeds.merge_of(house.catalog, stood.stream_id)
    disputes = feeds.disagreements_of(house.catalog, stood.stream_id, feeds.DisagreementFilter(resolved=True))
    return {
        "rows": [house.content(each).to_pylist() for each in house.stored("feed")],
        "pending": [house.content(each).to_pylist() for each in house.stored("feed", role=Role.PENDING)],
        "state": [house.content(each).to_pylist() for each in state],
        "stood": (stood.stable, stood.rows, stood.revisions, stood.changed_in),
        "feeds": known,
        "merge": merge,
        "disputes": [replace(each, disagreement_id=None) for each in disputes],
        "bad": sorted(each.row.reason for each in quarantine.quarantined_rows(house.catalog)),
        "flows": [each.cause.flow for each in commits.list_commits(house.catalog)],
    }


@pytest.fixture(scope="module")
def server() -> Iterator[Committers]:
    with committers() as running:
        yield running


class _Prepared(Exception):
    """Thrown in the place of the commit."""


def prepare(house: House, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the flow write the batch's buckets, and keep what it would commit."""
    path = house.folder / "arrived.pickle"

    def keep(_catalog: object, basis: object, arrived: Any, _cause: object, merged: object, *_: object) -> int:
        path.write_bytes(pickle.dumps((basis, replace(arrived, bad=list(arrived.bad)), merged)))
        raise _Prepared

    with monkeypatch.context() as patched:
        patched.setattr("errata.archive.ingest.batch.commit_append", keep)
        with pytest.raises(_Prepared):
            take(house)
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
    house = build(tmp_path, url, a_stream(tmp_path))
    land(tmp_path, BEFORE, "1")
    assert take(house).counts.held > 0
    land(tmp_path, BATCH, "2")
    prepared = prepare(house, monkeypatch)
    before = seen(house)
    house.catalog.close()
    whole = server.commit(fresh_database(kind, like=url), prepared, 0)
    assert whole["sound"]
    assert whole["steps"] >= 2 * 16 + 2
    for step in range(1, whole["steps"]):
        assert server.commit(url, prepared, step) == {"killed": True, "sound": False, "steps": step}
        assert seen(house) == before
    house.catalog.close()
    assert server.commit(url, prepared, whole["steps"])["killed"]
    after = seen(house)
    assert after["flows"] == ["apply", "append", "append"]
    assert len(after["rows"]) > len(before["rows"])
    assert len(after["bad"]) > len(before["bad"])
    assert take(house).commit_id is None
    assert seen(house) == after
    house.catalog.close()


@pytest.mark.parametrize("moment", ["reading", "committing", "committed", "moving 2"])
def test_a_flow_that_is_killed_and_run_again(moment: str, spark: SparkSession, tmp_path: Path) -> None:
    houses = []
    for name in ("killed", "whole"):
        folder = tmp_path / name
        folder.mkdir()
        house = build(folder, f"sqlite:///{folder}/errata.db", a_stream(folder))
        land(folder, BEFORE, "1")
        take(house)
        land(folder, BATCH, "2")
        (folder / "project.pickle").write_bytes(pickle.dumps(house.site.project))
        houses.append(house)
    killed, whole = houses
    take(whole)
    before = seen(killed)
    kill_while_taking_in(killed.folder, moment)
    killed.site = replace(killed.site, catalog=open_catalog(killed.site.project.catalog, killed.clock))
    if moment in ("reading", "committing"):
        assert seen(killed) == before
    report = take(killed)
    assert (report.commit_id is None) == (moment in ("committed", "moving 2"))
    for house in houses:
        assert sorted(path.name for path in (house.folder / "a").rglob("*.jsonl")) == ["1.jsonl", "2.jsonl"]
        apply_stream_revisions(house.site, "feed")
    assert without_folder(seen(killed)) == without_folder(seen(whole))
    for house in houses:
        house.catalog.close()


def without_folder(found: dict[str, Any]) -> str:
    """As text, with the folders that differ left out."""
    return repr(found).replace("/killed/", "/").replace("/whole/", "/")
