"""Results of queries in their archives: written as buckets, read as frames or tables, without those that are masked.

Buckets are never rewritten for a correction. A correction adds masks: a result counts unless a mask has its key, its
beginning and a later evaluation's number. The results that a correction publishes bear the correction's own number, so
its masks do not affect them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from errata.archive.bucket_files import parquet_bytes, store_rows
from errata.archive.bucket_frames import LOCAL_ROWS, bucket_frame, files_frame, read_buckets, split_by_access
from errata.archive.bucket_writer import cut_into_buckets
from errata.archive.overlays import BucketSource, bucket_sources
from errata.archive.schemas import conform, lineage_extent, result_mask_schema, result_schema, unpack_table
from errata.archive.tables import key_numbers, latest_indexes, masked_rows, match_rows
from errata.catalog import buckets
from errata.catalog.database import Catalog
from errata.catalog.result_archives import ResultArchive
from errata.declare.warehouse import Warehouse
from errata.engine.frames import arrow_ddl, broadcast_frame, frame_of_rows, join_sql, select_sql
from errata.engine.plans.node_rows import instant_sql, quote_name
from errata.model.bucket import MAX_INLINE_BYTES, Bounds, Bucket, Groups, NewBucket, Role, relevant_masks
from errata.model.results import EVALUATION, VE, VS, ResultShape
from errata.model.time import EVERYTHING, HIGHEST, LOWEST, Interval

_MASK_PREFIX = "_masked_"


def split_masks(found: Iterable[Bucket]) -> tuple[list[Bucket], list[Bucket]]:
    """Buckets of results, and those of masks among them."""
    results: list[Bucket] = []
    masks: list[Bucket] = []
    for each in found:
        (masks if each.role is Role.MASK else results).append(each)
    return results, masks


def split_by_masks(results: Iterable[Bucket], masks: Sequence[Bucket]) -> tuple[list[Bucket], list[Bucket]]:
    """Buckets in which some results may be masked, and those in which none is."""
    some: list[Bucket] = []
    free: list[Bucket] = []
    for each in results:
        (some if any(mask.may_mask(each) for mask in masks) else free).append(each)
    return some, free


def read_masks(catalog: Catalog, warehouse: Warehouse, shape: ResultShape, masks: Iterable[Bucket]) -> pa.Table:
    """The masks in some buckets."""
    return read_buckets(catalog, warehouse, result_mask_schema(shape), masks)


def read_masks_between(
    catalog: Catalog, warehouse: Warehouse, shape: ResultShape, masks: Iterable[Bucket], low: int, high: int
) -> pa.Table:
    """The masks in some buckets of results that begin from `low` to `high`, both included."""
    schema = result_mask_schema(shape)
    found = [schema.empty_table()]
    for each in bucket_sources(catalog, masks):
        rows = conform(each.read_between(warehouse, schema.names, VS, low, high), schema)
        begins = rows[VS].to_numpy()
        found.append(rows.filter(pa.array((begins >= low) & (begins <= high))))
    return pa.concat_tables(found)


def drop_masked(rows: pa.Table, masks: pa.Table, shape: ResultShape) -> pa.Table:
    """The rows that no mask masks."""
    if not masks.num_rows or not rows.num_rows:
        return rows
    names = [VS, *shape.key]
    both = normalize_floats(rows, names), normalize_floats(masks, names)
    gone = masked_rows(*both, names, masks[EVALUATION].to_numpy(), rows[EVALUATION].to_numpy())
    return rows.filter(pa.array(~gone)) if gone.any() else rows


def match_results(
    one: pa.Table, other: pa.Table, shape: ResultShape, also: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """The index pairs of rows about the same result: equal in key and beginning, and in the columns `also`. NULL equals
    NULL, NaN equals NaN, and -0.0 equals 0.0."""
    names = [*also, VS, *shape.key]
    return match_rows(normalize_floats(one, names), normalize_floats(other, names), names)


def normalize_floats(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Some columns, with one bit pattern for each floating value: one NaN, and 0.0 for -0.0."""
    columns = [rows[name] for name in names]
    return pa.table([_normalize_float(each) if pa.types.is_floating(each.type) else each for each in columns], names)


def _normalize_float(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), pc.add(column, pa.scalar(0.0, kind)))


def latest_masks(masks: pa.Table, shape: ResultShape) -> pa.Table:
    """The latest mask of each result, which masks all that the earlier ones do. It gets the greatest end of theirs, so
    that it is found wherever they were."""
    numbers, ends = key_numbers(masks.select([VS, *shape.key])), masks[VE].to_numpy()
    greatest = np.full(len(numbers), LOWEST)
    np.maximum.at(greatest, numbers, ends)
    latest = latest_indexes(numbers, masks[EVALUATION].to_numpy())
    chosen = masks.take(pa.array(latest))
    return chosen.set_column(masks.schema.get_field_index(VE), VE, pa.array(greatest[numbers[latest]]))


def latest_rows(rows: pa.Table, shape: ResultShape) -> pa.Table:
    """Of rows that several evaluations wrote about results, the latest of each result."""
    numbers = key_numbers(rows.select([VS, *shape.key]))
    return rows.take(pa.array(latest_indexes(numbers, rows[EVALUATION].to_numpy())))


