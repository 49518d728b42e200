"""Choice of the merge algorithm: the cheapest that is correct for what all feeds guarantee, with the reason in words
(logical merge, IV-G). Pure.

    occurrence declared                                  R4
    a feed that may have gaps, adjusts, is unordered,    R3
      another emit policy than first, or a key
      without the order field
    all ordered, some with ties in any order             R2
    all ordered, ties in one order                       R1
    all strictly ordered                                 R0

R0 to R2 forget a row as soon as a later one has come, so whatever may be said about it afterwards needs R3: a feed that
fills another one's gap, an adjustment, a row that waits for the leader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from errata.merge.step import BrokenGuarantee
from errata.model.feed import (
    EmitPolicy,
    FeedOrder,
    FeedProperties,
    MergeAlgorithm,
    what_all_guarantee,
    what_either_guarantees,
)
from errata.model.stream import Stream

ORDERED_ALGORITHMS = (MergeAlgorithm.R0, MergeAlgorithm.R1, MergeAlgorithm.R2)
"""Those that need guarantees; in the order of what they need, the most first."""


@dataclass(frozen=True, slots=True)
class AlgorithmChoice:
    """The algorithm, and why none that is cheaper is correct."""

    algorithm: MergeAlgorithm
    reason: str


def declared_properties(stream: Stream, derived: Mapping[str, FeedProperties] | None = None) -> list[FeedProperties]:
    """What each feed guarantees: what is declared, and what follows from the plan of a query that makes it. `derived`
    has the latter by feed; None: as it was found out when the stream was declared."""
    if derived is None:
        derived = {feed.name: feed.derived for feed in stream.merged.feeds if feed.derived is not None}
    known = derived
    return [
        what_either_guarantees(feed.properties, known[feed.name]) if feed.name in known else feed.properties
        for feed in stream.merged.feeds
    ]


def choose_algorithm(stream: Stream, properties: Sequence[FeedProperties] | None = None) -> AlgorithmChoice:
    """The cheapest correct algorithm for feeds with these properties; those that are declared if none are given."""
    if stream.merged.occurrence is not None:
        words = f"rows may repeat, and are numbered in {stream.merged.occurrence}"
        return AlgorithmChoice(MergeAlgorithm.R4, words)
    given = declared_properties(stream) if properties is None else properties
    needed = _why_general(stream, given)
    if needed is not None:
        return AlgorithmChoice(MergeAlgorithm.R3, needed)
    named = list(zip((feed.name for feed in stream.merged.feeds), given, strict=True))
    tied = [name for name, each in named if each.order is not FeedOrder.STRICT]
    loose = [name for name, each in named if each.order is not FeedOrder.STRICT and not each.ties_fixed]
    if loose:
        algorithm, words = MergeAlgorithm.R2, f"by {stream.order}, {_named(loose)} with ties in any order"
    elif tied:
        algorithm, words = MergeAlgorithm.R1, f"by {stream.order}, {_named(tied)} with ties in one fixed order"
    else:
        algorithm, words = MergeAlgorithm.R0, f"by strictly increasing {stream.order}"
    return AlgorithmChoice(algorithm, f"all feeds are complete and only insert, {words}")


def _why_general(stream: Stream, given: Sequence[FeedProperties]) -> str | None:
    emit = stream.merged.policy.emit
    if emit is not EmitPolicy.FIRST:
        return f"emit: {emit} looks at all feeds before a row is published"
    if not stream.key_has_order:
        return f"the key has no {stream.order}, so a later row may have the same key"
    lacking: dict[str, list[str]] = {}
    for feed, each in zip(stream.merged.feeds, given, strict=True):
        if each.adjusts:
            lacking.setdefault("may adjust rows", []).append(feed.name)
        if not each.complete:
            lacking.setdefault("may have gaps", []).append(feed.name)
        if each.order is FeedOrder.NONE:
            lacking.setdefault("may come in any order", []).append(feed.name)
    return "; ".join(f"{_named(names)} {words}" for words, names in lacking.items()) or None


def _named(names: Sequence[str]) -> str:
    return f"feed{'s' if len(names) > 1 else ''} {', '.join(names)}"


def next_algorithm(stream: Stream, algorithm: MergeAlgorithm, broken: Sequence[BrokenGuarantee]) -> AlgorithmChoice:
    """The cheapest algorithm above this one that does without what is broken."""
    given = declared_properties(stream)
    for each in broken:
        given[each.feed] = what_all_guarantee([given[each.feed], each.left])
    chosen = choose_algorithm(stream, given).algorithm
    ranks = list(MergeAlgorithm)
    above = [each for each in ranks if ranks.index(each) > ranks.index(algorithm)] or [algorithm]
    first = broken[0]
    return AlgorithmChoice(
        max(above[0], chosen, key=ranks.index),
        f"feed {stream.merged.feeds[first.feed].name} broke `{first.guarantee}`: {first.what}",
    )
