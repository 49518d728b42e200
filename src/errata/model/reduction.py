"""Reduction: how much of an archive is read, and which smaller versions of it are kept (Chandrasekaran and Franklin
2004).

Every row has a sampling hash, a number that follows from its key alone. A sample at rate p consists of the rows whose
hash is below `hash_bound(p)`. So samples are nested, a corrected row keeps its membership, and whether a row belongs to
a sample needs no mark. Whatever decides the rate (a constant, the age of the data, the load of the machine, a function
of the user) is resolved, before a scan begins, to `SamplingRates`: a rate for each place or each value of a column.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from errata.errors import UsageError
from errata.model.columns import SHOWN_LETTERS
from errata.model.time import HIGHEST, LOWEST, Interval

FULL_RATE = 1.0
_HASHES = 1 << 64


def hash_bound(rate: float) -> int:
    """The sampling hash below which the rows of a sample at this rate lie; HIGHEST means no bound."""
    if rate >= FULL_RATE:
        return HIGHEST
    return min(LOWEST + math.floor(rate * _HASHES), HIGHEST)


def sampling_span(rate: float) -> Interval:
    """The span of the sampling hash of a sample at this rate."""
    return Interval(LOWEST, hash_bound(rate))


def check_rate(rate: float, where: str | None = None) -> float:
    """The rate, if it can be read: above 0 and at most 1."""
    if math.isnan(rate) or not 0 < rate <= FULL_RATE:
        raise UsageError(
            f"a sampling rate of {rate:g} cannot be read",
            where=where,
            why="a rate is the share of the rows that is read: above 0 and at most 1",
            how="give a rate such as 0.1, or a percentage such as 10 PERCENT",
        )
    return rate


_RATE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(%|percent)?", re.IGNORECASE)


def parse_rate(text: str) -> float:
    """The rate that a text means: '10%', '10 percent' or '0.1'."""
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{text[:SHOWN_LETTERS]!r} is not a sampling rate", how="write a share such as 0.1, or a percentage: 10%"
        )
    # Divided, not multiplied by 0.01: 7% is then the same number as 0.07.
    return check_rate(float(found[1]) / 100 if found[2] else float(found[1]))


def rate_text(rate: float) -> str:
    """A rate as a percentage: 10%."""
    return f"{100 * rate:.6g}%"


@dataclass(frozen=True, slots=True)
class SamplingRates:
    """The rate at which each row of a stream is read: by its place, or by its value in one column."""

    starts: tuple[int, ...] = (LOWEST,)
    """Where each step begins, in the order field's unit; the first is LOWEST."""
    rates: tuple[float, ...] = (FULL_RATE,)
    column: str | None = None
    """The column that decides, if it is not the place."""
    by_value: Mapping[str | None, float] = field(default_factory=dict)
    """Rates of values of the column, as text; `rates[0]` is that of all others."""
    label: str = ""
    """The reduction as it was asked for, for messages and for the record of what readers want."""

    def __post_init__(self) -> None:
        if len(self.starts) != len(self.rates) or self.starts[:1] != (LOWEST,):
            raise ValueError("rates begin at the lowest place")
        if list(self.starts) != sorted(set(self.starts)):
            raise ValueError("places of rates ascend")
        if self.column is not None and len(self.rates) != 1:
            raise ValueError("a rate follows from the place or from a column, not from both")
        for rate in (*self.rates, *self.by_value.values()):
            check_rate(rate)

    @property
    def uniform(self) -> float | None:
        """The one rate of all rows; None if there are several."""
        distinct = {*self.rates, *self.by_value.values()}
        return distinct.pop() if len(distinct) == 1 else None

    @property
    def exact(self) -> bool:
        """Whether all rows are read."""
        return self.uniform == FULL_RATE

    def rate_at(self, place: int) -> float:
        """The rate of rows at a place, where the place decides."""
        return self.rates[bisect_right(self.starts, place) - 1]

    def at_most(self, rate: float) -> SamplingRates:
        """These rates where they are below another, and that one elsewhere."""
        values = {value: min(own, rate) for value, own in self.by_value.items()}
        return replace(self, rates=tuple(min(own, rate) for own in self.rates), by_value=values)

    def ceiling(self, low: int, high: int) -> float:
        """The greatest rate of any row whose place is from `low` to `high`, both included."""
        first, last = bisect_right(self.starts, low) - 1, bisect_right(self.starts, high)
        return max((*self.rates[first:last], *self.by_value.values()))


def uniform_rates(rate: float, label: str = "") -> SamplingRates:
    """The same rate for all rows."""
    return SamplingRates(rates=(rate,), label=label or f"uniform({rate:g})")


class SummaryTrigger(StrEnum):
    """When the parts of a summary are computed."""

    APPEND = "append"
    """Eager: with the rows, in the same commit."""
    READ = "read"
    """Lazy: by vacuum, once readers have asked for it."""


@dataclass(frozen=True, slots=True)
class SummaryDeclaration:
    """A windowed aggregate of a stream that is kept as a stream of its own."""

    name: str
    window: int
    """The size of the tumbling window, in the order field's unit."""
    group: tuple[str, ...]
    aggregates: Mapping[str, str]
    """SQL of each aggregate, by the name of its column."""
    when: SummaryTrigger = SummaryTrigger.APPEND


@dataclass(frozen=True, slots=True)
class OnReadCopies:
    """Copies that follow what readers ask for (OnReadModify)."""

    drop_above: float = 0.5
    """The share of readers since the last vacuum that needed more than a copy has, above which copies are dropped."""
    purge_after: int | None = None
    """Span behind the stable point after which the originals of buckets with a copy are purged; None: never."""


@dataclass(frozen=True, slots=True)
class ReducedArchives:
    """What of a stream's archive is kept at reduced resolution, as declared under `reduce:`."""

    copies: tuple[float, ...] = ()
    """Rates of the copies that are written with the rows (OnWriteReplicate), the greatest first."""
    on_read: OnReadCopies | None = None
    summaries: tuple[SummaryDeclaration, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.copies and self.on_read is None and not self.summaries


NO_REDUCTION = ReducedArchives()


def reduced_to_record(reduced: ReducedArchives) -> dict[str, Any]:
    """The declaration as a JSON object, which `reduced_from_record` reads."""
    on_read = reduced.on_read
    return {
        "copies": list(reduced.copies),
        "on_read": on_read and {"drop_above": on_read.drop_above, "purge_after": on_read.purge_after},
        "summaries": [
            {
                "name": each.name,
                "window": each.window,
                "group": list(each.group),
                "aggregates": dict(each.aggregates),
                "when": each.when.value,
            }
            for each in reduced.summaries
        ],
    }


def reduced_from_record(record: Mapping[str, Any] | None) -> ReducedArchives:
    """The declaration in a record of `reduced_to_record`; none for None."""
    if record is None:
        return NO_REDUCTION
    on_read = record["on_read"]
    return ReducedArchives(
        tuple(record["copies"]),
        on_read and OnReadCopies(**on_read),
        tuple(
            SummaryDeclaration(**{**each, "group": tuple(each["group"]), "when": SummaryTrigger(each["when"])})
            for each in record["summaries"]
        ),
    )
