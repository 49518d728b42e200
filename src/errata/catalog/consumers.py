"""Consumers: who takes a stream's revisions one by one, and how far each has come. Later ones are not folded."""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, insert, select, update

from errata.catalog.tables import consumers


def consumed(connection: Connection, stream_id: int) -> int | None:
    """The last revision that all consumers of the stream have consumed; None when there are no consumers."""
    query = select(func.min(consumers.c.revision)).where(consumers.c.stream_id == stream_id)
    return connection.execute(query).scalar()


def note(connection: Connection, stream_id: int, name: str, revision: int) -> None:
    """A consumer, known or new, has consumed all revisions up to this one. Nobody goes back: what was consumed may have
    been folded. The caller has locked the stream."""
    one = (consumers.c.stream_id == stream_id) & (consumers.c.name == name)
    known = connection.execute(select(consumers.c.revision).where(one)).scalar()
    if known is None:
        connection.execute(insert(consumers).values(stream_id=stream_id, name=name, revision=revision))
    elif revision > known:
        connection.execute(update(consumers).where(one).values(revision=revision))


def forget(connection: Connection, stream_id: int, name: str) -> None:
    """A consumer is no more, and holds nothing back."""
    connection.execute(delete(consumers).where((consumers.c.stream_id == stream_id) & (consumers.c.name == name)))
