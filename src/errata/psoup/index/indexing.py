"""How the parts of a predicate index are made from what the conjunctions require."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from errata.model.registered import ColumnFactor
from errata.psoup.index.conjunction_table import ConjunctionTable, Numbers, RangeSets
from errata.psoup.index.keys import GREATEST, LEAST, KeyRange, Keys
from errata.psoup.index.requirements import Attribute, Ranges, Requirement
from errata.psoup.index.value_segments import Segments, ValueSegments
from errata.psoup.row_sets import Mask

_FEW_ROWS = 512
"""Rows up to which two comparisons are faster than reading a grid."""

_NULL: KeyRange = (1, 0)
"""Stands for the segment of NULL among ranges, of which none is empty."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """The entries of the conjunctions that enter by one attribute."""

    segments: ValueSegments
    low: int
    high: int
    """The least and the greatest key in an entry."""
    open: Mask
    """By segment, that of NULL too, whether it is in an entry."""
    cells: Mask | None
    """The same by cell of the segments' grid, where there is one."""

    def near(self, keys: Keys, present: Mask | None) -> Mask:
        """Rows that may be in an entry; the others are in none."""
        if self.cells is None or len(keys) <= _FEW_ROWS:
            found = (keys >= self.low) & (keys <= self.high)
        else:
            found = self.segments.in_cells(self.cells, keys)
        return found if present is None else np.where(present, found, self.open[-1])


def attribute_segments(required: Iterable[Requirement]) -> dict[Attribute, ValueSegments]:
    """The segments of each attribute that is asked for."""
    bounds: dict[Attribute, set[KeyRange]] = defaultdict(set)
    for each in required:
        for attribute, ranges in each.ranges.items():
            bounds[attribute].update(ranges)
        for column in each.nulls:
            bounds[column].update(())
    return {attribute: ValueSegments(ranges) for attribute, ranges in bounds.items()}


def conjunction_table(
    required: Mapping[int, Requirement], segments: Mapping[Attribute, ValueSegments], compared: Sequence[ColumnFactor]
) -> ConjunctionTable:
    """The conjunctions as boundaries."""
    last_begins = {attribute: each.last_begin for attribute, each in segments.items()}
    single = {number: _single_ranges(each, last_begins) for number, each in required.items()}
    inner = {number: sum(each[1][1] < last_begins[each[0]] for each in found) for number, found in single.items()}
    order = sorted(single, key=lambda number: (-len(single[number]), -inner[number]))
    numbered = _NumberedSegments(segments)
    ranges = []
    for nth in range(len(single[order[0]]) if order else 0):
        held = [single[number][nth] for number in order if len(single[number]) > nth]
        ranges.append(numbered.boundaries(held))
    members: dict[tuple[Attribute, Ranges], int] = {}
    for each in required.values():
        for attribute, held_ranges in each.ranges.items():
            if len(held_ranges) > 1:
                members.setdefault((attribute, held_ranges), len(members))
    comparisons = dict(zip(compared, count(len(members))))
    sets = []
    for number in order:
        each = required[number]
        asked = [members[pair] for pair in each.ranges.items() if len(pair[1]) > 1]
        sets.append([*asked, *dict.fromkeys(comparisons[factor] for factor in each.compared)])
    return ConjunctionTable(np.array(order, np.int64), ranges, _layers(sets), numbered.range_sets(members))


def entrances(
    required: Iterable[Requirement], segments: Mapping[Attribute, ValueSegments]
) -> dict[Attribute, Entrance] | None:
    """The entries by attribute; None where a conjunction has none."""
    entries: dict[Attribute, set[KeyRange]] = defaultdict(set)
    for each in required:
        options = dict(each.ranges)
        options |= dict.fromkeys(each.nulls, (_NULL,))
        if not options:
            return None
        attribute = min(options, key=lambda option: _expected_share(options[option]))
        entries[attribute].update(options[attribute])
    return {attribute: _entrance(segments[attribute], ranges) for attribute, ranges in entries.items()}


