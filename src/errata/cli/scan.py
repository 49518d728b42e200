"""`errata archive scan`: rows of an archive."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from errata.cli.named import named_values
from errata.cli.options import StreamName, given
from errata.cli.talk import say, steps
from errata.errors import UsageError
from errata.flows.read import Reading, Wanted, reading, refuse_backwards
from errata.flows.site import at_site
from errata.serve.formats import ScanFormat, console_on
from errata.serve.rows import first_rows, in_order, write_file, write_rows
from errata.serve.words import counted

SHOWN = 50


def scan(
    context: typer.Context,
    stream: StreamName,
    start: Annotated[str | None, typer.Option("--from", metavar="T", help="The first place that counts.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="T", help="The first place that no longer does.")] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="COLUMN=VALUE[,…]", help="Only this group; may be given again."),
    ] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As known then.")] = None,
    kind: Annotated[
        ScanFormat, typer.Option("--format", help="How rows are given out.", case_sensitive=False)
    ] = ScanFormat.TABLE,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file.")] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Only the first N rows; as a table 50 unless told."),
    ] = None,
    revisions: Annotated[
        int | None,
        typer.Option("--revisions", metavar="N", min=0, help="With the corrections up to this number only."),
    ] = None,
    age_first: Annotated[
        bool, typer.Option("--age-first", help="Age the stream first if it ages lazily, as a correction would.")
    ] = False,
) -> None:
    """Read rows with from <= place < to, sorted by order field and key.

    Places are times such as 2026-11-18T02:00:00, in UTC, or whole numbers, as the stream is ordered.
    """
    if kind is ScanFormat.PARQUET and out is None:
        raise UsageError("Parquet does not go to a terminal", how="name a file with --out")
    if kind is ScanFormat.TABLE and out is not None:
        raise UsageError("a table is for looking at", how="add --format csv, json or parquet to write to a file")
    wanted = Wanted(
        stream,
        start,
        end,
        as_of,
        [named_values(text, "group", "--group symbol=IBM") for text in group or ()],
        age_first,
        revisions,
    )
    with at_site(given(context).project) as site:
        refuse_backwards(site.catalog, wanted)
        with reading(site, wanted) as answer:
            _give_out(answer, kind, out, limit)
    if out is not None:
        say(f"wrote {out}, as of commit {answer.scan.commit_id}")
    elif kind is ScanFormat.TABLE:
        say(f"as of commit {answer.scan.commit_id}; {counted(len(answer.found.all), 'bucket')} opened")


def _give_out(answer: Reading, kind: ScanFormat, out: Path | None, limit: int | None) -> None:
    stream = answer.scan.standing.stream
    by = list(dict.fromkeys([stream.order, *stream.key]))
    if kind is ScanFormat.TABLE:
        console = console_on(sys.stdout)
        with steps(f"reading {stream.name}"):
            table, more = first_rows(in_order(answer.rows, by, None), limit or SHOWN, console.width)
        console.print(table)
        if more:
            say("more rows; a greater --limit shows them, --format csv gives all")
        return
    rows = in_order(answer.rows, by, limit)
    if out is None:
        write_rows(rows, kind, sys.stdout.buffer, limit)
        return
    with steps(f"writing {out}"):
        write_file(rows, kind, out, limit, answer.pin.check)
