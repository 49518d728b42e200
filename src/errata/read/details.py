"""One stream or one query in detail: its timeline over event time, commits, readers, update pattern and corrections.

A timeline divides event time into equal cells; the catalog groups the buckets that touch the same cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from errata.catalog import activity, commits, queries, streams
from errata.catalog.activity import TimelineStrip
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.errors import unknown_name_error
from errata.model.bucket import Role
from errata.model.commit import Commit
from errata.model.results import UpdatePattern
from errata.model.stream import RevisionPolicy
from errata.read.corrections import CorrectionPage, check_query_name, correction_page
from errata.read.status import DeclarationState, QueryStatus, StreamStatus, query_statuses, stream_statuses

LIST_CELLS = 240
"""Cells of a timeline in a list, about as many as can be told apart there."""

STREAM_CELLS = 960
"""Cells of the timeline of a single stream."""

STREAMS_PER_PAGE = 100
"""Streams on a page."""

MAX_STREAM_COMMITS = 15
"""Last commits of a stream that are listed."""

_SHOWN_ROLES = (Role.BASE, Role.OVERLAY, Role.PENDING)


@dataclass(frozen=True, slots=True)
class StreamTimeline:
    """A range of event time in equal cells, and the buckets in each."""

    low: int
    """The first place of a row."""
    high: int
    """The last place of a row."""
    cells: int
    strips: Sequence[TimelineStrip] = ()
    stable: int | None = None
    aged_to: int | None = None

    @property
    def width(self) -> int:
        """The length of a cell in event time."""
        return max(1, -(-(self.high - self.low + 1) // self.cells))

    def cell(self, place: int) -> float:
        """A place in units of cells."""
        return min(max((place - self.low) / self.width, 0.0), float(self.cells))

    def strips_of(self, role: Role) -> list[TimelineStrip]:
        """The strips of buckets of one role."""
        return [each for each in self.strips if each.role is role]


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """The state of a stream, and its timeline; None if it has no rows."""

    status: StreamStatus
    timeline: StreamTimeline | None


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """One page of streams."""

    lanes: Sequence[TimelineLane]
    total: int
    """The number of all streams."""
    page: int = 1
    pages: int = 1


@dataclass(frozen=True, slots=True)
class StreamDetails:
    """One stream in detail."""

    lane: TimelineLane
    read_by: Sequence[str]
    """The queries that read it directly."""
    commits: Sequence[Commit]
    """Its last commits, the newest first."""


def timeline_page(site: Site, page: int = 1) -> TimelinePage:
    """A page of the streams, by name."""
    found = stream_statuses(site)
    pages = max(1, -(-len(found) // STREAMS_PER_PAGE))
    page = min(max(1, page), pages)
    return TimelinePage(
        _timeline_lanes(site, found[(page - 1) * STREAMS_PER_PAGE : page * STREAMS_PER_PAGE], LIST_CELLS),
        len(found),
        page,
        pages,
    )


def stream_details(site: Site, name: str) -> StreamDetails:
    """One stream in detail."""
    recorded = queries.recorded_queries(site.catalog)
    there = {each.stream.name for each in streams.stream_states(site.catalog)} | set(site.project.streams)
    if name not in there:
        raise unknown_name_error("stream", name, there)
    (lane,) = _timeline_lanes(site, stream_statuses(site, [name]), STREAM_CELLS)
    read_by = sorted(query for query, each in recorded.items() if name in each.checked.reads)
    return StreamDetails(lane, read_by, commits.list_commits(site.catalog, stream=name, last=MAX_STREAM_COMMITS)[::-1])


def _timeline_lanes(site: Site, found: Sequence[StreamStatus], cells: int) -> list[TimelineLane]:
    standings = {each.stream.name: each for each in streams.stream_states(site.catalog)}
    return [TimelineLane(each, _stream_timeline(site, standings.get(each.stream.name), each, cells)) for each in found]


def _stream_timeline(site: Site, of: StreamState | None, status: StreamStatus, cells: int) -> StreamTimeline | None:
    both = status.base, status.overlays
    low = min((each.vs_min for each in both if each.vs_min is not None), default=None)
    high = max((each.vs_max for each in both if each.vs_max is not None), default=None)
    if of is None or low is None or high is None:
        return None
    empty = StreamTimeline(low, high, cells)
    strips = [
        _clip_strip(each, cells)
        for each in activity.timeline_strips(site.catalog, of.stream_id, low, empty.width, _SHOWN_ROLES)
    ]
    return StreamTimeline(low, high, cells, strips, of.stable, of.aged_to)


def _clip_strip(each: TimelineStrip, cells: int) -> TimelineStrip:
    """The strip, clipped to the timeline: pending revisions may lie outside of it and are shown at its edge."""
    return replace(each, first=min(max(each.first, 0), cells - 1), last=min(max(each.last, 0), cells - 1))


# Queries.

PATTERN_TEXTS: Mapping[UpdatePattern, tuple[str, str]] = {
    UpdatePattern.MONOTONIC: ("only adds", "Results are only ever added; none expires."),
    UpdatePattern.WEAKEST: ("first in, first out", "Results expire in the order in which they came."),
    UpdatePattern.WEAK: ("known end", "Each result's end is known when it comes."),
    UpdatePattern.KEYED: ("latest per key", "A result holds until the next one of its key takes its place."),
    UpdatePattern.STRICT: ("may change any time", "Some results end at moments that nobody can foretell."),
}
"""For each update pattern a short name and a sentence."""

POLICY_TEXTS: Mapping[RevisionPolicy, str] = {
    RevisionPolicy.RESULTS: "Corrections change what has been published.",
    RevisionPolicy.HISTORY: "Corrections count in later answers only; what has been published stays.",
    RevisionPolicy.IGNORE: "Corrections have no effect on it.",
}


@dataclass(frozen=True, slots=True)
class QueryDetails:
    """One query in detail."""

    status: QueryStatus
    text: str
    """Its SQL as applied; empty if it has not been."""
    reads: list[tuple[str, bool]]
    """What it reads directly, and whether that is a query."""
    read_by: list[str]
    corrections: CorrectionPage
    """Its last corrections."""


def query_details(site: Site, name: str) -> QueryDetails:
    """One query in detail."""
    found = next((each for each in query_statuses(site) if each.name == name), None)
    if found is None:
        check_query_name(site, name)
        found = QueryStatus(name, DeclarationState.GONE)
    recorded = queries.recorded_queries(site.catalog)
    text = recorded[name].checked.query.text if name in recorded else ""
    read_by = sorted(other for other, each in recorded.items() if name in each.checked.reads)
    reads = [(each, each in recorded) for each in (found.checked.reads if found.checked is not None else ())]
    return QueryDetails(found, text, reads, read_by, correction_page(site, query=name))
