"""What travels between the stages of an append: rows for the archive, and asides about all others.

A row carries its slot (the range of the order field, and so the partition, in which it is sorted and written), its
position in the batch, and its columns. An aside is a row of the last slot that carries a blob and no columns.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from errata.archive.warehouse import Warehouse
from errata.archive.written import POS, BucketWriter, order_values
from errata.intake.arrow_types import arrow_schema, arrow_type
from errata.model.bucket import Groups, Layout, NewBucket, Role
from errata.model.stream import Stream

SLOT, ASIDE = "_slot", "_aside"

BAD = pa.schema([("pos", pa.int64()), ("other", pa.int64()), ("text", pa.string()), ("reason", pa.string())])
"""Rows that do not go in: place, place of the row that stands instead, text if at hand, reason if given."""


class Said(StrEnum):
    """What an aside, or a finished task, tells."""

    LINES = "lines"
    PENDING = "pending"
    REPLACING = "replacing"
    BAD = "bad"
    BASE = "base"
    COUNT = "count"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Intent:
    """Everything that the stages of one append need to know; it travels to every task."""

    stream: Stream
    warehouse: Warehouse
    stable: int | None
    """The stable point before the batch: what lies behind it is late."""
    newest: int
    """No order field may be greater: max_ahead against the clock, or the last place that an interval can hold."""
    arrival: int
    """The order field of rows that come without one."""
    bounds: tuple[int, ...]
    """Where one slot ends and the next begins."""
    room: int
    """How many bytes more may live in the catalog itself."""

    @property
    def aside_slot(self) -> int:
        return len(self.bounds) + 1

    @property
    def writer(self) -> BucketWriter:
        return BucketWriter(self.stream, self.warehouse, inline=self.room > 0)

    def slots(self, order: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.asarray(self.bounds, dtype=np.int64), order, side="right").astype(np.int32)


def row_schema(stream: Stream) -> pa.Schema:
    """Rows and asides as they travel."""
    fields = [pa.field(SLOT, pa.int32()), pa.field(POS, pa.int64())]
    return pa.schema([*fields, *arrow_schema(stream), pa.field(ASIDE, pa.binary())])


def told_schema() -> pa.Schema:
    """What a finished task tells: one row for each bucket, blob or count."""
    texts = [pa.field(name, pa.string()) for name in ("said", "path", "checksum", "low", "high", "members", "layout")]
    numbers = [pa.field(name, pa.int64()) for name in ("slot", "rows", "size", "vs_min", "vs_max")]
    return pa.schema([*texts, *numbers, pa.field("data", pa.binary())])


def old_column(name: str) -> str:
    return f"_old_{name}"


def pending_schema(stream: Stream) -> pa.Schema:
    """Pending revisions as they are kept: the row, the operation, what was given, and the old values claimed."""
    given = [pa.field("_given", pa.string()), pa.field("_claimed", pa.string())]
    old = [pa.field(old_column(column.name), arrow_type(column.type)) for column in stream.columns]
    first = [pa.field(POS, pa.int64()), pa.field("_op", pa.string()), pa.field("_seq", pa.int64())]
    return pa.schema([*first, *given, *arrow_schema(stream), *old])


def numbered_schema(stream: Stream) -> pa.Schema:
    """The same with the order of the revisions in their bucket, from 0."""
    return pa.schema([pa.field("_ordinal", pa.int64()), *pending_schema(stream)])


def as_rows(intent: Intent, table: pa.Table, positions: np.ndarray) -> pa.Table:
    """Rows for the archive, with their slots."""
    slots = intent.slots(order_values(table[intent.stream.order]))
    schema = row_schema(intent.stream)
    columns: dict[str, Any] = {name: table[name] for name in intent.stream.names}
    columns |= {SLOT: slots, POS: positions, ASIDE: pa.nulls(table.num_rows, pa.binary())}
    return pa.table([columns[name] for name in schema.names], schema=schema)


def as_aside(intent: Intent, position: int, said: Said, blob: bytes) -> pa.Table:
    """One blob, addressed to the last slot."""
    schema = row_schema(intent.stream)
    values: dict[str, Any] = {SLOT: intent.aside_slot, POS: position, ASIDE: said.value.encode() + b":" + blob}
    return pa.table([pa.array([values.get(field.name)], field.type) for field in schema], schema=schema)


def opened_aside(aside: bytes) -> tuple[Said, bytes]:
    said, _, blob = aside.partition(b":")
    return Said(said.decode()), blob


def packed(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def unpacked(blob: bytes) -> pa.Table:
    return pa.ipc.open_stream(blob).read_all()


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Stored rows with the columns of today; those that were added since are NULL."""
    columns = [
        table[field.name].cast(field.type) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def late_inserts(stream: Stream, table: pa.Table, positions: np.ndarray, op: str = "insert") -> pa.Table:
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


def told(said: Said, **values: Any) -> pa.RecordBatch:
    """One row of what a finished task tells."""
    row = {"said": said.value} | values
    return pa.RecordBatch.from_arrays(
        [pa.array([row.get(field.name)], field.type) for field in told_schema()], schema=told_schema()
    )


def told_bucket(slot: int, bucket: NewBucket) -> pa.RecordBatch:
    said = Said.BASE if bucket.role is Role.BASE else Said.PENDING
    values = {name: value for name, value in asdict(bucket).items() if name not in ("groups", "role")}
    groups = bucket.groups
    return told(said, slot=slot, low=groups.low, high=groups.high, members=groups.members_json(), **values)


def heard_bucket(row: dict[str, Any]) -> NewBucket:
    return NewBucket(
        Role.BASE if row["said"] == Said.BASE.value else Role.PENDING,
        row["rows"],
        row["size"],
        row["vs_min"],
        row["vs_max"],
        Groups.of(row["low"], row["high"], row["members"]),
        row["checksum"],
        path=row["path"],
        data=row["data"],
        layout=Layout(row["layout"]),
    )


def without_asides(batches: Iterable[pa.RecordBatch], asides: list[bytes]) -> Iterator[pa.Table]:
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
