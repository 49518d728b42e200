"""`errata run`: all that is due, and what came of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Protocol

import typer

from errata.catalog.leases import Holder, Patience
from errata.cli.ingest import report_lines
from errata.cli.options import Printed, given
from errata.cli.refused import refusals_of
from errata.cli.revise import revised_lines
from errata.cli.talk import complain, say, steps
from errata.errors import ErrataError
from errata.flows.answering.evaluate import Evaluated
from errata.flows.running.outcome import exit_code, told
from errata.flows.running.run import RunReport
from errata.flows.running.run import run as run_flow
from errata.flows.site import at_site
from errata.flows.taking.append import AppendReport
from errata.model.evaluation import Fault
from errata.serve.formats import Field, Format, Record, print_records
from errata.serve.words import counted, near, place, place_shown

ANSWERED = (
    Field("name", "query"),
    Field("until", "answered up to"),
    Field("commit", "commit", right=True),
    Field("rows", "results", right=True),
    Field("route", "route"),
    Field("engine", "engine"),
    Field("rows_read", "rows read", right=True),
    Field("ms", "ms", right=True),
)
"""What a person is shown of queries that were evaluated."""

FIELDS = (
    Field("what", "what"),
    Field("name", "name"),
    Field("outcome", "outcome"),
    Field("commit", "commit"),
    Field("until", "until"),
    Field("rows", "rows"),
    Field("batch", "batch"),
    Field("counts", "counts"),
    Field("route", "route"),
    Field("engine", "engine"),
    Field("engine_why", "engine_why"),
    Field("rows_read", "rows_read"),
    Field("ms", "ms"),
    Field("waits_for", "waits_for"),
    Field("fault", "fault"),
)
"""What a program is told of each batch and each query."""

SHOWN = 20
"""So many queries of one fate are named; scripts are told of all."""


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
    kind: Printed = Format.TABLE,
) -> int:
    """Do all that is due: take what has landed into the archives, and bring every query up to its streams.

    Corrections and late rows that are due become history and reach the results that they invalidate. A query whose
    answer cannot be worked out stops where it is, and the others go on: then the exit code is 1. With rows or landed
    files in quarantine it is 3. A query that another runner is at work on is left to that one.

    With --anew the results of the queries named are replaced, in one commit each, by what is worked out from the rows
    that their streams still hold; how the new answer differs from the old one is published like every change.
    """
    with at_site(given(context).project) as site:
        with steps("running") as on_step:
            patience = Patience(tell=say)
            report = run_flow(site, names or (), take=not no_take, anew=anew, on_step=on_step, patience=patience)
        for batch in report.batches:
            for line in report_lines(batch, site.project.streams[batch.stream]):
                say(line)
        faults = told(site, report.stopped[:SHOWN])
    for each in report.revised:
        for line in revised_lines(each):
            say(line)
    if kind is not Format.TABLE:
        taken = [each for each in report.batches if each.commit_id is not None]
        records = [*map(_of_batch, taken), *_of_landing(report), *_of_queries(report)]
        print_records(FIELDS, records, records, kind, sys.stdout)
    elif report.evaluated:
        shown = [_shown(each) for each in report.evaluated]
        print_records(ANSWERED, shown, shown, kind, sys.stdout)
    for _, trouble in report.not_taken:
        complain(near(str(trouble)))
    for line in run_lines(report, faults):
        say(line)
    return exit_code(report)


def run_lines(report: RunReport, faults: Sequence[ErrataError]) -> Iterator[str]:
    """What became of the queries that were not evaluated, in words. `faults`: why the first ones have stopped."""
    are = counted(len(report.current), "query is", "queries are")
    done = report.batches or report.not_taken or report.evaluated
    if not (done or report.stopped or report.failed or report.held or report.busy):
        yield f"nothing is due: {are} answered as far as the streams reach" if report.current else "nothing is due"
    elif report.current:
        yield f"{are} answered already as far as the streams reach"
    for sweeping in report.deferred[:SHOWN]:
        some = counted(sum(each.count for each in sweeping.revised), "correction")
        yield f"query {sweeping.name}: {some} not due yet, as declared; `errata sweep` does it now"
    for each in report.evaluated:
        if each.swept is not None:
            yield from refusals_of(each.name, each.swept.refused)
    yield from standing_lines(report, faults)


class Standing(Protocol):
    """What a run and a sweep tell of queries that they could not take further."""

    @property
    def busy(self) -> Sequence[str]: ...
    @property
    def holders(self) -> Mapping[str, Holder]: ...
    @property
    def stopped(self) -> Sequence[tuple[str, Fault]]: ...
    @property
    def failed(self) -> Sequence[tuple[str, ErrataError]]: ...
    @property
    def held(self) -> Sequence[tuple[str, str]]: ...


def standing_lines(report: Standing, faults: Sequence[ErrataError]) -> Iterator[str]:
    """What became of queries that were not taken further, in words. `faults`: why the first ones have stopped."""
    for name in report.busy[:SHOWN]:
        by = f": {report.holders[name].words}" if name in report.holders else ""
        yield f"query {name} is being evaluated by another runner{by}"
    yield from _more(report.busy, "by another runner")
    for fault in faults:
        yield near(str(fault))
    yield from _more(report.stopped, "stopped")
    for name, other in report.held[:SHOWN]:
        yield f"query {name} waits for query {other}"
    yield from _more(report.held, "waiting")
    for _, error in report.failed[:SHOWN]:
        yield near(str(error))
    yield from _more(report.failed, "could not be taken further")


def _more(some: Sequence[object], what: str) -> Iterator[str]:
    if len(some) > SHOWN:
        yield f"and {counted(len(some) - SHOWN, 'more query', 'more queries')} {what}: errata status --queries"


def _shown(each: Evaluated) -> Record:
    shown = {**_of_evaluated(each), "until": place_shown(each.step.until, each.published.shape.timed)}
    return shown if each.swept is None else {**shown, "route": f"corrected, {each.measures.route}"}


def _of_batch(batch: AppendReport) -> Record:
    return _record(
        what="batch",
        name=batch.stream,
        outcome="taken before" if batch.already else "taken",
        commit=batch.commit_id,
        rows=0 if batch.already else batch.counts.appended,
        batch=batch.batch_id,
        counts=asdict(batch.counts),
    )


def _of_landing(report: RunReport) -> Iterator[Record]:
    """Files that were set aside, and streams whose landing place has trouble."""
    for batch in report.batches:
        for file in batch.set_aside:
            fault = {"file": file.name, "reason": file.reason, "how": file.how}
            yield _record(what="file", name=batch.stream, outcome="set aside", fault=fault)
    for name, error in report.not_taken:
        fault = {"what": error.what, "where": error.where, "why": error.why, "how": error.how}
        yield _record(what="landing", name=name, outcome="failed", fault=fault)


def _of_queries(report: RunReport) -> Iterator[Record]:
    yield from (_of_evaluated(each) for each in report.evaluated)
    yield from (_record(what="query", name=name, outcome="current") for name in report.current)
    yield from (_record(what="query", name=name, outcome="busy") for name in report.busy)
    for name, fault in report.stopped:
        yield _record(what="query", name=name, outcome="stopped", fault=fault.record())
    for name, error in report.failed:
        yield _record(what="query", name=name, outcome="failed", fault=Fault(str(error)).record())
    for name, other in report.held:
        yield _record(what="query", name=name, outcome="held", waits_for=other)


def _of_evaluated(each: Evaluated) -> Record:
    return _record(
        what="query",
        name=each.name,
        outcome="evaluated" if each.swept is None else "corrected",
        commit=each.commit_id,
        until=place(each.step.until, each.published.shape.timed),
        rows=each.measures.rows,
        route=each.measures.route,
        engine=each.measures.engine,
        engine_why=each.measures.engine_why,
        rows_read=each.measures.rows_read,
        ms=round(each.measures.micros / 1000),
    )


def _record(**told: object) -> Record:
    return {**dict.fromkeys((field.name for field in FIELDS), None), **told}
