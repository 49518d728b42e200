"""Which query a person means: one by name, or a text in a file, on the input, or on the command line."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from errata.declare.queries import read_sql
from errata.declare.text_files import QUERY_BYTES, is_file, read_stream_within
from errata.errors import UsageError, candidates

QueryGiven = Annotated[
    str | None,
    typer.Argument(
        metavar="[QUERY|FILE|-]", help="A query's name, a file of SQL, or - for the input.", show_default=False
    ),
]
SqlGiven = Annotated[str | None, typer.Option("--sql", metavar="TEXT", help="The query itself.")]


@dataclass(frozen=True, slots=True)
class Meant:
    """A query by its name, or a text and what it is called in mistakes."""

    name: str | None = None
    text: str = ""
    where: str = "the query"


def meant(query: str | None, sql: str | None, names: Collection[str]) -> Meant:
    """What was said on the command line; `names` are the queries there are."""
    if (query is None) == (sql is None):
        what = "no query is named" if query is None else "a query is named and written out, too"
        raise UsageError(what, how="give its name, a file of SQL or - for the input; or --sql 'SELECT …'")
    if sql is not None:
        return Meant(text=sql, where="--sql")
    said = query or ""
    if said == "-":
        return Meant(text=_from_input(), where="the input")
    if said.lower() in {name.lower() for name in names}:
        return Meant(said)
    path = Path(said)
    if is_file(path):
        return Meant(text=read_sql(path), where=said)
    if " " in said.strip():
        raise UsageError(f"{said!r} is neither a query's name nor a file", how="write a text behind --sql")
    raise UsageError(f"{said!r} is neither a query's name nor a file", how=candidates(said, names))


def _from_input() -> str:
    return read_stream_within(sys.stdin, "the input", QUERY_BYTES)
