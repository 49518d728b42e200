"""`errata why`: an answer's story."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from errata.cli.named import named_values
from errata.cli.options import Printed, QueryName, given
from errata.cli.talk import say, steps
from errata.flows.site import at_site
from errata.flows.telling.why import why as story_of
from errata.serve.formats import Field, Format, print_records
from errata.serve.story_record import as_record, value_records
from errata.serve.story_words import in_paragraphs

EXAMPLE = "symbol=IBM,window_start=2026-11-18T02:00:00"

FIELDS = tuple(
    Field(name, name)
    for name in (
        *("values", "vs", "ve", "commit", "committed", "flow", "user", "host", "dag", "run", "task", "try"),
        *("cut", "causes", "more_causes"),
    )
)


def why(
    context: typer.Context,
    query: QueryName,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help=f"The key, or enough of it: {EXAMPLE}; empty is NULL.",
            show_default=False,
        ),
    ] = "",
    at: Annotated[
        str | None, typer.Option("--at", metavar="T", help="An event time at which the result counts.")
    ] = None,
    kind: Printed = Format.TABLE,
) -> None:
    """Tell a result's story: every value that it has had, when, and because of what; and the rows behind it.

    Rows and values are marked: + has come, - is gone, ~ has changed. `errata changes` lists the changes of all results.
    """
    wanted = named_values(key, "key", EXAMPLE) if key else {}
    with at_site(given(context).project) as site, steps(f"story of {query}"):
        story = story_of(site, query, wanted, at)
    if kind is Format.TABLE:
        sys.stdout.write(in_paragraphs(story))
    elif kind is Format.JSON:
        sys.stdout.write(json.dumps(as_record(story), ensure_ascii=False, separators=(",", ":")) + "\n")
    else:
        print_records(FIELDS, value_records(story), [], kind, sys.stdout)
    if kind is not Format.JSON:
        for note in story.notes:
            say(note)
