"""The predicate index: the conjunctions of all registered queries over a stream, shared between them (section 4.2).

    row      →  a key for each attribute (`keys`)  →  its segment (`value_segments`)
    query    →  ranges of keys (`requirements`)    →  runs of segments, known beforehand (`conjunction_table`)
    both     →  rows of each conjunction, in one of two ways

The way is chosen for each conjunction by how many rows its most selective range holds, which the rows' counts at the
boundaries tell beforehand; a conjunction with a range that holds none is out.

    few rows    `row_matching`: the rows of that range are verified one by one
    many rows   `bit_matching`: a bit for each row, and the AND of all ranges

Before rows are matched, those that concern nobody are set aside. Each conjunction has an entry, the one of its ranges
that likely holds the fewest values, and a row in no entry is in no conjunction: it costs a look-up for each attribute,
however many queries there are. The index is a value: it is made of some conjunctions and never changed.

It holds about 60 bytes for each range of a conjunction, and at most 40 for each distinct bound.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from errata.model.registered import ColumnFactor, Conjunction, Relation
from errata.model.stream import Stream
from errata.psoup.index.bit_matching import match_bits
from errata.psoup.index.conjunction_table import (
    NO_MATCHES,
    BatchSegments,
    Compared,
    ConjunctionTable,
    DenseMatches,
    Numbers,
    SparseMatches,
    batch_segments,
)
from errata.psoup.index.indexing import attribute_segments, conjunction_table, entrances
from errata.psoup.index.keys import ColumnKeys, Keys, differences, whole_keys
from errata.psoup.index.matches import Matches, among_all
from errata.psoup.index.requirements import Attribute, Requirement, RequirementReader
from errata.psoup.index.row_matching import match_rows
from errata.psoup.index.value_segments import Segments, ValueSegments
from errata.psoup.join_keys import compare, keyed_relation
from errata.psoup.row_sets import Mask, Words, word_count, words_of

_FEW = 400
"""A range with less than one row in so many is verified row by row. Chosen by `errata bench psoup`."""

_FEW_FROM_ROWS = 1024
"""Rows of a batch below which bits are always cheaper."""

_FEW_CONCERNED = 8
"""Where the rows that concern anybody take less than one word in so many, they are matched by themselves."""


class PredicateIndex:
    """Matches batches of a stream's rows with conjunctions over it."""

    def __init__(self, stream: Stream, conjunctions: Mapping[int, Conjunction]) -> None:
        reader = RequirementReader(stream, conjunctions)
        required = {number: reader.read(each) for number, each in conjunctions.items()}
        found = {number: each for number, each in required.items() if each is not None}
        self._every = tuple(number for number, each in found.items() if each == Requirement({}))
        for number in self._every:
            del found[number]
        self._keys: dict[str, ColumnKeys] = reader.keys
        self._compared = list(dict.fromkeys(factor for each in found.values() for factor in each.compared))
        self._segments = attribute_segments(found.values())
        self._table = conjunction_table(found, self._segments, self._compared)
        self._entrances = entrances(found.values(), self._segments)

    def __len__(self) -> int:
        """How many conjunctions a row can satisfy."""
        return len(self._every) + len(self._table.numbers)

    def match(self, table: pa.Table) -> Matches:
        """The rows of the table that satisfy each conjunction; no entry where none does."""
        rows = table.num_rows
        if rows == 0 or not len(self._table.numbers):
            return Matches(rows, self._every)
        batch = _Batch(table, self._keys, self._segments)
        concerned = self._concerned(batch)
        if concerned is not None and not len(concerned):
            return Matches(rows, self._every)
        if concerned is None or word_count(len(concerned)) * _FEW_CONCERNED > word_count(rows):
            return Matches(rows, self._every, *self._matched(batch, None))
        return Matches(rows, self._every, sparse=among_all(*self._matched(batch, concerned), concerned))

    def _concerned(self, batch: _Batch) -> Numbers | None:
        """The rows in an entry of a conjunction; None where that is any."""
        if self._entrances is None:
            return None
        within = np.zeros(batch.rows, np.bool_)
        for attribute, entrance in self._entrances.items():
            within |= entrance.near(*batch.keys(attribute))
        near_rows = np.flatnonzero(within)
        if 2 * len(near_rows) > batch.rows:
            inside = np.zeros(batch.rows, np.bool_)
            for attribute, entrance in self._entrances.items():
                inside |= entrance.open[batch.segments(attribute)]
            return np.flatnonzero(inside)
        inside = np.zeros(len(near_rows), np.bool_)
        for attribute, entrance in self._entrances.items():
            inside |= entrance.open[batch.segments_of(attribute, near_rows)]
        return near_rows[inside]

    def _matched(self, batch: _Batch, chosen: Numbers | None) -> tuple[DenseMatches, SparseMatches]:
        """The rows of each conjunction, among all rows of the batch or among some."""
        if chosen is None:
            segments = [batch.segments(attribute) for attribute in self._segments]
            rows = batch.rows
        else:
            segments = [batch.segments_of(attribute, chosen) for attribute in self._segments]
            rows = len(chosen)
        numbered = batch_segments(segments, [each.boundaries for each in self._segments.values()], rows)
        sets: dict[int, Words] = {}

        def compared(number: int) -> Words:
            if number not in sets:
                mask = compared_rows(batch.table, self._compared[number])
                sets[number] = words_of(mask if chosen is None else mask[chosen])
            return sets[number]

        return match_all(self._table, numbered, compared)


