"""The faults of a feed, decided before a row is written: corrections, bad rows, late rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum

import numpy as np

from errata.generate.feed import QuoteFeed, QuoteRows
from errata.model.batch import FileFormat
from errata.model.time import DAY, HOUR, SECOND

_MAX_REVISION_AGE = 23 * HOUR // SECOND
_YEAR_2206 = (date(2206, 1, 1) - date(1970, 1, 1)).days * DAY
_YEAR_MICROS = 365 * DAY


class RevisionKind(StrEnum):
    """How often a quote is corrected later: the three streams of the paper (4)."""

    NONE = "none"
    LOW = "low"
    MOD = "mod"
    HIGH = "high"

    @property
    def period(self) -> int:
        """Standard rows for each correction; 0 when there are none."""
        return {"none": 0, "low": 1_000_000, "mod": 500_000, "high": 100_000}[self.value]


class FeedMistake(StrEnum):
    """Kinds of rows that cannot or need not be ingested."""

    UNREADABLE_PRICE = "unreadable price"
    MISSING_SYMBOL = "missing symbol"
    TOO_FEW_VALUES = "too few values"
    YEAR_2206 = "year 2206"
    EXACT_DUPLICATE = "exact duplicate"
    CONFLICTING_DUPLICATE = "conflicting duplicate"


@dataclass(frozen=True, slots=True)
class ExtraLine:
    """A line beside the standard rows, written right after the standard row that bears its ordinal."""

    ordinal: int
    time: int = 0
    symbol: int = 0
    cents: int = 0
    old_cents: int | None = None
    """The price that a correction replaces; None for a mistake."""
    mistake: FeedMistake | None = None

    def beside_row(self, row: QuoteRows) -> ExtraLine:
        """The mistake made beside a row: duplicates have the row's key, others are a microsecond later."""
        time, symbol, cents = int(row.time[0]), int(row.symbol[0]), int(row.cents[0])
        match self.mistake:
            case None:
                return self
            case FeedMistake.EXACT_DUPLICATE:
                pass
            case FeedMistake.CONFLICTING_DUPLICATE:
                cents += 1 + cents // 100
            case FeedMistake.YEAR_2206:
                time = _YEAR_2206 + time % _YEAR_MICROS
            case _:
                time += 1
        return replace(self, time=time, symbol=symbol, cents=cents)


def make_revisions(
    feed: QuoteFeed, kind: RevisionKind, first: int, end: int, delay: int, absent: frozenset[int]
) -> list[ExtraLine]:
    """The corrections that arrive among the rows numbered from `first` to `end`.

    Each period has one, at a random place, of a random row of the 23 hours before. The row has arrived by then: it is
    older than the `delay` by which rows may be out of order and not `absent`. Earlier periods are computed as well,
    because a row may be corrected twice and the second correction replaces the price of the first.
    """
    if kind is RevisionKind.NONE:
        return []
    found: list[ExtraLine] = []
    current: dict[int, int] = {}
    for number in range(-(-end // kind.period)):
        luck = [int(bits) for bits in feed.hashes("revision", np.arange(number * 3, number * 3 + 3))]
        gap = (delay // SECOND + 2) * feed.symbols
        low = max(number * kind.period, gap)
        room = (number + 1) * kind.period - low
        if room <= 0:
            continue
        ordinal = low + luck[0] % room
        oldest = max(0, ordinal - _MAX_REVISION_AGE * feed.symbols)
        target = oldest + luck[1] % (ordinal + 1 - gap - oldest)
        while target in absent and target > oldest:
            target -= 1
        row = feed.rows_at(np.array([target]))
        old = current.get(target, int(row.cents[0]))
        current[target] = new = _changed_price(old, luck[2])
        if first <= ordinal < end:
            found.append(ExtraLine(ordinal, int(row.time[0]), int(row.symbol[0]), new, old))
    return found


def _changed_price(cents: int, luck: int) -> int:
    """A price changed by up to a twentieth and a cent, never the same."""
    change = 1 + luck % (cents // 20 + 1)
    return cents + change if luck >> 63 or change >= cents else cents - change


def make_mistakes(feed: QuoteFeed, count: int, first: int, end: int, kind: FileFormat) -> list[ExtraLine]:
    """The places of the mistakes; each kind that the format can hold is equally frequent."""
    kinds = [mistake for mistake in FeedMistake if kind is not FileFormat.PARQUET or mistake not in _UNTYPED]
    places = first + (feed.hashes("mistake", np.arange(count)) % np.uint64(end - first)).astype(np.int64)
    return [ExtraLine(int(place), mistake=kinds[number % len(kinds)]) for number, place in enumerate(places)]


_UNTYPED = frozenset({FeedMistake.UNREADABLE_PRICE, FeedMistake.TOO_FEW_VALUES})
"""Mistakes that a typed format cannot hold."""


def choose_late_rows(
    feed: QuoteFeed, count: int, spans: list[tuple[int, int]]
) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """For each file's span of rows, the numbers of those that arrive only with the next file.

    They are in a file's first half, so that the rest of the file lies between them and the stable point.
    """
    without_next = np.empty(0, np.int64)
    share, more = divmod(count, max(1, len(spans) - 1))
    found = []
    for number, (first, end) in enumerate(spans[:-1]):
        want = share + (number < more)
        pool = feed.hashes("late", np.arange(first, first + max(1, (end - first) // 2)))
        found.append(first + np.sort(np.argpartition(pool, want - 1)[:want]) if want else without_next)
    return [*found, without_next]
