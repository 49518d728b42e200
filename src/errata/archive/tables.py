"""Arrow tables in memory: sorted, matched with each other by columns, and numbered by their keys.

All of it works on whole columns. `match_rows` narrows the larger table column by column to the rows that can match, and
joins only these, since one side is usually small (a few corrections) and the other large (a part of an archive).

Two notions of equality are used. `match_rows` compares floating numbers by their bits. `key_numbers` compares values:
NULL equals NULL, NaN equals NaN, and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import order_values
from errata.model.stream import Stream


def sort_rows(rows: pa.Table, stream: Stream) -> pa.Table:
    """Rows sorted by order field, key and position. Rows arrive nearly in order and few share their order field: a
    stable sort of the order field does most of the work, and only rows that share it are compared further."""
    order = order_values(rows[stream.order])
    index = np.argsort(order, kind="stable")
    ordered = order[index]
    equal = np.zeros(len(index) + 1, dtype=bool)
    equal[1:-1] = ordered[1:] == ordered[:-1]
    tied = np.flatnonzero(equal[1:] | equal[:-1])
    if len(tied):
        names = [stream.order, *(name for name in stream.key if name != stream.order), POS]
        some = rows.select(names).take(pa.array(index[tied]))
        index[tied] = index[tied][pc.sort_indices(some, sort_keys=[(name, "ascending") for name in names]).to_numpy()]
    return rows.take(pa.array(index))


def sort_by_columns(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows sorted by some columns as Spark sorts them: NULLs come first, and NaN behind all numbers."""
    if rows.num_rows < 2 or not names:
        return rows
    keys, sorting = [], rows.select(list(names))
    for number, name in enumerate(names):
        if pa.types.is_floating(rows.schema.field(name).type):
            rank = f"_nan_{number}"
            sorting = sorting.append_column(rank, pc.is_nan(rows[name]))
            keys.append((rank, "ascending", "at_start"))
        keys.append((name, "ascending", "at_start"))
    return rows.take(pc.sort_indices(sorting, sort_keys=keys))


# Rows of two tables matched by columns.

DIRECT_JOIN_ROWS = 1_000
"""Rows up to which a table is joined without being narrowed, and from which the number of its values is estimated."""


