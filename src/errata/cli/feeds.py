"""`errata feeds`: how the feeds of a stream stand, what they disagree about; attach, detach and trust them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from errata.catalog.feed_commits import attach_feed, detach_feed, trust_feed
from errata.catalog.feeds import Disagreement, DisagreementFilter
from errata.catalog.streams import stream_state
from errata.cli.console import print_message
from errata.cli.options import PrintFormat, StreamName, global_options, parse_values
from errata.declare.feed_changes import guarantee_words
from errata.declare.feeds import parse_joining
from errata.declare.site import open_site
from errata.model.stream import Stream
from errata.model.time import LOWEST, format_instant
from errata.read.feeds import (
    FeedStatus,
    MergeStatus,
    change_text,
    differing_columns,
    merge_hints,
    merge_lines,
    merge_statuses,
    quorum_hint,
    stream_disagreements,
)
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.wording import (
    OutputFormat,
    event_time_distance,
    event_time_short,
    event_time_text,
    relative_paths,
    wall_time,
)

FeedName = Annotated[str, typer.Argument(metavar="FEED", help="The feed's name.", show_default=False)]

FEED_FIELDS = (
    TableField("stream", "stream"),
    TableField("feed", "feed"),
    TableField("role", "role"),
    TableField("stable", "stable point"),
    TableField("lag", "behind"),
    TableField("heard", "last heard"),
    TableField("missing", "missing"),
    TableField("rows", "rows", right=True),
    TableField("repeats", "repeats", right=True),
    TableField("filled", "gaps filled", right=True),
    TableField("late", "late", right=True),
    TableField("refused", "refused", right=True),
    TableField("overruled", "overruled", right=True),
    TableField("landed", "landed", right=True),
    TableField("joins_at", "joins at"),
    TableField("guarantees", "guarantees", fold=True),
    TableField("commit", "commit"),
    TableField("suspect", "suspect"),
    TableField("suspect_in", "suspect_in"),
    TableField("broken", "broken"),
)
PROGRAM_FIELDS = {"commit", "suspect", "suspect_in", "broken"}
"""Columns for programs only; a person is told in words below the table."""

QUIET_FIELDS = {"missing", "late", "refused", "overruled", "landed", "joins_at"}
"""Columns that a person is shown only when they say something."""

DISAGREEMENT_FIELDS = (
    TableField("key", "key", fold=True),
    TableField("feed", "feed"),
    TableField("value", "says", fold=True),
    TableField("chosen", "counts"),
    TableField("source", "from", fold=True),
    TableField("opened_in", "since commit", right=True),
    TableField("resolved_in", "resolved in", right=True),
)
VALUE_FIELDS = tuple(
    TableField(name, name)
    for name in (
        *("stream", "key", "place", "feed", "chosen", "row", "differs", "file", "line"),
        *("policy", "opened_in", "changed_in", "resolved_in"),
    )
)


def ls(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STREAM", help="Only these; else all that have feeds.", show_default=False),
    ] = None,
    kind: PrintFormat = OutputFormat.TABLE,
) -> None:
    """Show the feeds of merged streams: who leads, how far each is stable and behind, and what became of its rows.

    Below the table it says by which algorithm they are merged and why, and what needs a person.
    """
    with open_site(global_options(context).project) as site:
        found = merge_statuses(site, names or ())
    records = [feed_record(of, each) for of in found for each in of.feeds]
    if kind is not OutputFormat.TABLE:
        print_records(FEED_FIELDS, records, (), kind, sys.stdout)
        return
    if not found:
        print_message("no stream has feeds: declare some below `feeds:` of a stream, and run `errata apply`")
        return
    rows = [feed_row(of, each) for of in found for each in of.feeds]
    shown = [field for field in FEED_FIELDS if field.name not in PROGRAM_FIELDS]
    shown = [field for field in shown if field.name not in QUIET_FIELDS or any(row[field.name] != "" for row in rows)]
    print_records(shown, records, rows, kind, sys.stdout)
    for of in found:
        for line in merge_lines(of):
            print_message(relative_paths(line))
    for line in merge_hints(found):
        print_message(relative_paths(line))


def feed_record(of: MergeStatus, each: FeedStatus) -> TableRecord:
    """A feed for programs."""
    timed, state = of.stream.timed, each.state
    return {
        "stream": of.stream.name,
        "feed": each.name,
        "role": each.role.value,
        "stable": _place_text(state.stable, timed),
        "lag": each.lag,
        "heard": None if each.last is None else format_instant(each.last.at),
        "missing": each.missing,
        "rows": state.rows,
        "repeats": state.repeats,
        "filled": state.filled,
        "late": state.behind,
        "refused": state.refused,
        "overruled": each.overruled,
        "landed": each.landed,
        "joins_at": _place_text(state.joins_at, timed),
        "guarantees": guarantee_words(each.guarantees),
        "commit": state.last_commit,
        "suspect": state.suspect_reason,
        "suspect_in": state.suspect_in,
        "broken": [dict(broken) for broken in state.broken],
    }


def _place_text(place: int, timed: bool) -> str | None:
    return None if place == LOWEST else event_time_text(place, timed)


def feed_row(of: MergeStatus, each: FeedStatus) -> TableRecord:
    """A feed for people."""
    timed, state = of.stream.timed, each.state
    joining = state.joins_at != LOWEST and (of.stable is None or state.joins_at > of.stable)
    return {
        **feed_record(of, each),
        "stable": "" if state.stable == LOWEST else event_time_short(state.stable, timed),
        "lag": "" if not each.lag else event_time_distance(each.lag, timed),
        "heard": "" if each.last is None else wall_time(each.last.at),
        "missing": "yes" if each.missing else "",
        "late": state.behind or "",
        "refused": state.refused or "",
        "overruled": each.overruled or "",
        "landed": "" if each.landed is None else each.landed,
        "joins_at": event_time_short(state.joins_at, timed) if joining else "",
        "guarantees": ", ".join(guarantee_words(each.guarantees)),
    }


def disagreements(
    context: typer.Context,
    stream: StreamName,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Only about this key: all its columns, as column=value.")
    ] = None,
    feed: Annotated[
        str | None, typer.Option("--feed", metavar="FEED", help="Only where this feed's value does not count.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those about which the feeds agree again.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")] = 100,
    kind: PrintFormat = OutputFormat.TABLE,
) -> None:
    """Show the keys about which feeds say different things: what each says and where, and whose value counts.

    A correction of the row, or of what a feed says, resolves a disagreement.
    """
    with open_site(global_options(context).project) as site:
        wanted = None if key is None else parse_values(key, "key", "symbol=IBM,at=2026-11-18T02:00:00")
        found = stream_disagreements(site, stream, DisagreementFilter(every, last=limit, feed=feed), wanted)
    records = [record for each in found.found for record in _value_records(found.stream, each)]
    if kind is not OutputFormat.TABLE:
        print_records(VALUE_FIELDS, records, (), kind, sys.stdout)
        return
    if not records:
        print_message(f"{stream}: its feeds disagree about nothing{'' if every else ' now'}")
        return
    fields = [field for field in DISAGREEMENT_FIELDS if every or field.name != "resolved_in"]
    print_records(fields, records, [row for each in found.found for row in _value_rows(each)], kind, sys.stdout)
    if len(found.found) == limit:
        print_message(f"the newest {limit}; of more tells --limit")


def _value_records(stream: Stream, each: Disagreement) -> list[TableRecord]:
    return [
        {
            "stream": stream.name,
            "key": dict(each.key),
            "place": event_time_text(each.place, stream.timed),
            "feed": said["feed"],
            "chosen": bool(said["chosen"]),
            "row": dict(said["row"]),
            "differs": differing_columns(each),
            "file": said.get("file") or None,
            "line": said.get("line") or None,
            "policy": each.policy,
            "opened_in": each.opened_in,
            "changed_in": each.changed_in,
            "resolved_in": each.resolved_in,
        }
        for said in each.values
    ]


def _value_rows(each: Disagreement) -> list[TableRecord]:
    columns = differing_columns(each)
    rows: list[TableRecord] = []
    for number, said in enumerate(each.values):
        row = said["row"]
        shown = ", ".join(f"{name}={'NULL' if row.get(name) is None else row[name]}" for name in columns)
        rows.append(
            {
                "key": "" if number else ", ".join(f"{name}={text}" for name, text in each.key.items()),
                "feed": said["feed"],
                "value": shown or "as the others",
                "chosen": each.policy if said["chosen"] else "",
                "source": relative_paths(f"{said['file']}:{said['line']}") if said.get("file") else "",
                "opened_in": "" if number else each.opened_in,
                "resolved_in": "" if number or each.resolved_in is None else each.resolved_in,
            }
        )
    return rows


def attach(
    context: typer.Context,
    stream: StreamName,
    feed: FeedName,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="From here on it has everything; else from the stable point on."),
    ] = None,
) -> None:
    """Attach a feed that was detached: it is merged again.

    It leads once the merged stream has come to where the feed begins. It may say again what it has said before.
    """
    with open_site(global_options(context).project) as site:
        timed = stream_state(site.catalog, stream).stream.timed
        starts_at = None if since is None else parse_joining(since, timed)
        commit_id = attach_feed(site.catalog, stream, feed, site.caused_by("feeds"), starts_at)
    print_message(change_text(stream, feed, "attached", commit_id))


def detach(context: typer.Context, stream: StreamName, feed: FeedName) -> None:
    """Detach a feed: nothing of it is taken in and nobody waits for it, until it is attached again.

    What it has said stays.
    """
    with open_site(global_options(context).project) as site:
        commit_id = detach_feed(site.catalog, stream, feed, site.caused_by("feeds"))
        (found,) = merge_statuses(site, [stream], folders=False)
    print_message(change_text(stream, feed, "detached", commit_id))
    for line in quorum_hint(found):
        print_message(line)


def trust(context: typer.Context, stream: StreamName, feed: FeedName) -> None:
    """Trust a feed again that has contradicted what it had said to be stable: it may lead again."""
    with open_site(global_options(context).project) as site:
        commit_id = trust_feed(site.catalog, stream, feed, site.caused_by("feeds"))
    print_message(change_text(stream, feed, "trusted", commit_id))
