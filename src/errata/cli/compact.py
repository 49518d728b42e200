"""`errata archive compact`: corrections worked into the buckets, small buckets merged, and what was gained."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from errata.cli.options import Printed, given
from errata.cli.talk import say, steps
from errata.flows.site import at_site
from errata.flows.upkeep import compact as flow
from errata.flows.upkeep.compact import CompactReport
from errata.model.bucket import Bucket, NewBucket
from errata.model.compaction import Why
from errata.serve.formats import Field, Format, Record, print_records
from errata.serve.words import counted, size

DONE = (
    Field("stream", "stream"),
    Field("commit", "commit", right=True),
    Field("buckets", "buckets", right=True),
    Field("into", "into", right=True),
    Field("overlays", "overlays", right=True),
    Field("corrections", "corrections", right=True),
    Field("rows", "rows", right=True),
    Field("bytes_before", "size before", right=True),
    Field("bytes", "after", right=True),
)

PLANNED = (
    Field("stream", "stream"),
    Field("why", "why"),
    Field("buckets", "buckets", right=True),
    Field("masked", "masked rows", right=True),
    Field("overlays", "overlays", right=True),
    Field("corrections", "corrections", right=True),
    Field("rows", "rows", right=True),
    Field("bytes", "size", right=True),
)

WORDS = {
    Why.CORRECTED: "corrections to be worked in",
    Why.SMALL: "small buckets side by side",
    Why.OVERLAPPING: "pieces of one table that overlap",
    Why.INLINE: "too much in the catalog",
}


def compact(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STREAM", help="Only these; else all.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what is hardly worth it yet.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be rewritten and why, and do nothing.")] = False,
    kind: Printed = Format.TABLE,
) -> None:
    """Work corrections into the buckets that they concern, and merge small buckets, as far as it is worth it."""
    with at_site(given(context).project) as site, steps("compaction") as on_step:
        found = flow.compact(site, names or (), everything=everything, plan_only=plan, on_step=on_step)
    records = [record for each in found for record in (_planned(each) if plan else _done(each))]
    if records or kind is not Format.TABLE:
        print_records(PLANNED if plan else DONE, records, [_shown(record) for record in records], kind, sys.stdout)
    for line in report_lines(found, everything=everything):
        say(line)


def report_lines(found: Sequence[CompactReport], *, everything: bool) -> Iterator[str]:
    """What was not done, and why, in words."""
    for each in found:
        if each.nothing and not each.held:
            yield f"{each.stream}: nothing {'to compact' if everything else 'is due'}"
        if each.held:
            rows = counted(sum(bucket.rows for bucket in each.held), "correction")
            yield f"{each.stream}: {rows} stay beside the buckets until all queries have taken them up"


def _done(each: CompactReport) -> Iterator[Record]:
    if each.nothing:
        return
    yield {
        "stream": each.stream,
        "commit": each.commit_id,
        "buckets": len(each.replaced),
        "into": len(each.written),
        "overlays": len(each.folded),
        "corrections": _rows(each.folded),
        "rows": _rows(each.written),
        "bytes_before": _bytes([*each.replaced, *each.folded]),
        "bytes": _bytes(each.written),
    }


def _planned(each: CompactReport) -> Iterator[Record]:
    reasons = dict(each.reasons)
    if each.folded:
        reasons.setdefault(Why.CORRECTED, ())
    for why, buckets in reasons.items():
        overlays = each.folded if why is Why.CORRECTED else ()
        yield {
            "stream": each.stream,
            "why": WORDS[why],
            "buckets": len(buckets),
            "masked": sum(bucket.masked for bucket in buckets),
            "overlays": len(overlays),
            "corrections": _rows(overlays),
            "rows": _rows(buckets),
            "bytes": _bytes([*buckets, *overlays]),
        }


def _rows(buckets: Sequence[Bucket] | Sequence[NewBucket]) -> int:
    return sum(bucket.rows for bucket in buckets)


def _bytes(buckets: Sequence[Bucket | NewBucket]) -> int:
    return sum(bucket.size for bucket in buckets)


def _shown(record: Record) -> Record:
    sizes = {name: size(value) for name, value in record.items() if name.startswith("bytes") and isinstance(value, int)}
    return {**record, **sizes}
