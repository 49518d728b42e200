"""`errata archive scan`: rows of an archive."""

from __future__ import annotations

from typing import Annotated

import typer

from errata.cli.named import named_values
from errata.cli.options import StreamName, given
from errata.cli.rows import Kind, Limit, Out, check_format, give_out
from errata.cli.talk import say
from errata.flows.site import at_site
from errata.flows.telling.read import Wanted, reading, refuse_backwards
from errata.serve.formats import ScanFormat
from errata.serve.words import counted


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
    kind: Kind = ScanFormat.TABLE,
    out: Out = None,
    limit: Limit = None,
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
    wanted = Wanted(
        stream,
        start,
        end,
        as_of,
        [named_values(text, "group", "--group symbol=IBM") for text in group or ()],
        age_first,
        revisions,
    )
    with at_site(given(context).project) as site:
        refuse_backwards(site.catalog, wanted)
        with reading(site, wanted) as answer:
            asked = answer.scan.standing.stream
            by = list(dict.fromkeys([asked.order, *asked.key]))
            give_out(answer.rows, by, kind, out, limit, title=f"reading {asked.name}", check=answer.pin.check)
    if out is not None:
        say(f"wrote {out}, as of commit {answer.scan.commit_id}")
    elif kind is ScanFormat.TABLE:
        say(f"as of commit {answer.scan.commit_id}; {counted(len(answer.found.all), 'bucket')} opened")
