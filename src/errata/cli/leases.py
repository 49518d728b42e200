"""`errata leases`: who is at work on what, and a lease given back for a holder that is dead."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from errata.catalog.leases import Holder, holders, take_away
from errata.cli.options import Printed, given
from errata.cli.talk import confirm, say
from errata.errors import EXIT_FAILED, UsageError, unknown
from errata.flows.site import at_site
from errata.model.instants import format_instant
from errata.serve.formats import Field, Format, Record, print_records
from errata.serve.words import moment

FIELDS = (
    Field("lease", "lease"),
    Field("owner", "task", fold=True),
    Field("process", "held by", fold=True),
    Field("since", "since"),
    Field("until", "until, unless renewed"),
    Field("life", "holder"),
)

RELEASE = "release"


def leases(
    context: typer.Context,
    word: Annotated[
        str | None, typer.Argument(metavar="[release", help="Give a lease back for its holder.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME]", help="The lease's name, or the query's.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Release without asking.")] = False,
    kind: Printed = Format.TABLE,
) -> int:
    """Show who is at work on which query: the task and the process, since when, and whether that process is alive.

    A lease ends by itself half a minute after its holder has died, and at once for whoever runs on the same machine.
    With `release NAME` it is given back now. A holder that is alive goes on, and works in vain where another one comes
    first; no result is wrong for it.
    """
    if word not in (None, RELEASE) or (word is None) != (name is None):
        raise UsageError(
            f"errata leases cannot {word}" if word != RELEASE else "no lease is named that is to be released",
            how="errata leases, or errata leases release NAME",
        )
    with at_site(given(context).project) as site:
        if name is None:
            _show(holders(site.catalog), kind)
            return 0
        holder = _named(holders(site.catalog), name)
        if not yes and not confirm(f"release {holder.name}, held by {holder.words} ({holder.life})?"):
            say("nothing was done")
            return EXIT_FAILED
        if not take_away(site.catalog, holder):
            say(f"{holder.name}: given back meanwhile; nothing was done")
            return 0
    say(f"{holder.name}: released; it was held by {holder.words}")
    return 0


def _named(found: Sequence[Holder], name: str) -> Holder:
    """The lease of this name, or the one on the query of this name."""
    for each in found:
        if each.name in (name, f"query {name}"):
            return each
    raise unknown("lease", name, [each.name for each in found])


def _show(found: Sequence[Holder], kind: Format) -> None:
    if not found:
        say("no leases: nobody is at work on a query")
        if kind is Format.TABLE:
            return
    shown = [{**_record(each), "since": moment(each.since), "until": moment(each.until)} for each in found]
    print_records(FIELDS, list(map(_record, found)), shown, kind, sys.stdout)


def _record(each: Holder) -> Record:
    return {
        "lease": each.name,
        "owner": each.owner,
        "process": each.process.words,
        "since": format_instant(each.since),
        "until": format_instant(each.until),
        "life": each.life.value,
    }
