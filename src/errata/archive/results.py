"""Results of queries in their archives: written as buckets, and read as frames or tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from errata.archive.masked_results import (
    concerned,
    frame_without_masked,
    masks_frame,
    masks_in,
    parted,
    without_masked,
)
from errata.archive.result_rows import first_rows, result_schema
from errata.archive.tasks import by_access, files_frame, opened, rows_in
from errata.archive.warehouse import Warehouse
from errata.archive.wire import conformed, unpacked
from errata.archive.written import as_arrow, as_parquet, checksum, cut
from errata.catalog import buckets
from errata.catalog.open import Catalog
from errata.catalog.published import Published
from errata.engine.frames import selected
from errata.engine.plans.rows import instant, quoted
from errata.engine.types import arrow_ddl
from errata.engine.values import as_frame
from errata.model.bucket import INLINE_BYTES, Bucket, Ends, Groups, NewBucket, Role, masking
from errata.model.interval import EVERYTHING, Interval
from errata.model.results import RUN, VE, VS, Shape

BUCKET_ROWS = 500_000
"""A bucket of results has at most so many rows."""

ANSWER = (Role.BASE, Role.OPEN, Role.TIP)
"""The buckets that together are the published answer."""


@dataclass(frozen=True, slots=True)
class ResultWriter:
    """Writes buckets of a query's results, on whatever machine a task runs."""

    warehouse: Warehouse
    query: str
    timed: bool
    bucket_rows: int = BUCKET_ROWS

    def write(self, role: Role, rows: pa.Table, unmasked: int | None = None) -> list[NewBucket]:
        """The buckets of these rows, in order of their vs. `unmasked`: no mask of an evaluation up to it takes any of
        them back."""
        if not rows.num_rows:
            return []
        ordered = rows if rows.num_rows == 1 else rows.take(pc.sort_indices(rows[VS]))
        # Partial aggregates have no lifetime: they are as old as the result that they are of.
        end = VE if VE in rows.column_names else VS
        made = []
        for each in cut(iter([ordered]), self.bucket_rows):
            begins = (first_rows(each) if role is Role.LINEAGE else None) or _ends(each, VS)
            bucket = self._bucket(role, each, begins, _ends(each, end))
            numbers = _ends(each, RUN) if role is Role.MASK else None
            made.append(bucket if numbers is None else replace(bucket, revisions=numbers))
        return made if unmasked is None else [replace(each, floor=unmasked) for each in made]

    def write_state(self, rows: pa.Table, until: int) -> list[NewBucket]:
        """One bucket of what a strategy keeps, whatever its columns."""
        return [self._bucket(Role.STATE, rows, (until, until), (until, until))]

    def _bucket(self, role: Role, rows: pa.Table, begins: tuple[int, int], ends: tuple[int, int]) -> NewBucket:
        if rows.nbytes <= 4 * INLINE_BYTES:
            data = as_arrow(rows)
            if len(data) <= INLINE_BYTES:
                return self._told(role, rows, data, begins, ends, None)
        data = as_parquet(rows)
        path = self.warehouse.name_in(self.query, begins[0] if self.timed else None, role.value)
        self.warehouse.write(path, data)
        return self._told(role, rows, data, begins, ends, path)

    def _told(
        self, role: Role, rows: pa.Table, data: bytes, begins: tuple[int, int], ends: tuple[int, int], path: str | None
    ) -> NewBucket:
        return NewBucket(
            role,
            rows.num_rows,
            len(data),
            *begins,
            Groups(),
            checksum(data),
            path=path,
            data=data if path is None else None,
            ends=ends,
        )


def _ends(rows: pa.Table, name: str) -> Ends:
    ends = pc.min_max(rows[name])
    return ends["min"].as_py(), ends["max"].as_py()


