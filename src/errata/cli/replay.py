"""`errata replay`: a range of a query's results worked out again, and what came out different."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from errata.catalog.leases import Patience
from errata.cli.options import Printed, given
from errata.cli.talk import say, steps
from errata.errors import EXIT_FAILED, UsageError
from errata.flows.running.outcome import told
from errata.flows.running.replay import REPLAYS_WAIT, Range, ReplayReport
from errata.flows.running.replay import replay as replay_flow
from errata.flows.site import at_site
from errata.revise.technique import Technique
from errata.serve.formats import Field, Format, print_records
from errata.serve.words import counted, near, place, place_shown

FIELDS = (
    Field("query", "query"),
    Field("from", "from"),
    Field("to", "to"),
    Field("rows", "rows read about", right=True),
    Field("results", "results looked at", right=True),
    Field("changed", "changed", right=True),
    Field("verified", "verified"),
    Field("commits", "commits"),
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
    kind: Printed = Format.TABLE,
) -> int:
    """Work a range of a query's results out again from the history that they were made of.

    Only what comes out different is published; otherwise the range is verified. A replay that was broken off is gone
    on with when it is asked for again with the same range. Corrections that no sweep has taken up yet stay out.
    """
    if technique in (Technique.DIRECT, Technique.NONE):
        raise UsageError(f"a replay by the technique {technique.value} is none", how="--technique auto, all or minimal")
    patience = Patience(0.0 if no_wait else REPLAYS_WAIT, say)
    with at_site(given(context).project) as site:
        with steps("replaying") as on_step:
            asked = Range(query, since, until, technique)
            report = replay_flow(site, asked, dry=dry, on_step=on_step, patience=patience)
        faults = told(site, [(report.query, report.fault)] if report.fault is not None else [])
    if kind is not Format.TABLE:
        record = _record(report)
        print_records(FIELDS, [record], [record], kind, sys.stdout)
    for line in _lines(report, dry=dry):
        say(line)
    for fault in faults:
        say(near(str(fault)))
    return EXIT_FAILED if report.fault is not None else 0


def _record(report: ReplayReport) -> dict[str, object]:
    return {
        "query": report.query,
        "from": place(report.interval.start, report.timed),
        "to": place(report.interval.end, report.timed),
        "rows": report.rows,
        "results": report.results,
        "changed": report.changed,
        "verified": report.verified,
        "commits": [each.commit_id for each in report.done],
    }


def _lines(report: ReplayReport, *, dry: bool) -> Iterator[str]:
    ends = (place_shown(each, report.timed) for each in (report.interval.start, report.interval.end))
    what = f"{report.query} from {' to before '.join(ends)}"
    if dry:
        yield f"{what}: about {counted(report.rows, 'row')} would be read; nothing was done"
        return
    again = ", going on with what had been broken off" if report.resumed else ""
    if report.fault is not None:
        same = f"{report.results - report.changed:,} of {counted(report.results, 'result')} came out as published"
        yield f"{what}: not verified{again}, for the query has stopped; {same}"
    elif report.verified:
        yield f"{what}: verified{again}, {counted(report.results, 'result')} came out as published"
    else:
        some = f"{report.changed:,} of {counted(report.results, 'result')}"
        commits = ", ".join(str(each.commit_id) for each in report.done)
        yield f"{what}: {some} came out different and {'was' if report.changed == 1 else 'were'} corrected{again}"
        if commits:
            yield f"  in commit {commits}: `errata changes {report.query}` tells what changed"
