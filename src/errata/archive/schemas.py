"""What travels between the stages of an append: rows for the archive, and asides about all others.

A row carries its slot (the range of the order field, and so the partition, in which it is sorted and written), its
position in the batch, and its columns. An aside is a row of the last slot that carries a blob and no columns.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_writer import POS, BucketWriter, order_values
from errata.archive.task_reports import ReportKind
from errata.declare.warehouse import Warehouse
from errata.intake.types import arrow_schema, arrow_type
from errata.model.results import EVALUATION, LINEAGE_FROM, OLD_VE, OP, VE, VS, ResultShape, old_column
from errata.model.stream import Stream

SLOT, ASIDE = "_slot", "_aside"

BAD_ROW_SCHEMA = pa.schema([("pos", pa.int64()), ("other", pa.int64()), ("text", pa.string()), ("reason", pa.string())])
"""Rows that do not go in: place, place of the row that stands instead, text if at hand, reason if given."""

_SMALL_READS = pa.ipc.IpcReadOptions(use_threads=False)
"""Tables that lie in the catalog are small: handing their columns to other threads takes longer than reading them."""


@dataclass(frozen=True, slots=True)
class AppendContext:
    """Everything that the stages of one append need to know; it travels to every task."""

    stream: Stream
    warehouse: Warehouse
    stable: int | None
    """The stable point before the batch: what lies behind it is late."""
    max_order: int
    """No order field may be greater: max_ahead against the clock, or the last place that an interval can hold."""
    arrival_order: int
    """The order field of rows that come without one."""
    bounds: tuple[int, ...]
    """Where one slot ends and the next begins."""
    inline_room: int
    """How many bytes more may live in the catalog itself."""

    @property
    def aside_slot(self) -> int:
        return len(self.bounds) + 1

    @property
    def writer(self) -> BucketWriter:
        return BucketWriter(self.stream, self.warehouse, inline=self.inline_room > 0)

    def slots(self, order: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.asarray(self.bounds, dtype=np.int64), order, side="right").astype(np.int32)


def slot_row_schema(stream: Stream) -> pa.Schema:
    """Rows and asides as they travel."""
    fields = [pa.field(SLOT, pa.int32()), pa.field(POS, pa.int64())]
    return pa.schema([*fields, *arrow_schema(stream), pa.field(ASIDE, pa.binary())])


def pending_schema(stream: Stream) -> pa.Schema:
    """Pending revisions as they are kept: the row, the operation, what was given, and the old values claimed."""
    given = [pa.field("_given", pa.string()), pa.field("_claimed", pa.string())]
    old = [pa.field(old_column(column.name), arrow_type(column.type)) for column in stream.columns]
    first = [pa.field(POS, pa.int64()), pa.field("_op", pa.string()), pa.field("_seq", pa.int64())]
    return pa.schema([*first, *given, *arrow_schema(stream), *old])


def numbered_pending_schema(stream: Stream) -> pa.Schema:
    """The same with the order of the revisions in their bucket, from 0."""
    return pa.schema([pa.field("_ordinal", pa.int64()), *pending_schema(stream)])


def slot_rows(intent: AppendContext, table: pa.Table, positions: np.ndarray) -> pa.Table:
    """Rows for the archive, with their slots."""
    slots = intent.slots(order_values(table[intent.stream.order]))
    schema = slot_row_schema(intent.stream)
    columns: dict[str, Any] = {name: table[name] for name in intent.stream.names}
    columns |= {SLOT: slots, POS: positions, ASIDE: pa.nulls(table.num_rows, pa.binary())}
    return pa.table([columns[name] for name in schema.names], schema=schema)


def aside_row(intent: AppendContext, position: int, said: ReportKind, blob: bytes) -> pa.Table:
    """One blob, addressed to the last slot."""
    schema = slot_row_schema(intent.stream)
    values: dict[str, Any] = {SLOT: intent.aside_slot, POS: position, ASIDE: said.value.encode() + b":" + blob}
    return pa.table([pa.array([values.get(field.name)], field.type) for field in schema], schema=schema)


def parse_aside(aside: bytes) -> tuple[ReportKind, bytes]:
    said, _, blob = aside.partition(b":")
    return ReportKind(said.decode()), blob


def pack_table(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def unpack_table(blob: bytes) -> pa.Table:
    return pa.ipc.open_stream(blob, options=_SMALL_READS).read_all()


def conform(table: pa.Table, schema: pa.Schema, *, missing_as_null: bool = True) -> pa.Table:
    """The columns of a schema, in its order and cast to its types. Columns that the table does not have, since they
    were added after it was stored, are NULL; without `missing_as_null` they are an error."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    there = set(table.column_names) if missing_as_null else schema.names
    columns = [
        table[field.name].cast(field.type) if field.name in there else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def pending_inserts(stream: Stream, table: pa.Table, positions: np.ndarray, op: str = "insert") -> pa.Table:
    """Whole rows as pending revisions: everything in them was given, and nothing is claimed of the old."""
    schema = pending_schema(stream)
    given = ",".join(stream.names)
    count = table.num_rows
    columns: dict[str, Any] = {name: table[name] for name in stream.names}
    columns |= {
        POS: positions,
        "_op": pa.repeat(op, count),
        "_seq": pa.nulls(count, pa.int64()),
        "_given": pa.repeat(given, count),
        "_claimed": pa.repeat("", count),
    }
    arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in schema]
    return pa.table(arrays, schema=schema)


