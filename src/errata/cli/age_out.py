"""`errata archive age-out`: drops what is past its retention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from errata.archive.upkeep import ageing as flow
from errata.archive.upkeep.ageing import AgeOutReport
from errata.cli.console import print_message
from errata.cli.options import global_options
from errata.declare.site import open_site
from errata.errors import count_text
from errata.model.time import LOWEST
from errata.read.wording import event_time_text


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
    with open_site(global_options(context).project) as site:
        for aged in flow.age_out(site, names or ()):
            for line in age_out_lines(aged):
                print_message(line)


def age_out_lines(aged: AgeOutReport) -> Iterator[str]:
    """What was dropped, and what a query still has to read, in words."""
    if aged.commit_id is not None:
        until = "" if aged.aged_to is None else f" up to {event_time_text(aged.aged_to - 1, aged.timed)}"
        dropped = f"{count_text(len(aged.buckets), 'bucket')} with {count_text(aged.rows, 'row')}"
        yield f"{aged.stream}: {dropped}{until} dropped in commit {aged.commit_id}"
    elif aged.hold is None:
        yield f"{aged.stream}: nothing is past the retention"
    if aged.hold is None:
        return
    query, start = aged.hold.query, aged.hold.start
    if query == aged.stream:
        yield f"{aged.stream}: what is past the retention stays: which values have come is known from it alone"
    elif start == LOWEST:
        yield f"{aged.stream}: what is past the retention stays: query {query} reads all of it each time"
    else:
        since = event_time_text(start, aged.timed)
        yield f"{aged.stream}: what is past the retention stays from {since} on: query {query} has still to read it"
