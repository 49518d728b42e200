"""One bucket looked at: what it is, what its rows tell of it, and which of them overlays mask."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from errata.archive.bloom import supports
from errata.archive.masks import Source, read_overlays
from errata.archive.match import matches
from errata.archive.overlay import LIVE, MASKS, REVISION, overlay_schema
from errata.archive.scan import place_columns
from errata.archive.warehouse import Warehouse
from errata.archive.wire import conformed, numbered_schema, old_column, unpacked
from errata.archive.written import POS, groups_of, order_values
from errata.intake.arrow_types import arrow_schema
from errata.model.bucket import Bucket, Ends, Layout, Role
from errata.model.health import Figures, Seen
from errata.model.interval import HIGHEST, LOWEST
from errata.model.stream import Stream

HIT = pa.schema([("revision", pa.int64()), ("floor", pa.int64())])
"""A row of a base bucket that lies where some revision masks one, and the floor of its bucket."""


@dataclass(frozen=True, slots=True)
class Ward:
    """What is needed to look at a stream's buckets; it travels to every task."""

    stream: Stream
    warehouse: Warehouse
    aged_to: int | None
    overlays: tuple[Source, ...] | None
    """The live overlays, to see what they mask; None: that is not asked."""


def inspected(ward: Ward, source: Source, shelf: dict[int, pa.Table]) -> tuple[Seen, pa.Table]:
    """What a bucket is, and its rows where revisions mask some; what it holds only when it is what was written.
    `shelf` keeps what overlays mask from one bucket to the next."""
    bucket = source.bucket
    known, data = content(ward.warehouse, source)
    if data is None:
        return known, HIT.empty_table()
    rows = _rows(ward.stream, bucket, data)
    if isinstance(rows, str):
        return replace(known, fault=rows), HIT.empty_table()
    if bucket.role is Role.BASE:
        masked, hits = _masked(ward, bucket, rows, shelf)
        return replace(_base(ward.stream, bucket, rows, known, data), masked=masked), hits
    tell = _overlay if bucket.role is Role.OVERLAY else _pending
    return tell(ward.stream, rows, known), HIT.empty_table()


def content(warehouse: Warehouse, source: Source) -> tuple[Seen, bytes | None]:
    """What lies where a bucket should lie; and its content, only if it is what was written."""
    bucket = source.bucket
    try:
        data = _data(warehouse, source)
    except OSError as error:
        return Seen(bucket.size, bucket.checksum, f"it cannot be read: {error.strerror or error}"), None
    if data is None:
        return Seen(), None
    known = Seen(len(data), f"sha256:{hashlib.sha256(data).hexdigest()}")
    return known, data if known.checksum == bucket.checksum else None


def _data(warehouse: Warehouse, source: Source) -> bytes | None:
    if source.bucket.path is None:
        return source.data
    try:
        return warehouse.read(source.bucket.path)
    except FileNotFoundError:
        return None


