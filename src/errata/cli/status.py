"""`errata status`: how everything stands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from errata.cli.options import Printed, given
from errata.cli.status_queries import print_queries, query_hints
from errata.cli.talk import say
from errata.flows.site import at_site
from errata.flows.telling import status as flow
from errata.flows.telling.status import Declared, QueryStatus, StreamStatus
from errata.serve.formats import Field, Format, Record, print_records
from errata.serve.words import counted, place, place_shown, size

FIELDS = (
    Field("stream", "stream"),
    Field("rows", "rows", right=True),
    Field("buckets", "buckets", right=True),
    Field("bytes", "size", right=True),
    Field("inline_bytes", "inline", right=True),
    Field("stable", "stable point"),
    Field("overlaid", "corrections", right=True),
    Field("pending", "pending", right=True),
    Field("quarantined", "quarantined", right=True),
    Field("waiting", "landed", right=True),
    Field("set_aside", "set aside", right=True),
    Field("compaction_due", "compaction"),
    Field("declared", "declaration"),
)
SHOWN = 20
"""So many queries are shown beside the streams."""

QUIET = {"overlaid", "waiting", "set_aside", "compaction_due", "declared"}
"""Columns that a person is shown only when they say something."""


def status(
    context: typer.Context,
    kind: Printed = Format.TABLE,
    only_queries: Annotated[bool, typer.Option("--queries", help="Show all queries, and no streams.")] = False,
) -> None:
    """Show how the streams stand: what they hold, how far they are stable, what waits and what is due. And the queries:
    how far each is answered and how far behind that is, whether it has stopped, and what its answers do not contain.

    As JSON or CSV the streams are given out, or with --queries the queries.
    """
    with at_site(given(context).project) as site:
        streams = [] if only_queries else flow.status(site)
        queries = flow.query_status(site) if only_queries or kind is Format.TABLE else []
    if not only_queries:
        _print_streams(streams, kind)
    if only_queries or queries:
        if streams and queries:
            sys.stdout.write("\n")
        print_queries(queries, kind, None if only_queries else SHOWN)
    for line in _hints(streams, queries):
        say(line)


def _print_streams(found: Sequence[StreamStatus], kind: Format) -> None:
    shown = [_row(each) for each in found]
    if not found:
        say("no streams: declare some in errata.yaml and run `errata apply`")
        if kind is Format.TABLE:
            return
    fields = FIELDS if kind is not Format.TABLE else _telling(FIELDS, shown)
    print_records(fields, [_record(each) for each in found], shown, kind, sys.stdout)


def _telling(fields: Sequence[Field], shown: Sequence[Record]) -> Sequence[Field]:
    """The fields without those that say nothing."""
    return [field for field in fields if field.name not in QUIET or any(row[field.name] != "" for row in shown)]


def _hints(found: Sequence[StreamStatus], queries: Sequence[QueryStatus]) -> list[str]:
    hints = []
    agreed = {*(each.declared for each in found), *(each.declared for each in queries)} <= {Declared.AGREED}
    if not agreed:
        hints.append("errata.yaml and the catalog differ: errata apply")
    for each in found:
        name = each.stream.name
        if each.pending:
            hints.append(f"{counted(each.pending, 'correction')} of {name} pending: errata sweep")
        if each.quarantined:
            hints.append(f"{counted(each.quarantined, 'row')} of {name} in quarantine: errata quarantine ls {name}")
        if each.set_aside:
            hints.append(f"{counted(each.set_aside, 'landed file')} of {name} set aside: errata quarantine ls {name}")
        if each.landing_fault is not None:
            hints.append(f"what has landed of {name} cannot be looked at: {each.landing_fault}")
        if each.compaction_due:
            hints.append(f"compaction of {name} is due: errata archive compact {name}")
        if each.waiting:
            hints.append(f"{counted(each.waiting, 'file')} of {name} landed: errata ingest {name} --landed")
    return [*hints, *query_hints(queries)]


def _record(each: StreamStatus) -> Record:
    return {
        "stream": each.stream.name,
        "rows": each.rows,
        "buckets": each.base.buckets,
        "bytes": each.base.bytes,
        "inline_bytes": each.inline_bytes,
        "stable": place(each.stable, each.stream.timed) or None,
        "overlaid": each.overlays.rows,
        "pending": each.pending,
        "quarantined": each.quarantined,
        "waiting": each.waiting,
        "set_aside": each.set_aside,
        "compaction_due": each.compaction_due,
        "declared": each.declared.value,
    }


def _row(each: StreamStatus) -> Record:
    return {
        **_record(each),
        "bytes": size(each.base.bytes),
        "inline_bytes": size(each.inline_bytes),
        "stable": place_shown(each.stable, each.stream.timed),
        "overlaid": each.overlays.rows or "",
        "set_aside": each.set_aside or "",
        "waiting": "" if each.waiting is None else each.waiting,
        "compaction_due": "due" if each.compaction_due else "",
        "declared": "" if each.declared is Declared.AGREED else each.declared.value,
    }
