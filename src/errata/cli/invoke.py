"""`errata invoke`: the current answer of a registered query."""

from __future__ import annotations

import sys
from typing import Annotated

import pyarrow as pa
import typer

from errata.cli.console import print_message
from errata.cli.follow import follow_answer
from errata.cli.options import MAX_ROWS, PrintFormat, global_options
from errata.cli.query import HandleArgument
from errata.declare.site import open_site
from errata.errors import UsageError
from errata.intake.encoding import csv_header, csv_lines, json_lines
from errata.model.time import format_instant
from errata.psoup.invoke import Invocation
from errata.psoup.reader import RegisteredReader
from errata.read.output import encode_blocks, format_first_rows
from errata.read.tables import open_console
from errata.read.wording import OutputFormat

TABLE_ROWS = 50


def invoke(
    context: typer.Context,
    handle: HandleArgument,
    at: Annotated[
        str | None, typer.Option("--at", metavar="T", help="The event time; else the stable point of what it reads.")
    ] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As known then.")] = None,
    kind: PrintFormat = OutputFormat.TABLE,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, max=MAX_ROWS, help="Only N rows; as a table 50 unless told."),
    ] = None,
    offset: Annotated[int, typer.Option("--offset", metavar="N", min=0, help="Leave the first N rows out.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with each change, until Ctrl-C.")] = False,
    after: Annotated[
        int | None, typer.Option("--after", metavar="COMMIT", min=0, help="Follow behind this commit.")
    ] = None,
    consumer: Annotated[
        str | None, typer.Option("--consumer", metavar="NAME", help="Follow behind what NAME has had, and hold it.")
    ] = None,
) -> None:
    """Answer a registered query: its window at an event time, over the streams as known at a commit.

    Rows are in the order of event time and key. Pages of an answer fit together if --at and --as-of are the same.
    With --follow the first line is the whole answer; a line for each commit that changes it comes behind. The number of
    the commit is in the line: whoever goes on with --after that number misses and repeats nothing.
    """
    if follow or after is not None or consumer is not None:
        if not follow or at or as_of or limit or offset or kind is not OutputFormat.TABLE:
            raise UsageError(
                "--after and --consumer go with --follow, and no other option does",
                how="errata invoke HANDLE --follow [--after COMMIT] [--consumer NAME]",
            )
        with open_site(global_options(context).project) as site:
            follow_answer(site, handle, after, consumer)
        return
    with open_site(global_options(context).project) as site, RegisteredReader(site) as reader:
        answer = reader.invoke(handle, at=at, as_of=as_of)
    rows = answer.rows.slice(offset)
    if kind is OutputFormat.TABLE:
        _print_table(rows, limit or TABLE_ROWS)
        print_message(_summary(answer))
        return
    page = rows if limit is None else rows.slice(0, limit)
    out = sys.stdout.buffer
    if kind is OutputFormat.CSV:
        out.write(csv_header(page.column_names))
    out.writelines(encode_blocks(page, csv_lines if kind is OutputFormat.CSV else json_lines))
    out.flush()


def _print_table(rows: pa.Table, limit: int) -> None:
    console = open_console(sys.stdout)
    table, more = format_first_rows(rows, limit, console.width)
    console.print(table)
    if more:
        print_message("more rows; a greater --limit shows them, --offset goes on, --format csv gives all")


def _summary(answer: Invocation) -> str:
    at = format_instant(answer.now) if answer.timed else str(answer.now)
    return f"the answer at {at}, as of commit {answer.commit_id}: {answer.rows.num_rows:,} rows"
