"""`errata archive copies`: the smaller versions of archives, where they lie, who asked for what, and what vacuum did
last and would do next. The catalog alone is read.

    originals      ████████████████████
    copies at 50%  ████████▄
    copies at 10%  ████                     each line is the axis of the stream, from its first place to its last
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from errata.cli.console import print_message
from errata.cli.options import PrintFormat, global_options
from errata.declare.site import open_site
from errata.errors import count_text
from errata.model.reduction import rate_text
from errata.model.reduction_request import ReductionRequest
from errata.model.time import format_instant
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.vacuum_wording import copy_lines, purge_line
from errata.read.wording import OutputFormat, byte_size_text, commit_summary, event_time_text
from errata.reduce.overview import ORIGINALS, ReductionOverview, VersionSize, reduction_overviews

DRAWING_CELLS = 48
"""Width of the drawing of where versions lie."""

VERSION_FIELDS = (
    TableField("stream", "stream"),
    TableField("version", "version"),
    TableField("rate", "rate", right=True),
    TableField("buckets", "buckets", right=True),
    TableField("rows", "rows", right=True),
    TableField("bytes", "size", right=True),
    TableField("share", "of originals", right=True),
    TableField("from", "from"),
    TableField("to", "to"),
)

REQUEST_FIELDS = (
    TableField("stream", "stream"),
    TableField("asked", "asked for"),
    TableField("readers", "since vacuum", right=True),
    TableField("all_readers", "readers", right=True),
    TableField("from_copies", "read of copies", right=True),
    TableField("from_originals", "of originals", right=True),
    TableField("user", "last by"),
    TableField("at", "at"),
)


def show_copies(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STREAM", help="Only these; else all with smaller versions.", show_default=False),
    ] = None,
    kind: PrintFormat = OutputFormat.TABLE,
) -> None:
    """Show which smaller versions of archives there are, who asked for which rates, and what vacuum did and would do.

    JSON has one object for each stream, with all of it; CSV has the versions.
    """
    with open_site(global_options(context).project) as site:
        found = reduction_overviews(site, names or ())
    if kind is OutputFormat.JSON:
        print_records((), [_overview_record(each) for each in found], (), kind, sys.stdout)
        return
    records = [record for each in found for record in _version_records(each)]
    if kind is not OutputFormat.TABLE:
        print_records(VERSION_FIELDS, records, (), kind, sys.stdout)
        return
    if not found:
        print_message("no stream has smaller versions, declares some, or was asked for some")
        return
    print_records(VERSION_FIELDS, records, [_version_row(record) for record in records], kind, sys.stdout)
    asked = [(each, request) for each in found for request in each.asked_by_label]
    if asked:
        rows = [_request_record(*each) for each in asked]
        sys.stdout.write("\n")
        print_records(REQUEST_FIELDS, rows, [_request_row(row) for row in rows], kind, sys.stdout)
    for each in found:
        for line in (*_drawing(each), *_work_lines(each)):
            sys.stdout.write(f"{line}\n")


def _version_name(version: VersionSize) -> str:
    if version.kind == ORIGINALS or version.rate is None:
        return version.kind
    return f"{version.kind} at {rate_text(version.rate)}"


def _version_records(of: ReductionOverview) -> Iterator[TableRecord]:
    whole = sum(each.bytes for each in of.versions if each.kind == ORIGINALS)
    timed = of.state.stream.timed
    for each in of.versions:
        yield {
            "stream": of.state.stream.name,
            "version": each.kind,
            "rate": each.rate,
            "buckets": each.buckets,
            "rows": each.rows,
            "bytes": each.bytes,
            "share": round(each.bytes / whole, 4) if whole else None,
            "from": event_time_text(min(low for low, _ in each.spans), timed),
            "to": event_time_text(max(high for _, high in each.spans), timed),
        }


def _version_row(record: TableRecord) -> TableRecord:
    rate, share = record["rate"], record["share"]
    return {
        **record,
        "rate": rate_text(rate) if isinstance(rate, float) else "",
        "bytes": byte_size_text(_number(record["bytes"])),
        "share": f"{share:.1%}" if isinstance(share, float) else "",
    }


def _request_record(of: ReductionOverview, request: ReductionRequest) -> TableRecord:
    return {
        "stream": of.state.stream.name,
        "asked": request.asked.label,
        "method": request.asked.method.value,
        "readers": request.readers,
        "all_readers": request.all_readers,
        "from_copies": request.from_copies,
        "from_originals": request.from_originals,
        "user": request.user,
        "at": format_instant(request.asked_at),
    }


def _request_row(record: TableRecord) -> TableRecord:
    sizes = {name: byte_size_text(_number(record[name])) for name in ("from_copies", "from_originals")}
    return {**record, **sizes}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _overview_record(of: ReductionOverview) -> TableRecord:
    return {
        "stream": of.state.stream.name,
        "versions": [dict(each) for each in _version_records(of)],
        "asked": [dict(_request_record(of, each)) for each in of.asked_by_label],
        "last": None if of.last is None else {"commit": of.last.commit_id, "at": format_instant(of.last.at)},
        "next": [
            {
                "reason": each.reason.value,
                "does": "drop" if each.dropped else "build",
                "rate": each.rate,
                "copies": each.copies,
                "bytes": each.bytes,
            }
            for each in of.next_copies.changes
        ],
        "next_purge": event_time_text(of.next_purge.purged_to, of.state.stream.timed) or None,
    }


def _drawing(of: ReductionOverview) -> Iterator[str]:
    """Where each version lies, on one axis."""
    spans = [span for each in of.versions for span in each.spans]
    if not spans:
        return
    low, high = min(start for start, _ in spans), max(end for _, end in spans)
    names = [_version_name(each) for each in of.versions]
    yield f"\n{of.state.stream.name}: where each version lies"
    for name, each in zip(names, of.versions, strict=True):
        yield f"{name.ljust(max(map(len, names)))}  {draw_coverage(each.spans, low, high, DRAWING_CELLS)}".rstrip()


def draw_coverage(spans: Sequence[tuple[int, int]], low: int, high: int, width: int) -> str:
    """A line of blocks: full where spans cover a cell of the axis, but for small gaps between buckets, and low where
    they cover a part of it."""
    length = high + 1 - low
    covered = [0] * width
    reached = low
    for start, last in sorted(spans):
        # In units of 1/width of the axis, so that a cell is as long as the axis and the sums stay whole.
        begins, ends = (max(start, reached) - low) * width, (last + 1 - low) * width
        for cell in range(begins // length, (ends - 1) // length + 1) if ends > begins else ():
            covered[cell] += min(ends, (cell + 1) * length) - max(begins, cell * length)
        reached = max(reached, last + 1)
    return "".join("█" if each * 20 >= length * 19 else "▄" if each else " " for each in covered)


def _work_lines(of: ReductionOverview) -> Iterator[str]:
    name = of.state.stream.name
    if of.last is not None:
        last = f"commit {of.last.commit_id}, {format_instant(of.last.at)}"
        yield f"{name}: vacuum last worked in {last}: {commit_summary(of.last)}"
    planned = list(copy_lines(of.next_copies, plan=True))
    if of.next_purge.purged_to is not None:
        planned.append(purge_line(of.next_purge, plan=True))
    yield from planned or [f"{name}: the next vacuum has nothing to do for its copies"]
    if reads := of.next_copies.bytes_read:
        copies = count_text(sum(of.next_copies.built.values()), "copy", "copies")
        yield f"{name}: it would read {byte_size_text(reads)} for {copies}"
