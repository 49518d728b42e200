"""The policies of a merge (logical merge, V-A), for all keys at once: which payload counts, and at which end the merged
stream should have it.

What it should have is a function of what the feeds say, of what is published, and of the progress; how it came to that
does not matter. Behind the merged stable point it follows the feed that ranks highest; before it, the emit policy
decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.merge.elements import ABSENT
from errata.merge.step import MergeProgress
from errata.model.feed import DisagreementPolicy, EmitPolicy, MergePolicy

WAITING = (EmitPolicy.FIRST, EmitPolicy.HALF_FROZEN, EmitPolicy.FRACTION)
"""Policies by which an adjustment waits until the stable point reaches the old or the new end (algorithm R3, line 23),
so that no more goes out than comes in (theorem 1)."""


@dataclass(frozen=True, slots=True)
class NodeTable:
    """The payloads that the state or the batch has, and who has them after the batch."""

    ends: np.ndarray
    """For each payload and feed the end; ABSENT if the feed does not have it."""
    published: np.ndarray
    """For each payload the end that was published before the batch; ABSENT if it was not."""
    order: np.ndarray
    key: np.ndarray
    keys: int
    ended: bool
    """Whether rows have an end; otherwise they are points."""
    family: np.ndarray | None = None
    """Of R4: the number of each payload without its occurrence. Behind the stable point, one feed decides how often
    it occurs."""
    newest: np.ndarray | None = None
    """For each payload the end of the newest statement of this batch that stands; ABSENT if it has none. Only
    `EmitPolicy.EVERY` asks for it."""


@dataclass(frozen=True, slots=True)
class Supporters:
    """Who has each payload, as places in the ranking of the feeds."""

    best: np.ndarray
    """The place of the highest-ranked feed that has it; the number of feeds if none has."""
    lowest: np.ndarray
    """The number of the first feed that has it, as declared; 0 if none has."""
    count: np.ndarray
    """How many feeds have it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the merged stream should have of each key."""

    chosen: np.ndarray
    """The payload that counts; -1 if no feed has one."""
    wanted: np.ndarray
    """The payload that the merged stream should have: the chosen one, but for rows that nobody may change."""
    published: np.ndarray
    """The payload that was published before; -1 if none was."""
    end: np.ndarray
    """The end at which the merged stream should have it; ABSENT if it should not have the key."""
    payloads: np.ndarray
    """How many payloads feeds have."""
    filled: np.ndarray
    """Whether the stable point passes it with this batch, and the leader does not have it, but another feed."""
    gaps: np.ndarray
    """Whether the leader, which is complete, lacks it, and another feed has it for certain: its own stable point has
    passed it, too."""
    awaited: np.ndarray
    """Whether it is not published behind the stable point, and may still turn out to be there."""


def count_supporters(ends: np.ndarray, ranked: tuple[int, ...]) -> Supporters:
    """Who has each payload."""
    rows, feeds = ends.shape
    place = {feed: at for at, feed in enumerate(ranked)}
    best = np.full(rows, feeds, dtype=np.int8)
    lowest = np.zeros(rows, dtype=np.int8)
    count = np.zeros(rows, dtype=np.int8)
    for feed in reversed(range(feeds)):
        has = ends[:, feed] != ABSENT
        count += has
        lowest[has] = feed
        np.minimum(best, place[feed], out=best, where=has)
    return Supporters(best, lowest, count)


def decide(
    nodes: NodeTable, supporters: Supporters, progress: MergeProgress, policy: MergePolicy, version: pa.Array | None
) -> Outcome:
    """What the merged stream should have of each key after the batch. `version` has the version column's value of each
    payload, for `DisagreementPolicy.LATEST`."""
    supported = np.flatnonzero(supporters.count)
    published = np.full(nodes.keys, -1, dtype=np.int64)
    was = np.flatnonzero(nodes.published != ABSENT)
    published[nodes.key[was]] = was
    payloads = np.bincount(nodes.key[supported], minlength=nodes.keys)
    chosen = np.full(nodes.keys, -1, dtype=np.int64)
    chosen[nodes.key[supported]] = supported
    several = supported[payloads[nodes.key[supported]] > 1]
    if len(several):
        preferred = several[_by_preference(nodes, supporters, several, policy.disagreement, version)][::-1]
        chosen[nodes.key[preferred]] = preferred
    outcome = Outcome(
        chosen=chosen,
        wanted=chosen.copy(),
        published=published,
        end=np.full(nodes.keys, ABSENT, dtype=np.int64),
        payloads=payloads,
        filled=np.zeros(nodes.keys, dtype=bool),
        gaps=np.zeros(nodes.keys, dtype=bool),
        awaited=np.zeros(nodes.keys, dtype=bool),
    )
    here = np.flatnonzero(chosen >= 0)
    passed = nodes.order[chosen[here]] < progress.stable
    if passed.any():
        _decide_passed(nodes, supporters, progress, policy, (outcome, here[passed]))
    before = here[~passed]
    outcome.end[before] = _emitted_ends(nodes, supporters, progress, policy, (chosen[before], published[before]))
    return outcome


def _decide_passed(
    nodes: NodeTable,
    supporters: Supporters,
    progress: MergeProgress,
    policy: MergePolicy,
    keys: tuple[Outcome, np.ndarray],
) -> None:
    """Decide these keys, which the stable point has passed: as the highest-ranked feed has them, if the leader has come
    that far. If the one that did is gone, what is published stays until another one has."""
    outcome, passed = keys
    chosen, leader = outcome.chosen[passed], progress.leader
    ranked, kept = _ranked_ends(nodes, supporters, progress, chosen), nodes.published[chosen]
    if leader is None or progress.feeds[leader].stable < progress.stable:
        stands = np.where(outcome.published[passed] >= 0, ranked, ABSENT)
        outcome.end[passed] = np.where(kept != ABSENT, kept, stands)
        outcome.awaited[passed] = (outcome.end[passed] == ABSENT) & (ranked != ABSENT)
        return
    lacks = ~_has_key(nodes, leader, chosen)
    frozen = (lacks | (ranked == ABSENT)) & _frozen_before(nodes, outcome.published[passed], progress.before)
    complete = lacks & ~frozen & progress.feeds[leader].complete
    lacking = complete & ~(complete.any() and _is_certain(nodes, progress, chosen))
    filled = lacks & ~frozen & ~lacking & (ranked != ABSENT)
    outcome.gaps[passed] = complete & filled
    outcome.awaited[passed] = lacking & (ranked != ABSENT)
    if policy.emit in WAITING:
        waits = (kept != ABSENT) & (kept >= progress.stable) & (ranked >= progress.stable)
        ranked = np.where(waits, kept, ranked)
    stays = passed[frozen]
    outcome.wanted[stays] = outcome.published[stays]
    ranked[frozen] = nodes.published[outcome.published[stays]]
    outcome.end[passed] = np.where(lacking, ABSENT, ranked)
    outcome.filled[passed] = filled & (nodes.order[chosen] >= progress.before)


def _is_certain(nodes: NodeTable, progress: MergeProgress, chosen: np.ndarray) -> np.ndarray:
    """Whether a feed that has the key of each of these payloads has come past it, and does not withdraw it any more."""
    certain = np.zeros(len(chosen), dtype=bool)
    for number, feed in enumerate(progress.feeds):
        certain |= _has_key(nodes, number, chosen) & (nodes.order[chosen] < feed.stable)
    return certain


def _frozen_before(nodes: NodeTable, published: np.ndarray, before: int) -> np.ndarray:
    """Whether each of these published payloads (-1: none) was fully frozen before the batch. A feed that has joined
    since need not have it."""
    ends = nodes.published[published] if nodes.ended else nodes.order[published]
    frozen: np.ndarray = (published >= 0) & (ends < before)
    return frozen


def _by_preference(
    nodes: NodeTable,
    supporters: Supporters,
    several: np.ndarray,
    policy: DisagreementPolicy,
    version: pa.Array | None,
) -> np.ndarray:
    """The order of these payloads, the preferred one of each key first."""
    best = supporters.best[several]
    match policy:
        case DisagreementPolicy.MAJORITY:
            return np.lexsort((best, -supporters.count[several]))
        case DisagreementPolicy.FIRST:
            return np.lexsort((best, nodes.published[several] == ABSENT))
        case DisagreementPolicy.LATEST if version is not None:
            values = version.take(pa.array(several))
            ranks = pc.rank(values, sort_keys="descending", tiebreaker="dense")  # NULL and NaN last
            return np.lexsort((best, ranks.to_numpy()))
        case _:
            return np.argsort(best, kind="stable")


def _has_key(nodes: NodeTable, feed: int, chosen: np.ndarray) -> np.ndarray:
    """Whether a feed has the key of each of these payloads; of R4 the payload, however often."""
    groups = nodes.key if nodes.family is None else nodes.family
    has = np.zeros(len(groups), dtype=bool)  # there are no more groups than payloads
    has[groups[nodes.ends[:, feed] != ABSENT]] = True
    found: np.ndarray = has[groups[chosen]]
    return found


def _ranked_ends(nodes: NodeTable, supporters: Supporters, progress: MergeProgress, chosen: np.ndarray) -> np.ndarray:
    """The end that the highest-ranked feed gives to each of these payloads; of R4 ABSENT, if the payload occurs less
    often there."""
    best = supporters.best
    if nodes.family is not None:
        of_family = np.full(len(best), len(progress.ranked), dtype=best.dtype)
        np.minimum.at(of_family, nodes.family, best)
        best = of_family[nodes.family]
    feeds = np.array(progress.ranked, dtype=np.int64)[best[chosen]]
    ends: np.ndarray = nodes.ends[chosen, feeds]
    return ends


def _emitted_ends(
    nodes: NodeTable,
    supporters: Supporters,
    progress: MergeProgress,
    policy: MergePolicy,
    payloads: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:
    """The end of each of these payloads before the stable point: the chosen ones, and those that were published."""
    chosen, published = payloads
    if policy.emit is EmitPolicy.LEADER:
        return _leader_ends(nodes, supporters, progress, chosen)
    kept = nodes.published[chosen]
    first: np.ndarray = np.where(kept != ABSENT, kept, nodes.ends[chosen, supporters.lowest[chosen]])
    match policy.emit:
        case EmitPolicy.EVERY if nodes.newest is not None:
            newest: np.ndarray = nodes.newest[chosen]
            return np.where(newest != ABSENT, newest, first)
        case EmitPolicy.HALF_FROZEN:
            return np.where(published >= 0, first, ABSENT)
        case EmitPolicy.FRACTION:
            attached = sum(feed.attached for feed in progress.feeds)
            enough = supporters.count[chosen] >= policy.fraction * attached
            return np.where(enough | (published >= 0), first, ABSENT)
        case _:
            return first


def _leader_ends(nodes: NodeTable, supporters: Supporters, progress: MergeProgress, chosen: np.ndarray) -> np.ndarray:
    if progress.leader is None:
        return np.full(len(chosen), ABSENT, dtype=np.int64)
    return np.where(_has_key(nodes, progress.leader, chosen), _ranked_ends(nodes, supporters, progress, chosen), ABSENT)
