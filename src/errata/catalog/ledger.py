"""The ledger of batches: which batches, of which files, have been taken in, each exactly once.

A batch is one row of `batches`, one of `batch_files` for each file and one of `batch_splits` for each piece of a file
that one task read, with its first line: so a stored position tells the file and line that a row came from. The same
batch taken in again after an undo is another batch, a take, that names the first one in `again_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, insert, select, update

from errata.catalog.database import Catalog
from errata.catalog.tables import batch_files, batch_splits, batches
from errata.model.batch import Batch, BatchCounts, Delivery, Op, retake_id, split_and_ordinal


@dataclass(frozen=True, slots=True)
class LedgerBatch:
    """A batch that has been taken in."""

    batch_no: int
    batch_id: str
    content_hash: str
    commit_id: int
    counts: BatchCounts
    undone_in: int | None = None
    """The commit in which it was undone, if the undo stands."""


def find_batch(catalog: Catalog, stream_id: int, batch_id: str) -> LedgerBatch | None:
    """The batch with exactly this id, if it has been taken in."""
    return next((each for each in batch_takes(catalog, stream_id, batch_id) if each.batch_id == batch_id), None)


def batch_takes(catalog: Catalog, stream_id: int, batch_id: str) -> list[LedgerBatch]:
    """All takes of the batch with this id, in their order: a batch is taken in again after an undo, or on demand."""
    first = select(batches.c.batch_no).where(batches.c.stream_id == stream_id, batches.c.batch_id == batch_id)
    with catalog.reading() as connection:
        found = connection.execute(first).scalar()
        if found is None:
            return []
        query = select(batches).where((batches.c.batch_no == found) | (batches.c.again_of == found))
        rows = connection.execute(query.order_by(batches.c.batch_no)).all()
        undone = undo_commits(connection, stream_id, [row.batch_no for row in rows])
    return [
        LedgerBatch(
            row.batch_no,
            row.batch_id,
            row.content_hash,
            row.commit_id,
            BatchCounts(**row.counts),
            undone.get(row.batch_no),
        )
        for row in rows
    ]


def newest_batch_id(catalog: Catalog, stream_id: int, beginning: str) -> str | None:
    """The id of the newest batch whose id begins so; also of one that has been undone."""
    query = select(batches.c.batch_id).where(
        batches.c.stream_id == stream_id, batches.c.batch_id.startswith(beginning, autoescape=True)
    )
    with catalog.reading() as connection:
        return connection.execute(query.order_by(batches.c.batch_no.desc()).limit(1)).scalar()


def undo_commits(connection: Connection, stream_id: int, batch_nos: Iterable[int]) -> dict[int, int]:
    """The undone ones of these batches, with the commits that undid them. An undo that was itself undone does not
    count."""
    query = select(batches.c.batch_no, batches.c.undoes, batches.c.commit_id)
    query = query.where(batches.c.stream_id == stream_id, batches.c.undoes.is_not(None))
    undo_of = {row.undoes: row for row in connection.execute(query)}

    def standing_undo(batch_no: int) -> int | None:
        undo = undo_of.get(batch_no)
        return None if undo is None or standing_undo(undo.batch_no) is not None else undo.commit_id

    found = {batch_no: standing_undo(batch_no) for batch_no in batch_nos}
    return {batch_no: commit_id for batch_no, commit_id in found.items() if commit_id is not None}


def next_take_id(catalog: Catalog, stream_id: int, batch_id: str) -> str:
    """The id of the next take of a batch."""
    number = max(1, len(batch_takes(catalog, stream_id, batch_id)))
    while batch_takes(catalog, stream_id, retake_id(batch_id, number)):
        number += 1  # a batch of another kind has been given the id
    return retake_id(batch_id, number)


def deliveries(catalog: Catalog, stream_id: int, hashes: Iterable[str]) -> list[Delivery]:
    """The files with these contents that batches have brought, in the order in which they came."""
    with catalog.reading() as connection:
        return deliveries_within(connection, stream_id, hashes)


def deliveries_within(connection: Connection, stream_id: int, hashes: Iterable[str]) -> list[Delivery]:
    """The same, within a transaction."""
    wanted = sorted(set(hashes))
    found: list[Delivery] = []
    for start in range(0, len(wanted), 500):
        found += _select_deliveries(connection, stream_id, batch_files.c.sha256.in_(wanted[start : start + 500]))
    return sorted(found, key=lambda each: (each.batch_no, each.name))


def _select_deliveries(connection: Connection, stream_id: int, wanted: ColumnElement[bool]) -> list[Delivery]:
    query = (
        select(batch_files, batches.c.batch_id, batches.c.commit_id)
        .join(batches, batches.c.batch_no == batch_files.c.batch_no)
        .where(batch_files.c.stream_id == stream_id, wanted)
    )
    rows = connection.execute(query).all()
    undone = undo_commits(connection, stream_id, {row.batch_no for row in rows}) if rows else {}
    return [
        Delivery(
            row.batch_no,
            row.batch_id,
            row.commit_id,
            row.name,
            row.bytes,
            row.sha256,
            row.changed,
            undone.get(row.batch_no),
            row.feed,
        )
        for row in rows
    ]


def appended_batches(catalog: Catalog, commit_id: int, up_to: int) -> list[tuple[int, int, str]]:
    """Stream, commit and id of the batches that brought rows after one commit, up to another, in their order. A batch
    of corrections alone is left out: its corrections wait to be applied."""
    query = select(batches.c.stream_id, batches.c.commit_id, batches.c.batch_id)
    query = query.where(batches.c.commit_id > commit_id, batches.c.commit_id <= up_to).order_by(batches.c.commit_id)
    query = query.where(batches.c.counts["appended"].as_integer() > 0)
    with catalog.reading() as connection:
        return [(row.stream_id, row.commit_id, row.batch_id) for row in connection.execute(query)]


def commits_of_batches(catalog: Catalog, batch_nos: Iterable[int]) -> dict[int, int]:
    """The commits that took batches in, by the numbers of the batches."""
    wanted, found = sorted(set(batch_nos)), {}
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            some = batches.c.batch_no.in_(wanted[start : start + 500])
            query = select(batches.c.batch_no, batches.c.commit_id).where(some, batches.c.commit_id.is_not(None))
            found.update({row.batch_no: row.commit_id for row in connection.execute(query)})
    return found


def known_files(catalog: Catalog, stream_id: int, names: Iterable[str]) -> set[tuple[str, int, int | None]]:
    """Of the files so named, those taken in before, each with the bytes and the modification time that it had then."""
    wanted = sorted(set(names))
    found: set[tuple[str, int, int | None]] = set()
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            query = select(batch_files.c.name, batch_files.c.bytes, batch_files.c.changed).where(
                batch_files.c.stream_id == stream_id, batch_files.c.name.in_(wanted[start : start + 500])
            )
            found.update((row.name, row.bytes, row.changed) for row in connection.execute(query))
    return found


def files_of_batch(catalog: Catalog, stream_id: int, batch_no: int) -> list[Delivery]:
    """The files that a batch has brought."""
    with catalog.reading() as connection:
        return _select_deliveries(connection, stream_id, batch_files.c.batch_no == batch_no)


def insert_batch(connection: Connection, stream_id: int, entry: Batch) -> int:
    """Enter a batch and return its number; `set_batch_commit` completes the entry. A second one of the same id raises
    an IntegrityError."""
    values = {
        "stream_id": stream_id,
        "batch_id": entry.batch_id,
        "content_hash": entry.content_hash,
        "counts": asdict(entry.counts),
        "default_op": None if entry.default_op is Op.INSERT else entry.default_op.value,
        "again_of": entry.again_of,
        "undoes": entry.undoes,
    }
    batch_no = connection.execute(insert(batches).values(values).returning(batches.c.batch_no)).scalar_one()
    numbers = {file.name: number for number, file in enumerate(entry.files)}
    _insert_rows(
        connection,
        batch_files,
        [
            {
                "batch_no": batch_no,
                "number": numbers[file.name],
                "stream_id": stream_id,
                "name": file.name,
                "sha256": file.sha256,
                "bytes": file.bytes,
                "header": file.header,
                "changed": file.changed,
                "feed": file.feed,
            }
            for file in entry.files
        ],
    )
    _insert_rows(
        connection,
        batch_splits,
        [
            {
                "batch_no": batch_no,
                "split": read.split.number,
                "file_number": numbers[read.split.file.name],
                "first_line": read.first_line,
                "lines": read.lines,
            }
            for read in entry.splits
        ],
    )
    return int(batch_no)


def set_batch_commit(connection: Connection, batch_no: int, commit_id: int) -> None:
    """Complete the entry of a batch: the commit that took it in."""
    connection.execute(update(batches).where(batches.c.batch_no == batch_no).values(commit_id=commit_id))


def _insert_rows(connection: Connection, table: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), list(rows))


# Where rows came from: the batch of a number, its commit, and the files and lines behind stored positions.


@dataclass(frozen=True, slots=True)
class BatchOrigin:
    """A batch, and the way from a position in it back to a file and a line."""

    batch_id: str
    commit_id: int
    undoes: int | None = None
    splits: dict[int, tuple[str, int]] = field(default_factory=dict)
    """For each split the file it is of, and the line at which it begins."""
    feeds: dict[str, str] = field(default_factory=dict)
    """The feeds of its files, by their names."""

    def line_of(self, pos: int) -> tuple[str, int]:
        """The file and line of a position; no file and 0 for what no file said."""
        number, ordinal = split_and_ordinal(pos)
        if number not in self.splits:
            return "", 0
        name, first = self.splits[number]
        return name, first + ordinal


def batch_origins(catalog: Catalog, batch_nos: Iterable[int]) -> dict[int, BatchOrigin]:
    """The origins behind batch numbers."""
    wanted = sorted(set(batch_nos))
    found: dict[int, BatchOrigin] = {}
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            some = wanted[start : start + 500]
            for row in connection.execute(select(batches).where(batches.c.batch_no.in_(some))):
                found[row.batch_no] = BatchOrigin(row.batch_id, row.commit_id, row.undoes)
            files = (batch_files.c.batch_no == batch_splits.c.batch_no) & (
                batch_files.c.number == batch_splits.c.file_number
            )
            query = select(batch_splits, batch_files.c.name, batch_files.c.feed).join(batch_files, files)
            query = query.where(batch_splits.c.batch_no.in_(some))
            for row in connection.execute(query):
                found[row.batch_no].splits[row.split] = row.name, row.first_line
                if row.feed is not None:
                    found[row.batch_no].feeds[row.name] = row.feed
    return found
