"""What came of queries that were taken further: the part that runs and sweeps tell alike."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from errata.answer.correction_plan import CorrectionPlan
from errata.answer.due_corrections import Deferrals
from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.faults import fault_error
from errata.answer.progress import ProgressCallback, transitive_inputs
from errata.answer.rounds import Rounds, RoundsRequest, queries_with_inputs
from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.revisions.apply import ReviseReport, apply_stream_revisions
from errata.catalog import commits, pins, queries, streams
from errata.catalog.leases import LeaseHolder, WaitPolicy
from errata.catalog.streams import StreamState
from errata.declare.query_plans import with_inputs
from errata.declare.site import Site
from errata.errors import EXIT_DECISION, EXIT_FAILED, EXIT_QUARANTINE, ErrataError, UsageError
from errata.model.commit import Fault
from errata.model.technique import Technique


@dataclass(frozen=True, kw_only=True)
class RoundsReport:
    """What came of queries in rounds."""

    evaluated: Sequence[EvaluationOutcome] = ()
    current: Sequence[str] = ()
    """Queries of which nothing was to be done."""
    stopped: Sequence[tuple[str, Fault]] = ()
    """Queries that cannot go on, and why: they wait for a person."""
    failed: Sequence[tuple[str, ErrataError]] = ()
    """Queries that could not be taken further, and why: the next run tries again."""
    held: Sequence[tuple[str, str]] = ()
    """Queries that wait for another one, and for which."""
    busy: Sequence[str] = ()
    """Queries that another runner is at work on, or has just taken further."""
    holders: Mapping[str, LeaseHolder] = field(default_factory=dict)
    """Of busy queries who is at work on them, if somebody is."""
    deferred: Sequence[CorrectionPlan] = ()
    """Corrections that wait, as their queries declare; only where what is due was asked for."""
    revised: Sequence[ReviseReport] = ()
    """Streams to whose history what was pending was applied."""


# Sweeping: what is pending is applied to history, and the results that it invalidates are corrected.


@dataclass(frozen=True)
class SweepReport(RoundsReport):
    """What a sweep has done."""

    @property
    def swept(self) -> Sequence[EvaluationOutcome]:
        """The evaluations that took corrections up."""
        return self.evaluated


def sweep(
    site: Site,
    names: Sequence[str] = (),
    *,
    technique: Technique = Technique.AUTO,
    narrowed: bool = True,
    due: bool = False,
    on_step: ProgressCallback = lambda _: None,
    patience: WaitPolicy | None = None,
) -> SweepReport:
    """Apply what is pending, and correct the results of the queries named and of those that they read; without names,
    of all. `due`: leave what the project or a query defers. `patience`: how long queries are waited for that another
    runner is at work on."""
    known = queries.recorded_queries(site.catalog)
    wanted = queries_with_inputs(known, names)
    reads = {name: each.checked.reads for name, each in known.items()}
    some = _pending_streams_of(site, reads, names)
    deferrals = Deferrals(site) if due else None
    if deferrals is not None:
        ripe = set(deferrals.streams_due())
        some = [name for name in some if name in ripe]
    revised = apply_pending(site, some, on_step)
    with pins.hold_pin(site.catalog, commits.newest_commit(site.catalog), "sweep") as pin:
        if not wanted:
            return SweepReport(revised=revised)
        sweeps = RoundsRequest(
            evaluates=False, technique=technique, narrowed=narrowed, patience=patience or WaitPolicy()
        )
        if deferrals is not None:
            sweeps = replace(sweeps, is_due=lambda each: deferrals.due(each.name, each.revisions))
        rounds = Rounds(site, pin.commit_id, wanted, on_step, sweeps)
        rounds.run()
    return SweepReport(revised=revised, **rounds.report_fields)


def apply_pending(site: Site, names: Iterable[str], on_step: ProgressCallback) -> list[ReviseReport]:
    """Make what is pending of some streams part of their history."""
    reports = [apply_stream_revisions(site, name, on_step) for name in names]
    return [each for each in reports if each.commits]


def streams_with_pending(some: Iterable[StreamState]) -> list[str]:
    """The streams of which anything is pending."""
    return [each.stream.name for each in some if each.revisions > each.applied]


def _pending_streams_of(site: Site, reads: Mapping[str, Sequence[str]], names: Sequence[str]) -> list[str]:
    """The streams with anything pending that these queries read; without names, all."""
    some = streams_with_pending(streams.stream_states(site.catalog))
    if not names:
        return some
    read = {other for name in with_inputs(names, reads) for other in reads[name]}
    return [name for name in some if name in read]


# All that is due: what has landed is taken in, and every query that is behind is brought up to it.


@dataclass(frozen=True)
class RunReport(RoundsReport):
    """What a run has done."""

    batches: Sequence[IngestReport] = ()
    """Batches of landed files: what was taken in, and what was set aside."""
    not_taken: Sequence[tuple[str, ErrataError]] = ()
    """Streams of which nothing that has landed could be taken in, or not all of it put away, and why."""


def run(
    site: Site,
    names: Sequence[str] = (),
    *,
    take: bool = True,
    anew: bool = False,
    on_step: ProgressCallback = lambda _: None,
    patience: WaitPolicy | None = None,
) -> RunReport:
    """Do all that is due; with names, evaluate only these queries and those that they read. `anew`: those named from
    the beginning, into archives that take the place of theirs. `patience`: how long queries are waited for that another
    runner is at work on."""
    if anew and not names:
        raise UsageError("no query is named that is to be worked out anew", how="name it: errata run --anew QUERY")
    taken = _ingest_landed(site, on_step) if take else _LandedBatches()
    deferrals = Deferrals(site)
    revised = apply_pending(site, deferrals.streams_due(), on_step)
    # Pinned first and looked up behind the pin: what is found then stays.
    with pins.hold_pin(site.catalog, commits.newest_commit(site.catalog), "run") as pin:
        known = queries_with_inputs(queries.recorded_queries(site.catalog), names)
        if not known:
            return RunReport(taken.batches, taken.failed, revised=revised)
        wanted = RoundsRequest(
            is_due=lambda each: deferrals.due(each.name, each.revisions),
            anew=frozenset(names) if anew else frozenset(),
            patience=patience or WaitPolicy(),
        )
        rounds = Rounds(site, pin.commit_id, known, on_step, wanted)
        rounds.run()
    return RunReport(taken.batches, taken.failed, revised=revised, **rounds.report_fields)


@dataclass(frozen=True)
class _LandedBatches:
    batches: list[IngestReport] = field(default_factory=list)
    failed: list[tuple[str, ErrataError]] = field(default_factory=list)


def _ingest_landed(site: Site, on_step: ProgressCallback) -> _LandedBatches:
    """Take in what has landed, stream by stream: what is wrong with one holds up no other, and no query."""
    taken = _LandedBatches()
    for name, each in site.project.streams.items():
        if each.landing is None:
            continue
        try:
            report = ingest_batch(site, IngestRequest(name, landed=True), on_step)
        except ErrataError as error:
            taken.failed.append((name, error))
            continue
        if report.commit_id is not None or report.held_files:
            taken.batches.append(report)
        if report.clearing_error is not None:
            taken.failed.append((name, report.clearing_error))
    return taken


# What came of a run: whether all went well, and why queries have stopped.


def exit_code(report: RunReport | SweepReport) -> int:
    """Of a command: 1 when a query has stopped, waits for one that has, or could not be taken further, or a stream's
    landed files could not be taken; 3 when rows, files or corrections went to quarantine."""
    code = job_exit_code(report)
    return EXIT_FAILED if code == EXIT_DECISION else code


def job_exit_code(report: RunReport | SweepReport, accepted: Container[int] = ()) -> int:
    """Of a job: what may pass is told from what waits for a person, and of that the job's caller may accept some."""
    failed, quarantined = bool(report.failed), any(each.counts.refused for each in report.revised)
    if isinstance(report, RunReport):
        failed |= bool(report.not_taken)
        quarantined |= any(each.incomplete for each in report.batches)
    waiting = [other for _, other in report.held if other not in report.busy]
    found = {
        EXIT_FAILED: failed,
        EXIT_DECISION: bool(report.stopped or waiting),
        EXIT_QUARANTINE: quarantined,
    }
    return next((code for code, so in found.items() if so and code not in accepted), 0)


def stopped_query_errors(site: Site, stopped: Iterable[tuple[str, Fault]]) -> list[ErrataError]:
    """What a person is told of each query that has stopped: what, why, and how to mend it."""
    faults = list(stopped)
    if not faults:
        return []
    reads = {name: each.checked.reads for name, each in queries.recorded_queries(site.catalog).items()}
    untimed = {each.stream.name for each in streams.stream_states(site.catalog) if not each.stream.timed}
    return [
        fault_error(fault, name, timed=untimed.isdisjoint(transitive_inputs(name, reads))) for name, fault in faults
    ]
