"""Half-open intervals of the order field, and instants and durations in microseconds (UTC).

Everything inside computes with whole microseconds since 1970; text appears only where people write and read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from errata.errors import UsageError
from errata.model.columns import SHOWN_LETTERS, parse_digits

LOWEST = -(2**63)
HIGHEST = 2**63 - 1
"""The least and the greatest bigint: no beginning, and no end."""


@dataclass(frozen=True, slots=True)
class Interval:
    """[start, end): the start is in it, the end is not. The default is everything."""

    start: int = LOWEST
    end: int = HIGHEST

    @property
    def empty(self) -> bool:
        return self.start >= self.end

    def __and__(self, other: Interval) -> Interval:
        """The intersection; it may be empty."""
        return Interval(max(self.start, other.start), min(self.end, other.end))

    def __or__(self, other: Interval) -> Interval:
        """The smallest interval that contains both."""
        return Interval(min(self.start, other.start), max(self.end, other.end))

    def __contains__(self, moment: int) -> bool:
        return self.start <= moment < self.end

    def meets(self, low: int, high: int) -> bool:
        """Whether the interval contains a value from low to high, both included."""
        return not self.empty and low < self.end and high >= self.start


EVERYTHING = Interval()


def hull(intervals: Iterable[Interval]) -> Interval:
    """The smallest interval that contains all of these; an empty one if there are none."""
    some = list(intervals)
    return Interval(min(each.start for each in some), max(each.end for each in some)) if some else Interval(0, 0)


def merge_intervals(some: Iterable[Interval]) -> list[Interval]:
    """The union of these intervals, as intervals that do not touch, in order."""
    found: list[Interval] = []
    for each in sorted(some, key=lambda each: each.start):
        if found and each.start <= found[-1].end:
            found[-1] = Interval(found[-1].start, max(found[-1].end, each.end))
        else:
            found.append(each)
    return found


SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MAX_DURATION = 36_525_000 * DAY
"""Microseconds of the longest duration that is accepted, 100,000 years: added to an instant it fits into a bigint."""

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "week": 7 * DAY,
}
_UNIT_ALIASES = {"us": "microsecond", "ms": "millisecond", "s": "second", "min": "minute", "h": "hour", "d": "day"}
_PART = re.compile(r"(\d+)\s*([a-z]+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(text: str) -> int:
    """Microseconds of '24 hours', '5 seconds', '1 day 6 hours', '90 min'."""
    spaced = text.strip().lower()
    total, end = 0, 0
    for part in _PART.finditer(spaced):
        if spaced[end : part.start()].strip():
            break
        unit = _UNIT_ALIASES.get(part[2], part[2].removesuffix("s") if part[2] not in _UNIT_ALIASES else part[2])
        if unit not in _UNITS:
            break
        total += parse_digits(part[1]) * _UNITS[unit]
        end = part.end()
    if end == 0 or spaced[end:].strip():
        raise UsageError(
            f"{text!r} is not a duration",
            how="write a whole number and a unit, such as '5 seconds', '90 minutes', '24 hours' or '7 days'",
        )
    if total > MAX_DURATION:
        raise UsageError(f"{text[:SHOWN_LETTERS]!r} is too long a duration", how="100,000 years are the most")
    return total


def format_duration(micros: int) -> str:
    """The duration in the largest unit of which it is a whole number: '5 seconds', '1500 milliseconds'."""
    if micros == 0:
        return "0 seconds"
    for unit in ("day", "hour", "minute", "second", "millisecond", "microsecond"):
        if micros % _UNITS[unit] == 0:
            count = micros // _UNITS[unit]
            return f"{count} {unit}{'' if count == 1 else 's'}"
    raise AssertionError("every whole number of microseconds has a unit")


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 of a datetime; one without a zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    # Airflow passes a subclass of datetime whose differences are not timedeltas.
    return datetime.__sub__(aware, _EPOCH) // timedelta(microseconds=1)


def to_datetime(micros: int) -> datetime:
    """The aware UTC datetime of an instant."""
    return _EPOCH + timedelta(microseconds=micros)


def parse_instant(text: str) -> int:
    """Microseconds of an ISO 8601 date or date and time; without a zone it is UTC."""
    try:
        return to_micros(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is not a date and time",
            how="write it as 2026-11-18T02:00:00, with microseconds and a zone if need be; without a zone it is UTC",
        ) from None


def format_instant(micros: int) -> str:
    """The instant as Errata writes it: 2026-11-18T02:00:00.000000."""
    return to_datetime(micros).replace(tzinfo=None).isoformat(timespec="microseconds")


def parse_event_time(at: str | int, *, timed: bool) -> int:
    """The event time that a person has given: a date and time, or a whole number where streams are not timed."""
    if isinstance(at, int):
        return max(LOWEST, at)
    if timed:
        return parse_instant(at)
    try:
        return max(LOWEST, int(at))
    except ValueError:
        raise UsageError(
            f"{at!r} is not a whole number", why="the streams that the query reads are ordered by a bigint"
        ) from None
