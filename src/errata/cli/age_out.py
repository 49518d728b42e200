"""`errata archive age-out`: what is past its retention, dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from errata.cli.options import given
from errata.cli.talk import say
from errata.flows.site import at_site
from errata.flows.upkeep import age_out as flow
from errata.flows.upkeep.age_out import AgedOut
from errata.model.interval import LOWEST
from errata.serve.words import counted, place


def age_out(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STREAM|QUERY",
            help="Only these; else all streams that age on schedule, and all queries with a retention.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Drop whole buckets that are past their stream's retention, or of results past that of their query.

    Rows that a query has still to read stay until it has read them.
    """
    with at_site(given(context).project) as site:
        for aged in flow.age_out(site, names or ()):
            for line in aged_lines(aged):
                say(line)


def aged_lines(aged: AgedOut) -> Iterator[str]:
    """What went, and what stayed for the sake of a query."""
    if aged.commit_id is not None:
        until = "" if aged.aged_to is None else f" up to {place(aged.aged_to - 1, aged.timed)}"
        dropped = f"{counted(len(aged.buckets), 'bucket')} with {counted(aged.rows, 'row')}"
        yield f"{aged.stream}: {dropped}{until} dropped in commit {aged.commit_id}"
    elif aged.held is None:
        yield f"{aged.stream}: nothing is past the retention"
    if aged.held is None:
        return
    query, start = aged.held.query, aged.held.start
    if query == aged.stream:
        yield f"{aged.stream}: what is past the retention stays: which values have come is known from it alone"
    elif start == LOWEST:
        yield f"{aged.stream}: what is past the retention stays: query {query} reads all of it each time"
    else:
        since = place(start, aged.timed)
        yield f"{aged.stream}: what is past the retention stays from {since} on: query {query} has still to read it"
