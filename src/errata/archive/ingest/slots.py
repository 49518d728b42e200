"""An append without a shuffle: the task of each slot reads the parts of files that hold the slot's rows.

This works for files whose statistics tell the order range of each part (Parquet) and that are roughly sorted, as feeds
are. A part is read by the task of its slot, and by several if it crosses the border of slots. One of them owns the part
and accounts for it: for its lines, its bad rows, and its rows that become numbered revisions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from upath import UPath

from errata.archive.bucket_writer import order_values
from errata.archive.ingest.duplicates import ARCHIVED_POSITION
from errata.archive.ingest.stages import ARROW_BATCH_ROWS, RecordBatches, read_split_tables, write_stage
from errata.archive.overlays import BucketSource, Overlays
from errata.archive.schemas import SLOT, AppendContext, conform, slot_row_schema, slot_rows, unpack_table
from errata.archive.tables import sort_rows
from errata.intake.layout import FileLayout
from errata.intake.types import arrow_schema
from errata.model.batch import FileSplit
from errata.model.time import LOWEST

PENDING_SLOT = 0
"""The slot that owns every part that may hold a late row, so that revisions of a batch are numbered in one place."""


@dataclass(frozen=True, slots=True)
class SlotPiece:
    """A split that a slot's task reads, and whether the task accounts for it."""

    split: FileSplit
    layout: FileLayout
    owned: bool


@dataclass(frozen=True, slots=True)
class ArchivedRows:
    """Rows of the archive that new ones may repeat: base buckets, and the overlays that correct them."""

    base: Sequence[BucketSource]
    overlays: Overlays | None = None
    aged_to: int | None = None


def write_slots(
    context: AppendContext, pieces: Mapping[int, Sequence[SlotPiece]], archived: ArchivedRows, batches: RecordBatches
) -> RecordBatches:
    """Read, sort and write the slots whose numbers come in."""
    for batch in batches:
        for slot in batch.column(0).to_pylist():
            rows, asides = _read_slot(context, slot, pieces[slot])
            if any(table.num_rows for table in rows):  # else nothing can be repeated
                rows.extend(_archived_rows(context, slot, archived))
            ordered = sort_rows(
                pa.concat_tables([slot_row_schema(context.stream).empty_table(), *rows]), context.stream
            )
            yield from write_stage(context, True, _record_batches([ordered, *asides]))


def _read_slot(context: AppendContext, slot: int, pieces: Sequence[SlotPiece]) -> tuple[list[pa.Table], list[pa.Table]]:
    rows: list[pa.Table] = []
    asides: list[pa.Table] = []
    for piece in pieces:
        own, others = read_split_tables(context, piece.split, piece.layout)
        rows.extend(table.filter(pc.equal(table[SLOT], slot)) for table in own)
        if piece.owned:
            asides.extend(others)
    return rows, asides


def _archived_rows(context: AppendContext, slot: int, archived: ArchivedRows) -> Iterator[pa.Table]:
    for source in archived.base:
        bucket = source.bucket
        if not bisect_right(context.bounds, bucket.vs_min) <= slot <= bisect_right(context.bounds, bucket.vs_max):
            continue
        table = unpack_table(source.data) if source.data is not None else _recent_rows(context, bucket.path or "")
        if archived.overlays is not None:
            table = table.filter(pa.array(~archived.overlays.masked(table, bucket.floor)))
        yield from _rows_of_slot(context, slot, table)
    if archived.overlays is not None:
        yield from _rows_of_slot(context, slot, archived.overlays.live_rows(archived.aged_to))


def _rows_of_slot(context: AppendContext, slot: int, table: pa.Table) -> Iterator[pa.Table]:
    rows = slot_rows(context, conform(table, arrow_schema(context.stream)), np.full(table.num_rows, ARCHIVED_POSITION))
    order = order_values(rows[context.stream.order])
    wanted = (rows[SLOT].to_numpy() == slot) & (order >= (LOWEST if context.stable is None else context.stable))
    yield rows.filter(pa.array(wanted))


def _recent_rows(context: AppendContext, path: str) -> pa.Table:
    """The rows of a bucket's row groups that reach the stable point."""
    with UPath(context.warehouse.path(path)).open("rb") as file, pq.ParquetFile(file) as parquet:
        column = parquet.schema_arrow.get_field_index(context.stream.order)
        groups = [
            group
            for group in range(parquet.num_row_groups)
            if _reaches_stable(parquet.metadata.row_group(group).column(column).statistics, context)
        ]
        return parquet.read_row_groups(groups, use_threads=False)


def _reaches_stable(statistics: pq.Statistics | None, context: AppendContext) -> bool:
    if statistics is None or not statistics.has_min_max or context.stable is None:
        return True
    return int(statistics.max_raw) >= context.stable


def _record_batches(tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        yield from table.to_batches(ARROW_BATCH_ROWS)
