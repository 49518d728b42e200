"""What the scripts under jobs/ call: one function each, from arguments to an exit code. The last line of output is
the reason of a failure, since schedulers show the end of a log."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.range_replay import REPLAY_WAIT_SECONDS, ReplayRange, replay_range
from errata.answer.rounds import RoundsReport
from errata.answer.runs import job_exit_code, run, stopped_query_errors, sweep
from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.ingest.landing import earlier_undone
from errata.archive.revisions.apply import ReviseReport, apply_revisions
from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.compaction import compact_streams
from errata.archive.upkeep.doctor import DoctorOptions, run_doctor
from errata.catalog.leases import WaitPolicy
from errata.declare.site import open_site
from errata.engine.failures import lost_spark_error
from errata.errors import EXIT_DECISION, EXIT_FAILED, EXIT_QUARANTINE, ErrataError
from errata.model.commit import Cause
from errata.model.technique import Technique
from errata.psoup.materialise import materialise
from errata.psoup.views import update_views
from errata.read.vacuum_wording import reduction_lines
from errata.reduce.vacuum import vacuum_everything

RUN_LEASE_WAIT = 60.0
"""Seconds that a run or a sweep waits for a query that another runner holds. Most runs end within that; otherwise
the query is left to the next run, since landed files wait for this one."""


def add_cause_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that name the scheduler's task; they are recorded in the commits."""
    told = parser.add_argument_group("who runs this", "what each commit is to say of its making")
    told.add_argument("--dag-id", default="")
    told.add_argument("--run-id", default="")
    told.add_argument("--task-id", default="")
    told.add_argument("--try-number", type=int)


def cause_from_arguments(given: argparse.Namespace) -> Cause:
    """The cause of commits from these arguments."""
    return Cause("", dag_id=given.dag_id, run_id=given.run_id, task_id=given.task_id, try_number=given.try_number)


def job_exit(main: Callable[[], int]) -> int:
    """The exit code of a job. An error is printed last."""
    try:
        return main()
    except Exception as error:  # noqa: BLE001 - the last resort
        told = lost_spark_error(error) or error
        if isinstance(told, ErrataError):
            _print_line(str(told))
            return told.exit_code
        traceback.print_exc()
        _print_line(f"the job failed unexpectedly: {type(error).__name__}: {error}")
        return EXIT_FAILED


def append_job(project: Path, batches: Sequence[IngestRequest], cause: Cause) -> int:
    """Ingest batches, each by itself: one that fails does not stop the others."""
    failed: list[ErrataError] = []
    quarantined = False
    with open_site(project, cause) as site:
        for batch in batches:
            try:
                report = ingest_batch(site, batch, _print_line)
            except ErrataError as error:
                failed.append(error)
                continue
            _print_appended(report)
            quarantined |= report.incomplete
            failed += [report.clearing_error] if report.clearing_error is not None else []
    for each in failed:
        _print_line(str(each))
    if failed:
        return max(each.exit_code for each in failed) if len(failed) == len(batches) else EXIT_FAILED
    return EXIT_QUARANTINE if quarantined else 0


def add_accept_arguments(parser: argparse.ArgumentParser, *, stopped: bool = False) -> None:
    """The arguments that name outcomes which are no failure; `stopped` adds stopped queries."""
    parser.add_argument(
        "--accept-quarantine", dest="accepted", action="append_const", const=EXIT_QUARANTINE, help="exit 0 also then"
    )
    if stopped:
        parser.add_argument(
            "--accept-stopped",
            dest="accepted",
            action="append_const",
            const=EXIT_DECISION,
            help="exit 0 also when queries have stopped, which a person has to mend",
        )


