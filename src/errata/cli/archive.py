"""`errata archive`: what archives hold, without opening them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from errata.cli.options import MaybeStream, Printed, given
from errata.cli.shelf import Shelf, shelf_of
from errata.cli.talk import say
from errata.flows.site import at_site
from errata.flows.telling.status import StreamStatus, status
from errata.model.bucket import Bucket
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
    name: Annotated[str, typer.Argument(metavar="STREAM|QUERY", help="The stream, or the query.", show_default=False)],
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As known then.", show_default=False)
    ] = None,
    kind: Printed = Format.TABLE,
) -> None:
    """List the buckets of a stream, or of a query's results, in their order, and draw where the rows lie.

    Of a query, base buckets are of results that only a correction can change, open ones of those whose end is not
    certain, tip of those that begin at the last instant answered; mask tells which of them corrections have taken back,
    parts of what sums and counts are made up; state is what the next evaluation needs, and feed holds changes that the
    results do not tell.
    """
    with at_site(given(context).project) as site:
        shelf = shelf_of(site, name, as_of)
    records = [_bucket_record(shelf, each) for each in shelf.buckets]
    shown = [_bucket_row(shelf, each, record) for each, record in zip(shelf.buckets, records, strict=True)]
    if kind is not Format.TABLE:
        print_records(BUCKETS, records, shown, kind, sys.stdout)
        return
    if not shelf.buckets:
        say(f"{name} has no buckets as of commit {shelf.commit_id}")
        return
    quiet = {"path", "batch"} if shelf.grouped else {"path", "batch", "groups"}
    fields = tuple(field for field in BUCKETS if field.name not in quiet)
    print_records(fields, records, shown, kind, sys.stdout)
    _draw(shelf)


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


def _draw(shelf: Shelf) -> None:
    stretches = [Stretch(each.vs_min, each.vs_max, each.rows) for each in shelf.saying]
    if not stretches:
        return
    console = console_on(sys.stdout)
    width = min(console.width, 200) if sys.stdout.isatty() else NO_SCREEN
    low, high = min(each.low for each in stretches), max(each.high for each in stretches)
    first, last = place_shown(low, shelf.timed), place_shown(high, shelf.timed)
    sys.stdout.write(f"\n{timeline(stretches, shelf.until, width)}\n")
    sys.stdout.write(f"{first}{last.rjust(max(1, width - len(first)))}\n")
    if shelf.until is not None:
        sys.stdout.write(f"{STABLE} {shelf.until_words} {place(shelf.until, shelf.timed)}\n")


def _bucket_record(shelf: Shelf, bucket: Bucket) -> Record:
    groups = bucket.groups
    return {
        "bucket": bucket.bucket_id,
        "role": bucket.role.value,
        "rows": bucket.rows,
        "bytes": bucket.size,
        "from": place(bucket.vs_min, shelf.timed),
        "to": place(bucket.vs_max, shelf.timed),
        "groups": sorted(map(list, groups.members), key=repr)
        if groups.members is not None
        else [groups.low, groups.high],
        "commit": bucket.added_in,
        "batch": bucket.batch_id,
        "path": bucket.path,
    }


def _bucket_row(shelf: Shelf, bucket: Bucket, record: Record) -> Record:
    return {
        **record,
        "bucket": str(bucket.bucket_id),
        "from": place_shown(bucket.vs_min, shelf.timed),
        "to": place_shown(bucket.vs_max, shelf.timed),
        "bytes": size(bucket.size),
        "groups": _groups(shelf, bucket),
        "batch": batch_name(bucket.batch_id),
        "path": bucket.path or "inline",
    }


def _groups(shelf: Shelf, bucket: Bucket) -> str:
    groups = bucket.groups
    if not shelf.grouped:
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
