"""Registered queries as views of the catalog's database: which ones, and one transaction that carries them all on.

A query `errata query view` has named can be read as `psoup.q_<handle>` by any program that speaks to PostgreSQL. All
views are as of one commit. They change together, in the transaction of `updating_views`, which holds a lock so that two
jobs do not write at once; a job that is killed in it has changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, text
from sqlalchemy.exc import DBAPIError, ProgrammingError

from errata.catalog import registered
from errata.catalog.database import Catalog
from errata.catalog.match_segments import BucketKey
from errata.catalog.registered_tables import (
    registered_queries,
    registered_views,
    view_buckets,
    view_exclusions,
    view_streams,
    view_windows,
)
from errata.catalog.streams import StreamState
from errata.catalog.view_sql import create_view_sql, function_sqls, view_name
from errata.catalog.view_tables import SCHEMA, BucketMatches, ViewTables, drop_tables, stored_streams
from errata.errors import ErrataError, UsageError
from errata.model.registered import RegisteredQuery


def has_views(catalog: Catalog) -> bool:
    """Whether the catalog's database can have views of registered queries."""
    return catalog.engine.dialect.name == "postgresql"


def record_views(catalog: Catalog, queries: Sequence[RegisteredQuery]) -> None:
    """Say that these queries are to be views, too. The views are there after the next update."""
    if not has_views(catalog):
        raise UsageError(
            "a registered query is a view in PostgreSQL only",
            why="SQLite compares NaN, decimals and times in other ways than Errata",
            how="name a PostgreSQL database under `catalog:`, or ask with `errata invoke`",
        )
    with catalog.writing() as connection:
        known = set(connection.execute(select(registered_views.c.number)).scalars())
        new = [{"number": each.number} for each in queries if each.number not in known]
        if new:
            connection.execute(insert(registered_views), new)


def viewed_numbers(catalog: Catalog) -> set[int]:
    """The numbers of the queries that are to be views."""
    with catalog.reading() as connection:
        return set(connection.execute(select(registered_views.c.number)).scalars())


def viewed_queries(catalog: Catalog) -> list[RegisteredQuery]:
    """The queries in force that are to be views."""
    numbers = sorted(viewed_numbers(catalog))
    return registered.registrations_by_number(catalog, numbers) if numbers else []


def views_in_use(catalog: Catalog) -> bool:
    """Whether there is a view, or was one that has not been taken away yet."""
    with catalog.reading() as connection:
        wanted = connection.execute(select(registered_views.c.number).limit(1)).first()
        return wanted is not None or connection.execute(select(view_streams.c.stream_id).limit(1)).first() is not None


def views_are_behind(catalog: Catalog, commit_id: int) -> bool:
    """Whether there are views, or are to be, that are not as of this commit."""
    if not views_in_use(catalog):
        return False
    with catalog.reading() as connection:
        newest = connection.execute(select(func.max(view_streams.c.commit_id))).scalar()
        return newest is None or newest < commit_id


@dataclass(frozen=True, slots=True)
class CountedWindow:
    """Where the window of a view's source begins that counts rows."""

    number: int
    source: int
    first: int
    """The order field of its first row."""
    lacks_rows: bool
    """Whether rows that it would hold have been aged out."""
    excluded: Mapping[BucketKey, Sequence[int]]
    """By bucket, the rows with the order field of the first one that are too many."""


