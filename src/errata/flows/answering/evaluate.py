"""One query taken as far as its streams reach: what is new is read, worked out, compared with what is published, and
committed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from errata.archive.result_rows import result_schema, rows_schema
from errata.archive.results import (
    ANSWER,
    ResultWriter,
    as_source,
    buckets_beginning,
    frame_of,
    frame_of_new,
    read_new,
    table_of,
)
from errata.archive.wire import conformed
from errata.catalog import published
from errata.catalog.append import BasisMovedError
from errata.catalog.published import Done, Published
from errata.engine.failures import JOB_FAILURES, how_to_mend, last_word, loggers_quiet, of_some_row
from errata.engine.plans.advanced import Advanced
from errata.engine.plans.partials import results_of
from errata.engine.types import arrow_ddl
from errata.engine.values import as_frame, fetch
from errata.errors import ErrataError
from errata.evaluate import faults
from errata.evaluate.advance import Given, advance
from errata.evaluate.deposit import Deposit, Depositor, gathered, kept
from errata.evaluate.difference import comparable, differences
from errata.evaluate.needs import ARRIVING, needs
from errata.evaluate.route import Kind
from errata.evaluate.settle import Told
from errata.evaluate.windows import closed_and_open
from errata.flows.answering import lineage_kept
from errata.flows.answering.because import cause_of
from errata.flows.answering.inputs import Inputs, Read, measured
from errata.flows.answering.parts import all_parts
from errata.flows.answering.serving import serving
from errata.flows.answering.standing_results import Former, check_can_be_made_anew, former, still_whole
from errata.flows.answering.task import Task
from errata.model.bucket import NewBucket, Role
from errata.model.evaluation import Fault, Measures, Step, Swept
from errata.model.interval import LOWEST
from errata.model.results import VS

SMALL = 200_000
"""Steps that read about so many rows are brought here whole; larger ones are settled in Spark's tasks."""

TASK_ROWS = 500_000
"""A task of a larger one has about so many rows."""

_PASSING = (Role.OPEN, Role.TIP, Role.STATE, Role.FEED)
"""What a part writes and the next one takes up or brings anew."""


class StoppedError(Exception):
    """The query cannot go on."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


@dataclass(frozen=True)
class Evaluated:
    """What came of a task."""

    name: str
    commit_id: int
    step: Step
    measures: Measures
    published: Published

    @property
    def swept(self) -> Swept | None:
        """What was corrected, if that was the task."""
        return self.published.last.swept


@dataclass(frozen=True)
class _Read:
    """All that a step reads."""

    parts: dict[str, dict[str, Read]]
    former: Former

    @property
    def all(self) -> list[Read]:
        return [read for part in self.parts.values() for read in part.values()]

    @property
    def rows(self) -> int:
        """About how many rows of streams, relations and queries these are."""
        return sum(each.rows for each in self.all)

    @property
    def nothing(self) -> bool:
        """Whether nothing has come that could make a result."""
        return not any(each.opened for each in self.all)

    def frames(self) -> dict[str, dict[str, DataFrame]]:
        return {part: {name: each.frame for name, each in reads.items()} for part, reads in self.parts.items()}


def evaluate(task: Task, inputs: Inputs) -> Evaluated:
    """Do what there is to do for a query, and commit it."""
    began = time.perf_counter()
    before = former(inputs.site, task)
    (read, deposit), choice = inputs.run(task.demand(inputs), partial(_deposited, task, before))
    micros = round((time.perf_counter() - began) * 1e6)
    told = (Role.FEED,) if task.route.covering else (Role.BASE, Role.TIP)
    rows, asked = deposit.rows(*told), sum(each.rows for each in read)
    cost = measured(each for some in read for each in some.all)
    route = task.route.kind.value
    measures = replace(
        cost, rows_asked=asked, rows=rows, micros=micros, route=route, engine=choice.engine.value, engine_why=choice.why
    )
    return _finished(task, inputs, deposit, before, measures)


def _deposited(task: Task, before: Former, inputs: Inputs) -> tuple[list[_Read], Deposit]:
    """What a task's step, or all of its parts, has read and written."""
    if task.replaces is not None:
        return _instead(task, task.replaces, inputs)
    read = _read(task, inputs, before)
    return [read], _tried(task, inputs, read)


