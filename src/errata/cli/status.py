"""`errata status`: the state of streams and queries, as tables with hints, or as JSON and CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from errata.catalog.leases import LeaseHolder
from errata.cli.console import print_message
from errata.cli.options import PrintFormat, global_options
from errata.declare.site import open_site
from errata.errors import count_text
from errata.model.commit import RefusedRevisions
from errata.model.stream import RevisionPolicy
from errata.model.time import format_instant
from errata.read import status as flow
from errata.read.feeds import merge_hints, merge_record, merge_words
from errata.read.status import DeclarationState, QueryProgress, QueryStatus, StreamStatus
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.wording import OutputFormat, byte_size_text, event_time_distance, event_time_short, event_time_text


def refusal_lines(name: str, refused: Iterable[RefusedRevisions]) -> Iterator[str]:
    """Corrections that a query cannot take up, in words."""
    for each in refused:
        numbers = str(each.first) if each.first == each.last else f"{each.first} to {each.last}"
        some = f"{count_text(each.count, 'correction')} of {each.source} ({numbers})"
        yield f"{name}: {some} cannot be taken up: {each.reason}"


# Queries: their state, frontier and what their results lack.

QUERY_FIELDS = (
    TableField("query", "query"),
    TableField("reads", "reads", fold=True),
    TableField("columns", "columns", fold=True),
    TableField("pattern", "pattern"),
    TableField("state", "state"),
    TableField("answered", "answered up to"),
    TableField("as_of", "as of", right=True),
    TableField("commit", "in commit", right=True),
    TableField("commits_behind", "commits behind", right=True),
    TableField("engine", "engine", fold=True),
    TableField("engine_why", "engine_why"),
    TableField("behind", "behind"),
    TableField("pending", "pending", right=True),
    TableField("left_out", "left out", fold=True),
    TableField("deferred", "corrections", fold=True),
    TableField("refused", "refused", fold=True),
    TableField("on_revision", "on_revision"),
    TableField("waits_for", "waits for"),
    TableField("fault", "fault", fold=True),
    TableField("lease", "at work", fold=True),
    TableField("declared", "declaration"),
)
QUIET_QUERY_FIELDS = {
    *("answered", "as_of", "engine", "behind", "pending", "left_out", "deferred", "refused", "on_revision"),
    *("waits_for", "lease", "declared"),
}
"""Columns that a person is shown only when they say something."""

PROGRAM_FIELDS = {"columns", "engine_why", "commit", "commits_behind", "fault"}
"""Columns for programs only; tables say the same elsewhere or in words."""

MAX_HINTS = 5
"""Queries with the same problem that get a hint each; of more, the rest are counted."""


def print_queries(found: Sequence[QueryStatus], kind: OutputFormat, most: int | None) -> None:
    """Print the queries, all or the first `most`."""
    if not found:
        print_message("no queries: declare some in errata.yaml and run `errata apply`")
        if kind is OutputFormat.TABLE:
            return
    shown = [_query_row(each) for each in found[:most]]
    fields = QUERY_FIELDS if kind is not OutputFormat.TABLE else _informative_query_fields(shown)
    print_records(fields, [_query_record(each) for each in found], shown, kind, sys.stdout)
    if len(shown) < len(found):
        print_message(f"{count_text(len(found) - len(shown), 'more query', 'more queries')}: errata status --queries")


def query_hints(found: Sequence[QueryStatus]) -> Iterator[str]:
    """What a person can do about queries that need attention."""
    due = [each for each in found if each.due]
    if due:
        yield f"{count_text(len(due), 'query is', 'queries are')} to be evaluated: errata run"
    stopped = [each for each in found if each.stopped is not None]
    yield from (_stopped_hint(each) for each in stopped[:MAX_HINTS])
    if len(stopped) > MAX_HINTS:
        yield (
            f"{count_text(len(stopped) - MAX_HINTS, 'more query has', 'more queries have')} stopped: "
            "errata status --queries"
        )
    blocked = [each for each in found if each.blocked]
    yield from (_blocked_hint(each) for each in blocked[:MAX_HINTS])
    if len(blocked) > MAX_HINTS:
        yield (
            f"and {count_text(len(blocked) - MAX_HINTS, 'more query waits', 'more queries wait')} for "
            "others: errata leases"
        )
    short = [each for each in found if each.missing_revisions or each.deferred]
    yield from (_left_out_hint(each) for each in short[:MAX_HINTS])
    if len(short) > MAX_HINTS:
        yield (
            f"and so it is with {count_text(len(short) - MAX_HINTS, 'more query', 'more queries')}: "
            "errata status --queries"
        )
    late = [each for each in found if each.refused]
    yield from (line for each in late[:MAX_HINTS] for line in refusal_lines(each.name, each.refused))
    if len(late) > MAX_HINTS:
        yield (
            f"and of {count_text(len(late) - MAX_HINTS, 'more query', 'more queries')}: errata status "
            "--queries --format json"
        )


def _stopped_hint(each: QueryStatus) -> str:
    fault = each.stopped.fault if each.stopped is not None else None
    if fault is None:
        raise AssertionError("only of a query that has stopped")
    what = f"{fault.expression}: {fault.reason}" if fault.expression else fault.reason
    return (
        f"query {each.name} has stopped at {what.splitlines()[0].rstrip('.')}; errata run {each.name} tells what to do"
    )


def _blocked_hint(each: QueryStatus) -> str:
    if each.holder is None:
        raise AssertionError("only of a query that somebody holds")
    return (
        f"query {each.name} waits for {each.holder.description} ({each.holder.life}): errata leases release {each.name}"
    )


def _left_out_hint(each: QueryStatus) -> str:
    of = " and ".join(f"{count_text(count, 'correction')} of {name}" for name, count in each.missing_revisions.items())
    one = sum(each.missing_revisions.values()) == 1
    what = (
        f"{of} {'is' if one else 'are'} not in the answers"
        if of
        else f"{count_text(each.pending, 'correction')} pending"
    )
    if each.deferred is None:
        return f"query {each.name}: {what}: errata sweep {each.name}"
    how = "" if each.deferred.endswith("`errata sweep`") else f", or for errata sweep {each.name}"
    return f"query {each.name}: {what}; it {each.deferred}{how}"


def _query_record(each: QueryStatus) -> TableRecord:
    checked, last = each.checked, each.published.last if each.published is not None else None
    return {
        "query": each.name,
        "reads": [] if checked is None else list(checked.reads),
        "columns": {} if checked is None else {column.name: str(column.type) for column in checked.columns},
        "pattern": None if checked is None else checked.pattern.shown,
        "state": None if each.state is None else each.state.value,
        "answered": None if last is None else event_time_text(last.frontier, each.timed),
        "as_of": None if last is None else last.data_commit,
        "commit": None if last is None else last.commit_id,
        "commits_behind": each.commits,
        "engine": None if last is None else last.measures.engine,
        "engine_why": None if last is None else last.measures.engine_why,
        "behind": each.lag,
        "pending": each.pending,
        "left_out": dict(each.missing_revisions),
        "deferred": each.deferred,
        "refused": [asdict(refusal) for refusal in each.refused],
        "on_revision": None if checked is None else checked.on_revision.value,
        "waits_for": each.waits_for,
        "fault": None if each.stopped is None else each.stopped.fault.record(),
        "lease": None if each.holder is None else _lease_words(each.holder),
        "declared": each.declared.value,
    }


def _query_row(each: QueryStatus) -> TableRecord:
    checked, last = each.checked, each.published.last if each.published is not None else None
    return {
        "query": each.name,
        "reads": "" if checked is None else ", ".join(checked.reads),
        "pattern": "" if checked is None else checked.pattern.shown,
        "state": "" if each.state is None else each.state.value,
        "answered": "" if last is None else event_time_short(last.frontier, each.timed),
        "as_of": "" if last is None else last.data_commit,
        "engine": _far_reason(each),
        "behind": _lag_words(each),
        "pending": each.pending or "",
        "left_out": ", ".join(f"{count:,} of {name}" for name, count in each.missing_revisions.items()),
        "deferred": "deferred" if each.deferred else "",
        "refused": ", ".join(f"{refusal.count:,} of {refusal.source}" for refusal in each.refused),
        "on_revision": _policy_words(each),
        "waits_for": each.waits_for or "",
        "lease": "" if each.holder is None else each.holder.description,
        "declared": "" if each.declared is DeclarationState.AGREED else each.declared.value,
    }


def _lease_words(holder: LeaseHolder) -> TableRecord:
    return {
        "owner": holder.owner,
        "process": holder.process.description,
        "since": format_instant(holder.since),
        "until": format_instant(holder.until),
        "life": holder.life.value,
    }


def _far_reason(each: QueryStatus) -> str:
    """Why the far engine did the last evaluation, if it did."""
    measures = None if each.published is None else each.published.last.measures
    return "" if measures is None or measures.engine != "far" else f"far: {measures.engine_why}"


def _policy_words(each: QueryStatus) -> str:
    """The effect of corrections on the query, if it is limited."""
    if each.checked is None or each.checked.on_revision is RevisionPolicy.RESULTS:
        return ""
    return each.checked.on_revision.value


def _lag_words(each: QueryStatus) -> str:
    """How far the results are behind the streams, in commits and in event time."""
    if each.published is None or each.state is QueryProgress.CURRENT:
        return ""
    parts = [count_text(each.commits, "commit")] if each.commits else []
    return ", ".join([*parts, event_time_distance(each.lag, each.timed)] if each.lag else parts)


def _informative_query_fields(shown: Sequence[TableRecord]) -> Sequence[TableField]:
    """The fields of a table, without those that are empty."""
    fields = [field for field in QUERY_FIELDS if field.name not in PROGRAM_FIELDS]
    return [
        field for field in fields if field.name not in QUIET_QUERY_FIELDS or any(row[field.name] != "" for row in shown)
    ]


# `errata status`.

STREAM_FIELDS = (
    TableField("stream", "stream"),
    TableField("rows", "rows", right=True),
    TableField("buckets", "buckets", right=True),
    TableField("bytes", "size", right=True),
    TableField("copy_bytes", "copies", right=True),
    TableField("summary_bytes", "summaries", right=True),
    TableField("inline_bytes", "inline", right=True),
    TableField("stable", "stable point"),
    TableField("overlaid", "corrections", right=True),
    TableField("pending", "pending", right=True),
    TableField("quarantined", "quarantined", right=True),
    TableField("waiting", "landed", right=True),
    TableField("set_aside", "set aside", right=True),
    TableField("feeds", "feeds", fold=True),
    TableField("compaction_due", "compaction"),
    TableField("declared", "declaration"),
)
MAX_QUERIES = 20
"""Queries that are listed below the streams."""

QUIET_STREAM_FIELDS = {
    "copy_bytes",
    "summary_bytes",
    "overlaid",
    "waiting",
    "set_aside",
    "feeds",
    "compaction_due",
    "declared",
}
"""Columns that a person is shown only when they say something."""


def status(
    context: typer.Context,
    kind: PrintFormat = OutputFormat.TABLE,
    only_queries: Annotated[bool, typer.Option("--queries", help="Show all queries, and no streams.")] = False,
) -> None:
    """Show how the streams stand: what they hold, how far they are stable, what waits and what is due. And the queries:
    how far each is answered and how far behind that is, whether it has stopped, and what its answers do not contain.

    As JSON or CSV the streams are given out, or with --queries the queries.
    """
    with open_site(global_options(context).project) as site:
        streams = [] if only_queries else flow.stream_statuses(site)
        queries = flow.query_statuses(site) if only_queries or kind is OutputFormat.TABLE else []
    if not only_queries:
        _print_streams(streams, kind)
    if only_queries or queries:
        if streams and queries:
            sys.stdout.write("\n")
        print_queries(queries, kind, None if only_queries else MAX_QUERIES)
    for line in _status_hints(streams, queries):
        print_message(line)


def _print_streams(found: Sequence[StreamStatus], kind: OutputFormat) -> None:
    shown = [_stream_row(each) for each in found]
    if not found:
        print_message("no streams: declare some in errata.yaml and run `errata apply`")
        if kind is OutputFormat.TABLE:
            return
    fields = STREAM_FIELDS if kind is not OutputFormat.TABLE else _informative_stream_fields(STREAM_FIELDS, shown)
    print_records(fields, [_stream_record(each) for each in found], shown, kind, sys.stdout)


def _informative_stream_fields(fields: Sequence[TableField], shown: Sequence[TableRecord]) -> Sequence[TableField]:
    """The fields of a table, without those that are empty."""
    return [
        field
        for field in fields
        if field.name not in QUIET_STREAM_FIELDS or any(row[field.name] != "" for row in shown)
    ]


def _status_hints(found: Sequence[StreamStatus], queries: Sequence[QueryStatus]) -> list[str]:
    hints = []
    agreed = {*(each.declared for each in found), *(each.declared for each in queries)} <= {DeclarationState.AGREED}
    if not agreed:
        hints.append("errata.yaml and the catalog differ: errata apply")
    for each in found:
        name = each.stream.name
        if each.pending:
            hints.append(f"{count_text(each.pending, 'correction')} of {name} pending: errata sweep")
        if each.quarantined:
            hints.append(f"{count_text(each.quarantined, 'row')} of {name} in quarantine: errata quarantine ls {name}")
        if each.set_aside:
            hints.append(
                f"{count_text(each.set_aside, 'landed file')} of {name} set aside: errata quarantine ls {name}"
            )
        if each.landing_fault is not None:
            hints.append(f"what has landed of {name} cannot be looked at: {each.landing_fault}")
        if each.compaction_due:
            hints.append(f"compaction of {name} is due: errata archive compact {name}")
        if each.waiting:
            hints.append(f"{count_text(each.waiting, 'file')} of {name} landed: errata ingest {name} --landed")
    hints += merge_hints([each.merged for each in found if each.merged is not None])
    return [*hints, *query_hints(queries)]


def _stream_record(each: StreamStatus) -> TableRecord:
    return {
        "stream": each.stream.name,
        "rows": each.rows,
        "buckets": each.base.buckets,
        "bytes": each.base.bytes,
        "copy_bytes": each.copies.bytes,
        "summary_bytes": each.summaries.bytes,
        "inline_bytes": each.inline_bytes,
        "stable": event_time_text(each.stable, each.stream.timed) or None,
        "overlaid": each.overlays.rows,
        "pending": each.pending,
        "quarantined": each.quarantined,
        "waiting": each.waiting,
        "set_aside": each.set_aside,
        "feeds": None if each.merged is None else merge_record(each.merged),
        "compaction_due": each.compaction_due,
        "declared": each.declared.value,
    }


def _stream_row(each: StreamStatus) -> TableRecord:
    return {
        **_stream_record(each),
        "bytes": byte_size_text(each.base.bytes),
        "copy_bytes": byte_size_text(each.copies.bytes) if each.copies.buckets else "",
        "summary_bytes": byte_size_text(each.summaries.bytes) if each.summaries.buckets else "",
        "inline_bytes": byte_size_text(each.inline_bytes),
        "stable": event_time_short(each.stable, each.stream.timed),
        "overlaid": each.overlays.rows or "",
        "set_aside": each.set_aside or "",
        "waiting": "" if each.waiting is None else each.waiting,
        "feeds": "" if each.merged is None else merge_words(each.merged),
        "compaction_due": "due" if each.compaction_due else "",
        "declared": "" if each.declared is DeclarationState.AGREED else each.declared.value,
    }
