"""From the files of a batch to written buckets, which are invisible until a commit names them.

A row is read in a split and typed; gets the slot of its order field; comes to that slot's task, by a shuffle or because
the task reads the right parts of the files itself (`slots`); is sorted, and compared with its neighbours for
duplicates; and is cut into a bucket, encoded, described and written. A small batch is one slot in this process; a large
one is a Spark job (`batch_job`). Every row that was read is counted once: as appended, pending, dropped, replaced or
quarantined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from errata.archive.ingest import stages
from errata.archive.ingest.slots import ArchivedRows, SlotPiece, write_slots
from errata.archive.overlays import Overlays, bucket_sources, read_overlays
from errata.archive.scan_plan import ArchiveScan, ScanBuckets, candidate_buckets
from errata.archive.schemas import AppendContext, unpack_table
from errata.archive.task_reports import ReportKind, bucket_from_row, report_schema
from errata.catalog.database import Catalog
from errata.errors import BadFileError, ErrataError
from errata.intake.layout import FileLayout, number_lines, plan_splits
from errata.intake.split_reader import fetch_lines
from errata.model.batch import (
    BadRow,
    Batch,
    BatchCounts,
    FileSplit,
    QuarantineRetry,
    ReadSplit,
    SourceFile,
    split_and_ordinal,
)
from errata.model.bucket import NewBucket, Role
from errata.model.time import Interval

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_BYTES = 1024 * 1024
SMALL_ROWS = 50_000
"""Bytes and rows up to which one task in this process writes a batch: starting a job takes longer."""

LOCAL_FACTOR = 16
"""The factor by which these limits are greater where there is a near engine, since Spark may then not be there at
all."""

MAX_LOCAL_ARCHIVE_ROWS = 1_000_000
"""Rows of archive buckets that may repeat a key of the batch, above which Spark writes it."""

_GZIP_RATIO = 16
"""The size that a gzipped file is assumed to unpack to, as a multiple of its own."""


@dataclass(frozen=True, slots=True)
class BatchFaults:
    """The rows of a batch for quarantine, in memory or, if they are many, in files."""

    context: AppendContext
    splits: Mapping[int, ReadSplit]
    blobs: Sequence[bytes]
    paths: Sequence[str]
    count: int
    retried: QuarantineRetry | None = None
    """Rows that were in quarantine before keep the file and line from which they first came."""

    def rows(self) -> Iterator[BadRow]:
        """The rows with file, line, text and reason; texts that were not kept are read from the files again."""
        for blob in self._blobs():
            table = unpack_table(blob)
            for start in range(0, table.num_rows, stages.ARROW_BATCH_ROWS):
                yield from self._bad_rows(table.slice(start, stages.ARROW_BATCH_ROWS).to_pylist())

    def discard(self) -> None:
        """Remove the files: the catalog has the rows now, or the batch is not committed."""
        for path in self.paths:
            self.context.warehouse.remove(path)

    def _blobs(self) -> Iterator[bytes]:
        yield from self.blobs
        for path in self.paths:
            yield self.context.warehouse.read(path)

    def _bad_rows(self, rows: Sequence[dict[str, object]]) -> Iterator[BadRow]:
        wanting: dict[SourceFile, set[int]] = {}
        for row in rows:
            if row["text"] is None:
                file, line = self._place(row["pos"])
                wanting.setdefault(file, set()).add(line)
        texts = {file: fetch_lines(file, lines, self.context.stream) for file, lines in wanting.items()}
        for row in rows:
            file, line = self._place(row["pos"])
            text = row["text"] if row["text"] is not None else texts[file][line]
            reason = row["reason"] or self._conflict(row["other"])
            source = None if self.retried is None else file.name
            yield BadRow(*self._original_place(file, line), str(text), str(reason), source)

    def _conflict(self, other: object) -> str:
        if not isinstance(other, int) or other < 0:
            return "duplicate key: the archive has a row of this key that says something else"
        file, line = self._original_place(*self._place(other))
        return f"duplicate key: line {line} of {file} has the same key and says something else"

    def _original_place(self, file: SourceFile, line: int) -> tuple[str, int]:
        return (file.name, line) if self.retried is None else self.retried.first_place(file.name, line)

    def _place(self, pos: object) -> tuple[SourceFile, int]:
        if not isinstance(pos, int):
            raise TypeError(f"a position is a whole number, not {pos!r}")
        number, ordinal = split_and_ordinal(pos)
        read = self.splits[number]
        return read.split.file, read.first_line + ordinal


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch about to be written: only the beginnings of its files have been read."""

    catalog: Catalog
    context: AppendContext
    """Without the bounds of slots, which are found when the batch is written."""
    batch: Batch
    layouts: Sequence[FileLayout]
    splits: Sequence[tuple[FileSplit, FileLayout]]
    archived_scan: ArchiveScan | None
    """Where the archive may have rows with the key of a new one."""
    archived_buckets: ScanBuckets
    """The buckets that can hold such rows."""

    def is_small(self, *, near: bool) -> bool:
        """Whether this process writes the batch, without Spark. Spark resolves duplicates of keys that lack the order
        field, since all of the archive may have them; a merge knows them itself. `near`: whether there is a near
        engine."""
        if not self.context.stream.key_has_order and self.context.stream.merged.is_empty:
            return False
        size = sum(_GZIP_RATIO * file.bytes if file.gzip else file.bytes for file in self.batch.files)
        told = sum(count for layout in self.layouts for count in layout.row_groups)
        beside = sum(bucket.rows for bucket in self.archived_buckets.all)
        most = LOCAL_FACTOR if near else 1
        return size <= most * SMALL_BYTES and told <= most * SMALL_ROWS and beside <= MAX_LOCAL_ARCHIVE_ROWS


