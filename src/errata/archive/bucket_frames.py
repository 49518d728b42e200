"""Rows of buckets read by this process or by an engine, and tasks over buckets run by either.

A frame of buckets is made of files that the engine opens by name and of rows that it is handed: inline buckets, small
buckets, and for the near engine files of which only a small part is needed.

Tasks are known by number. The function that does some of them yields record batches; it may write files, which are
invisible until a commit names them, and it travels to Spark's workers. `engine.budget` decides where tasks run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.archive.blocks import BLOCK, last_block, read_rate
from errata.archive.overlays import BucketSource, bucket_sources
from errata.archive.scan_reading import MAX_BLOCK_VALUES
from errata.archive.schemas import conform
from errata.catalog.database import Catalog
from errata.declare.warehouse import Warehouse
from errata.engine.budget import runs_in_process
from errata.engine.frames import arrow_ddl, fetch_rows, frame_of_rows, union_by_name
from errata.engine.near import is_near
from errata.errors import ErrataError
from errata.model.bucket import Bucket, NewBucket
from errata.model.time import Interval

T = TypeVar("T")
AnyBucket = TypeVar("AnyBucket", Bucket, NewBucket)

LOCAL_ROWS = 50_000
"""Rows in buckets up to which this process reads them: starting an engine or a job would take longer. An engine that is
already at work is handed their values."""

MAX_PARTIAL_SHARE = 0.5
"""Share of a bucket's rows up to which the near engine is handed the rows instead of reading the whole file."""

MAX_LOCAL_VALUES = 1_000_000
"""Values (rows times columns) up to which the near engine is handed rows of one scan."""

TaskFunction = Callable[[Iterable[int]], Iterator[pa.RecordBatch]]
"""Does the tasks of the given numbers; it travels to Spark's workers."""


@dataclass(frozen=True, slots=True)
class RowsWanted:
    """Which rows of buckets are needed; others may be read with them."""

    order: str
    """A column of integers or times."""
    interval: Interval
    """Where its values lie."""
    prefixes: Mapping[int, float] = field(default_factory=dict)
    """By id of a randomised bucket: the rate of the sample that is needed of it."""

    def share(self, bucket: Bucket) -> float:
        """The estimated part of a bucket's rows that is read for them."""
        rate = self.prefixes.get(bucket.bucket_id)
        return bucket.share(self.interval) if rate is None else read_rate(rate, bucket.rows)


def run_tasks(
    session: Callable[[], SparkSession], size: int, count: int, do: TaskFunction, schema: pa.Schema
) -> pa.Table:
    """What `count` tasks yield that read `size` bytes together."""
    if runs_in_process(size):
        return pa.Table.from_batches(do(range(count)), schema)
    return run_spark_tasks(session(), count, count, do, schema)