class _Batch:
    """A table's rows as keys and segments, each worked out when it is first asked for."""

    def __init__(
        self, table: pa.Table, keys: Mapping[str, ColumnKeys], segments: Mapping[Attribute, ValueSegments]
    ) -> None:
        self.table = table
        self.rows: int = table.num_rows
        self._of_column = keys
        self._of_attribute = segments
        self._keys: dict[Attribute, tuple[Keys, Mask | None]] = {}
        self._segments: dict[Attribute, Segments] = {}

    def keys(self, attribute: Attribute) -> tuple[Keys, Mask | None]:
        """The key of each row, and which rows are not NULL, unless all are."""
        if attribute not in self._keys:
            self._keys[attribute] = self._made_keys(attribute)
        return self._keys[attribute]

    def segments(self, attribute: Attribute) -> Segments:
        if attribute not in self._segments:
            self._segments[attribute] = self._of_attribute[attribute].locate(*self.keys(attribute))
        return self._segments[attribute]

    def segments_of(self, attribute: Attribute, rows: Numbers) -> Segments:
        """The segments of some rows alone."""
        if attribute in self._segments:
            return self._segments[attribute][rows]
        keys, present = self.keys(attribute)
        return self._of_attribute[attribute].locate(keys[rows], None if present is None else present[rows])

    def _made_keys(self, attribute: Attribute) -> tuple[Keys, Mask | None]:
        if isinstance(attribute, str):
            values = self.table.column(attribute)
            if self._of_attribute[attribute].null == 1:  # it is asked only whether it is NULL
                return np.zeros(self.rows, np.int64), _present(values)
            return self._of_column[attribute].keys(values), _present(values)
        left, right = (self.table.column(name) for name in attribute)
        return differences(whole_keys(left), whole_keys(right)), _both(_present(left), _present(right))


def _present(values: pa.ChunkedArray) -> Mask | None:
    if values.null_count == 0:
        return None
    found: Mask = values.is_valid().to_numpy()
    return found


def _both(first: Mask | None, second: Mask | None) -> Mask | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def compared_rows(table: pa.Table, factor: ColumnFactor) -> Mask:
    """The rows of which one column compares with another."""
    relation = Relation(0, factor.left, factor.comparison, 0, factor.right, factor.offset)
    keyed = keyed_relation(relation, table.column(factor.left), table.column(factor.right))
    left, right = keyed.left, keyed.right
    found: Mask = compare(left.keys, keyed.comparison, right.keys) & left.present & right.present
    return found


def match_all(table: ConjunctionTable, batch: BatchSegments, compared: Compared) -> tuple[DenseMatches, SparseMatches]:
    """The rows that satisfy each conjunction; conjunctions that no row satisfies are left out."""
    fewest = _fewest_rows(table, batch)
    few = batch.rows // _FEW if batch.rows >= _FEW_FROM_ROWS else 0
    sparse = np.flatnonzero((fewest > 0) & (fewest <= few))
    dense = np.flatnonzero(fewest > few)
    found = match_rows(table, batch, sparse, compared) if len(sparse) else NO_MATCHES
    return match_bits(table, batch, dense, compared), found


def _fewest_rows(table: ConjunctionTable, batch: BatchSegments) -> Segments:
    """For each conjunction, how many rows its most selective range or set of ranges holds."""
    fewest = np.full(len(table.numbers), batch.rows, np.int32)
    for begins, ends in table.ranges:
        within = fewest[: len(begins)]
        np.minimum(within, batch.counts[ends] - batch.counts[begins], out=within)
    held = table.members.counts(batch)
    for places, numbers in table.sets:
        ranged = numbers < len(held)
        at = places[ranged]
        fewest[at] = np.minimum(fewest[at], held[numbers[ranged]])
    return fewest
