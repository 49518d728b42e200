"""`errata archive scan`: rows of a stream's archive, as known at a commit."""

from __future__ import annotations

from typing import Annotated

import typer

from errata.archive.upkeep.ageing import age_out_if_lazy
from errata.cli.console import print_message
from errata.cli.options import StreamName, global_options, parse_values
from errata.cli.results import OutFile, RowLimit, ScanFormatOption, check_format, print_rows
from errata.declare.site import open_site
from errata.errors import UsageError, count_text
from errata.language.sampling import UNIFORM
from errata.model.reduction import parse_rate
from errata.read.sampled_scans import mark_reduced
from errata.read.stream_scan import StreamScanRequest, check_scan_interval, open_scan
from errata.read.wording import ExportFormat


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
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="RATE", help="Only a sample of this share: 10% or 0.1.")
    ] = None,
    reduction: Annotated[
        str | None,
        typer.Option("--reduce", metavar="REDUCTION", help="Only a sample, by a function: \"by_age('1 day', 0.5)\"."),
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
        _reduction(rate, reduction),
    )
    with open_site(global_options(context).project) as site:
        check_scan_interval(site.catalog, wanted)
        if age_first:
            age_out_if_lazy(site, stream)
        with open_scan(site, wanted) as answer:
            asked = answer.scan.state.stream
            by = list(dict.fromkeys([asked.order, *asked.key]))
            sample = answer.sample
            # Whoever meets a sample in a file or a pipe must see that it is one.
            marked = sample is not None and sample.reduced and kind is not ExportFormat.TABLE
            rows = mark_reduced(answer.rows, sample.label) if marked and sample is not None else answer.rows
            print_rows(rows, by, kind, out, limit, title=f"reading {asked.name}", check=answer.pin.check)
    if out is not None:
        print_message(f"wrote {out}, as of commit {answer.scan.commit_id}")
    elif kind is ExportFormat.TABLE:
        print_message(f"as of commit {answer.scan.commit_id}; {count_text(len(answer.buckets.all), 'bucket')} opened")
    if sample is not None:
        print_message(sample.words)


def _reduction(rate: str | None, reduction: str | None) -> str | None:
    """The reduction that the options ask for."""
    if rate is None:
        return reduction
    if reduction is not None:
        raise UsageError("--rate and --reduce are both given", how="--rate 10% is short for --reduce '(10 PERCENT)'")
    return f"{UNIFORM}({parse_rate(rate)!r})"
