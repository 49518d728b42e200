"""`errata archive`: what archives hold, without opening them, and their ageing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from errata.catalog import buckets, commits, streams
from errata.catalog.streams import Standing
from errata.cli.options import MaybeStream, Printed, StreamName, given
from errata.cli.talk import say
from errata.flows import age_out as ageing
from errata.flows.age_out import AgedOut
from errata.flows.site import Site, at_site
from errata.flows.status import StreamStatus, status
from errata.model.bucket import Bucket, Role
from errata.model.stream import Stream
from errata.serve.formats import Field, Format, Record, console_on, print_records
from errata.serve.timeline import STABLE, Stretch, timeline
from errata.serve.words import batch_name, counted, place, place_shown, size

NO_SCREEN = 80
"""The width of the drawing where there is no screen."""

BUCKETS = (
    Field("bucket", "bucket", right=True),
    Field("role", "role"),
    Field("rows", "rows", right=True),
    Field("bytes", "size", right=True),
    Field("from", "from"),
    Field("to", "to"),
    Field("groups", "groups"),
    Field("commit", "commit", right=True),
    Field("batch", "batch"),
    Field("path", "where"),
)
STATS = (
    Field("stream", "stream"),
    Field("buckets", "buckets", right=True),
    Field("inline", "inline", right=True),
    Field("rows", "rows", right=True),
    Field("rows_per_bucket", "rows each", right=True),
    Field("bytes", "size", right=True),
    Field("bytes_per_row", "bytes/row", right=True),
    Field("from", "from"),
    Field("to", "to"),
    Field("superseded_buckets", "dropped", right=True),
    Field("superseded_bytes", "dropped size", right=True),
)


def ls(
    context: typer.Context,
    stream: StreamName,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As known then.", show_default=False)
    ] = None,
    kind: Printed = Format.TABLE,
) -> None:
    """List the buckets of a stream in stream order, and draw where its rows lie."""
    with at_site(given(context).project) as site:
        commit_id, standing, found = _visible(site, stream, as_of)
    records = [_bucket_record(standing.stream, each) for each in found]
    shown = [_bucket_row(standing.stream, each, record) for each, record in zip(found, records, strict=True)]
    if kind is not Format.TABLE:
        print_records(BUCKETS, records, shown, kind, sys.stdout)
        return
    if not found:
        say(f"{stream} has no buckets as of commit {commit_id}")
        return
    fields = tuple(field for field in BUCKETS if field.name not in ("path", "batch"))
    print_records(fields, records, shown, kind, sys.stdout)
    _draw(standing, found)


def stats(context: typer.Context, stream: MaybeStream = None, kind: Printed = Format.TABLE) -> None:
    """Show how much the archives hold, and how it is cut."""
    with at_site(given(context).project) as site:
        found = status(site, [stream] if stream else [])
    records = [_stats_record(each) for each in found]
    shown = [
        record
        | {
            "bytes": size(each.base.bytes),
            "superseded_bytes": size(each.superseded[1]) if each.superseded[0] else "",
            "superseded_buckets": each.superseded[0] or "",
        }
        for each, record in zip(found, records, strict=True)
    ]
    fields: Sequence[Field] = STATS
    if kind is Format.TABLE:
        # A screen has no room for everything: where rows lie is what `archive ls` draws.
        fields = [field for field in STATS if field.name not in ("from", "to")]
    print_records(fields, records, shown, kind, sys.stdout)


def age_out(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STREAM", help="Only these; else all that age on schedule.", show_default=False),
    ] = None,
) -> None:
    """Drop whole buckets that are past their stream's retention."""
    with at_site(given(context).project) as site:
        for aged in ageing.age_out(site, names or ()):
            say(_aged(aged, site))


def _aged(aged: AgedOut, site: Site) -> str:
    if aged.commit_id is None:
        return f"{aged.stream}: nothing is past the retention"
    stream = streams.standing(site.catalog, aged.stream).stream
    until = place(None if aged.aged_to is None else aged.aged_to - 1, stream.timed)
    dropped = f"{counted(len(aged.buckets), 'bucket')} with {counted(aged.rows, 'row')}"
    return f"{aged.stream}: {dropped} up to {until} dropped in commit {aged.commit_id}"


def _visible(site: Site, stream: str, as_of: str | None) -> tuple[int, Standing, list[Bucket]]:
    commit_id = commits.find(site.catalog, as_of)
    standing = streams.standing(site.catalog, stream, None if as_of is None else commit_id)
    commits.check_whole(site.catalog, commit_id, stream)
    found = [
        bucket
        for role in (Role.BASE, Role.OVERLAY, Role.PENDING)
        for bucket in buckets.visible(site.catalog, standing.stream_id, commit_id, role=role)
    ]
    return commit_id, standing, found


def _draw(standing: Standing, found: Sequence[Bucket]) -> None:
    stream = standing.stream
    stretches = [Stretch(each.vs_min, each.vs_max, each.rows) for each in found if each.role is Role.BASE]
    if not stretches:
        return
    console = console_on(sys.stdout)
    width = min(console.width, 200) if sys.stdout.isatty() else NO_SCREEN
    low, high = min(each.low for each in stretches), max(each.high for each in stretches)
    first, last = place_shown(low, stream.timed), place_shown(high, stream.timed)
    sys.stdout.write(f"\n{timeline(stretches, standing.stable, width)}\n")
    sys.stdout.write(f"{first}{last.rjust(max(1, width - len(first)))}\n")
    if standing.stable is not None:
        sys.stdout.write(f"{STABLE} stable point {place(standing.stable, stream.timed)}\n")


def _bucket_record(stream: Stream, bucket: Bucket) -> Record:
    groups = bucket.groups
    return {
        "bucket": bucket.bucket_id,
        "role": bucket.role.value,
        "rows": bucket.rows,
        "bytes": bucket.size,
        "from": place(bucket.vs_min, stream.timed),
        "to": place(bucket.vs_max, stream.timed),
        "groups": sorted(map(list, groups.members), key=repr)
        if groups.members is not None
        else [groups.low, groups.high],
        "commit": bucket.added_in,
        "batch": bucket.batch_id,
        "path": bucket.path,
    }


def _bucket_row(stream: Stream, bucket: Bucket, record: Record) -> Record:
    return {
        **record,
        "bucket": str(bucket.bucket_id),
        "from": place_shown(bucket.vs_min, stream.timed),
        "to": place_shown(bucket.vs_max, stream.timed),
        "bytes": size(bucket.size),
        "groups": _groups(stream, bucket),
        "batch": batch_name(bucket.batch_id),
        "path": bucket.path or "inline",
    }


def _groups(stream: Stream, bucket: Bucket) -> str:
    groups = bucket.groups
    if not stream.group:
        return ""
    if groups.members is None:
        return f"{groups.low} … {groups.high}" if groups.low is not None else "any"
    if len(groups.members) <= 3:
        return "; ".join(
            sorted(", ".join("NULL" if value is None else value for value in each) for each in groups.members)
        )
    return counted(len(groups.members), "group")


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
        "from": place(base.vs_min, timed) or None,
        "to": place(base.vs_max, timed) or None,
        "superseded_buckets": each.superseded[0],
        "superseded_bytes": each.superseded[1],
    }
