"""What is due, as one list of steps in the order in which they are carried out: revisions are applied to streams, then
each query, after those that it reads, is corrected and evaluated. What queries feed takes their results in before the
queries over it are.

Runs and sweeps carry the steps out, `errata run --plan` prints them, `errata sweep --plan` estimates them, the sensor
and `errata status` ask whether there are any. A step that waits for its declared rule, or for another query, is in the
list with the reason. Steps of queries are foretold where earlier ones come before them: carrying those out changes what
these have to do, so that a run asks for a query's steps when its turn comes (`StepList.of_query`).

Told from the catalog, without Spark and without plans. Rows of corrections are read where a rule counts them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from errata.answer.due_delivery import DeliveryStates, QueryDelivery, due_deliveries
from errata.answer.due_evaluation import DueEvaluation, due_evaluation
from errata.answer.progress import deferred_overlays, evaluation_order, queries_with_inputs
from errata.answer.unread_changes import (
    CorrectionBacklog,
    LateVersions,
    SourceStates,
    UnreadChange,
    UnreadRevisions,
    UpstreamCorrections,
    current_basis,
    has_newer_rows,
    unread_changes,
    unread_revisions,
)
from errata.catalog.queries import RecordedQuery, StoppedQuery
from errata.catalog.result_archives import ResultArchive
from errata.catalog.streams import StreamState
from errata.declare.query_feeds import with_feeds
from errata.model.deferral import AlwaysRule, Deferral, NeverRule
from errata.model.query import transitive_inputs
from errata.model.stream import RevisionPolicy


class StepKind(StrEnum):
    """What is done."""

    APPLY = "apply"
    """Pending revisions become part of a stream's history."""
    CORRECT = "correct"
    """A query's results take up changes behind their frontier."""
    EVALUATE = "evaluate"
    """A query is evaluated up to where its sources reach."""
    DELIVER = "deliver"
    """A merged stream takes in what a query that feeds it has changed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do, or to wait with."""

    kind: StepKind
    name: str
    """The stream that is applied or delivered to, or the query."""
    why: str
    revisions: int = 0
    """About how many revisions are taken up."""
    changes: tuple[UnreadChange, ...] = ()
    """What results lack now. More may come of the earlier steps."""
    after: tuple[str, ...] = ()
    """Streams and queries that it reads whose steps come before it, and may change what it has to do."""
    evaluation: DueEvaluation | None = None
    waits: str | None = None
    """What `errata run` waits for before it does this, in words."""
    held_by: str | None = None
    """The query that has to be mended or left by another runner first: this one, or one that it reads."""
    idle: bool = False
    """Whether nothing would come of it yet."""
    feed: str = ""
    """The feed to which is delivered."""

    @property
    def ready(self) -> bool:
        """Whether it can be carried out now."""
        return self.waits is None and self.held_by is None

    @property
    def due(self) -> bool:
        """Whether it can be carried out now, and something would come of it."""
        return self.ready and not self.idle


class StepView(SourceStates, DeliveryStates, Protocol):
    """The look-ups that it takes."""

    @property
    def now(self) -> int: ...
    @property
    def queries(self) -> Mapping[str, RecordedQuery]: ...
    @property
    def stopped(self) -> Mapping[int, StoppedQuery]:
        """The queries that have stopped, by their ids."""

    @property
    def default_deferral(self) -> Deferral: ...

    def time_of(self, commit_id: int) -> int | None:
        """When a commit was made."""

    def pending(self, of: StreamState) -> CorrectionBacklog:
        """The pending revisions of a stream."""

    def backlog(self, change: UnreadRevisions) -> CorrectionBacklog:
        """How many revisions a change is, and since when they wait. Reads their rows."""

    def can_settle(self, of: StreamState) -> bool:
        """Whether any of a stream's pending revisions could be applied. Reads their rows."""


@dataclass(frozen=True, slots=True)
class StepRequest:
    """Which steps are asked for."""

    names: Sequence[str] = ()
    """Only these queries, what they read, and the streams of these; all if none is named."""
    evaluates: bool = True
    """Whether queries are evaluated; otherwise only those that had stopped, and may go on now."""
    deferring: bool = True
    """Whether corrections wait as the project and its queries declare."""
    anew: frozenset[str] = frozenset()
    """Queries to be recomputed from their first instant, in place of their results."""
    retries_stopped: bool = False
    """Whether stopped queries are tried though nothing has come since."""
    busy: Collection[str] = ()
    """Queries that another runner works on, and that are passed over."""
    probes: bool = False
    """Whether pending revisions are read, to tell where all of them would keep waiting."""


