"""The stages of an append: functions from record batches to record batches, run in this process or in Spark's tasks.

- read: splits to typed rows, each with its slot. Late rows, corrections and bad rows become asides.
- deduplicate: rows sorted by key to rows without duplicates (a stage of its own only if the key lacks the order field).
- write: rows in stream order to buckets; asides to buckets of pending revisions and to rows for quarantine. The output
  is a report (`task_reports`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import cut_into_buckets, order_values
from errata.archive.ingest.duplicates import deduplicate
from errata.archive.schemas import (
    BAD_ROW_SCHEMA,
    AppendContext,
    aside_row,
    conform,
    numbered_pending_schema,
    pack_table,
    parse_aside,
    pending_inserts,
    pending_schema,
    slot_rows,
    split_asides,
    unpack_table,
)
from errata.archive.task_reports import ReportKind, bucket_report, report_row
from errata.errors import BadFileError, ErrataError
from errata.intake.layout import FileLayout
from errata.intake.split_reader import SplitRows, read_split
from errata.intake.types import arrow_schema, arrow_type
from errata.model.batch import FileSplit, row_position
from errata.model.bucket import Role
from errata.model.stream import ARRIVAL_COLUMN
from errata.model.time import HIGHEST, LOWEST, format_duration, format_instant

ARROW_BATCH_ROWS = 65_536
MAX_INLINE_FAULT_BYTES = 4 * 1024 * 1024
"""Bytes of bad rows above which a task writes them to a file instead of putting them into its report."""

NO_FEED = "new rows of a stream with feeds come from a feed; a person's corrections replace and delete rows"
"""Why an insert among corrections of a merged stream is refused: the merge would not know the row."""

RANK = "_rank"
BEFORE_ALL = -1

RecordBatches = Iterator[pa.RecordBatch]


def read_stage(
    context: AppendContext, splits: Mapping[int, tuple[FileSplit, FileLayout]], batches: RecordBatches
) -> RecordBatches:
    """Read the splits whose numbers come in."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            rows, asides = read_split_tables(context, *splits[number])
            for table in (*rows, *asides):
                yield from table.to_batches(ARROW_BATCH_ROWS)


def archived_stage(context: AppendContext, batches: RecordBatches) -> RecordBatches:
    """Rows of the archive, in the form in which new rows are compared with them."""
    for batch in batches:
        table = conform(pa.Table.from_batches([batch]), arrow_schema(context.stream))
        if table.num_rows:
            yield from slot_rows(context, table, np.full(table.num_rows, -1)).to_batches()


def deduplicate_stage(context: AppendContext, batches: RecordBatches) -> RecordBatches:
    """Rows sorted by key and position: duplicates become asides or nothing, the others pass."""
    asides: list[bytes] = []
    faults = _FaultCollector()
    for found in deduplicate(split_asides(batches, asides), context.stream):
        yield from found.new.to_batches(ARROW_BATCH_ROWS)
        faults.add(found.conflicts, found.dropped, found.replaced)
        if found.replacing.num_rows:
            faults.replacing.append(_pending_replacements(context, found.replacing))
    for aside in asides:
        yield from aside_row(context, 0, *parse_aside(aside)).to_batches()
    for said, blob in faults.blobs():
        yield from aside_row(context, 0, said, blob).to_batches()


def write_stage(context: AppendContext, settles: bool, batches: RecordBatches) -> RecordBatches:
    """Rows in stream order to buckets; yields a report. `settles`: whether duplicates are resolved here."""
    asides: list[bytes] = []
    faults = _FaultCollector()
    slot = -1

    def fresh() -> Iterator[pa.Table]:
        nonlocal slot
        for table in split_asides(batches, asides):
            slot = table["_slot"][0].as_py()
            yield table

    def unique() -> Iterator[pa.Table]:
        for found in deduplicate(fresh(), context.stream):
            faults.add(found.conflicts, found.dropped, found.replaced)
            if found.replacing.num_rows:
                faults.replacing.append(_pending_replacements(context, found.replacing))
            yield found.new

    stored = [*context.stream.names, POS]
    rows = (table.select(stored) for table in (unique() if settles else fresh()))
    for bucket in cut_into_buckets(rows, context.stream.bucket_rows):
        yield bucket_report(slot, context.writer.write(bucket, Role.BASE))
    for place, blobs in ((slot, list(faults.blobs())), (context.aside_slot, list(map(parse_aside, asides)))):
        pending = [
            _with_rank(said, unpack_table(blob))
            for said, blob in blobs
            if said in (ReportKind.PENDING, ReportKind.REPLACING)
        ]
        yield from _write_pending(context, place, pending)
        yield from report_bad_rows(context, [unpack_table(blob) for said, blob in blobs if said is ReportKind.BAD])
        for said, blob in blobs:
            if said in (ReportKind.LINES, ReportKind.COUNT, ReportKind.FAILED, ReportKind.MERGED):
                yield report_row(said, data=blob)


