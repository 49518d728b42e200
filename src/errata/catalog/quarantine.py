"""Rows and revisions that did not go in, with where they stood and why, until a person has settled each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from errata.catalog import commits, streams
from errata.catalog.open import Catalog
from errata.catalog.tables import batch_files, batches, held_files, quarantine
from errata.catalog.tables import streams as streams_table
from errata.model.batch import BadRevision, BadRow
from errata.model.commit import Cause
from errata.model.revision import Op

CHUNK = 5_000
_IDS = 500

PICTURE_OF_NUL = "\u2400"
"""PostgreSQL's text holds no NUL; the picture of it says what stood there."""


class Form(StrEnum):
    """How the text of a row is to be read: as a line of CSV, or as an object of JSON, which rows of Parquet are too."""

    CSV = "csv"
    JSON = "json"


class State(StrEnum):
    """What a person has done about a row."""

    HELD = "held"
    RETRIED = "retried"
    DROPPED = "dropped"


class SettledError(Exception):
    """Somebody else has just settled some of the rows or files."""


@dataclass(frozen=True, slots=True)
class Held:
    """A row in quarantine, or one that was."""

    quarantine_id: int
    stream: str
    batch_id: str
    row: BadRow
    form: Form = Form.CSV
    header: str | None = None
    """The line above a row of CSV, where the ledger has it."""
    default_op: Op = Op.INSERT
    """What it does if it does not say."""
    revision: int | None = None
    """The number of a revision that was found wrong when it was applied."""
    state: State = State.HELD
    settled_in: int | None = None


def hold(connection: Connection, stream_id: int, batch_no: int, rows: Iterable[BadRow]) -> int:
    """Put rows of a batch that is in the ledger into quarantine; how many there were."""
    return _insert(connection, _of_batch(connection, stream_id, batch_no, rows))


def hold_revisions(connection: Connection, stream_id: int, rows: Iterable[BadRevision]) -> int:
    """Put revisions into quarantine that cannot be applied; how many there were."""
    of_stream = {"stream_id": stream_id, "form": Form.JSON.value, "file_number": None}
    return _insert(
        connection,
        (
            of_stream
            | {"batch_no": row.batch_no, "revision": row.revision}
            | _said(BadRow(row.file, row.line, row.text, row.reason))
            for row in rows
        ),
    )


def held(
    catalog: Catalog,
    *,
    stream: str | None = None,
    stream_id: int | None = None,
    batch_id: str | None = None,
    ids: Sequence[int] = (),
    reason: str | None = None,
    settled: bool = False,
    last: int | None = None,
) -> list[Held]:
    """Rows in quarantine, oldest first: of a stream, a batch, with these ids, or whose reason has this text in it.

    `settled` gives also those that were retried or dropped.
    """
    query = (
        select(quarantine, streams_table.c.name, batches.c.batch_id, batches.c.default_op, batch_files.c.header)
        .join(streams_table, streams_table.c.stream_id == quarantine.c.stream_id)
        .join(batches, batches.c.batch_no == quarantine.c.batch_no)
        .join(
            batch_files,
            (batch_files.c.batch_no == quarantine.c.batch_no) & (batch_files.c.number == quarantine.c.file_number),
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
        query = query.where(quarantine.c.state == State.HELD.value)
    if last is not None:
        query = query.limit(last)
    with catalog.reading() as connection:
        rows = connection.execute(query).all()
    return [
        Held(
            row.quarantine_id,
            row.name,
            row.batch_id,
            BadRow(row.file, row.line, row.text, row.reason),
            Form(row.form),
            row.header,
            Op(row.default_op or Op.INSERT),
            row.revision,
            State(row.state),
            row.settled_in,
        )
        for row in reversed(rows)
    ]


def counts(catalog: Catalog) -> dict[str, int]:
    """How many rows of each stream are in quarantine."""
    query = (
        select(streams_table.c.name, func.count())
        .join(quarantine, quarantine.c.stream_id == streams_table.c.stream_id)
        .where(streams_table.c.removed_in.is_(None), quarantine.c.state == State.HELD.value)
        .group_by(streams_table.c.name)
    )
    with catalog.reading() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def settle(connection: Connection, ids: Sequence[int], state: State, commit_id: int) -> None:
    """Say what a commit did about rows that are held. If one of them no longer is, it raises."""
    for start in range(0, len(ids), _IDS):
        chunk = ids[start : start + _IDS]
        here = quarantine.c.quarantine_id.in_(chunk), quarantine.c.state == State.HELD.value
        done = connection.execute(update(quarantine).where(*here).values(state=state.value, settled_in=commit_id))
        if done.rowcount < len(chunk):
            raise SettledError


def drop(catalog: Catalog, stream_id: int, ids: Sequence[int], cause: Cause, files: Sequence[str] = ()) -> int:
    """Give up rows and landed files of a stream for good, in a commit of their own; its number."""
    with catalog.writing() as connection:
        streams.lock(connection, stream_id)
        summary = {"dropped_rows": len(ids)} | ({"dropped_files": len(files)} if files else {})
        commit_id = commits.take(connection, catalog.clock.now(), cause, stream_id=stream_id, summary=summary)
        settle(connection, ids, State.DROPPED, commit_id)
        here = held_files.c.stream_id == stream_id, held_files.c.state == State.HELD.value
        for name in files:
            change = update(held_files).where(*here, held_files.c.name == name)
            if connection.execute(change.values(state=State.DROPPED.value, settled_in=commit_id)).rowcount != 1:
                raise SettledError
        return commit_id


def _of_batch(
    connection: Connection, stream_id: int, batch_no: int, rows: Iterable[BadRow]
) -> Iterator[Mapping[str, Any]]:
    """The batch's rows as the table has them: its files tell how each is to be read."""
    query = select(batch_files.c.name, batch_files.c.number, batch_files.c.header)
    files = {each.name: each for each in connection.execute(query.where(batch_files.c.batch_no == batch_no))}
    of_batch = {"stream_id": stream_id, "batch_no": batch_no, "revision": None}
    for row in rows:
        file = files.get(row.source or row.file)
        form = Form.JSON if file is None or file.header is None else Form.CSV
        yield of_batch | {"form": form.value, "file_number": None if file is None else file.number} | _said(row)


def _said(row: BadRow) -> dict[str, Any]:
    return {
        "file": row.file,
        "line": row.line,
        "text": row.text.replace("\0", PICTURE_OF_NUL),
        "reason": row.reason.replace("\0", PICTURE_OF_NUL),
        "state": State.HELD.value,
    }


def _insert(connection: Connection, rows: Iterator[Mapping[str, Any]]) -> int:
    total = 0
    while chunk := list(islice(rows, CHUNK)):
        connection.execute(insert(quarantine), chunk)
        total += len(chunk)
    return total