def _expected_share(ranges: Ranges) -> tuple[int, int]:
    """Orders ranges by how many rows they are likely to hold: single keys first, then ranges of two bounds."""
    width = sum(high - low for low, high in ranges)
    open_ends = (ranges[0][0] == LEAST) + (ranges[-1][1] == GREATEST)
    return (0 if width <= 0 else 1 + open_ends), width


def _entrance(segments: ValueSegments, ranges: set[KeyRange]) -> Entrance:
    changes = np.zeros(segments.boundaries, np.int32)
    keyed = sorted(ranges - {_NULL})
    if keyed:
        begins, ends = _boundaries(segments, keyed)
        np.add.at(changes, begins, 1)
        np.add.at(changes, ends, -1)
    within = np.cumsum(changes[:-1]) > 0
    within[segments.null] = _NULL in ranges
    low, high = (keyed[0][0], max(high for _, high in keyed)) if keyed else (GREATEST, LEAST)
    return Entrance(segments, low, high, within, segments.open_cells(within))


def _single_ranges(required: Requirement, last_begins: Mapping[Attribute, int]) -> list[tuple[Attribute, KeyRange]]:
    """The attributes of which one range is asked for; last those ranges behind whose end no other begins, since there
    are likely no rows either."""
    found = [(attribute, ranges[0]) for attribute, ranges in required.ranges.items() if len(ranges) == 1]
    nulls = [(column, _NULL) for column in sorted(required.nulls)]
    return sorted([*nulls, *found], key=lambda each: each[1][1] >= last_begins[each[0]])


def _boundaries(segments: ValueSegments, ranges: Sequence[KeyRange]) -> tuple[Segments, Segments]:
    pairs = np.array(ranges, np.int64).reshape(-1, 2)
    begins, ends = segments.boundaries_of(pairs[:, 0], pairs[:, 1])
    null = pairs[:, 0] > pairs[:, 1]
    begins[null], ends[null] = segments.null, segments.null + 1
    return begins, ends


class _NumberedSegments:
    """The boundaries of all attributes, numbered through."""

    def __init__(self, segments: Mapping[Attribute, ValueSegments]) -> None:
        self._segments = segments
        sizes = [each.boundaries for each in segments.values()]
        self._bases = dict(zip(segments, np.cumsum([0, *sizes]).tolist(), strict=False))

    def boundaries(self, held: Sequence[tuple[Attribute, KeyRange]]) -> tuple[Segments, Segments]:
        """The boundaries of each range."""
        begins, ends = np.empty(len(held), np.int32), np.empty(len(held), np.int32)
        places: dict[Attribute, list[int]] = defaultdict(list)
        for place, (attribute, _) in enumerate(held):
            places[attribute].append(place)
        for attribute, at in places.items():
            base = self._bases[attribute]
            found = _boundaries(self._segments[attribute], [held[place][1] for place in at])
            begins[at], ends[at] = found[0] + base, found[1] + base
        return begins, ends

    def range_sets(self, members: Iterable[tuple[Attribute, Ranges]]) -> RangeSets:
        sets = list(members)
        starts: Numbers = np.cumsum([0, *(len(ranges) for _, ranges in sets)])
        begins, ends = self.boundaries([(attribute, each) for attribute, ranges in sets for each in ranges])
        return RangeSets(starts, begins, ends)


def _layers(sets: Sequence[Sequence[int]]) -> list[tuple[Segments, Segments]]:
    """The n-th set of each conjunction that has so many, with the conjunction's place."""
    layers = []
    for nth in range(max(map(len, sets), default=0)):
        held = [(place, each[nth]) for place, each in enumerate(sets) if len(each) > nth]
        pairs = np.array(held, np.int32)
        layers.append((pairs[:, 0].copy(), pairs[:, 1].copy()))
    return layers