def _instead(task: Task, was: Published, inputs: Inputs) -> tuple[list[_Read], Deposit]:
    """The same for what takes the place of other results, in one commit: were it less than all, what they say of later
    instants would be withdrawn. So it is only worked out in parts, each from what the one before it has left."""
    read, made, before = [], list[NewBucket](), Former()
    steps = all_parts(task.rewritten, task.route, task.step, task.begins, inputs)
    # What is told of the instant between two parts by both is told once only if it is of two evaluations.
    for step in [task.step] if lineage_kept.stores(task) else steps:
        part = replace(task, step=step)
        read.append(_read(part, inputs, before))
        buckets = _tried(part, inputs, read[-1]).buckets
        inputs.site.discard([each for each in made if each.role in _PASSING])
        made = [*(each for each in made if each.role not in _PASSING), *buckets]
        answer = [each for each in made if each.role in ANSWER]
        before = Former(state=_state_in(inputs, buckets), written=answer, goes_on=True)
    try:
        with loggers_quiet():
            return read, _compared(task, was, inputs, made)
    except JOB_FAILURES as error:
        if inputs.near:
            inputs.site.discard(made)
            raise  # the far engine decides
        raise _broken_off(task, error) from error


def _state_in(inputs: Inputs, made: Sequence[NewBucket]) -> pa.Table | None:
    """What the strategy has kept."""
    return next((read_new(inputs.site.warehouse, each) for each in made if each.role is Role.STATE), None)


def _tried(task: Task, inputs: Inputs, read: _Read) -> Deposit:
    """Work a step out; where that fails, tell at what."""
    try:
        with loggers_quiet():
            return _deposit(task, inputs, read)
    except JOB_FAILURES as error:
        if inputs.near:
            raise  # the far engine decides
        fault = _fault(task, read, error)
        if fault.expression or of_some_row(error):
            raise StoppedError(fault) from error
        raise _broken_off(task, error) from error


def _broken_off(task: Task, error: Exception) -> ErrataError:
    """What is told where it is not for the rows, so that to run it again may help."""
    return ErrataError(
        f"query {task.name} could not be taken further",
        why=last_word(error),
        how=f"{how_to_mend(error)} and run it again: what was answered before stands",
    )


def _read(task: Task, inputs: Inputs, before: Former) -> _Read:
    lost = task.route.keeps_state and not task.step.first and before.state is None
    if lost:
        check_can_be_made_anew(task, inputs)
    parts: dict[str, dict[str, Read]] = {}
    needed = needs(task.rewritten, task.route, task.step, state_lost=lost, beginning=_begins(task, before))
    for part, reaches in needed.items():
        parts[part] = {
            name: inputs.read(name, reach, task.step.until, task.revisions.get(name)) for name, reach in reaches.items()
        }
    return _Read(parts, before)


