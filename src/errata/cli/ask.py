"""`errata ask`: what a query says at a moment, over all that the archives hold."""

from __future__ import annotations

from typing import Annotated

import typer

from errata.catalog import queries
from errata.cli.options import given
from errata.cli.question import QueryGiven, SqlGiven, meant
from errata.cli.rows import Kind, Limit, Out, check_format, give_out
from errata.cli.talk import say
from errata.errors import ErrataError
from errata.flows.ask import Asked, Question, answering
from errata.flows.site import Site, at_site
from errata.serve.formats import ScanFormat


def ask(
    context: typer.Context,
    query: QueryGiven = None,
    sql: SqlGiven = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="T", help="The event time; else the last one that is certain."),
    ] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As known then.")] = None,
    kind: Kind = ScanFormat.TABLE,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Answer a query once: what it says at an event time, over its inputs as known at a commit.

    Rows are sorted by their columns. The query is one that has been applied, or any text of the language.
    """
    check_format(kind, out)
    with at_site(given(context).project) as site:
        question = _question(site, query, sql, at, as_of)
        with answering(site, question) as answer:
            asked = answer.asked
            title = f"answering {question.name or 'the query'}"
            give_out(answer.rows, asked.columns, kind, out, limit, title=title, check=answer.pin.check)
    _report(asked, f"wrote {out}, the answer" if out is not None else "the answer", kind, to_file=out is not None)


def _question(site: Site, query: str | None, sql: str | None, at: str | None, as_of: str | None) -> Question:
    applied = queries.recorded(site.catalog)
    said = meant(query, sql, {*applied, *site.project.queries})
    if said.name is not None and said.name.lower() not in {name.lower() for name in applied}:
        raise ErrataError(f"query {said.name} is not in the catalog yet", how="run `errata apply` first")
    return Question(said.name, said.text, said.where, at, as_of)


def _report(asked: Asked, what: str, kind: ScanFormat, *, to_file: bool) -> None:
    if to_file or kind is ScanFormat.TABLE:
        say(f"{what} at {asked.moment}, as of commit {asked.commit_id}")
    if asked.aged:
        say(asked.left_over)
