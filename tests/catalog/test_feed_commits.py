"""Feeds that are attached, detached, trusted and declared anew: what stands afterwards, and that twice is once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from errata.catalog import commits, declarations, streams
from errata.catalog.database import Catalog
from errata.catalog.feed_commits import attach_feed, check_attached_feed, detach_feed, redeclared_feeds, trust_feed
from errata.catalog.feeds import FeedChange, FeedState, MergeRecord, commit_feeds, feeds_of, standing_feeds
from errata.errors import RefusedError, UsageError
from errata.model.commit import Cause
from errata.model.feed import Feed, FeedOrder, FeedProperties, MergeAlgorithm, MergedFeeds
from errata.model.stream import Stream
from errata.model.time import LOWEST

CAUSE = Cause(flow="feeds")
KNOWN = FeedState(
    "a",
    0,
    stable=70,
    top_order=70,
    top_rows=2,
    rows=9,
    suspect_reason="it said otherwise",
    suspect_in=4,
    last_commit=4,
    broken=[],
)


def declare(catalog: Catalog, *streams_declared: Stream) -> None:
    declarations.apply_changes(catalog, CAUSE, write=streams_declared, drop=[], summary={})


def standing(catalog: Catalog, name: str) -> list[FeedState]:
    state = streams.stream_state(catalog, name)
    return standing_feeds(state.stream, feeds_of(catalog, state.stream_id))


@pytest.fixture
def merged(catalog: Catalog, ticks: Stream) -> Stream:
    """Feeds a and b, merged up to place 60; a has said something."""
    stream = replace(ticks, merged=MergedFeeds((Feed("a"), Feed("b", joins_at=50))))
    declare(catalog, stream)
    change = FeedChange([KNOWN], MergeRecord(MergeAlgorithm.R3, "it adjusts", 60, "a"))
    commit_feeds(catalog, streams.stream_state(catalog, stream.name).stream_id, lambda *_: change, CAUSE, {})
    return stream


def attached_again(catalog: Catalog, feed: FeedState, joins_at: int) -> FeedState:
    """A feed that the newest commit has attached again."""
    begun = replace(feed, joins_at=joins_at, stable=LOWEST, top_order=LOWEST, top_rows=0)
    return replace(begun, attached_in=commits.newest_commit(catalog))


def test_a_feed_is_detached_and_attached_where_the_merged_stream_is(catalog: Catalog, merged: Stream) -> None:
    first = detach_feed(catalog, merged.name, "a", CAUSE)
    assert first == commits.newest_commit(catalog) == streams.stream_state(catalog, merged.name).changed_in
    assert standing(catalog, merged.name)[0] == replace(KNOWN, attached=False)
    assert attach_feed(catalog, merged.name, "a", CAUSE) == commits.newest_commit(catalog)
    assert standing(catalog, merged.name)[0] == attached_again(catalog, KNOWN, 60)


def test_a_feed_that_has_everything_from_a_place_on_is_attached_there(catalog: Catalog, merged: Stream) -> None:
    detach_feed(catalog, merged.name, "b", CAUSE)
    attach_feed(catalog, merged.name, "b", CAUSE, starts_at=90)
    again = attached_again(catalog, FeedState("b", 1, broken=[]), 90)
    assert standing(catalog, merged.name)[1] == again
    attach_feed(catalog, merged.name, "b", CAUSE, starts_at=95)
    assert standing(catalog, merged.name)[1] == replace(again, joins_at=95), "it goes on from where it was"


def test_a_suspect_is_trusted_again_and_keeps_what_it_has_said(catalog: Catalog, merged: Stream) -> None:
    assert trust_feed(catalog, merged.name, "a", CAUSE) is not None
    assert standing(catalog, merged.name)[0] == replace(KNOWN, suspect_reason=None, suspect_in=None)


def test_what_is_so_already_is_no_commit(catalog: Catalog, merged: Stream) -> None:
    detach_feed(catalog, merged.name, "b", CAUSE)
    newest = commits.newest_commit(catalog)
    done: list[Callable[[], int | None]] = [
        lambda: attach_feed(catalog, merged.name, "a", CAUSE),
        lambda: detach_feed(catalog, merged.name, "b", CAUSE),
        lambda: trust_feed(catalog, merged.name, "b", CAUSE),
    ]
    assert [again() for again in done] == [None, None, None]
    assert commits.newest_commit(catalog) == newest


def test_unknown_feeds_and_streams_without_feeds_are_told(catalog: Catalog, merged: Stream) -> None:
    with pytest.raises(UsageError, match="unknown feed 'c'") as raised:
        detach_feed(catalog, merged.name, "c", CAUSE)
    assert raised.value.how == "there is a, b"
    declare(catalog, replace(merged, name="plain", merged=MergedFeeds()))
    with pytest.raises(UsageError, match="stream plain has no feeds"):
        trust_feed(catalog, "plain", "a", CAUSE)
    with pytest.raises(UsageError, match="unknown stream"):
        attach_feed(catalog, "nothing", "a", CAUSE)


def test_a_detached_feed_says_nothing(merged: Stream) -> None:
    check_attached_feed(KNOWN, merged)
    with pytest.raises(RefusedError, match="feed a is detached") as raised:
        check_attached_feed(replace(KNOWN, attached=False), merged)
    assert f"errata feeds attach {merged.name} a" in str(raised.value)


def test_a_declaration_attaches_what_is_added_and_detaches_what_is_removed(catalog: Catalog, merged: Stream) -> None:
    declare(catalog, replace(merged, merged=MergedFeeds((Feed("c"), Feed("b", joins_at=50), Feed("d", joins_at=80)))))
    assert [(each.name, each.attached, each.joins_at) for each in standing(catalog, merged.name)] == [
        ("c", True, 60),
        ("b", True, 50),
        ("d", True, 80),
    ]
    known = {each.name: each for each in feeds_of(catalog, streams.stream_state(catalog, merged.name).stream_id)}
    assert known["a"] == replace(KNOWN, attached=False)
    declare(catalog, merged)
    assert standing(catalog, merged.name)[0] == attached_again(catalog, KNOWN, 60)
    known = {each.name: each for each in feeds_of(catalog, streams.stream_state(catalog, merged.name).stream_id)}
    assert (known["c"].attached, "d" in known) == (False, False)  # nothing was known of d


def test_a_new_stream_has_its_feeds_as_declared(catalog: Catalog, ticks: Stream) -> None:
    declare(catalog, replace(ticks, merged=MergedFeeds((Feed("a"), Feed("b", joins_at=50)))))
    assert feeds_of(catalog, streams.stream_state(catalog, ticks.name).stream_id) == []
    assert standing(catalog, ticks.name) == [FeedState("a", 0), FeedState("b", 1, joins_at=50)]


def test_a_guarantee_is_believed_again_once_it_is_declared_anew(ticks: Stream) -> None:
    broken = FeedState("a", 0, stable=5, broken=[{"guarantee": "order: strict"}])
    before = replace(ticks, merged=MergedFeeds((Feed("a", properties=FeedProperties(FeedOrder.STRICT)), Feed("b"))))
    assert redeclared_feeds(before, before, [broken], 7) is None
    moved = replace(ticks, merged=MergedFeeds((Feed("b"), *before.merged.feeds[:1])))
    assert redeclared_feeds(before, moved, [broken], 7) is None
    ordered = Feed("a", properties=FeedProperties(FeedOrder.ORDERED), joins_at=9)
    after = replace(ticks, merged=MergedFeeds((ordered, Feed("b"))))
    assert redeclared_feeds(before, after, [broken], 7) == FeedChange([FeedState("a", 0, stable=5, joins_at=9)])
