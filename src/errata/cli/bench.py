"""`errata generate`, which writes made-up feeds, and `errata bench`, which runs the benchmarks of a checkout."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import errata
from errata.cli.console import print_message, progress_bar
from errata.errors import ErrataError, count_text, unknown_name_error
from errata.generate.faults import RevisionKind
from errata.generate.feed_files import write_feeds
from errata.generate.feeds import EventSpec, FeedFaults, event_table, physical_feed
from errata.generate.quotes import DEFAULT_START, GeneratedFeed, QuoteSpec, generate_quotes
from errata.model.batch import FileFormat
from errata.model.feed import MAX_FEEDS
from errata.model.time import format_instant, parse_duration, parse_instant


def quotes(
    rows: Annotated[int, typer.Option("--rows", max=10**11, help="Quotes to write, besides corrections and mistakes.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write to.")] = Path("feed"),
    revisions: Annotated[
        str, typer.Option("--revisions", metavar="NONE|LOW|MOD|HIGH", help="How often a quote is corrected later.")
    ] = "NONE",
    kind: Annotated[
        FileFormat, typer.Option("--format", help="The files' format.", case_sensitive=False)
    ] = FileFormat.CSV,
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress the files.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, other quotes.")] = 1,
    symbols: Annotated[int, typer.Option("--symbols", help="Stocks; each reports every second.")] = 200,
    start: Annotated[str, typer.Option("--start", metavar="TIME", help="The first second.")] = format_instant(
        DEFAULT_START
    ),
    rows_per_file: Annotated[int, typer.Option("--rows-per-file", help="Quotes in a file.")] = 1_000_000,
    disorder: Annotated[float, typer.Option("--disorder", help="The share of rows that are overtaken.")] = 0.0,
    disorder_span: Annotated[str, typer.Option("--disorder-span", help="By how much at most.")] = "2 seconds",
    late: Annotated[int, typer.Option("--late", help="Rows that only come with the file after theirs.")] = 0,
    mistakes: Annotated[int, typer.Option("--mistakes", help="Bad rows: unreadable, incomplete, repeated.")] = 0,
    after: Annotated[int, typer.Option("--after", help="Go on behind so many rows written before.")] = 0,
) -> None:
    """Write a feed of stock quotes. The same options always give the same files."""
    spec = QuoteSpec(
        rows=rows,
        seed=seed,
        symbols=symbols,
        start=parse_instant(start),
        format=kind,
        gzip=gzip,
        rows_per_file=rows_per_file,
        disorder=disorder,
        disorder_span=parse_duration(disorder_span),
        late=late,
        revisions=_revision_kind(revisions),
        mistakes=mistakes,
        after=after,
    )
    try:
        with progress_bar("writing quotes", rows) as progress:
            made = generate_quotes(spec, out, progress)
    except OSError as error:
        raise ErrataError(
            f"cannot write to {out}: {error.strerror}", how="name a folder that can be made and written with --out"
        ) from error
    print_message(generated_lines(made, out))


def generated_lines(made: GeneratedFeed, out: Path) -> str:
    """What was written, in words."""
    beside = [
        (made.revisions, "correction", "corrections"),
        (made.late, "late row", "late rows"),
        (made.disordered, "row out of order", "rows out of order"),
        (len(made.mistakes), "mistake", "mistakes"),
    ]
    more = "".join(f", {count_text(count, one, many)}" for count, one, many in beside if count)
    return f"wrote {count_text(made.rows, 'quote')}{more}, in {count_text(len(made.files), 'file')} in {out}"


def _revision_kind(text: str) -> RevisionKind:
    try:
        return RevisionKind(text.lower())
    except ValueError:
        raise unknown_name_error(
            "frequency of revisions", text, [each.value.upper() for each in RevisionKind]
        ) from None


def feeds(
    rows: Annotated[int, typer.Option("--rows", max=10**9, help="Events of the stream that all feeds say.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write to.")] = Path("feeds"),
    count: Annotated[int, typer.Option("--feeds", help="Feeds.", min=1, max=MAX_FEEDS)] = 3,
    files: Annotated[int, typer.Option("--files", help="Files of each feed.", min=1)] = 10,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, other events.")] = 1,
    lifetime: Annotated[str, typer.Option("--lifetime", help="How long an event lasts, about.")] = "2 seconds",
    disorder: Annotated[float, typer.Option("--disorder", help="The share of events out of order.")] = 0.2,
    adjusted: Annotated[float, typer.Option("--adjusted", help="The share of events whose end comes later.")] = 0.1,
    withdrawn: Annotated[float, typer.Option("--withdrawn", help="Events said and withdrawn, as a share.")] = 0.0,
    repeated: Annotated[float, typer.Option("--repeated", help="The share of events that are said twice.")] = 0.0,
    missing: Annotated[float, typer.Option("--missing", help="The share of events that a feed lacks.")] = 0.0,
    lag: Annotated[str, typer.Option("--lag", help="By how much each feed is behind the one before it.")] = "0 seconds",
    stable: Annotated[float, typer.Option("--stable", help="The share of elements behind which it is stable.")] = 0.01,
) -> None:
    """Write several feeds that say the same events, each in its own way. The same options always give the same
    files."""
    behind = parse_duration(lag)
    table = event_table(EventSpec(rows, seed=seed, lifetime=parse_duration(lifetime)))
    faults = FeedFaults(
        disorder=disorder,
        adjusted=adjusted,
        withdrawn=withdrawn,
        repeated=repeated,
        missing=missing,
        stable=stable,
    )
    made = [physical_feed(table, replace(faults, lag=number * behind), seed + number) for number in range(count)]
    try:
        write_feeds(out, made, files)
    except OSError as error:
        raise ErrataError(
            f"cannot write to {out}: {error.strerror}", how="name a folder that can be made and written with --out"
        ) from error
    elements = count_text(sum(map(len, made)), "element")
    print_message(f"wrote {count_text(rows, 'event')} as {elements} of {count_text(count, 'feed')}, in {out}")


# `errata bench`.


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The benchmark, such as ingest.", show_default=False)],
    scale: Annotated[
        str, typer.Option("--scale", metavar="small|paper|ten", help="How much data; ten is for replay alone.")
    ] = "small",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder for figures and pictures.")] = Path(
        "bench-out"
    ),
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="PART", help="Measure this part, of a benchmark of several.", show_default=False
        ),
    ] = None,
) -> int:
    """Measure: writes NAME.json and pictures, prints a table; exit code 1 when a goal is missed."""
    checkout = Path(errata.__file__).resolve().parents[2]
    if not (checkout / "bench" / "__init__.py").is_file():
        raise ErrataError(
            "there are no benchmarks here",
            why="they are part of the source, not of the installed package",
            how="clone the source and run `make bench NAME=… SCALE=… OUT=…` in it",
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    code: int = importlib.import_module("bench").run(name, scale, out, only=only or ())
    return code
