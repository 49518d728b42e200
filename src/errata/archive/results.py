"""Results of queries in their archives: written as buckets, and read as frames or tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from errata.archive.masks import sources
from errata.archive.scan import opened
from errata.archive.warehouse import Warehouse
from errata.archive.wire import conformed, unpacked
from errata.archive.written import as_arrow, as_parquet, checksum, cut
from errata.catalog import buckets
from errata.catalog.open import Catalog
from errata.catalog.published import Published
from errata.model.bucket import INLINE_BYTES, Bucket, Groups, NewBucket, Role
from errata.model.interval import EVERYTHING, Interval
from errata.model.results import VE, VS, Shape
from errata.spark.types import arrow_ddl
from errata.spark.values import as_frame

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

    def write(self, role: Role, rows: pa.Table) -> list[NewBucket]:
        """The buckets of these rows, in order of their vs."""
        if not rows.num_rows:
            return []
        ordered = rows if rows.num_rows == 1 else rows.take(pc.sort_indices(rows[VS]))
        return [
            self._bucket(role, each, _ends(each, VS), _ends(each, VE))
            for each in cut(iter([ordered]), self.bucket_rows)
        ]

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


def _ends(rows: pa.Table, name: str) -> tuple[int, int]:
    ends = pc.min_max(rows[name])
    return ends["min"].as_py(), ends["max"].as_py()


def buckets_beginning(catalog: Catalog, of: Published, commit_id: int, interval: Interval = EVERYTHING) -> list[Bucket]:
    """Buckets of the published answer that can hold results which begin in the interval."""
    return [each for role in ANSWER for each in buckets.visible(catalog, of.stream_id, commit_id, interval, role=role)]


def buckets_counting(catalog: Catalog, of: Published, commit_id: int, instants: Interval) -> list[Bucket]:
    """Buckets of the published answer that can hold results which count at an instant of the interval."""
    return [each for role in ANSWER for each in buckets.counting(catalog, of.stream_id, commit_id, instants, role)]


def frame_of(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, schema: pa.Schema, found: Sequence[Bucket]
) -> DataFrame:
    """The rows of some buckets."""
    return opened(session, catalog, warehouse, found, schema, arrow_ddl(schema))


def table_of(catalog: Catalog, warehouse: Warehouse, schema: pa.Schema, found: Iterable[Bucket]) -> pa.Table:
    """The same in memory: for those that are known to be few."""
    read = [conformed(each.read(warehouse), schema) for each in sources(catalog, found)]
    return pa.concat_tables([schema.empty_table(), *read])


def read_new(warehouse: Warehouse, bucket: NewBucket) -> pa.Table:
    """The rows of a bucket that has been written and is not yet visible."""
    return unpacked(bucket.data) if bucket.data is not None else warehouse.read_table(bucket.path or "")


def frame_of_new(
    session: SparkSession, warehouse: Warehouse, schema: pa.Schema, some: Iterable[NewBucket]
) -> DataFrame:
    """The rows of buckets that have been written and are not yet visible."""
    paths, tables = [], [schema.empty_table()]
    for each in some:
        if each.path is not None:
            paths.append(warehouse.spark_path(each.path))
        elif each.data is not None:
            tables.append(conformed(unpacked(each.data), schema))
    rows = as_frame(session, pa.concat_tables(tables), arrow_ddl(schema))
    return rows if not paths else rows.unionByName(session.read.schema(arrow_ddl(schema)).parquet(*paths))


def as_source(rows: DataFrame, shape: Shape, fields: Sequence[str]) -> DataFrame:
    """Results as a plan reads them that reads the query: under the names of the query's fields."""
    named = [sf.col(kept).alias(name) for kept, name in zip(shape.names, fields, strict=True)]
    return rows.select(*named, VS, VE)


def beginning(rows: DataFrame, interval: Interval) -> DataFrame:
    """Those that begin in the interval."""
    return rows.where(f"{VS} >= {interval.start}L AND {VS} < {interval.end}L")


def counting(rows: DataFrame, instants: Interval) -> DataFrame:
    """Those that count at an instant of the interval."""
    return rows.where(f"{VS} < {instants.end}L AND {VE} > {instants.start}L")


def live_at(rows: pa.Table, at: int) -> pa.Table:
    """Those that count at an instant."""
    begins = rows[VS].combine_chunks().to_numpy(zero_copy_only=False)
    ends = rows[VE].combine_chunks().to_numpy(zero_copy_only=False)
    return rows.filter(pa.array(np.logical_and(begins <= at, at < ends)))
