"""What vacuum forgets of the past, and that nothing is told otherwise for it within the horizon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import func, insert, select

from errata.answer.range_replay import ReplayRange, replay_range
from errata.answer.runs import run
from errata.archive.upkeep import vacuum as vacuuming
from errata.archive.upkeep.doctor import run_doctor
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import commits
from errata.catalog.pins import hold_pin
from errata.catalog.tables import evaluations, pins, positions
from errata.model.time import DAY
from errata.read.changes import ChangelogReader
from errata.read.history import row_history
from errata.read.provenance import CauseList
from errata.read.results import ResultsRequest, open_results
from errata.read.why import explain_result
from fixtures.answers import told
from fixtures.catalog import NOW
from fixtures.runs import FIRST, QUERIES, Answering

TEXTS = {name: QUERIES[name] for name in ("dear", "sums", "most", "closed")}
DAYS = 12


@pytest.fixture
def there(tmp_path: Path, spark: SparkSession) -> Iterator[Answering]:
    """Twelve days with a batch, a correction and a run each; the horizon is seven."""
    there = Answering.begin(tmp_path, TEXTS, {})
    there.take(**FIRST)
    there.run()
    for day in range(1, DAYS):
        there.at(NOW + day * DAY)
        there.take(quotes=[f"{6 + 2 * day},a,{day % 7}", f"{5 + 2 * day},b,{day % 5}", f"1,a,{day};replace"])
        there.run()
    yield there
    there.close()


def count(there: Answering) -> dict[str, int]:
    with there.site.catalog.reading() as connection:
        return {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (evaluations, positions, pins)
        }


def test_records_behind_the_horizon_go_and_answers_stay(there: Answering, spark: SparkSession) -> None:
    catalog = there.site.catalog
    with catalog.writing() as connection:
        dead = {"pin_id": "dead", "commit_id": 1, "holder": "killed", "expires_at": catalog.clock.now() - 1}
        connection.execute(insert(pins).values(dead))
    before, newest = count(there), commits.newest_commit(catalog)
    rows = {name: there.rows(name) for name in TEXTS}
    since = newest - 15
    changes = {name: told(ChangelogReader(there.site, name, since)) for name in TEXTS}
    story = explain_result(there.site, "sums", {"of": "a"}, 6 + 2 * DAYS - 4)
    versions = row_history(there.site, "quotes", {"at": "1", "of": "a"}).versions
    planned = vacuuming.plan_vacuum(there.site).forgotten
    done = run_vacuum(there.site)
    assert done.forgotten == planned
    after = count(there)
    assert after["pins"] == 0
    assert after["evaluations"] == before["evaluations"] - done.forgotten.evaluations
    assert after["positions"] == before["positions"] - done.forgotten.positions
    assert done.forgotten.evaluations >= len(TEXTS) * 3
    assert done.forgotten.positions >= len(TEXTS) * 3
    assert run_vacuum(there.site).forgotten == vacuuming.RecordCounts()

    assert {name: there.rows(name) for name in TEXTS} == rows
    assert {name: told(ChangelogReader(there.site, name, since)) for name in TEXTS} == changes
    again = explain_result(there.site, "sums", {"of": "a"}, 6 + 2 * DAYS - 4)
    assert again.values == story.values
    assert [(each.then, each.rows) for each in again.sources] == [(each.then, each.rows) for each in story.sources]
    assert row_history(there.site, "quotes", {"at": "1", "of": "a"}).versions == versions
    there.check()
    with open_results(there.site, ResultsRequest("most", aligned=("sums", "dear"))) as found:
        assert len({each.snapshot.evaluation.data_commit for each in found.answers}) == 1
    assert [each for examined in run_doctor(there.site) for each in examined.findings] == []
    # It goes on: with news, corrections of what is old, and what is made anew.
    there.take(quotes=["40,a,1", "3,a,6;replace"])
    assert there.run().stopped == []
    assert replay_range(there.site, ReplayRange("closed", "0", "20")).verified
    run(there.site, ["sums"], anew=True)
    there.run()
    there.check()


def test_what_stood_before_is_told_in_short(there: Answering) -> None:
    run_vacuum(there.site)
    whole = commits.whole_since(there.site.catalog, "dear")
    feed = told(ChangelogReader(there.site, "dear"))
    first = [each for each in feed if each["commit"] <= whole]
    assert {each["op"] for each in first} == {"insert"}
    assert "forgotten" in {each["cause"]["type"] for each in first}
    story = explain_result(there.site, "closed", {"of": "b", "window_start": "4"}, 8)
    assert story.values[0].truncated
    assert story.values[0].causes == CauseList(), "nobody knows any more what gave the value"


def test_a_pin_keeps_what_it_can_see(there: Answering) -> None:
    with hold_pin(there.site.catalog, 3, "a reader"):
        assert run_vacuum(there.site).forgotten.evaluations == 0
    assert run_vacuum(there.site).forgotten.evaluations > 0
