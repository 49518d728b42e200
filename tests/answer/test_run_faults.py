"""Runs over what cannot be computed, and over what is lost: others go on, and nothing is lost for good."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import update

from errata.answer.runs import sweep
from errata.catalog import commits
from errata.catalog.tables import buckets as buckets_table
from errata.model.bucket import Role
from errata.read.status import QueryProgress, query_statuses
from fixtures.runs import DEAR, FIRST, QUERIES, SECOND, SUMS, Answering

INVERSE = "SELECT of, 12 / price AS r, at FROM quotes"
TEXTS = {"dear": DEAR, "inverse": INVERSE, "top": "SELECT of, max(r) AS top FROM inverse GROUP BY of"}


@pytest.fixture
def there(tmp_path: Path, spark: SparkSession) -> Iterator[Answering]:
    there = Answering.begin(tmp_path, TEXTS, {})
    there.take(quotes=FIRST["quotes"])
    there.run()
    yield there
    there.close()


def stops(there: Answering, row: dict[str, str]) -> None:
    """A run stops at a row, holds up what reads the query, and lets others go on."""
    rows = {name: there.rows(name) for name in ("inverse", "top")}
    report = there.run()
    ((name, fault),) = report.stopped
    assert (name, dict(fault.row), fault.source) == ("inverse", row, "quotes")
    assert "12 / " in fault.expression
    assert report.held == [("top", "inverse")]
    assert [each.name for each in report.evaluated] == ["dear"]
    assert {name: there.rows(name) for name in rows} == rows
    states = {each.name: each.state for each in query_statuses(there.site)}
    assert states == {"dear": QueryProgress.CURRENT, "inverse": QueryProgress.STOPPED, "top": QueryProgress.HELD}


def untried(there: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing new a run does not try again."""
    with monkeypatch.context() as patched:
        patched.setattr("errata.answer.rounds.evaluate", None)
        report = there.run()
    assert ([name for name, _ in report.stopped], report.held) == (["inverse"], [("top", "inverse")])


def test_a_correction_or_an_edit_lets_it_go_on(there: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    there.take(quotes=["7,a,0", "8,b,6", "9,c,4"])
    stops(there, {"at": "7", "of": "a"})
    untried(there, monkeypatch)
    there.revise(quotes=["7,a,3;replace"])
    assert {each.name for each in there.run().evaluated} >= {"inverse", "top"}
    there.check()
    assert [there.of(name).last.revisions["quotes"] for name in ("dear", "inverse", "top")] == [1, 1, 1]

    there.take(quotes=["12,b,0", "13,a,5"])
    stops(there, {"at": "12", "of": "b"})
    there.edit({**TEXTS, "inverse": INVERSE.replace("price AS", "nullif(price, 0) AS")})
    report = there.run()
    assert {each.name for each in report.evaluated} == {"inverse", "top"}
    there.check()
    assert there.run().stopped == []


def test_a_sweep_lets_it_go_on_when_corrections_have_mended_it(there: Answering) -> None:
    there.take(quotes=["7,a,0", "8,b,6", "9,c,4"])
    stops(there, {"at": "7", "of": "a"})
    assert sweep(there.site).evaluated == [], "nothing has come"
    assert not any(each.may_resume for each in query_statuses(there.site))
    there.take(quotes=["7,a,3;replace"])
    report = sweep(there.site, due=True)
    assert ({each.name for each in report.evaluated} >= {"inverse", "top"}, report.stopped) == (True, [])
    there.run()
    there.check()


def test_whether_a_stopped_query_may_go_on_is_known_without_trying(there: Answering) -> None:
    there.take(quotes=["7,a,0", "8,b,6", "9,c,4"])
    there.run()
    there.revise(quotes=["7,a,3;replace"])
    (stopped,) = [each for each in query_statuses(there.site) if each.state is QueryProgress.STOPPED]
    assert (stopped.name, stopped.may_resume) == ("inverse", True)


def test_what_is_kept_is_a_cache(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {name: QUERIES[name] for name in ("sums", "closed", "twos", "latest")}
    there = Answering.begin(tmp_path, texts)
    there.take(quotes=FIRST["quotes"])
    with monkeypatch.context() as patched:
        patched.setattr("errata.archive.results.MAX_INLINE_BYTES", -1)  # so that there are files
        there.run()
    kept = {name: there.buckets(name, Role.STATE) for name in texts}
    assert all(len(found) == 1 for found in kept.values())
    files = {name: Path(there.site.warehouse.uri) / (found[0].path or "") for name, found in kept.items()}
    files["sums"].unlink()
    files["closed"].write_bytes(b"")
    whole = files["twos"].read_bytes()
    files["twos"].write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    with there.site.catalog.writing() as connection:
        lost = buckets_table.c.bucket_id == kept["latest"][0].bucket_id
        connection.execute(update(buckets_table).where(lost).values(removed_in=1))
    there.take(quotes=SECOND["quotes"])
    assert {each.name for each in there.run().evaluated} == set(texts)
    there.check()
    there.close()


def test_small_buckets_are_merged(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("errata.archive.upkeep.result_compaction.BUCKETS_PER_MERGE", 4)
    texts = {"dear": DEAR, "sums": SUMS}
    there, seen = Answering.begin(tmp_path, texts), {}
    for second in range(1, 10):
        there.take(quotes=[f"{second},a,{second % 6}", f"{second},b,{4 + second % 3}"])
        there.run()
        seen[commits.newest_commit(there.site.catalog)] = {name: there.rows(name) for name in texts}
    there.check()
    # What has been merged, what the evaluation brought that merged it, and what came then.
    assert len(there.buckets("dear", Role.BASE)) <= 3
    assert len(there.buckets("sums", Role.FEED)) <= 3
    for commit_id, rows in seen.items():
        assert {name: there.rows(name, commit_id) for name in texts} == rows
    there.close()
