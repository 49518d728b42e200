"""What a plan says of feeds that are declared, changed and removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from errata.declare.changes import plan_stream_changes
from errata.declare.feed_changes import describe_feeds
from errata.model.columns import Column, ColumnType
from errata.model.feed import (
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
)
from errata.model.stream import Stream
from errata.model.time import DAY, SECOND

COLUMNS = {"symbol": "string", "at": "timestamp", "n": "bigint", "price": "double", "until": "timestamp"}
NYSE = Feed(
    "nyse",
    LandingFolder("/in/nyse", 10 * SECOND, LandedFileAction.MOVE),
    properties=FeedProperties(FeedOrder.ORDERED, ties_fixed=True, adjusts=False, complete=True),
    stable=StableRule.MARKS,
)
OLD = Feed("old", query="quotes_v1", joins_at=DAY)
POLICY = MergePolicy(EmitPolicy.FRACTION, 0.5, DisagreementPolicy.LATEST, "price", 2)
QUOTES = Stream(
    "quotes",
    tuple(Column(name, ColumnType.parse(kind)) for name, kind in COLUMNS.items()),
    ("symbol", "at", "n"),
    "at",
    merged=MergedFeeds((NYSE, OLD), POLICY, end="until"),
)


def details(before: Stream = QUOTES, rows: int = 3, **changed: Any) -> tuple[str, ...]:
    after = replace(before, merged=replace(before.merged, **changed))
    changes = plan_stream_changes({"quotes": after}, {"quotes": before}, {"quotes": rows})
    assert changes.refusals == ()
    return changes.changes[0].details


def test_the_feeds_of_a_new_stream_are_told_whole() -> None:
    assert describe_feeds(QUOTES) == (
        "feed nyse: /in/nyse (settle 10 seconds, then move), order ordered, ties fixed, inserts only, complete, "
        "stable by marks",
        "feed old: query quotes_v1, no guarantees, from 1970-01-02T00:00:00.000000",
        "merged: emit fraction 50%, disagreement latest price, quorum 2, end until",
    )
    assert describe_feeds(replace(QUOTES, merged=MergedFeeds())) == ()


def test_feeds_that_come_go_and_change() -> None:
    assert details(feeds=(NYSE, OLD, Feed("new"))) == (
        "feed new added: files that are named, no guarantees, attached from the stable point on",
    )
    assert details(feeds=(NYSE, Feed("late", joins_at=2 * DAY))) == (
        "feed late added: files that are named, no guarantees, from 1970-01-03T00:00:00.000000",
        "feed old detached; what it has said stays",
    )
    assert details(feeds=(OLD, NYSE)) == ("feeds ordered old, nyse",)
    sorted_feed = replace(OLD, properties=FeedProperties(FeedOrder.STRICT), joins_at=0)
    assert details(feeds=(NYSE, sorted_feed)) == (
        "feed old: query quotes_v1, no guarantees, from 1970-01-02T00:00:00.000000 -> query quotes_v1, order strict, "
        "from 1970-01-01T00:00:00.000000",
    )
    assert details(policy=MergePolicy()) == (
        "merge emit fraction 50%, disagreement latest price, quorum 2 -> emit first, disagreement leader, quorum 1",
    )


def test_a_stream_may_become_one_of_feeds() -> None:
    plain = replace(QUOTES, merged=MergedFeeds())
    assert details(plain, feeds=(Feed("new"),)) == ("feed new added: files that are named, no guarantees",)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"end": None}, "end would change from until to none"),
        ({"occurrence": "n"}, "occurrence would change from none to n"),
        ({"feeds": ()}, "none of its feeds is declared any more"),
    ],
)
def test_what_would_lose_rows_is_refused_once_there_are_some(changed: dict[str, Any], said: str) -> None:
    after = replace(QUOTES, merged=replace(QUOTES.merged, **changed))
    [refused] = plan_stream_changes({"quotes": after}, {"quotes": QUOTES}, {"quotes": 1}).refusals
    assert refused.what == said
    assert plan_stream_changes({"quotes": after}, {"quotes": QUOTES}, {}).refusals == ()