def match_rows(left: pa.Table, right: pa.Table, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The index pairs of rows that are equal in all the named columns, ordered by left index, then by right index.

    The columns have the same types on both sides, except that either may be dictionary encoded; dictionary columns
    hold no NULL. NULL equals NULL. Floating numbers are compared by their bits.
    """
    if left.num_rows < right.num_rows:
        rows_right, rows_left = _narrow_sides(right, left, names)
    else:
        rows_left, rows_right = _narrow_sides(left, right, names)
    if not len(rows_left) or not len(rows_right):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    codes_left, codes_right = _row_codes(
        _select_plain_rows(left, rows_left, names), _select_plain_rows(right, rows_right, names)
    )
    of_left, of_right = _join_codes(codes_left, codes_right)
    return rows_left[of_left], rows_right[of_right]


def is_in_sorted(values: np.ndarray, wanted_sorted: np.ndarray) -> np.ndarray:
    """Which of the values are among the wanted ones, which are sorted."""
    if not len(wanted_sorted):
        return np.zeros(len(values), dtype=bool)
    place = np.searchsorted(wanted_sorted, values)
    place[place == len(wanted_sorted)] = 0
    found: np.ndarray = wanted_sorted[place] == values
    return found


def masked_rows(
    rows: pa.Table, masks: pa.Table, columns: Sequence[str], numbers: np.ndarray, above: int | np.ndarray
) -> np.ndarray:
    """Which rows a mask with equal columns and a number greater than theirs masks. `numbers` are those of the masks;
    `above`: that of each row, or of all of them."""
    result = np.zeros(rows.num_rows, dtype=bool)
    if masks.num_rows and rows.num_rows:
        left, right = match_rows(rows.select(columns), masks, columns)
        result[left[numbers[right] > (above if isinstance(above, int) else above[left])]] = True
    return result


def is_among(column: pa.ChunkedArray | pa.Array, values: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Which values of a column are among others. Each entry of a dictionary is looked up once."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    sought = _plain_column(values)
    found = [_is_among_chunk(chunk, sought) for chunk in chunks]
    return np.concatenate(found) if found else np.zeros(0, dtype=bool)


def _is_among_chunk(chunk: pa.Array, sought: pa.Array) -> np.ndarray:
    if pa.types.is_dictionary(chunk.type):
        entries = _is_among_chunk(chunk.dictionary, sought)
        of_entries: np.ndarray = entries[chunk.indices.to_numpy(zero_copy_only=False)]
        return of_entries
    found: np.ndarray = pc.is_in(chunk, value_set=sought).to_numpy(zero_copy_only=False)
    return found


def _narrow_sides(large: pa.Table, small: pa.Table, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of both sides that can match a row of the other. Columns of many values come first, since each column is
    compared only in the rows that are left; narrowing stops when a column keeps more than half of them."""
    rows_large, rows_small = np.arange(large.num_rows), np.arange(small.num_rows)
    for name in sorted(names, key=lambda each: _distinct_count(small[each]), reverse=True):
        before = len(rows_large)
        if before <= DIRECT_JOIN_ROWS:
            break
        rows_large = rows_large[is_among(_take_rows(large[name], rows_large), _take_rows(small[name], rows_small))]
        if 2 * len(rows_large) > before:
            break
        if len(rows_small) > DIRECT_JOIN_ROWS:
            rows_small = rows_small[is_among(_take_rows(small[name], rows_small), _take_rows(large[name], rows_large))]
    return rows_large, rows_small


def _distinct_count(column: pa.ChunkedArray) -> int:
    return len(_plain_column(column.slice(0, DIRECT_JOIN_ROWS)).unique())


def _take_rows(column: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def _select_plain_rows(table: pa.Table, rows: np.ndarray, names: Sequence[str]) -> pa.Table:
    chosen = table.select(list(names))
    return chosen if len(rows) == table.num_rows else chosen.take(pa.array(rows))


def _row_codes(left: pa.Table, right: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """A number for each row of both tables; equal numbers mean rows equal in all columns."""
    codes = np.zeros(left.num_rows + right.num_rows, dtype=np.int64)
    size = 1
    for name in left.column_names:
        both = pa.concat_arrays([_plain_column(left[name]), _plain_column(right[name])]).dictionary_encode("encode")
        further = both.indices.to_numpy().astype(np.int64)
        entries = len(both.dictionary)
        if size * entries > len(codes) ** 2:  # renumbered from 0, long before the product overflows 64 bits
            _, codes = np.unique(codes, return_inverse=True)
            size = int(codes.max()) + 1
        codes = codes * entries + further
        size *= entries
    return codes[: left.num_rows], codes[left.num_rows :]


def _join_codes(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The index pairs of equal numbers, ordered by left index, then by right index."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    first, last = np.searchsorted(ordered, left, side="left"), np.searchsorted(ordered, left, side="right")
    counts = last - first
    of_left = np.repeat(np.arange(len(left)), counts)
    before = np.cumsum(counts) - counts
    within = np.arange(len(of_left)) - np.repeat(before, counts)
    return of_left, order[np.repeat(first, counts) + within]


def _plain_column(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.dictionary_decode() if pa.types.is_dictionary(whole.type) else whole


# Keys and values as small integers, and the latest row of each key.


def key_numbers(keys: pa.Table) -> np.ndarray:
    """A number for each row, from 0 by first appearance: rows with equal keys have equal numbers."""
    numbers = np.zeros(keys.num_rows, dtype=np.int64)
    for column in keys.columns:
        own = value_codes(column)
        if len(own) and own.min() != own.max():
            # Both factors are at most the number of rows, so the product does not overflow 64 bits.
            numbers = value_codes(pa.chunked_array([numbers * (int(own.max()) + 2) + own + 1])).astype(np.int64)
    return numbers


def value_codes(values: pa.ChunkedArray) -> np.ndarray:
    """A number for each value, from 0 by first appearance; NULL is -1. NaN equals NaN, and -0.0 equals 0.0."""
    if pa.types.is_floating(values.type):
        zero, nan = pa.scalar(0.0, values.type), pa.scalar(float("nan"), values.type)
        values = pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))
    parts = [np.asarray(chunk.indices.fill_null(-1)) for chunk in values.dictionary_encode().chunks]
    return np.concatenate([np.zeros(0, dtype=np.int32), *parts])


def latest_indexes(numbers: np.ndarray, version: np.ndarray) -> np.ndarray:
    """Of rows with equal key numbers the index of the one with the greatest version (the last of these, if several), in
    order of the key numbers."""
    order = np.lexsort((version, numbers))
    ordered = numbers[order]
    latest: np.ndarray = order[np.append(ordered[1:] != ordered[:-1], True)] if len(order) else order
    return latest


def concat_columns(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of one column followed by those of another of its type."""
    return pa.chunked_array([*one.chunks, *other.chunks], one.type)