def batches_by_bytes(some: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Pieces of work in their order, as many at a time as read so many bytes; at least one."""
    batch: list[T] = []
    total = 0
    for each in some:
        if batch and total + size(each) > most:
            yield batch
            batch, total = [], 0
        batch.append(each)
        total += size(each)
    if batch:
        yield batch


def run_spark_tasks(
    session: SparkSession, count: int, partitions: int, do: TaskFunction, schema: pa.Schema
) -> pa.Table:
    """What tasks yield, run by a Spark job of so many partitions."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from do(batch.column(0).to_pylist())

    return fetch_rows(session.range(0, count, 1, partitions).mapInArrow(run, arrow_ddl(schema))).cast(schema)


def bucket_frame(
    session: SparkSession,
    catalog: Catalog,
    warehouse: Warehouse,
    found: Sequence[Bucket],
    schema: pa.Schema,
    wanted: RowsWanted | None = None,
) -> DataFrame:
    """The rows of some buckets, with these columns; with `wanted`, at least the rows that are."""
    declared = arrow_ddl(schema)
    by_name, here = split_by_access(session, warehouse, found)
    if wanted is not None and is_near(session):
        by_name, little = _split_by_share(by_name, wanted, len(schema))
        here += little
    frames = _files_in_blocks(session, warehouse, by_name, declared, {} if wanted is None else wanted.prefixes)
    if here or not frames:
        frames.append(frame_of_rows(session, read_buckets(catalog, warehouse, schema, here, wanted), declared))
    return union_by_name(frames)


def _files_in_blocks(
    session: SparkSession,
    warehouse: Warehouse,
    found: Iterable[Bucket],
    declared: str,
    prefixes: Mapping[int, float],
) -> list[DataFrame]:
    """At least the wanted rows of files. The near engine does not prune row groups, so it reads all blocks."""
    by_block: defaultdict[int | None, list[Bucket]] = defaultdict(list)
    for each in found:
        rate = None if is_near(session) else prefixes.get(each.bucket_id)
        by_block[None if rate is None else last_block(rate)].append(each)
    frames = []
    for last, some in by_block.items():
        frame = files_frame(session, warehouse, some, declared if last is None else f"{declared}, {BLOCK} SMALLINT")
        if frame is not None:
            frames.append(frame if last is None else frame.where(f"{BLOCK} <= {last}").drop(BLOCK))
    return frames


def files_frame(
    session: SparkSession, warehouse: Warehouse, found: Iterable[Bucket | NewBucket], declared: str
) -> DataFrame | None:
    """All rows of buckets that are files; None if there are none."""
    paths = [warehouse.spark_path(each.path or "") for each in found]
    return session.read.schema(declared).parquet(*paths) if paths else None


def split_by_access(
    session: SparkSession, warehouse: Warehouse, found: Iterable[AnyBucket]
) -> tuple[list[AnyBucket], list[AnyBucket]]:
    """Buckets whose files the engine opens by name, and those whose rows it is handed. The near engine takes a missing
    file for an empty one, so it opens only files of the right size whose names are no patterns."""
    near = is_near(session)
    by_name: list[AnyBucket] = []
    here: list[AnyBucket] = []
    for each in found:
        named = each.path is not None and (not near or warehouse.plain_size(each.path) == each.size)
        (by_name if named else here).append(each)
    return by_name, here


def _split_by_share(found: Iterable[Bucket], wanted: RowsWanted, columns: int) -> tuple[list[Bucket], list[Bucket]]:
    """Buckets whose files the near engine reads whole, and those of which it is handed the row groups that have wanted
    rows, since these are a small part. It does not prune row groups itself: their statistics are not used there."""
    whole: list[Bucket] = []
    little: list[Bucket] = []
    values = 0.0
    for each in found:
        in_blocks, share = each.bucket_id in wanted.prefixes, wanted.share(each)
        handed = share * each.rows * columns
        most = MAX_BLOCK_VALUES if in_blocks else MAX_LOCAL_VALUES
        if (in_blocks or share <= MAX_PARTIAL_SHARE) and values + handed <= most:
            little.append(each)
            values += handed
        else:
            whole.append(each)
    return whole, little


def read_buckets(
    catalog: Catalog,
    warehouse: Warehouse,
    schema: pa.Schema,
    found: Iterable[Bucket],
    wanted: RowsWanted | None = None,
) -> pa.Table:
    """The stored rows of some buckets of any role; with `wanted`, at least the rows that are."""

    def read_from(source: BucketSource) -> pa.Table:
        if wanted is None:
            return source.read(warehouse)
        rate, interval = wanted.prefixes.get(source.bucket.bucket_id), wanted.interval
        if rate is not None:
            return source.read_sample(warehouse, schema.names, rate)
        return source.read_between(warehouse, schema.names, wanted.order, interval.start, interval.end - 1)

    try:
        read = [conform(read_from(each), schema) for each in bucket_sources(catalog, found)]
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        how = "`errata doctor` tells what else is damaged, and what can be done"
        raise ErrataError("a bucket cannot be read", why=str(error), how=how) from error
    return pa.concat_tables([schema.empty_table(), *read])
