"""Conjunctions and the rows of a batch, both as boundaries between the segments of their attributes.

A segment of an attribute lies between two boundaries; those of all attributes are numbered through. A range is the
boundary at its begin and that at its end, so that whether it holds a row, and how many rows it holds, are differences
of what is known at its two boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from errata.psoup.index.value_segments import Segments
from errata.psoup.row_sets import Words

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RangeSets:
    """Sets of ranges of one attribute each, as IN makes them."""

    starts: Numbers
    """Where each set begins among the ranges, and the end."""
    begins: Segments
    ends: Segments

    def __len__(self) -> int:
        return len(self.starts) - 1

    def counts(self, batch: BatchSegments) -> Segments:
        """How many rows each set holds."""
        if not len(self):
            return np.zeros(0, np.int32)
        return np.add.reduceat(batch.counts[self.ends] - batch.counts[self.begins], self.starts[:-1], dtype=np.int32)

    def pick(self, sets: Numbers) -> tuple[Numbers, Numbers]:
        """The numbers of these sets' ranges, one set after another, and how many each has."""
        sizes = self.starts[sets + 1] - self.starts[sets]
        return spread(self.starts[sets], sizes), sizes


@dataclass(frozen=True, slots=True)
class ConjunctionTable:
    """Conjunctions as boundaries, those with more ranges before those with fewer.

    Boundaries of all attributes are numbered through; a range is the boundary at its begin and that at its end."""

    numbers: Numbers
    """The number of the conjunction at each place."""
    ranges: Sequence[tuple[Segments, Segments]]
    """The n-th range of each conjunction that has so many."""
    sets: Sequence[tuple[Segments, Segments]]
    """The n-th set of each conjunction that has so many: places of conjunctions, and numbers of sets of rows."""
    members: RangeSets
    """The first sets of rows; those from their number on are comparisons of two columns."""


@dataclass(frozen=True, slots=True)
class BatchSegments:
    """The rows of a batch: for each attribute the boundary before the row's segment."""

    rows: int
    before: Segments
    """By attribute and row."""
    bases: Segments
    """The first boundary of each attribute, and the end."""
    counts: Segments
    """At each boundary, how many rows lie before it."""


@dataclass(frozen=True, slots=True)
class DenseMatches:
    """The rows of some conjunctions, as bits, and the line of each conjunction among them."""

    numbers: Numbers
    lines: Numbers
    words: npt.NDArray[np.uint64]
    """By chunk of rows, line and word."""
    width: int
    """The words of a line; the last chunk may have more, which are zero."""

    def line(self, number: int) -> Words:
        """The bits of one line."""
        return np.ascontiguousarray(self.words[:, number]).reshape(-1)[: self.width]


@dataclass(frozen=True, slots=True)
class SparseMatches:
    """The rows of some conjunctions, as positions: those of the n-th lie between its start and the next one's."""

    numbers: Numbers
    starts: Numbers
    positions: Numbers


NO_MATCHES = SparseMatches(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64))


def spread(starts: Numbers, sizes: Numbers) -> Numbers:
    """For each start so many consecutive numbers from it, all in one."""
    ends = np.cumsum(sizes)
    numbers: Numbers = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)
    return numbers


Compared = Callable[[int], Words]
"""The rows for which the comparison of two columns of this number is true."""


def batch_segments(segments: Sequence[Segments], boundaries: Sequence[int], rows: int) -> BatchSegments:
    """The segments of each attribute, numbered through, and counted."""
    bases = np.concatenate(([0], np.cumsum(boundaries))).astype(np.int32)
    before = np.empty((len(segments), rows), np.int32)
    counts = np.zeros(bases[-1], np.int32)
    for attribute, (found, base) in enumerate(zip(segments, bases, strict=False)):
        np.add(found, base, out=before[attribute])
        within = counts[base + 1 : bases[attribute + 1]]
        np.cumsum(np.bincount(found, minlength=len(within)), out=within)
    return BatchSegments(rows, before, bases, counts)