def prepare_batch(
    catalog: Catalog,
    context: AppendContext,
    batch: Batch,
    layouts: Sequence[FileLayout],
    known: ArchiveScan | None,
) -> PreparedBatch:
    """Plan the splits of a batch. `known`: where the archive may have rows with the key of a new one."""
    files = [replace(file, header=layout.header) for file, layout in zip(batch.files, layouts, strict=True)]
    layout_of = {file.name: layout for file, layout in zip(files, layouts, strict=True)}
    # Splits of Parquet files are a quarter of a bucket at most, so that slots can be cut between them.
    splits = plan_splits(files, layouts, most_rows=max(1, context.stream.bucket_rows // 4))
    work = [(split, layout_of[split.file.name]) for split in splits]
    known = _narrow_known_rows(context, layouts, known)
    found = ScanBuckets([]) if known is None else candidate_buckets(catalog, known, indexed=True)
    return PreparedBatch(catalog, context, replace(batch, files=files), layouts, work, known, found)


def write_batch(prepared: PreparedBatch, session: SparkSession | None) -> tuple[Batch, BatchFaults]:
    """Read, sort and write a batch: in this process if no session is given, else by a Spark job. The batch gets its
    buckets, counts and splits."""
    if session is None:
        context, told = prepared.context, _write_locally(prepared)
    else:
        from errata.archive.ingest.batch_job import run_batch_job  # noqa: PLC0415 - it imports PySpark: a small batch needs none

        context, told = run_batch_job(prepared, session)
    return collect_reports(context, prepared, told)


def _write_locally(prepared: PreparedBatch) -> pa.Table:
    """The report of the one task of a small batch."""
    pieces = {0: [SlotPiece(split, layout, True) for split, layout in prepared.splits]}
    slot = pa.record_batch([pa.array([0])], ["slot"])
    told = write_slots(prepared.context, pieces, archived_sources(prepared), iter([slot]))
    return pa.Table.from_batches(told, report_schema())


def _narrow_known_rows(
    context: AppendContext, layouts: Sequence[FileLayout], known: ArchiveScan | None
) -> ArchiveScan | None:
    """If all rows get their arrival as order field, and the key has it, only rows of that instant can be repeated."""
    stream = context.stream
    by_arrival = stream.ordered_on_arrival and stream.key_has_order and not any(each.gives_order for each in layouts)
    if known is None or not by_arrival:
        return known
    return replace(known, interval=Interval(start=context.arrival_order))


def archived_sources(prepared: PreparedBatch) -> ArchivedRows:
    catalog, context, known, found = (
        prepared.catalog,
        prepared.context,
        prepared.archived_scan,
        prepared.archived_buckets,
    )
    base = bucket_sources(catalog, found.base)
    if known is None or not found.overlays:
        return ArchivedRows(base)
    rows = read_overlays(context.stream, context.warehouse, bucket_sources(catalog, found.overlays))
    return ArchivedRows(base, Overlays(context.stream, rows).from_place(known.interval.start), known.state.aged_to)


def discard_batch(batch: Batch, faults: BatchFaults) -> None:
    """Remove what was written, since it will not be committed. What a kill leaves behind, vacuum removes."""
    faults.discard()
    for path in (path for bucket in batch.all_buckets for path in bucket.files):
        faults.context.warehouse.remove(path)


def collect_reports(context: AppendContext, prepared: PreparedBatch, told: pa.Table) -> tuple[Batch, BatchFaults]:
    """The batch that the tasks' reports describe, and its rows for quarantine."""
    rows = told.to_pylist()
    said = {kind: [row for row in rows if row["said"] == kind.value] for kind in ReportKind}
    if said[ReportKind.FAILED]:
        _discard_files(context, rows)
        raise worst_failure([stages.reported_error(row["data"]) for row in said[ReportKind.FAILED]])
    base = sorted(said[ReportKind.BASE], key=lambda row: (row["vs_min"], row["vs_max"]))
    pending = sorted(said[ReportKind.PENDING], key=lambda row: row["slot"])
    written = _spill_inline(context, [bucket_from_row(row) for row in (*base, *pending)])
    lines = [stages.unpack_counts(row["data"]) for row in said[ReportKind.LINES]]
    lines_of = {each["split"]: each["lines"] for each in lines}
    read = {
        each.split.number: each
        for each in number_lines([(split, lines_of[split.number]) for split, _ in prepared.splits])
    }
    faults = _batch_faults(context, read, said[ReportKind.BAD])
    totals: Counter[str] = Counter()
    for row in said[ReportKind.COUNT]:
        totals.update(stages.unpack_counts(row["data"]))
    counts = BatchCounts(
        read=sum(each["records"] for each in lines),
        appended=sum(bucket.rows for bucket in written if bucket.role is Role.BASE),
        pending=sum(bucket.rows for bucket in written if bucket.role is Role.PENDING),
        dropped=totals["dropped"],
        replaced=totals["replaced"],
        quarantined=faults.count,
        held=totals["held"],
    )
    batch = replace(prepared.batch, splits=list(read.values()), counts=counts, buckets=written)
    if counts.settled != counts.read:
        discard_batch(batch, faults)
        raise ErrataError(
            f"{counts.read:,} rows were read and {counts.settled:,} accounted for; nothing was committed",
            why="a part of the job went wrong without saying so",
            how="run it again; if it happens again, report it with the batch's files",
        )
    return batch, faults


def worst_failure(failures: Sequence[ErrataError]) -> ErrataError:
    """The failure to raise: one that is no file's fault, else the first bad file with the others attached."""
    first, *others = {str(each): each for each in failures}.values()
    bad = [each for each in others if isinstance(each, BadFileError)]
    if isinstance(first, BadFileError) and len(bad) == len(others):
        first.also = bad
        return first
    return next(each for each in failures if not isinstance(each, BadFileError))


def _batch_faults(
    context: AppendContext, splits: Mapping[int, ReadSplit], rows: Iterable[dict[str, object]]
) -> BatchFaults:
    blobs, paths, count = [], [], 0
    for row in rows:
        count += int(str(row["rows"]))
        if isinstance(row["data"], bytes):
            blobs.append(row["data"])
        else:
            paths.append(str(row["path"]))
    return BatchFaults(context, splits, blobs, paths, count)


def _spill_inline(context: AppendContext, written: Sequence[NewBucket]) -> list[NewBucket]:
    """Tasks do not know each other's inline buckets; those beyond the stream's inline limit are written to files
    here."""
    room = context.inline_room
    kept = []
    for bucket in written:
        if bucket.data is None or bucket.inline_size <= room:
            room -= bucket.inline_size
            kept.append(bucket)
        else:
            kept.append(replace(context, inline_room=0).writer.write(unpack_table(bucket.data), bucket.role))
    return kept


def _discard_files(context: AppendContext, told: Iterable[dict[str, object]]) -> None:
    """Remove the files that tasks have written, since they will not be committed."""
    for row in told:
        for path in bucket_from_row(row).files if row["role"] is not None else [row["path"]]:
            if isinstance(path, str):
                context.warehouse.remove(path)
