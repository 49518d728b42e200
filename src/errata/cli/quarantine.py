"""`errata quarantine`: the rows and landed files that were not taken in: looked at, and dropped."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from errata.catalog.held_files import HeldFile
from errata.catalog.quarantine import Held, State
from errata.cli.options import MOST_ROWS, MaybeStream, Printed, StreamName, given
from errata.cli.talk import confirm, say
from errata.errors import EXIT_FAILED
from errata.flows.site import at_site
from errata.flows.taking import quarantine as flow
from errata.flows.taking.quarantine import Listed, Selected, Selection
from errata.serve.formats import Field, Format, print_records
from errata.serve.words import batch_name, counted, moment, near

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

FILE_FIELDS = (
    Field("stream", "stream"),
    Field("file", "file", fold=True),
    Field("since", "since"),
    Field("state", "state"),
    Field("settled_in", "commit", right=True),
    Field("reason", "reason", fold=True),
    Field("how", "how to mend", fold=True),
)
"""What a person is shown of landed files."""

OF_FILE = "file"
"""What stands for the form of a row where a whole file is meant."""

BatchId = Annotated[str | None, typer.Option("--batch", metavar="ID", help="Only of this batch.")]
Ids = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="N", min=1, max=2**63 - 1, help="Only this row; may be given several times."),
]
InFile = Annotated[str | None, typer.Option("--file", metavar="NAME", help="Only this file, or rows that stood in it.")]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Only where the reason has this in it.")]


def ls(
    context: typer.Context,
    stream: MaybeStream = None,
    batch: BatchId = None,
    reason: Reason = None,
    file: InFile = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what was retried or dropped.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=1, max=MOST_ROWS, help="Only the last N rows; as a table 50 unless told."
        ),
    ] = None,
    kind: Printed = Format.TABLE,
) -> None:
    """List rows in quarantine, oldest first: where each stood, why it was not taken, what it said. Then landed files of
    which nothing could be taken in, which are left where they are."""
    last = limit or (SHOWN if kind is Format.TABLE else None)
    with at_site(given(context).project) as site:
        rows, files = flow.listed(
            site, Listed(stream, batch, reason, file, everything), None if last is None else last + 1
        )
    found = rows if last is None else rows[-last:]
    if not (found or files):
        say("nothing in quarantine")
    if kind is not Format.TABLE:
        records = [*map(_record, found), *map(_file_record, files)]
        print_records(FIELDS, records, records, kind, sys.stdout)
        return
    if found:
        hidden = _not_shown(found, stream, everything)
        fields = [field for field in FIELDS if field.name not in hidden]
        print_records(fields, list(map(_record, found)), list(map(_shown, found)), kind, sys.stdout)
    if len(rows) > len(found):
        say(f"these are the last {counted(len(found), 'row')}, there are more; use --limit or --format csv")
    if files:
        say(f"{counted(len(files), 'file')} set aside, each left where it is until it is written anew or retried:")
        shown = [_file_shown(each) for each in files]
        hidden = set() if everything else {"state", "settled_in"}
        fields = [field for field in FILE_FIELDS if field.name not in hidden]
        print_records(fields, shown, shown, kind, sys.stdout)


def drop(
    context: typer.Context,
    stream: StreamName,
    batch: BatchId = None,
    ids: Ids = None,
    reason: Reason = None,
    file: InFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
) -> int:
    """Give up rows and landed files in quarantine for good: all of the stream, or those that fit the options.

    They are no longer counted. `errata quarantine ls --all` still shows them. Files stay where they are, and are not
    taken in unless they are written anew.
    """
    with at_site(given(context).project) as site:
        selected = flow.select(site, Selection(stream, batch, tuple(ids or ()), reason, file))
        if nothing(selected):
            return 0
        if not yes:
            _say_rows(selected.rows)
            for each in selected.files[: flow.SHOWN]:
                say(near(f"{each.name}: {each.reason}"))
            if not confirm(f"drop {_meant(selected)} of {stream} from quarantine?"):
                say("nothing was done")
                return EXIT_FAILED
        commit_id = flow.drop(site, selected)
    say(f"{stream}: {_meant(selected)} dropped from quarantine in commit {commit_id}")
    return 0


def _meant(selected: Selected) -> str:
    rows = [counted(len(selected.rows), "row")] if selected.rows else []
    files = [counted(len(selected.files), "file")] if selected.files else []
    return " and ".join([*rows, *files])


def nothing(selected: Selected) -> bool:
    """Whether there is nothing to do, which is said."""
    for each in selected.settled:
        say(f"row {each.quarantine_id} was {each.state} before, in commit {each.settled_in}")
    if selected.nothing:
        say(f"{selected.stream.name}: no such rows in quarantine; nothing was done")
    return selected.nothing


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


def _file_record(each: HeldFile) -> dict[str, object]:
    said: dict[str, object] = {"stream": each.stream, "file": each.name, "form": OF_FILE, "state": each.state.value}
    said |= {"settled_in": each.settled_in, "reason": each.reason}
    return {**dict.fromkeys(field.name for field in FIELDS), **said}


def _file_shown(each: HeldFile) -> dict[str, object]:
    said = {"file": near(each.name), "reason": near(each.reason), "how": each.how or "", "since": moment(each.at)}
    settled = "" if each.settled_in is None else each.settled_in
    return {"stream": each.stream, "state": each.state.value, "settled_in": settled, **said}
