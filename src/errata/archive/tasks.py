"""Work on buckets that is cut into tasks: done in this process where there is little to read, else by Spark.

A task is known by its number. What does some of them yields record batches, and may write files, which nobody sees
until a commit names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from errata.engine.types import arrow_ddl
from errata.engine.values import fetch

LITTLE = 16 * 1024 * 1024
"""Bytes in buckets up to which tasks are done here: a Spark job would take longer to begin."""

Do = Callable[[Iterable[int]], Iterator[pa.RecordBatch]]
"""Does some tasks, by their numbers. It travels to Spark's workers."""


def in_tasks(session: Callable[[], SparkSession], size: int, count: int, do: Do, schema: pa.Schema) -> pa.Table:
    """What tasks yield that read so many bytes together."""
    if size <= LITTLE:
        return pa.Table.from_batches(do(range(count)), schema)
    return by_spark(session(), count, count, do, schema)


def by_spark(session: SparkSession, count: int, partitions: int, do: Do, schema: pa.Schema) -> pa.Table:
    """The same by a Spark job, which shares the tasks out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from do(batch.column(0).to_pylist())

    return fetch(session.range(0, count, 1, partitions).mapInArrow(run, arrow_ddl(schema))).cast(schema)
