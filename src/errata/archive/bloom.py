"""Parquet's Bloom filters: which row groups may hold a value, without reading their columns.

Parquet's filters are "split block" filters: blocks of eight 32-bit words, in each of which a value has one bit. The
upper half of a 64-bit hash of the value (xxHash with seed 0 of its plain encoding) chooses the block, the lower half
the bits. Buckets whose key lacks the order field are written with filters, which Spark and other readers use, too.
pyarrow writes them and tells where in a file they are, but does not evaluate them; this module does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FALSE_POSITIVE_RATE = 0.01
"""Share of absent values that a filter may report as present, as it is written."""

TYPICAL_FALSE_POSITIVE_RATE = 0.0015
"""The measured share: filters have sizes in powers of two, and those of full row groups are larger than needed."""

MAX_FILTER_VALUES = 4_096
"""Values above which filters are not read: with more, hardly a row group is ruled out."""

_SALTS = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], dtype=np.uint32
)

# The header in Thrift's compact protocol: the number of bytes as a zigzag varint, then three unions, each with its
# first and so far only member: split blocks, xxHash, not compressed.
_HEADER = re.compile(rb"\x15([\x80-\xff]*[\x00-\x7f])\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x00", re.DOTALL)

_ROWS_AT_ONCE = 16_384
"""Rows that are hashed together: what is between two steps then stays in the processor's cache, which takes a fifth of
the time."""

_PRIMES = tuple(
    np.array([prime], dtype=np.uint64)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


class SeekableReader(Protocol):
    """An open file."""

    def seek(self, offset: int, /) -> Any: ...

    def read(self, size: int, /) -> bytes: ...


def supports_bloom_filter(kind: pa.DataType) -> bool:
    """Whether a column of the type can have a filter."""
    return not pa.types.is_boolean(kind)


def bloom_options(rows: pa.Table, names: Sequence[str], row_group: int) -> dict[str, dict[str, float]]:
    """The options by which pyarrow writes filters of the named columns, each as large as its fullest row group
    needs."""
    named = [name for name in names if rows.num_rows and supports_bloom_filter(rows.schema.field(name).type)]
    return {name: {"ndv": _distinct_count(rows[name], row_group), "fpp": FALSE_POSITIVE_RATE} for name in named}


def _distinct_count(column: pa.ChunkedArray, row_group: int) -> int:
    """An upper bound of the distinct values in a row group. Counting them can take longer than writing them; if more
    than half of the first row group's values differ, all values of all row groups are assumed to."""
    first = column.slice(0, row_group)
    found = int(pc.count_distinct(first).as_py())
    if found * 2 > len(first):
        return len(first)
    others = [column.slice(start, row_group) for start in range(row_group, len(column), row_group)]
    return max(1, found, *(int(pc.count_distinct(each).as_py()) for each in others))


def key_hashes(keys: pa.Table) -> dict[str, np.ndarray]:
    """The hash of each value of the columns that can have filters."""
    return {
        name: column_hashes(keys[name])
        for name in keys.column_names
        if supports_bloom_filter(keys.schema.field(name).type)
    }


