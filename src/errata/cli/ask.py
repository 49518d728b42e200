"""`errata ask`: what a query says at a moment, over all that the archives hold."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from errata.catalog import queries
from errata.cli.options import check_place, given
from errata.cli.question import QueryGiven, SqlGiven, meant
from errata.cli.rows import Kind, Limit, Out, check_format, give_out
from errata.cli.talk import say
from errata.errors import ErrataError, UsageError
from errata.flows.declaring.drift import drifted
from errata.flows.site import Site, at_site
from errata.flows.telling.ask import Asked, Question, answering
from errata.serve.formats import ScanFormat

_EVERY_ROW = "SELECT * FROM "


def ask(
    context: typer.Context,
    query: QueryGiven = None,
    sql: SqlGiven = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="T", help="The event time; else the stable point of what it reads."),
    ] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As known then, by the query as it is now.")
    ] = None,
    kind: Kind = ScanFormat.TABLE,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Answer a query once: what it says at an event time, over its inputs as known at a commit.

    Rows are sorted by their columns. The query is one that has been applied, or any text of the language.
    """
    check_format(kind, out)
    check_place(out)
    with at_site(given(context).project) as site:
        question = _question(site, query, sql, at, as_of)
        with answering(site, question) as answer:
            asked = answer.asked
            _tell_drift(site, question, asked)
            title = f"answering {question.name or 'the query'}"
            give_out(answer.rows, asked.columns, kind, out, limit, title=title, check=answer.pin.check)
    _report(asked, f"wrote {out}, the answer" if out is not None else "the answer", kind, to_file=out is not None)


def _question(site: Site, query: str | None, sql: str | None, at: str | None, as_of: str | None) -> Question:
    applied = queries.recorded(site.catalog)
    names = {*applied, *site.project.queries}
    if query is not None and sql is None:
        _refuse_stream(site, query, names)
    said = meant(query, sql, names)
    if said.name is not None and said.name.lower() not in {name.lower() for name in applied}:
        raise ErrataError(f"query {said.name} is not in the catalog yet", how="run `errata apply` first")
    return Question(said.name, said.text, said.where, at, as_of)


def _refuse_stream(site: Site, said: str, queries_there: Collection[str]) -> None:
    """Whoever names a stream is told how its rows are read."""
    stream = next((each for name, each in site.project.streams.items() if name.lower() == said.lower()), None)
    if stream is None or said.lower() in {name.lower() for name in queries_there} or Path(said).is_file():
        return
    scan = f"`errata archive scan {stream.name}` reads its rows"
    asked = f", `errata ask --sql '{_EVERY_ROW}{stream.name}'` answers over them"
    raise UsageError(
        f"{stream.name} is a {stream.noun}, and no query", how=scan + ("" if stream.relation is not None else asked)
    )


def _tell_drift(site: Site, question: Question, asked: Asked) -> None:
    """Say which of the queries that are answered are declared otherwise by now."""
    applied = {name: each.checked for name, each in queries.recorded(site.catalog).items()}
    own = (question.name or "").lower()
    names = [name for name in applied if name.lower() == own or name in asked.inner]
    for told in drifted(site.project, applied, names).values():
        say(told)


def _report(asked: Asked, what: str, kind: ScanFormat, *, to_file: bool) -> None:
    if to_file or kind is ScanFormat.TABLE:
        say(f"{what} at {asked.moment}, as of commit {asked.commit_id}")
    if asked.aged:
        say(asked.left_over)