def read_split_tables(
    context: AppendContext, split: FileSplit, layout: FileLayout
) -> tuple[list[pa.Table], list[pa.Table]]:
    """A split's rows for the archive, and asides about all else in it or about why it cannot be read."""
    try:
        found = read_split(split, layout, context.stream)
    except ErrataError as error:
        return [], [aside_row(context, 0, ReportKind.FAILED, pack_error(error))]
    tables = list(_classify_rows(context, split, found))
    return tables[:1], tables[1:]


def pack_error(error: ErrataError) -> bytes:
    """An error because of which a task gives up."""
    of_file = isinstance(error, BadFileError)
    told = {"what": error.what, "where": error.where, "why": error.why, "how": error.how, "file": of_file}
    return json.dumps(told).encode()


def reported_error(blob: bytes) -> ErrataError:
    """The error in a task's report."""
    told = json.loads(blob)
    kind = BadFileError if told["file"] else ErrataError
    return kind(told["what"], where=told["where"], why=told["why"], how=told["how"])


class _FaultCollector:
    """What deduplication finds in a partition."""

    def __init__(self) -> None:
        self.replacing: list[pa.Table] = []
        self._conflicts: list[np.ndarray] = []
        self._dropped = 0
        self._replaced = 0

    def add(self, conflicts: np.ndarray, dropped: int, replaced: int) -> None:
        if len(conflicts):
            self._conflicts.append(conflicts)
        self._dropped += dropped
        self._replaced += replaced

    def blobs(self) -> Iterator[tuple[ReportKind, bytes]]:
        for table in self.replacing:
            yield ReportKind.REPLACING, pack_table(table)
        if self._conflicts:
            pairs = np.concatenate(self._conflicts)
            absent = pa.nulls(len(pairs), pa.string())
            yield (
                ReportKind.BAD,
                pack_table(pa.table([pairs[:, 0], pairs[:, 1], absent, absent], schema=BAD_ROW_SCHEMA)),
            )
        if self._dropped or self._replaced:
            yield ReportKind.COUNT, pack_counts(dropped=self._dropped, replaced=self._replaced)


def pack_counts(**counts: int) -> bytes:
    """Named counts as a blob."""
    return ",".join(f"{name}={count}" for name, count in counts.items()).encode()


def unpack_counts(blob: bytes) -> dict[str, int]:
    return {name: int(count) for name, _, count in (part.partition("=") for part in blob.decode().split(","))}


def _classify_rows(context: AppendContext, split: FileSplit, found: SplitRows) -> Iterator[pa.Table]:
    """A split's rows for the archive, then asides: its counts, its revisions, its bad rows."""
    stream = context.stream
    rows = _with_arrival(context, found.rows)
    order = order_values(rows[stream.order])
    places = found.ordinals + row_position(split.number, 0)
    ahead = _is_out_of_range(context, order)
    late = np.zeros(len(order), dtype=bool) if context.stable is None else order < context.stable
    late &= ~ahead
    on_time = ~(late | ahead)
    unfed = np.zeros(len(order), dtype=bool)
    if not stream.merged.is_empty:
        unfed, late, on_time = ~ahead, unfed, unfed
    if on_time.all():
        yield slot_rows(context, rows, places)
    else:
        yield slot_rows(context, rows.filter(pa.array(on_time)), places[on_time])
    bad = list(found.bad) + [
        (ordinal, text, _too_far_reason(context, moment))
        for (ordinal, text), moment in zip(_row_texts(found, found.ordinals[ahead]), order[ahead].tolist(), strict=True)
    ]
    bad += [(ordinal, text, NO_FEED) for ordinal, text in _row_texts(found, found.ordinals[unfed])]
    pending = [pending_inserts(stream, rows.filter(pa.array(late)), places[late])] if late.any() else []
    corrections, too_far = _pending_corrections(context, found, split)
    bad += [
        (ordinal, text, _too_far_reason(context, moment))
        for (ordinal, text), moment in zip(_row_texts(found, too_far[:, 0]), too_far[:, 1].tolist(), strict=True)
    ]
    if corrections.num_rows:
        pending.append(corrections)
    records = len(order) + found.corrections.num_rows + len(found.bad)
    yield aside_row(context, 0, ReportKind.LINES, pack_counts(split=split.number, lines=found.lines, records=records))
    if pending:
        yield aside_row(context, 0, ReportKind.PENDING, pack_table(pa.concat_tables(pending)))
    if bad:
        yield aside_row(context, 0, ReportKind.BAD, pack_table(_bad_row_table(split, bad)))


def _with_arrival(context: AppendContext, rows: pa.Table) -> pa.Table:
    """Rows that come without an order field get the time of their arrival."""
    if ARRIVAL_COLUMN in rows.column_names or not context.stream.ordered_on_arrival:
        return rows
    kind = arrow_type(context.stream.order_type)
    return rows.append_column(
        ARRIVAL_COLUMN, pa.repeat(pa.scalar(context.arrival_order, pa.int64()), rows.num_rows).cast(kind)
    )


