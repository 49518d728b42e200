"""Reading results of queries that are edited, dropped, behind one another, and that vacuum has been at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import update

import errata
from errata.answer.runs import run
from errata.archive.results import buckets_by_start
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import commits
from errata.catalog import queries as catalog_queries
from errata.catalog.database import Catalog
from errata.catalog.queries import recorded_queries
from errata.catalog.result_archives import read_archive
from errata.catalog.tables import evaluations
from errata.declare.site import Site
from errata.errors import ErrataError, UsageError
from errata.model.commit import Cause, Fault
from errata.model.time import DAY, LOWEST
from errata.read.changes import ChangelogReader
from errata.read.results import ResultsRequest, open_results
from fixtures.answers import (
    NOW,
    Reader,
    answering_site,
    published_rows,
    quotes,
    ran,
    reopened,
    rows_of,
    seen,
    told,
    took_in,
)
from fixtures.clock import FixedClock
from fixtures.projects import Written

DEAR = "SELECT symbol, price, time FROM quotes WHERE price > 11"
HIGHEST = "SELECT symbol, max(price) AS high FROM quotes GROUP BY symbol"
CHEAPER = "SELECT symbol, price, time, price * 2 AS twice FROM quotes WHERE price > 5"
LOWER = "SELECT symbol, min(price) AS low FROM quotes GROUP BY symbol"
FIRST = quotes((0, "IBM", 10), (3, "AAPL", 20), (8, "IBM", 12))
SECOND = quotes((8, "AAPL", 21), (12, "IBM", 13), (20, "IBM", 9))
THIRD = quotes((25, "AAPL", 7))
INSTANTS = [f"2026-11-18T02:00:{second:02}.000000" for second in (0, 3, 5, 8, 11, 12, 20)]


@pytest.fixture
def written(tmp_path: Path, spark: SparkSession) -> Written:
    return Written(tmp_path)


@pytest.fixture
def site(written: Written) -> Iterator[Site]:
    site = answering_site(written, {"dear": DEAR, "highest": HIGHEST})
    yield site
    site.catalog.close()


def edited(written: Written, site: Site, **queries: str) -> Site:
    """The site after these and no other queries have been applied."""
    written.apply(queries)
    return reopened(written, queries, site.catalog)


def agrees(site: Site, name: str) -> None:
    """Who folds all changes has what is published, at every instant."""
    reader = Reader()
    reader.take(told(ChangelogReader(site, name)))
    with open_results(site, ResultsRequest(name)) as found:
        frontier = found.aligned.event_time_text
    for at in (each for each in INSTANTS if each <= frontier):
        assert reader.at(at) == published_rows(site, name, at=at)


def test_an_edited_query_goes_on_as_it_was_until_it_is_evaluated(
    written: Written, site: Site, spark: SparkSession
) -> None:
    ran(site, "quotes", *FIRST)
    ran(site, "quotes", *SECOND)
    feed = ChangelogReader(site, "dear")
    reader = Reader()
    reader.take(told(feed))
    before = published_rows(site, "dear")
    site = edited(written, site, dear=CHEAPER, highest=HIGHEST)
    edit = commits.newest_commit(site.catalog)
    with open_results(site, ResultsRequest("dear")) as found:
        note = f"dear was edited in commit {edit} and is still answered in its former form; run `errata run`"
        assert found.notes == [note]
    assert published_rows(site, "dear") == before
    with pytest.warns(UserWarning, match="edited in commit"):
        errata.results(spark, "dear", project=site.project.root)
    catalog_queries.record_fault(
        site.catalog, recorded_queries(site.catalog)["dear"].query_id, 1, LOWEST, Fault("too large")
    )
    with open_results(site, ResultsRequest("dear")) as found:
        assert found.notes[0].endswith("in its former form; the new one has stopped: too large")

    run(site)
    reader.take(told(feed))
    rows = published_rows(site, "dear")
    assert reader.at(INSTANTS[-1]) == rows
    assert {"symbol": "IBM", "price": 9, "time": "2026-11-18T02:00:20.000000", "twice": 18} in rows
    assert published_rows(site, "dear", as_of=edit) == before
    agrees(site, "dear")
    everything = rows_of(errata.changes(spark, "dear", project=site.project.root).toArrow())
    assert all("twice" in (each["new"] or each["old"]) for each in everything)
    assert [each["op"] for each in everything] == [each["op"] for each in told(ChangelogReader(site, "dear"))]


def test_another_key_begins_anew_and_a_dropped_query_ends(written: Written, site: Site, spark: SparkSession) -> None:
    ran(site, "quotes", *FIRST)
    feed = ChangelogReader(site, "dear")
    reader = Reader()
    reader.take(told(feed))
    site = edited(written, site, dear=LOWER, highest=HIGHEST)
    run(site)
    later = told(feed)
    assert [each["op"] for each in later[:2]] == ["delete", "delete"]
    reader.take(later)
    assert (
        reader.at(INSTANTS[3])
        == published_rows(site, "dear")
        == [
            {"low": 10, "symbol": "IBM"},
            {"low": 20, "symbol": "AAPL"},
        ]
    )
    agrees(site, "dear")
    with pytest.warns(UserWarning, match="dear had another key before commit"):
        found = rows_of(errata.changes(spark, "dear", project=site.project.root).toArrow())
    assert found == [each for each in later if each["op"] == "insert"]

    switched = commits.newest_commit(site.catalog)
    site = edited(written, site, highest=HIGHEST)
    assert not feed.ended
    reader.take(told(feed))
    assert feed.ended
    assert reader.held == {}
    assert published_rows(site, "dear", as_of=switched) == published_rows(site, "dear", as_of=str(switched))
    with pytest.raises(UsageError, match="unknown query 'dear'"), open_results(site, ResultsRequest("dear")):
        pass


def test_vacuum_leaves_what_is_told_in_short(site: Site) -> None:
    ran(site, "quotes", *FIRST)
    first = commits.newest_commit(site.catalog)
    ran(site, "quotes", *SECOND)
    late = Site(site.project, Catalog(site.catalog.engine, FixedClock(NOW + 30 * DAY)), site.warehouse, Cause(""))
    run_vacuum(late)
    for name in ("dear", "highest"):
        agrees(late, name)
        assert {each["op"] for each in told(ChangelogReader(late, name))} == {"insert"}
        with pytest.raises(ErrataError, match=f"commit {first} of query {name} is no longer whole"):
            ChangelogReader(site, name, first)
        with pytest.raises(ErrataError, match=f"the changes of query {name} since commit 1 are no longer whole"):
            told(ChangelogReader(site, name, 1))
    feed = ChangelogReader(late, "highest", commits.newest_commit(site.catalog))
    ran(late, "quotes", *THIRD)
    assert [each["key"] for each in told(feed)] == []
    ran(late, "quotes", *quotes((26, "AAPL", 30)))
    assert [(each["old"], each["new"]) for each in told(feed)][-1] == (None, {"high": 30})
    agrees(late, "highest")


def test_aligned_queries_are_read_of_one_state(site: Site) -> None:
    ran(site, "quotes", *FIRST)
    common = commits.newest_commit(site.catalog)
    highest = published_rows(site, "highest")
    took_in(site, "quotes", *SECOND)
    run(site, ["highest"])
    assert published_rows(site, "highest") != highest
    with open_results(site, ResultsRequest("dear", aligned=["highest"])) as found:
        assert found.aligned.event_time_text == "2026-11-18T02:00:08.000000"
        assert [each.snapshot.evaluation.data_commit < common for each in found.answers] == [True, True]
        assert seen(rows_of(found.answers[1].rows)) == highest
    with (
        pytest.raises(UsageError, match="answered up to 2026-11-18T02:00:08"),
        open_results(site, ResultsRequest("highest", at="2026-11-18T02:00:09", aligned=["dear"])),
    ):
        pass
    run(site)
    with open_results(site, ResultsRequest("dear", aligned=["highest", "DEAR"])) as found:
        assert found.aligned.event_time_text == "2026-11-18T02:00:20.000000"
        assert len(found.answers) == 2


def test_before_the_first_evaluation_and_before_the_answers_begin(site: Site) -> None:
    with (
        pytest.raises(ErrataError, match="query dear has not been evaluated yet"),
        open_results(site, ResultsRequest("dear")),
    ):
        pass
    feed = ChangelogReader(site, "dear")
    with pytest.raises(ErrataError, match="has not been evaluated yet"):
        feed.check_answered()
    assert told(feed) == []
    query_id = recorded_queries(site.catalog)["dear"].query_id
    catalog_queries.record_fault(site.catalog, query_id, 1, LOWEST, Fault("too large", "price * 2"))
    with pytest.raises(ErrataError, match=r"too large in price \* 2"), open_results(site, ResultsRequest("dear")):
        pass
    ran(site, "quotes", *FIRST)
    catalog_queries.record_fault(site.catalog, query_id, 1, LOWEST, Fault("too large"))
    with open_results(site, ResultsRequest("dear")) as found:
        assert found.notes == ["dear has stopped at 2026-11-18T02:00:08.000000: too large"]
        begins = found.aligned.at - 1_000_000
    with site.catalog.writing() as connection:
        connection.execute(update(evaluations).values(begins=begins))
    with (
        pytest.raises(UsageError, match="its answers begin at 2026-11-18T02:00:07"),
        open_results(site, ResultsRequest("dear", at="2026-11-18T02:00:06")),
    ):
        pass
    assert len(published_rows(site, "dear", at="2026-11-18T02:00:07")) == 1


def test_results_in_files(site: Site, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("errata.archive.results.MAX_INLINE_BYTES", 0)
    for lines in (FIRST, SECOND, THIRD):
        ran(site, "quotes", *lines)
    for name in ("dear", "highest"):
        agrees(site, name)
        changes = told(ChangelogReader(site, name))
        rows = published_rows(site, name)
        assert rows_of(errata.changes(spark, name, project=site.project.root).toArrow()) == changes
        assert seen(rows_of(errata.results(spark, name, project=site.project.root).toArrow())) == rows
        monkeypatch.setattr("errata.read.changes.CHUNK_RECORDS", 0)
        assert told(ChangelogReader(site, name)) == changes
        monkeypatch.setattr("errata.read.changes.CHUNK_RECORDS", 50_000)
    kept = read_archive(site.catalog, "dear")
    assert kept is not None
    assert not any(each.inline for each in buckets_by_start(site.catalog, kept, commits.newest_commit(site.catalog)))
