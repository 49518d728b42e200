"""`errata log`, which lists commits, and `errata leases`, which lists who works on what and releases leases of dead
holders."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from errata.catalog import commits, streams
from errata.catalog.leases import LeaseHolder, list_holders, revoke_lease
from errata.cli.console import confirm, print_message
from errata.cli.options import MAX_ROWS, OptionalStream, PrintFormat, global_options
from errata.declare.site import open_site
from errata.errors import EXIT_FAILED, UsageError, unknown_name_error
from errata.model.commit import Commit
from errata.model.time import format_instant
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.wording import OutputFormat, commit_author, commit_summary, short_batch_id, wall_time

COMMIT_TABLE_FIELDS = (
    TableField("commit", "commit", right=True),
    TableField("at", "time (UTC)"),
    TableField("flow", "flow"),
    TableField("stream", "stream"),
    TableField("did", "what it did", fold=True),
    TableField("batch", "batch"),
    TableField("who", "by", fold=True),
)
COMMIT_RECORD_FIELDS = tuple(
    TableField(name, name)
    for name in (
        *("commit", "at", "flow", "stream", "batch", "user", "host", "dag", "run", "task", "try", "spark_app"),
        *("did", "summary"),
    )
)


def log(
    context: typer.Context,
    stream: OptionalStream = None,
    last: Annotated[
        int | None, typer.Option("--last", metavar="N", min=1, max=MAX_ROWS, help="Only the last N commits.")
    ] = None,
    kind: PrintFormat = OutputFormat.TABLE,
) -> None:
    """List commits, oldest first: when, what made them, what they did."""
    with open_site(global_options(context).project) as site:
        if stream is not None:
            streams.check_stream_known(site.catalog, stream)
        found = commits.list_commits(site.catalog, stream=stream, last=last)
    if not found:
        print_message("no commits yet")
    elif kind is OutputFormat.TABLE:
        print_records(COMMIT_TABLE_FIELDS, [], [_commit_row(each) for each in found], kind, sys.stdout)
        return
    if kind is not OutputFormat.TABLE:
        print_records(COMMIT_RECORD_FIELDS, [_commit_record(each) for each in found], [], kind, sys.stdout)


def _commit_row(commit: Commit) -> TableRecord:
    return {
        "commit": commit.commit_id,
        "at": wall_time(commit.at),
        "flow": commit.cause.flow,
        "stream": commit.stream,
        "did": commit_summary(commit),
        "batch": short_batch_id(commit.batch_id or ""),
        "who": commit_author(commit.cause),
    }


def _commit_record(commit: Commit) -> TableRecord:
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
        "did": commit_summary(commit),
        "summary": dict(commit.summary),
    }


# `errata leases`.

LEASE_FIELDS = (
    TableField("lease", "lease"),
    TableField("owner", "task", fold=True),
    TableField("process", "held by", fold=True),
    TableField("since", "since"),
    TableField("until", "until, unless renewed"),
    TableField("life", "holder"),
)

RELEASE_WORD = "release"


def leases(
    context: typer.Context,
    word: Annotated[
        str | None, typer.Argument(metavar="[release", help="Give a lease back for its holder.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME]", help="The lease's name, or the query's.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Release without asking.")] = False,
    kind: PrintFormat = OutputFormat.TABLE,
) -> int:
    """Show who is at work on which query: the task and the process, since when, and whether that process is alive.

    A lease ends by itself half a minute after its holder has died, and at once for whoever runs on the same machine.
    With `release NAME` it is given back now. A holder that is alive goes on, and works in vain where another one comes
    first; no result is wrong for it.
    """
    if word not in (None, RELEASE_WORD) or (word is None) != (name is None):
        raise UsageError(
            f"errata leases cannot {word}" if word != RELEASE_WORD else "no lease is named that is to be released",
            how="errata leases, or errata leases release NAME",
        )
    with open_site(global_options(context).project) as site:
        if name is None:
            _print_leases(list_holders(site.catalog), kind)
            return 0
        holder = _find_lease(list_holders(site.catalog), name)
        if not yes and not confirm(f"release {holder.name}, held by {holder.description} ({holder.life})?"):
            print_message("nothing was done")
            return EXIT_FAILED
        if not revoke_lease(site.catalog, holder):
            print_message(f"{holder.name}: given back meanwhile; nothing was done")
            return 0
    print_message(f"{holder.name}: released; it was held by {holder.description}")
    return 0


def _find_lease(found: Sequence[LeaseHolder], name: str) -> LeaseHolder:
    """The lease of this name, or the one on the query of this name."""
    for each in found:
        if each.name in (name, f"query {name}"):
            return each
    raise unknown_name_error("lease", name, [each.name for each in found])


def _print_leases(found: Sequence[LeaseHolder], kind: OutputFormat) -> None:
    if not found:
        print_message("no leases: nobody is at work on a query")
        if kind is OutputFormat.TABLE:
            return
    shown = [{**_lease_record(each), "since": wall_time(each.since), "until": wall_time(each.until)} for each in found]
    print_records(LEASE_FIELDS, list(map(_lease_record, found)), shown, kind, sys.stdout)


def _lease_record(each: LeaseHolder) -> TableRecord:
    return {
        "lease": each.name,
        "owner": each.owner,
        "process": each.process.description,
        "since": format_instant(each.since),
        "until": format_instant(each.until),
        "life": each.life.value,
    }
