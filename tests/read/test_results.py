"""Reading what is published: results at any time and commit, and changes that lead from each to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import errata
from errata.catalog import commits, pins
from errata.catalog.database import Catalog
from errata.catalog.result_archives import read_archive
from errata.declare.site import Site
from errata.errors import ErrataError, UsageError
from errata.model.commit import Cause
from errata.model.time import DAY, LOWEST, parse_event_time
from errata.read import changes as changes_flow
from errata.read import results as results_flow
from errata.read.changes import ChangelogReader
from errata.read.results import ResultsRequest, open_results
from fixtures.answers import (
    NOW,
    Change,
    Reader,
    answering_site,
    asked_rows,
    published_rows,
    quotes,
    ran,
    rows_of,
    seen,
    told,
)
from fixtures.clock import FixedClock
from fixtures.projects import Written

QUERIES = {
    "dear": "SELECT symbol, price, time FROM quotes WHERE price > 11",
    "prices": "SELECT price FROM quotes",
    "per_10s": "SELECT symbol, window_start, avg(price) mean FROM quotes GROUP BY symbol, window(time, '10 seconds')",
    "highest": "SELECT symbol, max(mean) AS high FROM per_10s GROUP BY symbol",
    "symbols": "SELECT DISTINCT symbol FROM sliding(quotes, '5 seconds')",
    "counted": "SELECT of, count(*) AS n FROM sliding(ticks, 10) GROUP BY of",
    "number": "SELECT count(*) AS n FROM sliding(ticks, 10)",
}
BATCHES = [
    ("quotes", quotes((0, "IBM", 10), (3, "AAPL", 20), (8, "IBM", 12))),
    ("ticks", ["at,of", "1,a", "5,b", "14,a", "-3,a"]),
    # More at the last instant, too, and windows that close.
    ("quotes", quotes((8, "AAPL", 21), (12, "IBM", 13), (20, "IBM", "NaN"))),
    ("ticks", ["at,of", "14,b", "14,c", "15,a"]),
    ("quotes", quotes((20, "AAPL", ""), (40, "AAPL", 22))),
    ("ticks", ["at,of", "40,a"]),
]
TICKS = {"counted", "number"}
SECONDS = (0, 3, 4, 8, 9, 10, 12, 13, 17, 20, 21, 39, 40)
PLACES = (-3, 1, 5, 7, 11, 14, 15, 24, 25, 39, 40)


@dataclass
class There:
    """A site with all batches taken in, evaluated after each, and what was told meanwhile."""

    site: Site
    followed: Mapping[str, list[Change]]
    evaluated: list[int]
    """The newest commit after each evaluation."""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[There]:
    site = answering_site(Written(tmp_path_factory.mktemp("published")), QUERIES)
    feeds = {name: ChangelogReader(site, name) for name in QUERIES}
    followed: dict[str, list[Change]] = {name: [] for name in QUERIES}
    evaluated = []
    for stream, lines in BATCHES:
        ran(site, stream, *lines)
        evaluated.append(commits.newest_commit(site.catalog))
        for name, feed in feeds.items():
            followed[name] += told(feed)
    yield There(site, followed, evaluated)
    site.catalog.close()


@pytest.fixture
def site(there: There) -> Site:
    return there.site


def answered(site: Site, name: str, commit: int) -> int:
    """How far a query was answered as of a commit."""
    results = read_archive(site.catalog, name, commit)
    return LOWEST if results is None else results.frontier


def moments(name: str) -> list[tuple[object, str | int]]:
    """Times at which a query is read, as its changes write them and as a person does."""
    if name in TICKS:
        return [(place, place) for place in PLACES]
    return [(f"2026-11-18T02:00:{second:02}.000000", f"2026-11-18T02:00:{second:02}") for second in SECONDS]


@pytest.mark.parametrize("name", QUERIES)
def test_folding_the_changes_gives_the_results_at_every_commit(there: There, name: str) -> None:
    changes = told(ChangelogReader(there.site, name))
    numbers = [change["commit"] for change in changes]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) > 1
    reader, compared = Reader(), 0
    for before, commit in zip([0, *there.evaluated], there.evaluated, strict=False):
        reader.take(change for change in changes if before < change["commit"] <= commit)
        for written, at in moments(name):
            if parse_event_time(at, timed=name not in TICKS) <= answered(there.site, name, commit):
                assert reader.at(written) == published_rows(there.site, name, at=at, as_of=commit)
                compared += 1
    assert compared > 20


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_published_is_what_a_question_is_answered(site: Site, name: str) -> None:
    assert published_rows(site, name) == asked_rows(site, name)
    at = moments(name)[3][1]
    assert published_rows(site, name, at=at) == asked_rows(site, name, at=at)


@pytest.mark.parametrize("name", QUERIES)
def test_who_follows_is_told_all_of_it_once(there: There, name: str) -> None:
    assert there.followed[name] == told(ChangelogReader(there.site, name))


def test_what_a_change_says(site: Site) -> None:
    first, *_ = told(ChangelogReader(site, "prices"))
    assert first == {
        "op": "insert",
        "key": {"quotes.time": "2026-11-18T02:00:00.000000", "quotes.symbol": "IBM"},
        "vs": "2026-11-18T02:00:00.000000",
        "ve": None,
        "old": None,
        "new": {"price": 10},
        "old_ve": None,
        "cause": {"type": "batch", "id": first["cause"]["id"]},
        "commit": first["commit"],
    }
    assert first["cause"]["id"]
    of_all = [each for each in told(ChangelogReader(site, "number")) if each["vs"] == 14]
    assert [(each["op"], each["old"], each["new"], each["key"]) for each in of_all] == [
        ("insert", None, {"n": 2}, {}),
        ("replace", {"n": 2}, {"n": 4}, {}),
    ]
    of_b = [each for each in told(ChangelogReader(site, "counted")) if each["key"] == {"of": "b"}]
    assert {(each["vs"], each["ve"]) for each in of_b} >= {(5, None), (15, 24)}


def test_since_a_commit(site: Site) -> None:
    everything = told(ChangelogReader(site, "highest"))
    between = everything[len(everything) // 2]["commit"]
    assert told(ChangelogReader(site, "HIGHEST", between)) == [each for each in everything if each["commit"] > between]
    assert told(ChangelogReader(site, "highest", commits.newest_commit(site.catalog))) == []


@pytest.mark.parametrize("near", [True, False])
@pytest.mark.parametrize("name", ["prices", "highest", "number"])
def test_either_engine_reads_the_same(site: Site, name: str, *, near: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    few, answer = told(ChangelogReader(site, name)), published_rows(site, name)
    monkeypatch.setattr(changes_flow, "CHUNK_RECORDS", 0)
    monkeypatch.setattr(results_flow, "LOCAL_ROWS", 0)
    monkeypatch.setattr("errata.declare.site.NEAR_MAX_ROWS", 1_000_000 if near else 0)
    stretches = list(ChangelogReader(site, name).read_new())
    assert all(isinstance(each.rows, pa.Table) is near for each in stretches)
    assert [change for each in stretches for change in rows_of(each.rows)] == few
    assert published_rows(site, name) == answer


def test_from_python(site: Site, spark: SparkSession) -> None:
    root = site.project.root
    rows = errata.results(spark, "dear", at="2026-11-18T02:00:12", project=root)
    assert rows.columns == ["symbol", "price", "time"]
    assert [tuple(row)[:2] for row in rows.collect()] == [("AAPL", 20.0), ("AAPL", 21.0), ("IBM", 12.0), ("IBM", 13.0)]
    both = errata.results(spark, "dear", aligned=["prices"], project=root)
    assert sorted(both) == ["dear", "prices"]
    assert seen(rows_of(both["prices"].toArrow())) == published_rows(site, "prices")
    assert rows_of(errata.changes(spark, "highest", project=root).toArrow()) == told(ChangelogReader(site, "highest"))
    newest = commits.newest_commit(site.catalog)
    nothing = errata.changes(spark, "highest", since=newest, project=root)
    assert (nothing.columns[:3], nothing.count()) == (["op", "key", "vs"], 0)


def test_nulls_come_first_and_nan_comes_last(site: Site, spark: SparkSession) -> None:
    prices = [row.price for row in errata.results(spark, "prices", project=site.project.root).collect()]
    assert prices[0] is None
    assert repr(prices[-1]) == "nan"
    assert prices[1:-1] == sorted(prices[1:-1])


def test_what_is_read_is_pinned_and_pruned(there: There) -> None:
    site, as_of = there.site, there.evaluated[0]
    with open_results(site, ResultsRequest("dear", as_of=as_of)) as found:
        assert pins.oldest_needed_commit(site.catalog) == as_of
        assert found.aligned.event_time_text == "2026-11-18T02:00:08.000000"
    assert pins.oldest_needed_commit(site.catalog) == commits.newest_commit(site.catalog)
    with (
        open_results(site, ResultsRequest("counted", at=-3)) as early,
        open_results(site, ResultsRequest("counted")) as late,
    ):
        opened = [{each.bucket_id for each in found.answers[0].buckets} for found in (early, late)]
        assert all(opened)
        assert opened[0] != opened[1]


@pytest.mark.parametrize(
    ("wanted", "told_then"),
    [
        (ResultsRequest("dear", at="2026-11-18T02:00:41"), "query dear is answered up to 2026-11-18T02:00:40.000000"),
        (ResultsRequest("counted", at=41), "read it at 40 or earlier"),
        (ResultsRequest("counted", at="noon"), "'noon' is not a whole number"),
        (ResultsRequest("deer"), "did you mean dear"),
        (ResultsRequest("quotes"), "quotes is a stream, and no query"),
        (ResultsRequest("dear", as_of=1), "query dear had no results as of commit 1"),
        (ResultsRequest("dear", aligned=["counted"]), "dear, counted cannot be aligned"),
    ],
)
def test_what_cannot_be_read(site: Site, wanted: ResultsRequest, told_then: str) -> None:
    with pytest.raises(UsageError, match=told_then), open_results(site, wanted):
        pass


def test_behind_the_horizon(there: There) -> None:
    was = there.site
    site = Site(was.project, Catalog(was.catalog.engine, FixedClock(NOW + 30 * DAY)), was.warehouse, Cause(""))
    assert published_rows(site, "dear") == published_rows(was, "dear")
    with (
        pytest.raises(ErrataError, match="behind the horizon of query dear"),
        open_results(site, ResultsRequest("dear", as_of=there.evaluated[0])),
    ):
        pass
    with pytest.raises(ErrataError, match="behind the horizon of query dear"):
        ChangelogReader(site, "dear", there.evaluated[0])
