"""`errata apply`: the plan of changes, and its execution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from errata.cli.options import given
from errata.cli.talk import confirm, say
from errata.declare.differences import Create
from errata.declare.project import load_project
from errata.declare.queries import QueryFile
from errata.declare.query_changes import QueryChanges
from errata.errors import EXIT_FAILED
from errata.flows.declaring import apply as flow
from errata.flows.declaring.apply import ApplyPlan
from errata.model.query import CheckedQuery
from errata.serve.words import counted

SHOWN = 20
"""So many queries of a kind are shown one by one."""


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
    planned = flow.plan(load_project(given(context).project), names)
    planned.changes.check()
    if planned.nothing:
        say("nothing to do: the catalog agrees with what is declared")
        return 0
    for line in plan_lines(planned):
        say(line)
    if not yes and not confirm("do this?"):
        say("nothing was done")
        return EXIT_FAILED
    commit_id = flow.apply(planned, names)
    say(f"done in commit {commit_id}" if commit_id else "done")
    return 0


def plan_lines(planned: ApplyPlan) -> Iterator[str]:
    """The plan in words."""
    if planned.tables is not None:
        yield f"+ make or bring up to date the catalog {planned.tables}"
    for create in planned.changes.creates:
        yield from _creation(create)
    for change in planned.changes.changes:
        yield f"~ change {change.after.noun} {change.after.name}"
        yield from (f"    {detail}" for detail in change.details)
    for gone in planned.changes.drops:
        yield f"- drop {gone.noun} {gone.name} with {counted(gone.rows, 'row')}"
    yield from _query_lines(planned.query_changes, planned.project.queries)


def _query_lines(changes: QueryChanges, files: Mapping[str, QueryFile]) -> Iterator[str]:
    """What is planned of queries; of thousands, the first few of each kind."""
    for query in changes.creates[:SHOWN]:
        yield from _query_creation(query, files[query.name])
    yield from _more("+", "create", len(changes.creates))
    for change in changes.changes[:SHOWN]:
        yield f"~ change query {change.after.name}"
        yield from (f"    {detail}" for detail in change.details)
    yield from _more("~", "change", len(changes.changes))
    yield from (f"- drop query {name}" for name in changes.drops[:SHOWN])
    yield from _more("-", "drop", len(changes.drops))


def _more(sign: str, verb: str, count: int) -> Iterator[str]:
    if count > SHOWN:
        yield f"{sign} {verb} {counted(count - SHOWN, 'more query', 'more queries')}"


def _query_creation(query: CheckedQuery, file: QueryFile) -> Iterator[str]:
    yield f"+ create query {query.name} of {', '.join(query.reads)}"
    yield f"    columns {', '.join(f'{column.name} {column.type}' for column in query.columns)}"
    key = f"key {', '.join(query.key)}" if query.key else "one result at a time"
    emit = f", emit {query.query.emit}" if "emit" in file.lines else ""
    yield f"    {key}, pattern {query.pattern.shown}, on_revision {query.on_revision}{emit}"
    if query.query.retention is not None:
        yield f"    kept: {query.query.retention_text}"


def _creation(create: Create) -> Iterator[str]:
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
        kept = counted(retention.rows, "row") if retention.rows else stream.span_text(retention.span or 0)
        behind = " behind the stable point" if retention.span else ""
        yield f"    kept: {kept}{behind}"
