"""Feeds: physical sequences of elements, and the table of events that they reconstitute to.

The elements and their rules are those of StreamInsight in logical-merge-2012, III.C, example 5. Two feeds are the same
stream when they reconstitute to the same table, whatever their elements and the order of these.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from errata.errors import Refused
from errata.model.interval import HIGHEST, LOWEST

OPEN = HIGHEST
"""The end of a lifetime that has none yet."""

Payload = Mapping[str, object]
Frozen = tuple[tuple[str, object], ...]
"""A payload that can be compared and counted: its items by name."""

_NAN = ("NaN",)


@dataclass(frozen=True, slots=True)
class Insert:
    """There is an event with this payload, during [vs, ve)."""

    payload: Payload
    vs: int
    ve: int = OPEN

    def __post_init__(self) -> None:
        if self.vs >= self.ve:
            raise Refused(
                f"an event cannot live during [{self.vs}, {self.ve})",
                why="an interval holds its start and not its end, and this one holds nothing",
            )


@dataclass(frozen=True, slots=True)
class Adjust:
    """The event that was to end at `ve_old` ends at `ve_new`; with `ve_new = vs` there is no such event."""

    payload: Payload
    vs: int
    ve_old: int
    ve_new: int

    def __post_init__(self) -> None:
        if self.ve_new < self.vs:
            raise Refused(
                f"an event that begins at {self.vs} cannot end at {self.ve_new}",
                how="an end equal to the beginning removes the event",
            )


@dataclass(frozen=True, slots=True)
class Stable:
    """From here on the feed says nothing that changes the table before `at`."""

    at: int


Element = Insert | Adjust | Stable


@dataclass(frozen=True, slots=True)
class Event:
    """A payload and the half-open lifetime [vs, ve) during which it counts."""

    payload: Frozen
    vs: int
    ve: int

    def counts_at(self, moment: int) -> bool:
        """Whether the event has begun and has not expired."""
        return self.vs <= moment < self.ve


Table = Counter[Event]
"""The table of events: a multiset, as two equal events are two."""


def frozen(payload: Payload) -> Frozen:
    """The payload's items by name, in the one form of each value: NaN equals NaN, and -0.0 equals 0.0."""
    return tuple((name, canonical(payload[name])) for name in sorted(payload))


def canonical(value: object) -> object:
    """The value, or what stands for it where plain equality of floats is not the equality meant."""
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value + 0.0
    return value


def reconstitute(elements: Iterable[Element]) -> Table:
    """The table of events that the elements describe; an element that breaks the feed's promise is refused."""
    table: Table = Counter()
    stable = LOWEST
    for number, element in enumerate(elements, start=1):
        where = f"element {number} of the feed"
        _check_promise(element, stable, where)
        match element:
            case Stable(at):
                stable = at
            case Insert(payload, vs, ve):
                table[Event(frozen(payload), vs, ve)] += 1
            case Adjust(payload, vs, ve_old, ve_new):
                _adjust(table, Event(frozen(payload), vs, ve_old), ve_new, where)
    return table


def answer_at(table: Table, moment: int) -> Counter[Frozen]:
    """The payloads that count at the moment. Expiry is this predicate; nothing is written for it."""
    answer: Counter[Frozen] = Counter()
    for event, times in table.items():
        if event.counts_at(moment):
            answer[event.payload] += times
    return answer


def _check_promise(element: Element, stable: int, where: str) -> None:
    match element:
        case Stable(at):
            behind = at < stable
            what = f"stable({at}) after stable({stable})"
        case Insert(_, vs, _):
            behind = vs < stable
            what = f"an insert at {vs} behind stable({stable})"
        case Adjust(_, _, ve_old, ve_new):
            behind = ve_old < stable or ve_new < stable
            what = f"an adjust from {ve_old} to {ve_new} behind stable({stable})"
    if behind:
        raise Refused(
            what,
            where=where,
            why="stable freezes the table before it; a feed may say nothing more there",
            how="what was wrong behind stable is corrected by a revision",
        )


def _adjust(table: Table, event: Event, ve_new: int, where: str) -> None:
    if event not in table:
        raise Refused(
            f"an adjust of an event that is not there: {dict(event.payload)} during [{event.vs}, {event.ve})",
            where=where,
            how="an adjust names the payload, the beginning and the end that the event has now",
        )
    table[event] -= 1
    if table[event] == 0:
        del table[event]
    if ve_new != event.vs:
        table[Event(event.payload, event.vs, ve_new)] += 1
