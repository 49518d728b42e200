"""`errata results`: the published answer of a query."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from errata.catalog import queries
from errata.cli.options import QueryName, check_place, given
from errata.cli.rows import Kind, Limit, Out, check_format, give_objects, give_out
from errata.cli.talk import say
from errata.errors import UsageError
from errata.flows.declaring.drift import drifted
from errata.flows.site import Site, at_site
from errata.flows.telling.results import Answer, Reading, Wanted, reading
from errata.serve.formats import ScanFormat


def results(
    context: typer.Context,
    query: QueryName,
    at: Annotated[
        str | None, typer.Option("--at", metavar="T", help="The event time; else the last that is answered.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="COMMIT|TIME", help="As it was published then.")
    ] = None,
    aligned: Annotated[
        list[str] | None,
        typer.Option(
            "--aligned",
            metavar="QUERY[,…]",
            help="Read these, too, all of one state of the streams.",
        ),
    ] = None,
    kind: Kind = ScanFormat.TABLE,
    out: Out = None,
    limit: Limit = None,
) -> None:
    """Read what has been published for a query: its answer at an event time, as known at a commit.

    Rows have the columns of the SELECT list and are sorted by them. `errata run` brings answers up to date.
    """
    check_format(kind, out)
    check_place(out)
    others = [name.strip() for text in aligned or () for name in text.split(",") if name.strip()]
    if others:
        _refuse_one_table(kind, out)
    with at_site(given(context).project) as site:
        with reading(site, Wanted(query, at, as_of, others)) as found:
            _tell(site, found)
            if others and kind is ScanFormat.JSON:
                give_objects([(_head(found, each), each.rows, each.chosen.columns) for each in found.answers], limit)
            else:
                _give_out(found, kind, out, limit, check=found.pin.check)
        _report(found, kind, out, aligned=bool(others))


def _refuse_one_table(kind: ScanFormat, out: Path | None) -> None:
    """Several queries have several kinds of rows."""
    if kind in (ScanFormat.CSV, ScanFormat.PARQUET) or out is not None:
        raise UsageError(
            "the rows of several queries do not go into one file or one CSV",
            why="each query has columns of its own",
            how="use --format json, an object for each query; or read each by itself with the same --at and --as-of",
        )


def _tell(site: Site, found: Reading) -> None:
    """Say what is not as a reader might think."""
    for note in found.notes:
        say(note)
    applied = {name: each.checked for name, each in queries.recorded(site.catalog).items()}
    names = [each.chosen.of.name for each in found.answers if each.chosen.of.name in applied]
    for told in drifted(site.project, applied, names).values():
        say(told)


def _head(found: Reading, answer: Answer) -> dict[str, object]:
    chosen = answer.chosen
    return {
        "query": chosen.of.name,
        "at": found.found.moment,
        "commit": chosen.commit_id,
        "data_commit": chosen.evaluation.data_commit,
    }


def _give_out(
    found: Reading, kind: ScanFormat, out: Path | None, limit: int | None, *, check: Callable[[], None]
) -> None:
    for number, each in enumerate(found.answers):
        name, columns = each.chosen.of.name, each.chosen.columns
        if len(found.answers) > 1:
            sys.stdout.write(f"{name}\n" if number == 0 else f"\n{name}\n")
            sys.stdout.flush()
        give_out(each.rows, columns, kind, out, limit, title=f"reading {name}", check=check)


def _report(found: Reading, kind: ScanFormat, out: Path | None, *, aligned: bool) -> None:
    if out is None and kind is not ScanFormat.TABLE:
        return
    what = "the answers" if aligned else "the answer"
    written = f"wrote {out}, {what}" if out is not None else what
    chosen = found.found.chosen
    if len(chosen) == 1:
        say(f"{written} at {found.found.moment}, as of commit {chosen[0].commit_id}")
    else:
        states = max(each.evaluation.data_commit for each in chosen)
        say(f"{written} at {found.found.moment}, of the streams as of commit {states}")