def run_job(project: Path, names: Sequence[str], take: bool, cause: Cause, accepted: Container[int] = ()) -> int:
    """Do all that is due; landed files are ingested with `take`."""
    with open_site(project, cause) as site:
        report = run(site, names, take=take, on_step=_print_line, patience=WaitPolicy(RUN_LEASE_WAIT, _print_line))
        faults = stopped_query_errors(site, report.stopped)
    for batch in report.batches:
        _print_appended(batch)
    _print_revised(report.revised)
    for each in report.evaluated:
        if each.swept is not None:
            _print_sweep(each)
            continue
        step = f"{each.measures.rows:,} results, {each.measures.route}, {each.measures.micros // 1000:,} ms"
        _print_line(f"{each.name}: commit {each.commit_id}, {step}")
    for _, trouble in report.not_taken:
        _print_line(str(trouble))
    _print_line(f"{len(report.current):,} queries are as far as their streams reach")
    _print_blocked(report, faults)
    return job_exit_code(report, accepted)


def revise_job(project: Path, names: Sequence[str], cause: Cause) -> int:
    """Apply pending revisions."""
    with open_site(project, cause) as site:
        reports = apply_revisions(site, names, _print_line)
    _print_revised(reports)
    return EXIT_QUARANTINE if any(report.counts.refused for report in reports) else 0


def _print_revised(reports: Iterable[ReviseReport]) -> None:
    for report in reports:
        settled = report.counts
        where = f"commit {', '.join(map(str, report.commits))}" if report.commits else "nothing to settle"
        _print_line(
            f"{report.stream}: {where}, {settled.applied:,} corrections applied, {settled.dropped:,} so already, "
            f"{settled.ignored:,} ignored, {settled.waiting:,} waiting, {settled.refused:,} in quarantine"
        )


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Options of a sweep."""

    names: Sequence[str] = ()
    technique: str = "auto"
    due: bool = False


def sweep_job(project: Path, wanted: SweepOptions, cause: Cause, accepted: Container[int] = ()) -> int:
    """Apply pending revisions, and correct the results that they invalidate."""
    with open_site(project, cause) as site:
        technique = Technique(wanted.technique)
        patience = WaitPolicy(RUN_LEASE_WAIT, _print_line)
        report = sweep(site, wanted.names, technique=technique, due=wanted.due, on_step=_print_line, patience=patience)
        faults = stopped_query_errors(site, report.stopped)
    _print_revised(report.revised)
    for each in report.swept:
        _print_sweep(each)
    _print_line(f"{len(report.current):,} queries have nothing to correct")
    for sweeping in report.deferred:
        _print_line(f"{sweeping.name}: its corrections are not due yet")
    _print_blocked(report, faults)
    return job_exit_code(report, accepted)


def replay_job(project: Path, wanted: tuple[str, str, str, str], *, dry: bool, cause: Cause) -> int:
    """Replay a range of results."""
    query, since, until, technique = wanted
    with open_site(project, cause) as site:
        asked = ReplayRange(query, since, until, Technique(technique))
        report = replay_range(
            site, asked, dry=dry, on_step=_print_line, patience=WaitPolicy(REPLAY_WAIT_SECONDS, _print_line)
        )
        faults = stopped_query_errors(site, [(query, report.fault)] if report.fault is not None else [])
    _print_line(f"{query}: about {report.rows:,} rows are read" + ("; nothing was done" if dry else ""))
    if not dry:
        _print_line(f"{query}: {report.changed:,} of {report.results:,} results came out different")
    for fault in faults:
        _print_line(str(fault))
    return EXIT_DECISION if report.fault is not None else 0


def _print_sweep(each: EvaluationOutcome) -> None:
    swept = each.swept
    if swept is None:
        return
    found = f"{swept.changed:,} of {swept.compared:,} results corrected, {swept.technique}"
    refused = f", {swept.refusals:,} corrections refused" if swept.refused else ""
    _print_line(f"{each.name}: commit {each.commit_id}, {found}{refused}, {each.measures.micros // 1000:,} ms")


def _print_blocked(report: RoundsReport, faults: Iterable[ErrataError]) -> None:
    """Print why queries were not evaluated, the gravest last, since a task's last line is its reason."""
    for name in report.busy:
        by = f": {report.holders[name].description}" if name in report.holders else ""
        _print_line(f"{name}: another runner is at work on it{by}")
    for name, other in report.held:
        _print_line(f"{name}: waits for {other}")
    for fault in faults:
        _print_line(str(fault))
    for _, error in report.failed:
        _print_line(str(error))


