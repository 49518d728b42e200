"""`errata sweep`, which applies pending revisions and corrects the results that they invalidate, and `errata
replay`, which recomputes a range of results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from errata.answer.evaluation_commit import EvaluationOutcome
from errata.answer.range_replay import REPLAY_WAIT_SECONDS, ReplayRange, ReplayReport
from errata.answer.range_replay import replay_range as replay_flow
from errata.answer.runs import SweepReport, exit_code, stopped_query_errors
from errata.answer.runs import sweep as sweep_flow
from errata.answer.sweep_plan import PlannedCorrection, SweepPlan, plan_sweep
from errata.archive.approximations import ApproximationMethod
from errata.catalog.leases import WaitPolicy
from errata.cli.console import print_message, step_status
from errata.cli.estimate import print_estimates
from errata.cli.options import PrintFormat, global_options
from errata.cli.revise import revision_lines
from errata.cli.run import unfinished_lines
from errata.cli.status import refusal_lines
from errata.declare.site import open_site
from errata.errors import EXIT_FAILED, ErrataError, UsageError, count_text
from errata.model.technique import Technique
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.wording import OutputFormat, event_time_short, event_time_text, relative_paths

SWEEP_FIELDS = (
    TableField("query", "query"),
    TableField("technique", "technique"),
    TableField("revisions", "revisions"),
    TableField("compared", "results looked at", right=True),
    TableField("changed", "changed", right=True),
    TableField("engine", "engine"),
    TableField("rows_read", "rows read", right=True),
    TableField("ms", "ms", right=True),
    TableField("commit", "commit", right=True),
)

SWEEP_PLAN_FIELDS = (
    TableField("query", "query"),
    TableField("revisions", "corrections", right=True),
    TableField("technique", "technique"),
    TableField("regions", "stretches", right=True),
    TableField("rows", "rows to read", right=True),
    TableField("all_rows", "of all", right=True),
    TableField("engine", "engine"),
    TableField("why", "why"),
    TableField("waits", "errata run"),
)
"""Columns of a planned sweep in a table."""

MAX_FAULTS = 20


def sweep(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUERY", help="Only these and what they read; else all.", show_default=False),
    ] = None,
    technique: Annotated[
        Technique,
        typer.Option("--technique", metavar="auto|all|minimal|direct", help="How results are worked out again."),
    ] = Technique.AUTO,
    all_groups: Annotated[
        bool, typer.Option("--all-groups", help="With --technique all: replay also groups that nothing touches.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only tell what would be done, and at what cost.")] = False,
    estimate: Annotated[
        ApproximationMethod | None,
        typer.Option(
            "--estimate",
            metavar="sample|impact|histogram",
            help="Only estimate what corrected results will be, with bounds.",
        ),
    ] = None,
    rate: Annotated[str | None, typer.Option("--rate", metavar="P", help="Of a sample: 10% or 0.1.")] = None,
    kind: PrintFormat = OutputFormat.TABLE,
) -> int:
    """Apply all corrections and late rows that are pending, and correct the results that they invalidate.

    Results that come out as they were are not published again. Each query's corrections are one commit; `errata
    changes` tells what changed, from what, to what, and `errata why` the whole story of a result. With --estimate
    nothing is done: what corrections that have been applied will make of windows is estimated from less than their
    rows.
    """
    _check_options(technique, estimate, rate, all_groups=all_groups)
    if estimate is not None:
        with open_site(global_options(context).project) as site:
            print_estimates(site, names or (), estimate, rate, kind)
        return 0
    if plan:
        with open_site(global_options(context).project) as site:
            found = plan_sweep(site, names or (), technique=technique, narrowed=not all_groups)
        _report_sweep_plan(found, kind)
        return 0
    with open_site(global_options(context).project) as site:
        with step_status("sweeping") as on_step:
            report = sweep_flow(
                site,
                names or (),
                technique=technique,
                narrowed=not all_groups,
                on_step=on_step,
                patience=WaitPolicy(tell=print_message),
            )
        faults = stopped_query_errors(site, report.stopped[:MAX_FAULTS])
    _print_sweep(report, faults, kind)
    return exit_code(report)


def _print_sweep(report: SweepReport, faults: Sequence[ErrataError], kind: OutputFormat) -> None:
    for each in report.revised:
        for line in revision_lines(each):
            print_message(line)
    records = [record for each in report.swept if (record := _sweep_record(each)) is not None]
    if records or kind is not OutputFormat.TABLE:
        print_records(SWEEP_FIELDS, records, records, kind, sys.stdout)
    for line in (*_sweep_lines(report), *unfinished_lines(report, faults)):
        print_message(line)


def _check_options(
    technique: Technique, estimate: ApproximationMethod | None, rate: str | None, *, all_groups: bool
) -> None:
    if technique is Technique.NONE:
        raise UsageError("to correct nothing is declared, not asked for", how="on_revision: history in errata.yaml")
    if all_groups and technique is not Technique.ALL:
        raise UsageError("--all-groups is about --technique all", how="add it, or leave --all-groups out")
    if rate is not None and estimate is not ApproximationMethod.SAMPLE:
        raise UsageError("--rate is about --estimate sample", how="add it, or leave --rate out")


def _sweep_record(each: EvaluationOutcome) -> TableRecord | None:
    swept = each.swept
    if swept is None:
        return None
    return {
        "query": each.name,
        "technique": swept.technique,
        "revisions": ", ".join(f"{name} {_revision_range(*ends)}" for name, ends in swept.revisions.items()),
        "compared": swept.compared,
        "changed": swept.changed,
        "engine": each.measures.engine,
        "rows_read": each.measures.rows_read,
        "ms": round(each.measures.micros / 1000),
        "commit": each.commit_id,
    }


def _revision_range(since: int, up_to: int) -> str:
    return str(up_to) if since + 1 >= up_to else f"{since + 1} to {up_to}"


def _sweep_lines(report: SweepReport) -> Iterator[str]:
    if not (report.revised or report.swept or report.stopped or report.failed or report.held or report.busy):
        yield "nothing was pending, and no published result needs to be corrected"
    for each in report.swept:
        if each.swept is not None:
            yield from refusal_lines(each.name, each.swept.refused)


def _report_sweep_plan(found: SweepPlan, kind: OutputFormat) -> None:
    records = [_sweep_plan_record(each) for each in found.queries]
    if records or kind is not OutputFormat.TABLE:
        shown = [{**each, "waits": each["waits"] or "does it"} for each in records]
        print_records(SWEEP_PLAN_FIELDS, records, shown, kind, sys.stdout)
    for name, count in found.pending.items():
        more = found.unplaced.get(name, 0)
        rest = f"; {count_text(more, 'row')} would have to be looked up and are not in the plan" if more else ""
        some = count_text(count, "correction or late row", "corrections or late rows")
        print_message(f"{name}: {some} would become history{rest}")
    for each in found.queries:
        for line in refusal_lines(each.query, each.refused):
            print_message(line)
    if not (found.queries or found.pending):
        print_message("nothing is pending, and no published result needs to be corrected")
    elif not found.queries:
        print_message("no published result would have to be corrected")


def _sweep_plan_record(each: PlannedCorrection) -> TableRecord:
    return {
        "query": each.query,
        "revisions": each.revisions,
        "technique": each.technique.value,
        "regions": each.regions,
        "rows": each.rows,
        "all_rows": each.all_rows,
        "engine": "" if each.choice is None else each.choice.engine.value,
        "engine_why": "" if each.choice is None else each.choice.why,
        "why": each.why,
        "waits": each.waits,
    }


# `errata replay`.

REPLAY_FIELDS = (
    TableField("query", "query"),
    TableField("from", "from"),
    TableField("to", "to"),
    TableField("rows", "rows read about", right=True),
    TableField("results", "results looked at", right=True),
    TableField("changed", "changed", right=True),
    TableField("verified", "verified"),
    TableField("commits", "commits"),
)


def replay(
    context: typer.Context,
    query: Annotated[str, typer.Option("--query", metavar="QUERY", help="Whose results.")],
    since: Annotated[str, typer.Option("--from", metavar="T", help="The first event time.")],
    until: Annotated[str, typer.Option("--to", metavar="T", help="The event time before which it ends.")],
    technique: Annotated[
        Technique, typer.Option("--technique", metavar="auto|all|minimal", help="Which rows are read for it.")
    ] = Technique.AUTO,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only tell what it would take.")] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Fail where another runner is at work on the query, and do not wait.")
    ] = False,
    kind: PrintFormat = OutputFormat.TABLE,
) -> int:
    """Work a range of a query's results out again from the history that they were made of.

    Only what comes out different is published; otherwise the range is verified. A replay that was broken off is gone
    on with when it is asked for again with the same range. Corrections that no sweep has taken up yet stay out.
    """
    if technique in (Technique.DIRECT, Technique.NONE):
        raise UsageError(f"a replay by the technique {technique.value} is none", how="--technique auto, all or minimal")
    patience = WaitPolicy(0.0 if no_wait else REPLAY_WAIT_SECONDS, print_message)
    with open_site(global_options(context).project) as site:
        with step_status("replaying") as on_step:
            asked = ReplayRange(query, since, until, technique)
            report = replay_flow(site, asked, dry=dry, on_step=on_step, patience=patience)
        faults = stopped_query_errors(site, [(report.query, report.fault)] if report.fault is not None else [])
    if kind is not OutputFormat.TABLE:
        record = _replay_record(report)
        print_records(REPLAY_FIELDS, [record], [record], kind, sys.stdout)
    for line in _replay_lines(report, dry=dry):
        print_message(line)
    for fault in faults:
        print_message(relative_paths(str(fault)))
    return EXIT_FAILED if report.fault is not None else 0


def _replay_record(report: ReplayReport) -> dict[str, object]:
    return {
        "query": report.query,
        "from": event_time_text(report.interval.start, report.timed),
        "to": event_time_text(report.interval.end, report.timed),
        "rows": report.rows,
        "results": report.results,
        "changed": report.changed,
        "verified": report.verified,
        "commits": [each.commit_id for each in report.done],
    }


def _replay_lines(report: ReplayReport, *, dry: bool) -> Iterator[str]:
    ends = (event_time_short(each, report.timed) for each in (report.interval.start, report.interval.end))
    what = f"{report.query} from {' to before '.join(ends)}"
    if dry:
        yield f"{what}: about {count_text(report.rows, 'row')} would be read; nothing was done"
        return
    again = ", going on with what had been broken off" if report.resumed else ""
    if report.fault is not None:
        same = f"{report.results - report.changed:,} of {count_text(report.results, 'result')} came out as published"
        yield f"{what}: not verified{again}, for the query has stopped; {same}"
    elif report.verified:
        yield f"{what}: verified{again}, {count_text(report.results, 'result')} came out as published"
    else:
        some = f"{report.changed:,} of {count_text(report.results, 'result')}"
        commits = ", ".join(str(each.commit_id) for each in report.done)
        yield f"{what}: {some} came out different and {'was' if report.changed == 1 else 'were'} corrected{again}"
        if commits:
            yield f"  in commit {commits}: `errata changes {report.query}` tells what changed"
