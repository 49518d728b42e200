"""The inspection of one bucket, for the doctor: whether it is what was written, and what its own rows tell.

A bucket is read whole. If its checksum is right, its figures (rows, ranges, groups, order, Bloom filters) are computed
from its rows, to be compared with the index; for base buckets also which rows overlays mask.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from errata.archive.blocks import BLOCK, block_numbers
from errata.archive.bloom import supports_bloom_filter
from errata.archive.bucket_writer import groups_in, order_values, value_range
from errata.archive.overlays import BucketSource, identity_columns, read_overlays
from errata.archive.sampling import sampling_hashes
from errata.archive.schemas import LIVE, MASKS, REVISION, conform, lineage_extent, stored_schema, unpack_table
from errata.archive.tables import match_rows
from errata.declare.warehouse import Warehouse
from errata.errors import count_text
from errata.intake.types import arrow_schema
from errata.model.bucket import REPLACED_ROLES, Bounds, Bucket, Layout, Role
from errata.model.findings import BucketFigures, BucketInspection
from errata.model.results import EVALUATION, VE, VS, ResultShape, old_column
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

MASK_HIT_SCHEMA = pa.schema([("revision", pa.int64()), ("floor", pa.int64())])
"""For each row of a base bucket that has the key and place of a mask: the mask's revision, and the bucket's floor."""


@dataclass(frozen=True, slots=True)
class InspectionContext:
    """What the inspection of an archive's buckets needs; it travels to every task."""

    of: Stream | ResultShape
    warehouse: Warehouse
    aged_to: int | None = None
    overlays: tuple[BucketSource, ...] | None = None
    """The live overlays, to find the rows that they mask; None if that is not asked."""


def inspect_bucket(
    context: InspectionContext, source: BucketSource, cache: dict[int, pa.Table]
) -> tuple[BucketInspection, pa.Table]:
    """Inspect a bucket: its figures, if it is what was written, and its rows at places of masks. `cache` keeps the
    masks of overlays from one bucket to the next."""
    bucket, of, hits = source.bucket, context.of, MASK_HIT_SCHEMA.empty_table()
    known, stored, data = _read_rows(context, source)
    if stored is None or bucket.role is Role.MERGE:
        return known, hits
    if isinstance(of, ResultShape):
        return _inspect_results(bucket.role, stored, known), hits
    rows = conform(stored, stored_schema(of, bucket.role))
    if bucket.role is Role.COPY:
        return _inspect_copy(of, bucket, rows, known), hits
    if bucket.role is not Role.BASE:
        return (_inspect_overlay if bucket.role is Role.OVERLAY else _inspect_pending)(of, rows, known), hits
    masked, hits = _mask_hits(context, of, bucket, rows, cache)
    if fault := _block_fault(of, stored, rows):
        return replace(known, fault=fault), hits.slice(0, 0)
    return replace(_inspect_base(of, bucket, rows, known, data), masked=masked), hits


