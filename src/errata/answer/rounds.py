"""Queries taken further in rounds, each after those that it reads: first their results are corrected as far as their
streams have been, then they are evaluated. Several at once, in one Spark session."""

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
"""So many queries are worked on at the same time."""

STEP_TRIES = 3
"""So often another runner may take a query further while we are at it."""


@dataclass(frozen=True)
class RoundsRequest:
    """What is to be done of all that is due."""

    evaluates: bool = True
    """Whether queries are taken to later instants."""
    is_due: Callable[[CorrectionPlan], bool] = lambda _: True
    """Which corrections are due."""
    technique: Technique = Technique.AUTO
    narrowed: bool = True
    anew: frozenset[str] = frozenset()
    """Queries to be worked out from the beginning."""
    patience: WaitPolicy = field(default_factory=WaitPolicy)
    """How long a query is waited for that another runner is at work on."""


class Rounds:
    """Queries in rounds, each after those that it reads."""

    def __init__(
        self,
        site: Site,
        commit_id: int,
        known: Mapping[str, RecordedQuery],
        on_step: ProgressCallback,
        wanted: RoundsRequest,
    ) -> None:
        standings = {each.stream.name: each for each in streams.stream_states(site.catalog, commit_id)}
        declared = {name: each.stream for name, each in standings.items()}
        plans = read_plans(declared, {name: each.checked.query for name, each in known.items()}, list(known))
        spark = LazySession(site, lambda: on_step("starting Spark"))
        self._inputs = RunInputs(site, commit_id, standings, read_archives(site.catalog), plans, spark)
        self._site, self._known, self._on_step, self._wanted = site, known, on_step, wanted
        self._stopped_before = queries.stopped_queries(site.catalog)
        self._reads = {name: each.checked.reads for name, each in known.items()}
        self.evaluated: list[EvaluationOutcome] = []
        self.deferred: list[CorrectionPlan] = []
        """Corrections that are not due yet."""
        self.current: list[str] = []
        self.busy: list[str] = []
        self.holders: dict[str, LeaseHolder] = {}
        self.stopped: dict[str, Fault] = {}
        self.failed: dict[str, ErrataError] = {}
        self.held: dict[str, str] = {}

    def run(self) -> None:
        """Do all that is due."""
        reads = {
            name: [other for other in each.checked.reads if other in self._known] for name, each in self._known.items()
        }
        order = TopologicalSorter(reads)
        order.prepare()
        # Quiet around all of them: one thread that ended its quiet would end that of the others.
        with quiet_loggers():
            while order.is_active():
                ready = order.get_ready()
                self._round([name for name in ready if not self._waits(name, reads[name])])
                order.done(*ready)

    @property
    def report_fields(self) -> Mapping[str, Any]:
        """What came of it, by the names of a report's fields."""
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

    def _waits(self, name: str, reads: Iterable[str]) -> bool:
        """Whether a query has to wait because one that it reads has not come as far as its streams."""
        blocked = {**self.stopped, **self.failed, **self.held}
        for other in reads:
            if other in blocked or other in self.busy:
                self.held[name] = self.held.get(other, other)
                return True
        return False

    def _round(self, names: Sequence[str]) -> None:
        turns = []
        for name in names:
            if self._further(name):
                self.busy.append(name)
                continue
            turn = self._turn(name)
            if turn.idle:
                self.current.append(name)
            elif (known := self._stopped_before.get(turn.query.query_id)) is not None and self._unchanged(turn, known):
                self.stopped[name] = known.fault
            else:
                turns.append(turn)
        if not turns:
            return
        if any(each.needs_spark(self._inputs) for each in turns):
            self._inputs.spark.open()  # here, where a failure to start it ends the run and not a query
        self._inputs.expect(read for each in turns for read in each.reads)
        for some, conf in batches_by_size(turns, self._inputs):
            names, owner = [lease_name(each) for each in some], self._site.cause.owner
            with (
                self._inputs.spark.configured(conf),
                leases.hold_free_leases(self._site.catalog, names, owner) as held,
                ThreadPoolExecutor(PARALLEL_QUERIES) as pool,
            ):
                outcomes = pool.map(lambda turn, held=held: self._one(turn, held.get(lease_name(turn))), some)
                for turn, outcome in zip(some, outcomes, strict=True):
                    self._note(turn.name, outcome)

    def _turn(self, name: str) -> QueryTurn:
        query, plan, wanted = self._known[name], self._inputs.plans[name], self._wanted
        anew = name in wanted.anew
        correction = None if anew else self._sweeping(query, plan)
        goes_on = wanted.evaluates or self._may_go_on(name)
        task = task_for(query, plan, self._inputs, anew=anew) if goes_on else None
        return QueryTurn(query, plan, correction, task)

    def _may_go_on(self, name: str) -> bool:
        """Whether a query, or one that it reads, had stopped and something has come since: corrections that mend what
        stopped it let it go on, though only they are taken up otherwise."""
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

    def _sweeping(self, query: RecordedQuery, plan: Plan) -> CorrectionPlan | None:
        """What is to be corrected now."""
        found = plan_correction(query, plan, self._inputs, self._wanted.technique, narrowed=self._wanted.narrowed)
        if found is None or found.cannot_wait or self._wanted.is_due(found):
            return found
        self.deferred.append(found)
        return None

    def _further(self, name: str) -> bool:
        """Whether a query's results are of a later state of the streams than this run's: what reads them must not mix
        the two."""
        there, standings = self._inputs.published.get(name), self._inputs.standings
        if there is None:
            return False
        revised = there.last.revisions.items()
        later = any(number > standings[each].applied for each, number in revised if each in standings)
        return later or there.last.data_commit > self._inputs.commit_id

    def _unchanged(self, turn: QueryTurn, known: StoppedQuery) -> bool:
        """Whether nothing has come since a query stopped that could let it go on."""
        task = turn.task if turn.correction is None else turn.correction.task
        if task is None or task.anew or self._wanted.technique is not Technique.AUTO:
            return False  # who asks for a technique wants it tried
        return not any(self._inputs.standings[name].changed_in > known.data_commit for name in task.revisions)

    def _note(self, name: str, outcome: TurnOutcome) -> None:
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

    def _one(self, turn: QueryTurn, held: Lease | None) -> TurnOutcome:
        """Do all that there is to do for a query, with its lease; one that could not be had at once is waited for."""
        outcome = TurnOutcome()
        left: QueryTurn | None = turn
        if held is not None:
            self._once(turn, outcome, held)
            left = self._left(turn, outcome)
            if left is not None:
                leases.return_lease(self._site.catalog, held)  # between parts others may come first
        while left is not None:
            owner, patience = self._site.cause.owner, self._wanted.patience
            with leases.hold_lease(self._site.catalog, lease_name(turn), owner, patience) as lease:
                if lease.ours:
                    self._once(left, outcome, lease)
                else:
                    outcome.busy, outcome.holder = True, lease.by
            left = self._left(turn, outcome)
        return outcome

    def _once(self, turn: QueryTurn, outcome: TurnOutcome, lease: Lease) -> None:
        """Correct the query's results and take it a step further."""
        if turn.correction is not None:
            self._sweep(turn, turn.correction, outcome)
            outcome.busy |= lease.lost
        following = turn.task
        if turn.correction is not None and (following or self._wanted.evaluates) and not outcome.halted:
            following = task_for(turn.query, turn.plan, self._inputs)
        if following is not None and not outcome.halted:
            self._tell(following)
            self._evaluate(turn, following, outcome)

    def _tell(self, task: EvaluationTask) -> None:
        """How far a query is that is taken further in parts."""
        begun = task.basis is not None and task.basis.last.is_part
        if task.basis is not None and (begun or task.rows_left):
            so_far = f"is answered up to {event_time_text(task.basis.frontier, task.basis)}"
        elif task.rows_left:
            so_far = "is answered in parts"
        else:
            return
        self._on_step(f"{task.name} {so_far}, and reads about {task.size(self._inputs) + task.rows_left:,} rows more")

    def _left(self, turn: QueryTurn, outcome: TurnOutcome) -> QueryTurn | None:
        """What is left to do where the last step was a part of the way."""
        if outcome.halted or not outcome.evaluations or not outcome.evaluations[-1].published.last.is_part:
            return None
        task = task_for(turn.query, turn.plan, self._inputs)
        return None if task is None else QueryTurn(turn.query, turn.plan, None, task)

    def _sweep(self, turn: QueryTurn, correction: CorrectionPlan, outcome: TurnOutcome) -> None:
        again = partial(self._sweeping, turn.query, turn.plan)
        self._tried(turn, correction, partial(correct_query, inputs=self._inputs), again, outcome)

    def _evaluate(self, turn: QueryTurn, task: EvaluationTask, outcome: TurnOutcome) -> None:
        again = partial(task_for, turn.query, turn.plan, self._inputs, anew=task.anew)
        self._tried(turn, task, partial(evaluate, inputs=self._inputs), again, outcome)

    def _tried(
        self,
        turn: QueryTurn,
        first: QueryStep,
        take: Callable[[QueryStep], EvaluationOutcome],
        again: Callable[[], QueryStep | None],
        outcome: TurnOutcome,
    ) -> None:
        """Take a step; once more if another runner has come first and there is still something to do."""
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
                # Of instants that this run knows nothing of it must not say anything.
                following = None if self._further(turn.name) else again()
                raise
            except QueryStoppedError as stop:
                there = self._inputs.published.get(turn.name)
                since = LOWEST if there is None else there.frontier
                queries.record_fault(self._site.catalog, turn.query.query_id, self._inputs.commit_id, since, stop.fault)
                outcome.fault = stop.fault
                return True
            except ErrataError as error:
                if (lost := lost_spark_error(error)) is not None:
                    raise lost from error  # there is none for the other queries, either
                outcome.error = error
                return True
            self._inputs.published[turn.name] = done.published
            outcome.evaluations.append(done)
            return True

        if not optimistic(attempt, lambda: False, tries=STEP_TRIES):
            outcome.busy = True


def queries_with_inputs(known: Mapping[str, RecordedQuery], names: Sequence[str]) -> Mapping[str, RecordedQuery]:
    """The queries named and those that they read; without names, all."""
    for name in names:
        if name not in known:
            raise unknown_name_error("query", name, list(known))
    reads = {name: each.checked.reads for name, each in known.items()}
    return {name: known[name] for name in with_inputs(names, reads)} if names else known
