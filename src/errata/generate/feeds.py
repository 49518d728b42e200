"""Physical feeds of one logical stream, as the evaluation of the logical merge has them (Chandramouli, Maier and
Goldstein 2012, VI-B).

A table of events is drawn first. A physical feed is one way to say it: elements in the order in which they arrive, with
disorder, ends that are adjusted, events that are withdrawn, repetitions, gaps, a lag, and stable elements among them.
Whatever is drawn, the elements of a feed without gaps amount to the table, and nothing that changes anything comes
behind a stable element of its feed: the stable point after an element is the least time that a later one concerns.

    arrival  kind      at     end                arrival is the clock's time, which the one who merges may simulate;
    10:00:01 insert    10:00  open               at and end are the event's own
    10:00:04 adjust    10:00  10:00:03
    10:00:04 stable    10:00:02

All of a feed is computed with whole arrays, in O(n log n). The same arguments always give the same feed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from errata.errors import UsageError
from errata.generate.feed import IntArray
from errata.model.time import HIGHEST, LOWEST, SECOND, Interval

DEFAULT_START = 1_794_960_000_000_000
"""2026-11-18T00:00:00."""

VALUES = 401
"""An event's value is from 0 to 400, as in the paper. Values from there on are of events that are withdrawn."""

OPEN = HIGHEST
"""An end that is not known yet."""


class FeedElement(IntEnum):
    """What an element of a feed does."""

    INSERT = 0
    ADJUST = 1
    """The event has another end."""
    WITHDRAW = 2
    """There is no such event."""
    STABLE = 3
    """The feed is stable up to `at`."""


@dataclass(frozen=True, slots=True)
class EventSpec:
    """The table of events."""

    events: int
    seed: int = 1
    start: int = DEFAULT_START
    gap: int = 200
    """Microseconds between two instants with events, on average."""
    ties: int = 1
    """Events at each instant; their values differ."""
    lifetime: int = 2 * SECOND
    """How long an event lasts on average."""
    twice: float = 0.0
    """The share of events that there are twice, with the same time and value, and ends of their own."""

    def __post_init__(self) -> None:
        if self.events < 1 or self.gap < 1 or self.lifetime < 2:
            raise UsageError("a table has an event or more, 1 microsecond or more apart, that last 2 or more")
        if not 1 <= self.ties <= VALUES or not 0 <= self.twice <= 1:
            raise UsageError(f"1 to {VALUES} events have the same time, and a share of 0 to 1 of them is there twice")


@dataclass(frozen=True, slots=True)
class EventTable:
    """The events of a logical stream, by time and value."""

    at: IntArray
    value: IntArray
    end: IntArray

    def __len__(self) -> int:
        return len(self.at)

    @property
    def last(self) -> int:
        """A time by which all events have ended."""
        return int(self.end.max()) + 1


@dataclass(frozen=True, slots=True)
class FeedFaults:
    """What is different about a physical feed. The default says each event once, in order, and is stable at the end."""

    disorder: float = 0.0
    """The share of events that come out of order."""
    delay: int = SECOND // 10
    """By how much later they come at most. Also of repetitions and withdrawals."""
    adjusted: float = 0.0
    """The share of events that come without an end; it is given when the event has ended."""
    speculative: bool = False
    """An event that comes out of order shortens the one before it, as it does for a query over disordered input: that
    one is said with a longer lifetime first, and adjusted then."""
    withdrawn: float = 0.0
    """Events that are said and withdrawn, beside the number of events."""
    repeated: float = 0.0
    """The share of events that are said twice. Those that are adjusted are not."""
    missing: float = 0.0
    """The share of events that the feed lacks."""
    gaps: tuple[Interval, ...] = ()
    """Intervals of which it lacks all events."""
    lag: int = 0
    """How much later than the events everything comes."""
    shuffled: bool = False
    """Events of one instant come in any order; otherwise by value."""
    stable: float = 0.01
    """The probability that a stable element follows an element."""
    closed: bool = True
    """Whether it says at the end that it is stable up to the end of all events."""

    def __post_init__(self) -> None:
        shares = (self.disorder, self.adjusted, self.withdrawn, self.repeated, self.missing, self.stable)
        if not all(0 <= share <= 1 for share in shares):
            raise UsageError("what is different about a feed is given as shares from 0 to 1")
        if self.delay < 1 or self.lag < 0:
            raise UsageError("elements out of order come 1 microsecond later or more, and a lag is 0 or more")


