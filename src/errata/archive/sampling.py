"""The sampling hash in memory: which rows of a table belong to a sample, told by their keys alone.

The hash is Spark's `xxhash64` of the key's columns in order: each column is hashed with the hash so far as the seed,
which begins as 42. Whole numbers, dates, booleans and instants are hashed as 4 or 8 bytes, texts as UTF-8, decimals of
up to 18 digits as 8 bytes and longer ones as the fewest bytes that hold them. `archive.scan_filter` has the same as
SQL; the near engine computes it alike but for long decimals.

A copy of a bucket at a rate consists of the rows whose hash lies in `sampling_span(rate)`: a pure function of the
bucket, so it can be made with the bucket or at any later time.

Cost: about ten passes of numpy over each column of numbers; texts are hashed once for each length that occurs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from errata.archive.bloom import hash_texts, xxh64
from errata.model.columns import TypeKind
from errata.model.reduction import FULL_RATE, hash_bound
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

SEED = 42
"""The seed of the first column, as Spark has it."""

LONG_DIGITS = 18
"""Digits of a decimal that is hashed as a whole number of 8 bytes."""

_DECIMAL_BYTES = 16


def sampling_hashes(rows: pa.Table, key: Sequence[str]) -> np.ndarray:
    """The sampling hash of each row, as signed integers of 64 bits."""
    state = np.full(rows.num_rows, SEED, dtype=np.uint64)
    for name in key:
        state = _chain_column(rows[name], state)
    signed: np.ndarray = state.view(np.int64)
    return signed


def last_hash(rate: float) -> int:
    """The greatest sampling hash of the rows of a sample at this rate."""
    return HIGHEST if rate >= FULL_RATE else max(hash_bound(rate), LOWEST + 1) - 1


def rows_of_sample(rows: pa.Table, hashes: np.ndarray, rate: float) -> pa.Table:
    """The rows of a sample, in their order; `hashes` are those of the rows."""
    return rows if rate >= FULL_RATE else rows.filter(pa.array(hashes <= last_hash(rate)))


def near_sampling_obstacle(stream: Stream) -> str | None:
    """Why the near engine's sampling hash of a stream's rows differs; None if it is the same."""
    for name in stream.key:
        kind = stream.column(name).type
        if kind.kind is TypeKind.DECIMAL and kind.precision > LONG_DIGITS:
            return f"the sampling hash of {name}, a {kind}, is not the same near"
    return None


def _chain_column(column: pa.ChunkedArray, seeds: np.ndarray) -> np.ndarray:
    """The hashes of a column's values, each with its own seed; NULL leaves the seed."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    if not whole.null_count:
        return _hash_values(whole, seeds)
    hashed = seeds.copy()
    given = np.flatnonzero(whole.is_valid().to_numpy(zero_copy_only=False))
    hashed[given] = _hash_values(whole.take(pa.array(given)), seeds[given])
    return hashed


def _hash_values(values: pa.Array, seeds: np.ndarray) -> np.ndarray:
    kind = values.type
    if not len(values):
        return seeds
    if pa.types.is_string(kind):
        return hash_texts(values.cast(pa.binary()), seeds)
    if pa.types.is_decimal(kind):
        return _hash_decimals(values, seeds)
    width = 4 if pa.types.is_boolean(kind) or kind.bit_width <= 32 else 8
    whole = values.cast(pa.int32() if width == 4 else pa.int64()).to_numpy(zero_copy_only=False)
    return xxh64(np.ascontiguousarray(whole, dtype=f"<i{width}").view(np.uint8).reshape(-1, width), seeds)


def _hash_decimals(values: pa.Array, seeds: np.ndarray) -> np.ndarray:
    start = values.offset * _DECIMAL_BYTES
    data = np.frombuffer(values.buffers()[1], dtype=np.uint8)[start : start + len(values) * _DECIMAL_BYTES]
    little = data.reshape(-1, _DECIMAL_BYTES)
    if values.type.precision <= LONG_DIGITS:
        return xxh64(np.ascontiguousarray(little[:, :8]), seeds)
    # The fewest bytes of the two's complement, the most significant first: leading bytes that repeat the sign are left
    # out, as long as the next one still shows it.
    big = little[:, ::-1]
    sign = np.where(big[:, :1] >= 128, 255, 0).astype(np.uint8)
    spare = (big[:, :-1] == sign) & ((big[:, 1:] >= 128) == (sign == 255))
    leading = np.cumprod(spare, axis=1).sum(axis=1)
    hashed = np.zeros(len(values), dtype=np.uint64)
    for left_out in np.unique(leading).tolist():
        rows = np.flatnonzero(leading == left_out)
        hashed[rows] = xxh64(np.ascontiguousarray(big[rows, left_out:]), seeds[rows])
    return hashed
