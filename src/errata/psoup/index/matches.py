"""What matching a batch found: by the number of a conjunction, its rows. Conjunctions that no row satisfies are not
in it.

The rows of thousands of conjunctions stay in a few arrays, and a set is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from errata.psoup.index.conjunction_table import DenseMatches, Numbers, SparseMatches
from errata.psoup.row_sets import WORD, RowSet, RowSetForm, header, position_type, run_counts

_BITS_AT_ONCE = 1 << 22
"""Bits that are unpacked at a time, a byte each."""


class Matches(Mapping[int, RowSet]):
    """The rows of each conjunction, among so many."""

    def __init__(
        self,
        rows: int,
        every: Iterable[int] = (),
        dense: DenseMatches | None = None,
        sparse: SparseMatches | None = None,
    ) -> None:
        """`every` are the conjunctions that all rows satisfy."""
        self.rows = rows
        self._every = dict.fromkeys(every, RowSet.all(rows)) if rows else {}
        self._dense = dense
        self._sparse = sparse

    @cached_property
    def _lines(self) -> dict[int, int]:
        """The line of each conjunction whose rows are bits."""
        if self._dense is None:
            return {}
        return dict(zip(self._dense.numbers.tolist(), self._dense.lines.tolist(), strict=True))

    @cached_property
    def _nths(self) -> dict[int, int]:
        """The place of each conjunction whose rows are positions."""
        if self._sparse is None:
            return {}
        return dict(zip(self._sparse.numbers.tolist(), range(len(self._sparse.numbers)), strict=True))

    def __getitem__(self, number: int) -> RowSet:
        if self._dense is not None and (line := self._lines.get(number)) is not None:
            return RowSet(self.rows, held_words=self._dense.line(line))
        if self._sparse is not None and (nth := self._nths.get(number)) is not None:
            begin, end = self._sparse.starts[nth : nth + 2]
            return RowSet.of_positions(self.rows, self._sparse.positions[begin:end])
        return self._every[number]

    def __iter__(self) -> Iterator[int]:
        yield from self._every
        yield from self._lines
        yield from self._nths

    def __len__(self) -> int:
        return len(self._every) + sum(len(part.numbers) for part in (self._dense, self._sparse) if part is not None)

    def encoded(self) -> dict[int, tuple[int, bytes]]:
        """How many rows satisfy each conjunction, and its set as `RowSet.encode` gives it, but for many at once."""
        found = {number: (len(each), each.encode()) for number, each in self._every.items()}
        if self._dense is not None and self._dense.words.size:
            for numbers, words in _blocks(self._dense):
                found |= zip(numbers.tolist(), _encoded_lines(words, self.rows), strict=True)
        if self._sparse is not None:
            found |= zip(self._sparse.numbers.tolist(), _encoded_positions(self._sparse, self.rows), strict=True)
        return found

    def counts(self) -> dict[int, int]:
        """How many rows satisfy each conjunction."""
        found = dict.fromkeys(self._every, self.rows)
        if self._dense is not None:
            sizes = sum(np.bitwise_count(each).sum(axis=1, dtype=np.int64) for each in self._dense.words)
            found |= zip(self._dense.numbers.tolist(), sizes[self._dense.lines].tolist(), strict=True)
        if self._sparse is not None:
            found |= zip(self._sparse.numbers.tolist(), np.diff(self._sparse.starts).tolist(), strict=True)
        return found


def among_all(dense: DenseMatches, sparse: SparseMatches, selected: Numbers) -> SparseMatches:
    """What was found among a few selected rows, among all rows of the batch."""
    sizes, positions = [], []
    for _, words in _blocks(dense):
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(np.bool_)
        sizes.append(np.count_nonzero(bits, axis=1))
        positions.append(np.flatnonzero(bits) % bits.shape[1])
    counts = np.concatenate([*sizes, np.diff(sparse.starts)])
    found = np.concatenate([*positions, sparse.positions]).astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(counts)))
    return SparseMatches(np.concatenate((dense.numbers, sparse.numbers)), starts, selected[found])


def _blocks(dense: DenseMatches) -> Iterator[tuple[Numbers, npt.NDArray[np.uint64]]]:
    """Conjunctions and their lines, as many at a time as are unpacked at once."""
    block = max(1, _BITS_AT_ONCE // max(1, dense.width * WORD))
    for first in range(0, len(dense.lines), block):
        lines = dense.lines[first : first + block]
        words = dense.words[:, lines].transpose(1, 0, 2).reshape(len(lines), -1)[:, : dense.width]
        yield dense.numbers[first : first + block], np.ascontiguousarray(words)


def _encoded_lines(words: npt.NDArray[np.uint64], rows: int) -> list[tuple[int, bytes]]:
    """The count and the encoded set of each line of bits."""
    counts = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    unit, size = position_type(rows), -(-rows // 8)
    others = np.minimum(rows - counts, 2 * run_counts(words)) * unit.itemsize
    listed = (counts < rows) & (counts * unit.itemsize <= np.minimum(others, size))
    bits = ~listed & (counts < rows) & (size < others)
    found = [(0, b"")] * len(words)
    unpacked = np.unpackbits(words[listed].view(np.uint8), axis=1, bitorder="little").view(np.bool_)
    positions = (np.flatnonzero(unpacked) % max(1, unpacked.shape[1])).astype(unit).tobytes()
    ends = np.cumsum(counts[listed]) * unit.itemsize
    head = header(RowSetForm.POSITIONS, rows)
    for line, end in zip(np.flatnonzero(listed).tolist(), ends.tolist(), strict=True):
        count = int(counts[line])
        found[line] = count, head + positions[end - count * unit.itemsize : end]
    head = header(RowSetForm.BITS, rows)
    octets = words.view(np.uint8)
    for line in np.flatnonzero(bits).tolist():
        found[line] = int(counts[line]), head + octets[line, :size].tobytes()
    for line in np.flatnonzero(~listed & ~bits).tolist():
        found[line] = int(counts[line]), RowSet(rows, held_words=words[line]).encode()
    return found


def _encoded_positions(sparse: SparseMatches, rows: int) -> list[tuple[int, bytes]]:
    """The count and the encoded set of each list of positions."""
    if not len(sparse.numbers):
        return []
    counts = np.diff(sparse.starts)
    breaks = np.diff(sparse.positions, prepend=-2) != 1
    breaks[sparse.starts[:-1]] = True
    runs = np.add.reduceat(breaks, sparse.starts[:-1], dtype=np.int64)
    unit = position_type(rows)
    listed = (counts <= np.minimum(2 * runs, rows - counts)) & (counts * unit.itemsize <= -(-rows // 8))
    content, head = sparse.positions.astype(unit).tobytes(), header(RowSetForm.POSITIONS, rows)
    found = []
    for nth, (begin, end) in enumerate(pairwise(sparse.starts.tolist())):
        if listed[nth]:
            encoded = head + content[begin * unit.itemsize : end * unit.itemsize]
        else:
            encoded = RowSet.of_positions(rows, sparse.positions[begin:end]).encode()
        found.append((end - begin, encoded))
    return found
