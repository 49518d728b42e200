"""Quarantine: rows, revisions and landed files that could not be taken in, until a person retries or drops them.

A row keeps its text, its file and line, and the reason. A landed file is known by its name, size and modification
time: while these are the same it is not tried again; a file that has been written anew is another file, and is tried.
Only the newest entry of a name is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, delete, func, insert, select, update

from errata.catalog import streams
from errata.catalog.database import Catalog
from errata.catalog.tables import batch_files, batches, held_files, quarantine
from errata.catalog.tables import streams as streams_table
from errata.catalog.transaction import Conflict, Transaction
from errata.model.batch import BadRevision, BadRow, Op
from errata.model.commit import Cause

ROWS_PER_INSERT = 5_000
"""Rows in one INSERT: bounds the memory of a batch with very many bad rows."""

_IDS_PER_STATEMENT = 500

PICTURE_OF_NUL = "\u2400"
"""Stands for NUL in the text of a row, which a column of PostgreSQL cannot hold."""


class RowSyntax(StrEnum):
    """How the text of a row is written: as a line of CSV, or as an object of JSON, as rows of Parquet are."""

    CSV = "csv"
    JSON = "json"


class QuarantineState(StrEnum):
    """What a person has done about a row or file."""

    HELD = "held"
    RETRIED = "retried"
    DROPPED = "dropped"


class QuarantineConflict(Conflict):
    """Another process has just settled some of the rows or files."""


@dataclass(frozen=True, slots=True)
class QuarantineRow:
    """A row in quarantine, or one that was."""

    quarantine_id: int
    stream: str
    batch_id: str
    row: BadRow
    form: RowSyntax = RowSyntax.CSV
    header: str | None = None
    """The header of a CSV row's file, where the ledger has it."""
    default_op: Op = Op.INSERT
    """What the row does if it has no operation of its own."""
    revision: int | None = None
    """The number of a revision that was found wrong when it was applied; None for a row."""
    state: QuarantineState = QuarantineState.HELD
    settled_in: int | None = None
    feed: str | None = None
    """The feed that said it, of a stream with feeds."""


def quarantine_rows(connection: Connection, stream_id: int, batch_no: int, rows: Iterable[BadRow]) -> int:
    """Put rows of a batch that is in the ledger into quarantine, and return their number."""
    return _insert_rows(connection, _batch_values(connection, stream_id, batch_no, rows))


def quarantine_revisions(connection: Connection, stream_id: int, rows: Iterable[BadRevision]) -> int:
    """Put revisions that cannot be applied into quarantine, and return their number."""
    of_stream = {"stream_id": stream_id, "form": RowSyntax.JSON.value, "file_number": None}
    return _insert_rows(
        connection,
        (
            of_stream
            | {"batch_no": row.batch_no, "revision": row.revision}
            | _row_values(BadRow(row.file, row.line, row.text, row.reason))
            for row in rows
        ),
    )


def quarantined_rows(
    catalog: Catalog,
    *,
    stream: str | None = None,
    stream_id: int | None = None,
    batch_id: str | None = None,
    ids: Sequence[int] = (),
    reason: str | None = None,
    settled: bool = False,
    last: int | None = None,
) -> list[QuarantineRow]:
    """Rows in quarantine, oldest first: of a stream, a batch, with these ids, or whose reason has this text in it.

    `settled` gives also those that were retried or dropped.
    """
    query = (
        select(
            quarantine,
            streams_table.c.name,
            batches.c.batch_id,
            batches.c.default_op,
            batch_files.c.header,
            batch_files.c.feed,
        )
        .join(streams_table, streams_table.c.stream_id == quarantine.c.stream_id)
        .join(batches, batches.c.batch_no == quarantine.c.batch_no)
        .join(
            batch_files,
            (batch_files.c.batch_no == quarantine.c.batch_no) & _is_file_of_row(),
            isouter=True,
        )
        .order_by(quarantine.c.quarantine_id.desc())
    )
    if stream is not None:
        query = query.where(streams_table.c.name == stream)
    if stream_id is not None:
        query = query.where(quarantine.c.stream_id == stream_id)
    if batch_id is not None:
        query = query.where(batches.c.batch_id == batch_id)
    if ids:
        query = query.where(quarantine.c.quarantine_id.in_(ids))
    if reason is not None:
        query = query.where(quarantine.c.reason.icontains(reason, autoescape=True))
    if not settled:
        query = query.where(quarantine.c.state == QuarantineState.HELD.value)
    if last is not None:
        query = query.limit(last)
    with catalog.reading() as connection:
        rows = connection.execute(query).all()
    return [_quarantine_row(row) for row in reversed(rows)]


