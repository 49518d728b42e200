"""The selected rows of one source, kept from one commit to the next, and what changed between.

    ranges at commit 7      [bucket 1: rows 0–90][bucket 2: all]
    ranges at commit 8              [bucket 1: rows 30–90][bucket 2: all][bucket 3: rows 0–12]
    change                  − rows 0–30 of bucket 1                       + rows 0–12 of bucket 3

Rows enter because they arrived, a correction added them, or the window moved; they leave because they expired, a
correction masked them, or they were aged out. Two sets of ranges tell all of it: where a bucket's rows depend on the
same overlays as before, only the ends of its range are compared; else its rows one by one, by their positions. So the
work is that of the buckets, and of the rows that changed.

A row is named by one number for as long as it is kept: the place of its bucket among those that were seen, and its
position there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import pyarrow as pa

from errata.catalog.match_segments import BucketKey
from errata.psoup.selection import PartRange, event_order

_POSITION_BITS = 32
"""Bits of a row's position in its bucket."""

MAX_CHUNKS = 32
"""Pieces that kept rows may consist of before they are put together: each change adds one."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """The rows that left, and those that entered."""

    removed_order: np.ndarray
    removed: np.ndarray
    added_order: np.ndarray
    added: np.ndarray
    added_rows: pa.Table

    @property
    def empty(self) -> bool:
        return not len(self.removed) and not len(self.added)


@dataclass(frozen=True, slots=True)
class RangeContent:
    """The ranges that rows are kept of, and the numbers of their buckets."""

    ranges: Mapping[BucketKey, PartRange] = field(default_factory=dict)
    numbers: Mapping[BucketKey, int] = field(default_factory=dict)

    def after(self, ranges: Sequence[PartRange], schema: pa.Schema) -> tuple[RangeContent, RowChange]:
        """The content of other ranges, and what changes by them."""
        after = {each.bucket: each for each in ranges}
        new = [bucket for bucket in after if bucket not in self.numbers]
        numbered = dict(self.numbers) | dict(zip(new, count(max(self.numbers.values(), default=-1) + 1), strict=False))
        removed, added = [], []
        for bucket in dict.fromkeys((*self.ranges, *after)):
            left, entered = _difference(self.ranges.get(bucket), after.get(bucket))
            removed += left
            added += entered
        change = RowChange(
            _joined([part.part.order[places] for part, places in removed]),
            _joined([_row_numbers(numbered[part.bucket], part.part.positions[at]) for part, at in removed]),
            _joined([part.part.order[places] for part, places in added]),
            _joined([_row_numbers(numbered[part.bucket], part.part.positions[at]) for part, at in added]),
            pa.concat_tables([schema.empty_table(), *(part.part.rows.take(pa.array(at)) for part, at in added)]),
        )
        return RangeContent(after, {bucket: numbered[bucket] for bucket in after}), change

    def numbers_at(self, excluded: Mapping[int, np.ndarray]) -> np.ndarray:
        """The numbers of rows given by the ids of their buckets and their positions."""
        buckets = {bucket[0]: number for bucket, number in self.numbers.items()}
        return _joined([_row_numbers(buckets[at], places) for at, places in excluded.items() if at in buckets])


NO_CONTENT = RangeContent()


def _row_numbers(bucket: int, positions: np.ndarray) -> np.ndarray:
    return (bucket << _POSITION_BITS) | positions.astype(np.int64)


Places = list[tuple[PartRange, np.ndarray]]


def _difference(before: PartRange | None, after: PartRange | None) -> tuple[Places, Places]:
    """The places of a bucket's rows that left and that entered."""
    if before is None or after is None:
        return _all(before), _all(after)
    if before.live == after.live and before.excluded is None and after.excluded is None:
        return _outside(before, after), _outside(after, before)
    mine, theirs = before.places(), after.places()
    positions = before.part.positions[mine], after.part.positions[theirs]
    gone, new = mine[~np.isin(positions[0], positions[1])], theirs[~np.isin(positions[1], positions[0])]
    return [(before, gone)] if len(gone) else [], [(after, new)] if len(new) else []


def _all(part: PartRange | None) -> Places:
    return [] if part is None else [(part, part.places())]


def _outside(part: PartRange, other: PartRange) -> Places:
    """The places of one range that are not in the other, of the same rows."""
    ends = ((part.low, min(part.high, other.low)), (max(part.low, other.high), part.high))
    return [(part, np.arange(low, high)) for low, high in ends if low < high]


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


@dataclass(slots=True)
class KeptRows:
    """The rows of a window themselves, in the order of event time and key."""

    key: Sequence[str]
    order: np.ndarray
    numbers: np.ndarray
    rows: pa.Table

    @classmethod
    def none(cls, key: Sequence[str], schema: pa.Schema) -> KeptRows:
        empty = np.zeros(0, dtype=np.int64)
        return cls(key, empty, empty, schema.empty_table())

    def __len__(self) -> int:
        return len(self.order)

    @property
    def nbytes(self) -> int:
        return int(self.order.nbytes + self.numbers.nbytes + self.rows.nbytes)

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """The places of rows that are there, by their numbers."""
        order = np.argsort(self.numbers)
        return order[np.searchsorted(self.numbers, numbers, sorter=order)]

    def after(self, change: RowChange) -> KeptRows:
        """The rows after a change."""
        return _with_rows(_without_rows(self, change.removed), change)


def _without_rows(kept: KeptRows, removed: np.ndarray) -> KeptRows:
    if not len(removed):
        return kept
    first = len(removed)
    if np.isin(kept.numbers[:first], removed).all():  # those that expire are the first
        return KeptRows(kept.key, kept.order[first:], kept.numbers[first:], kept.rows.slice(first))
    left = ~np.isin(kept.numbers, removed)
    return KeptRows(kept.key, kept.order[left], kept.numbers[left], kept.rows.filter(pa.array(left)))


def _with_rows(kept: KeptRows, change: RowChange) -> KeptRows:
    if not len(change.added):
        return kept
    # What comes before all new rows stays where it is; mostly that is everything.
    before = int(np.searchsorted(kept.order, change.added_order.min(), side="left"))
    order = np.append(kept.order[before:], change.added_order)
    numbers = np.append(kept.numbers[before:], change.added)
    rows = pa.concat_tables([kept.rows.slice(before), change.added_rows])
    if (index := event_order(order, rows, kept.key)) is not None:
        order, numbers, rows = order[index], numbers[index], rows.take(pa.array(index))
    rows = pa.concat_tables([kept.rows.slice(0, before), rows])
    if rows.column(0).num_chunks > MAX_CHUNKS:
        rows = rows.combine_chunks()
    return KeptRows(kept.key, np.append(kept.order[:before], order), np.append(kept.numbers[:before], numbers), rows)
