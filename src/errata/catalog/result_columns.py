"""Result tables' columns, types and indexes, and the writing of change records in the database's own formats.

A value that a database cannot hold is stored as the nearest one that it can. On both, an instant outside the years 1 to
9999 is `infinity` or `-infinity`, which PostgreSQL knows and which sort correctly as text in SQLite; other instants in
SQLite are text in UTC. SQLite has no NaN, which is the text NaN there and sorts after all numbers, and its numbers have
15 digits, so decimals with more are text. In PostgreSQL U+2400 stands for U+0000, which its text cannot contain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import repeat
from math import isnan
from typing import Any

import numpy as np
import psycopg2
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Date,
    DateTime,
    Double,
    Index,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import JSON, REAL, TypeEngine

from errata.model.columns import ColumnType, TypeKind
from errata.model.results import OLD_VE, OP, VE, VS, ResultShape, changes_table_name, old_column
from errata.model.time import DAY, HIGHEST, to_datetime, to_micros

MARK_CONSTRAINT = "kept_by_errata"
"""The name of a constraint that marks the tables that Errata has made."""

SQLITE_EXACT_DIGITS = 15
"""Digits of a decimal that a number in SQLite holds exactly."""

_MAX_INDEX_COLUMNS = 32
"""Columns of an index in PostgreSQL at most."""

_SQL_TYPES: dict[TypeKind, TypeEngine[Any]] = {
    TypeKind.STRING: Text(),
    TypeKind.BOOLEAN: Boolean(),
    TypeKind.INT: Integer(),
    TypeKind.BIGINT: BigInteger(),
    TypeKind.FLOAT: REAL(),
    TypeKind.DOUBLE: Double(),
    TypeKind.DATE: Date(),
    TypeKind.TIMESTAMP: DateTime(timezone=True),
}


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A result table and the shape of its results."""

    table: str
    shape: ResultShape


@dataclass(frozen=True, slots=True)
class ResultTableColumn:
    """A column of a result table."""

    name: str
    source: str
    """Its name in the archive of the results."""
    type: ColumnType
    key: bool


def result_table_columns(shape: ResultShape) -> tuple[ResultTableColumn, ...]:
    """The columns of a result table: the visible ones, and hidden ones of the key, which identify a result."""
    shown = [ResultTableColumn(each.name, each.name, each.type, each.key) for each in shape.columns if not each.hidden]
    hidden = [each for each in shape.columns if each.hidden and each.key]
    return (
        *shown,
        *(ResultTableColumn(f"key_{n}", each.name, each.type, key=True) for n, each in enumerate(hidden, 1)),
    )


@dataclass(frozen=True, slots=True)
class ResultTablePair:
    """A result table and its table of changes, for SQLAlchemy."""

    current: Table
    changes: Table
    columns: tuple[ResultTableColumn, ...]

    @classmethod
    def of(cls, served: ResultTable) -> ResultTablePair:
        columns = result_table_columns(served.shape)
        made = MetaData()
        return cls(_current_table(made, served, columns), _changes_table(made, served, columns), columns)

    @property
    def key(self) -> list[str]:
        return [each.name for each in self.columns if each.key]

    @property
    def names(self) -> list[str]:
        """The columns of the current answer."""
        return [*(each.name for each in self.columns), "vs", "ve"]


def _current_table(made: MetaData, served: ResultTable, columns: Sequence[ResultTableColumn]) -> Table:
    time, name = _time_type(served.shape), served.table
    keys = [each.name for each in columns if each.key]
    indexes = [Index(f"ix_{name}_vs", "vs"), Index(f"ix_{name}_ve", "ve")]
    if keys:
        few = len(keys) <= _MAX_INDEX_COLUMNS
        indexes.append(Index(f"ix_{name}_key", *keys[:_MAX_INDEX_COLUMNS], unique=few))
    return Table(
        name,
        made,
        *(Column(each.name, sql_type(each.type)) for each in columns),
        Column("vs", time, nullable=False),
        Column("ve", time),
        CheckConstraint("ve IS NULL OR vs <= ve", name=MARK_CONSTRAINT),
        *indexes,
    )


