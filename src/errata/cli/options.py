"""Arguments and options that several commands share, and the parsing of their values."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from errata.cli.main import GlobalOptions
from errata.declare.files import MAX_NAME_BYTES, MAX_QUERY_BYTES, is_file, is_folder, read_text_stream
from errata.declare.queries import read_sql_file
from errata.errors import ErrataError, UsageError, candidates_text
from errata.read.wording import OutputFormat

PrintFormat = Annotated[OutputFormat, typer.Option("--format", help="How rows are printed.", case_sensitive=False)]
StreamName = Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.", show_default=False)]
QueryName = Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.", show_default=False)]
OptionalStream = Annotated[str | None, typer.Argument(metavar="STREAM", help="Only this stream.", show_default=False)]


MAX_ROWS = 2**31 - 2
"""Largest value of --limit: Spark counts rows in 32 bits, and one row more is read to tell whether there are more."""


def global_options(context: typer.Context) -> GlobalOptions:
    """Options given before the command's name."""
    found = context.obj
    return found if isinstance(found, GlobalOptions) else GlobalOptions()


def check_output_file(file: Path | None) -> None:
    """Raise an error for a file that cannot be written, before any work is done for it."""
    if file is None:
        return
    with_mark = f"_{file.name}.tmp"  # as it is called until it is complete
    if "\0" in str(file) or len(os.fsencode(with_mark)) > MAX_NAME_BYTES:
        why = f"a name has no NUL and {MAX_NAME_BYTES} bytes at most"
        raise UsageError("the file to write cannot have this name", why=why, how="name another file")
    if not is_folder(file.parent):
        raise ErrataError(f"cannot write {file}: there is no folder {file.parent}", how="make it, or name another file")


# Columns and their values in one argument: 'symbol=IBM,venue=NYSE'.

_NEXT_NAME = re.compile(r",(?=\s*[A-Za-z_][A-Za-z0-9_.]*=)")


def parse_values(text: str, what: str, example: str) -> dict[str, str]:
    """The values by column. A value may contain commas that are not followed by another `name=`."""
    values: dict[str, str] = {}
    for part in _NEXT_NAME.split(text):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"{text!r} names no {what}", how=f"write {example}")
        if name in values:
            raise UsageError(f"{text!r} names {name} twice", how=f"write {example}")
        values[name] = value
    return values


# A query argument: a name, a file of SQL, or standard input.

QueryArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[QUERY|FILE|-]", help="A query's name, a file of SQL, or - for the input.", show_default=False
    ),
]
SqlOption = Annotated[str | None, typer.Option("--sql", metavar="TEXT", help="The query itself.")]


@dataclass(frozen=True, slots=True)
class QuerySelection:
    """A query by its name, or a text and its name in error messages."""

    name: str | None = None
    text: str = ""
    where: str = "the query"


def select_query(query: str | None, sql: str | None, names: Collection[str]) -> QuerySelection:
    """The query that the arguments mean; `names` are the known queries."""
    if (query is None) == (sql is None):
        what = "no query is named" if query is None else "a query is named and written out, too"
        raise UsageError(what, how="give its name, a file of SQL or - for the input; or --sql 'SELECT …'")
    if sql is not None:
        return QuerySelection(text=sql, where="--sql")
    said = query or ""
    if said == "-":
        return QuerySelection(text=_read_stdin(), where="the input")
    if said.lower() in {name.lower() for name in names}:
        return QuerySelection(said)
    path = Path(said)
    if is_file(path):
        return QuerySelection(text=read_sql_file(path), where=said)
    if " " in said.strip():
        raise UsageError(f"{said!r} is neither a query's name nor a file", how="write a text behind --sql")
    raise UsageError(f"{said!r} is neither a query's name nor a file", how=candidates_text(said, names))


def _read_stdin() -> str:
    return read_text_stream(sys.stdin, "the input", MAX_QUERY_BYTES)
