"""The commit of an evaluation, and what it says beside its buckets: why results change, and what the query's result
table is told.

The cause of an ordinary evaluation is the batches that have come. Results that replace others have the reason for it:
the query was edited, a stream or a query that it reads is another one now, or a person asked for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from errata.answer.advance import PriorEvaluation
from errata.answer.inputs import RunInputs
from errata.answer.result_sink import StepOutput
from errata.answer.task import EvaluationTask
from errata.answer.unread_changes import upstream_archives
from errata.archive.overlays import bucket_sources
from errata.archive.results import (
    PUBLISHED_ROLES,
    buckets_by_instant,
    drop_masked,
    read_masks,
    read_new_bucket,
    split_masks,
    valid_at,
)
from errata.archive.schemas import conform, feed_schema, result_mask_schema, result_schema
from errata.catalog import queries, result_archives, streams
from errata.catalog.result_archives import EvaluationCommit, ResultArchive, ResultTableUpdate, evaluations_of
from errata.catalog.result_columns import ResultTable
from errata.declare.query_plans import with_fingerprints
from errata.model.bucket import NewBucket, Role
from errata.model.commit import EvaluationCost, EvaluationSpan, SweepSummary
from errata.model.query import CheckedQuery
from errata.model.results import EVALUATION, OP, ResultShape, have_same_key
from errata.model.stream import Stream
from errata.model.time import LOWEST, Interval


@dataclass(frozen=True)
class EvaluationOutcome:
    """A committed evaluation or correction."""

    name: str
    commit_id: int
    step: EvaluationSpan
    measures: EvaluationCost
    published: ResultArchive

    @property
    def swept(self) -> SweepSummary | None:
        """What was corrected, if it was a correction."""
        return self.published.last.correction


def commit_task(
    task: EvaluationTask, inputs: RunInputs, output: StepOutput, before: PriorEvaluation, measures: EvaluationCost
) -> EvaluationOutcome:
    cause = cause_of_evaluation(task, inputs)
    made: list[NewBucket] = [*output.buckets, *before.merged_into]
    done = EvaluationCommit(
        task.name,
        task.query.query_id,
        task.shape,
        task.basis,
        task.span,
        inputs.commit_id,
        task.revisions,
        cause,
        measures,
        task.begins,
        made,
        merged_buckets=before.merged,
        rows=output.rows(Role.BASE) + before.rows,
        replaces=task.replaces,
        consumed=new_revisions_read(task, inputs),
        table_update=result_table_update(task, inputs, output.buckets, whole=cause["feed"] == "whole"),
        inputs=task.inputs,
        skipped_to=task.skips_to,
    )
    return commit_or_discard(done, "run", inputs)


def commit_or_discard(done: EvaluationCommit, flow: str, inputs: RunInputs) -> EvaluationOutcome:
    """Make what has been written visible. Where another runner has committed first, remove it and raise."""
    site = inputs.site
    with site.discard_on_conflict(done.new_buckets):
        now = result_archives.commit_evaluation(site.catalog, done, site.caused_by(flow, inputs.spark.opened))
    return EvaluationOutcome(done.query, now.last.commit_id, done.span, done.measures, now)


def new_revisions_read(task: EvaluationTask, inputs: RunInputs) -> dict[int, int]:
    """By stream id, the revision up to which the query has read it, where that is new."""
    known = {} if task.basis is None else task.basis.last.revisions
    return {
        inputs.standings[name].stream_id: revision
        for name, revision in task.revisions.items()
        if known.get(name) != revision
    }


# Why results change: the cause that the commit records.


def cause_of_replacement(task: EvaluationTask, was: ResultArchive, inputs: RunInputs) -> dict[str, object]:
    """Type and id of what caused a replacement of results."""
    below = upstream_archives(task.query.checked.reads, inputs.view)
    replaced = sorted(each.name for each in below if each.added_in > was.last.commit_id)
    if task.anew:
        return {"type": "query", "id": replaced[0]} if replaced else {"type": "query", "id": task.name, "anew": True}
    change = _FormDifference(task, was, inputs)
    if change.edited:
        return {"type": "query", "id": task.name}
    if redeclared := change.redeclared:
        return {"type": "stream", "id": ", ".join(redeclared)}
    return {"type": "query", "id": replaced[0] if replaced else task.name}


class _FormDifference:
    """The difference between a query's former form and its current one."""

    def __init__(self, task: EvaluationTask, was: ResultArchive, inputs: RunInputs) -> None:
        catalog = inputs.site.catalog
        self._now = task.query.checked
        self._then = queries.query_by_id(catalog, was.query_id)
        self._known = {name: each.checked for name, each in queries.recorded_queries(catalog).items()}
        self._declared = {name: each.stream for name, each in inputs.standings.items()}
        then = {each.stream.name: each.stream for each in streams.stream_states(catalog, was.last.commit_id)}
        self._before = {name: then[name] for name in self._now.reads if name in then}

    @property
    def edited(self) -> bool:
        """Whether the query's own declaration is different."""
        own, former = self._now.query, self._then.query
        options = (own.since, own.lineage, own.on_revision) == (former.since, former.lineage, former.on_revision)
        return not options or self._fingerprint(self._declared) != self._now.fingerprint

    @property
    def redeclared(self) -> list[str]:
        """The streams whose declarations are different in a way that matters to the query."""
        return [
            name
            for name, stream in self._before.items()
            if name not in self._declared
            or stream.on_revision != self._declared[name].on_revision
            or self._fingerprint({**self._declared, name: stream}) != self._now.fingerprint
        ]

    def _fingerprint(self, declared: Mapping[str, Stream]) -> str | None:
        """The fingerprint of the former text over these streams; None if it does not fit them."""
        applied: dict[str, CheckedQuery] = {**self._known, self._then.name: self._then}
        found = with_fingerprints(applied, [self._then.name], declared)
        return found[self._then.name].fingerprint if found else None


