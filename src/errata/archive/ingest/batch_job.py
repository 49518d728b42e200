"""The Spark job of a large batch: rows are read, brought to the task of their slot, sorted, and written as buckets.

Where the files' own statistics tell which slot each part belongs to, every task reads its parts itself and nothing is
shuffled; otherwise rows are shuffled by slot, and first by key if the key lacks the order field. The work of the tasks
is in `stages` and `slots`; a small batch runs the same functions without Spark (`batch_writer`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.archive.bucket_writer import POS
from errata.archive.ingest import stages
from errata.archive.ingest.batch_writer import PreparedBatch, archived_sources
from errata.archive.ingest.slots import ArchivedRows, SlotPlan, plan_slots, write_slots
from errata.archive.scan import scan_rows
from errata.archive.schemas import ASIDE, SLOT, AppendContext, slot_row_schema
from errata.archive.task_reports import report_schema
from errata.engine.failures import spark_errors_in_words
from errata.engine.frames import arrow_ddl, fetch_rows
from errata.intake.layout import FileLayout
from errata.intake.order_sample import order_ranges, range_bounds, sample_order
from errata.model.batch import FileSplit


def run_batch_job(prepared: PreparedBatch, session: SparkSession) -> tuple[AppendContext, pa.Table]:
    """Read, order and write a batch; its intent with the bounds of its slots, and the reports of the tasks."""
    with spark_errors_in_words():
        intent, job = _plan_job(prepared, session)
        return intent, fetch_rows(job)


def _plan_job(prepared: PreparedBatch, session: SparkSession) -> tuple[AppendContext, DataFrame]:
    """The job of a batch, and the intent with the bounds of its slots."""
    intent, known, found = prepared.intent, prepared.known, prepared.found
    short = _plan_without_shuffle(session, intent, prepared.work)
    if short is not None:
        intent = replace(intent, bounds=short.bounds)
        return intent, _slot_job(session, intent, short, archived_sources(prepared))
    sample = sample_order(prepared.files, prepared.layouts, intent.stream)
    intent = replace(intent, bounds=tuple(range_bounds(sample, intent.stream.bucket_rows)))
    rows = None
    if known is not None and found.all:
        rows = scan_rows(session, prepared.catalog, intent.warehouse, known, found)
    return intent, _shuffle_job(session, intent, prepared.work, rows)


def _plan_without_shuffle(
    session: SparkSession, intent: AppendContext, work: Sequence[tuple[FileSplit, FileLayout]]
) -> SlotPlan | None:
    """What each slot's task would read if nothing were shuffled; None when the rows must be."""
    if not intent.stream.key_has_order:
        return None
    spans = order_ranges([split for split, _ in work], [layout for _, layout in work], intent.stream)
    if spans is None:
        return None
    cores = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    return plan_slots(intent, work, spans, cores)


def _slot_job(session: SparkSession, intent: AppendContext, short: SlotPlan, witnesses: ArchivedRows) -> DataFrame:
    slots = session.range(0, len(short.pieces), 1, len(short.pieces))
    return slots.mapInArrow(
        _as_function(partial(write_slots, intent, short.pieces, witnesses)), arrow_ddl(report_schema())
    )


def _shuffle_job(
    session: SparkSession, intent: AppendContext, work: Sequence[tuple[FileSplit, FileLayout]], known: DataFrame | None
) -> DataFrame:
    rows = _read_frame(session, intent, work)
    if not intent.stream.key_has_order:
        rows = _deduplicate_by_key(intent, rows, known)
    elif known is not None:
        rows = rows.unionAll(_archived_frame(intent, known))
    slots = intent.aside_slot + 1
    # One split into one bucket needs no shuffle: everything is in one task already.
    placed = rows.coalesce(1) if slots == 2 and len(work) == 1 else rows.repartitionById(slots, SLOT)
    ordered = placed.sortWithinPartitions(*_sort_keys(intent))
    finish = partial(stages.write_stage, intent, intent.stream.key_has_order)
    return ordered.mapInArrow(_as_function(finish), arrow_ddl(report_schema()))


def _read_frame(
    session: SparkSession, intent: AppendContext, work: Sequence[tuple[FileSplit, FileLayout]]
) -> DataFrame:
    numbered = {split.number: (split, layout) for split, layout in work}
    ids = session.range(0, len(work), 1, len(work))
    read = partial(stages.read_stage, intent, numbered)
    return ids.mapInArrow(_as_function(read), arrow_ddl(slot_row_schema(intent.stream)))


def _archived_frame(intent: AppendContext, known: DataFrame) -> DataFrame:
    return known.mapInArrow(
        _as_function(partial(stages.archived_stage, intent)), arrow_ddl(slot_row_schema(intent.stream))
    )


def _deduplicate_by_key(intent: AppendContext, rows: DataFrame, known: DataFrame | None) -> DataFrame:
    """Without the order field in the key, equal keys may lie anywhere: they are brought together by the key itself."""
    key = list(intent.stream.key)
    if known is not None:
        repeated = known.join(rows.where(rows[ASIDE].isNull()).select(*key), key, "left_semi")
        rows = rows.unionAll(_archived_frame(intent, repeated.select(*intent.stream.names)))
    gathered = rows.repartition(*key).sortWithinPartitions(*key, POS)
    settle = partial(stages.deduplicate_stage, intent)
    return gathered.mapInArrow(_as_function(settle), arrow_ddl(slot_row_schema(intent.stream)))


def _sort_keys(intent: AppendContext) -> list[str]:
    stream = intent.stream
    return [stream.order, *(name for name in stream.key if name != stream.order), POS]


def _as_function(stage: partial[Iterator[pa.RecordBatch]]):  # type: ignore[no-untyped-def]
    """A stage as Spark wants it: a plain function of the batches."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(batches)

    return run
