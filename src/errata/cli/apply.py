"""`errata apply`: shows the plan of changes and carries it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from errata.cli.console import confirm, print_message
from errata.cli.options import global_options
from errata.declare import apply as flow
from errata.declare.apply import ApplyPlan
from errata.declare.changes import QueryChanges, StreamCreation, describe_reduction
from errata.declare.feed_changes import describe_feeds
from errata.declare.project import load_project
from errata.declare.queries import QueryFile
from errata.errors import EXIT_FAILED, count_text
from errata.model.query import CheckedQuery

MAX_LISTED = 20
"""Queries of each kind of change that are listed one by one."""


def apply(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="NAME", help="Give up a stream that is no longer declared, with its rows."),
    ] = None,
) -> int:
    """Make the catalog agree with errata.yaml.

    Shows what would be created, changed or dropped, asks, and does it in one commit. What would lose data is refused.
    """
    names = drop or []
    planned = flow.plan_apply(load_project(global_options(context).project), names)
    planned.changes.check()
    if planned.nothing:
        print_message("nothing to do: the catalog agrees with what is declared")
        return 0
    for line in apply_plan_lines(planned):
        print_message(line)
    if not yes and not confirm("do this?"):
        print_message("nothing was done")
        return EXIT_FAILED
    commit_id = flow.apply_plan(planned, names)
    print_message(f"done in commit {commit_id}" if commit_id else "done")
    return 0


def apply_plan_lines(planned: ApplyPlan) -> Iterator[str]:
    """The plan in words."""
    if planned.tables is not None:
        yield f"+ make or bring up to date the catalog {planned.tables}"
    for create in planned.changes.creates:
        yield from _new_stream_lines(create)
    for change in planned.changes.changes:
        yield f"~ change {change.after.noun} {change.after.name}"
        yield from (f"    {detail}" for detail in change.details)
    for gone in planned.changes.drops:
        yield f"- drop {gone.noun} {gone.name} with {count_text(gone.rows, 'row')}"
    yield from _query_lines(planned.query_changes, planned.project.queries)


def _query_lines(changes: QueryChanges, files: Mapping[str, QueryFile]) -> Iterator[str]:
    """The planned changes of queries; of many, the first few of each kind."""
    for query in changes.creates[:MAX_LISTED]:
        yield from _new_query_lines(query, files[query.name])
    yield from _remaining_line("+", "create", len(changes.creates))
    for change in changes.changes[:MAX_LISTED]:
        yield f"~ change query {change.after.name}"
        yield from (f"    {detail}" for detail in change.details)
    yield from _remaining_line("~", "change", len(changes.changes))
    yield from (f"- drop query {name}" for name in changes.drops[:MAX_LISTED])
    yield from _remaining_line("-", "drop", len(changes.drops))


def _remaining_line(sign: str, verb: str, count: int) -> Iterator[str]:
    if count > MAX_LISTED:
        yield f"{sign} {verb} {count_text(count - MAX_LISTED, 'more query', 'more queries')}"


def _new_query_lines(query: CheckedQuery, file: QueryFile) -> Iterator[str]:
    yield f"+ create query {query.name} of {', '.join(query.reads)}"
    yield f"    columns {', '.join(f'{column.name} {column.type}' for column in query.columns)}"
    key = f"key {', '.join(query.key)}" if query.key else "one result at a time"
    emit = f", emit {query.query.emit}" if "emit" in file.lines else ""
    yield f"    {key}, pattern {query.pattern.shown}, on_revision {query.on_revision}{emit}"
    if query.query.retention is not None:
        yield f"    kept: {query.query.retention_text}"


def _new_stream_lines(create: StreamCreation) -> Iterator[str]:
    stream = create.stream
    yield f"+ create {stream.noun} {stream.name}"
    yield f"    columns {', '.join(f'{column.name} {column.type}' for column in stream.columns)}"
    ordered = "the time of arrival" if stream.ordered_on_arrival else stream.order
    grouped = f", grouped by {', '.join(stream.group)}" if stream.group else ""
    if stream.relation is not None:
        gone = f", gone where {stream.deleted}" if stream.deleted else ""
        yield f"    key {', '.join(stream.relation_key)}, {stream.relation}, valid from {ordered}{gone}{grouped}"
        return
    yield f"    key {', '.join(stream.key)}, ordered by {ordered}{grouped}"
    retention = stream.retention
    if retention is None:
        yield "    kept for ever"
    else:
        kept = count_text(retention.rows, "row") if retention.rows else stream.span_text(retention.span or 0)
        behind = " behind the stable point" if retention.span else ""
        yield f"    kept: {kept}{behind}"
    yield from (f"    {line}" for line in (*describe_feeds(stream), *describe_reduction(stream)))
