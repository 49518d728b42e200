"""`errata doctor`: compares archives with the catalog, and says what is wrong and how to mend it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Annotated

import typer

from errata.archive.upkeep import doctor as flow
from errata.archive.upkeep.doctor import DoctorOptions, DoctorReport
from errata.archive.upkeep.vacuum import DEFAULT_GRACE
from errata.cli.console import print_message, progress_bar, step_status
from errata.cli.options import PrintFormat, global_options
from errata.declare.site import open_site
from errata.errors import EXIT_FAILED, count_text
from errata.model.findings import Finding
from errata.model.time import format_duration, parse_duration
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.wording import OutputFormat

DOCTOR_FIELDS = (
    TableField("stream", "stream"),
    TableField("severity", "severity"),
    TableField("kind", "kind"),
    TableField("what", "what", fold=True),
    TableField("where", "where", fold=True),
    TableField("why", "why it matters", fold=True),
    TableField("how", "how to mend", fold=True),
    TableField("mendable", "--fix"),
    TableField("state", "state"),
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
    ] = format_duration(DEFAULT_GRACE),
    kind: PrintFormat = OutputFormat.TABLE,
) -> int:
    """Compare archives with what the catalog says of them, and say what is wrong, why it matters and how to mend it.

    The exit code is 0 when nothing is wrong, or all of it has been mended, and 1 when something is left.
    """
    orders = DoctorOptions(deep, fix, parse_duration(grace))
    # A progress bar for each stream that is read; other steps are shown as a line.
    with (
        open_site(global_options(context).project) as site,
        nullcontext() if deep else step_status("doctor") as on_step,
    ):
        found = flow.run_doctor(site, names or (), orders, on_step or (lambda _: None), progress_bar)
    records = [record for each in found for record in _finding_records(each)]
    if records or kind is not OutputFormat.TABLE:
        print_records(
            DOCTOR_FIELDS,
            records,
            [{**each, "mendable": "" if not each["mendable"] else "yes"} for each in records],
            kind,
            sys.stdout,
        )
    for line in doctor_lines(found, fix=fix):
        print_message(line)
    return EXIT_FAILED if any(each.findings for each in found) else 0


def doctor_lines(found: Sequence[DoctorReport], *, fix: bool) -> Iterator[str]:
    """The state of each stream, in a line."""
    for each in found:
        told = count_text(len(each.findings), "finding")
        done = f", {len(each.mended):,} mended in commit {each.commit_id}" if each.mended else ""
        if each.stream is not None:
            yield (
                f"{each.stream}: {count_text(each.buckets, 'bucket')}, "
                f"{count_text(each.overlays, 'overlay')}, {told}{done}"
            )
        elif each.findings or each.mended:
            yield f"commits and files: {told}{done}"
    if not fix and any(finding.mendable for each in found for finding in each.findings):
        yield "some of it can be mended: errata doctor --fix"


def _finding_records(each: DoctorReport) -> Iterator[TableRecord]:
    for state, findings in (("left", each.findings), ("mended", each.mended)):
        for finding in findings:
            yield _finding_record(finding, state)


def _finding_record(finding: Finding, state: str) -> TableRecord:
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
