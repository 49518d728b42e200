"""Evaluates one task: reads the step's rows, computes its results, merges them with open ones, writes and commits.

The work runs on the engine that suits its size and has no effect until the commit; a failure of the near engine is
tried again on the far one. A failure there is searched for its row: if a row is at fault, the query stops. Results that
replace others are computed in parts, too, but in one commit."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from errata.answer import faults, stored_lineage
from errata.answer.advance import (
    PriorEvaluation,
    StepInput,
    advance,
    check_state_can_be_rebuilt,
    intact_buckets,
    load_prior_evaluation,
    split_closed_windows,
)
from errata.answer.evaluation_commit import EvaluationOutcome, commit_task
from errata.answer.inputs import RunInputs, SourceRows, measure_reads
from errata.answer.publication import StepContext
from errata.answer.result_sink import (
    ResultSink,
    StepOutput,
    collect_results,
    difference_records,
    select_result_columns,
)
from errata.answer.step_parts import split_step
from errata.answer.task import EvaluationTask
from errata.archive.results import (
    PUBLISHED_ROLES,
    ResultWriter,
    as_plan_source,
    buckets_by_start,
    new_buckets_frame,
    read_new_bucket,
    results_frame,
    results_table,
)
from errata.archive.schemas import computed_schema, conform, result_schema
from errata.catalog.result_archives import ResultArchive
from errata.engine.failures import JOB_FAILURES, is_row_error, job_advice, last_line, quiet_loggers
from errata.engine.frames import arrow_ddl, fetch_rows, frame_of_rows
from errata.engine.plans.node_rows import AdvanceResult
from errata.engine.plans.partial_groups import final_results
from errata.errors import ErrataError
from errata.language.route import RouteKind
from errata.language.source_reads import ARRIVING, reads_of_step
from errata.model.bucket import NewBucket, Role
from errata.model.commit import EvaluationSpan, Fault
from errata.model.results import VS, have_same_key
from errata.model.time import LOWEST

LOCAL_STEP_ROWS = 200_000
"""Rows read by a step up to which its results are fetched and merged in this process; above, in Spark's tasks."""

STEP_TASK_ROWS = 500_000
"""Rows read per task, about, where results are merged in tasks."""

_TRANSIENT_ROLES = (Role.OPEN, Role.TIP, Role.STATE, Role.FEED)
"""Roles of buckets of a part that the next part replaces."""

_REPLACED_AFTER_SKIP = (Role.OPEN, Role.TIP, Role.STATE)
"""The same where the next part is further on: then change records stay."""


@dataclass(frozen=True)
class _StepReads:
    """What a step has read, and what the evaluation before has left."""

    parts: dict[str, dict[str, SourceRows]]
    prior: PriorEvaluation

    @property
    def sources(self) -> list[SourceRows]:
        return [read for part in self.parts.values() for read in part.values()]

    @property
    def rows(self) -> int:
        """About how many rows were read."""
        return sum(each.rows for each in self.sources)

    @property
    def is_empty(self) -> bool:
        """Whether no bucket was read, so that there are no rows to make results of."""
        return not any(each.buckets for each in self.sources)

    def frames(self) -> dict[str, dict[str, DataFrame]]:
        return {part: {name: each.frame for name, each in reads.items()} for part, reads in self.parts.items()}


def evaluate(task: EvaluationTask, inputs: RunInputs) -> EvaluationOutcome:
    """Carry out a task, and commit."""
    began = time.perf_counter()
    before = load_prior_evaluation(inputs.site, task)
    (read, output), choice = inputs.run(task.demand(inputs), partial(_run_task, task, before))
    micros = round((time.perf_counter() - began) * 1e6)
    roles = (Role.FEED,) if task.route.covering else (Role.BASE, Role.TIP)
    rows, asked = output.rows(*roles), sum(each.rows for each in read)
    cost = measure_reads(each for some in read for each in some.sources)
    route = task.route.kind.value
    measures = replace(
        cost, rows_asked=asked, rows=rows, micros=micros, route=route, engine=choice.engine.value, engine_why=choice.why
    )
    return commit_task(task, inputs, output, before, measures)


def _run_task(task: EvaluationTask, before: PriorEvaluation, inputs: RunInputs) -> tuple[list[_StepReads], StepOutput]:
    """Carry out a task's step: what was read for it and written."""
    if task.replaces is not None:
        return _run_replacement(task, task.replaces, inputs)
    if task.skips_to is not None:
        return _run_with_skip(task, before, inputs)
    read = _read_inputs(task, inputs, before)
    return [read], _try_step(task, inputs, read)


