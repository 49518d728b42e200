"""The transaction of `errata apply`: declarations of streams and queries recorded, changed and dropped in one commit.

It is apart from `catalog.streams` because result tables are made with it, which costs the import of pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from errata.catalog import queries
from errata.catalog.database import Catalog
from errata.catalog.feed_commits import record_redeclared
from errata.catalog.queries import QueryChangeSet
from errata.catalog.streams import lock_streams
from errata.catalog.tables import consumers, declarations, streams
from errata.catalog.transaction import Conflict, NewArchive, Transaction, open_archive
from errata.model.commit import Cause
from errata.model.stream import Stream, stream_to_record

NO_QUERIES = QueryChangeSet()


class ApplyConflict(Conflict):
    """The streams or queries are no longer as they were when a change of them was planned."""


def apply_changes(
    catalog: Catalog,
    cause: Cause,
    *,
    write: Iterable[Stream],
    drop: Iterable[str],
    summary: Mapping[str, Any],
    planned_on: Mapping[str, int] | None = None,
    query_writes: QueryChangeSet = NO_QUERIES,
) -> int:
    """Record new and changed declarations and drop streams, in one commit. `planned_on` names the streams that there
    were when this was planned, and the commit that had last moved each; when that is no longer so, nothing is done.
    The same holds for queries."""
    with catalog.writing() as connection:
        recorded = lock_streams(connection)
        if planned_on is not None and {name: each.changed_in for name, each in recorded.items()} != planned_on:
            raise ApplyConflict
        with _query_conflicts():
            queries.check_unchanged(connection, query_writes)
        dropped = [recorded[name].stream_id for name in drop]
        ends = [*dropped, *_results_of(connection, query_writes.drop)]
        commit_id = Transaction(cause=cause, summary=summary, ends=ends).commit(connection, catalog.clock.now())
        for stream in write:
            known = recorded.get(stream.name)
            stream_id = known.stream_id if known else _open_stream(connection, stream.name, commit_id)
            values = {"stream_id": stream_id, "added_in": commit_id, "declaration": stream_to_record(stream)}
            connection.execute(insert(declarations).values(values))
            record_redeclared(connection, stream_id, commit_id, known, stream)
            moved = update(streams).where(streams.c.stream_id == stream_id)
            connection.execute(moved.values(changed_in=commit_id))
        with _query_conflicts():
            queries.record_queries(connection, commit_id, query_writes)
        # A query that is dropped holds no revisions back any more.
        for name in query_writes.drop:
            connection.execute(delete(consumers).where(consumers.c.name == queries.consumer_name(name)))
        return commit_id


def _results_of(connection: Connection, dropped: Iterable[str]) -> Iterator[int]:
    """The archives of the results of these queries."""
    for name in dropped:
        results = select(streams.c.stream_id).where(streams.c.name == name, streams.c.query_id.is_not(None))
        yield from connection.execute(results.where(streams.c.removed_in.is_(None))).scalars().all()


@contextmanager
def _query_conflicts() -> Iterator[None]:
    try:
        yield
    except queries.QueryPlanConflict:
        raise ApplyConflict from None


def _open_stream(connection: Connection, name: str, commit_id: int) -> int:
    try:
        return int(open_archive(connection, NewArchive(name), commit_id).stream_id)
    except IntegrityError:  # another process has just created it
        raise ApplyConflict from None