def masks_frame(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, shape: ResultShape, masks: Sequence[Bucket]
) -> DataFrame:
    """The masks in some buckets as a frame."""
    schema = result_mask_schema(shape)
    if sum(each.rows for each in masks) > LOCAL_ROWS:
        return bucket_frame(session, catalog, warehouse, masks, schema)
    return broadcast_frame(frame_of_rows(session, read_masks(catalog, warehouse, shape, masks), arrow_ddl(schema)))


def drop_masked_frame(rows: DataFrame, masks: DataFrame, shape: ResultShape) -> DataFrame:
    """The rows that no mask masks."""
    renamed = select_sql(
        masks, *(f"{quote_name(name)} AS {quote_name(_MASK_PREFIX + name)}" for name in (*shape.key, VS, EVALUATION))
    )
    same = [f"{VS} = {quote_name(_MASK_PREFIX + VS)}", f"{EVALUATION} < {quote_name(_MASK_PREFIX + EVALUATION)}"]
    same += [f"{quote_name(name)} <=> {quote_name(_MASK_PREFIX + name)}" for name in shape.key]
    return join_sql(rows, renamed, " AND ".join(same), "left_anti")


# Writing results.

RESULT_BUCKET_ROWS = 500_000
"""Rows of a bucket of results, at most."""

PUBLISHED_ROLES = (Role.BASE, Role.OPEN, Role.TIP)
"""The roles of the buckets that together are the published results."""


@dataclass(frozen=True, slots=True)
class ResultWriter:
    """Writes buckets of a query's results, on whatever machine a task runs."""

    warehouse: Warehouse
    query: str
    timed: bool
    bucket_rows: int = RESULT_BUCKET_ROWS

    def write(self, role: Role, rows: pa.Table, unmasked: int | None = None) -> list[NewBucket]:
        """Writes these rows, sorted by beginning. `unmasked`: no mask of an evaluation up to this one masks any of
        them."""
        if not rows.num_rows:
            return []
        ordered = rows if rows.num_rows == 1 else rows.take(pc.sort_indices(rows[VS]))
        # Partial aggregates have no end of their own.
        end = VE if VE in rows.column_names else VS
        made = []
        for each in cut_into_buckets(iter([ordered]), self.bucket_rows):
            begins = (lineage_extent(each) if role is Role.LINEAGE else None) or _column_range(each, VS)
            bucket = self._bucket(role, each, begins, _column_range(each, end))
            numbers = _column_range(each, EVALUATION) if role is Role.MASK else None
            made.append(bucket if numbers is None else replace(bucket, revisions=numbers))
        return made if unmasked is None else [replace(each, floor=unmasked) for each in made]

    def write_state(self, rows: pa.Table, until: int) -> list[NewBucket]:
        """Writes the state that a strategy keeps, of any columns, as one bucket."""
        return [self._bucket(Role.STATE, rows, (until, until), (until, until))]

    def _bucket(self, role: Role, rows: pa.Table, begins: Bounds, ends: Bounds) -> NewBucket:
        low, high = begins
        name = partial(self.warehouse.name_in, self.query, low if self.timed else None, role.value)
        described = partial(NewBucket, role, rows.num_rows, vs_min=low, vs_max=high, groups=Groups(), ends=ends)
        return store_rows(self.warehouse, name, rows, described, MAX_INLINE_BYTES, parquet_bytes)


def _column_range(rows: pa.Table, name: str) -> Bounds:
    ends = pc.min_max(rows[name])
    return ends["min"].as_py(), ends["max"].as_py()


def buckets_by_start(catalog: Catalog, of: ResultArchive, commit_id: int, *intervals: Interval) -> list[Bucket]:
    """Buckets of the published results that can hold some which begin in one of the intervals (all, if none is given),
    and the buckets with masks of such."""
    at = (catalog, of.stream_id, commit_id)
    found = buckets.overlapping_buckets(*at, intervals or (EVERYTHING,), PUBLISHED_ROLES)
    # There are mostly no masks, and asking for all of them is the cheapest query.
    return [*found, *relevant_masks(buckets.visible_buckets(*at, role=Role.MASK), found)] if found else found


def buckets_by_instant(catalog: Catalog, of: ResultArchive, commit_id: int, *instants: Interval) -> list[Bucket]:
    """Buckets of the published results that can hold some which count at an instant of one of the intervals, and the
    buckets with masks of such."""
    at = (catalog, of.stream_id, commit_id, instants)
    found = buckets.valid_result_buckets(*at, PUBLISHED_ROLES)
    return [*found, *relevant_masks(buckets.valid_result_buckets(*at, (Role.MASK,)), found)] if found else found


def results_frame(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, shape: ResultShape, found: Sequence[Bucket]
) -> DataFrame:
    """The results in some buckets, without those that masks among these buckets mask."""
    schema = result_schema(shape)
    given = (session, catalog, warehouse)
    results, masks = split_masks(found)
    some, free = split_by_masks(results, masks)
    if not some:
        return bucket_frame(*given, free, schema)
    rows = drop_masked_frame(bucket_frame(*given, some, schema), masks_frame(*given, shape, masks), shape)
    return rows.unionByName(bucket_frame(*given, free, schema)) if free else rows