def buckets_beginning(catalog: Catalog, of: Published, commit_id: int, *intervals: Interval) -> list[Bucket]:
    """Buckets of the published answer that can hold results which begin in one of the intervals, or of all without any,
    and those that mask some."""
    at = (catalog, of.stream_id, commit_id)
    found = buckets.meeting(*at, intervals or (EVERYTHING,), ANSWER)
    # Mostly there are none, and to ask for all of them is the shortest question.
    return [*found, *masking(buckets.visible(*at, role=Role.MASK), found)] if found else found


def buckets_counting(catalog: Catalog, of: Published, commit_id: int, *instants: Interval) -> list[Bucket]:
    """Buckets of the published answer that can hold results which count at an instant of one of the intervals, and
    those that mask some."""
    at = (catalog, of.stream_id, commit_id, instants)
    found = buckets.meeting_instants(*at, ANSWER)
    return [*found, *masking(buckets.meeting_instants(*at, (Role.MASK,)), found)] if found else found


def frame_of(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, shape: Shape, found: Sequence[Bucket]
) -> DataFrame:
    """The results in some buckets, without those that masks among the buckets take back."""
    schema = result_schema(shape)
    given, declared = (session, catalog, warehouse), arrow_ddl(schema)
    results, masks = parted(found)
    some, free = concerned(results, masks)
    if not some:
        return opened(*given, free, schema, declared)
    rows = frame_without_masked(opened(*given, some, schema, declared), masks_frame(*given, shape, masks), shape)
    return rows.unionByName(opened(*given, free, schema, declared)) if free else rows


def table_of(catalog: Catalog, warehouse: Warehouse, shape: Shape, found: Iterable[Bucket]) -> pa.Table:
    """The same in memory: for those that are known to be few."""
    schema = result_schema(shape)
    results, masks = parted(found)
    some, free = concerned(results, masks)
    rows = rows_in(catalog, warehouse, schema, free)
    if not some:
        return rows
    counting = without_masked(
        rows_in(catalog, warehouse, schema, some), masks_in(catalog, warehouse, shape, masks), shape
    )
    return pa.concat_tables([rows, counting])


def read_new(warehouse: Warehouse, bucket: NewBucket) -> pa.Table:
    """The rows of a bucket that has been written and is not yet visible."""
    return unpacked(bucket.data) if bucket.data is not None else warehouse.read_table(bucket.path or "")


def frame_of_new(
    session: SparkSession, warehouse: Warehouse, schema: pa.Schema, some: Iterable[NewBucket]
) -> DataFrame:
    """The rows of buckets that have been written and are not yet visible."""
    declared = arrow_ddl(schema)
    by_name, others = by_access(session, warehouse, some)
    here = [conformed(read_new(warehouse, each), schema) for each in others]
    rows = as_frame(session, pa.concat_tables([schema.empty_table(), *here]), declared)
    frame = files_frame(session, warehouse, by_name, declared)
    return rows if frame is None else rows.unionByName(frame)


def as_source(rows: DataFrame, shape: Shape, fields: Sequence[str]) -> DataFrame:
    """Results as a plan reads them that reads the query: under the names of the query's fields."""
    named = (f"{quoted(kept)} AS {quoted(name)}" for kept, name in zip(shape.names, fields, strict=True))
    return selected(rows, *named, VS, VE)


def beginning(rows: DataFrame, interval: Interval) -> DataFrame:
    """Those that begin in the interval."""
    return rows.where(f"{VS} >= {instant(interval.start)} AND {VS} < {instant(interval.end)}")


def counting(rows: DataFrame, instants: Interval) -> DataFrame:
    """Those that count at an instant of the interval."""
    return rows.where(f"{VS} < {instant(instants.end)} AND {VE} > {instant(instants.start)}")


def live_at(rows: pa.Table, at: int) -> pa.Table:
    """Those that count at an instant."""
    begins = rows[VS].combine_chunks().to_numpy(zero_copy_only=False)
    ends = rows[VE].combine_chunks().to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(np.logical_and(begins <= at, at < ends)))