def age_out_job(project: Path, names: Sequence[str], cause: Cause) -> int:
    """Drop buckets past their retention."""
    with open_site(project, cause) as site:
        for aged in age_out(site, names):
            done = f"commit {aged.commit_id}" if aged.commit_id else "nothing due"
            done += f", held by query {aged.hold.query}" if aged.hold is not None else ""
            _print_line(f"{aged.stream}: {done}, {len(aged.buckets):,} buckets with {aged.rows:,} rows dropped")
    return 0


def compact_job(project: Path, names: Sequence[str], everything: bool, cause: Cause) -> int:
    """Apply overlays to their buckets, and merge small buckets."""
    with open_site(project, cause) as site:
        for done in compact_streams(site, names, everything=everything, on_step=_print_line):
            if done.commit_id is None:
                _print_line(f"{done.stream}: nothing due")
                continue
            made = f"{len(done.replaced):,} buckets into {len(done.written):,}, {len(done.folded):,} overlays worked in"
            _print_line(f"{done.stream}: commit {done.commit_id}, {made}")
    return 0


def vacuum_job(project: Path, names: Sequence[str], grace: int, cause: Cause) -> int:
    """Keep copies and summaries as declared and as readers asked, purge, and remove what nobody needs."""
    with open_site(project, cause) as site:
        done = vacuum_everything(site, names, grace)
    for line in reduction_lines(done, plan=False):
        _print_line(line)
    for each in done.removed.freed:
        freed = f"{each.buckets:,} buckets and {each.files:,} files, {each.bytes:,} bytes"
        _print_line(f"{each.stream}: {freed} freed, {each.reason.value} {each.kind}")
    for line in done.failed:
        _print_line(line)
    return EXIT_FAILED if done.failed else 0


def materialise_job(project: Path, names: Sequence[str], cause: Cause) -> int:
    """Match new rows with all registered queries, and new queries with all rows; then carry on the views of them."""
    with open_site(project, cause) as site:
        for done in materialise(site, names):
            found = (
                f"{done.rows:,} rows in {done.buckets:,} buckets matched with up to {done.conjunctions:,} conjunctions"
            )
            _print_line(
                f"{done.stream}: {f'{found}, {done.matches:,} matches' if done.buckets else 'nothing to match'}"
            )
        if (shown := update_views(site)).views:
            _print_line(str(shown))
    return 0


def doctor_job(project: Path, names: Sequence[str], orders: DoctorOptions, cause: Cause) -> int:
    """Check the archives against the catalog."""
    with open_site(project, cause) as site:
        found = run_doctor(site, names, orders, _print_line)
    for each in found:
        name = each.stream or "commits and files"
        for finding in each.findings:
            _print_line(
                f"{name}: {finding.severity.value}: {finding.where}: {finding.what}; how to mend: {finding.how}"
            )
        _print_line(f"{name}: {len(each.findings):,} findings, {len(each.mended):,} mended")
    return EXIT_DECISION if any(each.findings for each in found) else 0


def _print_appended(report: IngestReport) -> None:
    for file in report.held_files:
        _print_line(f"{report.stream}: {file.name} is set aside: {file.reason}")
    if report.commit_id is None:
        _print_line(f"{report.stream}: nothing{' else' if report.held_files else ''} has landed")
        return
    if report.already_ingested:
        _print_line(f"{report.stream}: batch {report.batch_id} was taken in before, in commit {report.commit_id}")
        return
    for each in report.skipped_files:
        _print_line(f"{report.stream}: {each.name} was taken in before, with batch {each.batch_id}")
    for batch_id, undone_in in earlier_undone(report.repeated).items():
        _print_line(f"{report.stream}: this is batch {batch_id} again, which was undone in commit {undone_in}")
    counts = report.counts
    _print_line(
        f"{report.stream}: commit {report.commit_id}, {counts.appended:,} rows appended, {counts.pending:,} pending, "
        f"{counts.dropped:,} dropped, {counts.replaced:,} replaced, {counts.quarantined:,} in quarantine"
    )


def _print_line(text: str) -> None:
    sys.stderr.write(f"{text}\n")