@dataclass(frozen=True)
class ViewUpdate:
    """The transaction that carries the views on to a commit."""

    connection: Connection
    commit_id: int

    def is_outdated(self) -> bool:
        """Whether the views are as of a later commit already."""
        newest = select(view_streams.c.commit_id).order_by(view_streams.c.commit_id.desc()).limit(1)
        return (self.connection.execute(newest).scalar() or 0) > self.commit_id

    def tables(self, state: StreamState) -> ViewTables:
        """The tables of a stream; made, or made anew, if they are not there or have other columns than the stream."""
        tables = ViewTables(state.stream_id, state.stream)
        if not tables.fit(self.connection):
            self.drop_stream(state.stream_id)
            tables.create(self.connection)
        return tables

    def drop_stream(self, stream_id: int) -> None:
        """Drop the tables of a stream, and what is recorded about them."""
        drop_tables(self.connection, stream_id)
        for each in (view_buckets, view_streams):
            self.connection.execute(delete(each).where(each.c.stream_id == stream_id))

    def drop_other_streams(self, used: Sequence[int]) -> None:
        """Drop the tables of the streams that no view reads any more."""
        for stream_id in set(stored_streams(self.connection)) - set(used):
            self.drop_stream(stream_id)

    def known_buckets(self, stream_id: int) -> dict[BucketKey, str]:
        """The digests of the buckets whose rows are in a stream's tables."""
        query = select(view_buckets).where(view_buckets.c.stream_id == stream_id)
        return {(row.bucket_id, row.added_in): row.digest for row in self.connection.execute(query)}

    def remove_bucket(self, tables: ViewTables, bucket: BucketKey) -> None:
        """Take the rows of a bucket out."""
        tables.remove_bucket(self.connection, bucket)
        mine = (view_buckets.c.stream_id == tables.stream_id) & (view_buckets.c.bucket_id == bucket[0])
        self.connection.execute(delete(view_buckets).where(mine, view_buckets.c.added_in == bucket[1]))

    def add_bucket(self, tables: ViewTables, found: BucketMatches, digest: str) -> None:
        """Put the matching rows of a bucket in."""
        tables.add_bucket(self.connection, found)
        values = {"stream_id": tables.stream_id, "bucket_id": found.bucket[0], "added_in": found.bucket[1]}
        self.connection.execute(insert(view_buckets).values(values | {"digest": digest}))

    def set_stream(self, state: StreamState) -> None:
        """Record what NOW is for a stream, and as of which commit its rows are."""
        mine = view_streams.c.stream_id == state.stream_id
        self.connection.execute(delete(view_streams).where(mine))
        values = {"stream_id": state.stream_id, "stable": state.stable, "aged_to": state.aged_to}
        self.connection.execute(insert(view_streams).values(values | {"commit_id": self.commit_id}))

    def set_row_windows(self, windows: Sequence[CountedWindow]) -> None:
        """Record where the windows begin that count rows; those of all views."""
        for each in (view_windows, view_exclusions):
            self.connection.execute(delete(each))
        rows = [
            {"number": each.number, "source": each.source, "first": each.first, "lacks_rows": each.lacks_rows}
            for each in windows
        ]
        excluded = [
            {
                "number": each.number,
                "source": each.source,
                "bucket_id": key[0],
                "added_in": key[1],
                "position": position,
            }
            for each in windows
            for key, positions in each.excluded.items()
            for position in positions
        ]
        for table, values in ((view_windows, rows), (view_exclusions, excluded)):
            if values:
                self.connection.execute(insert(table), values)

    def set_views(self, queries: Sequence[RegisteredQuery], tables: dict[str, ViewTables]) -> None:
        """Make the views of these queries that are not there, and drop all others."""
        wanted = {view_name(each): each for each in queries}
        known = text("SELECT viewname FROM pg_views WHERE schemaname = :schema AND left(viewname, 2) = 'q_'")
        there = set(self.connection.execute(known, {"schema": SCHEMA}).scalars())
        for name in sorted(there - set(wanted)):
            self.connection.exec_driver_sql(f'DROP VIEW "{SCHEMA}"."{name}"')
        for name, query in wanted.items():
            if name not in there:
                sources = [tables[each.stream] for each in query.plan.sources]
                self.connection.exec_driver_sql(create_view_sql(query, sources))
        gone = select(registered_queries.c.number).where(registered_queries.c.removed_in.is_not(None))
        self.connection.execute(delete(registered_views).where(registered_views.c.number.in_(gone)))


@contextmanager
def updating_views(catalog: Catalog, commit_id: int) -> Iterator[ViewUpdate]:
    """The transaction that carries all views on to a commit; one at a time."""
    try:
        with catalog.writing() as connection:
            connection.exec_driver_sql("LOCK TABLE view_streams IN EXCLUSIVE MODE")
            _prepare_schema(connection)
            yield ViewUpdate(connection, commit_id)
    except DBAPIError as error:
        raise _readable(error) from None


def _prepare_schema(connection: Connection) -> None:
    known = text("SELECT 1 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = :schema")
    if connection.execute(known, {"schema": SCHEMA}).first() is not None:
        return
    connection.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{SCHEMA}"')
    home = connection.execute(text("SELECT quote_ident(current_schema())")).scalar_one()
    for each in function_sqls(home):
        connection.exec_driver_sql(each)


def _readable(error: DBAPIError) -> Exception:
    """An error that a person can mend; others are raised as they are."""
    why = str(error.orig).strip().splitlines()[0]
    if getattr(error.orig, "pgcode", None) == "42501":
        return ErrataError(
            "the views of registered queries cannot be made",
            why=why,
            how=f"let the catalog's user create the schema {SCHEMA}, or make it for them: CREATE SCHEMA {SCHEMA}"
            " AUTHORIZATION user",
        )
    if isinstance(error, ProgrammingError):
        return error
    return ErrataError("the views of registered queries cannot be carried on", why=why, how="run it again")
