"""What matching a batch found: by the number of a conjunction, its rows. Conjunctions that no row satisfies are not
in it.

The rows of thousands of conjunctions stay in a few arrays, and a set is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np

from errata.psoup.conjunction_table import DenseMatches, Numbers, SparseMatches
from errata.psoup.row_sets import WORD, RowSet

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
    width = dense.words.shape[0] * dense.words.shape[2] * WORD
    block = max(1, _BITS_AT_ONCE // max(1, width))
    sizes, positions = [], []
    for first in range(0, len(dense.lines), block):
        lines = dense.lines[first : first + block]
        words = np.ascontiguousarray(dense.words[:, lines].transpose(1, 0, 2)).reshape(len(lines), -1)
        bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").view(np.bool_)
        sizes.append(np.count_nonzero(bits, axis=1))
        positions.append(np.flatnonzero(bits) % width)
    counts = np.concatenate([*sizes, np.diff(sparse.starts)])
    found = np.concatenate([*positions, sparse.positions]).astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(counts)))
    return SparseMatches(np.concatenate((dense.numbers, sparse.numbers)), starts, selected[found])
