"""`errata doctor`: whether archives are whole, what is wrong with them, and how to mend it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Annotated

import typer

from errata.cli.options import Printed, given
from errata.cli.talk import bar, say, steps
from errata.errors import EXIT_FAILED
from errata.flows.site import at_site
from errata.flows.upkeep import doctor as flow
from errata.flows.upkeep.doctor import Examined, Orders
from errata.flows.upkeep.vacuum import GRACE
from errata.model.health import Finding
from errata.model.instants import format_duration, parse_duration
from errata.serve.formats import Field, Format, Record, print_records
from errata.serve.words import counted

FIELDS = (
    Field("stream", "stream"),
    Field("severity", "severity"),
    Field("kind", "kind"),
    Field("what", "what", fold=True),
    Field("where", "where", fold=True),
    Field("why", "why it matters", fold=True),
    Field("how", "how to mend", fold=True),
    Field("mendable", "--fix"),
    Field("state", "state"),
)


def doctor(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STREAM", help="Only these; else all there are and were.", show_default=False),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended safely.")] = False,
    deep: Annotated[
        bool,
        typer.Option("--deep/--quick", help="Read all rows, or look only at the index and at what files there are."),
    ] = True,
    grace: Annotated[
        str, typer.Option("--grace", metavar="DURATION", help="How old a file must be that no index row names.")
    ] = format_duration(GRACE),
    kind: Printed = Format.TABLE,
) -> int:
    """Compare archives with what the catalog says of them, and say what is wrong, why it matters and how to mend it.

    The exit code is 0 when nothing is wrong, or all of it has been mended, and 1 when something is left.
    """
    orders = Orders(deep, fix, parse_duration(grace))
    # A bar for each stream that is read; where none is, a line that says what is being done.
    with at_site(given(context).project) as site, nullcontext() if deep else steps("doctor") as on_step:
        found = flow.doctor(site, names or (), orders, on_step or (lambda _: None), bar)
    records = [record for each in found for record in _records(each)]
    if records or kind is not Format.TABLE:
        print_records(
            FIELDS,
            records,
            [{**each, "mendable": "" if not each["mendable"] else "yes"} for each in records],
            kind,
            sys.stdout,
        )
    for line in report_lines(found, fix=fix):
        say(line)
    return EXIT_FAILED if any(each.findings for each in found) else 0


def report_lines(found: Sequence[Examined], *, fix: bool) -> Iterator[str]:
    """How each stream is, in a line."""
    for each in found:
        told = counted(len(each.findings), "finding")
        done = f", {len(each.mended):,} mended in commit {each.commit_id}" if each.mended else ""
        if each.stream is not None:
            yield f"{each.stream}: {counted(each.buckets, 'bucket')}, {counted(each.overlays, 'overlay')}, {told}{done}"
        elif each.findings or each.mended:
            yield f"commits and files: {told}{done}"
    if not fix and any(finding.mendable for each in found for finding in each.findings):
        yield "some of it can be mended: errata doctor --fix"


def _records(each: Examined) -> Iterator[Record]:
    for state, findings in (("left", each.findings), ("mended", each.mended)):
        for finding in findings:
            yield _record(finding, state)


def _record(finding: Finding, state: str) -> Record:
    return {
        "stream": finding.stream,
        "severity": finding.severity.value,
        "kind": finding.kind.value,
        "what": finding.what,
        "where": finding.where,
        "why": finding.why,
        "how": finding.how,
        "mendable": finding.mendable,
        "state": state,
    }
