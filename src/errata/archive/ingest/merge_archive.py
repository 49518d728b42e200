"""Rows of the archive as they will be once the revisions that wait are applied: what a merge compares late rows with.

Only whole rows are looked at: insertions, deletions, and replacements that give every column, as a merge makes them.
The last one about a key counts; but of insertions the first, since a later one finds its key taken.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import order_values
from errata.archive.overlays import BucketSource, Overlays, bucket_sources, read_overlays
from errata.archive.schemas import BATCH, GIVEN, OPERATION, conform
from errata.archive.tables import is_in_sorted, key_numbers, latest_indexes, match_rows
from errata.catalog import buckets
from errata.catalog.database import Catalog
from errata.catalog.streams import StreamState
from errata.declare.warehouse import Warehouse
from errata.intake.types import arrow_schema
from errata.model.batch import Op
from errata.model.bucket import Bucket, Role
from errata.model.stream import Stream
from errata.model.time import EVERYTHING, HIGHEST, LOWEST, Interval


def rows_at(catalog: Catalog, warehouse: Warehouse, stood: StreamState, places: np.ndarray) -> pa.Table:
    """The rows whose order field is one of these places, with `_batch` and `_pos`."""
    sought = np.unique(places)
    if not len(sought):
        return archived_rows(catalog, warehouse, stood, Interval(0, 0))
    rows = archived_rows(catalog, warehouse, stood, Interval(int(sought[0]), int(sought[-1]) + 1), sought)
    rows = rows.filter(pa.array(is_in_sorted(order_values(rows[stood.stream.order]), sought)))
    waiting = _pending_rows(catalog, warehouse, stood)
    order = waiting[stood.stream.order].cast(pa.int64()).fill_null(int(sought[0]) - 1).to_numpy()
    return _as_applied(stood.stream, rows, waiting.filter(pa.array(is_in_sorted(order, sought))))


def _as_applied(stream: Stream, rows: pa.Table, waiting: pa.Table) -> pa.Table:
    """These rows with these pending revisions, which are in the order of their numbers."""
    if not waiting.num_rows:
        return rows
    key = list(stream.key)
    numbers = key_numbers(waiting.select(key))
    inserts = pc.equal(waiting[OPERATION], Op.INSERT.value).to_numpy()
    changed = np.unique(numbers[~inserts])
    found = np.unique(match_rows(waiting.select(key), rows.select(key), key)[0])
    there = np.zeros(waiting.num_rows, dtype=bool)
    there[found] = True
    # Of keys that are only inserted the first row counts, unless the archive has one; of others the last revision.
    sequence = np.arange(waiting.num_rows)
    only = ~np.isin(numbers, changed)
    first = np.zeros(waiting.num_rows, dtype=bool)
    first[np.unique(numbers, return_index=True)[1]] = True
    last = np.zeros(waiting.num_rows, dtype=bool)
    last[latest_indexes(numbers, sequence)] = True
    stands = (only & first & ~there) | (~only & last & pc.not_equal(waiting[OPERATION], Op.DELETE.value).to_numpy())
    gone = waiting.filter(pa.array(~only))
    masked = np.zeros(rows.num_rows, dtype=bool)
    masked[np.unique(match_rows(rows.select(key), gone.select(key), key)[0])] = True
    return pa.concat_tables(
        [rows.filter(pa.array(~masked)), waiting.filter(pa.array(stands)).select(rows.column_names)]
    )


def _pending_rows(catalog: Catalog, warehouse: Warehouse, stood: StreamState) -> pa.Table:
    """The pending revisions of whole rows in the order of their numbers, with `_op`, `_batch` and `_pos`."""
    stream = stood.stream
    schema = pa.schema(
        [
            pa.field(OPERATION, pa.string()),
            *arrow_schema(stream),
            pa.field(BATCH, pa.int64()),
            pa.field(POS, pa.int64()),
        ]
    )
    tables = [schema.empty_table()]
    if stood.applied < stood.revisions:
        pending = buckets.visible_buckets(catalog, stood.stream_id, stood.changed_in, role=Role.PENDING)
        for source in bucket_sources(catalog, sorted(pending, key=lambda each: each.revision_first or 0)):
            rows = source.read(warehouse)
            whole = pc.or_(
                pc.not_equal(rows[OPERATION], Op.REPLACE.value), pc.equal(rows[GIVEN], ",".join(stream.names))
            )
            rows = rows.append_column(BATCH, pa.repeat(pa.scalar(source.bucket.batch_no, pa.int64()), rows.num_rows))
            tables.append(conform(rows.filter(whole), schema))
    return pa.concat_tables(tables).combine_chunks()


def keys_to_be_deleted(catalog: Catalog, warehouse: Warehouse, stood: StreamState) -> pa.Table:
    """The keys of rows that pending revisions delete: until these are applied, such a row is there."""
    waiting = _pending_rows(catalog, warehouse, stood)
    return waiting.filter(pc.equal(waiting[OPERATION], Op.DELETE.value)).select(list(stood.stream.key))


# Rows that are there now.


def unfrozen_rows(catalog: Catalog, warehouse: Warehouse, stood: StreamState) -> pa.Table:
    """The rows that feeds may still change: from the stable point on, and those whose end may change."""
    before = LOWEST if stood.stable is None else stood.stable
    end = stood.stream.merged.end
    interval = EVERYTHING if end is not None else Interval(start=before)
    rows = archived_rows(catalog, warehouse, stood, interval)
    rows = _as_applied(stood.stream, rows, _pending_rows(catalog, warehouse, stood))
    live = order_values(rows[stood.stream.order]) >= before
    if end is not None:
        live |= rows[end].cast(pa.int64()).fill_null(HIGHEST).to_numpy() >= before
    return rows.filter(pa.array(live))


def archived_rows(
    catalog: Catalog, warehouse: Warehouse, stood: StreamState, interval: Interval, places: np.ndarray | None = None
) -> pa.Table:
    """The live rows of an interval, with `_batch` and `_pos`. `places`: only buckets that may have one of these are
    read."""
    stream = stood.stream
    schema = pa.schema([*arrow_schema(stream), pa.field(BATCH, pa.int64()), pa.field(POS, pa.int64())])
    at = (catalog, stood.stream_id, stood.changed_in, interval)
    base = [each for each in buckets.visible_buckets(*at) if _may_have(each, places)]
    found = buckets.visible_buckets(*at, role=Role.OVERLAY) if stood.applied else []
    over = Overlays(stream, read_overlays(stream, warehouse, bucket_sources(catalog, found)))
    tables = [schema.empty_table(), conform(over.live_rows(stood.aged_to), schema)]
    for source in bucket_sources(catalog, base):
        rows = _base_rows(warehouse, source, interval, stream)
        rows = rows.filter(pa.array(~over.masked(rows, source.bucket.floor)))
        tables.append(conform(rows, schema))
    whole = pa.concat_tables(tables)
    order = order_values(whole[stream.order])
    inside = (order >= interval.start) & ((order < interval.end) | (interval.end == HIGHEST))
    if stood.aged_to is not None:
        inside &= order >= stood.aged_to
    return whole.filter(pa.array(inside))


def _may_have(bucket: Bucket, places: np.ndarray | None) -> bool:
    if places is None:
        return True
    return bool(np.searchsorted(places, bucket.vs_min) < np.searchsorted(places, bucket.vs_max, side="right"))


def _base_rows(warehouse: Warehouse, source: BucketSource, interval: Interval, stream: Stream) -> pa.Table:
    names = [*stream.names, BATCH, POS]
    read = partial(source.read_between, warehouse, names, stream.order)
    rows = source.read(warehouse, names) if interval == EVERYTHING else read(interval.start, interval.end)
    if BATCH not in rows.column_names:
        batch = pa.repeat(pa.scalar(source.bucket.batch_no, pa.int64()), rows.num_rows)
        rows = rows.append_column(BATCH, batch)
    return rows