def stored_rows(bucket: Bucket, data: bytes) -> pa.Table | str:
    """The rows as they were written, or why they cannot be read."""
    try:
        return unpacked(data) if bucket.inline else pq.read_table(pa.BufferReader(data), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        return f"it cannot be opened: {error}"


def _rows(stream: Stream, bucket: Bucket, data: bytes) -> pa.Table | str:
    """The rows, or why they cannot be read."""
    stored = stored_rows(bucket, data)
    if isinstance(stored, str):
        return stored
    schema = _schema(stream, bucket.role)
    return _fault(stream, bucket.role, schema, stored.schema) or conformed(stored, schema)


def _base(stream: Stream, bucket: Bucket, rows: pa.Table, known: Seen, data: bytes) -> Seen:
    nulls = tuple(name for name in stream.names if name in stream.required and rows[name].null_count)
    return replace(
        known,
        figures=Figures(rows.num_rows, *_range(rows, stream.order), groups_of(rows, stream.group)),
        nulls=nulls,
        disordered=stream.order not in nulls and not ordered(rows, stream, bucket.layout),
        unfiltered=_unfiltered(stream, bucket, data),
        counting=rows.num_rows,
    )


def _pending(stream: Stream, rows: pa.Table, known: Seen) -> Seen:
    # One that does not tell its place may be of any.
    ends = (LOWEST, HIGHEST) if rows[stream.order].null_count else _range(rows, stream.order)
    wrong = not np.array_equal(rows["_ordinal"].to_numpy(), np.arange(rows.num_rows))
    return replace(known, figures=Figures(rows.num_rows, *ends), disordered=wrong, counting=rows.num_rows)


def _schema(stream: Stream, role: Role) -> pa.Schema:
    if role is Role.OVERLAY:
        return overlay_schema(stream)
    return numbered_schema(stream) if role is Role.PENDING else arrow_schema(stream).append(pa.field(POS, pa.int64()))


def _fault(stream: Stream, role: Role, wanted: pa.Schema, found: pa.Schema) -> str:
    """Why stored rows cannot be read as they are declared; columns that were added since may be absent."""
    may_lack = {name for column in stream.names for name in (column, old_column(column))}
    if role is Role.BASE:
        may_lack -= stream.required
    return misfit(wanted, found, may_lack)


def misfit(wanted: pa.Schema, found: pa.Schema, may_lack: Collection[str] = ()) -> str:
    """Why stored rows are not of the wanted columns; nothing if they are."""
    for field in wanted:
        if field.name in found.names:
            kind = found.field(field.name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if kind != field.type:
                return f"column {field.name} is of {kind}, and declared as {field.type}"
        elif field.name not in may_lack:
            return f"column {field.name} is not there"
    return ""


def _range(rows: pa.Table, name: str) -> Ends:
    """The least and greatest value of a column that has some."""
    ends = pc.min_max(rows[name].cast(pa.int64()))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return (LOWEST, HIGHEST) if low is None else (low, high)


def ordered(rows: pa.Table, stream: Stream, layout: Layout) -> bool:
    """Whether rows lie as their layout says."""
    if layout is Layout.PLAIN or rows.num_rows < 2:
        return True
    rises = np.diff(order_values(rows[stream.order])) >= 0
    if layout is not Layout.GROUPED:
        return bool(rises.all())
    numbers = rows.select(list(stream.group)).append_column("_row", pa.array(np.arange(rows.num_rows)))
    groups = numbers.group_by(list(stream.group)).aggregate([("_row", "min"), ("_row", "max"), ("_row", "count")])
    first, last, count = (groups[f"_row_{name}"].to_numpy() for name in ("min", "max", "count"))
    rises[first[first > 0] - 1] = True
    return bool(rises.all() and np.array_equal(last - first + 1, count))


def _unfiltered(stream: Stream, bucket: Bucket, data: bytes) -> tuple[str, ...]:
    """The columns of the key that have no Bloom filters, where the key alone cannot tell where a row lies."""
    if bucket.inline or stream.key_has_order or bucket.layout is Layout.PLAIN:
        return ()
    metadata = pq.read_metadata(pa.BufferReader(data))
    if not metadata.num_row_groups:
        return ()
    group = metadata.row_group(0)
    filtered = {
        group.column(at).path_in_schema
        for at in range(metadata.num_columns)
        if group.column(at).bloom_filter_offset is not None
    }
    schema = arrow_schema(stream)
    return tuple(name for name in stream.key if name not in filtered and supports(schema.field(name).type))


def _overlay(stream: Stream, rows: pa.Table, known: Seen) -> Seen:
    masked, brought = rows.filter(rows[MASKS]), rows.filter(rows[LIVE])
    taken_from = masked.select([old_column(name) for name in stream.group]).rename_columns(list(stream.group))
    figures = Figures.of_overlay(
        rows.num_rows,
        groups_of(pa.concat_tables([taken_from, brought.select(list(stream.group))]), stream.group),
        _range(rows, REVISION),
        _range(masked, old_column(stream.order)) if masked.num_rows else None,
        _range(brought, stream.order) if brought.num_rows else None,
    )
    return replace(known, figures=figures, counting=brought.num_rows)


def _masked(ward: Ward, bucket: Bucket, rows: pa.Table, shelf: dict[int, pa.Table]) -> tuple[int | None, pa.Table]:
    """How many rows of a live base bucket do not count, and those that lie where a revision masks one."""
    if ward.overlays is None or bucket.removed_in is not None:
        return None, HIT.empty_table()
    stream = ward.stream
    if any(rows[name].null_count for name in stream.required):
        return None, HIT.empty_table()
    columns = place_columns(stream)
    masks = _masks_near(ward, bucket, shelf)
    left, right = matches(rows.select(columns), masks.select(columns), columns)
    numbers = masks[REVISION].to_numpy()[right]
    places = order_values(rows[stream.order])
    gone = places < (LOWEST if ward.aged_to is None else ward.aged_to)
    gone[left[numbers > bucket.floor]] = True
    _, first = np.unique(left, return_index=True)
    hits = pa.table([pa.array(numbers[first]), pa.array(np.full(len(first), bucket.floor))], schema=HIT)
    return int(gone.sum()), hits


def _masks_near(ward: Ward, bucket: Bucket, shelf: dict[int, pa.Table]) -> pa.Table:
    """What the overlays mask that may mask a row of the bucket; read once for buckets side by side."""
    near = {
        each.bucket.bucket_id: each
        for each in ward.overlays or ()
        if each.bucket.masks and each.bucket.masks[0] <= bucket.vs_max and each.bucket.masks[1] >= bucket.vs_min
    }
    for bucket_id in [each for each in shelf if each not in near]:
        del shelf[bucket_id]
    for bucket_id, source in near.items():
        if bucket_id not in shelf:
            shelf[bucket_id] = masks_of(ward.stream, read_overlays(ward.stream, ward.warehouse, [source]))
    empty = masks_of(ward.stream, read_overlays(ward.stream, ward.warehouse, []))
    return pa.concat_tables([empty, *shelf.values()])


def masks_of(stream: Stream, overlays: pa.Table) -> pa.Table:
    """The places that overlays mask, and the revision that does it."""
    rows = overlays.filter(overlays[MASKS])
    columns = {name: rows[old_column(name)] for name in place_columns(stream)}
    return pa.table({**columns, REVISION: rows[REVISION]})
