"""`errata sweep`: what is pending is applied, the results that it invalidates are corrected, and what came of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from errata.catalog.leases import Patience
from errata.cli.options import Printed, given
from errata.cli.refused import refusals_of
from errata.cli.revise import revised_lines
from errata.cli.run import standing_lines
from errata.cli.talk import say, steps
from errata.errors import UsageError
from errata.flows.answering.evaluate import Evaluated
from errata.flows.running.outcome import exit_code, told
from errata.flows.running.sweep import SweepReport
from errata.flows.running.sweep import sweep as sweep_flow
from errata.flows.running.sweep_plan import Planned, SweepPlan, plan_sweep
from errata.flows.site import at_site
from errata.revise.technique import Technique
from errata.serve.formats import Field, Format, Record, print_records
from errata.serve.words import counted

FIELDS = (
    Field("query", "query"),
    Field("technique", "technique"),
    Field("revisions", "revisions"),
    Field("compared", "results looked at", right=True),
    Field("changed", "changed", right=True),
    Field("engine", "engine"),
    Field("rows_read", "rows read", right=True),
    Field("ms", "ms", right=True),
    Field("commit", "commit", right=True),
)

PLANNED = (
    Field("query", "query"),
    Field("revisions", "corrections", right=True),
    Field("technique", "technique"),
    Field("regions", "stretches", right=True),
    Field("rows", "rows to read", right=True),
    Field("all_rows", "of all", right=True),
    Field("engine", "engine"),
    Field("why", "why"),
    Field("waits", "errata run"),
)
"""What a person is told of a sweep that is planned."""

SHOWN = 20


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
    kind: Printed = Format.TABLE,
) -> int:
    """Apply all corrections and late rows that are pending, and correct the results that they invalidate.

    Results that come out as they were are not published again. Each query's corrections are one commit; `errata
    changes` tells what changed, from what, to what, and `errata why` the whole story of a result.
    """
    if technique is Technique.NONE:
        raise UsageError("to correct nothing is declared, not asked for", how="on_revision: history in errata.yaml")
    if all_groups and technique is not Technique.ALL:
        raise UsageError("--all-groups is about --technique all", how="add it, or leave --all-groups out")
    if plan:
        with at_site(given(context).project) as site:
            found = plan_sweep(site, names or (), technique=technique, narrowed=not all_groups)
        _tell_plan(found, kind)
        return 0
    with at_site(given(context).project) as site:
        with steps("sweeping") as on_step:
            report = sweep_flow(
                site,
                names or (),
                technique=technique,
                narrowed=not all_groups,
                on_step=on_step,
                patience=Patience(tell=say),
            )
        faults = told(site, report.stopped[:SHOWN])
    for each in report.revised:
        for line in revised_lines(each):
            say(line)
    records = [record for each in report.swept if (record := _record(each)) is not None]
    if records or kind is not Format.TABLE:
        print_records(FIELDS, records, records, kind, sys.stdout)
    for line in _lines(report):
        say(line)
    for line in standing_lines(report, faults):
        say(line)
    return exit_code(report)


def _record(each: Evaluated) -> Record | None:
    swept = each.swept
    if swept is None:
        return None
    return {
        "query": each.name,
        "technique": swept.technique,
        "revisions": ", ".join(f"{name} {_numbers(*ends)}" for name, ends in swept.revisions.items()),
        "compared": swept.compared,
        "changed": swept.changed,
        "engine": each.measures.engine,
        "rows_read": each.measures.rows_read,
        "ms": round(each.measures.micros / 1000),
        "commit": each.commit_id,
    }


def _numbers(since: int, up_to: int) -> str:
    return str(up_to) if since + 1 >= up_to else f"{since + 1} to {up_to}"


def _lines(report: SweepReport) -> Iterator[str]:
    if not (report.revised or report.swept or report.stopped or report.failed or report.held or report.busy):
        yield "nothing was pending, and no published result needs to be corrected"
    for each in report.swept:
        if each.swept is not None:
            yield from refusals_of(each.name, each.swept.refused)


def _tell_plan(found: SweepPlan, kind: Format) -> None:
    records = [_planned(each) for each in found.queries]
    if records or kind is not Format.TABLE:
        shown = [{**each, "waits": each["waits"] or "does it"} for each in records]
        print_records(PLANNED, records, shown, kind, sys.stdout)
    for name, count in found.pending.items():
        more = found.unplaced.get(name, 0)
        rest = f"; {counted(more, 'row')} would have to be looked up and are not in the plan" if more else ""
        some = counted(count, "correction or late row", "corrections or late rows")
        say(f"{name}: {some} would become history{rest}")
    for each in found.queries:
        for line in refusals_of(each.query, each.refused):
            say(line)
    if not (found.queries or found.pending):
        say("nothing is pending, and no published result needs to be corrected")
    elif not found.queries:
        say("no published result would have to be corrected")


def _planned(each: Planned) -> Record:
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
