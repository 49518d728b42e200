"""Progress of a merge: how far each feed and the merged stream are stable, and whom the merge follows. Pure.

A feed leads if it is attached, has joined and is not suspect. The merged stable point is the quorum-th greatest stable
point of those that lead, and never falls; with a quorum of 1 it is as early as the earliest (logical merge, III-D: it
must not exceed the greatest one). All is decided once for a batch, from the catalog's record of the feeds and from how
far the batch takes each of them, so that every part of the keys sees the same.

A feed that joins at t has everything from t on (V-B). It has joined once the merged stable point *before* a batch is
there: rows that nobody may change any more are then all that it can lack. If no attached feed has joined, nobody has
what came before; then those that join first lead, and are not taken for complete until the merged stream is there.

A feed that is found to contradict itself is suspect from the next batch on: progress is decided before rows are looked
at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from errata.merge.step import FeedProgress, MergeProgress
from errata.model.feed import Feed, StableRule
from errata.model.time import LOWEST


@dataclass(frozen=True, slots=True)
class FeedStanding:
    """What is remembered of a feed between batches, as far as it decides about progress."""

    name: str
    stable: int = LOWEST
    """Up to where it has said that it is stable."""
    attached: bool = True
    joins_at: int = LOWEST
    suspect: bool = False
    complete: bool = False

    def has_joined(self, merged_stable: int) -> bool:
        """Whether the merged stream has come to where the feed begins."""
        return self.joins_at <= merged_stable


def feed_stable(feed: Feed, slack: int, *, before: int, top: int | None, marked: int | None) -> int:
    """The stable point of a feed after a batch whose greatest order field is `top`, and greatest mark or heartbeat
    `marked` (None: the batch has none). By `stable: rows`, heartbeats count as well: they bridge lulls."""
    reached = [before]
    if marked is not None:
        reached.append(marked)
    if feed.stable is StableRule.ROWS and top is not None:
        reached.append(max(top - slack, LOWEST))
    return max(reached)


def advance(
    standings: Sequence[FeedStanding], said: Mapping[int, int], *, before: int, quorum: int = 1
) -> MergeProgress:
    """How far the merged stream comes with a batch after which feeds are stable up to `said`, by number; the others
    stay where they are."""
    leading = _leading(standings, before)
    feeds = tuple(
        FeedProgress(
            name=each.name,
            before=each.stable,
            stable=max(each.stable, said.get(number, LOWEST)),
            attached=each.attached,
            leads=number in leading,
            complete=each.complete and each.has_joined(before),
        )
        for number, each in enumerate(standings)
    )
    reached = sorted((feeds[number].stable for number in leading), reverse=True)
    stable = max(before, reached[quorum - 1]) if len(reached) >= quorum else before
    ranked = sorted(range(len(feeds)), key=lambda number: (not feeds[number].leads, -feeds[number].stable, number))
    return MergeProgress(feeds=feeds, before=before, stable=stable, ranked=tuple(ranked))


def attach(standing: FeedStanding, *, merged_stable: int, starts_at: int = LOWEST) -> FeedStanding:
    """A feed that is attached, or comes back: it has everything from `starts_at` on, or else from where the merged
    stream is. What it said before counts no more for its own stable point: it may repeat itself."""
    joins_at = starts_at if starts_at != LOWEST else merged_stable
    return replace(standing, attached=True, joins_at=joins_at, stable=LOWEST)


def detach(standing: FeedStanding) -> FeedStanding:
    """A feed that is no longer listened to. Rows that it has said stay as long as they are not frozen."""
    return replace(standing, attached=False)


def _leading(standings: Sequence[FeedStanding], merged_stable: int) -> set[int]:
    attached = [number for number, each in enumerate(standings) if each.attached]
    joined = [number for number in attached if standings[number].has_joined(merged_stable)]
    if not joined and attached:
        earliest = min(standings[number].joins_at for number in attached)
        joined = [number for number in attached if standings[number].joins_at == earliest]
    return {number for number in joined if not standings[number].suspect}
