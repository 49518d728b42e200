"""Streams over event time: where their buckets lie, what corrections lie over them, and what has been aged out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from errata.catalog import commits, lately, queries, streams
from errata.catalog.lately import Strip
from errata.catalog.streams import Standing
from errata.errors import unknown
from errata.flows.site import Site
from errata.flows.telling.status import StreamStatus, status
from errata.model.bucket import Role
from errata.model.commit import Commit

CELLS = 240
"""A timeline in a list has so many places: nobody tells more of them apart."""

WIDE = 960
"""So many has that of one stream alone."""

PAGE = 100
"""So many streams are shown on a page."""

TOLD = 15
"""So many of a stream's last commits are told."""

_SHOWN = (Role.BASE, Role.OVERLAY, Role.PENDING)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A stretch of event time in equal cells, and what lies where."""

    low: int
    """The first place."""
    high: int
    """The last place at which something lies."""
    cells: int
    strips: Sequence[Strip] = ()
    stable: int | None = None
    aged_to: int | None = None

    @property
    def width(self) -> int:
        """How much of event time a cell is."""
        return max(1, -(-(self.high - self.low + 1) // self.cells))

    def cell(self, place: int) -> float:
        """Where a place lies, in cells."""
        return min(max((place - self.low) / self.width, 0.0), float(self.cells))

    def of(self, role: Role) -> list[Strip]:
        """What of one kind lies where."""
        return [each for each in self.strips if each.role is role]


@dataclass(frozen=True, slots=True)
class Lane:
    """A stream as it stands, and its timeline; None where it has no rows."""

    status: StreamStatus
    timeline: Timeline | None


@dataclass(frozen=True, slots=True)
class Lanes:
    """Streams, one above the other."""

    lanes: Sequence[Lane]
    total: int
    """How many streams there are."""
    page: int = 1
    pages: int = 1


@dataclass(frozen=True, slots=True)
class StreamStory:
    """One stream, at length."""

    lane: Lane
    read_by: Sequence[str]
    """The queries that read it themselves."""
    commits: Sequence[Commit]
    """Its last commits, the newest first."""


def lanes(site: Site, page: int = 1) -> Lanes:
    """A page of the streams, by name."""
    found = status(site)
    pages = max(1, -(-len(found) // PAGE))
    page = min(max(1, page), pages)
    return Lanes(_lanes(site, found[(page - 1) * PAGE : page * PAGE], CELLS), len(found), page, pages)


def stream_story(site: Site, name: str) -> StreamStory:
    """One stream at length."""
    recorded = queries.recorded(site.catalog)
    there = {each.stream.name for each in streams.standings(site.catalog)} | set(site.project.streams)
    if name not in there:
        raise unknown("stream", name, there)
    (lane,) = _lanes(site, status(site, [name]), WIDE)
    read_by = sorted(query for query, each in recorded.items() if name in each.checked.reads)
    return StreamStory(lane, read_by, commits.listed(site.catalog, stream=name, last=TOLD)[::-1])


def _lanes(site: Site, found: Sequence[StreamStatus], cells: int) -> list[Lane]:
    standings = {each.stream.name: each for each in streams.standings(site.catalog)}
    return [Lane(each, _timeline(site, standings.get(each.stream.name), each, cells)) for each in found]


def _timeline(site: Site, of: Standing | None, status: StreamStatus, cells: int) -> Timeline | None:
    both = status.base, status.overlays
    low = min((each.vs_min for each in both if each.vs_min is not None), default=None)
    high = max((each.vs_max for each in both if each.vs_max is not None), default=None)
    if of is None or low is None or high is None:
        return None
    empty = Timeline(low, high, cells)
    strips = [_within(each, cells) for each in lately.strips(site.catalog, of.stream_id, low, empty.width, _SHOWN)]
    return Timeline(low, high, cells, strips, of.stable, of.aged_to)


def _within(each: Strip, cells: int) -> Strip:
    """What waits may lie before all rows, or behind them: it is shown at the edge."""
    return replace(each, first=min(max(each.first, 0), cells - 1), last=min(max(each.last, 0), cells - 1))
