"""Change records of results as a result table's columns hold them, and how many of them get there at once.

What a database cannot hold is kept as near to it as it can. On both, an instant outside the years 1 to 9999 is
`infinity` or `-infinity`, which PostgreSQL knows and SQLite sorts rightly as text; SQLite's other instants are text,
too, in UTC. It has no NaN, which is the text NaN there and sorts after all numbers, and its numbers have 15 digits, so
that decimals of more are text. PostgreSQL's texts cannot have U+0000, and have the picture of it, U+2400, instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import repeat
from math import isnan
from typing import Any

import numpy as np
import psycopg2
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError

from errata.catalog.result_columns import Held, held
from errata.model.columns import ColumnType, Kind
from errata.model.instants import DAY, to_datetime, to_micros
from errata.model.interval import HIGHEST
from errata.model.results import OLD_VE, OP, VE, VS, Shape, old

AT_ONCE = 20_000
"""So many records are in memory as text, or as Python's values."""

_FIRST, _LAST = to_micros(datetime(1, 1, 1, tzinfo=UTC)), to_micros(datetime.max.replace(tzinfo=UTC))
_EARLY, _LATE = "-infinity", "infinity"
_ESCAPES = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_NUL, _PICTURED = "\0", "\u2400"

Nulls = tuple[bool, ...]
"""Which columns of a key are NULL."""


def write(
    connection: Connection, table: Table, shape: Shape, commit_id: int, cause: Mapping[str, Any], batch: pa.RecordBatch
) -> set[Nulls]:
    """Add change records to a table of changes: which patterns of NULLs their keys have."""
    columns = held(shape)
    told = json.dumps(dict(cause), sort_keys=True)
    patterns: set[Nulls] = set()
    for start in range(0, batch.num_rows, AT_ONCE):
        piece = batch.slice(start, AT_ONCE)
        patterns |= _null_patterns(piece, [each.source for each in columns if each.key])
        if connection.dialect.name == "postgresql":
            _copy(connection, table, [str(commit_id), *_texts(piece, shape, columns), _escaped(told)])
        else:
            _insert(connection, table, piece.num_rows, [commit_id, *_values(piece, shape, columns), told])
    return patterns


def instant_text(micros: int) -> str:
    """An instant as the databases are told it."""
    if _FIRST <= micros <= _LAST:
        return to_datetime(micros).replace(tzinfo=None).isoformat(" ", "microseconds")
    return _EARLY if micros < _FIRST else _LATE


def _null_patterns(piece: pa.RecordBatch, names: Sequence[str]) -> set[Nulls]:
    keys = [piece.column(name) for name in names]
    if not any(each.null_count for each in keys):
        return {(False,) * len(keys)}
    found = np.unique(np.column_stack([each.is_null().to_numpy(zero_copy_only=False) for each in keys]), axis=0)
    return {tuple(map(bool, each)) for each in found}


def _sources(shape: Shape, columns: Sequence[Held]) -> Iterator[tuple[str, ColumnType]]:
    """The columns of the feed in the order of the table of changes, without what is the same for all records."""
    time = ColumnType(Kind.TIMESTAMP if shape.timed else Kind.BIGINT)
    yield OP, ColumnType(Kind.STRING)
    yield from ((each.source, each.type) for each in columns if each.key)
    yield from ((name, time) for name in (VS, VE, OLD_VE))
    values = [each for each in columns if not each.key]
    yield from ((each.source, each.type) for each in values)
    yield from ((old(each.source), each.type) for each in values)


def _columns(piece: pa.RecordBatch, shape: Shape, columns: Sequence[Held]) -> Iterator[tuple[pa.Array, ColumnType]]:
    """The values of the feed, where times and dates are text already."""
    for name, kind in _sources(shape, columns):
        column = piece.column(name)
        if name in (VE, OLD_VE):
            column = pc.if_else(pc.equal(column, HIGHEST), None, column)
        if kind.kind is Kind.TIMESTAMP:
            column = _instants(column)
        elif kind.kind is Kind.DATE:
            column = _dates(column)
        yield column, kind


def _instants(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return _within(column.cast(pa.int64()), _FIRST, _LAST, pa.timestamp("us"))


def _dates(column: pa.Array) -> pa.Array:
    return _within(column.cast(pa.int32()), _FIRST // DAY, _LAST // DAY, pa.date32())


def _within(numbers: pa.Array, first: int, last: int, kind: pa.DataType) -> pa.Array:
    """Days or microseconds as text, those outside the years 1 to 9999 as infinities."""
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is None or (ends["min"] >= first and ends["max"] <= last):
        return numbers.cast(kind).cast(pa.string())
    early, late = pc.less(numbers, first), pc.greater(numbers, last)
    known = pc.if_else(pc.or_(early, late), pa.scalar(0, numbers.type), numbers).cast(kind).cast(pa.string())
    return pc.if_else(early, _EARLY, pc.if_else(late, _LATE, known))


def _texts(piece: pa.RecordBatch, shape: Shape, columns: Sequence[Held]) -> Iterator[pa.Array]:
    """Columns as the text that COPY reads."""
    for column, kind in _columns(piece, shape, columns):
        text = column
        if kind.kind is Kind.STRING:
            text = _plain(column)
        elif kind.kind in (Kind.FLOAT, Kind.DOUBLE):
            text = pc.if_else(pc.is_nan(column), "NaN", column.cast(pa.string()))
        yield text.cast(pa.large_string())


def _plain(column: pa.Array) -> pa.Array:
    for each, instead in ((_NUL, _PICTURED), *_ESCAPES):
        if pc.any(pc.match_substring(column, each)).as_py():
            column = pc.replace_substring(column, each, instead)
    return column


def _escaped(text: str) -> str:
    for each, instead in _ESCAPES:
        text = text.replace(each, instead)
    return text


def _copy(connection: Connection, table: Table, columns: Sequence[Any]) -> None:
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
        # As any other statement's failure, for those who tell them from one another.
        raise DBAPIError.instance(
            statement, None, error, psycopg2.Error, hide_parameters=True, dialect=connection.dialect
        ) from error


def _values(piece: pa.RecordBatch, shape: Shape, columns: Sequence[Held]) -> Iterator[list[Any]]:
    """Columns as the values that SQLite's driver takes."""
    for column, kind in _columns(piece, shape, columns):
        values: list[Any] = column.to_pylist()
        if kind.kind is Kind.DECIMAL:
            values = [None if each is None else format(each, "f") for each in values]
        elif kind.kind in (Kind.FLOAT, Kind.DOUBLE) and pc.any(pc.is_nan(column)).as_py():
            values = ["NaN" if each is not None and isnan(each) else each for each in values]
        yield values


def _insert(connection: Connection, table: Table, rows: int, columns: Sequence[Any]) -> None:
    quote = connection.dialect.identifier_preparer
    places = ", ".join("?" * len(table.columns))
    lists = [each if isinstance(each, list) else repeat(each, rows) for each in columns]
    statement = f"INSERT INTO {quote.format_table(table)} VALUES ({places})"  # noqa: S608
    connection.exec_driver_sql(statement, list(zip(*lists, strict=True)))
