"""Scans: the index names the buckets, Spark is given exactly those with a declared schema, and filters inside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from errata.archive.warehouse import Warehouse
from errata.archive.wire import conformed, unpacked
from errata.catalog import buckets
from errata.catalog.open import Catalog
from errata.catalog.streams import Standing
from errata.intake.arrow_types import arrow_schema
from errata.model.bucket import Bucket
from errata.model.interval import EVERYTHING, HIGHEST, LOWEST, Interval
from errata.model.stream import Stream
from errata.spark.types import ddl

Group = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """What is asked of an archive: the stream as of a commit, an interval of its order field, some of its groups."""

    standing: Standing
    commit_id: int
    interval: Interval = EVERYTHING
    groups: frozenset[Group] | None = None
    """Values of the group columns as text; None for all."""


def candidates(catalog: Catalog, scan: Scan) -> list[Bucket]:
    """The buckets that can hold what is asked for: all that a scan will open."""
    return buckets.visible(catalog, scan.standing.stream_id, scan.commit_id, scan.interval, scan.groups)


def scan_rows(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, scan: Scan, found: Sequence[Bucket] | None = None
) -> DataFrame:
    """The rows asked for, in no particular order; `found` are the scan's candidates, if they are at hand."""
    opened = candidates(catalog, scan) if found is None else found
    rows = open_buckets(session, catalog, warehouse, scan.standing.stream, opened)
    for condition in _conditions(scan):
        rows = rows.where(condition)
    return rows


def open_buckets(
    session: SparkSession, catalog: Catalog, warehouse: Warehouse, stream: Stream, found: Sequence[Bucket]
) -> DataFrame:
    """All rows of the buckets; columns that were added later are NULL in older ones."""
    paths = [warehouse.spark_path(bucket.path) for bucket in found if bucket.path is not None]
    inline = [bucket.bucket_id for bucket in found if bucket.inline]
    frames = []
    if paths:
        frames.append(session.read.schema(ddl(stream)).parquet(*paths))
    if inline or not paths:
        frames.append(session.createDataFrame(_inline_rows(catalog, stream, inline), ddl(stream)))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _inline_rows(catalog: Catalog, stream: Stream, bucket_ids: Sequence[int]) -> pa.Table:
    schema = arrow_schema(stream)
    data = buckets.inline_data(catalog, bucket_ids)
    return pa.concat_tables([schema.empty_table(), *(conformed(unpacked(data[each]), schema) for each in bucket_ids)])


def _conditions(scan: Scan) -> list[Column]:
    stream, interval = scan.standing.stream, scan.interval
    order = sf.col(stream.order)

    def moment(value: int) -> Column:
        return sf.timestamp_micros(sf.lit(value)) if stream.timed else sf.lit(value)

    conditions = []
    if interval.start > LOWEST:
        conditions.append(order >= moment(interval.start))
    if interval.end < HIGHEST:
        conditions.append(order < moment(interval.end))
    if scan.groups is not None:
        conditions.append(_of_groups(stream, scan.groups))
    return conditions


def _of_groups(stream: Stream, groups: frozenset[Group]) -> Column:
    """The group columns equal one of the groups, compared as values, not as text, so that Parquet can prune by it."""
    found = sf.lit(False)
    for group in sorted(groups, key=repr):
        same = sf.lit(True)
        for name, text in zip(stream.group, group, strict=True):
            kind = str(stream.column(name).type)
            value = sf.lit(None) if text is None else sf.lit(text).cast(kind)
            same &= sf.col(name).eqNullSafe(value) if text is None else sf.col(name) == value
        found |= same
    return found
