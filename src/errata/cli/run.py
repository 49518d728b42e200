"""`errata run`: does all that is due, and reports what came of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Protocol

import typer

from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.run_plan import plan_run
from errata.answer.runs import RunReport, exit_code, stopped_query_errors
from errata.answer.runs import run as run_flow
from errata.archive.ingest.batch import IngestReport
from errata.catalog.leases import LeaseHolder, WaitPolicy
from errata.cli.console import print_error, print_message, step_status
from errata.cli.ingest import append_lines
from errata.cli.options import PrintFormat, global_options
from errata.cli.revise import revision_lines
from errata.cli.run_plan import report_run_plan
from errata.cli.status import refusal_lines
from errata.declare.site import open_site
from errata.errors import ErrataError, count_text
from errata.model.commit import Fault
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.wording import OutputFormat, event_time_short, event_time_text, relative_paths

EVALUATED_FIELDS = (
    TableField("name", "query"),
    TableField("until", "answered up to"),
    TableField("commit", "commit", right=True),
    TableField("rows", "results", right=True),
    TableField("route", "route"),
    TableField("engine", "engine"),
    TableField("rows_read", "rows read", right=True),
    TableField("ms", "ms", right=True),
)
"""Columns of evaluated queries in a table."""

RUN_FIELDS = (
    TableField("what", "what"),
    TableField("name", "name"),
    TableField("outcome", "outcome"),
    TableField("commit", "commit"),
    TableField("until", "until"),
    TableField("rows", "rows"),
    TableField("batch", "batch"),
    TableField("counts", "counts"),
    TableField("route", "route"),
    TableField("engine", "engine"),
    TableField("engine_why", "engine_why"),
    TableField("rows_read", "rows_read"),
    TableField("ms", "ms"),
    TableField("waits_for", "waits_for"),
    TableField("fault", "fault"),
)
"""Columns of batches and queries for programs."""

MAX_FAULTS = 20
"""Queries with the same outcome that are named; JSON and CSV have all."""


def run(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUERY", help="Only these and what they read; else all.", show_default=False),
    ] = None,
    anew: Annotated[
        bool,
        typer.Option("--anew", help="Work the queries named out from the beginning, in place of what is published."),
    ] = False,
    no_take: Annotated[bool, typer.Option("--no-take", help="Leave what has landed where it is.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only tell which steps would be carried out, and why.")] = False,
    kind: PrintFormat = OutputFormat.TABLE,
) -> int:
    """Do all that is due: take what has landed into the archives, and bring every query up to its streams.

    Corrections and late rows that are due become history and reach the results that they invalidate. A query whose
    answer cannot be worked out stops where it is, and the others go on: then the exit code is 1. With rows or landed
    files in quarantine it is 3. A query that another runner is at work on is left to that one.

    With --anew the results of the queries named are replaced, in one commit each, by what is worked out from the rows
    that their streams still hold; how the new answer differs from the old one is published like every change.
    """
    if plan:
        with open_site(global_options(context).project) as site:
            report_run_plan(plan_run(site, names or (), take=not no_take, anew=anew), kind)
        return 0
    with open_site(global_options(context).project) as site:
        with step_status("running") as on_step:
            patience = WaitPolicy(tell=print_message)
            report = run_flow(site, names or (), take=not no_take, anew=anew, on_step=on_step, patience=patience)
        for batch in report.batches:
            for line in append_lines(batch, site.project.streams[batch.stream]):
                print_message(line)
        faults = stopped_query_errors(site, report.stopped[:MAX_FAULTS])
    for each in report.revised:
        for line in revision_lines(each):
            print_message(line)
    if kind is not OutputFormat.TABLE:
        taken = [each for each in report.batches if each.commit_id is not None]
        records = [*map(_batch_records, taken), *_landing_records(report), *_query_records(report)]
        print_records(RUN_FIELDS, records, records, kind, sys.stdout)
    elif report.evaluated:
        shown = [_table_record(each) for each in report.evaluated]
        print_records(EVALUATED_FIELDS, shown, shown, kind, sys.stdout)
    for _, trouble in report.not_taken:
        print_error(relative_paths(str(trouble)))
    for line in run_lines(report, faults):
        print_message(line)
    return exit_code(report)


def run_lines(report: RunReport, faults: Sequence[ErrataError]) -> Iterator[str]:
    """What became of the queries that were not evaluated, in words. `faults`: why the first ones have stopped."""
    are = count_text(len(report.current), "query is", "queries are")
    done = report.batches or report.not_taken or report.evaluated
    if not (done or report.stopped or report.failed or report.held or report.busy):
        yield f"nothing is due: {are} answered as far as the streams reach" if report.current else "nothing is due"
    elif report.current:
        yield f"{are} answered already as far as the streams reach"
    for sweeping in report.deferred[:MAX_FAULTS]:
        some = count_text(sweeping.revisions, "correction")
        yield f"query {sweeping.name}: {some} not due yet, as declared; `errata sweep` does it now"
    for each in report.evaluated:
        if each.swept is not None:
            yield from refusal_lines(each.name, each.swept.refused)
    yield from unfinished_lines(report, faults)


class UnfinishedQueries(Protocol):
    """Queries that a run or a sweep could not evaluate."""

    @property
    def busy(self) -> Sequence[str]: ...
    @property
    def holders(self) -> Mapping[str, LeaseHolder]: ...
    @property
    def stopped(self) -> Sequence[tuple[str, Fault]]: ...
    @property
    def failed(self) -> Sequence[tuple[str, ErrataError]]: ...
    @property
    def held(self) -> Sequence[tuple[str, str]]: ...


def unfinished_lines(report: UnfinishedQueries, faults: Sequence[ErrataError]) -> Iterator[str]:
    """What became of queries that were not taken further, in words. `faults`: why the first ones have stopped."""
    for name in report.busy[:MAX_FAULTS]:
        by = f": {report.holders[name].description}" if name in report.holders else ""
        yield f"query {name} is being evaluated by another runner{by}"
    yield from _remaining_line(report.busy, "by another runner")
    for fault in faults:
        yield relative_paths(str(fault))
    yield from _remaining_line(report.stopped, "stopped")
    for name, other in report.held[:MAX_FAULTS]:
        yield f"query {name} waits for query {other}"
    yield from _remaining_line(report.held, "waiting")
    for _, error in report.failed[:MAX_FAULTS]:
        yield relative_paths(str(error))
    yield from _remaining_line(report.failed, "could not be taken further")


def _remaining_line(some: Sequence[object], what: str) -> Iterator[str]:
    if len(some) > MAX_FAULTS:
        yield f"and {count_text(len(some) - MAX_FAULTS, 'more query', 'more queries')} {what}: errata status --queries"


def _table_record(each: EvaluationOutcome) -> TableRecord:
    shown = {**_evaluated_record(each), "until": event_time_short(each.step.until, each.published.shape.timed)}
    return shown if each.swept is None else {**shown, "route": f"corrected, {each.measures.route}"}


def _batch_records(batch: IngestReport) -> TableRecord:
    return _run_record(
        what="batch",
        name=batch.stream,
        outcome="taken before" if batch.already_ingested else "taken",
        commit=batch.commit_id,
        rows=0 if batch.already_ingested else batch.counts.appended,
        batch=batch.batch_id,
        counts=asdict(batch.counts),
    )


def _landing_records(report: RunReport) -> Iterator[TableRecord]:
    """Files that were set aside, and streams whose landing folder cannot be read."""
    for batch in report.batches:
        for file in batch.held_files:
            fault = {"file": file.name, "reason": file.reason, "how": file.how}
            yield _run_record(what="file", name=batch.stream, outcome="set aside", fault=fault)
    for name, error in report.not_taken:
        fault = {"what": error.what, "where": error.where, "why": error.why, "how": error.how}
        yield _run_record(what="landing", name=name, outcome="failed", fault=fault)


def _query_records(report: RunReport) -> Iterator[TableRecord]:
    yield from (_evaluated_record(each) for each in report.evaluated)
    yield from (_run_record(what="query", name=name, outcome="current") for name in report.current)
    yield from (_run_record(what="query", name=name, outcome="busy") for name in report.busy)
    for name, fault in report.stopped:
        yield _run_record(what="query", name=name, outcome="stopped", fault=fault.record())
    for name, error in report.failed:
        yield _run_record(what="query", name=name, outcome="failed", fault=Fault(str(error)).record())
    for name, other in report.held:
        yield _run_record(what="query", name=name, outcome="held", waits_for=other)


def _evaluated_record(each: EvaluationOutcome) -> TableRecord:
    return _run_record(
        what="query",
        name=each.name,
        outcome="evaluated" if each.swept is None else "corrected",
        commit=each.commit_id,
        until=event_time_text(each.step.until, each.published.shape.timed),
        rows=each.measures.rows,
        route=each.measures.route,
        engine=each.measures.engine,
        engine_why=each.measures.engine_why,
        rows_read=each.measures.rows_read,
        ms=round(each.measures.micros / 1000),
    )


def _run_record(**told: object) -> TableRecord:
    return {**dict.fromkeys((field.name for field in RUN_FIELDS), None), **told}
