"""`errata results` and `errata changes`, and the printing of large results that `ask` and `archive scan` share: a
table of the first rows on a terminal, or all rows to a file or to standard output."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import pyarrow as pa
import typer

from errata.catalog import queries
from errata.cli.console import print_message, step_status
from errata.cli.options import MAX_ROWS, QueryName, check_output_file, global_options
from errata.declare.changes import drifted_queries
from errata.declare.site import Site, open_site
from errata.errors import ErrataError, UsageError
from errata.intake.encoding import csv_header, csv_lines, json_lines
from errata.read.change_records import CHANGE_COLUMNS, format_changes, last_changes, last_rows_of_tables
from errata.read.changes import ChangelogReader
from errata.read.output import (
    FrameOrTable,
    encode_blocks,
    format_first_rows,
    sort_rows,
    write_file,
    write_row_objects,
    write_rows,
)
from errata.read.results import OpenResults, PublishedAnswer, ResultsRequest, open_results
from errata.read.tables import open_console
from errata.read.wording import ExportFormat, OutputFormat

TABLE_ROWS = 50

ScanFormatOption = Annotated[
    ExportFormat, typer.Option("--format", help="How rows are given out.", case_sensitive=False)
]
OutFile = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file.")]
RowLimit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, max=MAX_ROWS, help="Only the first N rows; as a table 50 unless told."),
]


def check_format(kind: ExportFormat, out: Path | None) -> None:
    """Raise an error for a format that cannot be written to this target."""
    if kind is ExportFormat.PARQUET and out is None:
        raise UsageError("Parquet goes into files only", how="name a file with --out")
    if kind is ExportFormat.TABLE and out is not None:
        raise UsageError("a table is for looking at", how="add --format csv, json or parquet to write to a file")
    check_output_file(out)


def print_objects(some: Iterable[tuple[Mapping[str, object], FrameOrTable, Sequence[str]]], limit: int | None) -> None:
    """Print several results as JSON, one object each, with sorted rows."""
    ordered = ((head, sort_rows(rows, by, limit)) for head, rows, by in some)
    write_row_objects(ordered, sys.stdout.buffer)


def print_rows(
    rows: FrameOrTable,
    by: Sequence[str],
    kind: ExportFormat,
    out: Path | None,
    limit: int | None,
    *,
    title: str,
    check: Callable[[], None],
) -> None:
    """Print or write rows in the order of some columns. `check` is called before a written file gets its name, and
    raises an error if rows may be missing."""
    if kind is ExportFormat.TABLE:
        console = open_console(sys.stdout)
        with step_status(title):
            table, more = format_first_rows(sort_rows(rows, by, None), limit or TABLE_ROWS, console.width)
        console.print(table)
        if more:
            print_message("more rows; a greater --limit shows them, --format csv gives all")
        return
    ordered = sort_rows(rows, by, limit)
    if out is None:
        write_rows(ordered, kind, sys.stdout.buffer, limit)
        return
    with step_status(f"writing {out}"):
        write_file(ordered, kind, out, limit, check)


# `errata results`.


def results(
    context: typer.Context,
    query: QueryName,
    at: Annotated[
        str | None, typer.Option("--at", metavar="T", help="The event time; else the last that is answered.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As it was published then.")
    ] = None,
    aligned: Annotated[
        list[str] | None,
        typer.Option(
            "--aligned",
            metavar="QUERY[,…]",
            help="Read these, too, all of one state of the streams.",
        ),
    ] = None,
    kind: ScanFormatOption = ExportFormat.TABLE,
    out: OutFile = None,
    limit: RowLimit = None,
) -> None:
    """Read what has been published for a query: its answer at an event time, as known at a commit.

    Rows have the columns of the SELECT list and are sorted by them. `errata run` brings answers up to date.
    """
    check_format(kind, out)
    check_output_file(out)
    others = [name.strip() for text in aligned or () for name in text.split(",") if name.strip()]
    if others:
        _check_single_table(kind, out)
    with open_site(global_options(context).project) as site:
        with open_results(site, ResultsRequest(query, at, as_of, others)) as found:
            _report_caveats(site, found)
            if others and kind is ExportFormat.JSON:
                print_objects(
                    [(_answer_heading(found, each), each.rows, each.snapshot.columns) for each in found.answers], limit
                )
            else:
                _print_answers(found, kind, out, limit, check=found.pin.check)
        _report_answers(found, kind, out, aligned=bool(others))


def _check_single_table(kind: ExportFormat, out: Path | None) -> None:
    """Raise an error if several results are wanted in a format for one."""
    if kind in (ExportFormat.CSV, ExportFormat.PARQUET) or out is not None:
        raise UsageError(
            "the rows of several queries do not go into one file or one CSV",
            why="each query has columns of its own",
            how="use --format json, an object for each query; or read each by itself with the same --at and --as-of",
        )


def _report_caveats(site: Site, found: OpenResults) -> None:
    """Print notes that a reader should know, such as that a query has stopped."""
    for note in found.notes:
        print_message(note)
    applied = {name: each.checked for name, each in queries.recorded_queries(site.catalog).items()}
    names = [each.snapshot.archive.name for each in found.answers if each.snapshot.archive.name in applied]
    for told in drifted_queries(site.project, applied, names).values():
        print_message(told)


def _answer_heading(found: OpenResults, answer: PublishedAnswer) -> dict[str, object]:
    chosen = answer.snapshot
    return {
        "query": chosen.archive.name,
        "at": found.aligned.event_time_text,
        "commit": chosen.commit_id,
        "data_commit": chosen.evaluation.data_commit,
    }


def _print_answers(
    found: OpenResults, kind: ExportFormat, out: Path | None, limit: int | None, *, check: Callable[[], None]
) -> None:
    for number, each in enumerate(found.answers):
        name, columns = each.snapshot.archive.name, each.snapshot.columns
        if len(found.answers) > 1:
            sys.stdout.write(f"{name}\n" if number == 0 else f"\n{name}\n")
            sys.stdout.flush()
        print_rows(each.rows, columns, kind, out, limit, title=f"reading {name}", check=check)


def _report_answers(found: OpenResults, kind: ExportFormat, out: Path | None, *, aligned: bool) -> None:
    if out is None and kind is not ExportFormat.TABLE:
        return
    what = "the answers" if aligned else "the answer"
    written = f"wrote {out}, {what}" if out is not None else what
    chosen = found.aligned.snapshots
    if len(chosen) == 1:
        print_message(f"{written} at {found.aligned.event_time_text}, as of commit {chosen[0].commit_id}")
    else:
        states = max(each.evaluation.data_commit for each in chosen)
        print_message(f"{written} at {found.aligned.event_time_text}, of the streams as of commit {states}")


# `errata changes`.

MAX_SHOWN_CHANGES = 50
"""Changes that a table shows at once."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 1.0
"""Seconds between two looks for new commits; the pause grows while there are none."""

