"""The revisions that undo a batch.

Rows that are still as the batch added them are deleted. There may be very many, so the tasks that find them in base
buckets also write the revisions that delete them; the rows do not come to this process.

All other rows that the batch made or changed are in overlays, and few enough to be held in memory, as they were when
they were applied. Each is given back the version before the batch, unless a later batch has changed it or has its key,
or rows have been aged out there. `tests/fixtures/oracle/undoing.py` states the result row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.archive.bucket_frames import run_tasks
from errata.archive.bucket_writer import BucketWriter, order_values
from errata.archive.overlays import (
    NO_VERSION,
    BucketSource,
    Overlays,
    bucket_sources,
    chain_heads,
    effective_versions,
    read_overlays,
    undone_batches,
)
from errata.archive.revisions.decide import CorrectionContext, live_rows
from errata.archive.revisions.pending import PLACE
from errata.archive.schemas import BATCH, LIVE, MASKS, OLD_BATCH, REVISION, conform, numbered_pending_schema
from errata.archive.tables import concat_columns, key_numbers
from errata.archive.task_reports import ReportKind, bucket_from_row, bucket_report, report_row, report_schema
from errata.catalog import buckets
from errata.declare.warehouse import Warehouse
from errata.intake.types import arrow_schema
from errata.model.batch import Op
from errata.model.bucket import MAX_INLINE_STREAM_BYTES, NewBucket, Role
from errata.model.results import old_column
from errata.model.stream import Stream
from errata.model.time import LOWEST, Interval


@dataclass(frozen=True, slots=True)
class DeletionTask:
    """What every task needs; it travels to all of them."""

    stream: Stream
    warehouse: Warehouse
    batch_no: int
    aged_to: int | None
    inline: bool
    write: bool
    """Whether deletions are written; otherwise the rows are only counted."""
    base: tuple[BucketSource, ...]
    overlays: tuple[BucketSource, ...]


def delete_batch_rows(
    place: CorrectionContext, batch_no: int, interval: Interval, *, write: bool
) -> tuple[int, list[NewBucket]]:
    """How many rows are still as the batch added them; and pending revisions that delete them, if `write`."""
    catalog, basis = place.catalog, place.basis
    asked = (catalog, basis.stream_id, basis.changed_in, interval)
    found = [each for each in buckets.visible_buckets(*asked) if each.batch_no in (batch_no, None)]
    overlays = buckets.visible_buckets(*asked, role=Role.OVERLAY) if basis.applied else []
    work = DeletionTask(
        basis.stream,
        place.warehouse,
        batch_no,
        basis.aged_to,
        basis.inline_bytes < MAX_INLINE_STREAM_BYTES // 2,
        write,
        tuple(bucket_sources(catalog, found)),
        tuple(bucket_sources(catalog, overlays)),
    )
    size = sum(bucket.size for bucket in found)
    said = run_tasks(place.session, size, len(found), partial(_delete_rows, work), report_schema())
    told_rows = sorted(said.to_pylist(), key=lambda row: row["slot"])
    count = sum(row["rows"] for row in told_rows if row["said"] == ReportKind.COUNT.value)
    return count, [bucket_from_row(row) for row in told_rows if row["said"] == ReportKind.PENDING.value]


def _delete_rows(work: DeletionTask, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
    writer = BucketWriter(work.stream, work.warehouse, inline=work.inline)
    for number in numbers:
        rows = _rows_as_brought(work, work.base[number])
        if not rows.num_rows:
            continue
        yield report_row(ReportKind.COUNT, slot=number, rows=rows.num_rows)
        if work.write:
            yield bucket_report(number, writer.write(deletion_revisions(work.stream, rows), Role.PENDING))


def _rows_as_brought(work: DeletionTask, source: BucketSource) -> pa.Table:
    """The rows of a bucket that are live and as the batch added them."""
    bucket, stream = source.bucket, work.stream
    rows = source.read(work.warehouse)
    if BATCH in rows.column_names:
        own = pc.and_(pc.equal(rows[BATCH], work.batch_no), pc.is_null(rows[REVISION]))
        rows = rows.filter(own)
    rows = conform(rows, arrow_schema(stream))
    if work.aged_to is not None and bucket.vs_min < work.aged_to:
        rows = rows.filter(pa.array(order_values(rows[stream.order]) >= work.aged_to))
    masks = [(each, each.bucket.masks) for each in work.overlays]
    meeting = [
        each for each, ends in masks if ends is not None and ends[0] <= bucket.vs_max and ends[1] >= bucket.vs_min
    ]
    over = Overlays(stream, read_overlays(stream, work.warehouse, meeting))
    return rows.filter(pa.array(~over.masked(rows, bucket.floor)))


def deletion_revisions(stream: Stream, rows: pa.Table) -> pa.Table:
    """Revisions that delete these rows, if they still have their present values."""
    required = {name: rows[name] for name in stream.names if name in stream.required}
    return inverse_revisions(stream, Op.DELETE, stream.key, required, rows)


def inverse_revisions(
    stream: Stream,
    op: Op,
    given: Sequence[str],
    new: pa.Table | dict[str, pa.ChunkedArray],
    old: pa.Table | None,
    instead_of: pa.Array | None = None,
) -> pa.Table:
    """Pending revisions of an undo. They claim all of the old row, so that a change of it in between is noticed.

    `instead_of` are the revisions that ended the rows which an insertion brings back (see chains.py).
    """
    names = new.column_names if isinstance(new, pa.Table) else list(new)
    count = len(new[names[0]])
    columns = {
        "_ordinal": pa.array(np.arange(count)),
        POS: pa.repeat(pa.scalar(0, pa.int64()), count) if instead_of is None else instead_of,
        "_op": pa.repeat(op.value, count),
        "_given": pa.repeat(",".join(given), count),
        "_claimed": pa.repeat("" if old is None else ",".join(stream.names), count),
    }
    columns |= {name: new[name] for name in names}
    if old is not None:
        columns |= {old_column(name): old[name] for name in stream.names}
    schema = numbered_pending_schema(stream)
    arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in schema]
    return pa.table(arrays, schema=schema)


# Rows in overlays that the batch made or changed.

SHOWN_KEYS = 5
"""Keys of rows changed since that a message names."""


@dataclass(frozen=True, slots=True)
class UndoRevisions:
    """The reversal of the corrected rows that a batch made or changed."""

    revisions: tuple[pa.Table, ...]
    """Pending revisions: deletions, replacements, then insertions, so that keys are freed before they are taken."""
    deleted: int
    restored: int
    """Rows that get their former values again, some also their former key."""
    put_back: int
    """Rows that are inserted again, since the batch had deleted them."""
    aged: int
    """Rows that have been aged out, or would go back to a place that has been."""
    changed_later: pa.Table
    """Keys of the first few rows that later batches changed, or whose former key is taken."""
    kept: int
    """How many such rows there are."""
    changed_by: tuple[int, ...]
    """The later batches."""

    def write(self, writer: BucketWriter) -> list[NewBucket]:
        """The revisions as pending buckets."""
        rows = writer.stream.bucket_rows
        written = []
        for table in self.revisions:
            cuts = [*range(0, table.num_rows, rows), table.num_rows]
            for low, high in pairwise(cuts):
                ordinal = pa.array(np.arange(high - low))
                written.append(
                    writer.write(table.slice(low, high - low).set_column(0, "_ordinal", ordinal), Role.PENDING)
                )
        return written


@dataclass(frozen=True, slots=True)
class _VersionTable:
    """Versions of rows, row by row, oldest first. `image` is the index of each one's values, or NO_VERSION if
    deleted."""

    row: np.ndarray
    batch: np.ndarray
    image: np.ndarray
    revision: np.ndarray
    values: pa.Table

    def of(self, chosen: np.ndarray) -> _VersionTable:
        return _VersionTable(
            self.row[chosen], self.batch[chosen], self.image[chosen], self.revision[chosen], self.values
        )

    @property
    def content(self) -> np.ndarray:
        """A number for the values of each, equal for equal values, or NO_VERSION."""
        numbers = key_numbers(self.values)
        content: np.ndarray = np.where(self.image == NO_VERSION, NO_VERSION, numbers[self.image])
        return content

    def says(self, chosen: np.ndarray) -> pa.Table:
        """The values of some versions, none of which is a deletion."""
        return self.values.take(pa.array(self.image[chosen]))


@dataclass(frozen=True, slots=True)
class _RowReversals:
    """Rows of the batch, by the indexes of their newest version and of the one before the batch (or NO_VERSION)."""

    newest: np.ndarray
    former: np.ndarray

    def of(self, chosen: np.ndarray) -> _RowReversals:
        return _RowReversals(self.newest[chosen], self.former[chosen])


def undo_corrected_rows(
    place: CorrectionContext, batch_no: int, commit_id: int, undoes: Mapping[int, int]
) -> UndoRevisions:
    """The reversal of the rows in overlays that the batch of this commit made or changed."""
    stream = place.stream
    found = buckets.all_overlays(place.catalog, place.basis.stream_id, since=commit_id) if place.basis.applied else []
    overlays = (
        read_overlays(stream, place.warehouse, bucket_sources(place.catalog, found)).sort_by(REVISION).combine_chunks()
    )
    versions = _batch_versions(stream, overlays, batch_no, undoes)
    if not len(versions.row):
        return UndoRevisions((), 0, 0, 0, 0, versions.values.select(list(stream.key)).slice(0, 0), 0, ())
    taken = undone_batches(versions.batch, undoes, batch_no)
    row, top, before = effective_versions(versions.row, versions.batch, taken, versions.content, batch_no)
    newest = np.searchsorted(versions.row, row, side="right") - 1
    former = np.where((before != NO_VERSION) & (versions.image[before] != NO_VERSION), before, NO_VERSION)
    rows = _RowReversals(newest, former)
    live = _live_rows_of(place, versions, rows)
    there = np.isin(versions.revision[newest], live[REVISION].fill_null(NO_VERSION).to_numpy())
    gone = (versions.image[newest] != NO_VERSION) & ~there
    later = ~gone & (versions.batch[top] != batch_no)
    behind = ~gone & ~later & _would_be_aged(place, versions, former)
    never = (versions.image[newest] == NO_VERSION) & (former == NO_VERSION)
    going = ~gone & ~later & ~behind & ~never
    blocked, by = _blocked_by_keys(stream, versions, rows, live, going)
    going[blocked] = False
    late = np.flatnonzero(later)
    return UndoRevisions(
        *_reversal_revisions(stream, versions, rows.of(going)),
        int(gone.sum() + behind.sum()),
        _current_keys(stream, versions, rows.of(np.union1d(late, blocked)[:SHOWN_KEYS])),
        len(late) + len(blocked),
        tuple(np.unique([*versions.batch[top[late]].tolist(), *by]).astype(int).tolist()),
    )


def _batch_versions(stream: Stream, overlays: pa.Table, batch_no: int, undoes: Mapping[int, int]) -> _VersionTable:
    """All versions in overlays of the rows that the batch made or changed."""
    count = overlays.num_rows
    number = chain_heads(overlays, undoes)
    first = np.flatnonzero((number == np.arange(count)) & overlays[MASKS].to_numpy())
    indexes = np.arange(count)
    row = np.concatenate([number, number[first]])
    batch = np.concatenate([overlays[BATCH].to_numpy(), overlays[OLD_BATCH].to_numpy()[first].astype(np.int64)])
    image = np.concatenate([np.where(overlays[LIVE].to_numpy(), indexes, NO_VERSION), first + count])
    revision = np.concatenate([overlays[REVISION].to_numpy(), np.full(len(first), NO_VERSION)])
    own = np.flatnonzero(np.isin(row, row[batch == batch_no]))
    chosen = own[np.lexsort((revision[own], row[own]))]
    values = {name: concat_columns(overlays[name], overlays[old_column(name)]) for name in stream.names}
    return _VersionTable(row[chosen], batch[chosen], image[chosen], revision[chosen], pa.table(values))


def _live_rows_of(place: CorrectionContext, versions: _VersionTable, rows: _RowReversals) -> pa.Table:
    """The live rows of the keys that rows of the batch have now, or had before it."""
    stream = place.stream
    now = versions.says(rows.newest[versions.image[rows.newest] != NO_VERSION])
    before = versions.says(rows.former[rows.former != NO_VERSION])
    keys = pa.concat_tables([now.select(list(stream.key)), before.select(list(stream.key))])
    # The place of a row is known, but not that of a row that may have taken its former key.
    elsewhere = before[stream.order].cast(pa.int64())
    if not stream.key_has_order:
        elsewhere = pa.chunked_array([pa.nulls(before.num_rows, pa.int64())])
    keys = keys.append_column(PLACE, concat_columns(now[stream.order].cast(pa.int64()), elsewhere))
    once = np.unique(key_numbers(keys.select(list(stream.key))), return_index=True)[1]
    return live_rows(place, keys.take(pa.array(once)))


def _would_be_aged(place: CorrectionContext, versions: _VersionTable, former: np.ndarray) -> np.ndarray:
    """Which rows would go back to a place that has been aged out."""
    aged_to = LOWEST if place.basis.aged_to is None else place.basis.aged_to
    behind = np.zeros(len(former), dtype=bool)
    there = np.flatnonzero(former != NO_VERSION)
    behind[there] = order_values(versions.says(former[there])[place.stream.order]) < aged_to
    return behind


def _blocked_by_keys(
    stream: Stream, versions: _VersionTable, rows: _RowReversals, live: pa.Table, going: np.ndarray
) -> tuple[np.ndarray, list[int]]:
    """Which rows cannot go back because their former key is taken, and the batches of the rows that have it."""
    returning = np.flatnonzero(going & (rows.former != NO_VERSION))
    wanted_keys = versions.says(rows.former[returning]).select(list(stream.key))
    numbers = key_numbers(pa.concat_tables([live.select(list(stream.key)), wanted_keys]))
    there, wanted = np.split(numbers, [live.num_rows])
    made, holder = live[REVISION].fill_null(NO_VERSION).to_numpy(), live[BATCH].to_numpy()
    leaving, free, by = going.copy(), np.ones(len(returning), dtype=bool), set[int]()
    while True:
        staying = ~np.isin(made, versions.revision[rows.newest[leaving]])
        times = np.bincount(wanted[free], minlength=len(numbers))
        stuck = free & (np.isin(wanted, there[staying]) | (times[wanted] > 1))
        if not stuck.any():
            return returning[~free], sorted(by)
        by |= set(holder[staying & np.isin(there, wanted[stuck])].tolist())
        # A row that stays keeps its own key from others.
        leaving[returning[stuck]] = False
        free &= ~stuck


def _reversal_revisions(
    stream: Stream, versions: _VersionTable, rows: _RowReversals
) -> tuple[tuple[pa.Table, ...], int, int, int]:
    """The revisions that reverse rows, and how many rows they delete, restore and insert again."""
    alive, had = versions.image[rows.newest] != NO_VERSION, rows.former != NO_VERSION
    both = np.flatnonzero(alive & had)
    keys = [versions.says(each[both]).select(list(stream.key)) for each in (rows.newest, rows.former)]
    now, then = np.split(key_numbers(pa.concat_tables(keys)), 2)
    replaced = np.zeros(len(alive), dtype=bool)
    replaced[both[now == then]] = True
    deleted, inserted = rows.of(alive & ~replaced), rows.of(had & ~replaced)
    stays = rows.of(replaced)
    tables = (
        deletion_revisions(stream, versions.says(deleted.newest)),
        inverse_revisions(stream, Op.REPLACE, stream.names, versions.says(stays.former), versions.says(stays.newest)),
        inverse_revisions(
            stream,
            Op.INSERT,
            stream.names,
            versions.says(inserted.former),
            None,
            pa.array(versions.revision[inserted.newest]),
        ),
    )
    counts = int((alive & ~had).sum()), len(both), int((~alive & had).sum())
    return tuple(table for table in tables if table.num_rows), *counts


def _current_keys(stream: Stream, versions: _VersionTable, rows: _RowReversals) -> pa.Table:
    """The keys that rows have, or had when they were deleted."""
    last = np.where(versions.image[rows.newest] == NO_VERSION, rows.newest - 1, rows.newest)
    return versions.says(last).select(list(stream.key))