def _quarantine_row(row: Row[Any]) -> QuarantineRow:
    return QuarantineRow(
        row.quarantine_id,
        row.name,
        row.batch_id,
        BadRow(row.file, row.line, row.text, row.reason),
        RowSyntax(row.form),
        row.header if row.file_number is not None else None,
        Op(row.default_op or Op.INSERT),
        row.revision,
        QuarantineState(row.state),
        row.settled_in,
        row.feed,
    )


def _is_file_of_row() -> ColumnElement[bool]:
    """The file of the batch that brought a row; of a revision that was found wrong, the file by its name."""
    number, name = quarantine.c.file_number, quarantine.c.file
    return (batch_files.c.number == number) | (number.is_(None) & (batch_files.c.name == name))


def quarantined_row_counts(catalog: Catalog) -> dict[str, int]:
    """How many rows of each stream are in quarantine."""
    return _held_counts(catalog, quarantine)


def settle_rows(connection: Connection, ids: Sequence[int], state: QuarantineState, commit_id: int) -> None:
    """Record what a commit did about rows that are held; a conflict if one of them no longer is."""
    for start in range(0, len(ids), _IDS_PER_STATEMENT):
        chunk = ids[start : start + _IDS_PER_STATEMENT]
        here = quarantine.c.quarantine_id.in_(chunk), quarantine.c.state == QuarantineState.HELD.value
        done = connection.execute(update(quarantine).where(*here).values(state=state.value, settled_in=commit_id))
        if done.rowcount < len(chunk):
            raise QuarantineConflict


def drop_quarantined(
    catalog: Catalog, stream_id: int, ids: Sequence[int], cause: Cause, files: Sequence[str] = ()
) -> int:
    """Drop rows and landed files of a stream for good, in a commit of their own, and return its number."""
    with catalog.writing() as connection:
        row = streams.lock_stream(connection, stream_id)
        summary = {"dropped_rows": len(ids)} | ({"dropped_files": len(files)} if files else {})
        commit_id = Transaction(cause=cause, summary=summary, archive=row).commit(connection, catalog.clock.now())
        settle_rows(connection, ids, QuarantineState.DROPPED, commit_id)
        here = held_files.c.stream_id == stream_id, held_files.c.state == QuarantineState.HELD.value
        for name in files:
            change = update(held_files).where(*here, held_files.c.name == name)
            if (
                connection.execute(change.values(state=QuarantineState.DROPPED.value, settled_in=commit_id)).rowcount
                != 1
            ):
                raise QuarantineConflict
        return commit_id


def _batch_values(
    connection: Connection, stream_id: int, batch_no: int, rows: Iterable[BadRow]
) -> Iterator[Mapping[str, Any]]:
    """Rows of the table for the batch's rows; the batch's files tell how each is written."""
    query = select(batch_files.c.name, batch_files.c.number, batch_files.c.header)
    files = {each.name: each for each in connection.execute(query.where(batch_files.c.batch_no == batch_no))}
    of_batch = {"stream_id": stream_id, "batch_no": batch_no, "revision": None}
    for row in rows:
        file = files.get(row.source or row.file)
        form = RowSyntax.JSON if file is None or file.header is None else RowSyntax.CSV
        yield of_batch | {"form": form.value, "file_number": None if file is None else file.number} | _row_values(row)


def _row_values(row: BadRow) -> dict[str, Any]:
    return {
        "file": row.file,
        "line": row.line,
        "text": row.text.replace("\0", PICTURE_OF_NUL),
        "reason": row.reason.replace("\0", PICTURE_OF_NUL),
        "state": QuarantineState.HELD.value,
    }