def cause_of_evaluation(task: EvaluationTask, inputs: RunInputs) -> dict[str, Any]:
    """Why results change: the batches that have come, or the reason for a replacement."""
    extra: dict[str, Any] = {"feed": "whole" if task.route.covering else "rows"}
    if task.rows_left:
        extra["part"] = True
    if task.replaces is not None:
        alike = have_same_key(task.replaces.shape, task.shape)
        return {**cause_of_replacement(task, task.replaces, inputs), "feed": "whole" if alike else "reset"}
    return {**inputs.batches(task.revisions, _last_full_data_commit(task, inputs)), **extra}


def _last_full_data_commit(task: EvaluationTask, inputs: RunInputs) -> int:
    """The commit as of which the last evaluation read the streams that was neither a correction nor a part."""
    if task.basis is None:
        return LOWEST
    if task.basis.last.correction is None and not task.basis.last.is_part:
        return task.basis.last.data_commit
    history = evaluations_of(inputs.site.catalog, task.basis.stream_id)
    return max((each.data_commit for each in history if each.correction is None and not each.is_part), default=LOWEST)


# Updates of result tables.


def result_table_update(
    task: EvaluationTask, inputs: RunInputs, made: Sequence[NewBucket], *, whole: bool, corrects: bool = False
) -> ResultTableUpdate | None:
    """The update of the query's result table in the commit; None if it has none. `whole`: the feed has all change
    records. `corrects`: published results stay, except masked ones."""
    table = task.query.checked.query.serve
    if table is None:
        return None
    changes = partial(_change_batches, task, inputs, made, whole=whole)
    current = partial(_current_batches, task, inputs, made, corrects=corrects)
    return ResultTableUpdate(ResultTable(table, task.shape), changes, current)


def _change_batches(
    task: EvaluationTask, inputs: RunInputs, made: Sequence[NewBucket], *, whole: bool
) -> Iterator[pa.RecordBatch]:
    """The change records of the evaluation."""
    warehouse = inputs.site.warehouse
    for each in made:
        if each.role is Role.FEED:
            rows = conform(read_new_bucket(warehouse, each), feed_schema(task.shape))
            yield from rows.filter(pc.equal(rows[EVALUATION], task.number)).to_batches()
        elif each.role in PUBLISHED_ROLES and not whole:
            rows = conform(read_new_bucket(warehouse, each), result_schema(task.shape))
            yield from insert_records(rows.filter(pc.equal(rows[EVALUATION], task.number)), task.shape).to_batches()


def _current_batches(
    task: EvaluationTask, inputs: RunInputs, made: Sequence[NewBucket], *, corrects: bool
) -> Iterator[pa.RecordBatch]:
    """All results that are valid at the frontier, as insertions."""
    warehouse, frontier, schema = inputs.site.warehouse, task.step.until, result_schema(task.shape)
    instants = Interval(frontier, frontier + 1)
    fresh = (conform(read_new_bucket(warehouse, each), schema) for each in made if each.role in PUBLISHED_ROLES)
    former = (
        () if task.basis is None else _remaining_results(task, task.basis, inputs, made, instants, corrects=corrects)
    )
    for rows in chain(former, fresh):
        yield from insert_records(valid_at(rows, frontier), task.shape).to_batches()


def _remaining_results(
    task: EvaluationTask,
    basis: ResultArchive,
    inputs: RunInputs,
    made: Sequence[NewBucket],
    instants: Interval,
    *,
    corrects: bool,
) -> Iterator[pa.Table]:
    """Earlier results that the evaluation neither replaces nor masks."""
    catalog, warehouse, shape = inputs.site.catalog, inputs.site.warehouse, task.shape
    results, masks = split_masks(buckets_by_instant(catalog, basis, basis.last.commit_id, instants))
    schema = result_mask_schema(shape)
    fresh = [conform(read_new_bucket(warehouse, each), schema) for each in made if each.role is Role.MASK]
    tombstones = pa.concat_tables([read_masks(catalog, warehouse, shape, masks), *fresh])
    stay = PUBLISHED_ROLES if corrects else (Role.BASE,)
    for each in bucket_sources(catalog, [bucket for bucket in results if bucket.role in stay]):
        yield drop_masked(conform(each.read(warehouse), result_schema(shape)), tombstones, shape)


def insert_records(rows: pa.Table, shape: ResultShape) -> pa.Table:
    """Results as change records that insert them."""
    named = {name: rows[name] for name in rows.column_names}
    ops = pa.repeat("insert", rows.num_rows)
    columns = [
        ops if each.name == OP else named.get(each.name, pa.nulls(rows.num_rows, each.type))
        for each in feed_schema(shape)
    ]
    return pa.table(columns, schema=feed_schema(shape))
