"""`errata archive vacuum`: what nobody needs any more, removed, and what was freed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from errata.cli.options import Printed, given
from errata.cli.talk import complain, say, steps
from errata.errors import EXIT_FAILED
from errata.flows.site import at_site
from errata.flows.upkeep import vacuum as flow
from errata.flows.upkeep.vacuum import GRACE, Freed, Vacuumed
from errata.model.instants import format_duration, parse_duration
from errata.serve.formats import Field, Format, Record, print_records
from errata.serve.words import counted, size

FIELDS = (
    Field("stream", "stream"),
    Field("what", "what"),
    Field("kind", "kind"),
    Field("buckets", "buckets", right=True),
    Field("files", "files", right=True),
    Field("bytes", "size", right=True),
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
    ] = format_duration(GRACE),
    kind: Printed = Format.TABLE,
) -> int:
    """Remove what no commit within the horizon and no reader needs, and what killed runs left in the warehouse."""
    patience = parse_duration(grace)
    with at_site(given(context).project) as site, steps("vacuum") as on_step:
        done = (flow.plan if plan else flow.vacuum)(site, names or (), patience, on_step)
    if done.freed or kind is not Format.TABLE:
        records = [_record(each) for each in done.freed]
        shown = [{**record, "bytes": size(each.bytes)} for each, record in zip(done.freed, records, strict=True)]
        print_records(FIELDS, records, shown, kind, sys.stdout)
    for line in report_lines(done, plan=plan, grace=patience):
        say(line)
    for line in done.stuck:
        complain(f"cannot be removed: {line}")
    return EXIT_FAILED if done.stuck else 0


def report_lines(done: Vacuumed, *, plan: bool, grace: int) -> Iterator[str]:
    """What was freed, or would be, and what stays, in words."""
    buckets, files, freed = (sum(getattr(each, name) for each in done.freed) for name in ("buckets", "files", "bytes"))
    if done.freed:
        what = f"{counted(buckets, 'bucket')} and {counted(files, 'file')}, {size(freed)}"
        yield f"{'would free' if plan else 'freed'} {what}{_commits(done)}"
    else:
        yield "nothing to free"
    forgotten = done.forgotten
    records = {"evaluation": forgotten.evaluations, "position": forgotten.positions}
    if told := [counted(count, record) for record, count in records.items() if count]:
        yield f"{'would remove' if plan else 'removed'} records behind the horizon: {', '.join(told)}"
    if forgotten.pins:
        yield f"{'would drop' if plan else 'dropped'} {counted(forgotten.pins, 'expired pin')}"
    if done.folders:
        yield f"{counted(done.folders, 'empty folder')} {'would be ' if plan else ''}removed"
    if done.young:
        yield f"left alone: {counted(done.young, 'file')} younger than {format_duration(grace)} that no index row names"
    if done.foreign:
        yield f"left alone: {counted(done.foreign, 'file')} in the warehouse that {_is(done.foreign)} not Errata's"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _commits(done: Vacuumed) -> str:
    if not done.commits:
        return ""
    return f" in {'commit' if len(done.commits) == 1 else 'commits'} {', '.join(map(str, done.commits))}"


def _record(each: Freed) -> Record:
    return {
        "stream": each.stream,
        "what": each.what.value,
        "kind": each.kind,
        "buckets": each.buckets,
        "files": each.files,
        "bytes": each.bytes,
    }
