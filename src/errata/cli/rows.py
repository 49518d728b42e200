"""Rows of a DataFrame given out as a person wants them: as a table to look at, or whole, to a file or the output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from errata.cli.options import MOST_ROWS, check_place
from errata.cli.talk import say, steps
from errata.errors import UsageError
from errata.serve.formats import ScanFormat, console_on
from errata.serve.rows import Rows, first_rows, in_order, write_file, write_objects, write_rows

SHOWN = 50

Kind = Annotated[ScanFormat, typer.Option("--format", help="How rows are given out.", case_sensitive=False)]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file.")]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", metavar="N", min=1, max=MOST_ROWS, help="Only the first N rows; as a table 50 unless told."
    ),
]


def check_format(kind: ScanFormat, out: Path | None) -> None:
    """Refuse a format that cannot go where it is to go."""
    if kind is ScanFormat.PARQUET and out is None:
        raise UsageError("Parquet goes into files only", how="name a file with --out")
    if kind is ScanFormat.TABLE and out is not None:
        raise UsageError("a table is for looking at", how="add --format csv, json or parquet to write to a file")
    check_place(out)


def give_objects(some: Iterable[tuple[Mapping[str, object], Rows, Sequence[str]]], limit: int | None) -> None:
    """Give several kinds of rows out as JSON, each in the order of some columns: an object for each kind."""
    ordered = ((head, in_order(rows, by, limit)) for head, rows, by in some)
    write_objects(ordered, sys.stdout.buffer)


def give_out(
    rows: Rows,
    by: Sequence[str],
    kind: ScanFormat,
    out: Path | None,
    limit: int | None,
    *,
    title: str,
    check: Callable[[], None],
) -> None:
    """Give the rows out in the order of some columns. `check` tells, when a file is written, whether all was there."""
    if kind is ScanFormat.TABLE:
        console = console_on(sys.stdout)
        with steps(title):
            table, more = first_rows(in_order(rows, by, None), limit or SHOWN, console.width)
        console.print(table)
        if more:
            say("more rows; a greater --limit shows them, --format csv gives all")
        return
    ordered = in_order(rows, by, limit)
    if out is None:
        write_rows(ordered, kind, sys.stdout.buffer, limit)
        return
    with steps(f"writing {out}"):
        write_file(ordered, kind, out, limit, check)