def _insert_rows(connection: Connection, rows: Iterator[Mapping[str, Any]]) -> int:
    total = 0
    while chunk := list(islice(rows, ROWS_PER_INSERT)):
        connection.execute(insert(quarantine), chunk)
        total += len(chunk)
    return total


_NAMES_PER_STATEMENT = 500


@dataclass(frozen=True, slots=True)
class QuarantineFile:
    """A file in quarantine, or one that a person has dropped."""

    stream: str
    name: str
    bytes: int
    changed: int
    reason: str
    how: str | None
    """How to mend it."""
    at: int
    """When it was set aside."""
    state: QuarantineState = QuarantineState.HELD
    settled_in: int | None = None

    @property
    def seen(self) -> tuple[str, int, int]:
        """What identifies the file."""
        return self.name, self.bytes, self.changed


def quarantine_files(catalog: Catalog, stream_id: int, files: Sequence[QuarantineFile]) -> None:
    """Put files into quarantine, instead of what was held under their names before."""
    with catalog.writing() as connection:
        _delete_files(connection, stream_id, [each.name for each in files])
        entries = [
            {
                "stream_id": stream_id,
                "name": each.name,
                "bytes": each.bytes,
                "changed": each.changed,
                "reason": each.reason,
                "how": each.how,
                "at": each.at,
                "state": QuarantineState.HELD.value,
                "settled_in": None,
            }
            for each in files
        ]
        if entries:
            connection.execute(insert(held_files), entries)


def forget_quarantined_files(catalog: Catalog, stream_id: int, names: Collection[str]) -> None:
    """Take files out of quarantine that are gone, have been written anew, or have been taken in."""
    if names:
        with catalog.writing() as connection:
            _delete_files(connection, stream_id, names)


def quarantined_files(
    catalog: Catalog,
    *,
    stream: str | None = None,
    stream_id: int | None = None,
    reason: str | None = None,
    settled: bool = False,
) -> list[QuarantineFile]:
    """Files that are held, the oldest first; with `settled` also those that were dropped."""
    query = select(held_files, streams_table.c.name.label("stream"))
    query = query.join(streams_table, streams_table.c.stream_id == held_files.c.stream_id)
    query = query.where(streams_table.c.removed_in.is_(None)).order_by(held_files.c.at, held_files.c.name)
    if stream is not None:
        query = query.where(streams_table.c.name == stream)
    if stream_id is not None:
        query = query.where(held_files.c.stream_id == stream_id)
    if reason is not None:
        query = query.where(held_files.c.reason.icontains(reason, autoescape=True))
    if not settled:
        query = query.where(held_files.c.state == QuarantineState.HELD.value)
    with catalog.reading() as connection:
        return [_file_from_row(row) for row in connection.execute(query)]


def quarantined_file_counts(catalog: Catalog) -> dict[str, int]:
    """How many files of each stream are held."""
    return _held_counts(catalog, held_files)


def _held_counts(catalog: Catalog, held: Table) -> dict[str, int]:
    query = (
        select(streams_table.c.name, func.count())
        .join(held, held.c.stream_id == streams_table.c.stream_id)
        .where(streams_table.c.removed_in.is_(None), held.c.state == QuarantineState.HELD.value)
        .group_by(streams_table.c.name)
    )
    with catalog.reading() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def _delete_files(connection: Connection, stream_id: int, names: Collection[str]) -> None:
    ordered = sorted(names)
    for start in range(0, len(ordered), _NAMES_PER_STATEMENT):
        some = held_files.c.name.in_(ordered[start : start + _NAMES_PER_STATEMENT])
        connection.execute(delete(held_files).where(held_files.c.stream_id == stream_id, some))


def _file_from_row(row: Row[Any]) -> QuarantineFile:
    return QuarantineFile(
        row.stream,
        row.name,
        row.bytes,
        row.changed,
        row.reason,
        row.how,
        row.at,
        QuarantineState(row.state),
        row.settled_in,
    )
