"""The merge of a batch of a stream with feeds: one more stage, between reading the files and writing buckets.

    files of feeds -> elements -> merge (`errata.merge`) -> rows and corrections -> slots, buckets, as of any append
                                    ^ |
            the state of the last batch, and the next one's

What the merge emits is what an append understands: rows, and corrections of rows that it emitted earlier. A row keeps
the batch and the position of the statement that said it first, even if the merge has held it back until a later batch:
such rows get buckets of the batch that said them. What else commits is in `MergeCommit`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.bucket_writer import order_values, value_range
from errata.archive.ingest import stages
from errata.archive.ingest.batch_writer import (
    BatchFaults,
    PreparedBatch,
    collect_reports,
    worst_failure,
)
from errata.archive.ingest.feed_files import (
    FeedSplit,
    SplitSummary,
    batch_elements,
    feed_reaches,
    read_feed_split,
)
from errata.archive.ingest.feed_outcomes import FeedTally, feed_change
from errata.archive.ingest.merge_archive import keys_to_be_deleted, unfrozen_rows
from errata.archive.ingest.merge_basis import MergeBasis, standing_properties
from errata.archive.ingest.merge_behind import BehindRows, resolve_behind
from errata.archive.schemas import (
    BAD_ROW_SCHEMA,
    AppendContext,
    aside_row,
    pack_table,
    pending_inserts,
    slot_row_schema,
    slot_rows,
)
from errata.archive.tables import match_rows, sort_rows
from errata.archive.task_reports import ReportKind, bucket_from_row, report_schema
from errata.catalog.merge_commits import MergeCommit
from errata.errors import ErrataError
from errata.merge.choice import ORDERED_ALGORITHMS
from errata.merge.elements import GIVEN, POS
from errata.merge.merging import merge_batch, state_for
from errata.merge.progress import FeedStanding, advance, feed_stable
from errata.merge.state import state_to_table
from errata.merge.step import BATCH, OP, REASON, MergeProgress, MergeState, MergeStep
from errata.model.batch import Batch, Op
from errata.model.bucket import Groups, NewBucket, Role
from errata.model.stream import Stream
from errata.model.time import LOWEST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class MergedRows:
    """What a merged batch brings into the archive, by the batch that said it: `_batch` is NULL for this one."""

    rows: pa.Table
    """Rows on time: the stream's columns, `_batch` and `_pos`."""
    pending: pa.Table
    """Late rows and corrections (`pending_schema`), with `_batch`."""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """A batch that has been merged, in this process or by Spark's tasks, which then have written a part of it."""

    context: AppendContext
    splits: Sequence[SplitSummary]
    bad: Sequence[pa.Table]
    """Lines for quarantine that no task has reported."""
    progress: MergeProgress
    step: MergeStep
    """`inserts`, `corrections` and `state` are what no task has written."""
    told: Sequence[pa.RecordBatch] = ()
    """The reports of tasks."""
    state: Sequence[NewBucket] = ()
    """The state that tasks have written."""
    rows: int = 0
    """How many of the batch's own rows tasks have written; `pending`: how many revisions."""
    pending: int = 0

    @property
    def said(self) -> dict[int, int]:
        """Statements by feed."""
        counts: Counter[int] = Counter()
        for split in self.splits:
            counts[split.feed] += split.said
        return dict(counts)


def merge_and_write(
    prepared: PreparedBatch, of: MergeBasis, session: SparkSession | None
) -> tuple[Batch, BatchFaults, MergeCommit]:
    """Read, merge and write a batch. Nothing of it is visible before it is committed. R0 to R2 go through the feeds in
    their order and remember next to nothing, so that they need no tasks."""
    if session is None or of.choice.algorithm in ORDERED_ALGORITHMS:
        outcome = _merge_here(prepared, of)
    else:
        from errata.archive.ingest.merge_job import merge_by_spark  # noqa: PLC0415 - it imports PySpark

        outcome = merge_by_spark(prepared, of, session)
    return _finish(prepared, of, outcome)


def _merge_here(prepared: PreparedBatch, of: MergeBasis) -> MergeOutcome:
    context, retried = prepared.context, bool(prepared.batch.retried)
    stream = context.stream
    splits = _read_splits(prepared)
    summaries = [each.summary for each in splits]
    elements = batch_elements(stream, splits, {each.number: each.stable for each in of.standing}, retried=retried)
    progress = batch_progress(stream, of, summaries, retried=retried)
    algorithm, published = of.choice.algorithm, partial(unfrozen_rows, prepared.catalog, context.warehouse, of.stood)
    step = merge_batch(stream, algorithm, basis_state(of, stream, progress, published), elements, progress, published)
    return MergeOutcome(context, summaries, [each.bad for each in splits], progress, step)


