"""`errata archive compact`: applies overlays to buckets, merges small buckets, and reports what was gained."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from errata.archive.upkeep import compaction as flow
from errata.archive.upkeep.compaction import CompactionReport
from errata.cli.console import print_message, step_status
from errata.cli.options import PrintFormat, global_options
from errata.declare.site import open_site
from errata.errors import count_text
from errata.model.bucket import Bucket, NewBucket
from errata.model.compaction import RewriteReason
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.wording import OutputFormat, byte_size_text

DONE_FIELDS = (
    TableField("stream", "stream"),
    TableField("commit", "commit", right=True),
    TableField("buckets", "buckets", right=True),
    TableField("into", "into", right=True),
    TableField("overlays", "overlays", right=True),
    TableField("corrections", "corrections", right=True),
    TableField("rows", "rows", right=True),
    TableField("bytes_before", "size before", right=True),
    TableField("bytes", "after", right=True),
)

PLAN_FIELDS = (
    TableField("stream", "stream"),
    TableField("why", "why"),
    TableField("buckets", "buckets", right=True),
    TableField("masked", "masked rows", right=True),
    TableField("overlays", "overlays", right=True),
    TableField("corrections", "corrections", right=True),
    TableField("rows", "rows", right=True),
    TableField("bytes", "size", right=True),
)

REASON_WORDS = {
    RewriteReason.CORRECTED: "corrections to be worked in",
    RewriteReason.SMALL: "small buckets side by side",
    RewriteReason.OVERLAPPING: "pieces of one table that overlap",
    RewriteReason.INLINE: "too much in the catalog",
}


def compact(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STREAM", help="Only these; else all.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what is hardly worth it yet.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be rewritten and why, and do nothing.")] = False,
    kind: PrintFormat = OutputFormat.TABLE,
) -> None:
    """Work corrections into the buckets that they concern, and merge small buckets, as far as it is worth it."""
    with open_site(global_options(context).project) as site, step_status("compaction") as on_step:
        found = flow.compact_streams(site, names or (), everything=everything, plan_only=plan, on_step=on_step)
    records = [record for each in found for record in (_plan_record(each) if plan else _done_record(each))]
    if records or kind is not OutputFormat.TABLE:
        print_records(
            PLAN_FIELDS if plan else DONE_FIELDS, records, [_table_row(record) for record in records], kind, sys.stdout
        )
    for line in compact_lines(found, everything=everything):
        print_message(line)


def compact_lines(found: Sequence[CompactionReport], *, everything: bool) -> Iterator[str]:
    """What was not compacted, and why, in words."""
    for each in found:
        if each.is_empty and not each.held:
            yield f"{each.stream}: nothing {'to compact' if everything else 'is due'}"
        if each.held:
            rows = count_text(sum(bucket.rows for bucket in each.held), "correction")
            yield f"{each.stream}: {rows} stay beside the buckets until all queries have taken them up"


def _done_record(each: CompactionReport) -> Iterator[TableRecord]:
    if each.is_empty:
        return
    yield {
        "stream": each.stream,
        "commit": each.commit_id,
        "buckets": len(each.replaced),
        "into": len(each.written),
        "overlays": len(each.folded),
        "corrections": _row_total(each.folded),
        "rows": _row_total(each.written),
        "bytes_before": _byte_total([*each.replaced, *each.folded]),
        "bytes": _byte_total(each.written),
    }


def _plan_record(each: CompactionReport) -> Iterator[TableRecord]:
    reasons = dict(each.reasons)
    if each.folded:
        reasons.setdefault(RewriteReason.CORRECTED, ())
    for why, buckets in reasons.items():
        overlays = each.folded if why is RewriteReason.CORRECTED else ()
        yield {
            "stream": each.stream,
            "why": REASON_WORDS[why],
            "buckets": len(buckets),
            "masked": sum(bucket.masked for bucket in buckets),
            "overlays": len(overlays),
            "corrections": _row_total(overlays),
            "rows": _row_total(buckets),
            "bytes": _byte_total([*buckets, *overlays]),
        }


def _row_total(buckets: Sequence[Bucket] | Sequence[NewBucket]) -> int:
    return sum(bucket.rows for bucket in buckets)


def _byte_total(buckets: Sequence[Bucket | NewBucket]) -> int:
    return sum(bucket.size for bucket in buckets)


def _table_row(record: TableRecord) -> TableRecord:
    sizes = {
        name: byte_size_text(value)
        for name, value in record.items()
        if name.startswith("bytes") and isinstance(value, int)
    }
    return {**record, **sizes}
