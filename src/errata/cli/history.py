"""`errata history`: every version that the rows of a key have had."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from errata.cli.console import print_message, step_status
from errata.cli.options import PrintFormat, StreamName, global_options, parse_values
from errata.declare.site import open_site
from errata.intake.encoding import json_values, row_texts
from errata.model.commit import Commit
from errata.model.stream import Stream
from errata.model.time import format_instant
from errata.read.feeds import disagreement_line
from errata.read.history import RowHistory, RowVersion, VersionOrigin, row_history
from errata.read.tables import TableField, TableRecord, print_records
from errata.read.wording import OutputFormat, commit_author, relative_paths, revision_op_text, short_batch_id, wall_time

KEY_EXAMPLE = "symbol=IBM,time=2026-11-18T02:00:00"

TABLE_FIELDS = (
    TableField("version", "version", right=True),
    TableField("known", "known since"),
    TableField("until", "until"),
    TableField("what", "what"),
    TableField("values", "values", fold=True),
    TableField("source", "from", fold=True),
    TableField("batch", "batch"),
    TableField("by", "by", fold=True),
    TableField("revision", "revision", right=True),
)
RECORD_FIELDS = tuple(
    TableField(name, name)
    for name in (
        *("version", "row", "what", "commit", "known", "until", "until_commit", "aged_out", "values", "before"),
        *("changed", "file", "line", "batch", "batch_commit", "undoes", "revision"),
        *("user", "host", "dag", "run", "task", "try", "applied_by"),
    )
)

DISPUTED_FIELD = TableField("disagreements", "disagreements")
"""Of streams whose feeds have disagreed about the key."""


def show_history(
    context: typer.Context,
    stream: StreamName,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help=f"All columns of the key: {KEY_EXAMPLE}", show_default=False)
    ],
    kind: PrintFormat = OutputFormat.TABLE,
) -> None:
    """Show every version of a row, oldest first: what it said, from when on, and where that came from.

    A row whose key was changed is followed to its other keys. Times are those of commits, in UTC.
    """
    wanted = parse_values(key, "key", KEY_EXAMPLE)
    with open_site(global_options(context).project) as site, step_status(f"history in {stream}"):
        found = row_history(site, stream, wanted)
    if found.versions or kind is not OutputFormat.TABLE:
        records = [_version_record(found.stream, each) | _disputed(found, each) for each in found.versions]
        fields = TABLE_FIELDS if kind is OutputFormat.TABLE else RECORD_FIELDS
        if found.disagreements and kind is not OutputFormat.TABLE:
            fields = (*fields, DISPUTED_FIELD)
        print_records(fields, records, _table_rows(found), kind, sys.stdout)
    for line in _history_notes(found):
        print_message(line)


def _history_notes(found: RowHistory) -> Iterator[str]:
    """Notes below the table."""
    if found.aged:
        yield "the row has been aged out; this is what its corrections tell"
    for each in found.waiting:
        where = f", {relative_paths(each.file)}:{each.line}" if each.file else ""
        yield (
            f"waiting: {revision_op_text(each.op)}, revision {each.revision}{where}, batch "
            f"{short_batch_id(each.batch_id)}"
        )
    yield from (relative_paths(disagreement_line(each)) for each in found.disagreements)


def _table_rows(found: RowHistory) -> list[TableRecord]:
    return [_table_row(found.stream, each) for each in found.versions]


def _table_row(stream: Stream, version: RowVersion) -> TableRecord:
    what = version.origin.value
    return {
        "version": version.number,
        "known": _known_since(version.made_by),
        "until": ("aged out " if version.aged else "") + _known_since(version.ended_by),
        "what": f"{what} (undo of {short_batch_id(version.undoes)})" if version.undoes else what,
        "values": _version_text(stream, version),
        "source": f"{relative_paths(version.file)}:{version.line}" if version.file else "",
        "batch": short_batch_id(version.batch_id),
        "by": commit_author(version.batch_commit.cause),
        "revision": version.revision,
    }


def _known_since(commit: Commit | None) -> str:
    return "" if commit is None else f"{commit.commit_id}: {wall_time(commit.at)}"


def _version_text(stream: Stream, version: RowVersion) -> str:
    """The values of a version; of a correction, the values that it changed."""
    now = row_texts(stream, version.values)
    if version.origin is VersionOrigin.DELETED:
        return ""
    if version.before is None:
        return ", ".join(f"{name}={text}" for name, text in now.items())
    before = row_texts(stream, version.before)
    return ", ".join(f"{name}: {before[name]} -> {now[name]}" for name in version.changed)


def _disputed(found: RowHistory, version: RowVersion) -> dict[str, object]:
    """What feeds disagreed about while a version was known."""
    since = version.made_by.commit_id
    until = None if version.ended_by is None else version.ended_by.commit_id
    told = [
        {
            "since": each.opened_in,
            "resolved": each.resolved_in,
            "policy": each.policy,
            "chosen": each.chosen,
            "values": [dict(said) for said in each.values],
        }
        for each in found.disagreements
        if (until is None or (each.opened_in or 0) < until) and (each.resolved_in is None or each.resolved_in > since)
    ]
    return {"disagreements": told} if found.disagreements else {}


def _version_record(stream: Stream, version: RowVersion) -> dict[str, object]:
    brought = version.batch_commit.cause
    return {
        "version": version.number,
        "row": version.row,
        "what": version.origin.value,
        "commit": version.made_by.commit_id,
        "known": format_instant(version.made_by.at),
        "until": None if version.ended_by is None else format_instant(version.ended_by.at),
        "until_commit": None if version.ended_by is None else version.ended_by.commit_id,
        "aged_out": version.aged,
        "values": None if version.origin is VersionOrigin.DELETED else json_values(stream, version.values),
        "before": None if version.before is None else json_values(stream, version.before),
        "changed": version.changed,
        "file": version.file or None,
        "line": version.line or None,
        "batch": version.batch_id,
        "batch_commit": version.batch_commit.commit_id,
        "undoes": version.undoes,
        "revision": version.revision,
        "user": brought.user,
        "host": brought.host,
        "dag": brought.dag_id,
        "run": brought.run_id,
        "task": brought.task_id,
        "try": brought.try_number,
        "applied_by": commit_author(version.made_by.cause),
    }
