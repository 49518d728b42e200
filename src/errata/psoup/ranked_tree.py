"""A ranked tree (PSoup, section 6): aggregates of any range of a query's matching rows in the order of time.

The leaves are the matching rows, ordered by their order field. Sixty-four leaves make a group, up to 4,096 a page, and
sixty-four pages a shelf; each carries the annotations of its leaves (`measures`).

    shelves      [ 64 pages ][ 64 pages ][ …                        read whole, where a range covers them
    pages        [ up to 64 groups ][ … ][ … ][ …
    groups       [ 64 leaves ][ 64 leaves ]…
    leaves       . . . . x x x x x x x x x x x x x x . . .          read at both ends of a range

A range reads at most the leaves of two groups, the groups of two pages, the pages of two shelves, and the shelves in
between: a few hundred annotations, whether it has a thousand leaves or a million. All that is read of one kind is
folded at once.

Trees do not change. Adding and removing rows gives a new tree, which shares the pages that were not touched; the work
is that of the touched pages, and of a list of all pages. So an invocation reads one tree while others are made, and a
tree of an older commit remains what it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from errata.intake.types import arrow_type
from errata.model.columns import ColumnType
from errata.psoup.measures import FANOUT, Arrays, Measure

PAGE = FANOUT * FANOUT
"""Leaves of a page at most. A row that is added or removed costs the copy of a page."""
_FILL = PAGE * 3 // 4
"""Leaves of a page that is made by a split: room for later rows."""
_SPARSE = 8
"""When pages hold, on average, less than this part of what they could, the tree is made anew."""


@dataclass(frozen=True, slots=True)
class TreeColumn:
    """What a tree aggregates: a measure of a column of the rows."""

    name: str
    type: ColumnType
    measure: Measure


@dataclass(frozen=True, slots=True)
class _Page:
    order: np.ndarray
    rows: np.ndarray
    leaves: tuple[Arrays, ...]
    """For each column of the tree."""
    groups: tuple[Arrays, ...]

    def __len__(self) -> int:
        return len(self.order)


@dataclass(frozen=True, slots=True)
class _Shelves:
    """The levels above the pages."""

    first_ranks: np.ndarray
    """The rank of each page's first leaf, and at the end the number of all leaves."""
    first_orders: np.ndarray
    last_orders: np.ndarray
    pages: tuple[Arrays, ...]
    shelves: tuple[Arrays, ...]


