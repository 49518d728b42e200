"""Streams with feeds: what they refuse, and their record, which says all of the declaration."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.errors import UsageError
from errata.model.columns import Column, ColumnType
from errata.model.feed import (
    MAX_FEEDS,
    NO_FEEDS,
    DisagreementPolicy,
    EmitPolicy,
    Feed,
    FeedOrder,
    FeedProperties,
    LandedFileAction,
    LandingFolder,
    MergedFeeds,
    MergePolicy,
    StableRule,
    feeds_from_record,
)
from errata.model.stream import Stream, stream_from_record, stream_to_record
from errata.model.time import LOWEST

PLAIN = Stream(
    "quotes",
    tuple(
        Column(name, ColumnType.parse(kind))
        for name, kind in {
            "symbol": "string",
            "at": "timestamp",
            "n": "bigint",
            "price": "double",
            "version": "bigint",
            "until": "timestamp",
        }.items()
    ),
    ("symbol", "at", "n"),
    "at",
)
TWO = (Feed("nyse"), Feed("mirror"))


def merged(feeds: tuple[Feed, ...] = TWO, **how: Any) -> Stream:
    return replace(PLAIN, merged=MergedFeeds(feeds, **how))


PROPERTIES = st.builds(FeedProperties, st.sampled_from(FeedOrder), st.booleans(), st.booleans(), st.booleans())
LANDINGS = st.none() | st.builds(
    LandingFolder, st.sampled_from(["/landing/a", "s3://b/c"]), st.integers(0, 10**9), st.sampled_from(LandedFileAction)
)
FEEDS = st.builds(
    Feed,
    st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True),
    LANDINGS,
    st.none() | st.just("quotes_v1"),
    PROPERTIES,
    st.sampled_from(StableRule),
    st.integers(LOWEST, 2**62),
)
POLICIES = st.builds(
    MergePolicy,
    st.sampled_from(EmitPolicy),
    st.floats(0.01, 1),
    st.sampled_from(DisagreementPolicy),
    st.none() | st.sampled_from(["price", "version"]),
)


@given(
    st.lists(FEEDS, min_size=1, max_size=5, unique_by=lambda feed: feed.name),
    POLICIES,
    st.none() | st.just("until"),
    st.none() | st.just("n"),
    st.data(),
)
def test_a_record_says_all_of_the_declaration(
    feeds: list[Feed], policy: MergePolicy, end: str | None, occurrence: str | None, data: st.DataObject
) -> None:
    policy = replace(policy, quorum=data.draw(st.integers(1, len(feeds))))
    stream = merged(tuple(feeds), policy=policy, end=end, occurrence=occurrence)
    record = json.loads(json.dumps(stream_to_record(stream)))
    assert stream_from_record("quotes", record) == stream


def test_a_record_says_that_a_query_skips_what_nobody_needs() -> None:
    stream = merged((Feed("old", query="quotes_v1", feedback=True), Feed("new")))
    assert stream_from_record("quotes", json.loads(json.dumps(stream_to_record(stream)))) == stream


def test_a_record_keeps_what_follows_from_plans_which_is_no_difference_of_declarations() -> None:
    derived = FeedProperties(FeedOrder.STRICT, adjusts=False)
    known, declared = (merged((Feed("old", query="q", derived=each),)) for each in (derived, None))
    read = stream_from_record("quotes", json.loads(json.dumps(stream_to_record(known))))
    assert read == declared
    assert read.merged.feeds[0].derived == derived
    assert stream_from_record("quotes", stream_to_record(declared)).merged.feeds[0].derived is None


def test_a_stream_without_feeds_is_recorded_as_ever() -> None:
    assert "merge" not in stream_to_record(PLAIN)
    assert stream_from_record("quotes", stream_to_record(PLAIN)) == PLAIN
    assert feeds_from_record(None) is NO_FEEDS


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"end": "price"}, "column price cannot be the end"),
        ({"end": "version"}, "column version cannot be the end"),
        ({"end": "at"}, "column at cannot be the end"),
        ({"end": "later"}, "unknown column in end 'later'"),
        ({"occurrence": "version"}, "column version cannot number equal rows"),
        ({"occurrence": "symbol"}, "column symbol cannot number equal rows"),
        ({"occurrence": "m"}, "unknown column in occurrence 'm'"),
        ({"policy": MergePolicy(version="n")}, "column n cannot be the version"),
        ({"policy": MergePolicy(version="until"), "end": "until"}, "column until cannot be the version"),
        ({"policy": MergePolicy(version="prize")}, "unknown column in disagreement 'prize'"),
        ({"policy": MergePolicy(quorum=3)}, "a quorum of 3 of 2 feeds"),
        ({"policy": MergePolicy(fraction=0)}, "a fraction of 0 of the feeds"),
        ({"feeds": (Feed("a"), Feed("A"))}, "feed A is declared twice"),
        ({"feeds": tuple(Feed(f"f{number}") for number in range(MAX_FEEDS + 1))}, "65 feeds of one stream"),
    ],
)
def test_what_cannot_be_merged_is_refused(how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        merged(**how)
    assert raised.value.what.startswith(said)


def test_the_order_of_a_stream_with_feeds_may_be_a_bigint() -> None:
    counted = replace(PLAIN, key=("symbol", "n"), order="n", merged=MergedFeeds(TWO, end="version"))
    assert stream_from_record("quotes", stream_to_record(counted)) == counted
    with pytest.raises(UsageError, match="cannot number equal rows"):
        replace(counted, merged=MergedFeeds(TWO, occurrence="n"))
