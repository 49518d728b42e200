"""The ledger of batches: what has been taken in, once and whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from errata.catalog.open import Catalog
from errata.catalog.tables import batch_files, batch_splits, batches
from errata.model.batch import Counts, ReadSplit, SourceFile
from errata.model.revision import Op


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch that has been taken in."""

    batch_id: str
    content_hash: str
    commit_id: int
    counts: Counts


def taken(catalog: Catalog, stream_id: int, batch_id: str) -> Taken | None:
    """The batch of this id, if it has been taken in."""
    query = select(batches).where(batches.c.stream_id == stream_id, batches.c.batch_id == batch_id)
    with catalog.reading() as connection:
        row = connection.execute(query).first()
    return Taken(row.batch_id, row.content_hash, row.commit_id, Counts(**row.counts)) if row else None


def earlier(catalog: Catalog, stream_id: int, hashes: Iterable[str]) -> dict[str, str]:
    """Of these contents, the ones taken in before, and the batch that did it."""
    with catalog.reading() as connection:
        return earlier_now(connection, stream_id, hashes)


def earlier_now(connection: Connection, stream_id: int, hashes: Iterable[str]) -> dict[str, str]:
    """The same as a transaction sees it."""
    wanted = sorted(set(hashes))
    found: dict[str, str] = {}
    for start in range(0, len(wanted), 500):
        query = (
            select(batch_files.c.sha256, batches.c.batch_id)
            .join(batches, batches.c.batch_no == batch_files.c.batch_no)
            .where(batch_files.c.stream_id == stream_id)
            .where(batch_files.c.sha256.in_(wanted[start : start + 500]))
        )
        found.update({row.sha256: row.batch_id for row in connection.execute(query)})
    return found


def times_taken(catalog: Catalog, stream_id: int, content_hash: str) -> int:
    """How many batches of this content have been taken in."""
    query = select(func.count()).where(batches.c.stream_id == stream_id, batches.c.content_hash == content_hash)
    with catalog.reading() as connection:
        return int(connection.execute(query).scalar_one())


def since(catalog: Catalog, commit_id: int, up_to: int) -> list[tuple[int, int, str]]:
    """Stream, commit and id of the batches that have brought rows after a commit, up to another one, in their order.
    What brought corrections alone is no news to who goes on: it waits to be applied."""
    query = select(batches.c.stream_id, batches.c.commit_id, batches.c.batch_id)
    query = query.where(batches.c.commit_id > commit_id, batches.c.commit_id <= up_to).order_by(batches.c.commit_id)
    query = query.where(batches.c.counts["appended"].as_integer() > 0)
    with catalog.reading() as connection:
        return [(row.stream_id, row.commit_id, row.batch_id) for row in connection.execute(query)]


def came_in(catalog: Catalog, batch_nos: Iterable[int]) -> dict[int, int]:
    """The commits with which batches came, by their numbers."""
    wanted, found = sorted(set(batch_nos)), {}
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            some = batches.c.batch_no.in_(wanted[start : start + 500])
            query = select(batches.c.batch_no, batches.c.commit_id).where(some, batches.c.commit_id.is_not(None))
            found.update({row.batch_no: row.commit_id for row in connection.execute(query)})
    return found


def known_names(catalog: Catalog, stream_id: int, names: Iterable[str]) -> set[tuple[str, int]]:
    """Of the files so named, those taken in before, each with the bytes that it had then."""
    wanted = sorted(set(names))
    found: set[tuple[str, int]] = set()
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            query = select(batch_files.c.name, batch_files.c.bytes).where(
                batch_files.c.stream_id == stream_id, batch_files.c.name.in_(wanted[start : start + 500])
            )
            found.update((row.name, row.bytes) for row in connection.execute(query))
    return found


def places(catalog: Catalog, stream_id: int, batch_id: str) -> dict[int, tuple[str, int]]:
    """For each split of a batch: the file it is of, and the line at which it begins."""
    query = (
        select(batch_splits.c.split, batch_files.c.name, batch_splits.c.first_line)
        .join(batches, batches.c.batch_no == batch_splits.c.batch_no)
        .join(
            batch_files,
            (batch_files.c.batch_no == batch_splits.c.batch_no) & (batch_files.c.number == batch_splits.c.file_number),
        )
        .where(batches.c.stream_id == stream_id, batches.c.batch_id == batch_id)
    )
    with catalog.reading() as connection:
        return {row.split: (row.name, row.first_line) for row in connection.execute(query)}


def enter(
    connection: Connection,
    stream_id: int,
    batch_id: str,
    content_hash: str,
    files: Sequence[SourceFile],
    splits: Sequence[ReadSplit],
    counts: Counts,
    default_op: Op = Op.INSERT,
) -> int:
    """Write a batch into the ledger; its commit is set by `settle`. A second one of the same id raises."""
    entry = {
        "stream_id": stream_id,
        "batch_id": batch_id,
        "content_hash": content_hash,
        "counts": asdict(counts),
        "default_op": None if default_op is Op.INSERT else default_op.value,
    }
    batch_no = connection.execute(insert(batches).values(entry).returning(batches.c.batch_no)).scalar_one()
    numbers = {file.name: number for number, file in enumerate(files)}
    _insert_all(
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
            }
            for file in files
        ],
    )
    _insert_all(
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
            for read in splits
        ],
    )
    return int(batch_no)


def settle(connection: Connection, batch_no: int, commit_id: int) -> None:
    """Say which commit took the batch in."""
    connection.execute(update(batches).where(batches.c.batch_no == batch_no).values(commit_id=commit_id))


def _insert_all(connection: Connection, table: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(insert(table), list(rows))