def _run_replacement(
    task: EvaluationTask, was: ResultArchive, inputs: RunInputs
) -> tuple[list[_StepReads], StepOutput]:
    """The same for results that replace others. They are one commit, since after a part of them the replaced results of
    later instants would be withdrawn; they are computed in parts, each from what the part before has left."""
    read, made, before = [], list[NewBucket](), PriorEvaluation()
    steps = split_step(task.rewritten, task.route, task.step, task.begins, inputs)
    # Two parts both write lineage of the instant between them, and only two evaluations' rows could be told apart.
    for step in [task.step] if stored_lineage.stores_lineage(task) else steps:
        part = replace(task, step=step)
        read.append(_read_inputs(part, inputs, before))
        buckets = _try_step(part, inputs, read[-1]).buckets
        inputs.site.discard([each for each in made if each.role in _TRANSIENT_ROLES])
        made = [*(each for each in made if each.role not in _TRANSIENT_ROLES), *buckets]
        answer = [each for each in made if each.role in PUBLISHED_ROLES]
        before = PriorEvaluation(state=_written_state(inputs, buckets), written=answer, is_part=True)
    try:
        with quiet_loggers():
            return read, _add_difference_records(task, was, inputs, made)
    except JOB_FAILURES as error:
        if inputs.near:
            inputs.site.discard(made)
            raise  # the far engine decides
        raise _interruption_error(task, error) from error


def _run_with_skip(
    task: EvaluationTask, before: PriorEvaluation, inputs: RunInputs
) -> tuple[list[_StepReads], StepOutput]:
    """The same where a query skips what is not wanted of it: the last instant is answered to its end, and the step
    continues further on, with a state that is rebuilt."""
    until = task.span.since
    last = replace(task, step=EvaluationSpan(until, until), results_from=LOWEST, skips_to=None)
    first = _read_inputs(last, inputs, before)
    made = _try_step(last, inputs, first).buckets
    answer = [each for each in made if each.role in PUBLISHED_ROLES]
    further = _read_inputs(task, inputs, PriorEvaluation(written=answer, is_part=True))
    output = _try_step(task, inputs, further)
    inputs.site.discard([each for each in made if each.role in _REPLACED_AFTER_SKIP])
    kept = [each for each in made if each.role not in _REPLACED_AFTER_SKIP]
    return [first, further], StepOutput([*kept, *output.buckets])


def _written_state(inputs: RunInputs, made: Sequence[NewBucket]) -> pa.Table | None:
    """The state that a part has written."""
    return next((read_new_bucket(inputs.site.warehouse, each) for each in made if each.role is Role.STATE), None)


def _try_step(task: EvaluationTask, inputs: RunInputs, read: _StepReads) -> StepOutput:
    """Compute and write a step. Where that fails, find the row at fault."""
    try:
        with quiet_loggers():
            return _write_step(task, inputs, read)
    except JOB_FAILURES as error:
        if inputs.near:
            raise  # the far engine decides
        fault = _fault_of_step(task, read, error)
        if fault.expression or is_row_error(error):
            raise faults.QueryStoppedError(fault) from error
        raise _interruption_error(task, error) from error


def _interruption_error(task: EvaluationTask, error: Exception) -> ErrataError:
    """The error where no row is at fault, so that a retry may succeed."""
    return ErrataError(
        f"query {task.name} could not be taken further",
        why=last_line(error),
        how=f"{job_advice(error)} and run it again: what was answered before stands",
    )


def _read_inputs(task: EvaluationTask, inputs: RunInputs, before: PriorEvaluation) -> _StepReads:
    lost = task.route.keeps_state and not task.step.first and before.state is None
    if lost:
        check_state_can_be_rebuilt(task, inputs)
    parts: dict[str, dict[str, SourceRows]] = {}
    needed = reads_of_step(
        task.rewritten, task.route, task.step, state_lost=lost, beginning=_is_beginning(task, before)
    )
    for part, extents in needed.items():
        parts[part] = {
            name: inputs.read(name, extent, task.step.until, task.revisions.get(name))
            for name, extent in extents.items()
        }
    return _StepReads(parts, before)


