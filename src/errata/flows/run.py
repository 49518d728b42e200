"""All that is due: what has landed is taken in, and every query that is behind is brought up to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from errata.catalog import commits, leases, pins, queries, stopped, streams
from errata.catalog.append import BasisMovedError
from errata.catalog.published import all_published, published
from errata.catalog.queries import RecordedQuery
from errata.catalog.stopped import Stopped
from errata.errors import ErrataError, UsageError, unknown
from errata.evaluate.route import Kind
from errata.flows.append import AppendReport, Batch, append
from errata.flows.check import read, with_inputs
from errata.flows.evaluate import SMALL, Evaluated, StoppedError, evaluate
from errata.flows.inputs import Inputs
from errata.flows.site import Site
from errata.flows.task import Task, task_for
from errata.model.evaluation import Fault
from errata.model.interval import LOWEST
from errata.spark.failures import loggers_quiet
from errata.spark.session import configured

AT_ONCE = 4
"""So many queries are worked on at the same time."""

TRIES = 3
"""So often another runner may take a query further while we are at it."""

SMALL_JOBS: Mapping[str, str] = {"spark.sql.adaptive.enabled": "false"}
"""While all that is due is small: to look at each stage before the next is planned takes longer than the stages."""

TINY = 50_000
"""Steps that read about so few rows are interpreted, by one task."""

TINY_JOBS: Mapping[str, str] = {
    **SMALL_JOBS,
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""To compile Java for each takes longer than it can save, and the instants in it make it another one each time."""

OnStep = Callable[[str], None]


@dataclass(frozen=True)
class RunReport:
    """What a run has done."""

    batches: Sequence[AppendReport] = ()
    evaluated: Sequence[Evaluated] = ()
    current: Sequence[str] = field(default=())
    """Queries that were as far as their streams reach."""
    stopped: Sequence[tuple[str, Fault]] = ()
    """Queries that cannot go on, and why."""
    held: Sequence[tuple[str, str]] = ()
    """Queries that wait for another one, and for which."""
    busy: Sequence[str] = ()
    """Queries that another runner is at work on, or has just taken further."""


def run(
    site: Site,
    names: Sequence[str] = (),
    *,
    take: bool = True,
    anew: bool = False,
    on_step: OnStep = lambda _: None,
) -> RunReport:
    """Do all that is due; with names, evaluate only these queries and those that they read. `anew`: those named from
    the beginning, into archives that take the place of theirs."""
    if anew and not names:
        raise UsageError("no query is named that is to be worked out anew", how="name it: errata run --anew QUERY")
    batches = _landed(site, on_step) if take else []
    # Pinned first and looked up behind the pin: what is found then stays.
    with pins.pinned(site.catalog, commits.newest(site.catalog), "run") as pin:
        known = _wanted(queries.recorded(site.catalog), names)
        if not known:
            return RunReport(batches)
        rounds = _Rounds(site, pin.commit_id, known, on_step, frozenset(names) if anew else frozenset())
        # Around all of them: one thread that ended its quiet would end that of the others.
        with loggers_quiet():
            rounds.go()
    return RunReport(
        batches, rounds.evaluated, rounds.current, list(rounds.stopped.items()), list(rounds.held.items()), rounds.busy
    )


def _landed(site: Site, on_step: OnStep) -> list[AppendReport]:
    """Take in what has landed."""
    landing = [name for name, each in site.project.streams.items() if each.landing is not None]
    reports = [append(site, Batch(name, landed=True), on_step) for name in landing]
    return [each for each in reports if each.commit_id is not None]


def _wanted(known: Mapping[str, RecordedQuery], names: Sequence[str]) -> Mapping[str, RecordedQuery]:
    for name in names:
        if name not in known:
            raise unknown("query", name, list(known))
    reads = {name: each.checked.reads for name, each in known.items()}
    return {name: known[name] for name in with_inputs(names, reads)} if names else known


