"""Corrects and evaluates queries in rounds: each query after those that it reads, several at once in one Spark session.

A query's turn has two steps: its results are corrected as far as its sources have been, then it is evaluated up to
where its sources reach. Each step is one commit, taken under the query's lease. Queries that read one which has
stopped or is worked on by another runner wait: their results would mix two states of the past."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from graphlib import TopologicalSorter
from typing import TypeVar

from errata.answer.catalog_view import CatalogView
from errata.answer.correction_commit import correct_query
from errata.answer.correction_plan import CorrectionPlan, plan_correction
from errata.answer.due_evaluation import DueEvaluation
from errata.answer.evaluation import evaluate
from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.faults import QueryStoppedError
from errata.answer.inputs import RunInputs
from errata.answer.progress import event_time_text
from errata.answer.steps import Step, StepKind, StepList, StepRequest
from errata.answer.task import EvaluationTask, task_for
from errata.answer.turns import QueryTurn, TurnOutcome, batches_by_size, lease_name
from errata.archive.revisions.apply import ReviseReport
from errata.catalog import leases, queries
from errata.catalog.leases import Lease, LeaseHolder, WaitPolicy
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import read_archive
from errata.catalog.transaction import BasisConflict, optimistic
from errata.declare.site import ProgressCallback
from errata.engine.failures import lost_spark_error, quiet_loggers
from errata.errors import ErrataError
from errata.model.commit import Fault
from errata.model.technique import Technique
from errata.model.time import LOWEST

QueryStep = TypeVar("QueryStep", CorrectionPlan, EvaluationTask)

PARALLEL_QUERIES = 4
"""Queries that are worked on at the same time."""

STEP_TRIES = 3
"""Times that a step is tried while other runners commit to its query first."""


@dataclass(frozen=True)
class RoundsRequest:
    """Which of the steps that are due are carried out, and how."""

    steps: StepRequest
    technique: Technique = Technique.AUTO
    narrowed: bool = True
    """See `TechniqueRequest`."""
    patience: WaitPolicy = field(default_factory=WaitPolicy)
    """How long to wait for a query that another runner works on."""


@dataclass(kw_only=True)
class RoundsReport:
    """What runs and sweeps report alike."""

    evaluated: list[EvaluationOutcome] = field(default_factory=list)
    current: list[str] = field(default_factory=list)
    """Queries for which nothing was due."""
    stopped: list[tuple[str, Fault]] = field(default_factory=list)
    """Queries that stopped at a row, and why. They wait for a person."""
    failed: list[tuple[str, ErrataError]] = field(default_factory=list)
    """Queries whose step failed for another reason. The next run retries."""
    held: list[tuple[str, str]] = field(default_factory=list)
    """Queries that wait for another one, and which."""
    busy: list[str] = field(default_factory=list)
    """Queries that another runner works on, or has just committed to."""
    holders: dict[str, LeaseHolder] = field(default_factory=dict)
    """The runners that work on busy queries, where they are known."""
    deferred: list[Step] = field(default_factory=list)
    """Corrections that wait, as their queries declare. A sweep has some only if it was asked for what is due."""
    revised: list[ReviseReport] = field(default_factory=list)
    """Streams to whose history pending revisions were applied."""

    def add(self, later: RoundsReport) -> None:
        """Add what came of later rounds. They may have met some of the queries again."""
        self.evaluated += later.evaluated
        done = {each.name for each in self.evaluated}
        self.current = [each for each in dict.fromkeys([*self.current, *later.current]) if each not in done]
        self.stopped = [*{**dict(self.stopped), **dict(later.stopped)}.items()]
        self.failed = [*{**dict(self.failed), **dict(later.failed)}.items()]
        self.held = [*{**dict(self.held), **dict(later.held)}.items()]
        self.busy = list(dict.fromkeys([*self.busy, *later.busy]))
        self.holders |= later.holders
        self.deferred = [*{(each.kind, each.name): each for each in [*self.deferred, *later.deferred]}.values()]
        self.revised += later.revised


class Rounds:
    """One run over some queries."""

    def __init__(
        self, view: CatalogView, on_step: ProgressCallback, request: RoundsRequest, report: RoundsReport
    ) -> None:
        self._steps = StepList(view, replace(request.steps, retries_stopped=request.technique is not Technique.AUTO))
        self._known = self._steps.queries
        self._inputs = RunInputs.open(view, self._known.values(), on_step)
        self._site, self._on_step, self._request, self._report = view.site, on_step, request, report

    def run(self) -> None:
        """Carry out all steps that are due."""
        reads = {
            name: [other for other in each.checked.reads if other in self._known] for name, each in self._known.items()
        }
        order = TopologicalSorter(reads)
        order.prepare()
        # Around all rounds: a thread that left this block would make the loggers of the others loud again.
        with quiet_loggers():
            while order.is_active():
                ready = order.get_ready()
                self._run_round([name for name in ready if not self._is_held(name, reads[name])])
                order.done(*ready)

    def _is_held(self, name: str, reads: Iterable[str]) -> bool:
        """Whether a query has to wait, since one that it reads is not up to date with its streams."""
        report = self._report
        blocked = {*report.busy, *(each for each, _ in (*report.stopped, *report.failed, *report.held))}
        for other in reads:
            if other in blocked:
                report.held.append((name, dict(report.held).get(other, other)))
                return True
        return False

    def _run_round(self, names: Sequence[str]) -> None:
        turns = []
        for name in names:
            if self._is_ahead(name):
                self._report.busy.append(name)
                continue
            query, steps = self._known[name], self._steps.of_query(name)
            waiting = (each for each in steps if each.waits is not None)
            self._report.deferred += [replace(each, revisions=self._steps.count(each)) for each in waiting]
            ready = [each for each in steps if each.waits is None]
            if ready and ready[0].held_by is not None:
                self._report.stopped.append((name, self._inputs.view.stopped[query.query_id].fault))
                continue
            due = next((each.evaluation for each in ready if each.evaluation is not None), None)
            turn = QueryTurn(query, self._correction(query, ready), self._task(query, due))
            if turn.idle:
                self._report.current.append(name)
            else:
                turns.append(turn)
        if not turns:
            return
        if any(each.needs_spark(self._inputs) for each in turns):
            self._inputs.spark.open()  # here a failure to start it ends the run, and not a single query
        self._inputs.expect(read for each in turns for read in each.reads)
        for some, conf in batches_by_size(turns, self._inputs):
            names, owner = [lease_name(each) for each in some], self._site.cause.owner
            with (
                self._inputs.spark.configured(conf),
                leases.hold_free_leases(self._site.catalog, names, owner) as held,
                ThreadPoolExecutor(PARALLEL_QUERIES) as pool,
            ):
                outcomes = pool.map(lambda turn, held=held: self._take_turn(turn, held.get(lease_name(turn))), some)
                for turn, outcome in zip(some, outcomes, strict=True):
                    self._record_outcome(turn.name, outcome)

    def _correction(self, query: RecordedQuery, steps: Iterable[Step]) -> CorrectionPlan | None:
        """How the query is corrected, where a step asks for it and the changes have rows."""
        if not any(each.kind is StepKind.CORRECT and each.waits is None for each in steps):
            return None
        plan, request = self._inputs.plans[query.checked.name], self._request
        return plan_correction(query, plan, self._inputs, request.technique, narrowed=request.narrowed)

    def _task(self, query: RecordedQuery, due: DueEvaluation | None) -> EvaluationTask | None:
        """How the query is evaluated, where that is due."""
        return None if due is None else task_for(query, self._inputs.plans[query.checked.name], self._inputs, due)

    def _next_task(self, turn: QueryTurn) -> EvaluationTask | None:
        """The evaluation that is due as results are now."""
        return self._task(turn.query, self._steps.evaluation_of(turn.name))

    def _is_ahead(self, name: str) -> bool:
        """Whether a query's results are of a later state of the streams than this run's. Queries that read it must not
        mix the two."""
        there, standings = self._inputs.published.get(name), self._inputs.standings
        if there is None:
            return False
        revised = there.last.revisions.items()
        later = any(number > standings[each].applied for each, number in revised if each in standings)
        return later or there.last.data_commit > self._inputs.commit_id

    def _record_outcome(self, name: str, outcome: TurnOutcome) -> None:
        for each in outcome.evaluations:
            self._report.evaluated.append(each)
            if not each.published.last.is_part:
                self._on_step(f"{name} is {'answered' if each.swept is None else 'corrected'}")
        if outcome.fault is not None:
            self._report.stopped.append((name, outcome.fault))
            self._on_step(f"{name} has stopped")
        elif outcome.error is not None:
            self._report.failed.append((name, outcome.error))
            self._on_step(f"{name} could not be taken further")
        elif outcome.busy:
            self._report.busy.append(name)
            if outcome.holder is not None:
                self._report.holders[name] = outcome.holder

    def _take_turn(self, turn: QueryTurn, held: Lease | None) -> TurnOutcome:
        """Take all steps of a query under its lease. One that is not free at once is waited for."""
        outcome = TurnOutcome()
        left: QueryTurn | None = turn
        if held is not None:
            self._take_steps(turn, outcome, held)
            left = self._remaining_turn(turn, outcome)
            if left is not None:
                leases.return_lease(self._site.catalog, held)  # between parts other runners may come first
        while left is not None:
            owner, patience = self._site.cause.owner, self._request.patience
            with leases.hold_lease(self._site.catalog, lease_name(turn), owner, patience) as lease:
                if lease.is_held:
                    self._take_steps(left, outcome, lease)
                else:
                    outcome.busy, outcome.holder = True, lease.other_holder
            left = self._remaining_turn(turn, outcome)
        return outcome

    def _take_steps(self, turn: QueryTurn, outcome: TurnOutcome, lease: Lease) -> None:
        """Correct the query's results, and evaluate one step."""
        if turn.correction is not None:
            self._correct(turn, turn.correction, outcome)
            outcome.busy |= lease.lost
        following = turn.task
        if turn.correction is not None and (following or self._request.steps.evaluates) and not outcome.halted:
            following = self._next_task(turn)
        if following is not None and not outcome.halted:
            self._report_parts(following)
            self._evaluate(turn, following, outcome)

    def _report_parts(self, task: EvaluationTask) -> None:
        """Tell how far a query is whose step is taken in parts."""
        begun = task.basis is not None and task.basis.last.is_part
        if task.basis is not None and (begun or task.rows_left):
            so_far = f"is answered up to {event_time_text(task.basis.frontier, task.basis)}"
        elif task.rows_left:
            so_far = "is answered in parts"
        else:
            return
        self._on_step(f"{task.name} {so_far}, and reads about {task.size(self._inputs) + task.rows_left:,} rows more")

    def _remaining_turn(self, turn: QueryTurn, outcome: TurnOutcome) -> QueryTurn | None:
        """The turn that is left where the last step was a part."""
        if outcome.halted or not outcome.evaluations or not outcome.evaluations[-1].published.last.is_part:
            return None
        task = self._next_task(turn)
        return None if task is None else QueryTurn(turn.query, None, task)

    def _correct(self, turn: QueryTurn, correction: CorrectionPlan, outcome: TurnOutcome) -> None:
        self._retry_step(
            turn,
            correction,
            partial(correct_query, inputs=self._inputs),
            lambda: self._correction(turn.query, self._steps.of_query(turn.name)),
            outcome,
        )

    def _evaluate(self, turn: QueryTurn, task: EvaluationTask, outcome: TurnOutcome) -> None:
        self._retry_step(turn, task, partial(evaluate, inputs=self._inputs), lambda: self._next_task(turn), outcome)

    def _retry_step(
        self,
        turn: QueryTurn,
        first: QueryStep,
        take: Callable[[QueryStep], EvaluationOutcome],
        again: Callable[[], QueryStep | None],
        outcome: TurnOutcome,
    ) -> None:
        """Take a step. Where another runner has committed first, plan it again: there may be nothing left to do."""
        following: QueryStep | None = first

        def attempt(_: int) -> bool:
            """Whether the step was taken, or has failed."""
            nonlocal following
            if following is None:
                return False  # the other runner has done what there was to do
            try:
                done = take(following)
            except BasisConflict:
                there = read_archive(self._site.catalog, turn.name)
                if there is not None:
                    self._inputs.published[turn.name] = there
                # Results of a later state than this run's are left alone.
                following = None if self._is_ahead(turn.name) else again()
                raise
            except QueryStoppedError as stop:
                there = self._inputs.published.get(turn.name)
                since = LOWEST if there is None else there.frontier
                queries.record_fault(self._site.catalog, turn.query.query_id, self._inputs.commit_id, since, stop.fault)
                outcome.fault = stop.fault
                return True
            except ErrataError as error:
                if (lost := lost_spark_error(error)) is not None:
                    raise lost from error  # the session is lost for the other queries, too
                outcome.error = error
                return True
            self._inputs.published[turn.name] = done.published
            outcome.evaluations.append(done)
            return True

        if not optimistic(attempt, lambda: False, tries=STEP_TRIES):
            outcome.busy = True