def _pending_corrections(context: AppendContext, found: SplitRows, split: FileSplit) -> tuple[pa.Table, np.ndarray]:
    """Corrections as pending revisions, and ordinal and order of those that would move a row too far ahead."""
    table = found.corrections.append_column(
        POS, pa.array(found.correction_ordinals + row_position(split.number, 0), pa.int64())
    )
    table = conform(table, pending_schema(context.stream), missing_as_null=False)
    moved = pc.fill_null(table[context.stream.order].cast(pa.int64()), context.max_order).to_numpy()
    ahead = _is_out_of_range(context, moved) & pc.not_equal(table["_op"], "delete").to_numpy()
    return table.filter(pa.array(~ahead)), np.column_stack((found.correction_ordinals[ahead], moved[ahead]))


def _is_out_of_range(context: AppendContext, order: np.ndarray) -> np.ndarray:
    """Which order fields are too far ahead, or cannot be in a half-open interval of 64 bits."""
    beyond: np.ndarray = (order > context.max_order) | (order == LOWEST)
    return beyond


def _row_texts(found: SplitRows, ordinals: np.ndarray) -> list[tuple[int, str]]:
    texts = found.texts(ordinals.tolist()) if len(ordinals) else {}
    return [(ordinal, texts[ordinal]) for ordinal in ordinals.tolist()]


def _bad_row_table(split: FileSplit, bad: Sequence[tuple[int, str, str]]) -> pa.Table:
    ordinals, texts, reasons = zip(*bad, strict=True)
    places = np.asarray(ordinals, dtype=np.int64) + row_position(split.number, 0)
    return pa.table([places, pa.nulls(len(bad), pa.int64()), list(texts), list(reasons)], schema=BAD_ROW_SCHEMA)


def _too_far_reason(context: AppendContext, moment: int) -> str:
    stream = context.stream
    if not stream.timed:
        return f"{stream.order}: {moment} is at the very end of what a bigint can hold, where nothing can come after it"
    if stream.max_ahead is None:
        return f"{stream.order}: {moment} microseconds are beyond the time that can be kept"
    return (
        f"{stream.order}: {format_instant(moment)} is more than {format_duration(stream.max_ahead)} "
        "(max_ahead) after now"
    )


def _pending_replacements(context: AppendContext, rows: pa.Table) -> pa.Table:
    """New values for rows of the archive, as pending replacements."""
    return pending_inserts(context.stream, rows, rows[POS].to_numpy(), op="replace")


def _write_pending(context: AppendContext, slot: int, tables: Sequence[pa.Table]) -> RecordBatches:
    """Write pending revisions in the order of their numbers: by rank, then by the source's `_seq`, then by position.

    Each slot finds its own replacements. They are numbered after the late insertions, which are reported as of a slot
    before all others, and before the corrections, which are reported as of the last slot.
    """
    if not tables:
        return
    schema = numbered_pending_schema(context.stream)
    table = pa.concat_tables(tables)
    keys = {
        "seq": pc.fill_null(table["_seq"], HIGHEST),
        "pos": table[POS],
    }
    table = table.take(pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys]))
    for rank, place in enumerate((BEFORE_ALL, slot, context.aside_slot)):
        for bucket in cut_into_buckets(iter([table.filter(pc.equal(table[RANK], rank))]), context.stream.bucket_rows):
            numbered = bucket.append_column("_ordinal", pa.array(np.arange(bucket.num_rows)))
            yield bucket_report(place, context.writer.write(numbered.select(schema.names).cast(schema), Role.PENDING))


def _with_rank(said: ReportKind, table: pa.Table) -> pa.Table:
    """The rank of revisions: late inserts first, then inserts of keys that exist (replacements), then corrections."""
    if said is ReportKind.REPLACING:
        rank = pa.repeat(pa.scalar(1, pa.int8()), table.num_rows)
    else:
        rank = pc.if_else(pc.equal(table["_op"], "insert"), pa.scalar(0, pa.int8()), pa.scalar(2, pa.int8()))
    return table.append_column(RANK, rank)


def report_bad_rows(context: AppendContext, tables: Sequence[pa.Table]) -> RecordBatches:
    """Rows for quarantine in a task's report, or in a file if they are many."""
    if not tables:
        return
    table = pa.concat_tables(tables).combine_chunks()
    faults, count = pack_table(table), table.num_rows
    if len(faults) <= MAX_INLINE_FAULT_BYTES:
        yield report_row(ReportKind.BAD, data=faults, rows=count)
        return
    path = context.warehouse.new_name(context.stream, context.arrival_order, "faults", "arrow")
    context.warehouse.write(path, faults)
    yield report_row(ReportKind.BAD, path=path, rows=count)
