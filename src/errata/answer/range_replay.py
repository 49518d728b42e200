"""Recomputes a range of a query's published results from history: for a backfill, or to verify them. Only results that
are different are published.

A replay goes in parts that each read about REPLAY_PART_ROWS rows. The catalog notes how far it has come, so that one
that was broken off is resumed by asking for the same range again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from errata.answer.catalog_view import CatalogView
from errata.answer.correction import compute_correction
from errata.answer.correction_commit import commit_correction
from errata.answer.correction_plan import CorrectionPlan, plan_replay
from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.faults import QueryStoppedError
from errata.answer.inputs import RunInputs
from errata.answer.lineage_lookup import rows_to_read
from errata.answer.progress import event_time_text, no_results_error, queries_with_inputs
from errata.answer.unread_changes import current_basis, has_newer_rows, unread_corrections, upstream_archives
from errata.catalog import activity, commits, leases, pins, queries
from errata.catalog.activity import ReplayProgress
from errata.catalog.leases import Lease, WaitPolicy
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive, read_archives
from errata.catalog.transaction import BasisConflict, give_up, optimistic
from errata.declare.site import ProgressCallback, Site
from errata.engine.failures import quiet_loggers
from errata.errors import ErrataError, UsageError, unknown_name_error
from errata.model.commit import Fault
from errata.model.technique import Technique
from errata.model.time import Interval, parse_event_time

REPLAY_PART_ROWS = 5_000_000
"""Rows that a part of a replay reads, about. Each part is a commit, if any result is different."""

REPLAY_WAIT_SECONDS = 3600.0
"""Seconds that a replay waits for other runners that work on its query."""


@dataclass(frozen=True)
class ReplayRange:
    """The range: results of event times from `since` to before `until`."""

    query: str
    since: str
    until: str
    technique: Technique = Technique.AUTO


@dataclass(frozen=True)
class ReplayReport:
    """The outcome of a replay, or what it would read."""

    query: str
    interval: Interval
    timed: bool
    rows: int
    """About how many rows are read."""
    results: int = 0
    """Results that were recomputed."""
    done: list[EvaluationOutcome] = field(default_factory=list)
    """Commits of the parts with different results."""
    changed: int = 0
    resumed: bool = False
    """Whether a replay that had been broken off was resumed."""
    fault: Fault | None = None
    """Why the query has stopped, in the replay or before; the results then lack what it could not take up."""

    @property
    def verified(self) -> bool:
        """Whether the results of the range are known to be right."""
        return self.fault is None and not self.changed


def replay_range(
    site: Site,
    wanted: ReplayRange,
    *,
    dry: bool = False,
    on_step: ProgressCallback = lambda _: None,
    patience: WaitPolicy | None = None,
) -> ReplayReport:
    """Recompute a range of results; `dry`: only estimate what is read. `patience`: how long to wait for another runner
    that works on the query."""
    recorded = queries.recorded_queries(site.catalog)
    if wanted.query not in recorded:
        raise unknown_name_error("query", wanted.query, list(recorded))
    replay = _ReplayRun(site, wanted, recorded, on_step)
    name = f"query {wanted.query}"
    if dry or name in leases.living_lease_names(site.catalog):
        # A range that is not answered is refused before anything is waited for.
        report = replay.plan()
        if dry:
            return report
    with leases.hold_lease(site.catalog, name, site.cause.owner, patience) as lease:
        if lease.other_holder is not None:
            raise ErrataError(
                f"query {wanted.query} is being evaluated or corrected by another runner",
                why=f"it is {lease.other_holder.description}",
                how="run it again when that has ended",
            )
        return replay.run(lease)


@dataclass(frozen=True)
class _ReplayRun:
    """One call of `replay_range`."""

    site: Site
    wanted: ReplayRange
    recorded: Mapping[str, RecordedQuery]
    on_step: ProgressCallback

    def plan(self) -> ReplayReport:
        """What would be read."""
        with self._pinned() as inputs:
            return self._plan(inputs)

    def run(self, lease: Lease) -> ReplayReport:
        """Replay. The commit is pinned after the lease was taken, so that the published results are the newest."""
        with self._pinned() as inputs:
            query = self.recorded[self.wanted.query]
            return _replay_parts(inputs, query, self._plan(inputs), self.wanted.technique, self.on_step, lease)

    @contextmanager
    def _pinned(self) -> Iterator[RunInputs]:
        site, name = self.site, self.wanted.query
        with pins.hold_pin(site.catalog, commits.newest_commit(site.catalog), f"replay of {name}") as pin:
            known = queries_with_inputs(self.recorded, [name]).values()
            yield RunInputs.open(CatalogView(site, pin.commit_id), known, self.on_step)

    def _plan(self, inputs: RunInputs) -> ReplayReport:
        query = self.recorded[self.wanted.query]
        of = _published_results(self.site, inputs, query)
        interval = _answered_interval(of, self.wanted, inputs)
        whole = _plan_part(inputs, query, interval, self.wanted.technique)
        rows = rows_to_read(inputs, whole.sequence, whole.scope.until)
        return ReplayReport(self.wanted.query, interval, of.shape.timed, rows)


def _replay_parts(
    inputs: RunInputs,
    query: RecordedQuery,
    report: ReplayReport,
    technique: Technique,
    on_step: ProgressCallback,
    lease: Lease,
) -> ReplayReport:
    site = inputs.site
    begun = activity.begin_replay(site.catalog, inputs.published[report.query].stream_id, report.interval)
    resumed = begun.done_to > report.interval.start
    done: list[EvaluationOutcome] = []
    try:
        with quiet_loggers():
            for part in _remaining_parts(begun, report.rows):
                _check_lease(lease)
                on_step(f"replaying {event_time_text(part.start, inputs.published[report.query])} and on")
                begun = _replay_part(inputs, query, begun, part, technique, done)
    except QueryStoppedError as stop:
        until = inputs.published[report.query].frontier
        queries.record_fault(site.catalog, query.query_id, inputs.commit_id, until, stop.fault)
        fault: Fault | None = stop.fault
    else:
        known = queries.stopped_queries(site.catalog).get(query.query_id)
        fault = None if known is None else known.fault
    return replace(report, results=begun.results, done=done, changed=begun.changed, resumed=resumed, fault=fault)


def _check_lease(lease: Lease) -> None:
    if lease.lost:
        raise ErrataError(
            f"another runner has taken the lease on {lease.name}",
            why="it was not renewed in time, as when the catalog is away, or somebody has released it",
            how="run it again: what has been replayed is kept",
        )


def _replay_part(
    inputs: RunInputs,
    query: RecordedQuery,
    begun: ReplayProgress,
    part: Interval,
    technique: Technique,
    done: list[EvaluationOutcome],
) -> ReplayProgress:
    """Replay a part. A part whose progress was not noted is replayed again, and no result is different then."""

    def attempt(_: int) -> ReplayProgress:
        result = compute_correction(_plan_part(inputs, query, part, technique), inputs)
        try:
            if result.changed:
                evaluated = commit_correction(result, inputs)
                inputs.published[evaluated.name] = evaluated.published
                done.append(evaluated)
            else:
                inputs.site.discard(result.diff.buckets)
        except BasisConflict:
            inputs.published.update(read_archives(inputs.site.catalog))
            _check_not_later(inputs, query.checked.name)
            raise
        return activity.advance_replay(inputs.site.catalog, begun, part.end, result.diff.compared, result.changed)

    what = f"runner took query {query.checked.name} further first"
    return optimistic(attempt, give_up(what, "run it again: what has been replayed is kept"))


def _check_not_later(inputs: RunInputs, name: str) -> None:
    """Refuse results of a later state of the streams than is read here: rows would be missing from the replay."""
    if inputs.published[name].last.data_commit > inputs.commit_id:
        raise ErrataError(
            f"another runner has meanwhile answered query {name} from rows that came after the replay began",
            how="run it again: what has been replayed is kept",
        )


def _published_results(site: Site, inputs: RunInputs, query: RecordedQuery) -> ResultArchive:
    of = inputs.published.get(query.checked.name)
    if of is None:
        raise no_results_error(site.catalog, query.checked.name)
    if of.query_id != query.query_id:
        raise ErrataError(
            f"query {query.checked.name} was edited and is still answered in its former form",
            how="run `errata run`, which works all of the new form out",
        )
    _check_not_later(inputs, of.name)
    reads = query.checked.reads
    if current_basis(query, reads, inputs.view) is None or any(
        unread_corrections(each, of, inputs.view) for each in upstream_archives(reads, inputs.view)
    ):
        raise ErrataError(
            f"results that query {of.name} reads have been worked out anew or corrected since it was answered",
            how="run `errata run` first, which brings it up to them",
        )
    return of


def _answered_interval(of: ResultArchive, wanted: ReplayRange, inputs: RunInputs) -> Interval:
    """The part of the range that is answered."""
    since, until = (parse_event_time(each, timed=of.shape.timed) for each in (wanted.since, wanted.until))
    if since >= until:
        raise UsageError(
            f"there is nothing from {wanted.since} to before {wanted.until}", how="give the earlier time first"
        )
    # The next run recomputes the last instant if more rows of it have come.
    last = of.frontier if has_newer_rows(of, inputs.view) else of.frontier + 1
    begins, ends = max(since, of.last.begins), min(until, last)
    if begins >= ends:
        raise UsageError(
            f"query {of.name} has no answers from {wanted.since} to before {wanted.until}",
            why=f"its answers are those from {event_time_text(of.last.begins, of)} to "
            f"{event_time_text(of.frontier, of)}"
            if of.last.begins > -(2**62)
            else f"it is answered up to {event_time_text(of.frontier, of)}",
            how="name a range within, before the last instant if `errata run` has still to take up rows of that",
        )
    return Interval(begins, ends)


def _plan_part(inputs: RunInputs, query: RecordedQuery, interval: Interval, technique: Technique) -> CorrectionPlan:
    found = plan_replay(query, inputs.plans[query.checked.name], inputs, interval, technique)
    if found.sequence.refused:
        raise ErrataError(
            f"results of query {query.checked.name} in this range cannot be worked out again",
            why=found.sequence.refused[0].reason,
            how="name a range that begins later",
        )
    return found


def _remaining_parts(begun: ReplayProgress, rows: int) -> Iterator[Interval]:
    """What is left of the range, in parts that each read about REPLAY_PART_ROWS rows."""
    left = begun.left
    number = max(1, -(-rows // REPLAY_PART_ROWS))
    length = max(1, -(-(begun.interval.end - begun.interval.start) // number))
    start = left.start
    while start < left.end:
        end = min(start + length, left.end)
        yield Interval(start, end)
        start = end