class _Rounds:
    """Queries evaluated in rounds, each after those that it reads."""

    def __init__(
        self,
        site: Site,
        commit_id: int,
        known: Mapping[str, RecordedQuery],
        on_step: OnStep,
        anew: frozenset[str] = frozenset(),
    ) -> None:
        standings = {each.stream.name: each for each in streams.standings(site.catalog, commit_id)}
        declared = {name: each.stream for name, each in standings.items()}
        plans = read(declared, {name: each.checked.query for name, each in known.items()}, list(known))
        self._inputs = Inputs(site, commit_id, standings, all_published(site.catalog), plans)
        self._site, self._known, self._on_step, self._anew = site, known, on_step, anew
        self._stopped_before = stopped.all_stopped(site.catalog)
        self.evaluated: list[Evaluated] = []
        self.current: list[str] = []
        self.busy: list[str] = []
        self.stopped: dict[str, Fault] = {}
        self.held: dict[str, str] = {}

    def go(self) -> None:
        """Evaluate all that is behind."""
        reads = {
            name: [other for other in each.checked.reads if other in self._known] for name, each in self._known.items()
        }
        order = TopologicalSorter(reads)
        order.prepare()
        while order.is_active():
            ready = order.get_ready()
            self._round([name for name in ready if not self._waits(name, reads[name])])
            order.done(*ready)

    def _waits(self, name: str, reads: Iterable[str]) -> bool:
        """Whether a query has to wait because one that it reads has not come as far as its streams."""
        blocked = {**self.stopped, **self.held}
        for other in reads:
            if other in blocked or other in self.busy:
                self.held[name] = self.held.get(other, other)
                return True
        return False

    def _round(self, names: Sequence[str]) -> None:
        tasks = []
        for name in names:
            if self._further(name):
                self.busy.append(name)
                continue
            task = task_for(self._known[name], self._inputs.plans[name], self._inputs, anew=name in self._anew)
            if task is None:
                self.current.append(name)
            elif (known := self._stopped_before.get(task.query.query_id)) is not None and self._unchanged(task, known):
                self.stopped[name] = known.fault
            else:
                tasks.append(task)
        if not tasks:
            return
        if not self._inputs.has_session:
            self._on_step("starting Spark")
            self._inputs.session = self._site.session()
        for some, conf in _by_size(tasks, self._inputs):
            with configured(self._inputs.session, conf), ThreadPoolExecutor(AT_ONCE) as pool:
                for task, outcome in zip(some, pool.map(self._one, some), strict=True):
                    self._note(task.name, outcome)

    def _further(self, name: str) -> bool:
        """Whether a query's results are of a later state of the streams than this run's: what reads them must not mix
        the two."""
        there = self._inputs.published.get(name)
        return there is not None and there.last.data_commit > self._inputs.commit_id

    def _unchanged(self, task: Task, known: Stopped) -> bool:
        """Whether nothing has come since a query stopped that could let it go on."""
        came = any(self._inputs.standings[name].changed_in > known.data_commit for name in task.revisions)
        return not came and not task.anew

    def _note(self, name: str, outcome: Evaluated | Fault | None) -> None:
        match outcome:
            case None:
                self.busy.append(name)
            case Fault():
                self.stopped[name] = outcome
                self._on_step(f"{name} has stopped")
            case Evaluated():
                self.evaluated.append(outcome)
                self._inputs.published[name] = outcome.published
                self._on_step(f"{name} is answered")

    def _one(self, task: Task) -> Evaluated | Fault | None:
        with leases.held(self._site.catalog, f"query {task.name}") as ours:
            return self._evaluated(task) if ours else None

    def _evaluated(self, task: Task) -> Evaluated | Fault | None:
        following: Task | None = task
        for _ in range(TRIES):
            if following is None:
                return None  # whoever came first has done what there was to do
            try:
                return evaluate(following, self._inputs)
            except BasisMovedError:
                there = published(self._site.catalog, task.name)
                if there is not None:
                    self._inputs.published[task.name] = there
                following = task_for(task.query, task.plan, self._inputs, anew=task.anew)
            except StoppedError as stop:
                since = LOWEST if task.basis is None else task.basis.frontier
                stopped.note(self._site.catalog, task.query.query_id, self._inputs.commit_id, since, stop.fault)
                return stop.fault
            except ErrataError as error:
                return Fault(str(error))
        return None


def _by_size(tasks: Sequence[Task], inputs: Inputs) -> list[tuple[list[Task], Mapping[str, str]]]:
    """Large steps first, for which Spark is to adapt itself, and then smaller ones, each as suits it."""
    sizes = {each.name: each.size(inputs) for each in tasks}
    large = [each for each in tasks if sizes[each.name] > SMALL]
    # What is worked out from all that counts may compare many rows with many.
    tiny = [each for each in tasks if sizes[each.name] <= TINY and each.route.kind is not Kind.RECOMPUTED]
    small = [each for each in tasks if each not in large and each not in tiny]
    classes: list[tuple[list[Task], Mapping[str, str]]] = [(large, {}), (small, SMALL_JOBS), (tiny, TINY_JOBS)]
    return [(some, conf) for some, conf in classes if some]
