"""The columns of everything that an archive stores or that its tasks exchange.

- Rows on their way through an append: the slot (the range of the order field in which a row is sorted and written, and
  so its partition), the position in the batch, and the declared columns. An aside is a row of the last slot that has no
  columns but a blob: what a stage tells later ones about rows that do not go into the archive.
- Pending revisions: the operation, the new values, the columns that were given, and the old values that are claimed.
- Overlays: a row for each applied revision, with the version that it made, if any, and the version that it superseded,
  if any. The versions of a row form a chain that can be followed in both directions.
- Results of queries, their masks, their stored lineage, and their change records.

Columns whose names begin with `_` are Errata's own.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import BucketWriter, order_values
from errata.archive.task_reports import ReportKind
from errata.declare.warehouse import Warehouse
from errata.intake.types import arrow_schema, arrow_type
from errata.model.bucket import Role
from errata.model.results import EVALUATION, LINEAGE_FROM, OLD_VE, OP, VE, VS, ResultShape, old_column
from errata.model.stream import Stream

SLOT, ASIDE = "_slot", "_aside"

BAD_ROW_SCHEMA = pa.schema([("pos", pa.int64()), ("other", pa.int64()), ("text", pa.string()), ("reason", pa.string())])
"""Rows for quarantine: position, position of the row that is kept instead, text if known, reason if known."""

_SMALL_READS = pa.ipc.IpcReadOptions(use_threads=False)
"""Tables that lie in the catalog are small: handing their columns to other threads takes longer than reading them."""


@dataclass(frozen=True, slots=True)
class AppendContext:
    """What the stages of one append need to know; it travels to every task."""

    stream: Stream
    warehouse: Warehouse
    stable: int | None
    """The stable point before the batch: rows before it are late."""
    max_order: int
    """The greatest order field that is allowed: the clock plus max_ahead, or the last that an interval can hold."""
    arrival_order: int
    """The order field of rows that come without one."""
    bounds: tuple[int, ...]
    """The order fields at which one slot ends and the next begins."""
    inline_room: int
    """How many more bytes of the stream may be stored inline in the catalog."""

    @property
    def aside_slot(self) -> int:
        return len(self.bounds) + 1

    @property
    def writer(self) -> BucketWriter:
        return BucketWriter(self.stream, self.warehouse, inline=self.inline_room > 0)

    def slots(self, order: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.asarray(self.bounds, dtype=np.int64), order, side="right").astype(np.int32)


def slot_row_schema(stream: Stream) -> pa.Schema:
    """Rows and asides as they are exchanged between stages."""
    fields = [pa.field(SLOT, pa.int32()), pa.field(POS, pa.int64())]
    return pa.schema([*fields, *arrow_schema(stream), pa.field(ASIDE, pa.binary())])


def pending_schema(stream: Stream) -> pa.Schema:
    """Pending revisions: the operation, the new row, the columns that were given, and the old values that are
    claimed."""
    given = [pa.field("_given", pa.string()), pa.field("_claimed", pa.string())]
    old = [pa.field(old_column(column.name), arrow_type(column.type)) for column in stream.columns]
    first = [pa.field(POS, pa.int64()), pa.field("_op", pa.string()), pa.field("_seq", pa.int64())]
    return pa.schema([*first, *given, *arrow_schema(stream), *old])


def numbered_pending_schema(stream: Stream) -> pa.Schema:
    """Pending revisions as they are stored: with their order in the bucket, from 0."""
    return pa.schema([pa.field("_ordinal", pa.int64()), *pending_schema(stream)])


def slot_rows(context: AppendContext, table: pa.Table, positions: np.ndarray) -> pa.Table:
    """Rows for the archive, with their slots."""
    slots = context.slots(order_values(table[context.stream.order]))
    schema = slot_row_schema(context.stream)
    columns: dict[str, Any] = {name: table[name] for name in context.stream.names}
    columns |= {SLOT: slots, POS: positions, ASIDE: pa.nulls(table.num_rows, pa.binary())}
    return pa.table([columns[name] for name in schema.names], schema=schema)


def aside_row(context: AppendContext, position: int, said: ReportKind, blob: bytes) -> pa.Table:
    """An aside: one blob, sent to the last slot."""
    schema = slot_row_schema(context.stream)
    values: dict[str, Any] = {SLOT: context.aside_slot, POS: position, ASIDE: said.value.encode() + b":" + blob}
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
    """Whole rows as pending revisions: all columns are given, and no old values are claimed."""
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
    """The rows among the batches. The blobs of asides are appended to the list as they are met."""
    for batch in batches:
        column = batch.column(batch.schema.get_field_index(ASIDE))
        if column.null_count == len(column):
            yield pa.Table.from_batches([batch])
            continue
        asides.extend(column.drop_null().to_pylist())
        rows = batch.filter(column.is_null())
        if rows.num_rows:
            yield pa.Table.from_batches([rows])


# Overlays.

REVISION, OPERATION, BATCH, GIVEN = "_revision", "_op", "_batch", "_given"
MASKS, LIVE = "_masks", "_live"
OLD_BATCH, OLD_POS, OLD_REVISION = "_from_batch", "_from_pos", "_from_revision"


def overlay_schema(stream: Stream) -> pa.Schema:
    """Applied revisions as they are stored.

    `_batch` and `_pos` tell where the correction came from, `_from_batch` and `_from_pos` where the superseded version
    came from; `_from_revision` is NULL when no revision had changed that version since its batch.
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


