"""Panel of merged feeds: the feeds of each stream side by side, who leads, how far each is behind, whose gaps others
filled, who is missing or suspect, and what they disagree about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.catalog.feeds import Disagreement, DisagreementFilter
from errata.declare.feed_changes import guarantee_words, policy_text
from errata.declare.site import Site
from errata.model.time import LOWEST
from errata.read.feeds import (
    FeedRole,
    FeedStatus,
    MergeStatus,
    broken_lines,
    differing_columns,
    merge_statuses,
    stream_disagreements,
)
from errata_airflow.page.panel import Page, Panel

PLAIN = (
    "The same stream from several places, merged into one that is as early as the earliest. A feed that has gaps or "
    "is late costs nothing: the others fill in. What they say differently is decided by a policy, and kept here."
)

MAX_SHOWN = 20
"""Disagreements of a stream that are shown, the newest."""

MARGIN = 4
"""The axis begins before the feed that is the farthest behind by one part in so many of the distance between feeds."""

MARKS = {
    FeedRole.LEADS: "well",
    FeedRole.FOLLOWS: "",
    FeedRole.JOINS: "look",
    FeedRole.SILENT: "look",
    FeedRole.SUSPECT: "bad",
    FeedRole.DETACHED: "",
}
"""How a role is coloured."""


@dataclass(frozen=True, slots=True)
class FeedLane:
    """One feed, along the axis of the stream's stable points."""

    status: FeedStatus
    spans: Sequence[tuple[int, int]]
    """What it has come through of the axis."""
    mark: str
    guarantees: str


@dataclass(frozen=True, slots=True)
class DisputedValue:
    """What one feed says of a key about which feeds disagree."""

    feed: str
    row: dict[str, str]
    """The columns that differ."""
    chosen: bool
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class DisputedKey:
    """A key about which feeds disagree."""

    key: dict[str, str]
    values: Sequence[DisputedValue]
    policy: str
    since: int | None


@dataclass(frozen=True, slots=True)
class MergedStream:
    """What the page shows of a stream."""

    of: MergeStatus
    policy: str
    lanes: Sequence[FeedLane]
    low: int
    high: int
    """The ends of the axis: stable points from the last to the first of the feeds."""
    broken: Sequence[str]
    disputed: Sequence[DisputedKey]


def _merged_streams(site: Site) -> list[MergedStream]:
    return [_merged_stream(site, each) for each in merge_statuses(site)]


def _merged_stream(site: Site, of: MergeStatus) -> MergedStream:
    known = [each.state.stable for each in of.feeds if each.state.stable != LOWEST]
    known += [] if of.stable is None else [of.stable]
    last, high = min(known, default=0), max(known, default=0)
    low = last - max(1, (high - last) // MARGIN)
    lanes = [
        FeedLane(
            each,
            [(low, each.state.stable)] if each.state.stable != LOWEST else [],
            MARKS[each.role],
            ", ".join(guarantee_words(each.guarantees)),
        )
        for each in of.feeds
    ]
    disputed: Sequence[DisputedKey] = ()
    if of.disagreements:
        found = stream_disagreements(site, of.stream.name, DisagreementFilter(last=MAX_SHOWN)).found
        disputed = [_disputed_key(each) for each in reversed(found)]
    broken = list(broken_lines(of.stream, [each.state for each in of.feeds]))
    return MergedStream(of, policy_text(of.stream.merged.policy), lanes, low, high, broken, disputed)


def _disputed_key(each: Disagreement) -> DisputedKey:
    columns = differing_columns(each)
    values = [
        DisputedValue(
            said["feed"],
            {name: said["row"].get(name) for name in columns},
            bool(said["chosen"]),
            said.get("file") or "",
            said.get("line") or 0,
        )
        for said in each.values
    ]
    return DisputedKey(dict(each.key), values, each.policy, each.opened_in)


PANEL = Panel(22, Page("feeds", "Merged feeds", PLAIN, lambda site, _: _merged_streams(site), "feeds.html"))
