"""Feeds in the catalog: changes commit with the rest, and what stands is found again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from errata.catalog import declarations, streams
from errata.catalog.database import Catalog
from errata.catalog.feeds import (
    Disagreement,
    DisagreementFilter,
    FeedChange,
    FeedState,
    MergeRecord,
    commit_feeds,
    disagreements_of,
    feeds_of,
    merge_of,
    standing_disagreements,
    standing_feeds,
)
from errata.errors import RefusedError
from errata.model.commit import Cause
from errata.model.feed import Feed, MergeAlgorithm, MergedFeeds
from errata.model.stream import Stream
from errata.model.time import LOWEST

CAUSE = Cause(flow="feeds")


@pytest.fixture
def merged(ticks: Stream) -> Stream:
    return replace(ticks, merged=MergedFeeds((Feed("a"), Feed("b", joins_at=50))))


def declare(catalog: Catalog, stream: Stream) -> int:
    declarations.apply_changes(catalog, CAUSE, write=[stream], drop=[], summary={})
    return streams.stream_state(catalog, stream.name).stream_id


def change(catalog: Catalog, stream_id: int, wanted: FeedChange) -> int:
    return commit_feeds(catalog, stream_id, lambda *_: wanted, CAUSE, {"feeds": "changed"})


def disagreement(price: float, chosen: str = "a") -> Disagreement:
    values = [
        {"feed": feed, "row": {"price": str(said)}, "file": f"{feed}.csv", "line": 2, "chosen": feed == chosen}
        for feed, said in (("a", 1.0), ("b", price))
    ]
    return Disagreement({"symbol": "IBM", "at": "10:00"}, 10, chosen, "leader", values)


def shown(some: Sequence[Disagreement]) -> list[tuple[str, int | None, int | None, int | None]]:
    return [(each.chosen, each.opened_in, each.changed_in, each.resolved_in) for each in some]


def test_declared_feeds_stand_as_declared_until_something_is_known_of_them(catalog: Catalog, merged: Stream) -> None:
    stream_id = declare(catalog, merged)
    assert feeds_of(catalog, stream_id) == []
    assert merge_of(catalog, stream_id) is None
    assert standing_feeds(merged, []) == [FeedState("a", 0), FeedState("b", 1, joins_at=50)]
    kept = FeedState("b", 0, attached=False, joins_at=LOWEST, stable=70, rows=3, broken=[{"guarantee": "order"}])
    change(catalog, stream_id, FeedChange([kept]))
    assert feeds_of(catalog, stream_id) == [kept]
    assert standing_feeds(merged, feeds_of(catalog, stream_id)) == [FeedState("a", 0), replace(kept, number=1)]
    change(catalog, stream_id, FeedChange([replace(kept, rows=4)]))
    assert [each.rows for each in feeds_of(catalog, stream_id)] == [4]
    change(catalog, stream_id, FeedChange(gone=["b"]))
    assert feeds_of(catalog, stream_id) == []


def test_a_change_of_feeds_is_a_commit_that_moves_the_stream(catalog: Catalog, merged: Stream) -> None:
    stream_id = declare(catalog, merged)
    before = streams.stream_state(catalog, merged.name)
    commit_id = change(catalog, stream_id, FeedChange([FeedState("a", 0, stable=5)]))
    after = streams.stream_state(catalog, merged.name)
    assert after.changed_in == commit_id > before.changed_in
    assert after == replace(before, changed_in=commit_id)


def test_a_refused_change_leaves_nothing(catalog: Catalog, merged: Stream) -> None:
    stream_id = declare(catalog, merged)
    before = streams.stream_state(catalog, merged.name)

    def refuse(stream: Stream, found: list[FeedState]) -> FeedChange:
        assert [each.name for each in found] == [feed.name for feed in stream.merged.feeds]
        raise RefusedError("no")

    with pytest.raises(RefusedError):
        commit_feeds(catalog, stream_id, refuse, CAUSE, {})
    assert streams.stream_state(catalog, merged.name) == before


def test_the_merge_knows_since_when_it_is_so_and_counts_switches(catalog: Catalog, merged: Stream) -> None:
    stream_id = declare(catalog, merged)
    made = MergeRecord(MergeAlgorithm.R1, "ordered", 5, "a")
    first = change(catalog, stream_id, FeedChange(merge=made))
    found = merge_of(catalog, stream_id)
    assert found == replace(made, since_commit=first, leader_since=first)
    second = change(catalog, stream_id, FeedChange(merge=replace(made, stable=8, leader="b")))
    found = merge_of(catalog, stream_id)
    assert found == replace(made, stable=8, leader="b", since_commit=first, leader_since=second, switches=1)
    third = change(catalog, stream_id, FeedChange(merge=MergeRecord(MergeAlgorithm.R3, "broken", 8, "b")))
    found = merge_of(catalog, stream_id)
    assert found == MergeRecord(MergeAlgorithm.R3, "broken", 8, "b", third, second, 1)


def test_disagreements_open_change_are_resolved_and_open_again(catalog: Catalog, merged: Stream) -> None:
    stream_id = declare(catalog, merged)
    first = change(catalog, stream_id, FeedChange(disagreements=[disagreement(2.0)]))
    assert shown(disagreements_of(catalog, stream_id)) == [("a", first, first, None)]
    second = change(catalog, stream_id, FeedChange(disagreements=[disagreement(3.0, chosen="b")]))
    [found] = disagreements_of(catalog, stream_id)
    assert shown([found]) == [("b", first, second, None)]
    assert [value["row"] for value in found.values] == [{"price": "1.0"}, {"price": "3.0"}]
    assert disagreements_of(catalog, stream_id, DisagreementFilter(feed="b")) == []
    assert disagreements_of(catalog, stream_id, DisagreementFilter(feed="a", last=1)) == [found]
    third = change(catalog, stream_id, FeedChange(agreed=[found.key, {"symbol": "XYZ", "at": "10:00"}]))
    assert disagreements_of(catalog, stream_id) == []
    assert standing_disagreements(catalog, stream_id) == 0
    fourth = change(catalog, stream_id, FeedChange(disagreements=[disagreement(4.0)]))
    both = disagreements_of(catalog, stream_id, DisagreementFilter(resolved=True))
    assert shown(both) == [("b", first, second, third), ("a", fourth, fourth, None)]
    assert disagreements_of(catalog, stream_id, DisagreementFilter(resolved=True, last=1)) == both[1:]
    assert disagreements_of(catalog, stream_id, DisagreementFilter(key=found.key)) == both[1:]
    assert standing_disagreements(catalog, stream_id) == 1
