"""Rows of the archive as they will be once the revisions that wait are applied: what a merge compares late rows with.

A revision that gives its key is looked at. Of each column the last value since the row was there counts: a replacement
may give some columns only, as a merge does where the end of a row alone has changed. An insertion of a key that is
taken is refused when it is applied, and does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import order_values
from errata.archive.overlays import BucketSource, Overlays, bucket_sources, read_overlays
from errata.archive.schemas import BATCH, GIVEN, OPERATION, conform
from errata.archive.tables import is_in_sorted, key_numbers, match_rows
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
    key, names = list(stream.key), rows.column_names
    touched = np.zeros(rows.num_rows, dtype=bool)
    touched[np.unique(match_rows(rows.select(key), waiting.select(key), key)[0])] = True
    there = rows.filter(pa.array(touched))
    events = pa.concat_tables([there, waiting.select(names)])
    chain = _Chain.of(key_numbers(events.select(key)), there.num_rows, waiting[OPERATION])
    standing = chain.standing
    told = waiting[GIVEN].fill_null("")
    given = {text: set(text.split(",")) for text in pc.unique(told).to_pylist()}
    texts = told.to_numpy(zero_copy_only=False)
    columns = []
    for name in names:
        gives = np.ones(events.num_rows, dtype=bool)
        if name in stream.names:
            gives[there.num_rows :] = np.isin(texts, [text for text, some in given.items() if name in some])
        columns.append(events[name].take(pa.array(chain.latest(gives | chain.begins)[standing])))
    applied = pa.table(columns, schema=rows.schema)
    return pa.concat_tables([rows.filter(pa.array(~touched)), applied])


@dataclass(frozen=True, slots=True)
class _Chain:
    """Rows that are there, and then revisions, in their order."""

    numbers: np.ndarray
    """The number of each one's key."""
    begins: np.ndarray
    """Which bring a row: those that are there, and insertions of keys that are not taken."""
    counts: np.ndarray
    """Which say a value of the row that is there in the end, if one is: not what comes before a later deletion of the
    key, nor what is refused when it is applied."""
    standing: np.ndarray
    """For each key, in order of the numbers, whether a row is there in the end."""

    @classmethod
    def of(cls, numbers: np.ndarray, there: int, operations: pa.ChunkedArray) -> _Chain:
        brings, deletes = np.ones(len(numbers), dtype=bool), np.zeros(len(numbers), dtype=bool)
        brings[there:] = pc.equal(operations, Op.INSERT.value).to_numpy()
        deletes[there:] = pc.equal(operations, Op.DELETE.value).to_numpy()
        order = np.lexsort((np.arange(len(numbers)), numbers))
        turns = order[(brings | deletes)[order]]
        follows = np.zeros(len(turns), dtype=bool)
        follows[1:] = numbers[turns][1:] == numbers[turns][:-1]
        taken = np.zeros(len(turns), dtype=bool)
        taken[1:] = follows[1:] & brings[turns][:-1]
        begins = np.zeros(len(numbers), dtype=bool)
        begins[turns] = brings[turns] & ~taken
        keys = int(numbers.max()) + 1
        last_deletion = np.full(keys, -1)
        gone = np.flatnonzero(deletes)
        last_deletion[numbers[gone]] = gone
        standing = np.zeros(keys, dtype=bool)
        ends = np.append(~follows[1:], True) if len(turns) else follows
        standing[numbers[turns][ends]] = brings[turns][ends]
        refused = brings & ~begins
        counts = (np.arange(len(numbers)) > last_deletion[numbers]) & ~refused
        return cls(numbers, begins, counts, standing)

    def latest(self, gives: np.ndarray) -> np.ndarray:
        """For each key the last of these that counts; -1 if none does."""
        found = np.full(len(self.standing), -1)
        some = np.flatnonzero(gives & self.counts)
        found[self.numbers[some]] = some
        return found


def _pending_rows(catalog: Catalog, warehouse: Warehouse, stood: StreamState) -> pa.Table:
    """The pending revisions of rows that are named by their key, in the order of their numbers, with `_op`, `_given`,
    `_batch` and `_pos`."""
    stream = stood.stream
    schema = pa.schema(
        [
            pa.field(OPERATION, pa.string()),
            pa.field(GIVEN, pa.string()),
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
            rows = rows.append_column(BATCH, pa.repeat(pa.scalar(source.bucket.batch_no, pa.int64()), rows.num_rows))
            tables.append(conform(rows, schema))
    found = pa.concat_tables(tables).combine_chunks()
    named = np.ones(found.num_rows, dtype=bool)
    for name in stream.key:
        named &= found[name].is_valid().to_numpy()
    return found if named.all() else found.filter(pa.array(named))


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
