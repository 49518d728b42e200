"""Rows that stand as a batch brought them: to undo the batch, each of them is deleted.

There may be as many as a batch can bring, so the tasks that find them also write the revisions that delete them. None
of the rows comes to this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from errata.archive.masks import Overlays, Source, read_overlays, sources
from errata.archive.overlay import BATCH, REVISION
from errata.archive.tasks import in_tasks
from errata.archive.warehouse import Warehouse
from errata.archive.wire import (
    Said,
    conformed,
    heard_bucket,
    numbered_schema,
    old_column,
    told,
    told_bucket,
    told_schema,
)
from errata.archive.written import POS, BucketWriter, order_values
from errata.catalog import buckets
from errata.catalog.open import Catalog
from errata.catalog.streams import Standing
from errata.intake.arrow_types import arrow_schema
from errata.model.bucket import INLINE_STREAM_BYTES, NewBucket, Role
from errata.model.interval import Interval
from errata.model.revision import Op
from errata.model.stream import Stream


@dataclass(frozen=True, slots=True)
class Work:
    """What every task needs to know; it travels to all of them."""

    stream: Stream
    warehouse: Warehouse
    batch_no: int
    aged_to: int | None
    inline: bool
    write: bool
    """Whether deletions are written; otherwise the rows are only counted."""
    base: tuple[Source, ...]
    overlays: tuple[Source, ...]


def delete_brought(
    session: Callable[[], SparkSession],
    catalog: Catalog,
    warehouse: Warehouse,
    basis: Standing,
    batch_no: int,
    interval: Interval,
    *,
    write: bool,
) -> tuple[int, list[NewBucket]]:
    """How many rows stand as the batch brought them, and pending deletions of them if these are to be written."""
    asked = (catalog, basis.stream_id, basis.changed_in, interval)
    found = [each for each in buckets.visible(*asked) if each.batch_no in (batch_no, None)]
    overlays = buckets.visible(*asked, role=Role.OVERLAY) if basis.applied else []
    work = Work(
        basis.stream,
        warehouse,
        batch_no,
        basis.aged_to,
        basis.inline_bytes < INLINE_STREAM_BYTES // 2,
        write,
        tuple(sources(catalog, found)),
        tuple(sources(catalog, overlays)),
    )
    size = sum(bucket.size for bucket in found)
    said = in_tasks(session, size, len(found), partial(_delete_all, work), told_schema())
    told_rows = sorted(said.to_pylist(), key=lambda row: row["slot"])
    count = sum(row["rows"] for row in told_rows if row["said"] == Said.COUNT.value)
    return count, [heard_bucket(row) for row in told_rows if row["said"] == Said.PENDING.value]


def _delete_all(work: Work, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
    writer = BucketWriter(work.stream, work.warehouse, inline=work.inline)
    for number in numbers:
        rows = _brought(work, work.base[number])
        if not rows.num_rows:
            continue
        yield told(Said.COUNT, slot=number, rows=rows.num_rows)
        if work.write:
            yield told_bucket(number, writer.write(deletions(work.stream, rows), Role.PENDING))


def _brought(work: Work, source: Source) -> pa.Table:
    """The rows of a bucket that are live, and as the batch brought them."""
    bucket, stream = source.bucket, work.stream
    rows = source.read(work.warehouse)
    if BATCH in rows.column_names:
        own = pc.and_(pc.equal(rows[BATCH], work.batch_no), pc.is_null(rows[REVISION]))
        rows = rows.filter(own)
    rows = conformed(rows, arrow_schema(stream))
    if work.aged_to is not None and bucket.vs_min < work.aged_to:
        rows = rows.filter(pa.array(order_values(rows[stream.order]) >= work.aged_to))
    masks = [(each, each.bucket.masks) for each in work.overlays]
    meeting = [
        each for each, ends in masks if ends is not None and ends[0] <= bucket.vs_max and ends[1] >= bucket.vs_min
    ]
    over = Overlays(stream, read_overlays(stream, work.warehouse, meeting))
    return rows.filter(pa.array(~over.masked(rows, bucket.floor)))


def deletions(stream: Stream, rows: pa.Table) -> pa.Table:
    """Revisions that delete these rows, if they still say what they say now."""
    required = {name: rows[name] for name in stream.names if name in stream.required}
    return inverse(stream, Op.DELETE, stream.key, required, rows)


def inverse(
    stream: Stream,
    op: Op,
    given: Sequence[str],
    new: pa.Table | dict[str, pa.ChunkedArray],
    old: pa.Table | None,
    instead_of: pa.Array | None = None,
) -> pa.Table:
    """Pending revisions of an undo. They claim all of the old row, so that a change of it in between is noticed.

    `instead_of` are the revisions that ended the rows which an insertion brings back (see chains.py).
    """
    names = new.column_names if isinstance(new, pa.Table) else list(new)
    count = len(new[names[0]])
    columns = {
        "_ordinal": pa.array(np.arange(count)),
        POS: pa.repeat(pa.scalar(0, pa.int64()), count) if instead_of is None else instead_of,
        "_op": pa.repeat(op.value, count),
        "_given": pa.repeat(",".join(given), count),
        "_claimed": pa.repeat("" if old is None else ",".join(stream.names), count),
    }
    columns |= {name: new[name] for name in names}
    if old is not None:
        columns |= {old_column(name): old[name] for name in stream.names}
    schema = numbered_schema(stream)
    arrays = [columns[f.name] if f.name in columns else pa.nulls(count, f.type) for f in schema]
    return pa.table(arrays, schema=schema)
