"""`errata history`: every version that the rows of a key have had."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from errata.cli.named import named_values
from errata.cli.options import Printed, StreamName, given
from errata.cli.talk import say, steps
from errata.flows.site import at_site
from errata.flows.telling.history import History, Version, What, history
from errata.model.commit import Commit
from errata.model.instants import format_instant
from errata.model.stream import Stream
from errata.serve.formats import Field, Format, Record, print_records
from errata.serve.values import plain, texts
from errata.serve.words import batch_name, moment, near, op_words, who

EXAMPLE = "symbol=IBM,time=2026-11-18T02:00:00"

SHOWN = (
    Field("version", "version", right=True),
    Field("known", "known since"),
    Field("until", "until"),
    Field("what", "what"),
    Field("values", "values", fold=True),
    Field("source", "from", fold=True),
    Field("batch", "batch"),
    Field("by", "by", fold=True),
    Field("revision", "revision", right=True),
)
FIELDS = tuple(
    Field(name, name)
    for name in (
        *("version", "row", "what", "commit", "known", "until", "until_commit", "aged_out", "values", "before"),
        *("changed", "file", "line", "batch", "batch_commit", "undoes", "revision"),
        *("user", "host", "dag", "run", "task", "try", "applied_by"),
    )
)


def show_history(
    context: typer.Context,
    stream: StreamName,
    key: Annotated[str, typer.Argument(metavar="KEY", help=f"All columns of the key: {EXAMPLE}", show_default=False)],
    kind: Printed = Format.TABLE,
) -> None:
    """Show every version of a row, oldest first: what it said, from when on, and where that came from.

    A row whose key was changed is followed to its other keys. Times are those of commits, in UTC.
    """
    wanted = named_values(key, "key", EXAMPLE)
    with at_site(given(context).project) as site, steps(f"history in {stream}"):
        found = history(site, stream, wanted)
    if found.versions or kind is not Format.TABLE:
        records = [_record(found.stream, each) for each in found.versions]
        print_records(SHOWN if kind is Format.TABLE else FIELDS, records, _rows(found), kind, sys.stdout)
    for line in _notes(found):
        say(line)


def _notes(found: History) -> Iterator[str]:
    """What the table does not tell."""
    if found.aged:
        yield "the row has been aged out; this is what its corrections tell"
    for each in found.waiting:
        where = f", {near(each.file)}:{each.line}" if each.file else ""
        yield f"waiting: {op_words(each.op)}, revision {each.revision}{where}, batch {batch_name(each.batch_id)}"


def _rows(found: History) -> list[Record]:
    return [_row(found.stream, each) for each in found.versions]


def _row(stream: Stream, version: Version) -> Record:
    what = version.what.value
    return {
        "version": version.number,
        "known": _since(version.known),
        "until": ("aged out " if version.aged else "") + _since(version.until),
        "what": f"{what} (undo of {batch_name(version.undoes)})" if version.undoes else what,
        "values": _said(stream, version),
        "source": f"{near(version.file)}:{version.line}" if version.file else "",
        "batch": batch_name(version.batch_id),
        "by": who(version.brought.cause),
        "revision": version.revision,
    }


def _since(commit: Commit | None) -> str:
    return "" if commit is None else f"{commit.commit_id}: {moment(commit.at)}"


def _said(stream: Stream, version: Version) -> str:
    """What a version said; of a correction, what it changed."""
    now = texts(stream, version.values)
    if version.what is What.DELETED:
        return ""
    if version.before is None:
        return ", ".join(f"{name}={text}" for name, text in now.items())
    before = texts(stream, version.before)
    return ", ".join(f"{name}: {before[name]} -> {now[name]}" for name in version.changed)


def _record(stream: Stream, version: Version) -> Record:
    brought = version.brought.cause
    return {
        "version": version.number,
        "row": version.row,
        "what": version.what.value,
        "commit": version.known.commit_id,
        "known": format_instant(version.known.at),
        "until": None if version.until is None else format_instant(version.until.at),
        "until_commit": None if version.until is None else version.until.commit_id,
        "aged_out": version.aged,
        "values": None if version.what is What.DELETED else plain(stream, version.values),
        "before": None if version.before is None else plain(stream, version.before),
        "changed": version.changed,
        "file": version.file or None,
        "line": version.line or None,
        "batch": version.batch_id,
        "batch_commit": version.brought.commit_id,
        "undoes": version.undoes,
        "revision": version.revision,
        "user": brought.user,
        "host": brought.host,
        "dag": brought.dag_id,
        "run": brought.run_id,
        "task": brought.task_id,
        "try": brought.try_number,
        "applied_by": who(version.known.cause),
    }
