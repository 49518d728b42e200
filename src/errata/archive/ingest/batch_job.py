"""The Spark job of a large batch: rows are read, brought to the task of their slot, sorted, and written as buckets.

Where the files' own statistics tell which slot each part belongs to, every task reads its parts itself and nothing is
shuffled; otherwise rows are shuffled by slot, and first by key if the key lacks the order field. The work of the tasks
is in `stages` and `slots`; a small batch runs the same functions without Spark (`batch_writer`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.archive.bucket_files import POS
from errata.archive.ingest import stages
from errata.archive.ingest.batch_writer import PreparedBatch, archived_sources
from errata.archive.ingest.slots import PENDING_SLOT, ArchivedRows, SlotPiece, write_slots
from errata.archive.scan import scan_rows
from errata.archive.schemas import ASIDE, SLOT, AppendContext, slot_row_schema
from errata.archive.task_reports import report_schema
from errata.engine.failures import spark_errors_in_words
from errata.engine.frames import arrow_ddl, fetch_rows
from errata.intake.layout import FileLayout
from errata.intake.order_sample import OrderRange, order_ranges, range_bounds, sample_order
from errata.model.batch import FileSplit

MAX_READ_OVERLAP = 1.6
"""Pieces that overlap more slots than this on average are cheaper to shuffle."""

MAX_TASK_ROWS = 4_000_000
"""What one task may hold in memory at once; a slot with more is sorted by Spark, which can spill."""


def run_batch_job(prepared: PreparedBatch, session: SparkSession) -> tuple[AppendContext, pa.Table]:
    """Read, order and write a batch; its context with the bounds of its slots, and the reports of the tasks."""
    with spark_errors_in_words():
        context, job = _plan_job(prepared, session)
        return context, fetch_rows(job)


def _plan_job(prepared: PreparedBatch, session: SparkSession) -> tuple[AppendContext, DataFrame]:
    """The job of a batch, and the context with the bounds of its slots."""
    context, known, found = prepared.context, prepared.archived_scan, prepared.archived_buckets
    short = _plan_without_shuffle(session, context, prepared.splits)
    if short is not None:
        context = replace(context, bounds=short.bounds)
        return context, _slot_job(session, context, short, archived_sources(prepared))
    sample = sample_order(prepared.batch.files, prepared.layouts, context.stream)
    context = replace(context, bounds=tuple(range_bounds(sample, context.stream.bucket_rows)))
    rows = None
    if known is not None and found.all:
        rows = scan_rows(session, prepared.catalog, context.warehouse, known, found)
    return context, _shuffle_job(session, context, prepared.splits, rows)


def _plan_without_shuffle(
    session: SparkSession, context: AppendContext, work: Sequence[tuple[FileSplit, FileLayout]]
) -> SlotPlan | None:
    """The parts that each slot's task reads if nothing is shuffled; None if the rows have to be."""
    if not context.stream.key_has_order:
        return None
    spans = order_ranges([split for split, _ in work], [layout for _, layout in work], context.stream)
    if spans is None:
        return None
    cores = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    return plan_slots(context, work, spans, cores)


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The bounds of slots, and the parts that each slot's task reads."""

    bounds: tuple[int, ...]
    pieces: Mapping[int, Sequence[SlotPiece]]