class StepList:
    """The steps that are due, or wait."""

    def __init__(self, view: StepView, request: StepRequest = StepRequest()) -> None:
        self._view, self._request = view, request
        self._reads = {name: each.checked.reads for name, each in view.queries.items()}
        self.queries = queries_with_inputs(view.queries, request.names)
        """The queries that are asked for."""
        self._replaced = {name: view.published[name].stream_id for name in request.anew if name in view.published}
        self._bases: dict[str, dict[str, StreamState]] = {}
        self._inputs: dict[str, list[str]] = {}

    def steps(self) -> list[Step]:
        """All steps in their order, those of later ones as they are foretold."""
        found = self.to_apply()
        if self._request.probes:
            standings = self._view.standings
            found = [replace(each, idle=not self._view.can_settle(standings[each.name])) for each in found]
        earlier = {each.name: [each] for each in found}
        held: dict[str, str] = {}
        deliveries = {(each.stream.name, each.feed.name): each for each in due_deliveries(self._view)}
        merged = [each.stream for each in self._view.standings.values()]
        for name in evaluation_order(with_feeds(merged, {name: self._reads[name] for name in self.queries})):
            if name not in self.queries:
                earlier[name] = [*earlier.get(name, ()), *self._deliveries(name, deliveries, earlier)]
                found += [each for each in earlier[name] if each.kind is StepKind.DELIVER]
                continue
            some = self.of_query(name, earlier)
            by = next((held[each] for each in self._reads[name] if each in held), None)
            by = by or next((each.held_by for each in some if each.held_by is not None), None)
            if by is not None:
                held[name] = by
                some = [replace(each, held_by=by) for each in some]
            earlier[name] = some
            found += some
        return found

    def to_apply(self) -> list[Step]:
        """The streams with pending revisions."""
        found = []
        read = {other for name in self.queries for other in self._reads[name]}
        for name, of in self._view.standings.items():
            if of.revisions > of.applied and (name in read or not self._request.names):
                why = f"revisions {of.applied + 1} to {of.revisions} are pending"
                waits = self._stream_waits(name) if self._request.deferring else None
                found.append(Step(StepKind.APPLY, name, why, self._view.pending(of).queue, waits=waits))
        return found

    def of_query(self, name: str, earlier: Mapping[str, Sequence[Step]] = {}) -> list[Step]:
        """A query's steps, as far as results and streams are now, and after some earlier steps."""
        before = {each: earlier[each] for each in self._reads[name] if earlier.get(each)}
        found = [self._correction(name, before), self._evaluation(name, before)]
        some = [each for each in found if each is not None]
        # Where all of a step would come of earlier ones, and nothing does, there is no step when its turn comes.
        first = next((each for each in some if each.waits is None and (each.changes or not each.idle)), None)
        if first is not None and (name in self._request.busy or self._still_stopped(first, earlier)):
            return [replace(each, held_by=name) for each in some]
        return some

    def evaluation_of(self, name: str, earlier: Mapping[str, DueEvaluation] = {}) -> DueEvaluation | None:
        """The evaluation that is due for a query."""
        anew = self._is_anew(name)
        return due_evaluation(self._query(name), self.bases(name), self._view, anew=anew, earlier=earlier)

    def bases(self, name: str) -> dict[str, StreamState]:
        """The streams that a query reads, directly or through others."""
        if name not in self._bases:
            standings = self._view.standings
            self._bases[name] = {each: standings[each] for each in self._inputs_of(name) if each in standings}
        return self._bases[name]

    def missing(self, name: str) -> dict[str, int]:
        """By stream, the rows of applied revisions that a query's results lack and that only a sweep takes up."""
        basis, found = self._basis(name), {}
        if basis is not None:
            for source, of in self.bases(name).items():
                change = unread_revisions(of, basis, self._view, of.applied, basis.frontier)
                if change is not None:
                    left = deferred_overlays(change.overlays, change.known, basis.frontier)
                    found[source] = sum(each.rows for each in left)
        return found

    def may_resume(self, name: str) -> bool:
        """Whether a query has stopped, and its streams have changed since."""
        halt = self._view.stopped.get(self._view.queries[name].query_id)
        return halt is not None and any(each.changed_in > halt.data_commit for each in self.bases(name).values())

    def count(self, step: Step) -> int:
        """How many revisions a step takes up of those that have been applied."""
        return sum(self._view.backlog(each).queue for each in step.changes if isinstance(each, UnreadRevisions))

    def _deliveries(
        self, name: str, due: Mapping[tuple[str, str], QueryDelivery], earlier: Mapping[str, Sequence[Step]]
    ) -> Iterator[Step]:
        """What is delivered to a stream by the queries that feed it."""
        if not self._request.evaluates:
            return
        for feed in self._view.standings[name].stream.merged.feeds:
            comes = [each for each in earlier.get(feed.query or "", ()) if each.due]
            there = due.get((name, feed.name))
            if feed.query in self.queries and (comes or there is not None):
                since = "" if there is None or not there.after else f" since commit {there.after}"
                why = f"after {feed.query}" if there is None else f"{feed.query} has changed{since}"
                after = tuple(dict.fromkeys(each.name for each in comes))
                yield Step(StepKind.DELIVER, name, f"{why}, feed {feed.name}", after=after, feed=feed.name)

    # Corrections.

    def _correction(self, name: str, before: Mapping[str, Sequence[Step]]) -> Step | None:
        basis = None if self._is_anew(name) else self._basis(name)
        if basis is None or any(each.basis is None for each in _evaluations(before).values()):
            return None
        changes = tuple(unread_changes(self._reads[name], basis, self._view))
        sources = [each for some in before.values() for each in some if self._brings_corrections(each)]
        if not changes and not sources:
            return None
        waiting = self._backlog(name, changes) + self._pending_of(each.name for each in sources if not each.idle)
        why = ", ".join([*(_change_text(each) for each in changes), *(f"after {each.name}" for each in sources)])
        idle = all(each.idle for each in sources) and all(self._is_repeated(each, basis) for each in changes)
        waits = self._waits(name, changes, sources, waiting) if self._request.deferring else None
        after = tuple(each.name for each in sources)
        return Step(StepKind.CORRECT, name, why, waiting.queue, changes, after, waits=waits, idle=idle)

    def _brings_corrections(self, step: Step) -> bool:
        """Whether the results or rows that a step changes are read by others as corrections."""
        if step.kind is StepKind.CORRECT:
            return self._query(step.name).checked.on_revision is RevisionPolicy.RESULTS
        return step.kind is StepKind.APPLY

    def _is_repeated(self, change: UnreadChange, basis: ResultArchive) -> bool:
        """Whether the last correction has read late versions already. Where rows at the frontier have come, too, it
        leaves it to the next evaluation to record what was read, and until then each sweep takes them up again."""
        if not isinstance(change, LateVersions) or basis.last.correction is None:
            return False
        return has_newer_rows(basis, self._view) and all(
            each.added_in <= max(basis.last.data_commit, basis.last.commit_id) for each in change.buckets
        )

    def _waits(
        self, name: str, changes: Sequence[UnreadChange], sources: Sequence[Step], waiting: CorrectionBacklog
    ) -> str | None:
        """What the corrections of a query wait for. Late versions, and corrections of a query that it reads, cannot be
        left out by the next evaluation once they are there, and do not wait."""
        below = [each for each in sources if each.kind is StepKind.CORRECT]
        if any(each.waits is None for each in below) or any(not isinstance(each, UnreadRevisions) for each in changes):
            return None
        return self._words(self._deferral(name), waiting) if changes or len(below) < len(sources) else below[0].waits

    def _backlog(self, name: str, changes: Iterable[UnreadChange]) -> CorrectionBacklog:
        """How many revisions some changes are. Where that decides nothing, their rows are not read."""
        some = [each for each in changes if isinstance(each, UnreadRevisions)]
        if isinstance(self._deferral(name).rule, AlwaysRule | NeverRule) or not self._request.deferring:
            return CorrectionBacklog(sum(bucket.rows for each in some for bucket in each.overlays))
        return sum((self._view.backlog(each) for each in some), CorrectionBacklog())

    def _pending_of(self, names: Iterable[str]) -> CorrectionBacklog:
        standings = self._view.standings
        return sum((self._view.pending(standings[each]) for each in names if each in standings), CorrectionBacklog())

    def _stream_waits(self, name: str) -> str | None:
        """What pending revisions of a stream wait for: until they are due for one of the queries that read it."""
        waits = None
        for query in self._reads:
            if name in self._inputs_of(query):
                waits = self._words(self._deferral(query), self._whole_backlog(query))
                if waits is None:
                    return None
        return waits or self._words(self._view.default_deferral, self._pending_of([name]))

    def _whole_backlog(self, name: str) -> CorrectionBacklog:
        """Pending revisions of all streams that a query reads, and applied ones that its results lack."""
        basis, bases = self._basis(name), self.bases(name)
        whole = self._pending_of(bases)
        if basis is not None:
            at, view = basis.frontier + 1, self._view
            some = [unread_revisions(each, basis, view, each.applied, at) for each in bases.values()]
            whole += self._backlog(name, [each for each in some if each is not None])
        return whole

    def _deferral(self, name: str) -> Deferral:
        return self._query(name).checked.query.sweep or self._view.default_deferral

    def _words(self, deferral: Deferral, waiting: CorrectionBacklog) -> str | None:
        came = None if waiting.since is None else self._view.time_of(waiting.since)
        age, now = 0 if came is None else max(0, self._view.now - came), self._view.now
        return None if deferral.due(waiting.queue, age, now) else deferral.waits_for(waiting.queue, age, now)

    # Evaluations, and queries that have stopped.

    def _evaluation(self, name: str, before: Mapping[str, Sequence[Step]]) -> Step | None:
        if not self._request.evaluates and not self._resumes(name):
            return None
        earlier = _evaluations(before)
        due = self.evaluation_of(name, earlier)
        if due is None:
            return None
        if due.basis is None:
            why = "it has no results yet" if due.replaces is None else "its results are replaced"
        else:
            further = due.until > due.basis.frontier
            why = "its sources reach further" if further else "rows or revisions of the last instant have come"
        return Step(StepKind.EVALUATE, name, why, after=tuple(earlier), evaluation=due)

    def _resumes(self, name: str) -> bool:
        """Whether a query, or one that it reads, had stopped and may go on: a correction may have mended what stopped
        it."""
        read = [each for each in (name, *self._inputs_of(name)) if each in self._reads] if self._view.stopped else ()
        return any(self.may_resume(each) for each in read)

    def _still_stopped(self, first: Step, earlier: Mapping[str, Sequence[Step]]) -> bool:
        """Whether a query has stopped, and nothing has come or comes before it that could let it continue."""
        query, due = self._query(first.name), first.evaluation
        if query.query_id not in self._view.stopped or self._request.retries_stopped:
            return False
        if due is not None and due.replaces is not None and due.replaces.query_id == query.query_id:
            return False
        comes = any(each.due for name in self.bases(first.name) for each in earlier.get(name, ()))
        return not comes and not self.may_resume(first.name)

    def _query(self, name: str) -> RecordedQuery:
        return self._view.queries[name]

    def _is_anew(self, name: str) -> bool:
        """Whether the results that a query had are still to be replaced."""
        there = self._view.published.get(name)
        return there is not None and self._replaced.get(name) == there.stream_id

    def _basis(self, name: str) -> ResultArchive | None:
        return current_basis(self._query(name), self._reads[name], self._view)

    def _inputs_of(self, name: str) -> list[str]:
        if name not in self._inputs:
            self._inputs[name] = transitive_inputs([name], self._reads)
        return self._inputs[name]


def _evaluations(before: Mapping[str, Sequence[Step]]) -> dict[str, DueEvaluation]:
    """Of some queries the evaluations that come before."""
    return {each.name: each.evaluation for some in before.values() for each in some if each.evaluation is not None}


def _change_text(change: UnreadChange) -> str:
    match change:
        case UnreadRevisions():
            return f"revisions {change.known + 1} to {change.up_to} of {change.source}"
        case LateVersions():
            return f"late versions of {change.source}"
        case UpstreamCorrections():
            return f"corrections of {change.source}"
