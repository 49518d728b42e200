"""Equal rows get equal numbers: the grouping on which every merge rests, exact, a column at a time.

A column becomes one or two arrays of 64-bit words, such that two values are the same exactly if their words are: NULL
is NULL, NaN is NaN, and -0.0 is 0.0. Rows are brought together by a hash of their words, and whether neighbours really
are equal is then decided by the words themselves. Where two different rows share a hash, those rows alone are sorted by
their words.

The sorted number is the hash above and the row's place below, in one word, so that one sort of plain integers orders
the rows by hash and, among equals, by place. Cost: one sort, and one gather for each word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The groups of equal rows, numbered by their first row."""

    codes: np.ndarray
    """The group of each row."""
    firsts: np.ndarray
    """The first row of each group; they ascend."""

    @property
    def count(self) -> int:
        return len(self.firsts)


def column_words(column: pa.ChunkedArray) -> list[np.ndarray]:
    """The words of a column; words of two columns cannot be compared, since texts are numbered as they come."""
    kind = column.type
    words: list[np.ndarray]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return [_text_words(column)]
    if pa.types.is_floating(kind):
        words = [_float_words(column)]
    elif pa.types.is_decimal(kind):
        words = _decimal_words(column)
    elif pa.types.is_boolean(kind):
        words = [pc.fill_null(column, False).to_numpy().astype(np.int64)]
    else:
        words = [_whole_words(column)]
    if column.null_count:
        words.append(column.is_null().to_numpy().astype(np.int64))
    return words


def table_words(rows: pa.Table, names: Sequence[str]) -> list[np.ndarray]:
    """The words of these columns."""
    return [word for name in names for word in column_words(rows[name])]


def _text_words(column: pa.ChunkedArray) -> np.ndarray:
    encoded = column.dictionary_encode()
    parts = [
        (chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices).to_numpy(zero_copy_only=False)
        for chunk in encoded.chunks
    ]
    return _joined(parts)


def _float_words(column: pa.ChunkedArray) -> np.ndarray:
    values = column.cast(pa.float64()).fill_null(0.0).to_numpy() + 0.0
    values[np.isnan(values)] = np.nan
    words: np.ndarray = values.view(np.int64)
    return words


def _decimal_words(column: pa.ChunkedArray) -> list[np.ndarray]:
    halves = []
    for chunk in column.chunks:
        valid = chunk.is_valid().to_numpy(zero_copy_only=False)
        data = chunk.buffers()[1]
        pairs = np.frombuffer(data, dtype=np.int64).reshape(-1, 2)[chunk.offset : chunk.offset + len(chunk)]
        halves.append(np.where(valid[:, None], pairs, 0))
    both = np.concatenate(halves) if halves else np.empty((0, 2), dtype=np.int64)
    return [np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])]


def _whole_words(column: pa.ChunkedArray) -> np.ndarray:
    width = column.type.bit_width
    whole = column.cast(pa.int32() if width == 32 else pa.int64()) if not pa.types.is_integer(column.type) else column
    words: np.ndarray = (whole.fill_null(0) if whole.null_count else whole).to_numpy().astype(np.int64, copy=False)
    return words


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    if not parts:
        return np.empty(0, dtype=np.int64)
    whole: np.ndarray = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return whole.astype(np.int64, copy=False)


def mix(words: np.ndarray) -> np.ndarray:
    """Each word scattered over all 64 bits (splitmix64); different words stay different."""
    mixed: np.ndarray = words ^ (words >> np.uint64(30))
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def hash_words(words: Sequence[np.ndarray]) -> np.ndarray:
    """A hash of each row."""
    total = mix(words[0].view(np.uint64) + _GOLDEN)
    for word in words[1:]:
        total *= _GOLDEN
        total += word.view(np.uint64)
        total = mix(total)
    return total


