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
from errata.declare.project import load_project
from errata.declare.summary_words import declared_forms, summary_section
from errata.errors import ErrataError
from errata.language.explain.drawing import to_svg
from errata.language.explain.explanation import explanation_text


def explain(
    context: typer.Context,
    query: QueryArgument = None,
    sql: SqlOption = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the plan, too.")] = None,
) -> None:
    """Explain a query: its plan before and after rewriting, how results come and go, and where they come from.

    Nothing is run. The query is one that errata.yaml declares, or any text of the language. Of a summary it tells what
    corrections rebuild.
    """
    check_output_file(svg)
    project = load_project(global_options(context).project)
    forms = declared_forms(project)
    said = select_query(query, sql, [*project.queries, *forms])
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
