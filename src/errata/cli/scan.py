"""`errata archive scan`: rows of a stream's archive, as known at a commit."""

from __future__ import annotations

from typing import Annotated

import typer

from errata.archive.upkeep.ageing import age_out_if_lazy
from errata.cli.console import print_message
from errata.cli.options import StreamName, global_options, parse_values
from errata.cli.results import OutFile, RowLimit, ScanFormatOption, check_format, print_rows
from errata.declare.site import open_site
from errata.read.stream_scan import StreamScanRequest, check_scan_interval, open_scan
from errata.read.tables import ExportFormat
from errata.read.wording import count_text


def scan(
    context: typer.Context,
    stream: StreamName,
    start: Annotated[str | None, typer.Option("--from", metavar="T", help="The first place that counts.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="T", help="The first place that no longer does.")] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="COLUMN=VALUE[,…]", help="Only this group; may be given again."),
    ] = None,
    as_of: Annotated[str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As known then.")] = None,
    kind: ScanFormatOption = ExportFormat.TABLE,
    out: OutFile = None,
    limit: RowLimit = None,
    revisions: Annotated[
        int | None,
        typer.Option("--revisions", metavar="N", min=0, help="With the corrections up to this number only."),
    ] = None,
    age_first: Annotated[
        bool, typer.Option("--age-first", help="Age the stream first if it ages lazily, as a correction would.")
    ] = False,
) -> None:
    """Read rows with from <= place < to, sorted by order field and key.

    Places are times such as 2026-11-18T02:00:00, in UTC, or whole numbers, as the stream is ordered.
    """
    check_format(kind, out)
    wanted = StreamScanRequest(
        stream,
        start,
        end,
        as_of,
        [parse_values(text, "group", "--group symbol=IBM") for text in group or ()],
        revisions,
    )
    with open_site(global_options(context).project) as site:
        check_scan_interval(site.catalog, wanted)
        if age_first:
            age_out_if_lazy(site, stream)
        with open_scan(site, wanted) as answer:
            asked = answer.scan.state.stream
            by = list(dict.fromkeys([asked.order, *asked.key]))
            print_rows(answer.rows, by, kind, out, limit, title=f"reading {asked.name}", check=answer.pin.check)
    if out is not None:
        print_message(f"wrote {out}, as of commit {answer.scan.commit_id}")
    elif kind is ExportFormat.TABLE:
        print_message(f"as of commit {answer.scan.commit_id}; {count_text(len(answer.buckets.all), 'bucket')} opened")