def _write_step(task: EvaluationTask, inputs: RunInputs, read: _StepReads) -> StepOutput:
    """Compute the step's results, state, window parts and lineage, and write them."""
    # At the beginning results that are only added are written wherever they began.
    since = LOWEST if _is_beginning(task, read.prior) and not task.route.covering else task.step.since
    sink, before = _make_sink(task, inputs, since), read.prior
    writer = sink.writer
    if read.is_empty and not task.route.keeps_state:
        rows = computed_schema(task.shape).empty_table()
        return sink.write_local(rows, _unsettled_table(task, inputs, before))
    beginning = _is_beginning(task, before)
    given = StepInput(
        read.frames(),
        _state_frame(inputs, before),
        _known_results(task, inputs, before),
        beginning=beginning,
        keeps_windows=True,
    )
    results = advance(task.rewritten, task.route, task.step, given)
    beside = results.state if results.windows is None else results.windows
    if results.windows is not None and (inputs.near or read.rows > LOCAL_STEP_ROWS):
        results, beside = _results_of_windows(task, inputs, given, results.windows)
    rows_frame = select_result_columns(results.rows, task.shape, [each.name for each in task.plan.fields])
    if task.results_from > LOWEST:
        rows_frame = rows_frame.where(f"{VS} >= {task.results_from}L")
    here = inputs.near or read.rows <= LOCAL_STEP_ROWS
    if here or results.windows is not None:
        rows, state = collect_results(rows_frame, beside, computed_schema(task.shape))
        output = sink.write_local(rows, _unsettled_table(task, inputs, before))
    else:
        output = sink.write_in_tasks(
            rows_frame, _unsettled_frame(task, inputs, before), max(2, read.rows // STEP_TASK_ROWS)
        )
        state = beside if beside is None or isinstance(beside, pa.Table) else fetch_rows(beside)
    if state is not None and results.windows is not None:
        parts, state = split_closed_windows(state, task.step, task.number)
        output.buckets.extend(writer.write(Role.PARTS, parts))
    if state is not None:
        output.buckets.extend(writer.write_state(state, task.step.until))
    if stored_lineage.stores_lineage(task):
        tasks = 0 if here else max(2, read.rows // STEP_TASK_ROWS)
        output.buckets.extend(stored_lineage.write_step_lineage(task, given, since, writer, tasks))
    return output


def _make_sink(task: EvaluationTask, inputs: RunInputs, since: int) -> ResultSink:
    writer = ResultWriter(inputs.site.warehouse, task.name, task.shape.timed)
    return ResultSink(
        writer, task.shape, StepContext(since, task.step.until, task.number, task.route.covering, task.closes)
    )


def _is_beginning(task: EvaluationTask, before: PriorEvaluation) -> bool:
    """Whether no result has been written yet."""
    return task.basis is None and not before.is_part


def _results_of_windows(
    task: EvaluationTask, inputs: RunInputs, given: StepInput, windows: DataFrame
) -> tuple[AdvanceResult, pa.Table]:
    """The results computed from fetched window parts, and these: the rows are aggregated once, not for each of both."""
    if task.route.partial is None:
        raise AssertionError("only groups keep windows")
    rows = fetch_rows(windows)
    local = frame_of_rows(inputs.session, rows, arrow_ddl(rows.schema))
    found = final_results(task.route.partial, given.frames[ARRIVING], local, task.step.until)
    return AdvanceResult(found, None, local), rows


def _add_difference_records(
    task: EvaluationTask, was: ResultArchive, inputs: RunInputs, written: Sequence[NewBucket]
) -> StepOutput:
    """What has been written, with change records that lead from the results of the former form to the new ones."""
    made = [each for each in written if each.role is not Role.FEED]
    if not have_same_key(was.shape, task.shape):
        return StepOutput(made)
    site = inputs.site
    some = buckets_by_start(site.catalog, was, was.last.commit_id)
    if task.anew:
        some = intact_buckets(inputs, was, some)
    before = results_frame(inputs.session, site.catalog, site.warehouse, was.shape, some)
    answer = [each for each in made if each.role in PUBLISHED_ROLES]
    after = new_buckets_frame(inputs.session, site.warehouse, result_schema(task.shape), answer)
    records = difference_records(before, was.shape, after, task.shape, task.number)
    sink = _make_sink(task, inputs, task.step.since)
    return StepOutput([*made, *(sink.write_changes(records) if inputs.near else sink.write_changes_in_tasks(records))])


def _unsettled_table(task: EvaluationTask, inputs: RunInputs, before: PriorEvaluation) -> pa.Table:
    """The results that the evaluation before left open or at the tip."""
    schema, warehouse = result_schema(task.shape), inputs.site.warehouse
    written = [conform(read_new_bucket(warehouse, each), schema) for each in before.unsettled]
    return pa.concat_tables([results_table(inputs.site.catalog, warehouse, task.shape, before.results), *written])


def _unsettled_frame(task: EvaluationTask, inputs: RunInputs, before: PriorEvaluation) -> DataFrame:
    """The same as a frame."""
    site = inputs.site
    if before.is_part:
        return new_buckets_frame(inputs.session, site.warehouse, result_schema(task.shape), before.unsettled)
    return results_frame(inputs.session, site.catalog, site.warehouse, task.shape, before.results)


def _state_frame(inputs: RunInputs, before: PriorEvaluation) -> DataFrame | None:
    """The state that the evaluation before has left."""
    if before.state is None:
        return None
    return frame_of_rows(inputs.session, before.state, arrow_ddl(before.state.schema))


def _known_results(task: EvaluationTask, inputs: RunInputs, before: PriorEvaluation) -> DataFrame | None:
    """The results so far, for the route that needs them."""
    if task.route.kind is not RouteKind.NEW_VALUES:
        return None
    fields = [each.name for each in task.plan.fields]
    if before.is_part:
        rows = new_buckets_frame(inputs.session, inputs.site.warehouse, result_schema(task.shape), before.written)
        return as_plan_source(rows, task.shape, fields)
    return None if task.basis is None else inputs.results_of(task.basis, fields)


def _fault_of_step(task: EvaluationTask, read: _StepReads, error: Exception) -> Fault:
    """The row and the expression that caused a failure, as far as they can be found."""
    frames: dict[str, DataFrame] = {}
    for part in read.frames().values():
        for name, frame in part.items():
            frames[name] = frames[name].unionByName(frame) if name in frames else frame
    return faults.find_fault(task.rewritten, frames, error, until=task.step.until)
