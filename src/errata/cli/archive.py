"""`errata archive ls` and `stats`: what archives hold, read from the catalog alone.

`ArchiveView` collects the buckets of a stream or of a query's results as of a commit.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from errata.catalog import buckets, commits, queries, streams
from errata.catalog.result_archives import ResultArchive, read_archives
from errata.catalog.streams import StreamState
from errata.cli.console import print_message
from errata.cli.options import OptionalStream, PrintFormat, global_options
from errata.declare.site import Site, open_site
from errata.errors import count_text, unknown_name_error
from errata.model.bucket import Bucket, Role
from errata.model.reduction import rate_text
from errata.read.status import StreamStatus, stream_statuses
from errata.read.tables import (
    STABLE_MARK,
    TableField,
    TableRecord,
    TimelineSpan,
    draw_timeline,
    open_console,
    print_records,
)
from errata.read.wording import OutputFormat, byte_size_text, event_time_short, event_time_text, short_batch_id

ANSWER_ROLES = (Role.BASE, Role.OPEN, Role.TIP)


@dataclass(frozen=True, slots=True)
class ArchiveView:
    """The buckets of an archive, and the types needed to print them."""

    commit_id: int
    buckets: Sequence[Bucket]
    timed: bool
    grouped: bool
    until: int | None = None
    until_words: str = ""

    @property
    def saying(self) -> list[Bucket]:
        """The buckets that hold the archive's rows, apart from corrections."""
        return [each for each in self.buckets if each.role in ANSWER_ROLES]


def archive_view(site: Site, name: str, as_of: str | None) -> ArchiveView:
    """The archive of a stream or query, now or as of a commit."""
    commit_id = commits.resolve_as_of(site.catalog, as_of)
    then = None if as_of is None else commit_id
    there = {each.stream.name: each for each in streams.stream_states(site.catalog, then)}
    if name in there:
        commits.check_not_vacuumed(site.catalog, commit_id, name)
        return _stream_view(site, there[name], commit_id)
    declared, answers = queries.recorded_queries(site.catalog, then), read_archives(site.catalog, then)
    if name in answers:
        commits.check_not_vacuumed(site.catalog, commit_id, name)
        return _query_view(site, answers[name], commit_id)
    if name in declared:
        return ArchiveView(commit_id, (), timed=True, grouped=False)
    raise unknown_name_error(
        "stream", name, [*there, *declared], where=None if then is None else f"as of commit {then}"
    )


def _stream_view(site: Site, standing: StreamState, commit_id: int) -> ArchiveView:
    roles = (Role.BASE, Role.OVERLAY, Role.PENDING, Role.COPY, Role.SUMMARY)
    found = _visible_buckets(site, standing.stream_id, commit_id, roles)
    stream = standing.stream
    return ArchiveView(commit_id, found, stream.timed, bool(stream.group), standing.stable, "stable point")


def _query_view(site: Site, answer: ResultArchive, commit_id: int) -> ArchiveView:
    beside = (Role.MASK, Role.PARTS, Role.LINEAGE, Role.STATE, Role.FEED)
    found = _visible_buckets(site, answer.stream_id, commit_id, (*ANSWER_ROLES, *beside))
    return ArchiveView(
        commit_id, found, answer.shape.timed, grouped=False, until=answer.frontier, until_words="answered up to"
    )


def _visible_buckets(site: Site, stream_id: int, commit_id: int, roles: Sequence[Role]) -> list[Bucket]:
    return [each for role in roles for each in buckets.visible_buckets(site.catalog, stream_id, commit_id, role=role)]


# `errata archive ls` and `stats`.

DEFAULT_WIDTH = 80
"""Width of the drawing if there is no terminal."""

BUCKET_FIELDS = (
    TableField("bucket", "bucket", right=True),
    TableField("role", "role"),
    TableField("rate", "rate", right=True),
    TableField("original", "of", right=True),
    TableField("rows", "rows", right=True),
    TableField("bytes", "size", right=True),
    TableField("from", "from"),
    TableField("to", "to"),
    TableField("groups", "groups"),
    TableField("commit", "commit", right=True),
    TableField("batch", "batch"),
    TableField("path", "where"),
)
STATS_FIELDS = (
    TableField("stream", "stream"),
    TableField("buckets", "buckets", right=True),
    TableField("inline", "inline", right=True),
    TableField("rows", "rows", right=True),
    TableField("rows_per_bucket", "rows each", right=True),
    TableField("bytes", "size", right=True),
    TableField("bytes_per_row", "bytes/row", right=True),
    TableField("from", "from"),
    TableField("to", "to"),
    TableField("superseded_buckets", "dropped", right=True),
    TableField("superseded_bytes", "dropped size", right=True),
)


