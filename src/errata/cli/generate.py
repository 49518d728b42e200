"""`errata generate`: feeds to try things with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from errata.cli.talk import bar, say
from errata.errors import ErrataError, unknown
from errata.generate.faults import Revisions
from errata.generate.quotes import START, Generated, QuoteSpec, generate_quotes
from errata.model.batch import Format
from errata.model.instants import format_instant, parse_duration, parse_instant
from errata.serve.words import counted


def quotes(
    rows: Annotated[int, typer.Option("--rows", max=10**11, help="Quotes to write, besides corrections and mistakes.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write to.")] = Path("feed"),
    revisions: Annotated[
        str, typer.Option("--revisions", metavar="NONE|LOW|MOD|HIGH", help="How often a quote is corrected later.")
    ] = "NONE",
    kind: Annotated[Format, typer.Option("--format", help="The files' format.", case_sensitive=False)] = Format.CSV,
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress the files.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, other quotes.")] = 1,
    symbols: Annotated[int, typer.Option("--symbols", help="Stocks; each reports every second.")] = 200,
    start: Annotated[str, typer.Option("--start", metavar="TIME", help="The first second.")] = format_instant(START),
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
        revisions=_revisions(revisions),
        mistakes=mistakes,
        after=after,
    )
    try:
        with bar("writing quotes", rows) as progress:
            made = generate_quotes(spec, out, progress)
    except OSError as error:
        raise ErrataError(
            f"cannot write to {out}: {error.strerror}", how="name a folder that can be made and written with --out"
        ) from error
    say(report(made, out))


def report(made: Generated, out: Path) -> str:
    """What was written, in words."""
    beside = [
        (made.revisions, "correction", "corrections"),
        (made.late, "late row", "late rows"),
        (made.disordered, "row out of order", "rows out of order"),
        (len(made.mistakes), "mistake", "mistakes"),
    ]
    more = "".join(f", {counted(count, one, many)}" for count, one, many in beside if count)
    return f"wrote {counted(made.rows, 'quote')}{more}, in {counted(len(made.files), 'file')} in {out}"


def _revisions(text: str) -> Revisions:
    try:
        return Revisions(text.lower())
    except ValueError:
        raise unknown("frequency of revisions", text, [each.value.upper() for each in Revisions]) from None