def group_rows(words: Sequence[np.ndarray]) -> RowGroups:
    """The groups of equal rows, of which these are the words."""
    count = len(words[0])
    if count == 0:
        return RowGroups(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    order, starts = sort_equal(words, hash_words(words))
    firsts = order[starts]
    marked = np.zeros(count, dtype=np.int64)
    marked[firsts] = 1
    numbers = np.cumsum(marked) - 1
    codes = np.empty(count, dtype=np.int64)
    codes[order] = numbers[firsts][np.cumsum(starts) - 1]
    return RowGroups(codes, np.flatnonzero(marked))


def sort_equal(words: Sequence[np.ndarray], hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An order of the rows in which equal ones are neighbours, by their place; and where a group begins in it.

    `hashes` must be equal for equal rows; how good they are decides the time it takes, never the outcome.
    """
    count = len(hashes)
    bits = np.uint64(max(1, (count - 1).bit_length()))
    below = (np.uint64(1) << bits) - np.uint64(1)
    packed = (hashes & ~below) | np.arange(count, dtype=np.uint64)
    packed.sort()
    order = (packed & below).astype(np.int64)
    packed >>= bits
    starts = np.ones(count, dtype=bool)
    np.not_equal(packed[1:], packed[:-1], out=starts[1:])
    differs = _unlike_before(words, order)
    if bool(np.any(differs & ~starts)):
        _sort_collisions(words, order, starts, differs)
        differs = _unlike_before(words, order)
    return order, starts | differs


def stable_order(codes: np.ndarray) -> np.ndarray:
    """The order of the rows by their codes, which are 0 or more; equal codes by their place."""
    count = len(codes)
    bits = max(1, (count - 1).bit_length())
    if count == 0 or int(codes.max()).bit_length() + bits > 63:
        return np.argsort(codes, kind="stable")
    packed = (codes.astype(np.int64) << bits) | np.arange(count)
    packed.sort()
    order: np.ndarray = packed & ((1 << bits) - 1)
    return order


def run_starts(codes: np.ndarray) -> np.ndarray:
    """For each of these codes, in which equal ones are neighbours, the place where its run of equal ones begins."""
    places = np.arange(len(codes))
    places[1:][codes[1:] == codes[:-1]] = 0
    starts: np.ndarray = np.maximum.accumulate(places)
    return starts


def whole_values(column: pa.ChunkedArray, instead: int) -> np.ndarray:
    """The values of a column of 64-bit integers, with this one instead of NULL."""
    values: np.ndarray = (pc.fill_null(column, instead) if column.null_count else column).to_numpy()
    return values


def _unlike_before(words: Sequence[np.ndarray], order: np.ndarray) -> np.ndarray:
    """Whether each row differs from the one before it in this order."""
    differs = np.zeros(len(order), dtype=bool)
    for word in words:
        gathered = word[order]
        differs[1:] |= gathered[1:] != gathered[:-1]
    return differs


def _sort_collisions(words: Sequence[np.ndarray], order: np.ndarray, starts: np.ndarray, differs: np.ndarray) -> None:
    """Sort the rows of those hashes that different rows share by their words, in place."""
    runs = np.cumsum(starts) - 1
    shared = np.zeros(int(runs[-1]) + 1, dtype=bool)
    shared[runs[differs & ~starts]] = True
    places = np.flatnonzero(shared[runs])
    rows = order[places]
    sorted_rows = rows[np.lexsort((rows, *(word[rows] for word in words), runs[places]))]
    order[places] = sorted_rows


# Which part of the keys a row belongs to: the same for equal keys in every table.


def key_hashes(rows: pa.Table, names: Sequence[str]) -> np.ndarray:
    """A hash of each row's key that depends on the values alone."""
    words = []
    for name in names:
        column = rows[name].cast(pa.string()) if pa.types.is_large_string(rows[name].type) else rows[name]
        words.extend(_text_hashes(column) if pa.types.is_string(column.type) else _stable_words(column))
    return hash_words(words)


def _stable_words(column: pa.ChunkedArray) -> list[np.ndarray]:
    """The words of a column that is not text; always of the same number, with or without NULL."""
    words = column_words(column)
    count = 2 if pa.types.is_decimal(column.type) else 1
    return words if len(words) > count else [*words, np.zeros(len(column), dtype=np.int64)]


def _text_hashes(column: pa.ChunkedArray) -> list[np.ndarray]:
    """A hash of each text, from its bytes; each different text is hashed once."""
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    texts = pc.binary_length(encoded.dictionary).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(texts)
    total = int(ends[-1]) if len(ends) else 0
    letters = _letters(encoded.dictionary, total)
    places = np.arange(total, dtype=np.int64) - np.repeat(ends - texts, texts)
    weights = mix(places.view(np.uint64) + _GOLDEN) | np.uint64(1)
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum((letters + np.uint64(1)) * weights)])
    hashes = np.append(sums[ends] - sums[ends - texts], np.uint64(0))  # the last is NULL's
    return [hashes[codes].view(np.int64), np.append(texts, -1)[codes]]


def _letters(texts: pa.Array, total: int) -> np.ndarray:
    """The bytes of all texts, one after another, as words."""
    if total == 0:
        return np.empty(0, dtype=np.uint64)
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2], dtype=np.uint8)[int(offsets[0]) : int(offsets[0]) + total]
    return data.astype(np.uint64)