def _read_rows(context: InspectionContext, source: BucketSource) -> tuple[BucketInspection, pa.Table | None, bytes]:
    """What is known of a bucket as it is stored; and its rows and content, if they are what was written and have the
    columns of their role."""
    bucket, of = source.bucket, context.of
    known, data = _read_content(context.warehouse, source)
    if data is None:
        return known, None, b""
    try:
        stored = unpack_table(data) if bucket.inline else pq.read_table(pa.BufferReader(data), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        return replace(known, fault=f"it cannot be opened: {error}"), None, b""
    if bucket.role in (*REPLACED_ROLES, Role.SUMMARY):
        # Only the strategy, the merge or the declaration that wrote it knows its columns.
        return replace(known, figures=replace(BucketFigures.from_bucket(bucket), rows=stored.num_rows)), None, data
    fault = _schema_mismatch(stored_schema(of, bucket.role), stored.schema, _columns_added_later(of, bucket.role))
    return (replace(known, fault=fault), None, data) if fault else (known, stored, data)


def _read_content(warehouse: Warehouse, source: BucketSource) -> tuple[BucketInspection, bytes | None]:
    """Size and checksum of a bucket as it is found; and its content, only if the checksum is right."""
    bucket = source.bucket
    try:
        data = _read_data(warehouse, source)
    except OSError as error:
        return BucketInspection(bucket.size, bucket.checksum, f"it cannot be read: {error.strerror or error}"), None
    if data is None:
        return BucketInspection(), None
    known = BucketInspection(len(data), f"sha256:{hashlib.sha256(data).hexdigest()}")
    return known, data if known.checksum == bucket.checksum else None


def _read_data(warehouse: Warehouse, source: BucketSource) -> bytes | None:
    if source.bucket.path is None:
        return source.data
    try:
        return warehouse.read(source.bucket.path)
    except FileNotFoundError:
        return None


def _inspect_base(
    stream: Stream, bucket: Bucket, rows: pa.Table, known: BucketInspection, data: bytes
) -> BucketInspection:
    nulls = tuple(name for name in stream.names if name in stream.required and rows[name].null_count)
    return replace(
        known,
        figures=BucketFigures(rows.num_rows, *_range_or_everything(rows, stream.order), groups_in(rows, stream.group)),
        nulls=nulls,
        disordered=stream.order not in nulls and not is_ordered(rows, stream, bucket.layout),
        unfiltered=_columns_without_bloom(stream, bucket, data),
        counting=rows.num_rows,
    )


def _inspect_copy(stream: Stream, bucket: Bucket, rows: pa.Table, known: BucketInspection) -> BucketInspection:
    """A copy has the ranges of its original, and only rows of its sample."""
    hashes, wanted = sampling_hashes(rows, stream.key), bucket.resolution.hashes
    inside = (hashes >= wanted.start) & ((hashes < wanted.end) | (wanted.end == HIGHEST))
    if not inside.all():
        outside = int((~inside).sum())
        told = f"{count_text(outside, 'row')} {'is' if outside == 1 else 'are'} not of its sample"
        return replace(known, fault=told)
    low, high = value_range(rows[stream.order]) or (bucket.vs_min, bucket.vs_max)
    figures = replace(
        BucketFigures.from_bucket(bucket),
        rows=rows.num_rows,
        vs_min=min(low, bucket.vs_min),
        vs_max=max(high, bucket.vs_max),
    )
    nulls = tuple(name for name in stream.names if name in stream.required and rows[name].null_count)
    return replace(known, figures=figures, nulls=nulls, counting=rows.num_rows)


def _block_fault(stream: Stream, stored: pa.Table, rows: pa.Table) -> str:
    """Why rows that are stored in blocks are not where their hash belongs; empty if they are."""
    if BLOCK not in stored.column_names:
        return ""
    found, wanted = stored[BLOCK].to_numpy(), block_numbers(sampling_hashes(rows, stream.key))
    right = np.array_equal(found, wanted) and (np.diff(found) >= 0).all()
    return "" if right else "rows are in blocks where their hash does not belong"


def _inspect_pending(stream: Stream, rows: pa.Table, known: BucketInspection) -> BucketInspection:
    # A revision that does not tell its place may be of any.
    ends = (LOWEST, HIGHEST) if rows[stream.order].null_count else _range_or_everything(rows, stream.order)
    wrong = not np.array_equal(rows["_ordinal"].to_numpy(), np.arange(rows.num_rows))
    return replace(known, figures=BucketFigures(rows.num_rows, *ends), disordered=wrong, counting=rows.num_rows)


def _columns_added_later(of: Stream | ResultShape, role: Role) -> set[str]:
    """The columns that stored rows may lack, since they were declared later."""
    if isinstance(of, ResultShape):
        return set()
    may_lack = {name for column in of.names for name in (column, old_column(column))}
    return may_lack - of.required if role in (Role.BASE, Role.COPY) else may_lack


def _schema_mismatch(wanted: pa.Schema, found: pa.Schema, may_lack: Collection[str] = ()) -> str:
    """Why stored rows are not of the wanted columns; empty if they are."""
    for field in wanted:
        if field.name in found.names:
            kind = found.field(field.name).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if kind != field.type:
                return f"column {field.name} is of {kind}, and declared as {field.type}"
        elif field.name not in may_lack:
            return f"column {field.name} is not there"
    return ""


def _range_or_everything(rows: pa.Table, name: str) -> Bounds:
    return value_range(rows[name]) or (LOWEST, HIGHEST)


def is_ordered(rows: pa.Table, stream: Stream, layout: Layout) -> bool:
    """Whether rows are sorted as their layout requires."""
    if layout is Layout.PLAIN or rows.num_rows < 2:
        return True
    rises = np.diff(order_values(rows[stream.order])) >= 0
    if layout is Layout.RANDOMIZED and not rises.all():  # an inline bucket is in stream order
        blocks = block_numbers(sampling_hashes(rows, stream.key))
        return bool((rises | (np.diff(blocks) > 0)).all())
    if layout is not Layout.GROUPED:
        return bool(rises.all())
    numbers = rows.select(list(stream.group)).append_column("_row", pa.array(np.arange(rows.num_rows)))
    groups = numbers.group_by(list(stream.group)).aggregate([("_row", "min"), ("_row", "max"), ("_row", "count")])
    first, last, count = (groups[f"_row_{name}"].to_numpy() for name in ("min", "max", "count"))
    rises[first[first > 0] - 1] = True
    return bool(rises.all() and np.array_equal(last - first + 1, count))


def _columns_without_bloom(stream: Stream, bucket: Bucket, data: bytes) -> tuple[str, ...]:
    """The key columns without Bloom filters, if the key does not tell the place of a row."""
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
    return tuple(name for name in stream.key if name not in filtered and supports_bloom_filter(schema.field(name).type))


def _inspect_overlay(stream: Stream, rows: pa.Table, known: BucketInspection) -> BucketInspection:
    masked, brought = rows.filter(rows[MASKS]), rows.filter(rows[LIVE])
    taken_from = masked.select([old_column(name) for name in stream.group]).rename_columns(list(stream.group))
    figures = BucketFigures.of_overlay(
        rows.num_rows,
        groups_in(pa.concat_tables([taken_from, brought.select(list(stream.group))]), stream.group),
        _range_or_everything(rows, REVISION),
        _range_or_everything(masked, old_column(stream.order)) if masked.num_rows else None,
        _range_or_everything(brought, stream.order) if brought.num_rows else None,
    )
    return replace(known, figures=figures, counting=brought.num_rows)


def _mask_hits(
    context: InspectionContext, stream: Stream, bucket: Bucket, rows: pa.Table, cache: dict[int, pa.Table]
) -> tuple[int | None, pa.Table]:
    """How many rows of a live base bucket do not count, and its rows at places of masks."""
    if context.overlays is None or bucket.removed_in is not None:
        return None, MASK_HIT_SCHEMA.empty_table()
    if any(rows[name].null_count for name in stream.required):
        return None, MASK_HIT_SCHEMA.empty_table()
    columns = identity_columns(stream)
    masks = _masks_near(context, stream, bucket, cache)
    left, right = match_rows(rows.select(columns), masks.select(columns), columns)
    numbers = masks[REVISION].to_numpy()[right]
    places = order_values(rows[stream.order])
    gone = places < (LOWEST if context.aged_to is None else context.aged_to)
    gone[left[numbers > bucket.floor]] = True
    _, first = np.unique(left, return_index=True)
    hits = pa.table([pa.array(numbers[first]), pa.array(np.full(len(first), bucket.floor))], schema=MASK_HIT_SCHEMA)
    return int(gone.sum()), hits


def _masks_near(context: InspectionContext, stream: Stream, bucket: Bucket, cache: dict[int, pa.Table]) -> pa.Table:
    """The masks of overlays that may mask a row of the bucket; read once for neighbouring buckets."""
    near = {
        each.bucket.bucket_id: each
        for each in context.overlays or ()
        if each.bucket.masks and each.bucket.masks[0] <= bucket.vs_max and each.bucket.masks[1] >= bucket.vs_min
    }
    for bucket_id in [each for each in cache if each not in near]:
        del cache[bucket_id]
    for bucket_id, source in near.items():
        if bucket_id not in cache:
            cache[bucket_id] = mask_rows(stream, read_overlays(stream, context.warehouse, [source]))
    empty = mask_rows(stream, read_overlays(stream, context.warehouse, []))
    return pa.concat_tables([empty, *cache.values()])


def mask_rows(stream: Stream, overlays: pa.Table) -> pa.Table:
    """Keys and places that overlays mask, with the revision of each mask."""
    rows = overlays.filter(overlays[MASKS])
    columns = {name: rows[old_column(name)] for name in identity_columns(stream)}
    return pa.table({**columns, REVISION: rows[REVISION]})


def _inspect_results(role: Role, rows: pa.Table, known: BucketInspection) -> BucketInspection:
    needed = [VS, EVALUATION] if role in (Role.FEED, Role.PARTS, Role.LINEAGE) else [VS, VE, EVALUATION]
    if nulls := tuple(name for name in needed if rows[name].null_count):
        return replace(known, nulls=nulls)
    begins, ends = value_range(rows[VS]), value_range(rows[VE if VE in rows.column_names else VS])
    if begins is None:
        return replace(known, fault="there are no rows in it")
    figures = BucketFigures(rows.num_rows, *begins, ends=ends)
    if role is Role.LINEAGE and (extent := lineage_extent(rows)) is not None:
        figures = replace(figures, vs_min=extent[0], vs_max=extent[1])
    return replace(known, figures=figures, counting=rows.num_rows)
