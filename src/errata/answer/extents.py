"""Sets of extents: merged, made disjoint, and intersected with rows.

An extent is an interval with constants of columns. A set of them is held as `IntervalsByKey`: for the constants, the
intervals that have them, in order and apart. Merging and making disjoint takes time in the number of extents, which is
small (some hundreds); intersecting takes a sort of the extents and a binary search for each row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from errata.answer.row_comparison import BoolArray, IntArray, group_starts, sort_arrays
from errata.model.extent import Extent, ExtentAxis, Value
from errata.model.time import Interval, hull
from errata.model.time import merge_intervals as in_order

KeyConstants = tuple[tuple[str, Value], ...]
"""The constants of an extent: pairs of column and value, ordered by column."""
IntervalsByKey = dict[KeyConstants, list[Interval]]
"""By the constants, the intervals of the extents that have them, in order and apart from each other."""


def merge_extents(regions: Iterable[Extent]) -> list[Extent]:
    """The same rows as few extents: those of equal constants are merged where they overlap or touch, and those that lie
    in an extent of fewer constants are dropped."""
    found = list(regions)
    return _extents_of(_drop_covered(_intervals_by_key(found)), found)


def disjoint_extents(regions: Iterable[Extent]) -> list[Extent]:
    """Extents, all of one axis, of which no two can hold the same row at the same time, and which hold all that the
    given ones do. They hold more only where two extents overlap that each have a constant which the other has not: one
    extent replaces them, over both intervals and with the constants that they share."""
    found = list(regions)
    spans = _drop_covered(_intervals_by_key(found))
    while (wider := _merge_overlapping(spans)) is not None:
        spans = _drop_covered(wider)
    return _extents_of(spans, found)


def rows_with_constants(rows: pa.Table, region: Extent) -> BoolArray:
    """Which rows have an extent's constants, wherever they lie in time."""
    constants = _constants_of(region)
    if not constants:
        return np.ones(rows.num_rows, np.bool_)
    wanted, has = _number_constants(rows, [constants])
    flags: BoolArray = has == wanted[0]
    return flags


@dataclass(frozen=True, slots=True)
class RowParts:
    """Parts of rows, one element each, in the order of rows and of time. Parts of one row lie apart."""

    row: IntArray
    start: IntArray
    end: IntArray


def parts_in_extents(rows: pa.Table, start: IntArray, end: IntArray, regions: Iterable[Extent]) -> RowParts:
    """The parts of rows, which last from `start` to `end`, that lie in any of the extents."""
    by_names: dict[tuple[str, ...], IntervalsByKey] = defaultdict(dict)
    for constants, intervals in _intervals_by_key(regions).items():
        by_names[tuple(name for name, _ in constants)][constants] = intervals
    parts = [_parts_in_intervals(rows, start, end, spans) for spans in by_names.values()]
    if not parts:
        nothing = np.zeros(0, np.int64)
        return RowParts(nothing, nothing, nothing)
    if len(parts) == 1:
        return parts[0]
    return _merge_parts(
        *(np.concatenate(each) for each in zip(*((part.row, part.start, part.end) for part in parts), strict=True))
    )


def _constants_of(region: Extent) -> KeyConstants:
    return tuple(sorted(region.values.items(), key=lambda item: item[0]))


def _intervals_by_key(regions: Iterable[Extent]) -> IntervalsByKey:
    found: dict[KeyConstants, list[Interval]] = defaultdict(list)
    for each in regions:
        if not each.interval.empty:
            found[_constants_of(each)].append(each.interval)
    return {constants: in_order(intervals) for constants, intervals in found.items()}


def _extents_of(spans: IntervalsByKey, like: Sequence[Extent]) -> list[Extent]:
    axis = like[0].axis if like else ExtentAxis.INSTANT
    pairs = [(each, constants) for constants, intervals in spans.items() for each in intervals]
    # Constants of one column may be of several types, which do not compare; their texts do.
    pairs.sort(key=lambda pair: (pair[0].start, pair[0].end, repr(pair[1])))
    return [Extent(axis, interval, dict(constants)) for interval, constants in pairs]


def _drop_covered(spans: IntervalsByKey) -> IntervalsByKey:
    """The extents without what extents of fewer constants hold."""
    sets = {tuple(name for name, _ in constants) for constants in spans}
    found: IntervalsByKey = {}
    for constants, intervals in spans.items():
        names = {name for name, _ in constants}
        wider = (_some_constants(constants, each) for each in sets if names > set(each))
        covering = in_order(each for fewer in wider for each in spans.get(fewer, ()))
        if left := list(_uncovered_intervals(intervals, covering)):
            found[constants] = left
    return found


def _some_constants(constants: KeyConstants, names: Sequence[str]) -> KeyConstants:
    """Only those of some columns."""
    return tuple(item for item in constants if item[0] in names)


def _uncovered_intervals(intervals: Iterable[Interval], covering: Sequence[Interval]) -> Iterator[Interval]:
    """The parts of intervals that lie in none of the covering ones. Both are in order."""
    first = 0
    for each in intervals:
        start = each.start
        while first < len(covering) and covering[first].end <= start:
            first += 1
        place = first
        while place < len(covering) and covering[place].start < each.end:
            if start < covering[place].start:
                yield Interval(start, covering[place].start)
            start = covering[place].end
            place += 1
        if start < each.end:
            yield Interval(start, each.end)