# Results, masks, stored lineage and change records.


def computed_schema(shape: ResultShape) -> pa.Schema:
    """Results as they are computed."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in (VS, VE))])


def result_schema(shape: ResultShape) -> pa.Schema:
    """Results as they are stored."""
    return computed_schema(shape).append(pa.field(EVALUATION, pa.int64()))


def result_mask_schema(shape: ResultShape) -> pa.Schema:
    """Masks of results: key and lifetime of the masked result, and the evaluation that masks it."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns if each.key]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in (VS, VE, EVALUATION))])


def lineage_schema(shape: ResultShape, columns: Iterable[str] = ()) -> pa.Schema:
    """Stored lineage: key and beginning of a result, the given columns, and the evaluation that wrote it."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns if each.key]
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in (VS, *columns, EVALUATION))])


def lineage_extent(lineage: pa.Table) -> tuple[int, int] | None:
    """The place of the first row that one of the results was made of, and the beginning of the last result."""
    begins = [pc.min(lineage[name]).as_py() for name in lineage.column_names if name.startswith(LINEAGE_FROM)]
    ends = pc.min_max(lineage[VS])
    if ends["min"].as_py() is None:
        return None
    return min(ends["min"].as_py(), *(each for each in begins if each is not None)), ends["max"].as_py()


def feed_schema(shape: ResultShape) -> pa.Schema:
    """Change records as they are stored."""
    fields = [pa.field(each.name, arrow_type(each.type)) for each in shape.columns]
    before = [pa.field(old_column(each.name), arrow_type(each.type)) for each in shape.columns if not each.key]
    times = [pa.field(name, pa.int64()) for name in (VS, VE, OLD_VE)]
    return pa.schema([pa.field(OP, pa.string()), *fields, *times, *before, pa.field(EVALUATION, pa.int64())])


def stored_schema(of: Stream | ResultShape, role: Role) -> pa.Schema:
    """The columns that the stored rows of this role must have. A state has any: only the strategy that wrote it knows
    them, as it does those of partial aggregates beside the time and the evaluation."""
    if isinstance(of, Stream):
        if role is Role.OVERLAY:
            return overlay_schema(of)
        return (
            numbered_pending_schema(of) if role is Role.PENDING else arrow_schema(of).append(pa.field(POS, pa.int64()))
        )
    if role is Role.PARTS:
        return pa.schema([pa.field(name, pa.int64()) for name in (VS, EVALUATION)])
    schemas = {Role.FEED: feed_schema, Role.LINEAGE: lineage_schema, Role.MASK: result_mask_schema}
    return schemas.get(role, result_schema)(of)
