"""Matching row by row: for conjunctions with a range of few rows, those rows are verified against all their ranges.

The rows of a range are consecutive among the rows sorted by the attribute's segment, at the places that the counts at
its boundaries are. Pairs of a row and a conjunction are verified together, whichever conjunctions they belong to, so
that the cost is some ten nanoseconds for each pair and range, and nothing for the rest of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from errata.psoup.index.conjunction_table import (
    BatchSegments,
    Compared,
    ConjunctionTable,
    Numbers,
    RangeSets,
    SparseMatches,
    spread,
)
from errata.psoup.index.value_segments import Segments
from errata.psoup.row_sets import Mask, bits_at

_PAIRS = 1 << 20
"""Pairs that are verified at a time, about."""

_SHORT = 1 << 16
"""Numbers up to which numpy sorts by counting."""


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of candidates among the rows sorted by segment, each of the conjunction at a place of the table."""

    places: Numbers
    attributes: Numbers
    starts: Numbers
    sizes: Numbers


def match_rows(table: ConjunctionTable, batch: BatchSegments, places: Numbers, compared: Compared) -> SparseMatches:
    """The rows that satisfy the conjunctions at these places of the table."""
    ordered: dict[int, Segments] = {}
    found: list[tuple[Numbers, Numbers]] = []
    for runs in _portions(_candidate_runs(table, batch, places)):
        rows = np.empty(int(runs.sizes.sum()), np.int64)
        at = np.repeat(runs.places, runs.sizes)
        attribute = np.repeat(runs.attributes, runs.sizes)
        order_places = spread(runs.starts, runs.sizes)
        for number in np.unique(runs.attributes).tolist():
            if number not in ordered:
                ordered[number] = _sorted_rows(batch, number)
            chosen = attribute == number
            rows[chosen] = ordered[number][order_places[chosen]]
        found.append(_verified(table, batch, (at, rows), compared))
    at = np.concatenate([each for each, _ in found]) if found else np.zeros(0, np.int64)
    rows = np.concatenate([each for _, each in found]) if found else np.zeros(0, np.int64)
    order = np.lexsort((rows, at))
    at, rows = at[order], rows[order]
    starts = np.flatnonzero(np.diff(at, prepend=-1))
    return SparseMatches(table.numbers[at[starts]], np.append(starts, len(at)), rows)


def _candidate_runs(table: ConjunctionTable, batch: BatchSegments, places: Numbers) -> _Runs:
    """For each conjunction the runs of its most selective range, or set of ranges."""
    fewest = np.full(len(table.numbers), batch.rows + 1, np.int64)
    begins = np.zeros(len(table.numbers), np.int64)
    ends = np.zeros(len(table.numbers), np.int64)
    for begin, end in table.ranges:
        ranged = places[: np.searchsorted(places, len(begin))]
        size = batch.counts[end[ranged]] - batch.counts[begin[ranged]]
        better = size < fewest[ranged]
        at = ranged[better]
        fewest[at], begins[at], ends[at] = size[better], begin[at], end[at]
    sets = np.full(len(table.numbers), -1, np.int64)
    held = table.members.counts(batch)
    wanted = np.zeros(len(table.numbers), np.bool_)
    wanted[places] = True
    for every, numbered in table.sets:
        eligible = (numbered < len(held)) & wanted[every]
        those, numbers = every[eligible], numbered[eligible]
        better = held[numbers] < fewest[those]
        fewest[those[better]], sets[those[better]] = held[numbers[better]], numbers[better]
    single = places[sets[places] < 0]
    several = places[sets[places] >= 0]
    of, sizes = table.members.pick(sets[several])
    begins = np.concatenate((begins[single], table.members.begins[of]))
    ends = np.concatenate((ends[single], table.members.ends[of]))
    starts = batch.counts[begins]
    return _Runs(
        np.concatenate((single, np.repeat(several, sizes))),
        np.searchsorted(batch.bases, begins, "right") - 1,
        starts.astype(np.int64),
        (batch.counts[ends] - starts).astype(np.int64),
    )


def _portions(runs: _Runs) -> Iterator[_Runs]:
    """The runs in portions of so many pairs."""
    ends = np.cumsum(runs.sizes)
    first = 0
    while first < len(ends):
        reached = ends[first] - runs.sizes[first] + _PAIRS
        last = max(first + 1, int(np.searchsorted(ends, reached, "right")))
        part = slice(first, last)
        yield _Runs(runs.places[part], runs.attributes[part], runs.starts[part], runs.sizes[part])
        first = last


def _sorted_rows(batch: BatchSegments, attribute: int) -> Segments:
    """The rows in the order of an attribute's segments."""
    segments = batch.before[attribute] - batch.bases[attribute]
    if batch.bases[attribute + 1] - batch.bases[attribute] <= _SHORT:
        segments = segments.astype(np.uint16)
    return np.argsort(segments, kind="stable").astype(np.int32)


def _verified(
    table: ConjunctionTable, batch: BatchSegments, pairs: tuple[Numbers, Numbers], compared: Compared
) -> tuple[Numbers, Numbers]:
    """Those pairs of a conjunction's place and a row that satisfy all of it."""
    at, rows = pairs
    for begins, ends in table.ranges:
        ranged = np.flatnonzero(at < len(begins))
        begin, end = begins[at[ranged]], ends[at[ranged]]
        attributes = np.searchsorted(batch.bases, begin, "right") - 1
        before = batch.before[attributes, rows[ranged]]
        kept = np.ones(len(at), np.bool_)
        kept[ranged] = (before >= begin) & (before < end)
        at, rows = at[kept], rows[kept]
    for places, numbers in table.sets:
        if not len(at):
            break
        nth = np.minimum(np.searchsorted(places, at), len(places) - 1)
        asked = np.flatnonzero(places[nth] == at)
        kept = np.ones(len(at), np.bool_)
        kept[asked] = _in_sets(table.members, batch, numbers[nth[asked]], rows[asked], compared)
        at, rows = at[kept], rows[kept]
    return at, rows


def _in_sets(members: RangeSets, batch: BatchSegments, sets: Segments, rows: Numbers, compared: Compared) -> Mask:
    """Whether each row is in the set beside it."""
    kept = np.zeros(len(rows), np.bool_)
    of_ranges = sets < len(members)
    if of_ranges.any():
        kept[of_ranges] = _in_ranges(members, batch, sets[of_ranges], rows[of_ranges])
    for number in np.unique(sets[~of_ranges]).tolist():
        asked = sets == number
        kept[asked] = bits_at(compared(number - len(members)), rows[asked])
    return kept


def _in_ranges(members: RangeSets, batch: BatchSegments, sets: Segments, rows: Numbers) -> Mask:
    """Whether each row is in one of the ranges of the set beside it: the last one that begins at or before the row's
    segment, among the ranges of all sets in the order of sets and begins."""
    first = members.starts[sets]
    attributes = np.searchsorted(batch.bases, members.begins[first], "right") - 1
    before = batch.before[attributes, rows]
    scale = np.int64(batch.bases[-1] + 1)
    begins = np.repeat(np.arange(len(members)), np.diff(members.starts)) * scale + members.begins
    last = np.searchsorted(begins, sets * scale + before, "right") - 1
    kept: Mask = (last >= first) & (before < members.ends[last])
    return kept