def results_table(catalog: Catalog, warehouse: Warehouse, shape: ResultShape, found: Iterable[Bucket]) -> pa.Table:
    """The same in memory, for results that are known to be few."""
    schema = result_schema(shape)
    results, masks = split_masks(found)
    some, free = split_by_masks(results, masks)
    rows = read_buckets(catalog, warehouse, schema, free)
    if not some:
        return rows
    counting = drop_masked(
        read_buckets(catalog, warehouse, schema, some), read_masks(catalog, warehouse, shape, masks), shape
    )
    return pa.concat_tables([rows, counting])


def read_new_bucket(warehouse: Warehouse, bucket: NewBucket) -> pa.Table:
    """The rows of a bucket that has been written and is not yet visible."""
    return unpack_table(bucket.data) if bucket.data is not None else warehouse.read_table(bucket.path or "")


def new_buckets_frame(
    session: SparkSession, warehouse: Warehouse, schema: pa.Schema, some: Iterable[NewBucket]
) -> DataFrame:
    """The rows of buckets that have been written and are not yet visible."""
    declared = arrow_ddl(schema)
    by_name, others = split_by_access(session, warehouse, some)
    here = [conform(read_new_bucket(warehouse, each), schema) for each in others]
    rows = frame_of_rows(session, pa.concat_tables([schema.empty_table(), *here]), declared)
    frame = files_frame(session, warehouse, by_name, declared)
    return rows if frame is None else rows.unionByName(frame)


def as_plan_source(rows: DataFrame, shape: ResultShape, fields: Sequence[str]) -> DataFrame:
    """Results as another query's plan reads them: under the names of the query's fields."""
    named = (f"{quote_name(kept)} AS {quote_name(name)}" for kept, name in zip(shape.names, fields, strict=True))
    return select_sql(rows, *named, VS, VE)


def starting_in(rows: DataFrame, interval: Interval) -> DataFrame:
    """The results that begin in the interval."""
    return rows.where(f"{VS} >= {instant_sql(interval.start)} AND {VS} < {instant_sql(interval.end)}")


def valid_in(rows: DataFrame, instants: Interval) -> DataFrame:
    """The results that count at an instant of the interval."""
    return rows.where(f"{VS} < {instant_sql(instants.end)} AND {VE} > {instant_sql(instants.start)}")


def valid_at(rows: pa.Table, at: int) -> pa.Table:
    """The results that count at an instant."""
    begins = rows[VS].combine_chunks().to_numpy(zero_copy_only=False)
    ends = rows[VE].combine_chunks().to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(np.logical_and(begins <= at, at < ends)))


# Published results of some intervals, read in memory: what a correction compares its results with.


def published_starting_in(
    catalog: Catalog, warehouse: Warehouse, of: ResultArchive, spans: Sequence[Interval]
) -> pa.Table:
    """The results that begin in one of the spans, which lie apart and in order."""
    found = buckets_by_start(catalog, of, of.last.commit_id, *spans) if spans else []
    return _read_published(catalog, warehouse, of, found, spans, VS)


def published_valid_in(
    catalog: Catalog, warehouse: Warehouse, of: ResultArchive, spans: Sequence[Interval]
) -> pa.Table:
    """The results that count at an instant of one of the spans, which lie apart and in order."""
    found = buckets_by_instant(catalog, of, of.last.commit_id, *spans)
    return _read_published(catalog, warehouse, of, found, spans, VE)


def _read_published(
    catalog: Catalog, warehouse: Warehouse, of: ResultArchive, found: list[Bucket], spans: Sequence[Interval], by: str
) -> pa.Table:
    schema = result_schema(of.shape)
    results, masks = split_masks(found)
    parts = [schema.empty_table()]
    for each in bucket_sources(catalog, results):
        rows = conform(_read_candidates(each, warehouse, schema.names, spans, by), schema)
        parts.append(_filter_spans(rows, spans, by))
    rows = pa.concat_tables(parts)
    return drop_masked(rows, read_masks(catalog, warehouse, of.shape, masks), of.shape) if masks else rows


def _read_candidates(
    source: BucketSource, warehouse: Warehouse, names: Sequence[str], spans: Sequence[Interval], by: str
) -> pa.Table:
    """The rows of a bucket, of a file at least the row groups that can have wanted ones."""
    if by == VS:
        return source.read_between(warehouse, names, VS, spans[0].start, spans[-1].end - 1)
    return source.read_between(warehouse, names, VE, spans[0].start + 1, HIGHEST)


def _filter_spans(rows: pa.Table, spans: Sequence[Interval], by: str) -> pa.Table:
    begins, ends = rows[VS].to_numpy(), rows[VE].to_numpy()
    chosen = np.zeros(rows.num_rows, np.bool_)
    for each in spans:
        chosen |= (begins < each.end) & ((begins >= each.start) if by == VS else (ends > each.start))
    return rows if chosen.all() else rows.filter(pa.array(chosen))