def split_asides(batches: Iterable[pa.RecordBatch], asides: list[bytes]) -> Iterator[pa.Table]:
    """The rows among what travels; asides are put into the list as they come by."""
    for batch in batches:
        column = batch.column(batch.schema.get_field_index(ASIDE))
        if column.null_count == len(column):
            yield pa.Table.from_batches([batch])
            continue
        asides.extend(column.drop_null().to_pylist())
        rows = batch.filter(column.is_null())
        if rows.num_rows:
            yield pa.Table.from_batches([rows])


# Overlays: what applied revisions lay over the rows that are there, and what is stored of it.
#
# One row for each applied revision: the version that it made, if it made one, and the version that it superseded, if
# there was one. So the versions of a row form a chain that can be walked in both directions.

REVISION, OPERATION, BATCH, GIVEN = "_revision", "_op", "_batch", "_given"
MASKS, LIVE = "_masks", "_live"
OLD_BATCH, OLD_POS, OLD_REVISION = "_from_batch", "_from_pos", "_from_revision"


def overlay_schema(stream: Stream) -> pa.Schema:
    """Applied revisions as they are kept.

    `_batch` and `_pos` say where the correction came from, `_from_batch` and `_from_pos` where the superseded version
    came from; `_from_revision` is NULL when that one is as a batch brought it.
    """
    said = [
        pa.field(REVISION, pa.int64()),
        pa.field(OPERATION, pa.string()),
        pa.field(BATCH, pa.int64()),
        pa.field(POS, pa.int64()),
        pa.field(GIVEN, pa.string()),
        pa.field(MASKS, pa.bool_()),
        pa.field(LIVE, pa.bool_()),
    ]
    rows = arrow_schema(stream)
    old = [pa.field(old_column(field.name), field.type) for field in rows]
    origin = [pa.field(name, pa.int64()) for name in (OLD_BATCH, OLD_POS, OLD_REVISION)]
    return pa.schema([*said, *rows, *old, *origin])


# The columns of results and of change records, in Arrow.


def computed_schema(shape: ResultShape) -> pa.Schema:
    """Results as they are worked out."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in (VS, VE))])


def result_schema(shape: ResultShape) -> pa.Schema:
    """Results as they are kept."""
    return computed_schema(shape).append(pa.field(EVALUATION, pa.int64()))


def result_mask_schema(shape: ResultShape) -> pa.Schema:
    """Masks of results: key, beginning, and the end that the masked one had; and by which evaluation it is masked."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns if each.key]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in (VS, VE, EVALUATION))])


def lineage_schema(shape: ResultShape, columns: Iterable[str] = ()) -> pa.Schema:
    """Of which rows results were made: key, beginning, these columns, and by which evaluation it is told."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns if each.key]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in (VS, *columns, EVALUATION))])


def lineage_extent(lineage: pa.Table) -> tuple[int, int] | None:
    """Where the first row lies that one of the results was made of, and where the last result begins."""
    begins = [pc.min(lineage[name]).as_py() for name in lineage.column_names if name.startswith(LINEAGE_FROM)]
    ends = pc.min_max(lineage[VS])
    if ends["min"].as_py() is None:
        return None
    return min(ends["min"].as_py(), *(each for each in begins if each is not None)), ends["max"].as_py()


def feed_schema(shape: ResultShape) -> pa.Schema:
    """Records of the change feed as they are kept."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns]
    before = [pa.field(old_column(each.name), arrow_type(each.type)) for each in shape.columns if not each.key]
    times = [pa.field(name, pa.int64()) for name in (VS, VE, OLD_VE)]
    return pa.schema([pa.field(OP, pa.string()), *fields, *times, *before, pa.field(EVALUATION, pa.int64())])
