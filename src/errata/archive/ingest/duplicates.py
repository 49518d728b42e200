"""Duplicate keys resolved in one pass over rows that are sorted by key and position.

Rows of the archive have position -1, so the archive's row of a key comes first. Which row of a key is kept depends on
the stream's policy: the first (`quarantine`) or the last. Neighbours are compared, whole columns at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.model.stream import ARRIVAL_COLUMN, DuplicatePolicy, Stream

ARCHIVED_POSITION = -1
"""The position of a row that is in the archive already."""


@dataclass(frozen=True, slots=True)
class DeduplicatedRows:
    """Resolved rows of some keys."""

    new: pa.Table
    """New rows, in their order."""
    replacing: pa.Table
    """Rows with new values for a row of the archive."""
    conflicts: np.ndarray
    """Two columns: positions of rows that contradict an earlier one, and the position of that one."""
    dropped: int = 0
    replaced: int = 0


def deduplicate(tables: Iterator[pa.Table], stream: Stream) -> Iterator[DeduplicatedRows]:
    """Resolve a sorted sequence of tables; the rows of a key may lie in several of them."""
    carried: pa.Table | None = None
    for table in tables:
        rows = pa.concat_tables([carried, table]) if carried is not None else table
        starts = _key_starts(rows, stream)
        last = int(starts[-1]) if len(starts) else 0
        if last:
            yield _deduplicate_run(rows.slice(0, last), starts[:-1], stream)
        carried = rows.slice(last)
    if carried is not None and carried.num_rows:
        yield _deduplicate_run(carried, _key_starts(carried, stream), stream)


def _key_starts(rows: pa.Table, stream: Stream) -> np.ndarray:
    """The indexes at which a new key begins."""
    if not rows.num_rows:
        return np.zeros(0, dtype=np.int64)
    same = np.ones(rows.num_rows, dtype=bool)
    same[0] = False
    for name in stream.key:
        column = rows[name].combine_chunks()
        same[1:] &= pc.equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
    return np.flatnonzero(~same)


def _deduplicate_run(rows: pa.Table, starts: np.ndarray, stream: Stream) -> DeduplicatedRows:
    positions = rows[POS].to_numpy()
    nothing = np.zeros((0, 2), dtype=np.int64)
    if len(starts) == rows.num_rows and positions.min() >= 0:
        return DeduplicatedRows(rows, rows.slice(0, 0), nothing)
    lengths = np.diff(np.append(starts, rows.num_rows))
    run_start = np.repeat(starts, lengths)
    if stream.on_duplicate is DuplicatePolicy.QUARANTINE:
        return _keep_first(rows, positions, run_start)
    return _keep_last(rows, positions, starts, lengths)


def _keep_first(rows: pa.Table, positions: np.ndarray, run_start: np.ndarray) -> DeduplicatedRows:
    """The first row of a key is kept; later ones are dropped if they are equal to it, and else are conflicts."""
    index = np.arange(rows.num_rows)
    later = index != run_start
    same = np.zeros(rows.num_rows, dtype=bool)
    same[later] = rows_equal(rows, index[later], run_start[later])
    against = later & ~same
    conflicts = np.column_stack((positions[against], positions[run_start[against]]))
    fresh = rows.filter(pa.array(~later & (positions >= 0)))
    return DeduplicatedRows(fresh, rows.slice(0, 0), conflicts, dropped=int((later & same).sum()))


def _keep_last(rows: pa.Table, positions: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> DeduplicatedRows:
    """The last row of a key is kept; if the archive has a row of the key, it replaces it or, if equal, is dropped."""
    index = np.arange(rows.num_rows)
    first_new = positions[starts] < 0
    # A row follows another new row of its key: it repeats that one, or overrides it.
    follows = np.ones(rows.num_rows, dtype=bool)
    follows[starts] = False
    follows[np.minimum(starts + 1, rows.num_rows - 1)[first_new & (lengths > 1)]] = False
    repeats = np.zeros(rows.num_rows, dtype=bool)
    repeats[follows] = rows_equal(rows, index[follows], index[follows] - 1)
    last = starts + lengths - 1
    new = positions[last] >= 0
    over_archive = first_new & new
    same = np.zeros(len(starts), dtype=bool)
    same[over_archive] = rows_equal(rows, last[over_archive], starts[over_archive])
    return DeduplicatedRows(
        new=rows.take(pa.array(last[new & ~over_archive])),
        replacing=rows.take(pa.array(last[over_archive & ~same])),
        conflicts=np.zeros((0, 2), dtype=np.int64),
        dropped=int(repeats.sum() + same.sum()),
        replaced=int((follows & ~repeats).sum()),
    )


def rows_equal(rows: pa.Table, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Whether pairs of rows agree in every declared column but the arrival; NULL equals NULL and NaN equals NaN."""
    agree = np.ones(len(left), dtype=bool)
    if not len(left):
        return agree
    for name in rows.column_names:
        if name.startswith("_") or name == ARRIVAL_COLUMN:
            continue  # the arrival is not a value of the row
        column = rows[name].combine_chunks()
        one, other = column.take(pa.array(left)), column.take(pa.array(right))
        equal = pc.fill_null(pc.equal(one, other), False).to_numpy(zero_copy_only=False)
        both_null = pc.and_(pc.is_null(one, nan_is_null=True), pc.is_null(other, nan_is_null=True))
        mixed = pc.equal(one.is_null(), other.is_null())
        agree &= equal | (pc.and_(both_null, mixed)).to_numpy(zero_copy_only=False)
    return agree
