"""One run or one sweep of a site: `errata run` and `errata sweep`, their jobs and DAGs.

A run takes in what has landed, applies pending revisions that are due, and then corrects and evaluates all queries.
Queries that feed merged streams come first, then these streams take their results in, then the queries over them. A
sweep applies pending revisions and corrects results; it evaluates nothing. Both report what each query came to, and
turn that into an exit code."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace

from errata.answer.catalog_view import CatalogView
from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.faults import fault_error
from errata.answer.feed_deliveries import deliver
from errata.answer.feedback import quickest_first
from errata.answer.progress import queries_with_inputs
from errata.answer.rounds import Rounds, RoundsReport, RoundsRequest
from errata.answer.steps import StepList, StepRequest
from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.revisions.apply import ReviseReport, apply_stream_revisions
from errata.catalog import commits, pins, queries, streams
from errata.catalog.leases import WaitPolicy
from errata.declare.query_feeds import FeedStage, feed_stages, query_feeds
from errata.declare.site import ProgressCallback, Site
from errata.errors import EXIT_DECISION, EXIT_FAILED, EXIT_QUARANTINE, ErrataError, UsageError
from errata.model.commit import Fault
from errata.model.query import transitive_inputs
from errata.model.technique import Technique

# Sweeps.


@dataclass
class SweepReport(RoundsReport):
    """The outcome of a sweep."""

    @property
    def swept(self) -> Sequence[EvaluationOutcome]:
        """The evaluations that corrected results."""
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
    """Apply pending revisions, and correct the results of the queries named and of those that they read; of all, if
    none is named. `due`: leave what the project or a query defers. `patience`: how long to wait for queries that
    another runner works on."""
    request = StepRequest(names, evaluates=False, deferring=due)
    report = SweepReport(revised=apply_pending(site, request, on_step))
    with pins.hold_pin(site.catalog, commits.newest_commit(site.catalog), "sweep") as pin:
        wanted = RoundsRequest(request, technique, narrowed, patience or WaitPolicy())
        Rounds(CatalogView(site, pin.commit_id), on_step, wanted, report).run()
    return report


def apply_pending(site: Site, request: StepRequest, on_step: ProgressCallback) -> list[ReviseReport]:
    """Apply the pending revisions that are due to the history of their streams."""
    steps = StepList(CatalogView(site), request).to_apply()
    reports = [apply_stream_revisions(site, each.name, on_step) for each in steps if each.ready]
    return [each for each in reports if each.commits]


# Runs.


@dataclass
class RunReport(RoundsReport):
    """The outcome of a run."""

    batches: list[IngestReport] = field(default_factory=list)
    """Batches of landed files: what was taken in, and what was set aside."""
    not_taken: list[tuple[str, ErrataError]] = field(default_factory=list)
    """Streams whose landed files could not be taken in, or not all be put away, and why."""


def run(
    site: Site,
    names: Sequence[str] = (),
    *,
    take: bool = True,
    anew: bool = False,
    on_step: ProgressCallback = lambda _: None,
    patience: WaitPolicy | None = None,
) -> RunReport:
    """Do all that is due; with names, evaluate only these queries and those that they read. `anew`: recompute those
    named from their first instant, into archives that replace theirs. `patience`: how long to wait for queries that
    another runner works on."""
    if anew and not names:
        raise UsageError("no query is named that is to be worked out anew", how="name it: errata run --anew QUERY")
    report = RunReport()
    if take:
        _ingest_landed(site, on_step, report)
    report.revised = apply_pending(site, StepRequest(), on_step)
    steps = StepRequest(names, anew=frozenset(names) if anew else frozenset())
    wanted = RoundsRequest(steps, patience=patience or WaitPolicy())
    stages = _feed_stages(site, names)
    if not any(each.feeds for each in stages):
        _run_rounds(site, wanted, on_step, report)
        return report
    for stage in stages:
        for some in _in_turn(site, stage):
            part = RoundsReport()
            asked = replace(steps, names=some.queries, anew=steps.anew.intersection(some.queries))
            _run_rounds(site, replace(wanted, steps=asked), on_step, part)
            report.add(part)
            if _deliver(site, some, on_step, report):
                report.revised += apply_pending(site, StepRequest(), on_step)
    return report


def _in_turn(site: Site, stage: FeedStage) -> list[FeedStage]:
    """The queries of a stage, and after them one by one those that get feedback, with what each feeds."""
    view = CatalogView(site)
    told = {query for _, feed, query in query_feeds(each.stream for each in view.standings.values()) if feed.feedback}
    last = [name for name in stage.queries if name in told]
    groups = [[name for name in stage.queries if name not in told], *([name] for name in quickest_first(last, view))]
    return [stage.restricted_to(names) for names in groups if names]


def _run_rounds(site: Site, wanted: RoundsRequest, on_step: ProgressCallback, into: RoundsReport) -> None:
    # The queries are read after the commit is pinned, so that what is found stays.
    with pins.hold_pin(site.catalog, commits.newest_commit(site.catalog), "run") as pin:
        Rounds(CatalogView(site, pin.commit_id), on_step, wanted, into).run()


def _feed_stages(site: Site, names: Sequence[str]) -> list[FeedStage]:
    """The queries in the order in which what they feed allows to evaluate them."""
    view = CatalogView(site)
    reads = {name: each.checked.reads for name, each in view.queries.items()}
    wanted = list(queries_with_inputs(view.queries, names))
    return feed_stages([each.stream for each in view.standings.values()], reads, wanted)


def _deliver(site: Site, stage: FeedStage, on_step: ProgressCallback, into: RunReport) -> bool:
    """Let streams take in what has changed in the queries that feed them. A stream that fails holds up no other."""
    delivered = False
    for stream, feed, _ in stage.feeds:
        try:
            report = deliver(site, stream, feed, on_step)
        except ErrataError as error:
            into.not_taken.append((stream, error))
            continue
        if report is not None:
            into.batches.append(report)
            delivered = True
    return delivered


def _ingest_landed(site: Site, on_step: ProgressCallback, into: RunReport) -> None:
    """Take in what has landed, stream by stream. A stream that fails holds up no other, and no query."""
    for name, each in site.project.streams.items():
        if not each.folders:
            continue
        try:
            report = ingest_batch(site, IngestRequest(name, landed=True), on_step)
        except ErrataError as error:
            into.not_taken.append((name, error))
            continue
        if report.commit_id is not None or report.held_files:
            into.batches.append(report)
        if report.clearing_error is not None:
            into.not_taken.append((name, report.clearing_error))


# Exit codes, and what a person is told of stopped queries.


def exit_code(report: RunReport | SweepReport) -> int:
    """A command's exit code: 1 when a query has stopped, waits for one that has, or failed, or when a stream's landed
    files could not be taken in; 3 when rows, files or corrections went to quarantine."""
    code = job_exit_code(report)
    return EXIT_FAILED if code == EXIT_DECISION else code


def job_exit_code(report: RunReport | SweepReport, accepted: Container[int] = ()) -> int:
    """A job's exit code. It tells failures that a retry may cure from what waits for a person. Codes that the caller
    accepts are left out."""
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
    """For each stopped query the error that a person is shown: what, why, and how to mend it."""
    faults = list(stopped)
    if not faults:
        return []
    reads = {name: each.checked.reads for name, each in queries.recorded_queries(site.catalog).items()}
    untimed = {each.stream.name for each in streams.stream_states(site.catalog) if not each.stream.timed}
    return [
        fault_error(fault, name, timed=untimed.isdisjoint(transitive_inputs([name], reads))) for name, fault in faults
    ]
