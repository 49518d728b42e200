"""Feeds that are queries: which fit, in which order everything is brought up to date, and what is said of mistakes."""

from __future__ import annotations

import pytest

from errata.declare.query_feeds import FeedStage, check_query_feed, check_query_feeds, feed_stages, order_lag
from errata.declare.query_plans import read_plans
from errata.errors import UsageError
from errata.language.plan import Plan
from errata.model.columns import Column, ColumnType, TypeKind
from errata.model.feed import Feed, FeedProperties, MergedFeeds
from errata.model.query import Query
from errata.model.stream import Stream

BIGINT, INT, STRING, TIMESTAMP = (
    ColumnType(kind) for kind in (TypeKind.BIGINT, TypeKind.INT, TypeKind.STRING, TypeKind.TIMESTAMP)
)
QUOTES = Stream("quotes", (Column("at", BIGINT), Column("of", STRING), Column("price", INT)), ("at", "of"), "at")


def merged(columns: dict[str, ColumnType], key: tuple[str, ...], order: str = "at", end: str | None = None) -> Stream:
    feeds = MergedFeeds((Feed("one", query="q"),), end=end)
    return Stream("m", tuple(Column(*each) for each in columns.items()), key, order, merged=feeds)


def plan(text: str) -> Plan:
    return read_plans({"quotes": QUOTES}, {"q": Query("q", "q.sql", text)}, ["q"])["q"]


SELECTED = merged({"at": BIGINT, "of": STRING, "price": INT}, ("at", "of"))
CLOSED = "SELECT of, window_start, count(*) AS n FROM quotes GROUP BY of, window(at, 4)"


def test_the_order_field_is_when_a_result_begins_or_an_equal_span_before() -> None:
    assert order_lag(plan("SELECT at, of, price FROM quotes WHERE price > 1"), SELECTED) == 0
    counted = merged({"window_start": BIGINT, "of": STRING, "n": BIGINT}, ("window_start", "of"), "window_start")
    assert order_lag(plan(CLOSED), counted) == 4
    # It is not among the columns: it is when the result begins.
    sums = plan("SELECT of, sum(price) AS s FROM sliding(quotes, 5) GROUP BY of")
    assert order_lag(sums, merged({"since": BIGINT, "of": STRING, "s": BIGINT}, ("since", "of"), "since")) == 0


def test_a_column_that_does_not_tell_when_a_result_begins_is_no_order_field() -> None:
    sums = plan("SELECT of, max(at) AS at FROM sliding(quotes, 5) GROUP BY of")
    with pytest.raises(UsageError, match="does not tell when they begin"):
        order_lag(sums, merged({"at": BIGINT, "of": STRING}, ("at", "of")))


@pytest.mark.parametrize(
    ("stream", "text", "message"),
    [
        (SELECTED, "SELECT at, of FROM quotes", "no column price"),
        (SELECTED, "SELECT at, of, CAST(price AS string) AS price FROM quotes", "is a string"),
        (SELECTED, "SELECT of, price FROM quotes", "which is not among its columns"),
        (merged({"at": BIGINT, "of": STRING}, ("at",)), "SELECT at, of FROM quotes", "told apart by at, of"),
        (
            merged({"at": ColumnType(TypeKind.TIMESTAMP), "of": STRING}, ("at", "of")),
            "SELECT of FROM quotes",
            "event time",
        ),
    ],
)
def test_a_query_that_does_not_fit_is_refused_in_words(stream: Stream, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as found:
        check_query_feed(stream, plan(text))
    assert found.value.how


def test_a_query_may_have_more_columns_and_need_not_have_those_of_the_lifetime() -> None:
    check_query_feed(merged({"at": BIGINT, "of": STRING}, ("at", "of")), plan("SELECT at, of, price FROM quotes"))
    ends = merged({"since": BIGINT, "of": STRING, "s": BIGINT, "until": BIGINT}, ("since", "of"), "since", "until")
    check_query_feed(ends, plan("SELECT of, sum(price) AS s FROM sliding(quotes, 5) GROUP BY of"))


def _mistakes(feed: Feed, reads: dict[str, list[str]], **options: str) -> list[UsageError]:
    text = "SELECT at, of, price FROM quotes"
    stream = Stream("m", QUOTES.columns, ("at", "of"), "at", merged=MergedFeeds((feed,)))
    queries = {name: Query(name, "", text, **options) for name in reads}  # type: ignore[arg-type]
    return check_query_feeds({"quotes": QUOTES, "m": stream}, queries, dict.fromkeys(reads, plan(text)), reads)


def test_mistakes_name_the_feed_and_the_stream() -> None:
    (unknown,) = _mistakes(Feed("one", query="nobody"), {"q": ["quotes"]})
    assert unknown.where == "feed one of stream m"
    (cycle,) = _mistakes(Feed("one", query="q"), {"q": ["quotes", "other"], "other": ["m"]})
    assert "which it feeds" in cycle.what
    assert _mistakes(Feed("one", query="q"), {"q": ["quotes"], "over": ["m"]}) == []


def test_feedback_is_for_queries_that_are_nothing_but_a_feed() -> None:
    feed = Feed("one", query="q", feedback=True)
    assert _mistakes(feed, {"q": ["quotes"]}) == []
    (read,) = _mistakes(feed, {"q": ["quotes"], "over": ["q"]})
    assert "query over has them" in read.what
    (served,) = _mistakes(feed, {"q": ["quotes"]}, serve="now")
    assert "its result table now" in served.what
    with pytest.raises(UsageError, match="no query makes it"):
        Feed("one", feedback=True)
    with pytest.raises(UsageError, match="is complete"):
        Feed("one", query="q", feedback=True, properties=FeedProperties(complete=True))


def test_queries_come_in_the_stage_after_those_that_feed_what_they_read() -> None:
    first = Stream(
        "m", QUOTES.columns, ("at", "of"), "at", merged=MergedFeeds((Feed("a", query="v1"), Feed("b", query="v2")))
    )
    second = Stream("top", QUOTES.columns, ("at", "of"), "at", merged=MergedFeeds((Feed("c", query="over"),)))
    streams = [QUOTES, first, second]
    reads = {"v1": ["quotes"], "v2": ["v1"], "over": ["m", "v1"], "last": ["top"], "alone": ["quotes"]}
    assert feed_stages(streams, reads) == [
        FeedStage(("v1", "v2", "alone"), (("m", "a", "v1"), ("m", "b", "v2"))),
        FeedStage(("over",), (("top", "c", "over"),)),
        FeedStage(("last",)),
    ]
    assert feed_stages(streams, reads, ["over"])[0].queries == ("v1", "v2")
    assert feed_stages(streams, reads, ["v1"]) == [FeedStage(("v1",), (("m", "a", "v1"),))]
    assert feed_stages([QUOTES], {"v1": ["quotes"]}) == [FeedStage(("v1",))]
