"""`errata explain`: what a query does, and all that its plan tells."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from errata.cli.options import check_place, given
from errata.cli.question import QueryGiven, SqlGiven, meant
from errata.cli.talk import say
from errata.declare.project import load_project
from errata.errors import ErrataError
from errata.flows.declaring.explain import evaluated, explained
from errata.language.explaining.draw import to_svg
from errata.language.explaining.explain import to_text


def explain(
    context: typer.Context,
    query: QueryGiven = None,
    sql: SqlGiven = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the plan, too.")] = None,
) -> None:
    """Explain a query: its plan before and after rewriting, how results come and go, and where they come from.

    Nothing is run. The query is one that errata.yaml declares, or any text of the language.
    """
    check_place(svg)
    project = load_project(given(context).project)
    said = meant(query, sql, project.queries)
    explanation = explained(project, said.name, said.text, said.where)
    sys.stdout.write(to_text(explanation) + evaluated(explanation))
    if svg is not None:
        try:
            svg.write_text(to_svg(explanation), encoding="utf-8")
        except OSError as error:
            raise ErrataError(f"cannot write {svg}: {error.strerror}", how="name a file that can be written") from None
        say(f"drew {svg}")
