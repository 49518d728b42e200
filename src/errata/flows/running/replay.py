"""A range of a query's results worked out again from history: for a backfill, or where somebody is in doubt. Only what
comes out different is published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from errata.catalog import commits, leases, pins, queries, replays, stopped, streams
from errata.catalog.append import BasisMovedError
from errata.catalog.leases import Lease, Patience
from errata.catalog.published import Published, all_published
from errata.catalog.queries import RecordedQuery
from errata.catalog.replays import Replay
from errata.engine.failures import loggers_quiet
from errata.errors import ErrataError, UsageError, unknown
from errata.flows.answering.answered import not_answered_yet, words
from errata.flows.answering.evaluate import Evaluated, StoppedError
from errata.flows.answering.inputs import Inputs
from errata.flows.answering.late_session import LateSession
from errata.flows.answering.task import below, corrections, replaced_below
from errata.flows.correcting.sweeping import Sweeping, more_has_come, replaying
from errata.flows.correcting.swept import commit_worked
from errata.flows.correcting.techniques import rows_to_read
from errata.flows.correcting.worked import worked_out
from errata.flows.declaring.check import read, with_inputs
from errata.flows.running.rounds import OnStep
from errata.flows.site import Site
from errata.model.evaluation import Fault
from errata.model.instants import event_time
from errata.model.interval import Interval
from errata.revise.technique import Technique

PART_ROWS = 5_000_000
"""A part of a replay reads about so many rows; each is a commit, if anything comes out different."""

REPLAYS_WAIT = 3600.0
"""Seconds that a replay waits for others that are at work on its query."""

TRIES = 8
"""Others may take the query further so often while a part is worked out."""


@dataclass(frozen=True)
class Range:
    """What is asked for: results of event times from the one to before the other."""

    query: str
    since: str
    until: str
    technique: Technique = Technique.AUTO


@dataclass(frozen=True)
class ReplayReport:
    """What came of a replay."""

    query: str
    interval: Interval
    timed: bool
    rows: int
    """About how many rows it reads."""
    results: int = 0
    """So many results were worked out again."""
    done: list[Evaluated] = field(default_factory=list)
    """Parts of which something came out different."""
    changed: int = 0
    resumed: bool = False
    """Whether it went on with one that had been broken off."""
    fault: Fault | None = None
    """Why the query has stopped: here, or before, and then the results lack what it could not take up."""

    @property
    def verified(self) -> bool:
        """Whether the results of the range are known to be right."""
        return self.fault is None and not self.changed


def replay(
    site: Site,
    wanted: Range,
    *,
    dry: bool = False,
    on_step: OnStep = lambda _: None,
    patience: Patience | None = None,
) -> ReplayReport:
    """Work a range of results out again; `dry`: only tell what that takes. `patience`: how long the query is waited for
    while another runner is at work on it."""
    recorded = queries.recorded(site.catalog)
    if wanted.query not in recorded:
        raise unknown("query", wanted.query, list(recorded))
    of = _Replay(site, wanted, recorded, on_step)
    name = f"query {wanted.query}"
    if dry or name in leases.living(site.catalog):
        # What cannot be meant is told before anything is waited for.
        report = of.planned()
        if dry:
            return report
    with leases.held(site.catalog, name, site.cause.owner, patience) as lease:
        if lease.by is not None:
            raise ErrataError(
                f"query {wanted.query} is being evaluated or corrected by another runner",
                why=f"it is {lease.by.words}",
                how="run it again when that has ended",
            )
        return of.done(lease)


@dataclass(frozen=True)
class _Replay:
    """A replay that is asked for."""

    site: Site
    wanted: Range
    recorded: Mapping[str, RecordedQuery]
    on_step: OnStep

    def planned(self) -> ReplayReport:
        """What it takes."""
        with self._pinned() as inputs:
            return self._plan(inputs)

    def done(self, lease: Lease) -> ReplayReport:
        """The same, done. It begins behind the lease: what was published before that is what it compares with."""
        with self._pinned() as inputs:
            query = self.recorded[self.wanted.query]
            return _replayed(inputs, query, self._plan(inputs), self.wanted.technique, self.on_step, lease)

    @contextmanager
    def _pinned(self) -> Iterator[Inputs]:
        site, name = self.site, self.wanted.query
        with pins.pinned(site.catalog, commits.newest(site.catalog), f"replay of {name}") as pin:
            yield _inputs(site, pin.commit_id, self.recorded, name, self.on_step)

    def _plan(self, inputs: Inputs) -> ReplayReport:
        query = self.recorded[self.wanted.query]
        of = _published(self.site, inputs, query)
        interval = _interval(of, self.wanted, inputs)
        whole = _part(inputs, query, interval, self.wanted.technique)
        rows = rows_to_read(inputs, whole.work, whole.of.until)
        return ReplayReport(self.wanted.query, interval, of.shape.timed, rows)


def _replayed(
    inputs: Inputs,
    query: RecordedQuery,
    report: ReplayReport,
    technique: Technique,
    on_step: OnStep,
    lease: Lease,
) -> ReplayReport:
    site = inputs.site
    begun = replays.begin(site.catalog, inputs.published[report.query].stream_id, report.interval)
    resumed = begun.done_to > report.interval.start
    done: list[Evaluated] = []
    try:
        with loggers_quiet():
            for part in _parts(begun, report.rows):
                _check_ours(lease)
                on_step(f"replaying {words(part.start, inputs.published[report.query])} and on")
                begun = _one(site, inputs, query, begun, part, technique, done)
    except StoppedError as stop:
        until = inputs.published[report.query].frontier
        stopped.note(site.catalog, query.query_id, inputs.commit_id, until, stop.fault)
        return _report(report, begun, done, resumed=resumed, fault=stop.fault)
    known = stopped.all_stopped(site.catalog).get(query.query_id)
    return _report(report, begun, done, resumed=resumed, fault=None if known is None else known.fault)


def _check_ours(lease: Lease) -> None:
    if lease.lost:
        raise ErrataError(
            f"another runner has taken the lease on {lease.name}",
            why="it was not renewed in time, as when the catalog is away, or somebody has released it",
            how="run it again: what has been replayed is kept",
        )


def _report(
    report: ReplayReport, begun: Replay, done: list[Evaluated], *, resumed: bool, fault: Fault | None = None
) -> ReplayReport:
    return ReplayReport(
        report.query,
        report.interval,
        report.timed,
        report.rows,
        begun.results,
        done,
        begun.changed,
        resumed,
        fault,
    )


def _one(
    site: Site,
    inputs: Inputs,
    query: RecordedQuery,
    begun: Replay,
    part: Interval,
    technique: Technique,
    done: list[Evaluated],
) -> Replay:
    """Replay a part. Killed before its progress is noted it is replayed again, and nothing comes out different."""
    for _ in range(TRIES):
        worked = worked_out(_part(inputs, query, part, technique), inputs)
        try:
            if worked.changed:
                evaluated = commit_worked(worked, inputs)
                inputs.published[evaluated.name] = evaluated.published
                done.append(evaluated)
            else:
                site.discard(worked.laid.buckets)
        except BasisMovedError:
            inputs.published.update(all_published(site.catalog))
            _check_not_later(inputs, query.checked.name)
            continue
        return replays.progress(site.catalog, begun, part.end, worked.laid.compared, worked.changed)
    raise ErrataError(
        f"{TRIES} times another runner took query {query.checked.name} further first",
        how="run it again: what has been replayed is kept",
    )


def _check_not_later(inputs: Inputs, name: str) -> None:
    """Whether the results are of no later state of the streams than is read here: rows would be missing from what is
    worked out again."""
    if inputs.published[name].last.data_commit > inputs.commit_id:
        raise ErrataError(
            f"another runner has meanwhile answered query {name} from rows that came after the replay began",
            how="run it again: what has been replayed is kept",
        )


def _inputs(site: Site, commit_id: int, recorded: Mapping[str, RecordedQuery], name: str, on_step: OnStep) -> Inputs:
    reads = {each: of.checked.reads for each, of in recorded.items()}
    known = {each: recorded[each] for each in with_inputs([name], reads)}
    standings = {each.stream.name: each for each in streams.standings(site.catalog, commit_id)}
    declared = {each: of.stream for each, of in standings.items()}
    plans = read(declared, {each: of.checked.query for each, of in known.items()}, list(known))
    spark = LateSession(site, lambda: on_step("starting Spark"))
    return Inputs(site, commit_id, standings, all_published(site.catalog), plans, spark)


def _published(site: Site, inputs: Inputs, query: RecordedQuery) -> Published:
    of = inputs.published.get(query.checked.name)
    if of is None:
        raise not_answered_yet(site.catalog, query.checked.name)
    if of.query_id != query.query_id:
        raise ErrataError(
            f"query {query.checked.name} was edited and is still answered in its former form",
            how="run `errata run`, which works all of the new form out",
        )
    _check_not_later(inputs, of.name)
    plan = inputs.plans[of.name]
    if replaced_below(inputs, plan, of) or any(corrections(inputs, each, of) for each in below(inputs, plan)):
        raise ErrataError(
            f"results that query {of.name} reads have been worked out anew or corrected since it was answered",
            how="run `errata run` first, which brings it up to them",
        )
    return of


def _interval(of: Published, wanted: Range, inputs: Inputs) -> Interval:
    """The range, as far as it is answered."""
    since, until = (event_time(each, timed=of.shape.timed) for each in (wanted.since, wanted.until))
    if since >= until:
        raise UsageError(
            f"there is nothing from {wanted.since} to before {wanted.until}", how="give the earlier time first"
        )
    # The last instant is to be worked out again by the next run if more rows of it have come.
    last = of.frontier if more_has_come(of, inputs) else of.frontier + 1
    begins, ends = max(since, of.last.begins), min(until, last)
    if begins >= ends:
        raise UsageError(
            f"query {of.name} has no answers from {wanted.since} to before {wanted.until}",
            why=f"its answers are those from {words(of.last.begins, of)} to {words(of.frontier, of)}"
            if of.last.begins > -(2**62)
            else f"it is answered up to {words(of.frontier, of)}",
            how="name a range within, before the last instant if `errata run` has still to take up rows of that",
        )
    return Interval(begins, ends)


def _part(inputs: Inputs, query: RecordedQuery, interval: Interval, technique: Technique) -> Sweeping:
    found = replaying(query, inputs.plans[query.checked.name], inputs, interval, technique)
    if found.work.refused:
        raise ErrataError(
            f"results of query {query.checked.name} in this range cannot be worked out again",
            why=found.work.refused[0].reason,
            how="name a range that begins later",
        )
    return found


def _parts(begun: Replay, rows: int) -> Iterator[Interval]:
    """What is left, in parts that each read a bearable number of rows."""
    left = begun.left
    number = max(1, -(-rows // PART_ROWS))
    length = max(1, -(-(begun.interval.end - begun.interval.start) // number))
    start = left.start
    while start < left.end:
        end = min(start + length, left.end)
        yield Interval(start, end)
        start = end
