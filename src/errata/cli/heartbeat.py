"""`errata heartbeat`: says up to where a feed is stable, when it has nothing to say."""

from __future__ import annotations

from typing import Annotated

import typer

from errata.archive.ingest.feed_requests import mark_stable
from errata.cli.console import print_message, step_status
from errata.cli.ingest import append_lines
from errata.cli.options import StreamName, global_options
from errata.declare.feeds import parse_joining
from errata.declare.site import open_site


def heartbeat(
    context: typer.Context,
    stream: StreamName,
    feed: Annotated[str, typer.Option("--feed", metavar="FEED", help="The feed.", show_default=False)],
    at: Annotated[
        str, typer.Option("--at", metavar="TIME", help="It says nothing more about what is before.", show_default=False)
    ],
) -> None:
    """Say that a feed is stable up to a time: it will say nothing more about what is before.

    A feed that is quiet then holds the merged stream up no longer. It is a batch like any other, without rows.
    """
    with open_site(global_options(context).project) as site:
        declared = site.declared(stream)
        with step_status(f"stable point of {feed}") as on_step:
            report = mark_stable(site, stream, feed, parse_joining(at, declared.timed), on_step)
        for line in append_lines(report, declared):
            print_message(line)