def plan_slots(
    context: AppendContext, work: Sequence[tuple[FileSplit, FileLayout]], spans: Mapping[int, OrderRange], cores: int
) -> SlotPlan | None:
    """The plan without a shuffle; None if tasks would read too much twice, hold too much, or be too few."""
    sizes = {split.number: _split_rows(split, layout) for split, layout in work}
    bounds = slot_bounds(spans, sizes, context.stream.bucket_rows)
    total = sum(sizes.values())
    if len(bounds) + 1 < min(cores, total // context.stream.bucket_rows):
        return None
    pieces = _assign_pieces(replace(context, bounds=bounds), work, spans)
    held = [sum(sizes[piece.split.number] for piece in each) for each in pieces.values()]
    if max(held) > MAX_TASK_ROWS or sum(held) > MAX_READ_OVERLAP * max(total, 1):
        return None
    return SlotPlan(bounds, pieces)


def slot_bounds(spans: Mapping[int, OrderRange], sizes: Mapping[int, int], bucket_rows: int) -> tuple[int, ...]:
    """Bounds at beginnings of parts, so that few parts cross one; a slot has at most a bucket's rows, unless a single
    part has more."""
    cuts: list[int] = []
    rows = 0
    for number, (low, _) in sorted(spans.items(), key=lambda item: item[1]):
        if rows and rows + sizes[number] > bucket_rows:
            cuts.append(low)
            rows = 0
        rows += sizes[number]
    lowest = min((low for low, _ in spans.values()), default=0)
    return tuple(sorted({cut for cut in cuts if cut > lowest}))


def _split_rows(split: FileSplit, layout: FileLayout) -> int:
    return sum(layout.row_groups[split.start : split.end])


def _assign_pieces(
    context: AppendContext, work: Sequence[tuple[FileSplit, FileLayout]], spans: Mapping[int, OrderRange]
) -> dict[int, list[SlotPiece]]:
    """The parts that each slot's task reads."""
    pieces: dict[int, list[SlotPiece]] = {slot: [] for slot in range(context.aside_slot)}
    for split, layout in work:
        touched = _touched_slots(context, spans.get(split.number))
        for slot in sorted(touched):
            pieces[slot].append(SlotPiece(split, layout, slot == min(touched)))
    return pieces


def _touched_slots(context: AppendContext, span: OrderRange | None) -> set[int]:
    if span is None:  # no rows
        return {PENDING_SLOT}
    low, high = span
    slots = set(range(bisect_right(context.bounds, low), bisect_right(context.bounds, high) + 1))
    may_be_late = context.stable is not None and low < context.stable
    return slots | {PENDING_SLOT} if may_be_late else slots


def _slot_job(session: SparkSession, context: AppendContext, short: SlotPlan, archived: ArchivedRows) -> DataFrame:
    slots = session.range(0, len(short.pieces), 1, len(short.pieces))
    return slots.mapInArrow(
        as_arrow_function(partial(write_slots, context, short.pieces, archived)), arrow_ddl(report_schema())
    )


def _shuffle_job(
    session: SparkSession, context: AppendContext, work: Sequence[tuple[FileSplit, FileLayout]], known: DataFrame | None
) -> DataFrame:
    rows = _read_frame(session, context, work)
    if not context.stream.key_has_order:
        rows = _deduplicate_by_key(context, rows, known)
    elif known is not None:
        rows = rows.unionAll(_archived_frame(context, known))
    slots = context.aside_slot + 1
    # One split into one bucket needs no shuffle: everything is in one task already.
    placed = rows.coalesce(1) if slots == 2 and len(work) == 1 else rows.repartitionById(slots, SLOT)
    ordered = placed.sortWithinPartitions(*sort_keys(context))
    finish = partial(stages.write_stage, context, context.stream.key_has_order)
    return ordered.mapInArrow(as_arrow_function(finish), arrow_ddl(report_schema()))


def _read_frame(
    session: SparkSession, context: AppendContext, work: Sequence[tuple[FileSplit, FileLayout]]
) -> DataFrame:
    numbered = {split.number: (split, layout) for split, layout in work}
    ids = session.range(0, len(work), 1, len(work))
    read = partial(stages.read_stage, context, numbered)
    return ids.mapInArrow(as_arrow_function(read), arrow_ddl(slot_row_schema(context.stream)))


def _archived_frame(context: AppendContext, known: DataFrame) -> DataFrame:
    return known.mapInArrow(
        as_arrow_function(partial(stages.archived_stage, context)), arrow_ddl(slot_row_schema(context.stream))
    )


def _deduplicate_by_key(context: AppendContext, rows: DataFrame, known: DataFrame | None) -> DataFrame:
    """Without the order field in the key, equal keys may lie anywhere: they are brought together by the key itself."""
    key = list(context.stream.key)
    if known is not None:
        repeated = known.join(rows.where(rows[ASIDE].isNull()).select(*key), key, "left_semi")
        rows = rows.unionAll(_archived_frame(context, repeated.select(*context.stream.names)))
    gathered = rows.repartition(*key).sortWithinPartitions(*key, POS)
    settle = partial(stages.deduplicate_stage, context)
    return gathered.mapInArrow(as_arrow_function(settle), arrow_ddl(slot_row_schema(context.stream)))


def sort_keys(context: AppendContext) -> list[str]:
    stream = context.stream
    return [stream.order, *(name for name in stream.key if name != stream.order), POS]


def as_arrow_function(stage: partial[Iterator[pa.RecordBatch]]):  # type: ignore[no-untyped-def]
    """A stage as Spark wants it: a plain function of the batches."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(batches)

    return run
