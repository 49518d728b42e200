"""`errata ask`: answers a query once, over the archives as of any commit."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from errata.catalog import queries
from errata.cli.console import print_message
from errata.cli.options import (
    QueryArgument,
    SqlOption,
    check_output_file,
    global_options,
    select_query,
)
from errata.cli.results import OutFile, RowLimit, ScanFormatOption, check_format, print_rows
from errata.declare.changes import drifted_queries
from errata.declare.site import Site, open_site
from errata.errors import ErrataError, UsageError
from errata.read.ask import AnswerPlan, BoundQuery, OneTimeQuery, open_answer
from errata.read.sampled_scans import mark_reduced
from errata.read.wording import ExportFormat

_EVERY_ROW = "SELECT * FROM "


def ask(
    context: typer.Context,
    query: QueryArgument = None,
    sql: SqlOption = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="T", help="The event time; else the stable point of what it reads."),
    ] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As known then, by the query as it is now.")
    ] = None,
    kind: ScanFormatOption = ExportFormat.TABLE,
    out: OutFile = None,
    limit: RowLimit = None,
    with_error: Annotated[
        bool, typer.Option("--with-error", help="Columns <name>_low and <name>_high: 95% intervals of estimates.")
    ] = False,
) -> None:
    """Answer a query once: what it says at an event time, over its inputs as known at a commit.

    Rows are sorted by their columns. The query is one that has been applied, or any text of the language, in which
    streams may be sampled: FROM quotes TABLESAMPLE (10 PERCENT). Counts, sums and averages are then estimates.
    """
    check_format(kind, out)
    check_output_file(out)
    with open_site(global_options(context).project) as site:
        question = replace(_build_question(site, query, sql, at, as_of), with_error=with_error)
        with open_answer(site, question) as answer:
            plan = answer.plan
            _report_drift(site, question, plan.asked)
            title = f"answering {question.name or 'the query'}"
            # Whoever meets a reduced answer in a file or a pipe must see that it is one.
            marked = plan.reduced is not None and kind is not ExportFormat.TABLE
            rows = mark_reduced(answer.rows, plan.reduced or "") if marked else answer.rows
            print_rows(rows, plan.columns, kind, out, limit, title=title, check=answer.pin.check)
    what = f"wrote {out}, the answer" if out is not None else "the answer"
    _report_answer(plan, what, spoken=out is not None or kind is ExportFormat.TABLE)


def _build_question(site: Site, query: str | None, sql: str | None, at: str | None, as_of: str | None) -> OneTimeQuery:
    applied = queries.recorded_queries(site.catalog)
    names = {*applied, *site.project.queries, *_summary_names(site)}
    if query is not None and sql is None:
        _stream_mistake(site, query, names)
    said = select_query(query, sql, names)
    readable = {name.lower() for name in (*applied, *_summary_names(site))}
    if said.name is not None and said.name.lower() not in readable:
        raise ErrataError(f"query {said.name} is not in the catalog yet", how="run `errata apply` first")
    return OneTimeQuery(said.name, said.text, said.where, at, as_of)


def _summary_names(site: Site) -> list[str]:
    """The summaries of the project's streams."""
    return [each.name for stream in site.project.streams.values() for each in stream.reduced.summaries]


def _stream_mistake(site: Site, said: str, queries_there: Collection[str]) -> None:
    """If a stream is named instead of a query, raise an error that says how to read its rows."""
    stream = next((each for name, each in site.project.streams.items() if name.lower() == said.lower()), None)
    if stream is None or said.lower() in {name.lower() for name in queries_there} or Path(said).is_file():
        return
    scan = f"`errata archive scan {stream.name}` reads its rows"
    asked = f", `errata ask --sql '{_EVERY_ROW}{stream.name}'` answers over them"
    raise UsageError(
        f"{stream.name} is a {stream.noun}, and no query", how=scan + ("" if stream.relation is not None else asked)
    )


def _report_drift(site: Site, question: OneTimeQuery, asked: BoundQuery) -> None:
    """Say which of the queries read are declared differently by now."""
    applied = {name: each.checked for name, each in queries.recorded_queries(site.catalog).items()}
    own = (question.name or "").lower()
    names = [name for name in applied if name.lower() == own or name in asked.inner]
    for told in drifted_queries(site.project, applied, names).values():
        print_message(told)


def _report_answer(plan: AnswerPlan, what: str, *, spoken: bool) -> None:
    if spoken:
        print_message(f"{what} at {plan.asked.event_time_text}, as of commit {plan.asked.commit_id}")
    for each in plan.remarks if spoken or plan.reduced is not None else ():
        print_message(each)
    if plan.asked.aged_sources:
        print_message(plan.asked.aged_out_warning)