class RankedTree:
    """The rows of one query in the order of time, with what its aggregates need."""

    __slots__ = ("_above", "_columns", "_pages")

    def __init__(self, columns: Sequence[TreeColumn]) -> None:
        self._columns = tuple(columns)
        self._pages: list[_Page] = []
        empty = tuple(_empty_annotations(each) for each in columns)
        none = np.zeros(0, dtype=np.int64)
        self._above = _Shelves(np.zeros(1, dtype=np.int64), none, none, empty, empty)

    def __len__(self) -> int:
        return int(self._above.first_ranks[-1])

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, as far as arrays tell."""
        arrays = (part for page in self._pages for each in (*page.leaves, *page.groups) for part in each)
        return sum(each.nbytes for each in arrays) + 16 * len(self)

    def rank(self, order: int) -> int:
        """The number of leaves before an instant."""
        at = int(np.searchsorted(self._above.last_orders, order, side="left"))
        if at == len(self._pages):
            return len(self)
        within = np.searchsorted(self._pages[at].order, order, side="left")
        return int(self._above.first_ranks[at]) + int(within)

    def rows(self, first: int, last: int) -> np.ndarray:
        """The numbers of the rows of some ranks."""
        parts = [self._pages[at].rows[low:high] for at, low, high in self._page_ranges(first, last)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts])

    def aggregate(self, *ranges: tuple[int, int]) -> list[object]:
        """The result of each column over the leaves of some ranges of ranks, which do not overlap."""
        ends = [(at, low, high) for each in ranges for at, low, high in self._end_ranges(*each)]
        whole = [each for first, last in ranges for each in self._whole_pages(first, last)]
        return [self._result(column, ends, whole) for column in range(len(self._columns))]

    def _result(self, column: int, ends: Sequence[tuple[int, int, int]], whole: Sequence[tuple[int, int]]) -> object:
        measure = self._columns[column].measure
        leaves: list[Arrays] = []
        annotations: list[Arrays] = []
        for at, low, high in ends:
            page = self._pages[at]
            _cover(low, high, page.leaves[column], page.groups[column], (leaves, annotations))
        for low, high in whole:
            _cover(low, high, self._above.pages[column], self._above.shelves[column], (annotations, annotations))
        if leaves:
            annotations.append(measure.lift(_concatenate(leaves)))
        return measure.result(_concatenate(annotations) if annotations else _empty_annotations(self._columns[column]))

    def _end_ranges(self, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """The parts of a range that lie in pages which it does not cover."""
        for at, low, high in self._page_ranges(first, last, ends_only=True):
            if high - low < len(self._pages[at]):
                yield at, low, high

    def _whole_pages(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The pages that a range covers, as a range."""
        ranks = self._above.first_ranks
        low = int(np.searchsorted(ranks, first, side="left"))
        high = int(np.searchsorted(ranks, last, side="right")) - 1
        if low < high:
            yield low, high

    def _page_ranges(self, first: int, last: int, *, ends_only: bool = False) -> Iterator[tuple[int, int, int]]:
        first, last = max(first, 0), min(last, len(self))
        if first >= last:
            return
        ranks = self._above.first_ranks
        low = int(np.searchsorted(ranks, first, side="right")) - 1
        high = int(np.searchsorted(ranks, last, side="left")) - 1
        for at in sorted({low, high}) if ends_only else range(low, high + 1):
            start = int(ranks[at])
            yield at, max(first - start, 0), min(last - start, len(self._pages[at]))

    def with_rows(self, order: np.ndarray, rows: np.ndarray, values: Mapping[str, pa.ChunkedArray]) -> RankedTree:
        """The tree with further rows: their order fields, numbers that name them (no two rows have the same), and the
        values of its columns."""
        if len(order) == 0:
            return self
        leaves = tuple(each.measure.leaves(values[each.name]) for each in self._columns)
        placed = np.argsort(order, kind="stable")
        new = _Page(order[placed], rows[placed], _take(leaves, placed), ())
        if not self._pages:
            return self._replaced({0: self._split(new)})
        targets = np.minimum(np.searchsorted(self._above.last_orders, new.order, "left"), len(self._pages) - 1)
        starts = np.flatnonzero(np.diff(targets, prepend=-1))
        changed = {}
        for start, end in zip(starts, [*starts[1:], len(targets)], strict=True):
            at = int(targets[start])
            changed[at] = self._split(_merged(self._pages[at], _part(new, slice(start, end))))
        return self._replaced(changed)

    def without_rows(self, order: np.ndarray, rows: np.ndarray) -> RankedTree:
        """The tree without some rows, given with their order fields; those that it does not have make no difference."""
        placed = np.argsort(order, kind="stable")
        gone_order, gone = order[placed], rows[placed]
        low = np.searchsorted(gone_order, self._above.first_orders, side="left")
        high = np.searchsorted(gone_order, self._above.last_orders, side="right")
        changed = {}
        for at in np.flatnonzero(low < high).tolist():
            page = self._pages[at]
            kept = ~np.isin(page.rows, gone[low[at] : high[at]])
            if not kept.all():
                changed[at] = self._split(_part(page, kept))
        return self._replaced(changed) if changed else self

    def _split(self, page: _Page) -> list[_Page]:
        """The pages of so many leaves, with the annotations of their groups."""
        count = len(page)
        pieces = 1 if count <= PAGE else -(-count // _FILL)
        bounds = [count * at // pieces for at in range(pieces + 1)] if count else []
        return [self._annotated(_part(page, slice(a, b))) for a, b in pairwise(bounds)]

    def _annotated(self, page: _Page) -> _Page:
        measures = [each.measure for each in self._columns]
        groups = tuple(each.fold(each.lift(leaves)) for each, leaves in zip(measures, page.leaves, strict=True))
        return replace(page, groups=groups)

    def _replaced(self, changed: Mapping[int, Sequence[_Page]]) -> RankedTree:
        """The tree in which some pages have been replaced by others."""
        pages: list[_Page] = []
        kept: list[tuple[slice, Sequence[_Page]]] = []
        done = 0
        for at in sorted(changed):
            pages += [*self._pages[done:at], *changed[at]]
            kept.append((slice(done, at), changed[at]))
            done = at + 1
        pages += self._pages[done:]
        kept.append((slice(done, None), ()))
        tree = RankedTree(self._columns)
        tree._pages = pages
        counts = np.fromiter(map(len, pages), dtype=np.int64, count=len(pages))
        if len(pages) > _SPARSE and int(counts.sum()) * _SPARSE < len(pages) * PAGE:
            return tree._compacted()
        annotations = tuple(
            _spliced(column.measure, self._above.pages[at], kept, at) for at, column in enumerate(self._columns)
        )
        tree._above = _Shelves(
            np.append(0, np.cumsum(counts)),
            np.fromiter((each.order[0] for each in pages), dtype=np.int64, count=len(pages)),
            np.fromiter((each.order[-1] for each in pages), dtype=np.int64, count=len(pages)),
            annotations,
            tuple(each.measure.fold(own) for each, own in zip(self._columns, annotations, strict=True)),
        )
        return tree

    def _compacted(self) -> RankedTree:
        """The same rows in full pages."""
        pages = self._pages
        leaves = tuple(_concatenate(parts) for parts in zip(*(each.leaves for each in pages), strict=True))
        order, rows = (
            np.concatenate(parts) for parts in zip(*((each.order, each.rows) for each in pages), strict=True)
        )
        fresh = RankedTree(self._columns)
        return fresh._replaced({0: self._split(_Page(order, rows, leaves, ()))})


def _spliced(measure: Measure, old: Arrays, kept: Sequence[tuple[slice, Sequence[_Page]]], column: int) -> Arrays:
    """The annotations of pages, where some have been replaced."""
    parts = []
    for unchanged, new in kept:
        parts.append(tuple(each[unchanged] for each in old))
        parts += [measure.fold(page.groups[column]) for page in new]
    return _concatenate(parts)


def _cover(low: int, high: int, fine: Arrays, coarse: Arrays, found: tuple[list[Arrays], list[Arrays]]) -> None:
    """A range of `fine` as whole groups of it, where there are any, and what is left at both ends."""
    first, last = -(-low // FANOUT), high // FANOUT
    edges = [(low, high)] if first >= last else [(low, first * FANOUT), (last * FANOUT, high)]
    found[0].extend(tuple(each[a:b] for each in fine) for a, b in edges if a < b)
    if first < last:
        found[1].append(tuple(each[first:last] for each in coarse))


def _part(page: _Page, which: slice | np.ndarray) -> _Page:
    """Some leaves of a page, without the annotations of groups."""
    return _Page(page.order[which], page.rows[which], _take(page.leaves, which), ())


def _merged(page: _Page, new: _Page) -> _Page:
    """The leaves of both in order; of equal order fields those of `page` come first."""
    leaves = tuple(_concatenate(both) for both in zip(page.leaves, new.leaves, strict=True))
    whole = _Page(np.append(page.order, new.order), np.append(page.rows, new.rows), leaves, ())
    if page.order[-1] <= new.order[0]:
        return whole
    return _part(whole, np.argsort(whole.order, kind="stable"))


def _take(columns: tuple[Arrays, ...], which: slice | np.ndarray) -> tuple[Arrays, ...]:
    return tuple(tuple(part[which] for part in each) for each in columns)


def _concatenate(parts: Sequence[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return tuple(np.concatenate(each) for each in zip(*parts, strict=True))


def _empty_annotations(column: TreeColumn) -> Arrays:
    return column.measure.lift(column.measure.leaves(pa.chunked_array([], type=arrow_type(column.type))))