def basis_state(
    of: MergeBasis, stream: Stream, progress: MergeProgress, published: Callable[[], pa.Table]
) -> MergeState:
    """The state that the batch is merged into, as its algorithm needs it."""
    former = of.record.algorithm if of.record is not None and of.former else None
    if former in ORDERED_ALGORITHMS and former is not of.choice.algorithm:
        return state_for(of.choice.algorithm, stream, of.state, progress, published)
    return of.state


def _finish(prepared: PreparedBatch, of: MergeBasis, outcome: MergeOutcome) -> tuple[Batch, BatchFaults, MergeCommit]:
    context = outcome.context
    behind = resolve_behind(prepared.catalog, context.warehouse, of, outcome.step.behind)
    step = replace(outcome.step, refused=pa.concat_tables([outcome.step.refused, *behind.refused]))
    outcome = replace(outcome, step=step)
    merged = _merged_rows(prepared, of, step, behind)
    told = [*outcome.told, *_write_own(context, outcome, behind, merged)]
    batch, faults = collect_reports(context, prepared, pa.Table.from_batches(told, report_schema()))
    batch = _with_released(batch, _later_rows(context, merged))
    state = list(outcome.state) or _write_state(context, step)
    batch = replace(batch, buckets=[*batch.buckets, *state])
    tally = FeedTally(outcome.said, outcome.progress, step, behind)
    commit = MergeCommit(
        of.known,
        of.record,
        of.former,
        feed_change(prepared.catalog, of, tally, batch),
        outcome.progress.stable,
        compared=bool(step.behind.num_rows),
    )
    return batch, faults, commit


def feed_numbers(stream: Stream) -> dict[str | None, int]:
    """The numbers of feeds by their names."""
    return {feed.name: number for number, feed in enumerate(stream.merged.feeds)}


def _read_splits(prepared: PreparedBatch) -> list[FeedSplit]:
    numbers = feed_numbers(prepared.context.stream)
    splits: list[FeedSplit] = []
    failures: list[ErrataError] = []
    for split, layout in prepared.splits:
        try:
            splits.append(read_feed_split(prepared.context, split, layout, numbers[split.file.feed]))
        except ErrataError as error:
            failures.append(error)
    if failures:
        raise worst_failure(failures)
    return splits


def batch_progress(stream: Stream, of: MergeBasis, splits: Sequence[SplitSummary], *, retried: bool) -> MergeProgress:
    """How far the feeds and the merged stream come with a batch."""
    said = {}
    for number, reach in feed_reaches(splits).items():
        marked = None if retried else reach.marked
        before = of.standing[number].stable
        said[number] = feed_stable(
            stream.merged.feeds[number], stream.slack, before=before, top=reach.top, marked=marked
        )
    standings = [
        FeedStanding(
            each.name,
            each.stable,
            each.attached,
            each.joins_at,
            each.suspect_in is not None,
            given.complete,
        )
        for each, given in zip(of.standing, standing_properties(stream, of.standing), strict=True)
    ]
    return advance(standings, said, before=of.before, quorum=stream.merged.policy.quorum)


def _merged_rows(prepared: PreparedBatch, of: MergeBasis, step: MergeStep, behind: BehindRows) -> MergedRows:
    waiting = step.inserts.select(prepared.context.stream.key).slice(0, 0)
    if step.inserts.num_rows:
        waiting = keys_to_be_deleted(prepared.catalog, prepared.context.warehouse, of.stood)
    rows = merged_rows(prepared.context, waiting, step)
    return MergedRows(rows.rows, pa.concat_tables([rows.pending, *behind.pending]))


def merged_rows(context: AppendContext, waiting: pa.Table, step: MergeStep) -> MergedRows:
    """Rows on time, and what becomes revisions: rows behind the stable point, rows whose former version is still to be
    deleted (`waiting` has the keys of those), and corrections."""
    stream, rows = context.stream, step.inserts
    stable = LOWEST if context.stable is None else context.stable
    late = order_values(rows[stream.order]) < stable
    if waiting.num_rows:
        late[np.unique(match_rows(rows.select(stream.key), waiting, stream.key)[0])] = True
    pending = [_as_pending(stream, rows.filter(pa.array(late)), Op.INSERT)]
    for op in (Op.REPLACE, Op.DELETE):
        of_op = step.corrections.filter(pc.equal(step.corrections[OP], op.value))
        pending.append(_as_pending(stream, of_op, op))
    return MergedRows(rows.filter(pa.array(~late)), pa.concat_tables(pending))


