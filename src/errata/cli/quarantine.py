"""`errata quarantine`: the rows that were not taken in."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from errata.catalog import quarantine, streams
from errata.cli.options import MaybeStream, Printed, given
from errata.cli.talk import say
from errata.flows.site import at_site
from errata.serve.formats import Field, Format, print_records
from errata.serve.words import batch_name, counted, near

SHOWN = 50

FIELDS = (
    Field("stream", "stream"),
    Field("batch", "batch"),
    Field("file", "file", fold=True),
    Field("line", "line", right=True),
    Field("reason", "reason", fold=True),
    Field("text", "text", fold=True),
)


def ls(
    context: typer.Context,
    stream: MaybeStream = None,
    batch: Annotated[str | None, typer.Option("--batch", metavar="ID", help="Only of this batch.")] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Only the last N rows; as a table 50 unless told."),
    ] = None,
    kind: Printed = Format.TABLE,
) -> None:
    """List rows in quarantine, oldest first: where each stood, why it was not taken, what it said."""
    last = limit or (SHOWN if kind is Format.TABLE else None)
    with at_site(given(context).project) as site:
        if stream is not None:
            streams.check_known(site.catalog, stream)
        held = quarantine.held(site.catalog, stream=stream, batch_id=batch, last=None if last is None else last + 1)
    found = held if last is None else held[-last:]
    records = [
        {
            "stream": each.stream,
            "batch": each.batch_id,
            "file": each.row.file,
            "line": each.row.line,
            "reason": each.row.reason,
            "text": each.row.text,
        }
        for each in found
    ]
    if not records:
        say("no rows in quarantine")
        if kind is Format.TABLE:
            return
    shown = [
        record
        | {
            "batch": batch_name(each.batch_id),
            "file": near(each.row.file),
            "line": str(each.row.line),
            "reason": near(each.row.reason),
        }
        for each, record in zip(found, records, strict=True)
    ]
    fields = FIELDS if kind is not Format.TABLE or stream is None else FIELDS[1:]
    print_records(fields, records, shown, kind, sys.stdout)
    if len(held) > len(found):
        say(f"these are the last {counted(len(found), 'row')}, there are more; use --limit or --format csv")
