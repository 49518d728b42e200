"""`errata quarantine ls` and `drop`: rows and landed files that were not ingested."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from errata.archive.ingest import quarantine as flow
from errata.archive.ingest.quarantine import QuarantineFilter, QuarantineItems, QuarantineSelection
from errata.catalog.quarantine import QuarantineFile, QuarantineRow, QuarantineState
from errata.cli.console import confirm, print_message
from errata.cli.options import MAX_ROWS, OptionalStream, PrintFormat, StreamName, global_options
from errata.declare.site import open_site
from errata.errors import EXIT_FAILED, count_text
from errata.read.tables import TableField, print_records
from errata.read.wording import OutputFormat, relative_paths, short_batch_id, wall_time

DEFAULT_LIMIT = 50

ROW_FIELDS = (
    TableField("id", "id", right=True),
    TableField("stream", "stream"),
    TableField("batch", "batch"),
    TableField("file", "file", fold=True),
    TableField("line", "line", right=True),
    TableField("form", "form"),
    TableField("revision", "revision", right=True),
    TableField("state", "state"),
    TableField("settled_in", "commit", right=True),
    TableField("reason", "reason", fold=True),
    TableField("text", "text", fold=True),
)

FILE_FIELDS = (
    TableField("stream", "stream"),
    TableField("file", "file", fold=True),
    TableField("since", "since"),
    TableField("state", "state"),
    TableField("settled_in", "commit", right=True),
    TableField("reason", "reason", fold=True),
    TableField("how", "how to mend", fold=True),
)
"""Columns of landed files in a table."""

FILE_SCOPE = "file"
"""The form shown for an entry that is a whole file."""

BatchOption = Annotated[str | None, typer.Option("--batch", metavar="ID", help="Only of this batch.")]
IdsOption = Annotated[
    list[int] | None,
    typer.Option("--id", metavar="N", min=1, max=2**63 - 1, help="Only this row; may be given several times."),
]
FileOption = Annotated[
    str | None, typer.Option("--file", metavar="NAME", help="Only this file, or rows that stood in it.")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only where the reason has this in it.")
]


def ls(
    context: typer.Context,
    stream: OptionalStream = None,
    batch: BatchOption = None,
    reason: ReasonOption = None,
    file: FileOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what was retried or dropped.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=1, max=MAX_ROWS, help="Only the last N rows; as a table 50 unless told."
        ),
    ] = None,
    kind: PrintFormat = OutputFormat.TABLE,
) -> None:
    """List rows in quarantine, oldest first: where each stood, why it was not taken, what it said. Then landed files of
    which nothing could be taken in, which are left where they are."""
    last = limit or (DEFAULT_LIMIT if kind is OutputFormat.TABLE else None)
    with open_site(global_options(context).project) as site:
        rows, files = flow.list_items(
            site, QuarantineFilter(stream, batch, reason, file, everything), None if last is None else last + 1
        )
    found = rows if last is None else rows[-last:]
    if not (found or files):
        print_message("nothing in quarantine")
    if kind is not OutputFormat.TABLE:
        records = [*map(_row_record, found), *map(_file_record, files)]
        print_records(ROW_FIELDS, records, records, kind, sys.stdout)
        return
    if found:
        hidden = _hidden_fields(found, stream, everything)
        fields = [field for field in ROW_FIELDS if field.name not in hidden]
        print_records(fields, list(map(_row_record, found)), list(map(_row_table, found)), kind, sys.stdout)
    if len(rows) > len(found):
        print_message(
            f"these are the last {count_text(len(found), 'row')}, there are more; use --limit or --format csv"
        )
    if files:
        print_message(
            f"{count_text(len(files), 'file')} set aside, each left where it is until it is written anew or retried:"
        )
        shown = [_file_table(each) for each in files]
        hidden = set() if everything else {"state", "settled_in"}
        fields = [field for field in FILE_FIELDS if field.name not in hidden]
        print_records(fields, shown, shown, kind, sys.stdout)


def drop(
    context: typer.Context,
    stream: StreamName,
    batch: BatchOption = None,
    ids: IdsOption = None,
    reason: ReasonOption = None,
    file: FileOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
) -> int:
    """Give up rows and landed files in quarantine for good: all of the stream, or those that fit the options.

    They are no longer counted. `errata quarantine ls --all` still shows them. Files stay where they are, and are not
    taken in unless they are written anew.
    """
    with open_site(global_options(context).project) as site:
        selected = flow.select_items(site, QuarantineSelection(stream, batch, tuple(ids or ()), reason, file))
        if report_if_nothing(selected):
            return 0
        if not yes:
            _print_bad_rows(selected.rows)
            for each in selected.files[: flow.SHOWN_IDS]:
                print_message(relative_paths(f"{each.name}: {each.reason}"))
            if not confirm(f"drop {_selection_words(selected)} of {stream} from quarantine?"):
                print_message("nothing was done")
                return EXIT_FAILED
        commit_id = flow.drop_items(site, selected)
    print_message(f"{stream}: {_selection_words(selected)} dropped from quarantine in commit {commit_id}")
    return 0


def _selection_words(selected: QuarantineItems) -> str:
    rows = [count_text(len(selected.rows), "row")] if selected.rows else []
    files = [count_text(len(selected.files), "file")] if selected.files else []
    return " and ".join([*rows, *files])


def report_if_nothing(selected: QuarantineItems) -> bool:
    """Report that the selection is empty; return whether it is."""
    for each in selected.settled:
        print_message(f"row {each.quarantine_id} was {each.state} before, in commit {each.settled_in}")
    if selected.is_empty:
        print_message(f"{selected.stream.name}: no such rows in quarantine; nothing was done")
    return selected.is_empty


def _print_bad_rows(rows: Iterable[QuarantineRow]) -> None:
    told = list(rows)
    for each in told[: flow.SHOWN_IDS]:
        print_message(f"{each.quarantine_id}: {relative_paths(f'{each.row.file}:{each.row.line}: {each.row.reason}')}")
    if len(told) > flow.SHOWN_IDS:
        print_message(f"and {len(told) - flow.SHOWN_IDS:,} more")


def _hidden_fields(found: Iterable[QuarantineRow], stream: str | None, everything: bool) -> set[str]:
    """Columns that a table omits: those that are the same in all rows, or are for programs."""
    hidden = {"form"}
    if stream is not None:
        hidden.add("stream")
    if not everything:
        hidden |= {"state", "settled_in"}
    if all(each.revision is None for each in found):
        hidden.add("revision")
    return hidden


def _row_record(each: QuarantineRow) -> dict[str, object]:
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


def _row_table(each: QuarantineRow) -> dict[str, object]:
    plain = {name: str(value) for name, value in _row_record(each).items() if value is not None}
    settled = "" if each.state is QuarantineState.HELD else plain["settled_in"]
    named = {
        "batch": short_batch_id(each.batch_id),
        "file": relative_paths(each.row.file),
        "reason": relative_paths(each.row.reason),
    }
    return {"revision": "", **plain, **named, "settled_in": settled}


def _file_record(each: QuarantineFile) -> dict[str, object]:
    said: dict[str, object] = {"stream": each.stream, "file": each.name, "form": FILE_SCOPE, "state": each.state.value}
    said |= {"settled_in": each.settled_in, "reason": each.reason}
    return {**dict.fromkeys(field.name for field in ROW_FIELDS), **said}


def _file_table(each: QuarantineFile) -> dict[str, object]:
    said = {
        "file": relative_paths(each.name),
        "reason": relative_paths(each.reason),
        "how": each.how or "",
        "since": wall_time(each.at),
    }
    settled = "" if each.settled_in is None else each.settled_in
    return {"stream": each.stream, "state": each.state.value, "settled_in": settled, **said}
