"""Streams as the catalog has recorded them, their state now or at a commit, and their consumers.

The row of a stream holds its state now; every commit that changes it adds a position, which holds the state after that
commit. A consumer takes a stream's revisions one by one, and its row says how far it has come: compaction folds no
revision that a consumer has still to take.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Connection, Row, Select, bindparam, delete, func, insert, select, update

from errata.catalog.database import Catalog
from errata.catalog.tables import consumers, declarations, positions, streams
from errata.errors import unknown_name_error
from errata.model.stream import Stream, stream_from_record


def consumed_revision(connection: Connection, stream_id: int) -> int | None:
    """The last revision that all consumers of the stream have consumed; None when there are no consumers."""
    query = select(func.min(consumers.c.revision)).where(consumers.c.stream_id == stream_id)
    return connection.execute(query).scalar()


def record_consumed(connection: Connection, stream_id: int, name: str, revision: int) -> None:
    """Record that a consumer, known or new, has consumed all revisions up to this one. It never goes back, because what
    was consumed may have been folded. The caller has locked the stream."""
    one = (consumers.c.stream_id == stream_id) & (consumers.c.name == name)
    known = connection.execute(select(consumers.c.revision).where(one)).scalar()
    if known is None:
        connection.execute(insert(consumers).values(stream_id=stream_id, name=name, revision=revision))
    elif revision > known:
        connection.execute(update(consumers).where(one).values(revision=revision))


def drop_consumer(connection: Connection, stream_id: int, name: str) -> None:
    """Delete a consumer: it holds no revisions back any more."""
    connection.execute(delete(consumers).where((consumers.c.stream_id == stream_id) & (consumers.c.name == name)))


_POSITION_COLUMNS = ("stable", "vs_max", "rows", "applied", "aged_to", "folded")
_LOCK_STREAM = select(streams).where(streams.c.stream_id == bindparam("stream")).with_for_update()
_INSERT_POSITION = insert(positions).from_select(
    ["stream_id", "commit_id", *_POSITION_COLUMNS],
    select(
        streams.c.stream_id, bindparam("commit", type_=BigInteger), *(streams.c[name] for name in _POSITION_COLUMNS)
    ).where(streams.c.stream_id == bindparam("stream")),
)


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream and its state at a commit."""

    stream_id: int
    stream: Stream
    stable: int | None
    vs_max: int | None
    rows: int
    inline_bytes: int
    revisions: int
    """The number of the last revision."""
    changed_in: int
    """The last commit that changed it."""
    applied: int = 0
    """Revisions up to this number are settled: applied, or found wrong."""
    aged_to: int | None = None
    """Rows before this place have been aged out; None: no row has."""
    folded: int = 0
    """Compaction has worked revisions up to this number into base buckets: they can no longer be told apart."""


def stream_state(catalog: Catalog, name: str, commit_id: int | None = None) -> StreamState:
    """The state of a stream now; with a commit, its declaration, stable point and rows as they were then."""
    with catalog.reading() as connection:
        row = connection.execute(_select_live(name, commit_id)).first()
        if row is None:
            there = [row.name for row in connection.execute(_select_live(None, commit_id))]
            raise unknown_name_error(
                "stream", name, there, where=None if commit_id is None else f"as of commit {commit_id}"
            )
        return _state_from_row(connection, row, commit_id)


def stream_states(catalog: Catalog, commit_id: int | None = None) -> list[StreamState]:
    """The states of all streams, in the order of their names, now or at a commit."""
    with catalog.reading() as connection:
        rows = connection.execute(_select_live(None, commit_id).order_by(streams.c.name)).all()
        return [_state_from_row(connection, row, commit_id) for row in rows]


def check_stream_known(catalog: Catalog, name: str) -> None:
    """Refuse a name that no stream has, and that no dropped one had."""
    with catalog.reading() as connection:
        declared = select(streams.c.name).where(streams.c.query_id.is_(None)).distinct()
        names = {row.name for row in connection.execute(declared)}
    if name not in names:
        raise unknown_name_error("stream", name, names)


def lock_stream(connection: Connection, stream_id: int) -> Row[Any]:
    """The stream's row, locked until the transaction ends, so that writers of one stream exclude each other."""
    return connection.execute(_LOCK_STREAM, {"stream": stream_id}).one()


def lock_streams(connection: Connection) -> dict[str, StreamState]:
    """All streams that are in the catalog, locked in the order of their ids, by name."""
    rows = connection.execute(_select_live(None, None).order_by(streams.c.stream_id).with_for_update()).all()
    return {row.name: current_state(connection, row) for row in rows}


