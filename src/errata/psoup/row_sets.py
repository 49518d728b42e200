"""Sets of rows of a bucket or a batch: the results structure of PSoup, one set for each conjunction and bucket.

A set knows how many rows there are, and keeps those in it as bits or as sorted positions, whichever it was made from:

    bits        one bit a row in 64-bit words, least significant first; the bits past the last row are zero
    positions   sorted numbers of rows, four bytes each

Encoded, it takes the smallest of five forms, so that no set is larger than one bit a row and six bytes, and a set of a
few rows, of all but a few, or of a few runs is a few bytes. The forms of the paper's section 4.3 are the bits and the
list. Sets are never changed; arrays are shared between them and must not be written to.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

WORD = 64
_HEADER = struct.Struct("<BI")
_SHORT_ROWS = 1 << 16
"""Up to so many rows a position is encoded in two bytes, else in four."""


class RowSetForm(IntEnum):
    """How an encoded set says which rows are in it."""

    ALL = 0
    POSITIONS = 1
    """The rows in it."""
    GAPS = 2
    """The rows not in it."""
    RUNS = 3
    """The first row of each run, then the last row of each."""
    BITS = 4


def header(form: RowSetForm, rows: int) -> bytes:
    """The first bytes of an encoded set."""
    return _HEADER.pack(form, rows)


def word_count(rows: int) -> int:
    """The words that so many rows need."""
    return -(-rows // WORD)


@dataclass(frozen=True, eq=False)
class RowSet:
    """Some of so many rows."""

    rows: int
    """How many rows there are, in the set or not."""
    held_words: Words | None = None
    held_positions: Positions | None = None

    @classmethod
    def none(cls, rows: int) -> Self:
        return cls(rows, held_positions=np.empty(0, np.uint32))

    @classmethod
    def all(cls, rows: int) -> Self:
        return cls(rows, held_words=full_words(rows))

    @classmethod
    def of_positions(cls, rows: int, positions: npt.ArrayLike) -> Self:
        """The set of these positions, which are sorted and each there once."""
        return cls(rows, held_positions=np.asarray(positions, np.uint32))

    @classmethod
    def of_mask(cls, mask: Mask) -> Self:
        return cls(len(mask), held_words=words_of(mask))

    @cached_property
    def count(self) -> int:
        """How many rows are in the set."""
        if self.held_positions is not None:
            return len(self.held_positions)
        return int(np.bitwise_count(self.words).sum(dtype=np.int64))

    @cached_property
    def words(self) -> Words:
        """The set as bits."""
        if self.held_words is not None:
            return self.held_words
        return words_of(self.mask())

    @cached_property
    def positions(self) -> Positions:
        """The set as sorted positions."""
        if self.held_positions is not None:
            return self.held_positions
        return positions_of(self.words)

    def mask(self) -> Mask:
        """One boolean for each row."""
        if self.held_positions is not None:
            mask = np.zeros(self.rows, np.bool_)
            mask[self.held_positions] = True
            return mask
        return np.unpackbits(self.words.view(np.uint8), count=self.rows, bitorder="little").view(np.bool_)

    def slice(self, begin: int, end: int) -> RowSet:
        """The set among the rows `[begin, end)` alone, which are numbered from 0."""
        begin, end = max(0, begin), min(end, self.rows)
        if begin >= end:
            return RowSet.none(0)
        if (begin, end) == (0, self.rows):
            return self
        first, last = np.searchsorted(self.positions, np.array([begin, end], np.uint32))
        return RowSet.of_positions(end - begin, self.positions[first:last] - np.uint32(begin))

    def union(self, other: RowSet) -> RowSet:
        self._check_rows(other)
        return RowSet(self.rows, held_words=self.words | other.words)

    def intersect(self, other: RowSet) -> RowSet:
        self._check_rows(other)
        if self.held_positions is None and other.held_positions is None:
            return RowSet(self.rows, held_words=self.words & other.words)
        few, many = (self, other) if self.held_positions is not None else (other, self)
        return RowSet.of_positions(self.rows, few.positions[bits_at(many.words, few.positions)])

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowSet) and self.rows == other.rows and np.array_equal(self.words, other.words)

    def __hash__(self) -> int:
        return hash((self.rows, self.words.tobytes()))

    def __repr__(self) -> str:
        return f"RowSet({self.count} of {self.rows} rows)"

    def encode(self) -> bytes:
        """The set in the smallest of the forms."""
        if self.count == self.rows:
            return _HEADER.pack(RowSetForm.ALL, self.rows)
        unit = position_type(self.rows)
        sizes = {
            RowSetForm.POSITIONS: self.count * unit.itemsize,
            RowSetForm.GAPS: (self.rows - self.count) * unit.itemsize,
            RowSetForm.BITS: -(-self.rows // 8),
        }
        if sizes[RowSetForm.POSITIONS] > 0:
            sizes[RowSetForm.RUNS] = 2 * self._run_count() * unit.itemsize
        form = min(sizes, key=lambda each: sizes[each])
        return _HEADER.pack(form, self.rows) + self._payload(form, unit)

    @classmethod
    def decode(cls, content: bytes | memoryview) -> RowSet:
        """The set that `encode` made these bytes of."""
        form, rows = _HEADER.unpack_from(content)
        payload = memoryview(content)[_HEADER.size :]
        match RowSetForm(form):
            case RowSetForm.ALL:
                return cls.all(rows)
            case RowSetForm.BITS:
                octets = np.zeros(word_count(rows) * 8, np.uint8)
                octets[: len(payload)] = np.frombuffer(payload, np.uint8)
                return cls(rows, held_words=octets.view(np.uint64))
        numbers = np.frombuffer(payload, position_type(rows))
        match RowSetForm(form):
            case RowSetForm.POSITIONS:
                return cls.of_positions(rows, numbers)
            case RowSetForm.GAPS:
                mask = np.ones(rows, np.bool_)
                mask[numbers] = False
                return cls.of_mask(mask)
        changes = np.zeros(rows + 1, np.int8)
        starts, ends = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
        changes[starts] = 1
        changes[ends.astype(np.int64) + 1] -= 1
        return cls.of_mask(np.cumsum(changes[:-1], dtype=np.int8).view(np.bool_))

    def _run_count(self) -> int:
        if self.held_positions is not None:
            return 1 + int(np.count_nonzero(np.diff(self.held_positions) != 1))
        return int(run_counts(self.words[None])[0])

    def _payload(self, form: RowSetForm, unit: np.dtype[np.unsignedinteger]) -> bytes:
        match form:
            case RowSetForm.POSITIONS:
                return self.positions.astype(unit).tobytes()
            case RowSetForm.GAPS:
                return np.flatnonzero(~self.mask()).astype(unit).tobytes()
            case RowSetForm.RUNS:
                breaks = np.flatnonzero(np.diff(self.positions) != 1)
                starts = self.positions[np.concatenate(([0], breaks + 1))]
                last = self.positions[np.concatenate((breaks, [self.count - 1]))]
                return starts.astype(unit).tobytes() + last.astype(unit).tobytes()
            case _:
                return self.words.view(np.uint8)[: -(-self.rows // 8)].tobytes()

    def _check_rows(self, other: RowSet) -> None:
        if self.rows != other.rows:
            raise ValueError(f"sets among {self.rows} and {other.rows} rows have nothing to do with each other")


def run_counts(words: Words) -> npt.NDArray[np.int64]:
    """How many runs the bits of each line have."""
    starts = words << np.uint64(1)
    starts[:, 1:] |= words[:, :-1] >> np.uint64(WORD - 1)
    np.bitwise_and(words, ~starts, out=starts)
    counts: npt.NDArray[np.int64] = np.bitwise_count(starts).sum(axis=1, dtype=np.int64)
    return counts


def full_words(rows: int) -> Words:
    """Bits of all of so many rows."""
    words = np.full(word_count(rows), np.uint64(2**WORD - 1))
    if rows % WORD:
        words[-1] = np.uint64((1 << rows % WORD) - 1)
    return words


def words_of(mask: Mask) -> Words:
    """A boolean for each row as bits."""
    octets = np.zeros(word_count(len(mask)) * 8, np.uint8)
    octets[: -(-len(mask) // 8)] = np.packbits(mask, bitorder="little")
    return octets.view(np.uint64)


def positions_of(words: Words) -> Positions:
    """The rows whose bits are set; words that are zero cost next to nothing."""
    places = np.flatnonzero(words)
    if 4 * len(places) > len(words):
        return np.flatnonzero(_unpacked(words)).astype(np.uint32)
    found = np.flatnonzero(_unpacked(words[places]))
    return (places[found // WORD] * WORD + found % WORD).astype(np.uint32)


def _unpacked(words: Words) -> Mask:
    """A boolean for each bit, which numpy counts faster than numbers."""
    return np.unpackbits(words.view(np.uint8), bitorder="little").view(np.bool_)


def bits_at(words: Words, positions: npt.NDArray[np.unsignedinteger]) -> Mask:
    """Whether the bit of each position is set."""
    octets = words.view(np.uint8)
    found: Mask = (octets[positions >> 3] >> (positions & 7).astype(np.uint8) & 1).view(np.bool_)
    return found


def position_type(rows: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u2") if rows <= _SHORT_ROWS else np.dtype("<u4")