def _as_pending(stream: Stream, rows: pa.Table, op: Op) -> pa.Table:
    """Rows of a merge step as pending revisions, with the batch that said them."""
    pending = pending_inserts(stream, rows, rows[POS].to_numpy(), op.value)
    if GIVEN in rows.column_names:
        at = pending.schema.get_field_index(GIVEN)
        pending = pending.set_column(at, GIVEN, pc.coalesce(rows[GIVEN], pending[GIVEN]))
    return pending.append_column(pa.field(BATCH, pa.int64()), rows[BATCH])


# Writing.


def _write_own(
    context: AppendContext, outcome: MergeOutcome, behind: BehindRows, merged: MergedRows
) -> Iterator[pa.RecordBatch]:
    """Write what this batch has said itself; the report of one task, as of a batch without feeds."""
    step = outcome.step
    rows, pending = (of_batch(table, None) for table in (merged.rows, merged.pending))
    refused = step.refused
    repeats = sum(step.counts.repeats.values()) + behind.repeated
    settled = repeats + behind.overruled + refused.num_rows
    written = rows.num_rows + pending.num_rows + outcome.rows + outcome.pending
    counted = {
        "dropped": repeats,
        "replaced": behind.overruled,
        "held": sum(outcome.said.values()) - settled - written,
    }
    asides = [(ReportKind.COUNT, stages.pack_counts(**counted))]
    for split in outcome.splits:
        lines = stages.pack_counts(split=split.number, lines=split.lines, records=split.records)
        asides.append((ReportKind.LINES, lines))
    asides += [(ReportKind.BAD, pack_table(bad)) for bad in outcome.bad if bad.num_rows]
    if refused.num_rows:
        asides.append((ReportKind.BAD, pack_table(_refused_rows(refused))))
    if pending.num_rows:
        asides.append((ReportKind.PENDING, pack_table(pending.drop_columns([BATCH]))))
    yield from _write_rows(context, rows, asides)


def _write_rows(
    context: AppendContext, rows: pa.Table, asides: Sequence[tuple[ReportKind, bytes]]
) -> Iterator[pa.RecordBatch]:
    ordered = sort_rows(slot_rows(context, rows, rows[POS].to_numpy()), context.stream)
    told = [slot_row_schema(context.stream).empty_table(), ordered]
    told += [aside_row(context, 0, said, blob) for said, blob in asides]
    batches = (batch for table in told for batch in table.to_batches(stages.ARROW_BATCH_ROWS) if batch.num_rows)
    yield from stages.write_stage(context, False, batches)


def _later_rows(context: AppendContext, merged: MergedRows) -> dict[int, Iterator[pa.RecordBatch]]:
    """What earlier batches have said and this one releases, written as buckets of theirs."""
    known = pc.unique(pa.concat_tables([merged.rows.select([BATCH]), merged.pending.select([BATCH])])[BATCH])
    released = {}
    for batch_no in sorted(known.drop_null().to_pylist()):
        rows, pending = (of_batch(table, batch_no) for table in (merged.rows, merged.pending))
        asides = [(ReportKind.PENDING, pack_table(pending.drop_columns([BATCH])))] if pending.num_rows else []
        released[batch_no] = _write_rows(context, rows, asides)
    return released


def of_batch(rows: pa.Table, batch_no: int | None) -> pa.Table:
    """The rows that a batch said; None: the one that is being merged."""
    return rows.filter(rows[BATCH].is_null() if batch_no is None else pc.equal(rows[BATCH], batch_no))


def _with_released(batch: Batch, released: Mapping[int, Iterator[pa.RecordBatch]]) -> Batch:
    """The batch with the buckets of rows that earlier ones said. They were counted as held then."""
    found = [
        (batch_no, bucket_from_row(row))
        for batch_no, told in released.items()
        for each in told
        for row in each.to_pylist()
    ]
    rows: Counter[Role] = Counter()
    for _, bucket in found:
        rows[bucket.role] += bucket.rows
    counts = replace(
        batch.counts,
        appended=batch.counts.appended + rows[Role.BASE],
        pending=batch.counts.pending + rows[Role.PENDING],
        held=batch.counts.held - rows[Role.BASE] - rows[Role.PENDING],
    )
    return replace(batch, released=found, counts=counts)


def _write_state(context: AppendContext, step: MergeStep) -> list[NewBucket]:
    """The state as a bucket, also if it is empty: one that is not there is made anew from the archive. Its place is
    where its first and last rows are."""
    table = state_to_table(step.state, context.stream)
    low, high = value_range(table[context.stream.order]) or (0, 0)
    return [context.writer.store(table, Role.MERGE, low, high, Groups())]


def _refused_rows(refused: pa.Table) -> pa.Table:
    """Refused elements as rows for quarantine; their texts are read from the files again."""
    count = refused.num_rows
    columns = [refused[POS], pa.nulls(count, pa.int64()), pa.nulls(count, pa.string()), refused[REASON]]
    return pa.table(columns, schema=BAD_ROW_SCHEMA)