def _changes_table(made: MetaData, served: ResultTable, columns: Sequence[ResultTableColumn]) -> Table:
    time, name = _time_type(served.shape), changes_table_name(served.table)
    keys, values = [each for each in columns if each.key], [each for each in columns if not each.key]
    indexes = [Index(f"ix_{name}_commit", "commit_id")]
    if keys:
        indexes.append(Index(f"ix_{name}_key", *[each.name for each in keys][:_MAX_INDEX_COLUMNS]))
    return Table(
        name,
        made,
        Column("commit_id", BigInteger, nullable=False),
        Column("op", String(8), nullable=False),
        *(Column(each.name, sql_type(each.type)) for each in keys),
        Column("vs", time, nullable=False),
        Column("ve", time),
        Column("old_ve", time),
        *(Column(each.name, sql_type(each.type)) for each in values),
        *(Column(f"old_{each.name}", sql_type(each.type)) for each in values),
        Column("cause", JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        CheckConstraint("op IN ('insert', 'replace', 'delete')", name=MARK_CONSTRAINT),
        *indexes,
    )


def _time_type(shape: ResultShape) -> TypeEngine[Any]:
    return _SQL_TYPES[TypeKind.TIMESTAMP if shape.timed else TypeKind.BIGINT]


def sql_type(kind: ColumnType) -> TypeEngine[Any]:
    """The type of a column in SQL."""
    if kind.kind is not TypeKind.DECIMAL:
        return _SQL_TYPES[kind.kind]
    exact = Numeric(kind.precision, kind.scale)
    return exact if kind.precision <= SQLITE_EXACT_DIGITS else exact.with_variant(Text(), "sqlite")


RECORDS_PER_WRITE = 20_000
"""Records that are in memory as text or Python values at a time."""

_FIRST_INSTANT, _LAST_INSTANT = to_micros(datetime(1, 1, 1, tzinfo=UTC)), to_micros(datetime.max.replace(tzinfo=UTC))
_BEFORE_ALL, _AFTER_ALL = "-infinity", "infinity"
_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_NUL, _NUL_PICTURE = "\0", "\u2400"

NullPattern = tuple[bool, ...]
"""Which columns of a key are NULL."""


def write_change_records(
    connection: Connection,
    table: Table,
    shape: ResultShape,
    commit_id: int,
    cause: Mapping[str, Any],
    batch: pa.RecordBatch,
) -> set[NullPattern]:
    """Insert change records into a table of changes; the patterns of NULLs in their keys."""
    columns = result_table_columns(shape)
    told = json.dumps(dict(cause), sort_keys=True)
    patterns: set[NullPattern] = set()
    for start in range(0, batch.num_rows, RECORDS_PER_WRITE):
        piece = batch.slice(start, RECORDS_PER_WRITE)
        patterns |= _null_patterns(piece, [each.source for each in columns if each.key])
        if connection.dialect.name == "postgresql":
            copy_columns(connection, table, [str(commit_id), *_copy_texts(piece, shape, columns), _escaped_text(told)])
        else:
            _insert_records(
                connection, table, piece.num_rows, [commit_id, *_sqlite_values(piece, shape, columns), told]
            )
    return patterns


def instant_text(micros: int) -> str:
    """An instant as both databases read it."""
    if _FIRST_INSTANT <= micros <= _LAST_INSTANT:
        return to_datetime(micros).replace(tzinfo=None).isoformat(" ", "microseconds")
    return _BEFORE_ALL if micros < _FIRST_INSTANT else _AFTER_ALL


def _null_patterns(piece: pa.RecordBatch, names: Sequence[str]) -> set[NullPattern]:
    keys = [piece.column(name) for name in names]
    if not any(each.null_count for each in keys):
        return {(False,) * len(keys)}
    found = np.unique(np.column_stack([each.is_null().to_numpy(zero_copy_only=False) for each in keys]), axis=0)
    return {tuple(map(bool, each)) for each in found}


def _source_columns(shape: ResultShape, columns: Sequence[ResultTableColumn]) -> Iterator[tuple[str, ColumnType]]:
    """The columns of the feed in the order of the table of changes, without those with one value for all records."""
    time = ColumnType(TypeKind.TIMESTAMP if shape.timed else TypeKind.BIGINT)
    yield OP, ColumnType(TypeKind.STRING)
    yield from ((each.source, each.type) for each in columns if each.key)
    yield from ((name, time) for name in (VS, VE, OLD_VE))
    values = [each for each in columns if not each.key]
    yield from ((each.source, each.type) for each in values)
    yield from ((old_column(each.source), each.type) for each in values)


def _column_values(
    piece: pa.RecordBatch, shape: ResultShape, columns: Sequence[ResultTableColumn]
) -> Iterator[tuple[pa.Array, ColumnType]]:
    """The values of the feed, with times and dates as text."""
    for name, kind in _source_columns(shape, columns):
        column = piece.column(name)
        if name in (VE, OLD_VE):
            column = pc.if_else(pc.equal(column, HIGHEST), None, column)
        if kind.kind is TypeKind.TIMESTAMP:
            column = _instant_texts(column)
        elif kind.kind is TypeKind.DATE:
            column = _date_texts(column)
        yield column, kind


def _instant_texts(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return _texts_within(column.cast(pa.int64()), _FIRST_INSTANT, _LAST_INSTANT, pa.timestamp("us"))


def _date_texts(column: pa.Array) -> pa.Array:
    return _texts_within(column.cast(pa.int32()), _FIRST_INSTANT // DAY, _LAST_INSTANT // DAY, pa.date32())


def _texts_within(numbers: pa.Array, first: int, last: int, kind: pa.DataType) -> pa.Array:
    """Days or microseconds as text, those outside the years 1 to 9999 as infinities."""
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None or (ends["min"] >= first and ends["max"] <= last):
        return numbers.cast(kind).cast(pa.string())
    early, late = pc.less(numbers, first), pc.greater(numbers, last)
    known = pc.if_else(pc.or_(early, late), pa.scalar(0, numbers.type), numbers).cast(kind).cast(pa.string())
    return pc.if_else(early, _BEFORE_ALL, pc.if_else(late, _AFTER_ALL, known))


def _copy_texts(piece: pa.RecordBatch, shape: ResultShape, columns: Sequence[ResultTableColumn]) -> Iterator[pa.Array]:
    """Columns as text for COPY."""
    for column, kind in _column_values(piece, shape, columns):
        yield _copy_text(column, kind)


def copy_column(column: pa.Array, kind: ColumnType) -> pa.Array:
    """A column as text for COPY."""
    if kind.kind is TypeKind.TIMESTAMP:
        column = _instant_texts(column)
    elif kind.kind is TypeKind.DATE:
        column = _date_texts(column)
    return _copy_text(column, kind)


def _copy_text(column: pa.Array, kind: ColumnType) -> pa.Array:
    """A column, whose times are text already, as text for COPY."""
    text = column
    if kind.kind is TypeKind.STRING:
        text = _escaped_column(column)
    elif kind.kind in (TypeKind.FLOAT, TypeKind.DOUBLE):
        text = pc.if_else(pc.is_nan(column), "NaN", column.cast(pa.string()))
    return text.cast(pa.large_string())


def _escaped_column(column: pa.Array) -> pa.Array:
    for each, instead in ((_NUL, _NUL_PICTURE), *_ESCAPES):
        if pc.any(pc.match_substring(column, each)).as_py():
            column = pc.replace_substring(column, each, instead)
    return column


def _escaped_text(text: str) -> str:
    for each, instead in _ESCAPES:
        text = text.replace(each, instead)
    return text


def copy_columns(connection: Connection, table: Table, columns: Sequence[Any]) -> None:
    """Add rows by COPY; each column is one text for all rows, or text for each, as `copy_column` makes it."""
    fields = [pa.scalar(each, pa.large_string()) if isinstance(each, str) else each for each in columns]
    tab, end, nothing = (pa.scalar(each, pa.large_string()) for each in ("\t", "\n", ""))
    lines = pc.binary_join_element_wise(*fields, tab, null_handling="replace", null_replacement="\\N")
    lines = pc.binary_join_element_wise(lines, end, nothing)
    size = pc.sum(pc.binary_length(lines)).as_py()
    quote = connection.dialect.identifier_preparer
    names = ", ".join(quote.quote(each.name) for each in table.columns)
    statement = f"COPY {quote.format_table(table)} ({names}) FROM STDIN"
    raw = connection.connection.driver_connection
    if raw is None:
        raise AssertionError("a transaction has a connection")
    try:
        with raw.cursor() as cursor:
            cursor.copy_expert(statement, pa.BufferReader(lines.buffers()[2].slice(0, size)))
    except psycopg2.Error as error:
        # Raised like the failure of any other statement, so that callers can distinguish them.
        raise DBAPIError.instance(
            statement, None, error, psycopg2.Error, hide_parameters=True, dialect=connection.dialect
        ) from error


def _sqlite_values(
    piece: pa.RecordBatch, shape: ResultShape, columns: Sequence[ResultTableColumn]
) -> Iterator[list[Any]]:
    """Columns as values for SQLite's driver."""
    for column, kind in _column_values(piece, shape, columns):
        values: list[Any] = column.to_pylist()
        if kind.kind is TypeKind.DECIMAL:
            values = [None if each is None else format(each, "f") for each in values]
        elif kind.kind in (TypeKind.FLOAT, TypeKind.DOUBLE) and pc.any(pc.is_nan(column)).as_py():
            values = ["NaN" if each is not None and isnan(each) else each for each in values]
        yield values


def _insert_records(connection: Connection, table: Table, rows: int, columns: Sequence[Any]) -> None:
    quote = connection.dialect.identifier_preparer
    places = ", ".join("?" * len(table.columns))
    lists = [each if isinstance(each, list) else repeat(each, rows) for each in columns]
    statement = f"INSERT INTO {quote.format_table(table)} VALUES ({places})"  # noqa: S608
    connection.exec_driver_sql(statement, list(zip(*lists, strict=True)))
