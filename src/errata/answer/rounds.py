"""Corrects and evaluates queries in rounds: each query after those that it reads, several at once in one Spark session.

A query's turn has two steps: its results are corrected as far as its sources have been, then it is evaluated up to
where its sources reach. Each step is one commit, taken under the query's lease. Queries that read one which has
stopped or is worked on by another runner wait: their results would mix two states of the past."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from graphlib import TopologicalSorter
from typing import Any, TypeVar

from errata.answer.correction_commit import correct_query
from errata.answer.correction_plan import CorrectionPlan, plan_correction
from errata.answer.evaluation import evaluate
from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.faults import QueryStoppedError
from errata.answer.inputs import LazySession, RunInputs
from errata.answer.progress import ProgressCallback, event_time_text, transitive_inputs
from errata.answer.task import EvaluationTask, task_for
from errata.answer.turns import QueryTurn, TurnOutcome, batches_by_size, lease_name
from errata.catalog import leases, queries, streams
from errata.catalog.leases import Lease, LeaseHolder, WaitPolicy
from errata.catalog.queries import RecordedQuery, StoppedQuery
from errata.catalog.result_archives import read_archive, read_archives
from errata.catalog.transaction import BasisConflict, optimistic
from errata.declare.query_plans import read_plans, with_inputs
from errata.declare.site import Site
from errata.engine.failures import lost_spark_error, quiet_loggers
from errata.errors import ErrataError, unknown_name_error
from errata.language.plan import Plan
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

    evaluates: bool = True
    """Whether queries are evaluated; otherwise they are only corrected."""
    is_due: Callable[[CorrectionPlan], bool] = lambda _: True
    """Whether a correction that could wait is due."""
    technique: Technique = Technique.AUTO
    narrowed: bool = True
    """See `TechniqueRequest`."""
    anew: frozenset[str] = frozenset()
    """Queries to be recomputed from their first instant, in place of their results."""
    patience: WaitPolicy = field(default_factory=WaitPolicy)
    """How long to wait for a query that another runner works on."""


class Rounds:
    """One run over some queries."""

    def __init__(
        self,
        site: Site,
        commit_id: int,
        known: Mapping[str, RecordedQuery],
        on_step: ProgressCallback,
        request: RoundsRequest,
    ) -> None:
        standings = {each.stream.name: each for each in streams.stream_states(site.catalog, commit_id)}
        declared = {name: each.stream for name, each in standings.items()}
        plans = read_plans(declared, {name: each.checked.query for name, each in known.items()}, list(known))
        spark = LazySession(site, lambda: on_step("starting Spark"))
        self._inputs = RunInputs(site, commit_id, standings, read_archives(site.catalog), plans, spark)
        self._site, self._known, self._on_step, self._request = site, known, on_step, request
        self._stopped_before = queries.stopped_queries(site.catalog)
        self._reads = {name: each.checked.reads for name, each in known.items()}
        self.evaluated: list[EvaluationOutcome] = []
        self.deferred: list[CorrectionPlan] = []
        """Corrections that are not due yet, and wait."""
        self.current: list[str] = []
        self.busy: list[str] = []
        self.holders: dict[str, LeaseHolder] = {}
        self.stopped: dict[str, Fault] = {}
        self.failed: dict[str, ErrataError] = {}
        self.held: dict[str, str] = {}

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

    @property
    def report_fields(self) -> Mapping[str, Any]:
        """The outcome, by the names of a report's fields."""
        return {
            "evaluated": self.evaluated,
            "current": self.current,
            "stopped": list(self.stopped.items()),
            "failed": list(self.failed.items()),
            "held": list(self.held.items()),
            "busy": self.busy,
            "holders": self.holders,
            "deferred": self.deferred,
        }

    def _is_held(self, name: str, reads: Iterable[str]) -> bool:
        """Whether a query has to wait, since one that it reads is not up to date with its streams."""
        blocked = {**self.stopped, **self.failed, **self.held}
        for other in reads:
            if other in blocked or other in self.busy:
                self.held[name] = self.held.get(other, other)
                return True
        return False

    def _run_round(self, names: Sequence[str]) -> None:
        turns = []
        for name in names:
            if self._is_ahead(name):
                self.busy.append(name)
                continue
            turn = self._next_turn(name)
            if turn.idle:
                self.current.append(name)
            elif (known := self._stopped_before.get(turn.query.query_id)) is not None and self._still_stopped(
                turn, known
            ):
                self.stopped[name] = known.fault
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

    def _next_turn(self, name: str) -> QueryTurn:
        query, plan, request = self._known[name], self._inputs.plans[name], self._request
        anew = name in request.anew
        correction = None if anew else self._correction(query, plan)
        goes_on = request.evaluates or self._may_resume(name)
        task = task_for(query, plan, self._inputs, anew=anew) if goes_on else None
        return QueryTurn(query, plan, correction, task)

    def _may_resume(self, name: str) -> bool:
        """Whether a query, or one that it reads, had stopped and something has come since. A sweep then evaluates it,
        too: the corrections may have mended what stopped it."""
        if not self._stopped_before:
            return False
        return any(
            self._has_changed(each) for each in (name, *transitive_inputs(name, self._reads)) if each in self._known
        )

    def _has_changed(self, name: str) -> bool:
        known = self._stopped_before.get(self._known[name].query_id)
        if known is None:
            return False
        bases = [each for each in transitive_inputs(name, self._reads) if each in self._inputs.standings]
        return any(self._inputs.standings[each].changed_in > known.data_commit for each in bases)

    def _correction(self, query: RecordedQuery, plan: Plan) -> CorrectionPlan | None:
        """The correction to be made now. One that is not due is noted, and waits."""
        found = plan_correction(query, plan, self._inputs, self._request.technique, narrowed=self._request.narrowed)
        if found is None or found.cannot_wait or self._request.is_due(found):
            return found
        self.deferred.append(found)
        return None

    def _is_ahead(self, name: str) -> bool:
        """Whether a query's results are of a later state of the streams than this run's. Queries that read it must not
        mix the two."""
        there, standings = self._inputs.published.get(name), self._inputs.standings
        if there is None:
            return False
        revised = there.last.revisions.items()
        later = any(number > standings[each].applied for each, number in revised if each in standings)
        return later or there.last.data_commit > self._inputs.commit_id

    def _still_stopped(self, turn: QueryTurn, known: StoppedQuery) -> bool:
        """Whether nothing has come since a query stopped that could let it continue."""
        task = turn.task if turn.correction is None else turn.correction.task
        if task is None or task.anew or self._request.technique is not Technique.AUTO:
            return False  # a technique that was asked for is tried
        return not any(self._inputs.standings[name].changed_in > known.data_commit for name in task.revisions)

    def _record_outcome(self, name: str, outcome: TurnOutcome) -> None:
        for each in outcome.evaluations:
            self.evaluated.append(each)
            if not each.published.last.is_part:
                self._on_step(f"{name} is {'answered' if each.swept is None else 'corrected'}")
        if outcome.fault is not None:
            self.stopped[name] = outcome.fault
            self._on_step(f"{name} has stopped")
        elif outcome.error is not None:
            self.failed[name] = outcome.error
            self._on_step(f"{name} could not be taken further")
        elif outcome.busy:
            self.busy.append(name)
            if outcome.holder is not None:
                self.holders[name] = outcome.holder

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
        if turn.correction is not None and (following or self._request.evaluates) and not outcome.halted:
            following = task_for(turn.query, turn.plan, self._inputs)
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
        task = task_for(turn.query, turn.plan, self._inputs)
        return None if task is None else QueryTurn(turn.query, turn.plan, None, task)

    def _correct(self, turn: QueryTurn, correction: CorrectionPlan, outcome: TurnOutcome) -> None:
        again = partial(self._correction, turn.query, turn.plan)
        self._retry_step(turn, correction, partial(correct_query, inputs=self._inputs), again, outcome)

    def _evaluate(self, turn: QueryTurn, task: EvaluationTask, outcome: TurnOutcome) -> None:
        again = partial(task_for, turn.query, turn.plan, self._inputs, anew=task.anew)
        self._retry_step(turn, task, partial(evaluate, inputs=self._inputs), again, outcome)

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


def queries_with_inputs(known: Mapping[str, RecordedQuery], names: Sequence[str]) -> Mapping[str, RecordedQuery]:
    """The queries named, and those that they read; all, if none is named."""
    for name in names:
        if name not in known:
            raise unknown_name_error("query", name, list(known))
    reads = {name: each.checked.reads for name, each in known.items()}
    return {name: known[name] for name in with_inputs(names, reads)} if names else known
