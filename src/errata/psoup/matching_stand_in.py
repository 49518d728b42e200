"""Brute-force matching with the interface of the predicate index."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.model.registered import (
    ColumnFactor,
    Comparison,
    Conjunction,
    ConstantFactor,
    Factor,
    MemberFactor,
    NullFactor,
)
from errata.model.stream import Stream
from errata.psoup.row_sets import RowSet

_COMPARE = {
    Comparison.LESS: pc.less,
    Comparison.AT_MOST: pc.less_equal,
    Comparison.EQUAL: pc.equal,
    Comparison.AT_LEAST: pc.greater_equal,
    Comparison.GREATER: pc.greater,
}


class PredicateIndex:
    def __init__(self, stream: Stream, conjunctions: Mapping[int, Conjunction]) -> None:  # noqa: ARG002 - as the index has it
        self._conjunctions = conjunctions

    def match(self, table: pa.Table) -> dict[int, RowSet]:
        found = {}
        for number, conjunction in self._conjunctions.items():
            mask = np.ones(table.num_rows, dtype=bool)
            for factor in conjunction:
                true = pc.fill_null(_true(table, factor), False)
                mask &= true.to_numpy()
            if mask.any():
                found[number] = RowSet.of_mask(mask)
        return found


def _true(table: pa.Table, factor: Factor) -> pa.ChunkedArray:
    match factor:
        case ConstantFactor(column, comparison, constant):
            return _COMPARE[comparison](table[column], _scalar(table, column, constant))
        case MemberFactor(column, constants):
            return pc.is_in(
                table[column],
                value_set=pa.array([_scalar(table, column, c).as_py() for c in constants], table[column].type),
            )
        case NullFactor(column, is_null):
            return pc.is_null(table[column]) if is_null else pc.is_valid(table[column])
        case ColumnFactor(left, comparison, right, offset):
            a, b = table[left], table[right]
            if pa.types.is_timestamp(a.type):
                a, b = a.cast(pa.int64()), b.cast(pa.int64())
            return _COMPARE[comparison](a, pc.add(b, offset) if offset else b)


def _scalar(table: pa.Table, column: str, constant: object) -> pa.Scalar:
    kind = table[column].type
    if pa.types.is_timestamp(kind):
        return pa.scalar(constant, pa.int64()).cast(kind)
    if pa.types.is_date(kind):
        return pa.scalar(constant, pa.int32()).cast(kind)
    return pa.scalar(constant, kind)
