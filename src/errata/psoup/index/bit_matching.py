"""Matching by bits: one bit for each row, for many conjunctions in one operation of numpy.

For each boundary the rows that are not before it are kept as bits. A range is the difference of the bits at its two
boundaries, and a conjunction the AND of its ranges. A range with no row behind it is the bits at its begin alone, which
is half the work: the table of conjunctions has those beside each other that are likely to be so.

    boundary     0    1    2    3        row 0 is in segment 1, row 1 is NULL, row 2 is in segment 0
    segment        0    1   NULL
    bits         111  110  010  000

Some thousand rows are matched at a time, so that the bits at all boundaries stay in the processor's cache. It costs a
few nanoseconds for each row and attribute, and for each conjunction and range about 25 picoseconds a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np
import numpy.typing as npt

from errata.psoup.index.conjunction_table import (
    BatchSegments,
    Compared,
    ConjunctionTable,
    DenseMatches,
    Numbers,
    RangeSets,
)
from errata.psoup.index.value_segments import Segments
from errata.psoup.row_sets import WORD, Mask, Words, full_words, word_count

_CHUNK_WORDS = 64
"""Words of bits that are worked out at once, at least: 4,096 rows."""

_CACHED_WORDS = 1 << 18
"""Words of the bits at all boundaries, up to which more rows are worked out at once: two megabytes, about what stays in
the processor's cache. Chosen by `errata bench psoup`."""

_BLOCK_WORDS = 1 << 15
"""Words of an operand of one operation: 256 KiB, so that the call does not count."""

_MOST_LINES = 16
"""An attribute with more boundaries than this for each word of rows (and more than `_FEW_LINES`) is given bits only at
boundaries that part rows."""

_FEW_LINES = 4096
_RANGES_AT_ONCE = 1 << 12
_FIRST_WORDS = 8

Lines = npt.NDArray[np.uint64]
"""Bits by boundary, or by conjunction, and word."""

Chunks = npt.NDArray[np.uint64]
"""Bits by chunk of rows, conjunction and word."""


@dataclass(frozen=True, slots=True)
class _Task:
    """The conjunctions that are matched by bits."""

    ranges: Sequence[tuple[Numbers, Numbers, Mask]]
    """As the table has them, and whether no row is behind the range."""
    sets: Sequence[tuple[Numbers, Numbers]]
    """By layer: lines of conjunctions, and which of the sets that are made each is ANDed with."""
    members: Numbers
    compared: Numbers
    """The sets that are made, those of ranges first."""
    member_ranges: RangeSets


