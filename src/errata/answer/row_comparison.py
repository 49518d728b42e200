"""Equality and order of rows in Arrow tables. NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0.

Comparisons are column by column, in numpy. `sort_arrays` turns columns into arrays of whole numbers with the same
order, so that rows are sorted by `lexsort`, and `group_starts` finds where equal rows begin."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
SortArray = npt.NDArray[Any]


SUM_TOLERANCE = 1e-9
"""Relative difference up to which two sums of doubles are equal. The order in which numbers are added up changes the
last bits."""


def same_values(
    rows: pa.Table, names: Sequence[str], left: IntArray, right: IntArray, rough: Collection[str] = ()
) -> BoolArray:
    """For each pair of rows, whether they have the same values in the columns, or nearly so in the rough ones."""
    same = np.ones(len(left), np.bool_)
    if not len(left):
        return same
    lefts, rights = pa.array(left), pa.array(right)
    for name in names:
        column = _one_chunk(rows, name)
        one, other = column.take(lefts), column.take(rights)
        same &= equal_values(one, other) | _nearly_equal(one, other) if name in rough else equal_values(one, other)
    return same


def _one_chunk(rows: pa.Table, name: str) -> pa.Array:
    column = rows[name]
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def equal_values(left: pa.Array, right: pa.Array) -> BoolArray:
    """Which values are equal to those of the other column; NULL equals NULL, and NaN equals NaN."""
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if left.null_count or right.null_count:
        same = pc.or_(pc.fill_null(same, False), pc.and_(pc.is_null(left), pc.is_null(right)))
    flags: BoolArray = same.to_numpy(zero_copy_only=False)
    return flags


def _nearly_equal(left: pa.Array, right: pa.Array) -> BoolArray:
    # NULL becomes NaN, which is near nothing.
    one, other = left.to_numpy(zero_copy_only=False), right.to_numpy(zero_copy_only=False)
    greater = np.maximum(np.abs(one), np.abs(other))
    with np.errstate(invalid="ignore", over="ignore"):
        near: BoolArray = np.isfinite(greater) & (np.abs(one - other) <= SUM_TOLERANCE * greater)
    return near


def sort_arrays(rows: pa.Table, names: Sequence[str]) -> list[SortArray]:
    """The columns as arrays of whole numbers that are equal where the values are, and that sort as the values do: NULL
    before all others, NaN after all numbers, text by its bytes. The first array decides first."""
    return [lane for name in names for lane in _column_sort_arrays(_one_chunk(rows, name))]


def _column_sort_arrays(column: pa.Array) -> list[SortArray]:
    lanes: list[SortArray] = []
    if column.null_count:
        lanes.append(pc.is_valid(column).to_numpy(zero_copy_only=False))
    if pa.types.is_string(column.type):
        return [*lanes, _text_ranks(column)]
    if pa.types.is_decimal(column.type):
        return [*lanes, *_decimal_halves(column)]
    if (plain := _integer_type(column.type)) is not None:
        column = column.cast(plain)
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return [*lanes, _float_bits(values) if pa.types.is_floating(column.type) else values]


def _integer_type(kind: pa.DataType) -> pa.DataType | None:
    """The integer type that values of a type are read as."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.int8() if pa.types.is_boolean(kind) else None


def _text_ranks(column: pa.Array) -> SortArray:
    """The rank of each text among the distinct ones; of NULL, any."""
    coded = column.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order) + 1, np.int64)
    ranks[order] = np.arange(len(order))
    ranks[-1] = -1
    picked: SortArray = ranks[pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)]
    return picked


def _decimal_halves(column: pa.Array) -> list[SortArray]:
    """The two halves of 128-bit decimals, the signed upper one first."""
    size = len(column)
    if not size:
        return [np.zeros(0, np.int64), np.zeros(0, np.uint64)]
    pairs = np.frombuffer(column.buffers()[1], np.int64, 2 * size, 16 * column.offset).reshape(size, 2)
    low, high = pairs[:, 0].view(np.uint64), pairs[:, 1]
    if column.null_count:
        known = pc.is_valid(column).to_numpy(zero_copy_only=False)
        low, high = np.where(known, low, 0), np.where(known, high, 0)
    return [high, low]


def _float_bits(numbers: npt.NDArray[np.floating[Any]]) -> IntArray:
    """Floating numbers as whole numbers in the same order."""
    plain = numbers.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
    plain[np.isnan(plain)] = np.nan  # one of the many bit patterns
    bits = plain.view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)


def group_starts(sorted_lanes: Sequence[SortArray], size: int) -> BoolArray:
    """Which of sorted rows differ from the row before; the first does."""
    new = np.zeros(size, np.bool_)
    new[:1] = True
    for lane in sorted_lanes:
        new[1:] |= lane[1:] != lane[:-1]
    return new