def may_contain(
    file: SeekableReader, row_group: pq.RowGroupMetaData, wanted: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """Which of the wanted keys, given by the hashes of their columns, may be in the row group; None when none of the
    columns has a filter there."""
    found: np.ndarray | None = None
    for number in range(row_group.num_columns):
        column = row_group.column(number)
        values = wanted.get(column.path_in_schema)
        bitset = None if values is None else _bitset(file, column)
        if values is None or bitset is None:
            continue
        maybe = bits_set(bitset, values)
        found = maybe if found is None else found & maybe
    return found


def bits_set(bitset: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Which of the hashed values may be in a filter, given as its words, eight to a block."""
    blocks = bitset.reshape(-1, 8)
    chosen = ((values >> np.uint64(32)) * np.uint64(len(blocks))) >> np.uint64(32)
    low = (values & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    bits = (low[:, None] * _SALTS) >> np.uint32(27)
    held: np.ndarray = ((blocks[chosen] >> bits) & np.uint32(1)).all(axis=1)
    return held


def _bitset(file: SeekableReader, column: pq.ColumnChunkMetaData) -> np.ndarray | None:
    """The filter of a column of a row group; None if there is none, or none of a known kind."""
    if column.bloom_filter_offset is None or column.bloom_filter_length is None:
        return None
    file.seek(column.bloom_filter_offset)
    data = file.read(column.bloom_filter_length)
    header = _HEADER.match(data)
    if header is None:
        return None
    bitset = data[header.end() :]
    return np.frombuffer(bitset, dtype="<u4") if len(bitset) == _zigzag(header[1]) else None


def _zigzag(varint: bytes) -> int:
    number = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(varint))
    return (number >> 1) ^ -(number & 1)


def column_hashes(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """The hashes of a column's values, none of which is NULL, as Parquet's filters use them."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_string(whole.type) or pa.types.is_binary(whole.type):
        return hash_texts(whole.cast(pa.binary()))
    return xxh64(_plain_encoded(whole))


def _plain_encoded(values: pa.Array) -> np.ndarray:
    """Values of one length as Parquet's plain encoding has them, a row of bytes each."""
    if pa.types.is_decimal(values.type):
        return _big_endian(values)
    width = values.type.bit_width // 8
    whole = pc.cast(values, pa.int32() if width == 4 else pa.int64()).to_numpy()
    little = np.ascontiguousarray(whole, dtype=f"<i{width}")
    return little.view(np.uint8).reshape(-1, width)


def _big_endian(decimals: pa.Array) -> np.ndarray:
    """Decimals as the fewest bytes that hold their precision, the most significant byte first."""
    most = 10**decimals.type.precision - 1
    width = most.bit_length() // 8 + 1
    data = np.frombuffer(decimals.buffers()[1], dtype=np.uint8)[decimals.offset * 16 :]
    stored: np.ndarray = data[: len(decimals) * 16].reshape(-1, 16)[:, :width][:, ::-1]
    return stored


def hash_texts(values: pa.Array, seeds: np.ndarray | None = None) -> np.ndarray:
    """Hashes of values of any length, none of which is NULL, computed for all values of one length at a time; each with
    a seed of its own, if seeds are given."""
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False)
    found = np.zeros(len(values), dtype=np.uint64)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        found[rows] = xxh64(_bytes(values.take(pa.array(rows)), length), None if seeds is None else seeds[rows])
    return found


def _bytes(values: pa.Array, length: int) -> np.ndarray:
    """Values of one length as a matrix of bytes."""
    _, offsets, data = values.buffers()
    start = int(np.frombuffer(offsets, dtype=np.int32)[values.offset])
    whole = np.frombuffer(data or b"", dtype=np.uint8)
    return whole[start : start + len(values) * length].reshape(len(values), length)


def xxh64(data: np.ndarray, seeds: np.ndarray | None = None) -> np.ndarray:
    """xxHash, 64 bits, of each row of a matrix of bytes, with a seed for each row; without seeds it is 0."""
    found = np.empty(len(data), dtype=np.uint64)
    for first in range(0, len(data), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        found[rows] = _hash_matrix(data[rows], None if seeds is None else seeds[rows])
    return found


def _hash_matrix(data: np.ndarray, seeds: np.ndarray | None) -> np.ndarray:
    count, length = data.shape
    one, two, three, four, five = _PRIMES
    done = 0
    seed = np.zeros(1, dtype=np.uint64) if seeds is None else seeds
    if length >= 32:
        lanes = [seed + one + two, seed + two, seed, seed - one]
        for done in range(32, length + 1, 32):
            words = _words(data[:, done - 32 : done], 8)
            lanes = [_round(lane, words[:, place]) for place, lane in enumerate(lanes)]
        state = sum(
            (_rotated(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)), start=np.uint64(0)
        )
        for lane in lanes:
            state = (state ^ _round(np.zeros(1, dtype=np.uint64), lane)) * one + four
    else:
        state = np.repeat(five, count) + seed
    state = state + np.uint64(length)
    while done + 8 <= length:
        word = _words(data[:, done : done + 8], 8)[:, 0]
        state = _rotated(state ^ _round(np.zeros(1, dtype=np.uint64), word), 27) * one + four
        done += 8
    if done + 4 <= length:
        state = _rotated(state ^ (_words(data[:, done : done + 4], 4)[:, 0] * one), 23) * two + three
        done += 4
    for place in range(done, length):
        state = _rotated(state ^ (data[:, place].astype(np.uint64) * five), 11) * one
    state = (state ^ (state >> np.uint64(33))) * two
    state = (state ^ (state >> np.uint64(29))) * three
    mixed: np.ndarray = state ^ (state >> np.uint64(32))
    return mixed


def _words(data: np.ndarray, width: int) -> np.ndarray:
    """Bytes as little-endian words, eight bytes wide in memory."""
    words: np.ndarray = np.ascontiguousarray(data).view(f"<u{width}").astype(np.uint64)
    return words


def _round(lane: np.ndarray, word: np.ndarray) -> np.ndarray:
    return _rotated(lane + word * _PRIMES[1], 31) * _PRIMES[0]


def _rotated(words: np.ndarray, turn: int) -> np.ndarray:
    turned: np.ndarray = (words << np.uint64(turn)) | (words >> np.uint64(64 - turn))
    return turned
