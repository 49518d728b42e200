"""`errata archive vacuum`: builds, shrinks and drops smaller versions of archives, purges originals, and removes what
nothing needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from errata.archive.upkeep.vacuum import DEFAULT_GRACE, FreedSpace, VacuumReport
from errata.cli.console import print_error, print_message, step_status
from errata.cli.options import PrintFormat, global_options
from errata.declare.site import open_site
from errata.errors import EXIT_FAILED, count_text
from errata.model.time import format_duration, parse_duration
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.vacuum_wording import reduction_lines
from errata.read.wording import OutputFormat, byte_size_text
from errata.reduce import vacuum as flow

VACUUM_FIELDS = (
    TableField("stream", "stream"),
    TableField("what", "what"),
    TableField("kind", "kind"),
    TableField("buckets", "buckets", right=True),
    TableField("files", "files", right=True),
    TableField("bytes", "size", right=True),
)


def vacuum(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STREAM", help="Only these; else all there are and were.", show_default=False),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be removed, and remove nothing.")] = False,
    grace: Annotated[
        str, typer.Option("--grace", metavar="DURATION", help="How old a file must be that no index row names.")
    ] = format_duration(DEFAULT_GRACE),
    kind: PrintFormat = OutputFormat.TABLE,
) -> int:
    """Build, shrink and drop copies and summaries as declared and as readers asked, purge originals, and remove what no
    commit within the horizon and no reader needs, and what killed runs left in the warehouse."""
    patience = parse_duration(grace)
    with open_site(global_options(context).project) as site, step_status("vacuum") as on_step:
        everything = (flow.plan_everything if plan else flow.vacuum_everything)(site, names or (), patience, on_step)
    for line in reduction_lines(everything, plan=plan):
        print_message(line)
    done = everything.removed
    if done.freed or kind is not OutputFormat.TABLE:
        records = [_vacuum_record(each) for each in done.freed]
        shown = [
            {**record, "bytes": byte_size_text(each.bytes)} for each, record in zip(done.freed, records, strict=True)
        ]
        print_records(VACUUM_FIELDS, records, shown, kind, sys.stdout)
    for line in vacuum_lines(done, plan=plan, grace=patience):
        print_message(line)
    for line in everything.failed:
        print_error(line)
    return EXIT_FAILED if everything.failed else 0


def vacuum_lines(done: VacuumReport, *, plan: bool, grace: int) -> Iterator[str]:
    """What was removed, or would be, and what stays, in words."""
    buckets, files, freed = (sum(getattr(each, name) for each in done.freed) for name in ("buckets", "files", "bytes"))
    if done.freed:
        what = f"{count_text(buckets, 'bucket')} and {count_text(files, 'file')}, {byte_size_text(freed)}"
        yield f"{'would free' if plan else 'freed'} {what}{_commit_words(done)}"
    else:
        yield "nothing to free"
    forgotten = done.forgotten
    records = {"evaluation": forgotten.evaluations, "position": forgotten.positions}
    if told := [count_text(count, record) for record, count in records.items() if count]:
        yield f"{'would remove' if plan else 'removed'} records behind the horizon: {', '.join(told)}"
    if forgotten.segments:
        segments = count_text(forgotten.segments, "match segment")
        yield f"{'would drop' if plan else 'dropped'} {segments} of buckets or queries that are gone"
    if forgotten.pins:
        yield f"{'would drop' if plan else 'dropped'} {count_text(forgotten.pins, 'expired pin')}"
    if done.folders:
        yield f"{count_text(done.folders, 'empty folder')} {'would be ' if plan else ''}removed"
    if done.young:
        yield (
            f"left alone: {count_text(done.young, 'file')} younger than {format_duration(grace)} that no "
            "index row names"
        )
    if done.foreign:
        yield (
            f"left alone: {count_text(done.foreign, 'file')} in the warehouse that "
            f"{_is_or_are(done.foreign)} not Errata's"
        )


def _is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def _commit_words(done: VacuumReport) -> str:
    if not done.commits:
        return ""
    return f" in {'commit' if len(done.commits) == 1 else 'commits'} {', '.join(map(str, done.commits))}"


def _vacuum_record(each: FreedSpace) -> TableRecord:
    return {
        "stream": each.stream,
        "what": each.reason.value,
        "kind": each.kind,
        "buckets": each.buckets,
        "files": each.files,
        "bytes": each.bytes,
    }
