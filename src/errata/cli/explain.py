"""`errata explain`: a query's plan, and everything that is known from it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from errata.cli.console import print_message
from errata.cli.options import (
    QueryArgument,
    QuerySelection,
    SqlOption,
    check_output_file,
    global_options,
    select_query,
)
from errata.declare.explanation import evaluation_section, explain_query
from errata.declare.project import Project, load_project
from errata.declare.summary_words import declared_forms, summary_section
from errata.errors import ErrataError, UsageError
from errata.language.explain.drawing import to_svg
from errata.language.explain.explanation import explanation_text
from errata.model.stream import Stream


def explain(
    context: typer.Context,
    query: QueryArgument = None,
    sql: SqlOption = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the plan, too.")] = None,
) -> None:
    """Explain a query: its plan before and after rewriting, how results come and go, and where they come from.

    Nothing is run. The query is one that errata.yaml declares, or any text of the language. Of a summary it tells what
    corrections rebuild; of a stream with feeds, by which algorithm and policy they are merged, and why.
    """
    check_output_file(svg)
    project = load_project(global_options(context).project)
    merged = {name.lower(): each for name, each in project.streams.items() if not each.merged.is_empty}
    if sql is None and query is not None and query.lower() in merged:
        _explain_stream(project, merged[query.lower()], svg)
        return
    forms = declared_forms(project)
    said = select_query(query, sql, [*project.queries, *forms, *(each.name for each in merged.values())])
    if (summary := next((name for name in forms if name.lower() == (said.name or "").lower()), None)) is not None:
        said = QuerySelection(text=" ".join(("SELECT * FROM", f"`{summary}`")), where=f"summary {summary}")
    explanation = explain_query(project, said.name, said.text, said.where)
    sections = summary_section(explanation, forms) or evaluation_section(explanation)
    sys.stdout.write(explanation_text(explanation) + sections)
    if svg is not None:
        try:
            svg.write_text(to_svg(explanation), encoding="utf-8")
        except OSError as error:
            raise ErrataError(f"cannot write {svg}: {error.strerror}", how="name a file that can be written") from None
        print_message(f"drew {svg}")


def _explain_stream(project: Project, stream: Stream, svg: Path | None) -> None:
    if svg is not None:
        what = f"the merge of {stream.name} has no plan that could be drawn"
        raise UsageError(what, why="feeds are merged by one algorithm", how="leave --svg out")
    from errata.read.feed_explanation import explain_feeds  # noqa: PLC0415 - for streams with feeds alone

    sys.stdout.write(explain_feeds(project, stream))
