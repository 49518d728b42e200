"""An extent: the rows that lie in an interval of time and whose columns have given constants.

Everything that is told of rows without naming them is an extent: the results that a change touches, the rows of a
source that are needed to make results, revised rows that are followed through a plan together. Lineage maps extents of
one node of a plan to extents of another.

An extent is never narrower than what is meant, and may be wider. Its columns are called as the node, source or result
calls them that it is about; `renamed` carries it from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from enum import StrEnum

from errata.model.time import EVERYTHING, Interval

Value = bool | int | float | str | Decimal | date | None
"""A constant of a column. A timestamp is an integer of microseconds; None is NULL, which equals itself here."""

ColumnValues = Mapping[str, Value]


class ExtentAxis(StrEnum):
    """How an extent lies in time."""

    START = "start"
    """Whole rows, by where they begin."""
    INSTANT = "instant"
    """What the answer is at instants: rows, as far as they count then."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows in an interval whose columns have certain constants."""

    axis: ExtentAxis
    interval: Interval = EVERYTHING
    values: ColumnValues = field(default_factory=dict)
    during: Interval = EVERYTHING
    """Of whole rows: the instants outside of which none of them counts. Known of changed rows, and while an extent is
    followed through a plan."""

    @property
    def empty(self) -> bool:
        return self.interval.empty or self.during.empty

    @property
    def without_during(self) -> Extent:
        """The extent by where its rows lie alone."""
        return replace(self, during=EVERYTHING)

    def clipped(self, interval: Interval) -> Extent:
        """The part that lies in an interval."""
        return replace(self, interval=self.interval & interval)

    def renamed(self, name: Callable[[str], str]) -> Extent:
        """The same rows where their columns are called otherwise."""
        return replace(self, values={name(column): value for column, value in self.values.items()})

    def __or__(self, other: Extent) -> Extent:
        """All that lies in either, and perhaps more."""
        if self.empty or other.empty:
            return other if self.empty else self
        both = {
            name: value for name, value in self.values.items() if name in other.values and other.values[name] == value
        }
        axis = ExtentAxis.START if self.axis is other.axis is ExtentAxis.START else ExtentAxis.INSTANT
        return Extent(axis, self.interval | other.interval, both, self.during | other.during)


def rows_starting_in(interval: Interval, values: ColumnValues | None = None, *, last_end: int | None = None) -> Extent:
    """Whole rows that begin in an interval. `last_end` is when the last of them ends, as far as that is known."""
    during = EVERYTHING if last_end is None else Interval(end=last_end)
    return Extent(ExtentAxis.START, interval, {} if values is None else values, during)


NO_ROWS = Extent(ExtentAxis.START, Interval(0, 0))
