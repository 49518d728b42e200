"""`errata quarantine`: the rows that were not taken in: looked at, and dropped."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from errata.catalog import quarantine, streams
from errata.catalog.quarantine import Held, State
from errata.cli.options import MaybeStream, Printed, StreamName, given
from errata.cli.talk import confirm, say
from errata.errors import EXIT_FAILED
from errata.flows.site import at_site
from errata.flows.taking import quarantine as flow
from errata.flows.taking.quarantine import Selected, Selection
from errata.serve.formats import Field, Format, print_records
from errata.serve.words import batch_name, counted, near

SHOWN = 50

FIELDS = (
    Field("id", "id", right=True),
    Field("stream", "stream"),
    Field("batch", "batch"),
    Field("file", "file", fold=True),
    Field("line", "line", right=True),
    Field("form", "form"),
    Field("revision", "revision", right=True),
    Field("state", "state"),
    Field("settled_in", "commit", right=True),
    Field("reason", "reason", fold=True),
    Field("text", "text", fold=True),
)

BatchId = Annotated[str | None, typer.Option("--batch", metavar="ID", help="Only of this batch.")]
Ids = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="N", min=1, max=2**63 - 1, help="Only this row; may be given several times."),
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Only where the reason has this in it.")]


def ls(
    context: typer.Context,
    stream: MaybeStream = None,
    batch: BatchId = None,
    reason: Reason = None,
    everything: Annotated[bool, typer.Option("--all", help="Also rows that were retried or dropped.")] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Only the last N rows; as a table 50 unless told."),
    ] = None,
    kind: Printed = Format.TABLE,
) -> None:
    """List rows in quarantine, oldest first: where each stood, why it was not taken, what it said."""
    last = limit or (SHOWN if kind is Format.TABLE else None)
    with at_site(given(context).project) as site:
        if stream is not None:
            streams.check_known(site.catalog, stream)
        held = quarantine.held(
            site.catalog,
            stream=stream,
            batch_id=batch,
            reason=reason,
            settled=everything,
            last=None if last is None else last + 1,
        )
    found = held if last is None else held[-last:]
    if not found:
        say("no rows in quarantine")
        if kind is Format.TABLE:
            return
    hidden = set() if kind is not Format.TABLE else _not_shown(found, stream, everything)
    fields = [field for field in FIELDS if field.name not in hidden]
    print_records(fields, list(map(_record, found)), list(map(_shown, found)), kind, sys.stdout)
    if len(held) > len(found):
        say(f"these are the last {counted(len(found), 'row')}, there are more; use --limit or --format csv")


def drop(
    context: typer.Context,
    stream: StreamName,
    batch: BatchId = None,
    ids: Ids = None,
    reason: Reason = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
) -> int:
    """Give up rows in quarantine for good: all of the stream, or those that fit the options.

    They are no longer counted. `errata quarantine ls --all` still shows them.
    """
    with at_site(given(context).project) as site:
        selected = flow.select(site, Selection(stream, batch, tuple(ids or ()), reason))
        if nothing(selected):
            return 0
        if not yes:
            _say_rows(selected.rows)
            if not confirm(f"drop {counted(len(selected.rows), 'row')} of {stream} from quarantine?"):
                say("nothing was done")
                return EXIT_FAILED
        commit_id = flow.drop(site, selected)
    say(f"{stream}: {counted(len(selected.rows), 'row')} dropped from quarantine in commit {commit_id}")
    return 0


def nothing(selected: Selected) -> bool:
    """Whether there is nothing to do, which is said."""
    for each in selected.settled:
        say(f"row {each.quarantine_id} was {each.state} before, in commit {each.settled_in}")
    if not selected.rows:
        say(f"{selected.stream.name}: no such rows in quarantine; nothing was done")
    return not selected.rows


def _say_rows(rows: Iterable[Held]) -> None:
    told = list(rows)
    for each in told[: flow.SHOWN]:
        say(f"{each.quarantine_id}: {near(f'{each.row.file}:{each.row.line}: {each.row.reason}')}")
    if len(told) > flow.SHOWN:
        say(f"and {len(told) - flow.SHOWN:,} more")


def _not_shown(found: Iterable[Held], stream: str | None, everything: bool) -> set[str]:
    """What a table for persons leaves out: what is the same in all rows, or only for programs."""
    hidden = {"form"}
    if stream is not None:
        hidden.add("stream")
    if not everything:
        hidden |= {"state", "settled_in"}
    if all(each.revision is None for each in found):
        hidden.add("revision")
    return hidden


def _record(each: Held) -> dict[str, object]:
    return {
        "id": each.quarantine_id,
        "stream": each.stream,
        "batch": each.batch_id,
        "file": each.row.file,
        "line": each.row.line,
        "form": each.form.value,
        "revision": each.revision,
        "state": each.state.value,
        "settled_in": each.settled_in,
        "reason": each.row.reason,
        "text": each.row.text,
    }


def _shown(each: Held) -> dict[str, object]:
    plain = {name: str(value) for name, value in _record(each).items() if value is not None}
    settled = "" if each.state is State.HELD else plain["settled_in"]
    named = {"batch": batch_name(each.batch_id), "file": near(each.row.file), "reason": near(each.row.reason)}
    return {"revision": "", **plain, **named, "settled_in": settled}