WriteChanges = Callable[[Iterator[FrameOrTable]], None]


def changes(
    context: typer.Context,
    query: QueryName,
    since: Annotated[
        str | None, typer.Option("--since", metavar="COMMIT|TIME", help="Only what later commits have changed.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as commits come, until Ctrl-C.")] = False,
    kind: Annotated[
        OutputFormat | None,
        typer.Option("--format", help="How changes are printed; JSON unless on a screen.", case_sensitive=False),
    ] = None,
) -> None:
    """Tell how a query's results have changed, in the order of commits: op, key, vs, ve, old, new, cause, commit.

    A result is told by key and vs. It lasts until its ve, or until the next result of its key begins.
    """
    kind = kind or (OutputFormat.TABLE if sys.stdout.isatty() else OutputFormat.JSON)
    write = _WRITERS[kind]
    if kind is OutputFormat.CSV:
        _write_block(csv_header(CHANGE_COLUMNS))
    with open_site(global_options(context).project) as site:
        feed = ChangelogReader(site, query, since)
        if not follow:
            feed.check_answered()
            write(each.rows for each in feed.read_new())
            return
        _report_if_unanswered(feed)
        with _until_interrupted() as interrupted:
            _follow_changes(feed, write, interrupted)


def _report_if_unanswered(feed: ChangelogReader) -> None:
    try:
        feed.check_answered()
    except ErrataError as error:
        print_message(f"{error.what}; waiting for its first results")


def _follow_changes(feed: ChangelogReader, write: WriteChanges, interrupted: Callable[[], bool]) -> None:
    pause = FIRST_PAUSE_SECONDS
    while not interrupted():
        before = feed.read_up_to
        write(each.rows for each in feed.read_new())
        if feed.ended:
            print_message(f"query {feed.query} is no longer there")
            return
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS) if feed.read_up_to == before else FIRST_PAUSE_SECONDS
        if not interrupted():
            time.sleep(pause)


@contextmanager
def _until_interrupted() -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C set a flag, so that no change is written by half; a second one interrupts."""
    came: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(came)
    finally:
        signal.signal(signal.SIGINT, before)


def _write_block(block: bytes) -> None:
    sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()


def _write_json(some: Iterator[FrameOrTable]) -> None:
    for rows in some:
        for block in encode_blocks(rows, json_lines):
            _write_block(block)


def _write_csv(some: Iterator[FrameOrTable]) -> None:
    for rows in some:
        for block in encode_blocks(rows, csv_lines):
            _write_block(block)


def _write_table(some: Iterator[FrameOrTable]) -> None:
    """Print the last changes as tables, one for each form that the query has had."""
    shown: list[pa.Table] = []
    left_out = False
    for rows in some:
        shown, more = last_rows_of_tables([*shown, last_changes(rows, MAX_SHOWN_CHANGES + 1)], MAX_SHOWN_CHANGES)
        left_out |= more
    console = open_console(sys.stdout)
    for rows in shown:
        console.print(format_changes(rows, console.width))
    if left_out:
        print_message("earlier changes are left out; --format json gives all, --since those of later commits")


_WRITERS: dict[OutputFormat, WriteChanges] = {
    OutputFormat.TABLE: _write_table,
    OutputFormat.JSON: _write_json,
    OutputFormat.CSV: _write_csv,
}