def _merge_overlapping(spans: IntervalsByKey) -> IntervalsByKey | None:
    """Each cluster of extents that can hold the same row, as one extent; None if there is no such cluster."""
    flat = [(constants, each) for constants, intervals in spans.items() for each in intervals]
    clusters = _DisjointSets(len(flat))
    by_names: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, (constants, _) in enumerate(flat):
        by_names[tuple(name for name, _ in constants)].append(number)
    for one, other in combinations(by_names, 2):
        common = [name for name in one if name in other]
        meeting: dict[KeyConstants, list[tuple[int, int, bool]]] = defaultdict(list)
        for names, first in ((one, True), (other, False)):
            for number in by_names[names]:
                constants, interval = flat[number]
                meeting[_some_constants(constants, common)].append((interval.start, number, first))
        for members in meeting.values():
            _join_overlapping(members, flat, clusters)
    if not clusters.any:
        return None
    found: dict[KeyConstants, list[Interval]] = defaultdict(list)
    for cluster in clusters.members():
        intervals = [flat[number][1] for number in cluster]
        shared = set(flat[cluster[0]][0]).intersection(*(flat[number][0] for number in cluster))
        found[tuple(sorted(shared, key=lambda item: item[0]))].append(hull(intervals))
    return {constants: in_order(intervals) for constants, intervals in found.items()}


class _DisjointSets:
    """Sets of numbers that are joined one by one (union-find with path halving)."""

    def __init__(self, size: int) -> None:
        self._above = list(range(size))
        self.any = False

    def top(self, number: int) -> int:
        while self._above[number] != number:
            self._above[number] = self._above[self._above[number]]
            number = self._above[number]
        return number

    def join(self, one: int, other: int) -> None:
        self._above[self.top(one)] = self.top(other)
        self.any = True

    def members(self) -> Iterable[list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for number in range(len(self._above)):
            found[self.top(number)].append(number)
        return found.values()


def _join_overlapping(
    members: list[tuple[int, int, bool]], flat: Sequence[tuple[KeyConstants, Interval]], clusters: _DisjointSets
) -> None:
    """Join the extents of two sets that overlap, by a sweep over their starts."""
    open_: dict[bool, list[int]] = {True: [], False: []}
    for start, number, first in sorted(members):
        met = [each for each in open_[not first] if flat[each][1].end > start]
        for each in met:
            clusters.join(each, number)
        # These are joined now: a later extent need only be compared with the one that ends last.
        open_[not first] = [max(met, key=lambda each: flat[each][1].end)] if met else []
        open_[first].append(number)


def _number_constants(rows: pa.Table, sets: Sequence[KeyConstants]) -> tuple[IntArray, IntArray]:
    """Numbers for sets of constants of the same columns, and for the rows, equal where a row has the constants."""
    names = [name for name, _ in sets[0]]
    columns: Mapping[str, Any] = {
        name: pa.array([constants[place][1] for constants in sets], rows.schema.field(name).type)
        for place, name in enumerate(names)
    }
    both = pa.concat_tables([pa.table(columns), rows.select(names)])
    lanes = sort_arrays(both, names)
    order = np.lexsort(lanes[::-1])
    numbers = np.empty(both.num_rows, np.int64)
    numbers[order] = np.cumsum(group_starts([lane[order] for lane in lanes], both.num_rows))
    return numbers[: len(sets)], numbers[len(sets) :]


def _parts_in_intervals(rows: pa.Table, start: IntArray, end: IntArray, spans: IntervalsByKey) -> RowParts:
    """Parts of rows in extents whose constants are of the same columns."""
    sets = list(spans)
    if sets[0]:
        wanted, has = _number_constants(rows, sets)
    else:
        wanted, has = np.zeros(1, np.int64), np.zeros(rows.num_rows, np.int64)
    of = np.repeat(wanted, [len(spans[each]) for each in sets])
    low = np.array([each.start for intervals in spans.values() for each in intervals])
    high = np.array([each.end for intervals in spans.values() for each in intervals])
    order = np.lexsort((low, of))
    of, low, high = of[order], low[order], high[order]
    # Key numbers and times packed into one number: times by their rank among those of the extents.
    times = np.unique(np.concatenate([low, high]))
    size = len(times) + 1
    ends, begins = of * size + np.searchsorted(times, high, "right"), of * size + np.searchsorted(times, low)
    ended = np.searchsorted(ends, has * size + np.searchsorted(times, start, "right"), "right")
    begun = np.searchsorted(begins, has * size + np.searchsorted(times, end))
    count = np.maximum(begun - ended, 0)
    row = np.repeat(np.arange(len(start)), count)
    place = ended[row] + np.arange(len(row)) - (np.cumsum(count) - count)[row]
    return RowParts(row, np.maximum(start[row], low[place]), np.minimum(end[row], high[place]))


def _merge_parts(row: IntArray, start: IntArray, end: IntArray) -> RowParts:
    """Parts of rows, where those that overlap or touch are merged."""
    order = np.lexsort((start, row))
    row, start, end = row[order], start[order], end[order]
    # Rows and ends packed into one number, so that the running maximum is the furthest end of the same row.
    ends = np.unique(end)
    furthest = np.maximum.accumulate(row * len(ends) + np.searchsorted(ends, end))
    reached = ends[furthest % len(ends)] if len(ends) else end
    fresh = np.ones(len(row), np.bool_)
    fresh[1:] = (row[1:] != row[:-1]) | (start[1:] > reached[:-1])
    heads = np.flatnonzero(fresh)
    lasts = np.append(heads[1:], len(row))[: len(heads)] - 1
    return RowParts(row[heads], start[heads], reached[lasts])