def _deposit(task: Task, inputs: Inputs, read: _Read) -> Deposit:
    """Work the step out, and write what comes of it."""
    # Of results that are only added, those from before count from their own beginnings.
    since = LOWEST if _begins(task, read.former) and not task.route.covering else task.step.since
    depositor, before = _depositor(task, inputs, since), read.former
    writer = depositor.writer
    if read.nothing and not task.route.keeps_state:
        rows = rows_schema(task.shape).empty_table()
        return depositor.in_memory(rows, _table(task, inputs, before))
    beginning = _begins(task, before)
    given = Given(read.frames(), _state(inputs, before), _known(task, inputs, before), beginning=beginning, parts=True)
    results = advance(task.rewritten, task.route, task.step, given)
    beside = results.state if results.windows is None else results.windows
    if results.windows is not None and (inputs.near or read.rows > SMALL):
        results, beside = _added_up_once(task, inputs, given, results.windows)
    rows_frame = kept(results.rows, task.shape, [each.name for each in task.plan.fields])
    if task.results_from > LOWEST:
        rows_frame = rows_frame.where(f"{VS} >= {task.results_from}L")
    here = inputs.near or read.rows <= SMALL
    if here or results.windows is not None:
        rows, state = gathered(rows_frame, beside, rows_schema(task.shape))
        deposit = depositor.in_memory(rows, _table(task, inputs, before))
    else:
        deposit = depositor.in_tasks(rows_frame, _frame(task, inputs, before), max(2, read.rows // TASK_ROWS))
        state = beside if beside is None or isinstance(beside, pa.Table) else fetch(beside)
    if state is not None and results.windows is not None:
        parts, state = closed_and_open(state, task.step, task.number)
        deposit.buckets.extend(writer.write(Role.PARTS, parts))
    if state is not None:
        deposit.buckets.extend(writer.write_state(state, task.step.until))
    if lineage_kept.stores(task):
        tasks = 0 if here else max(2, read.rows // TASK_ROWS)
        deposit.buckets.extend(lineage_kept.of_step(task, given, since, writer, tasks))
    return deposit


def _depositor(task: Task, inputs: Inputs, since: int) -> Depositor:
    writer = ResultWriter(inputs.site.warehouse, task.name, task.shape.timed)
    return Depositor(writer, task.shape, Told(since, task.step.until, task.number, task.route.covering, task.closes))


def _begins(task: Task, before: Former) -> bool:
    """Whether it is the beginning of the results."""
    return task.basis is None and not before.goes_on


def _added_up_once(task: Task, inputs: Inputs, given: Given, windows: DataFrame) -> tuple[Advanced, pa.Table]:
    """The same results from what is kept of their windows, and that: rows are added up once, and not for each."""
    if task.route.partial is None:
        raise AssertionError("only groups keep windows")
    rows = fetch(windows)
    local = as_frame(inputs.session, rows, arrow_ddl(rows.schema))
    found = results_of(task.route.partial, given.frames[ARRIVING], local, task.step.until)
    return Advanced(found, None, local), rows


def _compared(task: Task, was: Published, inputs: Inputs, written: Sequence[NewBucket]) -> Deposit:
    """What has been written, with change records that lead from the answer of the query's former form to this one."""
    made = [each for each in written if each.role is not Role.FEED]
    if not comparable(was.shape, task.shape):
        return Deposit(made)
    site = inputs.site
    some = buckets_beginning(site.catalog, was, was.last.commit_id)
    if task.anew:
        some = still_whole(inputs, was, some)
    before = frame_of(inputs.session, site.catalog, site.warehouse, was.shape, some)
    answer = [each for each in made if each.role in ANSWER]
    after = frame_of_new(inputs.session, site.warehouse, result_schema(task.shape), answer)
    records = differences(before, was.shape, after, task.shape, task.number)
    depositor = _depositor(task, inputs, task.step.since)
    return Deposit([*made, *(depositor.feed(records) if inputs.near else depositor.feed_in_tasks(records))])


def _table(task: Task, inputs: Inputs, before: Former) -> pa.Table:
    """Results that were open or at the tip."""
    schema, warehouse = result_schema(task.shape), inputs.site.warehouse
    written = [conformed(read_new(warehouse, each), schema) for each in before.unsettled]
    return pa.concat_tables([table_of(inputs.site.catalog, warehouse, task.shape, before.results), *written])


def _frame(task: Task, inputs: Inputs, before: Former) -> DataFrame:
    """The same for Spark."""
    site = inputs.site
    if before.goes_on:
        return frame_of_new(inputs.session, site.warehouse, result_schema(task.shape), before.unsettled)
    return frame_of(inputs.session, site.catalog, site.warehouse, task.shape, before.results)


def _state(inputs: Inputs, before: Former) -> DataFrame | None:
    """What the strategy has kept the last time."""
    if before.state is None:
        return None
    return as_frame(inputs.session, before.state, arrow_ddl(before.state.schema))


def _known(task: Task, inputs: Inputs, before: Former) -> DataFrame | None:
    """Results so far, for the strategy that has to know which there are."""
    if task.route.kind is not Kind.NEW_VALUES:
        return None
    fields = [each.name for each in task.plan.fields]
    if before.goes_on:
        rows = frame_of_new(inputs.session, inputs.site.warehouse, result_schema(task.shape), before.written)
        return as_source(rows, task.shape, fields)
    return None if task.basis is None else inputs.results_of(task.basis, fields)


def _fault(task: Task, read: _Read, error: Exception) -> Fault:
    """The row and the expression that a query stopped at, as far as they can be found."""
    frames: dict[str, DataFrame] = {}
    for part in read.frames().values():
        for name, frame in part.items():
            frames[name] = frames[name].unionByName(frame) if name in frames else frame
    return faults.find(task.rewritten, frames, error, until=task.step.until)


def _finished(task: Task, inputs: Inputs, deposit: Deposit, before: Former, measures: Measures) -> Evaluated:
    cause = cause_of(task, inputs)
    made: list[NewBucket] = [*deposit.buckets, *before.merged_into]
    done = Done(
        task.name,
        task.query.query_id,
        task.shape,
        task.basis,
        task.step,
        inputs.commit_id,
        task.revisions,
        cause,
        measures,
        task.begins,
        made,
        merged=before.merged,
        rows=deposit.rows(Role.BASE) + before.rows,
        replaces=task.replaces,
        holds=news(task, inputs),
        serves=serving(task, inputs, deposit.buckets, whole=cause["feed"] == "whole"),
        inputs=task.inputs,
    )
    return committed(done, "run", inputs)


def committed(done: Done, flow: str, inputs: Inputs) -> Evaluated:
    """What has been written made visible; where another runner has come first it is removed."""
    site = inputs.site
    try:
        now = published.commit_evaluation(site.catalog, done, site.caused_by(flow, inputs.spark.opened))
    except BasisMovedError:
        site.discard(done.made)
        raise
    return Evaluated(done.query, now.last.commit_id, done.step, done.measures, now)


def news(task: Task, inputs: Inputs) -> dict[int, int]:
    """Streams of which the query has consumed revisions for the first time, or more than before."""
    known = {} if task.basis is None else task.basis.last.revisions
    return {
        inputs.standings[name].stream_id: revision
        for name, revision in task.revisions.items()
        if known.get(name) != revision
    }
