"""Versions of rows, chained: which rows of overlays tell of one and the same row, whatever its key was at the time.

A version that supersedes another names it. A row that an undo brings back supersedes nothing that is live; it names
the version that had ended the row, in the place where a correction from a file would name its line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.overlay import BATCH, MASKS, OLD_REVISION, REVISION
from errata.archive.written import POS

NONE = -1


def row_numbers(rows: pa.Table, undoing: Collection[int]) -> np.ndarray:
    """For each row of overlays, sorted by revision, the index of the first one that tells of the same row.

    `undoing` are the batches that undid others.
    """
    numbers = rows[REVISION].to_numpy()
    brought_back = pc.and_(
        pc.invert(rows[MASKS]), pc.is_in(rows[BATCH], value_set=pa.array(sorted(undoing), pa.int64()))
    )
    before = pc.if_else(brought_back, rows[POS], rows[OLD_REVISION]).fill_null(NONE).to_numpy()
    if not len(numbers):
        return np.zeros(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(numbers, before), len(numbers) - 1)
    # Of a version that is not among the rows, the first that names it tells; others may when an undo brings a row back.
    _, first, same = np.unique(before, return_index=True, return_inverse=True)
    named = np.where(before == NONE, np.arange(len(numbers)), first[same])
    parent = np.where(numbers[at] == before, at, named)
    while True:
        further = parent[parent]
        if np.array_equal(further, parent):
            return further
        parent = further


def undone(batches: np.ndarray, undoes: Mapping[int, int], own: int) -> np.ndarray:
    """For each version's batch the batch that it undid, if it did; `own` counts for what it is, and nothing else."""
    distinct, at = np.unique(batches, return_inverse=True)
    told = [NONE if batch == own else undoes.get(batch, NONE) for batch in distinct.tolist()]
    of_each: np.ndarray = np.array(told, dtype=np.int64)[at]
    return of_each


def standing(
    row: np.ndarray, batch: np.ndarray, undone: np.ndarray, content: np.ndarray, own: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row of which batch `own` has made something that still counts: its number, the last run of its versions
    that counts, and the one before that (or NONE).

    A run is what one batch made of a row in a go, told by the index of its last version. What was undone, and what
    undid it, does not count: so batches can be undone one after the other. What came to nothing does not count, either:
    a run after which the row says what it said before. Versions come row by row, oldest first; `content` is a number
    for what each says, equal for equal values, and NONE where the row is not there.
    """
    last = np.flatnonzero(_ends(row, batch))
    while True:
        of, by, takes, says = row[last], batch[last], undone[last], content[last]
        follows = np.append(False, of[1:] == of[:-1]) if len(of) else np.zeros(0, dtype=bool)
        takes_back = follows & (takes == np.roll(by, 1))
        event = np.flatnonzero(takes_back | (says == np.where(follows, np.roll(says, 1), NONE)))
        if not len(event):
            break
        # Of each row the first, and then again: what stands behind may undo what is left, or go on with it.
        event = event[np.unique(of[event], return_index=True)[1]]
        kept = np.ones(len(last), dtype=bool)
        kept[event] = False
        kept[event[takes_back[event]] - 1] = False
        last = last[kept]
        last = last[_ends(row[last], batch[last])]
    ends = np.flatnonzero(_ends(of, of) & np.isin(of, of[by == own]))
    before = np.where((ends > 0) & (of[ends - 1] == of[ends]), last[ends - 1], NONE)
    return of[ends], last[ends], before


def _ends(row: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Which is the last of a run."""
    if not len(row):
        return np.zeros(0, dtype=bool)
    return np.append((row[1:] != row[:-1]) | (batch[1:] != batch[:-1]), True)