def ls(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="STREAM|QUERY", help="The stream, or the query.", show_default=False)],
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As known then.", show_default=False)
    ] = None,
    kind: PrintFormat = OutputFormat.TABLE,
) -> None:
    """List the buckets of a stream, or of a query's results, in their order, and draw where the rows lie.

    Of a stream, copies are samples of base buckets, each at a rate, and summaries are windowed aggregates of theirs.

    Of a query, base buckets are of results that only a correction can change, open ones of those whose end is not
    certain, tip of those that begin at the last instant answered; mask tells which of them corrections have taken back,
    parts of what sums and counts are made up; state is what the next evaluation needs, and feed holds changes that the
    results do not tell.
    """
    with open_site(global_options(context).project) as site:
        shelf = archive_view(site, name, as_of)
    records = [_bucket_record(shelf, each) for each in shelf.buckets]
    shown = [_bucket_row(shelf, each, record) for each, record in zip(shelf.buckets, records, strict=True)]
    if kind is not OutputFormat.TABLE:
        print_records(BUCKET_FIELDS, records, shown, kind, sys.stdout)
        return
    if not shelf.buckets:
        print_message(f"{name} has no buckets as of commit {shelf.commit_id}")
        return
    quiet = {"path", "batch"} if shelf.grouped else {"path", "batch", "groups"}
    quiet |= {name for name in ("rate", "original") if not any(row[name] for row in shown)}
    fields = tuple(field for field in BUCKET_FIELDS if field.name not in quiet)
    print_records(fields, records, shown, kind, sys.stdout)
    _draw_timeline(shelf)


def stats(context: typer.Context, stream: OptionalStream = None, kind: PrintFormat = OutputFormat.TABLE) -> None:
    """Show how much the archives hold, and how it is cut."""
    with open_site(global_options(context).project) as site:
        found = stream_statuses(site, [stream] if stream else [])
    records = [_stats_record(each) for each in found]
    shown = [
        record
        | {
            "bytes": byte_size_text(each.base.bytes),
            "superseded_bytes": byte_size_text(each.superseded[1]) if each.superseded[0] else "",
            "superseded_buckets": each.superseded[0] or "",
        }
        for each, record in zip(found, records, strict=True)
    ]
    fields: Sequence[TableField] = STATS_FIELDS
    if kind is OutputFormat.TABLE:
        # A terminal lacks the room for all columns; `archive ls` draws where rows lie.
        fields = [field for field in STATS_FIELDS if field.name not in ("from", "to")]
    print_records(fields, records, shown, kind, sys.stdout)


def _draw_timeline(shelf: ArchiveView) -> None:
    stretches = [TimelineSpan(each.vs_min, each.vs_max, each.rows) for each in shelf.saying]
    if not stretches:
        return
    console = open_console(sys.stdout)
    width = min(console.width, 200) if sys.stdout.isatty() else DEFAULT_WIDTH
    low, high = min(each.low for each in stretches), max(each.high for each in stretches)
    first, last = event_time_short(low, shelf.timed), event_time_short(high, shelf.timed)
    sys.stdout.write(f"\n{draw_timeline(stretches, shelf.until, width)}\n")
    sys.stdout.write(f"{first}{last.rjust(max(1, width - len(first)))}\n")
    if shelf.until is not None:
        sys.stdout.write(f"{STABLE_MARK} {shelf.until_words} {event_time_text(shelf.until, shelf.timed)}\n")


def _bucket_record(shelf: ArchiveView, bucket: Bucket) -> TableRecord:
    groups = bucket.groups
    return {
        "bucket": bucket.bucket_id,
        "role": bucket.role.value,
        "rate": bucket.resolution.rate if bucket.role is Role.COPY else None,
        "original": bucket.original,
        "rows": bucket.rows,
        "bytes": bucket.size,
        "from": event_time_text(bucket.vs_min, shelf.timed),
        "to": event_time_text(bucket.vs_max, shelf.timed),
        "groups": sorted(map(list, groups.members), key=repr)
        if groups.members is not None
        else [groups.low, groups.high],
        "commit": bucket.added_in,
        "batch": bucket.batch_id,
        "path": bucket.path,
    }


def _bucket_row(shelf: ArchiveView, bucket: Bucket, record: TableRecord) -> TableRecord:
    return {
        **record,
        "bucket": str(bucket.bucket_id),
        "rate": rate_text(bucket.resolution.rate) if bucket.role is Role.COPY else "",
        "original": "" if bucket.original is None else str(bucket.original),
        "from": event_time_short(bucket.vs_min, shelf.timed),
        "to": event_time_short(bucket.vs_max, shelf.timed),
        "bytes": byte_size_text(bucket.size),
        "groups": _group_text(shelf, bucket),
        "batch": short_batch_id(bucket.batch_id),
        "path": bucket.path or "inline",
    }


def _group_text(shelf: ArchiveView, bucket: Bucket) -> str:
    groups = bucket.groups
    if not shelf.grouped:
        return ""
    if groups.members is None:
        return f"{groups.low} … {groups.high}" if groups.low is not None else "any"
    if len(groups.members) <= 3:
        return "; ".join(
            sorted(", ".join("NULL" if value is None else value for value in each) for each in groups.members)
        )
    return count_text(len(groups.members), "group")


def _stats_record(each: StreamStatus) -> dict[str, object]:
    base, timed = each.base, each.stream.timed
    return {
        "stream": each.stream.name,
        "buckets": base.buckets,
        "inline": base.inline,
        "rows": base.rows,
        "rows_per_bucket": base.rows // base.buckets if base.buckets else None,
        "bytes": base.bytes,
        "bytes_per_row": round(base.bytes / base.rows, 1) if base.rows else None,
        "from": event_time_text(base.vs_min, timed) or None,
        "to": event_time_text(base.vs_max, timed) or None,
        "superseded_buckets": each.superseded[0],
        "superseded_bytes": each.superseded[1],
    }
