"""Landed files of which nothing can be taken in: where each lies, why it is left there, and what a person did about it.

A file is held as it was seen: by its name, size and modification time. While these are the same it is not tried again;
one that has been written anew is another file, and no longer held. Only the newest look at a name is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select

from errata.catalog.open import Catalog
from errata.catalog.quarantine import State
from errata.catalog.tables import held_files
from errata.catalog.tables import streams as streams_table

_NAMES = 500


@dataclass(frozen=True, slots=True)
class HeldFile:
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
    state: State = State.HELD
    settled_in: int | None = None

    @property
    def seen(self) -> tuple[str, int, int]:
        """What the file is known by."""
        return self.name, self.bytes, self.changed


def set_aside(catalog: Catalog, stream_id: int, files: Sequence[HeldFile]) -> None:
    """Hold files, in place of what was held under their names before."""
    with catalog.writing() as connection:
        _forget(connection, stream_id, [each.name for each in files])
        entries = [
            {
                "stream_id": stream_id,
                "name": each.name,
                "bytes": each.bytes,
                "changed": each.changed,
                "reason": each.reason,
                "how": each.how,
                "at": each.at,
                "state": State.HELD.value,
                "settled_in": None,
            }
            for each in files
        ]
        if entries:
            connection.execute(insert(held_files), entries)


def forget(catalog: Catalog, stream_id: int, names: Collection[str]) -> None:
    """Hold files of these names no longer: they are gone, have been written anew, or have been taken in."""
    if names:
        with catalog.writing() as connection:
            _forget(connection, stream_id, names)


def held(
    catalog: Catalog,
    *,
    stream: str | None = None,
    stream_id: int | None = None,
    reason: str | None = None,
    settled: bool = False,
) -> list[HeldFile]:
    """Files that are held, those set aside first before others; `settled` gives also those that were dropped."""
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
        query = query.where(held_files.c.state == State.HELD.value)
    with catalog.reading() as connection:
        return [_file(row) for row in connection.execute(query)]


def counts(catalog: Catalog) -> dict[str, int]:
    """How many files of each stream are held."""
    query = (
        select(streams_table.c.name, func.count())
        .join(held_files, held_files.c.stream_id == streams_table.c.stream_id)
        .where(streams_table.c.removed_in.is_(None), held_files.c.state == State.HELD.value)
        .group_by(streams_table.c.name)
    )
    with catalog.reading() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def _forget(connection: Connection, stream_id: int, names: Collection[str]) -> None:
    ordered = sorted(names)
    for start in range(0, len(ordered), _NAMES):
        some = held_files.c.name.in_(ordered[start : start + _NAMES])
        connection.execute(delete(held_files).where(held_files.c.stream_id == stream_id, some))


def _file(row: Row[Any]) -> HeldFile:
    return HeldFile(
        row.stream,
        row.name,
        row.bytes,
        row.changed,
        row.reason,
        row.how,
        row.at,
        State(row.state),
        row.settled_in,
    )
