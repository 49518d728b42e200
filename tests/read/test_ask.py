"""One-time answers: of queries and of texts, at an event time and as of a commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import errata
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.archive.revisions.apply import apply_revisions
from errata.archive.upkeep.ageing import age_out
from errata.catalog import commits, pins, streams
from errata.catalog.database import Catalog, open_catalog
from errata.declare.project import load_project
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.engine.failures import query_errors_in_words
from errata.errors import ErrataError, UsageError
from errata.model.commit import Cause
from errata.model.time import HOUR, parse_instant
from errata.read.ask import BoundQuery, OneTimeQuery, bind_query, open_answer
from errata.read.output import fetch_all
from fixtures.clock import FixedClock
from fixtures.projects import STREAMS, Written

NOW = parse_instant("2026-11-18T02:05:00")
PER_10S = "SELECT symbol, window_start, avg(price) AS mean FROM quotes GROUP BY symbol, window(time, '10 seconds')"
QUERIES = {
    "per_10s": PER_10S,
    "highest": "SELECT symbol, max(mean) AS high FROM per_10s GROUP BY symbol",
    "named": "SELECT c.name, q.price, q.time FROM quotes AS q JOIN companies AS c ON q.symbol = c.symbol",
    "counted": "SELECT of, count(*) AS n FROM sliding(ticks, 10) GROUP BY of",
}
PRICES = {0: ("IBM", 10), 3: ("AAPL", 20), 8: ("IBM", 12), 12: ("IBM", 13), 40: ("AAPL", 22)}
BOUGHT, CORRECTED = 2, 6
"""The commits that took quotes in, and corrected one."""

Rows = list[tuple[object, ...]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Site]:
    """A project with quotes, companies and ticks, and a correction of a quote; `spare` has nothing."""
    folder = tmp_path_factory.mktemp("asked")
    declared = STREAMS.replace(
        "relations:", "  spare: {columns: {at: bigint, of: string}, key: [at], order: at}\nrelations:"
    )
    project = Written(folder).write(QUERIES, streams=declared)
    Written(folder).apply(QUERIES, streams=declared)
    catalog = open_catalog(project.catalog, FixedClock(NOW))
    site = Site(project, catalog, Warehouse(project.warehouse), Cause(""))
    quotes = [f"2026-11-18T02:00:{second:02},{symbol},{price}" for second, (symbol, price) in PRICES.items()]
    took_in(site, "quotes", "time,symbol,price", *quotes)
    took_in(
        site,
        "companies",
        "symbol,name,since,gone",
        "IBM,Big Blue,2026-11-01T00:00:00,false",
        "AAPL,Apple,2026-11-18T02:00:10,false",
        "IBM,,2026-11-18T02:00:11,true",
    )
    took_in(site, "ticks", "at,of", "1,a", "5,b", "14,a", "-3,a")
    fix = folder / "fix.csv"
    fix.write_text("_op,time,symbol,price\nreplace,2026-11-18T02:00:08,IBM,16\n")
    ingest_batch(site, IngestRequest("quotes", [str(fix)]))
    apply_revisions(site, ["quotes"])
    yield site
    catalog.close()


def took_in(site: Site, stream: str, *lines: str) -> None:
    file = site.project.root / f"{stream}.csv"
    file.write_text("\n".join([*lines, ""]))
    ingest_batch(site, IngestRequest(stream, [str(file)]))


def answer(site: Site, question: OneTimeQuery) -> tuple[BoundQuery, Rows]:
    with open_answer(site, question) as found:
        columns = fetch_all(found.rows).to_pydict()
        assert list(columns) == found.plan.columns
        return found.query, sorted(zip(*columns.values(), strict=True))


def shown(rows: Rows) -> Rows:
    """Times by their seconds, which suffice here."""
    return [tuple(getattr(value, "second", value) for value in row) for row in rows]


def test_the_last_certain_answer(site: Site) -> None:
    asked, rows = answer(site, OneTimeQuery("per_10s"))
    assert (asked.event_time_text, asked.commit_id) == ("2026-11-18T02:00:40.000000", CORRECTED)
    assert shown(rows) == [("AAPL", 0, 20.0), ("IBM", 0, 13.0), ("IBM", 10, 13.0)]
    assert asked.aged_sources == []


def test_through_another_query_before_and_after_the_correction(site: Site) -> None:
    assert answer(site, OneTimeQuery("HIGHEST"))[1] == [("AAPL", 20.0), ("IBM", 13.0)]
    at = "2026-11-18T02:00:19"
    assert answer(site, OneTimeQuery("highest", at=at, as_of=BOUGHT))[1] == [("AAPL", 20.0), ("IBM", 11.0)]
    assert answer(site, OneTimeQuery("highest", at=at, as_of=str(CORRECTED)))[1] == [("AAPL", 20.0), ("IBM", 13.0)]
    assert answer(site, OneTimeQuery("highest", at="2026-11-18T02:00:09"))[1] == []


def test_a_relation_as_it_was_at_each_rows_time(site: Site) -> None:
    found = shown(answer(site, OneTimeQuery("named"))[1])
    assert found == [("Apple", 22.0, 40), ("Big Blue", 10.0, 0), ("Big Blue", 16.0, 8)]


def test_a_text_over_streams_and_queries(site: Site) -> None:
    text = "SELECT q.price, h.high FROM sliding(quotes, '5 seconds') AS q JOIN highest AS h ON q.symbol = h.symbol"
    at = "2026-11-18T02:00:12"
    assert answer(site, OneTimeQuery(text=text, at=at))[1] == [(13.0, 13.0), (16.0, 13.0)]


def test_a_stream_of_plain_numbers(site: Site) -> None:
    asked, rows = answer(site, OneTimeQuery("counted"))
    assert (asked.event_time_text, rows) == ("14", [("a", 1), ("b", 1)])
    assert answer(site, OneTimeQuery("counted", at="6"))[1] == [("a", 2), ("b", 1)]
    assert answer(site, OneTimeQuery("counted", at=-(2**80)))[1] == []


def test_what_is_read_is_pinned(site: Site) -> None:
    with open_answer(site, OneTimeQuery("named", as_of=BOUGHT + 1)) as found:
        assert pins.oldest_needed_commit(site.catalog) == found.query.commit_id == BOUGHT + 1
    assert pins.oldest_needed_commit(site.catalog) == commits.newest_commit(site.catalog)


@pytest.mark.parametrize(
    ("question", "kind", "told"),
    [
        (
            OneTimeQuery("named", at="2026-11-18T02:00:41"),
            UsageError,
            "stream quotes is stable only up to 2026-11-18T02:00:40",
        ),
        (OneTimeQuery("counted", at=15), UsageError, "ask for 14 or earlier"),
        (OneTimeQuery("counted", at="noon"), UsageError, "'noon' is not a whole number"),
        (OneTimeQuery("named", at="noon"), UsageError, "'noon' is not a date and time"),
        (OneTimeQuery("per_5s"), UsageError, "did you mean per_10s"),
        (OneTimeQuery(text="SELECT at FROM spare"), ErrataError, "stream spare has no rows as of commit 6"),
        (OneTimeQuery("counted", as_of=BOUGHT), UsageError, "stream ticks has no rows as of commit 2"),
        (OneTimeQuery(text="SELECT\n  tme\nFROM quotes", where="x.sql"), UsageError, r"x\.sql:2:3: .*tme"),
        (OneTimeQuery("named", as_of=99), UsageError, "there is no commit 99"),
    ],
)
def test_what_cannot_be_answered(site: Site, question: OneTimeQuery, kind: type[ErrataError], told: str) -> None:
    with pytest.raises(kind, match=told):
        bind_query(site.catalog, question, commits.resolve_as_of(site.catalog, question.as_of))


def test_from_python(site: Site, spark: SparkSession) -> None:
    root = site.project.root
    rows = errata.ask(spark, "named", at="2026-11-18T02:00:30", project=root).select("name", "price").collect()
    assert [tuple(row) for row in rows] == [("Big Blue", 10.0), ("Big Blue", 16.0)]
    text = "SELECT symbol FROM highest WHERE high < 15"
    assert errata.ask(spark, text, as_of=BOUGHT, project=root).collect() == [("IBM",)]
    with pytest.raises(UsageError, match="unknown query 'nonsense'"):
        errata.ask(spark, "nonsense", project=root)


def test_from_python_a_session_with_other_settings_answers_the_same(site: Site, spark: SparkSession) -> None:
    text = "SELECT price, hour(time) AS hour FROM quotes WHERE time >= '2026-11-18 02:00:12'"
    was = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert sorted(errata.ask(spark, text, project=site.project.root).collect()) == [(13.0, 2), (22.0, 2)]
        assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    finally:
        spark.conf.set("spark.sql.session.timeZone", was or "UTC")
        spark.conf.set("spark.sql.ansi.enabled", "true")


def plan_of(catalog: Catalog, question: OneTimeQuery) -> BoundQuery:
    return bind_query(catalog, question, commits.resolve_as_of(catalog, question.as_of))


def test_a_commit_behind_the_horizon(site: Site) -> None:
    late = Catalog(site.catalog.engine, FixedClock(NOW + 24 * 30 * HOUR))
    assert plan_of(late, OneTimeQuery("named")).commit_id == CORRECTED
    with pytest.raises(ErrataError, match="behind the horizon of stream"):
        plan_of(late, OneTimeQuery("named", as_of=BOUGHT + 1))


def test_rows_that_have_been_aged_out_are_missed(tmp_path: Path, spark: SparkSession) -> None:
    declared = STREAMS.replace("order: at,", "order: at, retention: 10 units,")
    project = Written(tmp_path).write(QUERIES, streams=declared)
    Written(tmp_path).apply(QUERIES, streams=declared)
    catalog = open_catalog(project.catalog, FixedClock(NOW))
    site = Site(load_project(tmp_path, {}), catalog, Warehouse(project.warehouse), Cause(""))
    took_in(site, "ticks", "at,of", "1,a", "40,a")
    took_in(site, "ticks", "at,of", "60,a")
    assert plan_of(catalog, OneTimeQuery("counted")).aged_sources == []
    age_out(site, ["ticks"])
    assert streams.stream_state(catalog, "ticks").aged_to is not None
    # What slides needs none of them.
    assert plan_of(catalog, OneTimeQuery("counted")).aged_sources == []
    text = "SELECT count(*) AS n FROM ticks"
    assert plan_of(catalog, OneTimeQuery(text=text)).aged_sources == ["ticks"]
    with pytest.warns(UserWarning, match="rows of ticks have been aged out"):
        assert errata.ask(spark, text, project=tmp_path).collect() == [(1,)]
    catalog.close()


def test_a_failure_that_is_no_rows_fault() -> None:
    with pytest.raises(ErrataError) as raised, query_errors_in_words():
        raise PySparkException("Job aborted\njava.io.FileNotFoundException: gone.parquet\nat org.apache.Spark")
    assert str(raised.value) == (
        "the Spark job failed\n"
        "  why: java.io.FileNotFoundException: gone.parquet\n"
        "  how to mend: mend the cause and ask again"
    )
