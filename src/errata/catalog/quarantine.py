"""Rows that did not go in, with where they stood and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import Connection, func, insert, select

from errata.catalog.open import Catalog
from errata.catalog.tables import batches, quarantine, streams
from errata.model.batch import BadRow

CHUNK = 5_000


@dataclass(frozen=True, slots=True)
class Held:
    """A row in quarantine."""

    quarantine_id: int
    stream: str
    batch_id: str
    row: BadRow


def hold(connection: Connection, stream_id: int, batch_no: int, rows: Iterable[BadRow]) -> int:
    """Put rows into quarantine, a chunk at a time; how many there were."""
    total = 0
    source = iter(rows)
    while chunk := list(islice(source, CHUNK)):
        connection.execute(
            insert(quarantine),
            [
                {
                    "stream_id": stream_id,
                    "batch_no": batch_no,
                    "file": row.file,
                    "line": row.line,
                    # PostgreSQL's text holds no NUL; the picture of it says what stood there.
                    "text": row.text.replace("\0", "\u2400"),
                    "reason": row.reason.replace("\0", "\u2400"),
                }
                for row in chunk
            ],
        )
        total += len(chunk)
    return total


def held(
    catalog: Catalog, *, stream: str | None = None, batch_id: str | None = None, last: int | None = None
) -> list[Held]:
    """Rows in quarantine, oldest first."""
    query = (
        select(quarantine, streams.c.name, batches.c.batch_id)
        .join(streams, streams.c.stream_id == quarantine.c.stream_id)
        .join(batches, batches.c.batch_no == quarantine.c.batch_no)
        .order_by(quarantine.c.quarantine_id.desc())
    )
    if stream is not None:
        query = query.where(streams.c.name == stream)
    if batch_id is not None:
        query = query.where(batches.c.batch_id == batch_id)
    if last is not None:
        query = query.limit(last)
    with catalog.reading() as connection:
        rows = connection.execute(query).all()
    return [
        Held(row.quarantine_id, row.name, row.batch_id, BadRow(row.file, row.line, row.text, row.reason))
        for row in reversed(rows)
    ]


def counts(catalog: Catalog) -> dict[str, int]:
    """How many rows of each stream are in quarantine."""
    query = (
        select(streams.c.name, func.count())
        .join(quarantine, quarantine.c.stream_id == streams.c.stream_id)
        .where(streams.c.removed_in.is_(None))
        .group_by(streams.c.name)
    )
    with catalog.reading() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}
