"""The Spark jobs of a large merged batch: the progress of the feeds first, then the merge, key by key.

    read splits -> how far each feed says that it is stable          (a job of its own: few numbers per split)
    progress of the merge, on the driver, for all keys
    read splits -> parts of the elements, by a hash of the key
    state       -> parts of the state, by the same hash              -> merge each part -> rows by slot -> buckets

A part is merged as a whole batch is in one process (`merge_stage`): it knows the same stable points. Its new rows go on
to the task of their slot, as those of any large append; its part of the state it writes itself. What else it finds is
little, and comes back to the driver: corrections, rows that earlier batches said, disagreements, counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import value_range
from errata.archive.ingest import stages
from errata.archive.ingest.batch_job import as_arrow_function, sort_keys
from errata.archive.ingest.batch_writer import PreparedBatch, worst_failure
from errata.archive.ingest.feed_files import (
    SplitSummary,
    numbered_elements,
    read_feed_split,
    split_beginnings,
    with_own_stable,
)
from errata.archive.ingest.merge_archive import keys_to_be_deleted
from errata.archive.ingest.merge_basis import (
    MergeBasis,
    attached_since,
    with_columns,
)
from errata.archive.ingest.merge_stage import MergeOutcome, batch_progress, feed_numbers, merged_rows, of_batch
from errata.archive.overlays import BucketSource, bucket_sources
from errata.archive.schemas import SLOT, AppendContext, aside_row, pack_table, slot_row_schema, slot_rows, unpack_table
from errata.archive.task_reports import (
    ReportKind,
    bucket_batches,
    bucket_from_row,
    report_row,
    report_schema,
)
from errata.engine.failures import spark_errors_in_words
from errata.engine.frames import arrow_ddl, fetch_rows
from errata.errors import ErrataError
from errata.intake.layout import FileLayout
from errata.intake.order_sample import range_bounds, sample_order
from errata.merge.elements import FEED, element_schema
from errata.merge.merging import merge_by
from errata.merge.outcome import (
    agreed_schema,
    behind_schema,
    correction_schema,
    disagreement_schema,
    insert_schema,
    refused_schema,
)
from errata.merge.state import empty_state, forget_feeds, part_of_key, state_from_table, state_schema, state_to_table
from errata.merge.step import BATCH, BrokenGuarantee, MergeCounts, MergeProgress, MergeStep
from errata.model.batch import FileSplit
from errata.model.bucket import Groups, NewBucket, Role
from errata.model.feed import MergeAlgorithm, properties_from_record, properties_to_record

PART, WHAT, BLOB = "_part", "_what", "_blob"

EXCHANGE_SCHEMA = pa.schema([(PART, pa.int32()), (WHAT, pa.string()), (BLOB, pa.binary())])
"""How elements and state come to the task of their part: as packed tables."""

ELEMENTS, STATE, COUNTS = "elements", "state", "counts"

RETURNED = ("inserts", "corrections", "behind", "refused", "disagreements", "agreed")
"""The tables of a merge step that come back to the driver; of rows and corrections those that earlier batches said."""

Work = Mapping[int, tuple[FileSplit, FileLayout]]


@dataclass(frozen=True, slots=True)
class PartTask:
    """What the tasks of a merge need to know."""

    context: AppendContext
    algorithm: MergeAlgorithm
    progress: MergeProgress
    parts: int
    waiting: pa.Table
    """Keys of rows that pending revisions are still to delete."""
    batch_no: int
    """The batch that wrote the state."""
    begun: tuple[int, ...] = ()
    """The numbers of feeds that were attached again since."""


def merge_by_spark(prepared: PreparedBatch, of: MergeBasis, session: SparkSession) -> MergeOutcome:
    """Merge a batch by R3 or R4, and write its rows and its state."""
    context, retried = prepared.context, bool(prepared.batch.retried)
    stream = context.stream
    with spark_errors_in_words():
        summaries, told = _summarise(prepared, session)
        progress = batch_progress(stream, of, summaries, retried=retried)
        before = {each.number: each.stable for each in of.standing}
        beginnings = split_beginnings(stream, summaries, before, retried=retried)
        sample = sample_order(prepared.batch.files, prepared.layouts, stream)
        # Feeds say the same: of so many rows of theirs about a bucket's remain.
        feeds = len({each.feed for each in summaries}) or 1
        context = replace(context, bounds=tuple(range_bounds(sample, stream.bucket_rows * feeds)))
        waiting = keys_to_be_deleted(prepared.catalog, context.warehouse, of.stood)
        parts = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
        batch_no = (of.former[0].batch_no or 0) if of.former else 0
        begun = tuple(attached_since(of.standing, of.former)) if of.former else ()
        task = PartTask(context, of.choice.algorithm, progress, parts, waiting, batch_no, begun)
        states: list[BucketSource | bytes] = list(bucket_sources(prepared.catalog, of.former))
        if not of.former and of.state.rows.num_rows:
            states.append(pack_table(state_to_table(of.state, stream)))
        read = partial(_partition, task, dict(enumerate(prepared.splits)), states, beginnings, retried)
        reports = _merge_parts(session, task, read, len(prepared.splits) + len(states))
    return _outcome(context, summaries, progress, [*told, *reports.to_batches()])


# First job: how far each split takes its feed.


def _summarise(prepared: PreparedBatch, session: SparkSession) -> tuple[list[SplitSummary], list[pa.RecordBatch]]:
    """What each split says in numbers, and the reports of its bad rows."""
    work = dict(enumerate(prepared.splits))
    ids = session.range(0, len(work), 1, max(1, len(work)))
    read = as_arrow_function(partial(_summary_stage, prepared.context, work))
    told = fetch_rows(ids.mapInArrow(read, arrow_ddl(report_schema())))
    rows = told.to_pylist()
    failed = [stages.reported_error(row["data"]) for row in rows if row["said"] == ReportKind.FAILED]
    if failed:
        raise worst_failure(failed)
    summaries = [SplitSummary(**json.loads(row["data"])) for row in rows if row["said"] == ReportKind.LINES]
    bad = told.filter(pc.equal(told["said"], ReportKind.BAD.value))
    return summaries, bad.cast(report_schema()).to_batches()


def _summary_stage(context: AppendContext, work: Work, batches: stages.RecordBatches) -> stages.RecordBatches:
    numbers = feed_numbers(context.stream)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            split, layout = work[number]
            try:
                found = read_feed_split(context, split, layout, numbers[split.file.feed])
            except ErrataError as error:
                yield report_row(ReportKind.FAILED, data=stages.pack_error(error))
                continue
            yield report_row(ReportKind.LINES, data=json.dumps(asdict(found.summary)).encode())
            if found.bad.num_rows:
                yield from stages.report_bad_rows(context, [found.bad])


# Second job: elements and state by part, the merge, and rows by slot.


def _merge_parts(session: SparkSession, task: PartTask, read: partial[stages.RecordBatches], inputs: int) -> pa.Table:
    context = task.context
    ids = session.range(0, inputs, 1, max(1, inputs))
    told = ids.mapInArrow(as_arrow_function(read), arrow_ddl(EXCHANGE_SCHEMA)).repartitionById(task.parts, PART)
    slot_schema = arrow_ddl(slot_row_schema(context.stream))
    rows = told.mapInArrow(as_arrow_function(partial(_merge_stage, task)), slot_schema)
    placed = rows.repartitionById(context.aside_slot + 1, SLOT).sortWithinPartitions(*sort_keys(context))
    write = as_arrow_function(partial(stages.write_stage, context, False))
    return fetch_rows(placed.mapInArrow(write, arrow_ddl(report_schema()))).cast(report_schema())


def _partition(
    task: PartTask,
    work: Work,
    states: Sequence[BucketSource | bytes],
    beginnings: Mapping[int, int],
    retried: bool,
    batches: stages.RecordBatches,
) -> stages.RecordBatches:
    """The parts of the splits, and of the buckets of the state, whose numbers come in."""
    context = task.context
    stream, numbers = context.stream, feed_numbers(context.stream)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            if number < len(work):
                split, layout = work[number]
                found = read_feed_split(context, split, layout, numbers[split.file.feed])
                rows = with_own_stable(stream, found, beginnings[split.number], retried=retried)
                yield from _packed_parts(task, ELEMENTS, rows)
            else:
                state = states[number - len(work)]
                table = unpack_table(state) if isinstance(state, bytes) else state.read(context.warehouse)
                yield from _packed_parts(task, STATE, with_columns(table, state_schema(stream)))


def _packed_parts(task: PartTask, what: str, rows: pa.Table) -> stages.RecordBatches:
    part = part_of_key(rows, task.context.stream, task.parts)
    for number in np.unique(part).tolist():
        blob = pack_table(rows.filter(pa.array(part == number)))
        yield pa.RecordBatch.from_pylist([{PART: number, WHAT: what, BLOB: blob}], schema=EXCHANGE_SCHEMA)


def _merge_stage(task: PartTask, batches: stages.RecordBatches) -> stages.RecordBatches:
    """Merge the parts that come in. Rows of this batch go on to their slots; everything else is an aside."""
    packed: dict[int, dict[str, list[pa.Table]]] = {}
    for batch in batches:
        for row in batch.to_pylist():
            packed.setdefault(row[PART], {ELEMENTS: [], STATE: []})[row[WHAT]].append(unpack_table(row[BLOB]))
    for tables in packed.values():
        yield from _merge_part(task, tables[ELEMENTS], tables[STATE])


def _merge_part(task: PartTask, said: Sequence[pa.Table], states: Sequence[pa.Table]) -> stages.RecordBatches:
    context = task.context
    stream = context.stream
    elements = pa.concat_tables([element_schema(stream).empty_table(), *said])
    # Splits are numbered in the order of the files, so that positions are in the order of a feed's statements.
    elements = numbered_elements(elements.sort_by([(FEED, "ascending"), (POS, "ascending")]))
    state = empty_state(stream)
    if states:
        whole = pa.concat_tables(states, promote_options="default")
        state = forget_feeds(state_from_table(whole, stream, task.batch_no), task.begun)
    step = merge_by(stream, task.algorithm, state, elements, task.progress)
    merged = merged_rows(context, task.waiting, step)
    own, pending = of_batch(merged.rows, None), of_batch(merged.pending, None)
    yield from slot_rows(context, own, own[POS].to_numpy()).to_batches(stages.ARROW_BATCH_ROWS)
    if pending.num_rows:
        yield from aside_row(context, 0, ReportKind.PENDING, pack_table(pending.drop_columns([BATCH]))).to_batches()
    earlier = {
        "inserts": step.inserts.filter(step.inserts[BATCH].is_valid()),
        "corrections": step.corrections.filter(step.corrections[BATCH].is_valid()),
    }
    for name in RETURNED:
        table = earlier.get(name, getattr(step, name))
        if table.num_rows:
            yield from _aside(context, name, pack_table(table))
    broken = [asdict(each) | {"left": properties_to_record(each.left)} for each in step.broken]
    counts = asdict(step.counts) | {"rows": own.num_rows, "pending": pending.num_rows, "broken": broken}
    yield from _aside(context, COUNTS, json.dumps(counts).encode())
    if step.state.rows.num_rows:
        table = state_to_table(step.state, stream)
        low, high = value_range(table[stream.order]) or (0, 0)
        bucket = replace(context, inline_room=0).writer.store(table, Role.MERGE, low, high, Groups())
        yield from _aside(context, STATE, pack_table(pa.Table.from_batches(bucket_batches([bucket]))))


def _aside(context: AppendContext, name: str, blob: bytes) -> stages.RecordBatches:
    yield from aside_row(context, 0, ReportKind.MERGED, name.encode() + b":" + blob).to_batches()


# What comes back.


def _outcome(
    context: AppendContext,
    summaries: Sequence[SplitSummary],
    progress: MergeProgress,
    told: Sequence[pa.RecordBatch],
) -> MergeOutcome:
    """The reports of the tasks put together."""
    reports = pa.Table.from_batches(told, report_schema())
    is_merged = pc.equal(reports["said"], ReportKind.MERGED.value)
    found: dict[str, list[bytes]] = {}
    for blob in reports.filter(is_merged)["data"].to_pylist():
        name, _, rest = blob.partition(b":")
        found.setdefault(name.decode(), []).append(rest)
    counted = [json.loads(blob) for blob in found.get(COUNTS, [])]
    stream = context.stream
    step = MergeStep(
        algorithm=MergeAlgorithm.R3 if stream.merged.occurrence is None else MergeAlgorithm.R4,
        inserts=_joined(found, "inserts", insert_schema(stream)),
        corrections=_joined(found, "corrections", correction_schema(stream)),
        behind=_joined(found, "behind", behind_schema(stream)),
        refused=_joined(found, "refused", refused_schema()),
        disagreements=_joined(found, "disagreements", disagreement_schema(stream)),
        agreed=_joined(found, "agreed", agreed_schema(stream)),
        state=empty_state(stream),
        counts=MergeCounts(
            _by_feed(counted, "repeats"),
            sum(each["held"] for each in counted),
            _by_feed(counted, "filled"),
        ),
        broken=_broken(counted),
    )
    state: list[NewBucket] = []
    for blob in found.get(STATE, []):
        state += [bucket_from_row(row) for row in unpack_table(blob).to_pylist()]
    return MergeOutcome(
        context,
        summaries,
        [],
        progress,
        step,
        reports.filter(pc.invert(is_merged)).to_batches(),
        state,
        sum(each["rows"] for each in counted),
        sum(each["pending"] for each in counted),
    )


def _joined(found: Mapping[str, Sequence[bytes]], name: str, schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *(unpack_table(blob).cast(schema) for blob in found.get(name, ()))])


def _broken(counted: Iterable[Mapping[str, Sequence[Mapping[str, Any]]]]) -> list[BrokenGuarantee]:
    """What feeds break in some part, each once: as the first element shows."""
    first: dict[int, Mapping[str, Any]] = {}
    for each in sorted((each for part in counted for each in part["broken"]), key=lambda each: int(each["pos"])):
        first.setdefault(each["feed"], each)
    return [BrokenGuarantee(**{**each, "left": properties_from_record(each["left"])}) for each in first.values()]


def _by_feed(counted: Sequence[Mapping[str, Mapping[str, int]]], name: str) -> dict[int, int]:
    total: Counter[int] = Counter()
    for each in counted:
        total.update({int(feed): count for feed, count in each[name].items()})
    return dict(total)
