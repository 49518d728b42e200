"""`errata log`: the commits."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from errata.catalog import commits, streams
from errata.cli.options import MOST_ROWS, MaybeStream, Printed, given
from errata.cli.talk import say
from errata.flows.site import at_site
from errata.model.commit import Commit
from errata.model.instants import format_instant
from errata.serve.formats import Field, Format, Record, print_records
from errata.serve.words import batch_name, deed, moment, who

SHOWN = (
    Field("commit", "commit", right=True),
    Field("at", "time (UTC)"),
    Field("flow", "flow"),
    Field("stream", "stream"),
    Field("did", "what it did", fold=True),
    Field("batch", "batch"),
    Field("who", "by", fold=True),
)
FIELDS = tuple(
    Field(name, name)
    for name in (
        *("commit", "at", "flow", "stream", "batch", "user", "host", "dag", "run", "task", "try", "spark_app"),
        *("did", "summary"),
    )
)


def log(
    context: typer.Context,
    stream: MaybeStream = None,
    last: Annotated[
        int | None, typer.Option("--last", metavar="N", min=1, max=MOST_ROWS, help="Only the last N commits.")
    ] = None,
    kind: Printed = Format.TABLE,
) -> None:
    """List commits, oldest first: when, what made them, what they did."""
    with at_site(given(context).project) as site:
        if stream is not None:
            streams.check_known(site.catalog, stream)
        found = commits.listed(site.catalog, stream=stream, last=last)
    if not found:
        say("no commits yet")
    elif kind is Format.TABLE:
        print_records(SHOWN, [], [_row(each) for each in found], kind, sys.stdout)
        return
    if kind is not Format.TABLE:
        print_records(FIELDS, [_record(each) for each in found], [], kind, sys.stdout)


def _row(commit: Commit) -> Record:
    return {
        "commit": commit.commit_id,
        "at": moment(commit.at),
        "flow": commit.cause.flow,
        "stream": commit.stream,
        "did": deed(commit),
        "batch": batch_name(commit.batch_id or ""),
        "who": who(commit.cause),
    }


def _record(commit: Commit) -> Record:
    cause = commit.cause
    return {
        "commit": commit.commit_id,
        "at": format_instant(commit.at),
        "flow": cause.flow,
        "stream": commit.stream,
        "batch": commit.batch_id,
        "user": cause.user,
        "host": cause.host,
        "dag": cause.dag_id,
        "run": cause.run_id,
        "task": cause.task_id,
        "try": cause.try_number,
        "spark_app": cause.spark_app,
        "did": deed(commit),
        "summary": dict(commit.summary),
    }
