"""The rows that views of registered queries read, as tables of PostgreSQL: two for each stream, in a schema of theirs.

    psoup.rows_7      _bucket, _added_in, _position │ the stream's columns       a row that some conjunction holds of
    psoup.matches_7   _conjunction, _order, _bucket, _added_in, _position        one for each conjunction that does

A row is there once, however many queries it belongs to, and a window of a conjunction is a range of the key of
`matches`. Rows are named by their bucket and place in it: when something about a bucket changes, its rows are taken out
and put in again. Texts are compared by their bytes, as everywhere in Errata (`COLLATE "C"`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from sqlalchemy import BigInteger, Column, Connection, Index, Integer, MetaData, Table, Text, and_, delete, inspect

from errata.catalog.match_segments import BucketKey
from errata.catalog.result_columns import RECORDS_PER_WRITE, copy_column, copy_columns, sql_type
from errata.model.columns import ColumnType, TypeKind
from errata.model.stream import Stream

SCHEMA = "psoup"
"""The schema of the database in which these tables and the views are."""

BUCKET, ADDED_IN, POSITION = "_bucket", "_added_in", "_position"
CONJUNCTION, ORDER = "_conjunction", "_order"
_PLACE = (BUCKET, ADDED_IN, POSITION)
_BIGINT = ColumnType(TypeKind.BIGINT)
_TEXT = Text(collation="C")


@dataclass(frozen=True, slots=True)
class BucketMatches:
    """The live rows of a bucket that conjunctions hold of."""

    bucket: BucketKey
    positions: np.ndarray
    """Of all rows that any of the conjunctions holds of, in order."""
    rows: pa.Table
    """These rows."""
    order: np.ndarray
    """Their order fields."""
    matches: Mapping[int, np.ndarray]
    """By conjunction, which of these rows it holds of: their places among them."""


@dataclass(frozen=True)
class ViewTables:
    """The two tables of a stream."""

    stream_id: int
    stream: Stream

    @cached_property
    def rows(self) -> Table:
        columns = [
            Column(each.name, _TEXT if each.type.kind is TypeKind.STRING else sql_type(each.type))
            for each in self.stream.columns
        ]
        return Table(f"rows_{self.stream_id}", MetaData(schema=SCHEMA), *_place_columns(), *columns)

    @cached_property
    def matches(self) -> Table:
        name = f"matches_{self.stream_id}"
        return Table(
            name,
            MetaData(schema=SCHEMA),
            Column(CONJUNCTION, BigInteger, primary_key=True, autoincrement=False),
            Column(ORDER, BigInteger, primary_key=True, autoincrement=False),
            *_place_columns(),
            Index(f"ix_{name}_bucket", BUCKET, ADDED_IN),
        )

    def fit(self, connection: Connection) -> bool:
        """Whether the tables are there and have the columns of the stream."""
        looking = inspect(connection)
        if not looking.has_table(self.rows.name, schema=SCHEMA):
            return False
        there = [
            (each["name"], each["type"].compile(connection.dialect))
            for each in looking.get_columns(self.rows.name, schema=SCHEMA)
        ]
        return there == [(each.name, each.type.compile(connection.dialect)) for each in self.rows.columns]

    def create(self, connection: Connection) -> None:
        """Make the empty tables."""
        for each in (self.rows, self.matches):
            each.create(connection)

    def remove_bucket(self, connection: Connection, bucket: BucketKey) -> None:
        """Take out what is there of a bucket."""
        for each in (self.matches, self.rows):
            connection.execute(delete(each).where(and_(each.c[BUCKET] == bucket[0], each.c[ADDED_IN] == bucket[1])))

    def add_bucket(self, connection: Connection, found: BucketMatches) -> None:
        """Put in the matching rows of a bucket."""
        key = [str(each) for each in found.bucket]
        positions = pa.array(found.positions, pa.int64())
        for start in range(0, len(positions), RECORDS_PER_WRITE):
            places = positions.slice(start, RECORDS_PER_WRITE)
            piece = found.rows.slice(start, RECORDS_PER_WRITE).combine_chunks()
            columns = [copy_column(_array(piece[each.name]), each.type) for each in self.stream.columns]
            copy_columns(connection, self.rows, [*key, copy_column(places, _BIGINT), *columns])
        for number, places_of in found.matches.items():
            for start in range(0, len(places_of), RECORDS_PER_WRITE):
                chosen = places_of[start : start + RECORDS_PER_WRITE]
                columns = [
                    copy_column(pa.array(values[chosen], pa.int64()), _BIGINT)
                    for values in (found.order, found.positions)
                ]
                copy_columns(connection, self.matches, [str(number), columns[0], *key, columns[1]])


def _place_columns() -> list[Column[int]]:
    kinds = (BigInteger(), BigInteger(), Integer())
    return [Column(name, kind, primary_key=True, autoincrement=False) for name, kind in zip(_PLACE, kinds, strict=True)]


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def stored_streams(connection: Connection) -> Collection[int]:
    """The streams that have such tables."""
    names = inspect(connection).get_table_names(schema=SCHEMA)
    return {int(each.removeprefix("rows_")) for each in names if each.startswith("rows_")}


def drop_tables(connection: Connection, stream_id: int) -> None:
    """Drop the tables of a stream, with the views that read them."""
    for name in (f"matches_{stream_id}", f"rows_{stream_id}"):
        connection.exec_driver_sql(f'DROP TABLE IF EXISTS "{SCHEMA}"."{name}" CASCADE')