def current_state(connection: Connection, row: Row[Any]) -> StreamState:
    """The state of the stream whose row the transaction has locked."""
    return _state_from_row(connection, row, None)


def is_declared_since(connection: Connection, stream_id: int, commit_id: int) -> bool:
    """Whether the declaration of the stream has changed after a commit."""
    query = select(declarations.c.added_in).where(
        declarations.c.stream_id == stream_id, declarations.c.added_in > commit_id
    )
    return connection.execute(query.limit(1)).first() is not None


def record_position(connection: Connection, stream_id: int, commit_id: int) -> None:
    """Record the state of the stream after this commit."""
    connection.execute(_INSERT_POSITION, {"stream": stream_id, "commit": commit_id})


def aged_to_as_of(connection: Connection, stream_id: int, commit_id: int) -> int | None:
    """Up to which place the stream had been aged out as of a commit."""
    query = select(positions.c.aged_to).where(positions.c.stream_id == stream_id, positions.c.commit_id <= commit_id)
    return connection.execute(query.order_by(positions.c.commit_id.desc()).limit(1)).scalar()


def aged_to_now(connection: Connection, stream_id: int) -> int | None:
    """Up to which place it has been aged out."""
    return connection.execute(select(streams.c.aged_to).where(streams.c.stream_id == stream_id)).scalar()


@dataclass(frozen=True, slots=True)
class ArchiveAge:
    """Up to which place an archive has been aged out."""

    stream_id: int
    aged_to: int | None


def archive_ages(connection: Connection, names: Collection[str]) -> dict[str, ArchiveAge]:
    """Up to which place the streams and results of these names have been aged out."""
    query = select(streams.c.name, streams.c.stream_id, streams.c.aged_to)
    query = query.where(streams.c.name.in_(names), streams.c.removed_in.is_(None))
    return {row.name: ArchiveAge(row.stream_id, row.aged_to) for row in connection.execute(query)}


def settling_commits(connection: Connection, stream_id: int, numbers: Iterable[int]) -> dict[int, int]:
    """The commit in which each of these revisions was settled; pending ones are left out."""
    query = (
        select(positions.c.applied, func.min(positions.c.commit_id))
        .where(positions.c.stream_id == stream_id)
        .group_by(positions.c.applied)
        .order_by(positions.c.applied)
    )
    steps = [(row[0], row[1]) for row in connection.execute(query)]
    found = {}
    for number in numbers:
        at = bisect_left(steps, (number,))
        if at < len(steps):
            found[number] = steps[at][1]
    return found


def age_out_commit(connection: Connection, stream_id: int, place: int) -> int | None:
    """The commit by which the rows at a place were aged out; None when they have not been."""
    query = select(func.min(positions.c.commit_id))
    query = query.where(positions.c.stream_id == stream_id, positions.c.aged_to > place)
    found = connection.execute(query).scalar()
    return None if found is None else int(found)


def _select_live(name: str | None, commit_id: int | None) -> Select[Any]:
    # The archives of queries' results have rows in the same table, and no declaration.
    query = select(streams).where(streams.c.query_id.is_(None))
    if commit_id is None:
        query = query.where(streams.c.removed_in.is_(None))
    else:
        gone = streams.c.removed_in
        query = query.where(streams.c.added_in <= commit_id, gone.is_(None) | (gone > commit_id))
    return query if name is None else query.where(streams.c.name == name)


def _state_from_row(connection: Connection, row: Row[Any], commit_id: int | None) -> StreamState:
    declared = select(declarations.c.declaration).where(declarations.c.stream_id == row.stream_id)
    then: Row[Any] | None = row
    if commit_id is not None:
        declared = declared.where(declarations.c.added_in <= commit_id)
        at = positions.c.commit_id
        query = select(positions).where(positions.c.stream_id == row.stream_id, at <= commit_id)
        then = connection.execute(query.order_by(at.desc()).limit(1)).first()
    record = connection.execute(declared.order_by(declarations.c.added_in.desc()).limit(1)).scalar_one()
    return StreamState(
        row.stream_id,
        stream_from_record(row.name, record),
        then.stable if then else None,
        then.vs_max if then else None,
        then.rows if then else 0,
        row.inline_bytes,
        row.revisions,
        row.changed_in,
        then.applied if then else 0,
        then.aged_to if then else None,
        then.folded if then else 0,
    )