@dataclass(frozen=True, slots=True)
class PhysicalFeed:
    """The elements of a feed, in the order in which they arrive."""

    arrival: IntArray
    """The clock's time at which an element arrives; it never falls."""
    kind: npt.NDArray[np.int8]
    at: IntArray
    value: IntArray
    end: IntArray
    """Of an element that inserts or adjusts; OPEN if it is not known."""
    old_end: IntArray
    """Of an element that adjusts or withdraws: the end that its event had before."""

    def __len__(self) -> int:
        return len(self.arrival)

    def __getitem__(self, which: slice | IntArray | npt.NDArray[np.bool_]) -> PhysicalFeed:
        return PhysicalFeed(*(column[which] for column in self.columns))

    @property
    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self.arrival, self.kind, self.at, self.value, self.end, self.old_end

    def arriving(self, within: Interval) -> PhysicalFeed:
        """The elements that arrive in an interval of the clock."""
        first, end = np.searchsorted(self.arrival, [within.start, within.end])
        return self[first:end]


def event_table(spec: EventSpec) -> EventTable:
    """Draw a table of events."""
    draw = np.random.default_rng([spec.seed, 0])
    instants = -(-spec.events // spec.ties)
    times = spec.start + np.cumsum(draw.integers(1, 2 * spec.gap, instants, endpoint=True))
    first = draw.integers(0, VALUES, instants)
    at = np.repeat(times, spec.ties)[: spec.events]
    value = ((first[:, None] + np.arange(spec.ties)) % VALUES).ravel()[: spec.events]
    again = np.flatnonzero(draw.random(spec.events) < spec.twice)
    at, value = np.concatenate([at, at[again]]), np.concatenate([value, value[again]])
    end = at + draw.integers(spec.lifetime // 2, spec.lifetime * 3 // 2, len(at), endpoint=True)
    order = np.lexsort((value, at))
    return EventTable(at[order], value[order], end[order])


def physical_feed(table: EventTable, faults: FeedFaults, seed: int) -> PhysicalFeed:
    """Say the table as a feed with these faults does; another seed is another feed of the same events."""
    draw = np.random.default_rng([seed, 1])
    ranks = draw.permutation(len(table)) if faults.shuffled else np.arange(len(table))
    said = _Said(draw, faults, *_present(table, faults, draw), ranks)
    parts = [said.events(), said.adjustments(), said.repetitions(), said.withdrawn()]
    arrival, kind, at, value, end, old_end, rank, limit = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    order = np.lexsort((rank, arrival))
    feed = PhysicalFeed(arrival + faults.lag, kind.astype(np.int8), at, value, end, old_end)[order]
    return _with_stables(feed, limit[order], faults, draw, table.last)


def _present(
    table: EventTable, faults: FeedFaults, draw: np.random.Generator
) -> tuple[EventTable, npt.NDArray[np.bool_]]:
    """The table, and which of its events the feed has."""
    there = draw.random(len(table)) >= faults.missing
    for gap in faults.gaps:
        there &= (table.at < gap.start) | (table.at >= gap.end)
    return table, there


_Part = tuple[npt.NDArray[Any], ...]
"""Elements of one kind: arrival, kind, at, value, end, old end, rank among equal arrivals, and the least time that they
concern, behind which the feed is not stable before them."""


class _Said:
    """What a feed says of each event, and when."""

    def __init__(
        self,
        draw: np.random.Generator,
        faults: FeedFaults,
        table: EventTable,
        there: npt.NDArray[np.bool_],
        ranks: IntArray,
    ) -> None:
        count = len(table)
        self.draw, self.faults, self.table, self.there, self.ranks = draw, faults, table, there, ranks
        late = draw.random(count) < faults.disorder
        self.arrival = table.at + np.where(late, draw.integers(1, faults.delay, count, endpoint=True), 0)
        self.first_end = table.end.copy()
        self.adjusted_at = np.full(count, LOWEST)
        if faults.speculative:
            shortened = np.flatnonzero(late[1:] & there[1:])
            self.first_end[shortened] += draw.integers(1, faults.delay, len(shortened), endpoint=True)
            self.adjusted_at[shortened] = np.maximum(self.arrival[shortened], self.arrival[shortened + 1]) + 1
        open_first = draw.random(count) < faults.adjusted
        self.first_end[open_first] = OPEN
        self.adjusted_at[open_first] = np.maximum(self.arrival, table.end)[open_first] + 1
        self.adjusted = self.first_end != table.end

    def events(self) -> _Part:
        here = np.flatnonzero(self.there)
        return self._part(FeedElement.INSERT, here, self.arrival[here], self.first_end[here], self.table.at[here])

    def adjustments(self) -> _Part:
        here = np.flatnonzero(self.there & self.adjusted)
        end = self.table.end[here]
        return self._part(FeedElement.ADJUST, here, self.adjusted_at[here], end, end, self.first_end[here])

    def repetitions(self) -> _Part:
        again = self.there & ~self.adjusted & (self.draw.random(len(self.table)) < self.faults.repeated)
        here = np.flatnonzero(again)
        later = self.arrival[here] + self.draw.integers(1, self.faults.delay, len(here), endpoint=True)
        # It changes nothing, so that it may come behind a stable element.
        return self._part(FeedElement.INSERT, here, later, self.table.end[here], np.full(len(here), HIGHEST))

    def withdrawn(self) -> _Part:
        """Events that the table does not have, each said and withdrawn."""
        here = np.flatnonzero(self.draw.random(len(self.table)) < self.faults.withdrawn)
        at, end = self.table.at[here], self.table.end[here]
        value = VALUES + np.arange(len(here))
        said, later = at, at + self.draw.integers(1, self.faults.delay, len(here), endpoint=True)
        none, rank = np.full(len(here), LOWEST), self.ranks[here]
        kinds = [np.full(len(here), kind) for kind in (FeedElement.INSERT, FeedElement.WITHDRAW)]
        first = (said, kinds[0], at, value, end, none, rank, at)
        second = (later, kinds[1], at, value, none, end, rank, at)
        return tuple(np.concatenate(both) for both in zip(first, second, strict=True))

    def _part(
        self,
        kind: FeedElement,
        here: IntArray,
        arrival: IntArray,
        end: IntArray,
        limit: IntArray,
        old_end: IntArray | None = None,
    ) -> _Part:
        none = np.full(len(here), LOWEST) if old_end is None else old_end
        at, value = self.table.at[here], self.table.value[here]
        return arrival, np.full(len(here), kind), at, value, end, none, self.ranks[here], limit


def _with_stables(
    feed: PhysicalFeed, limit: IntArray, faults: FeedFaults, draw: np.random.Generator, last: int
) -> PhysicalFeed:
    """The feed with stable elements at random places, each as far on as what follows allows."""
    least = np.append(np.minimum.accumulate(limit[::-1])[::-1], last)[1:]
    # After the last element, or before nothing but repetitions, the feed is stable up to the end of all events.
    stable = np.minimum(least, last)
    places = np.flatnonzero(draw.random(len(feed)) < faults.stable)
    if not faults.closed:
        places = places[stable[places] < last]
    elif len(feed):
        places = np.append(places, len(feed) - 1)
    places = places[np.diff(stable[places], prepend=0) > 0]
    added = (feed.arrival[places], FeedElement.STABLE, stable[places], 0, LOWEST, LOWEST)
    return PhysicalFeed(
        *(np.insert(column, places + 1, more) for column, more in zip(feed.columns, added, strict=True))
    )