def match_bits(table: ConjunctionTable, batch: BatchSegments, places: Numbers, compared: Compared) -> DenseMatches:
    """The rows that satisfy the conjunctions at these places of the table."""
    width = word_count(batch.rows)
    size = _chunk_words(batch, width)
    found = np.empty((-(-width // size), len(places), size), np.uint64)
    if not found.size:
        return DenseMatches(table.numbers[:0], places[:0], found, width)
    task = _task(table, batch, places)
    others = [compared(int(each) - len(table.members)) for each in task.compared]

    def match(number: int) -> None:
        _match_chunk(task, batch, [each[number * size :][:size] for each in others], found, number)

    for number in range(len(found)):
        match(number)
    kept = np.flatnonzero(_any_rows(found))
    return DenseMatches(table.numbers[places[kept]], kept, found, width)


def _chunk_words(batch: BatchSegments, width: int) -> int:
    """The words of a chunk, such that all are about of one size."""
    most = max(_CHUNK_WORDS, _CACHED_WORDS // max(1, int(batch.bases[-1])))
    return -(-width // max(1, -(-width // most)))


def _match_chunk(task: _Task, batch: BatchSegments, others: Sequence[Words], found: Chunks, number: int) -> None:
    """Match the rows of one chunk; words past the last row become zero."""
    size = found.shape[2] * WORD
    begin, end = number * size, min((number + 1) * size, batch.rows)
    bits, lines = _boundary_bits(batch, begin, end)
    chunk = found[number, :, : word_count(end - begin)]
    found[number, :, word_count(end - begin) :] = 0
    ranges = task.ranges if lines is None else [(lines[low], lines[high], end) for low, high, end in task.ranges]
    _intersect_ranges(ranges, bits, chunk)
    chunk[len(ranges[0][0]) if ranges else 0 :] = full_words(end - begin)
    if task.sets:
        made = np.asarray([*_member_bits(task.member_ranges, task.members, bits, lines), *others])
        for at, numbers in task.sets:
            chunk[at] &= made[numbers]


def _task(table: ConjunctionTable, batch: BatchSegments, places: Numbers) -> _Task:
    ranges = []
    for begins, ends in table.ranges:
        ranged = places[: np.searchsorted(places, len(begins))]
        if len(ranged):
            ends_of = ends[ranged]
            last = batch.counts[ends_of] == batch.rows
            ranges.append((begins[ranged].astype(np.intp), ends_of.astype(np.intp), last))
    layers = []
    for at, numbers in table.sets:
        line = np.minimum(np.searchsorted(places, at), len(places) - 1)
        wanted = places[line] == at
        if wanted.any():
            layers.append((line[wanted], numbers[wanted]))
    made = np.unique(np.concatenate([numbers for _, numbers in layers])) if layers else np.zeros(0, np.int64)
    sets = [(line, np.searchsorted(made, numbers)) for line, numbers in layers]
    split = np.searchsorted(made, len(table.members))
    return _Task(ranges, sets, made[:split], made[split:], table.members)


def _boundary_bits(batch: BatchSegments, begin: int, end: int) -> tuple[Lines, Numbers | None]:
    """The bits of the rows `[begin, end)` at each boundary; and which line is a boundary's, where not all have one."""
    width = word_count(end - begin)
    before = batch.before[:, begin:end]
    sizes = np.diff(batch.bases)
    lines = None
    total = int(batch.bases[-1])
    target, bases = (before + 1).astype(np.int64), batch.bases[:-1].astype(np.int64)
    if sizes.max(initial=0) > max(_FEW_LINES, _MOST_LINES * width):
        lines, total = _parting_lines(batch, before)
        target, bases = lines[target], lines[bases]
    side = isqrt(total) + 1
    bits = np.zeros((side * side, width), np.uint64)
    rows = np.arange(end - begin)
    targets = target * width + (rows >> 6)
    ones = np.broadcast_to(np.uint64(1) << (rows & 63).astype(np.uint64), targets.shape)
    np.add.at(bits.reshape(-1), targets.reshape(-1), ones.reshape(-1))
    bits[bases] = full_words(end - begin)  # at which all rows of the attribute are still to come
    _accumulate(bits.reshape(side, side, width))
    return bits, lines


def _parting_lines(batch: BatchSegments, before: Segments) -> tuple[Numbers, int]:
    """The line of each boundary, where boundaries without a row between them share one; and how many lines there
    are."""
    marked = np.zeros(batch.bases[-1], np.intp)
    marked[before + 1] = 1
    marked[batch.bases[1:-1]] = 1
    np.cumsum(marked, out=marked)
    return marked, int(marked[-1]) + 1


def _accumulate(bits: npt.NDArray[np.uint64]) -> None:
    """Each line becomes the difference of all lines up to it, those of its group first, then of all groups before."""
    side = len(bits)
    for line in range(1, side):
        np.bitwise_xor(bits[:, line], bits[:, line - 1], out=bits[:, line])
    for group in range(1, side):
        np.bitwise_xor(bits[group], bits[group - 1, -1], out=bits[group])


def _intersect_ranges(ranges: Sequence[tuple[Numbers, Numbers, Mask]], bits: Lines, chunk: Lines) -> None:
    width = chunk.shape[1]
    block = max(16, _BLOCK_WORDS // width)
    ends = np.empty((block, width), np.uint64)
    begins = np.empty((block, width), np.uint64)
    for first in range(0, len(ranges[0][0]) if ranges else 0, block):
        for nth, (begin, end, last) in enumerate(ranges):
            size = min(block, len(begin) - first)
            if size <= 0:
                break
            at = slice(first, first + size)
            target, upper, lower = chunk[at], ends[:size], begins[:size]
            alone = bool(last[at].all())
            bits.take(begin[at], 0, target if alone and nth == 0 else lower, "clip")
            if not alone:
                bits.take(end[at], 0, upper, "clip")
                np.bitwise_xor(upper, lower, target if nth == 0 else lower)
            if nth > 0:
                np.bitwise_and(target, lower, target)


def _member_bits(members: RangeSets, wanted: Numbers, bits: Lines, lines: Numbers | None) -> list[Words]:
    """The rows of each of the sets of ranges that are wanted."""
    made: list[Words] = []
    sizes = members.starts[wanted + 1] - members.starts[wanted]
    groups = np.cumsum(sizes) // _RANGES_AT_ONCE
    for group in np.unique(groups):
        of, held = members.pick(wanted[groups == group])
        begin, end = members.begins[of].astype(np.int64), members.ends[of].astype(np.int64)
        if lines is not None:
            begin, end = lines[begin], lines[end]
        starts = np.cumsum(held) - held
        made += list(np.bitwise_xor.reduceat(bits[end] ^ bits[begin], starts, axis=0))
    return made


def _any_rows(found: Chunks) -> Mask:
    """Which lines have a bit; most show it in one of their first words."""
    kept: Mask = found[0, :, 0] != 0
    for word in range(1, min(_FIRST_WORDS, found.shape[2])):
        rest = np.flatnonzero(~kept)
        kept[rest] = found[0, rest, word] != 0
    for chunk in found:
        rest = np.flatnonzero(~kept)
        kept[rest] = chunk[rest].any(axis=1)
    return kept
