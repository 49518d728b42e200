"""`errata why`: the provenance of a result."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from errata.cli.console import print_message, step_status
from errata.cli.options import PrintFormat, QueryName, global_options, parse_values
from errata.declare.site import open_site
from errata.read.provenance_output import provenance_json, provenance_text, value_history_json
from errata.read.tables import TableField, print_records
from errata.read.why import explain_result as story_of
from errata.read.wording import OutputFormat

KEY_EXAMPLE = "symbol=IBM,window_start=2026-11-18T02:00:00"

WHY_FIELDS = tuple(
    TableField(name, name)
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
            help=f"The key, or enough of it: {KEY_EXAMPLE}; empty is NULL.",
            show_default=False,
        ),
    ] = "",
    at: Annotated[
        str | None, typer.Option("--at", metavar="T", help="An event time at which the result counts.")
    ] = None,
    kind: PrintFormat = OutputFormat.TABLE,
) -> None:
    """Tell a result's story: every value that it has had, when, and because of what; and the rows behind it.

    Rows and values are marked: + has come, - is gone, ~ has changed. `errata changes` lists the changes of all results.
    """
    wanted = parse_values(key, "key", KEY_EXAMPLE) if key else {}
    with open_site(global_options(context).project) as site, step_status(f"story of {query}"):
        story = story_of(site, query, wanted, at)
    if kind is OutputFormat.TABLE:
        sys.stdout.write(provenance_text(story))
    elif kind is OutputFormat.JSON:
        sys.stdout.write(json.dumps(provenance_json(story), ensure_ascii=False, separators=(",", ":")) + "\n")
    else:
        print_records(WHY_FIELDS, value_history_json(story), [], kind, sys.stdout)
    if kind is not OutputFormat.JSON:
        for note in story.notes:
            print_message(note)
