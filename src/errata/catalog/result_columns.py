"""The columns, types and indexes of result tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
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
from sqlalchemy.types import JSON, REAL, TypeEngine

from errata.model.columns import ColumnType, Kind
from errata.model.results import Shape
from errata.model.served import changes_table

MARK = "kept_by_errata"
"""The constraint by which Errata knows the tables that it has made."""

EXACT_DIGITS = 15
"""A number of SQLite's holds decimals of so many digits exactly."""

_MOST_INDEXED = 32
"""PostgreSQL's indexes have no more columns."""

_TYPES: dict[Kind, TypeEngine[Any]] = {
    Kind.STRING: Text(),
    Kind.BOOLEAN: Boolean(),
    Kind.INT: Integer(),
    Kind.BIGINT: BigInteger(),
    Kind.FLOAT: REAL(),
    Kind.DOUBLE: Double(),
    Kind.DATE: Date(),
    Kind.TIMESTAMP: DateTime(timezone=True),
}


@dataclass(frozen=True, slots=True)
class ServedTable:
    """A result table, and the results that are in it."""

    table: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Held:
    """A column of the results as a result table has it."""

    name: str
    source: str
    """Its name in the results' own archive."""
    type: ColumnType
    key: bool


def held(shape: Shape) -> tuple[Held, ...]:
    """The columns of a result table: the visible ones, and hidden ones of the key, without which results could not be
    told apart."""
    shown = [Held(each.name, each.name, each.type, each.key) for each in shape.columns if not each.hidden]
    hidden = [each for each in shape.columns if each.hidden and each.key]
    return (*shown, *(Held(f"key_{n}", each.name, each.type, key=True) for n, each in enumerate(hidden, 1)))


@dataclass(frozen=True, slots=True)
class ServedTables:
    """A result table and its table of changes, as SQL is told of them."""

    current: Table
    changes: Table
    columns: tuple[Held, ...]

    @classmethod
    def of(cls, served: ServedTable) -> ServedTables:
        columns = held(served.shape)
        made = MetaData()
        return cls(_current(made, served, columns), _changes(made, served, columns), columns)

    @property
    def key(self) -> list[str]:
        return [each.name for each in self.columns if each.key]

    @property
    def names(self) -> list[str]:
        """The columns of the current answer."""
        return [*(each.name for each in self.columns), "vs", "ve"]


def _current(made: MetaData, served: ServedTable, columns: Sequence[Held]) -> Table:
    time, name = _time(served.shape), served.table
    keys = [each.name for each in columns if each.key]
    indexes = [Index(f"ix_{name}_vs", "vs"), Index(f"ix_{name}_ve", "ve")]
    if keys:
        few = len(keys) <= _MOST_INDEXED
        indexes.append(Index(f"ix_{name}_key", *keys[:_MOST_INDEXED], unique=few))
    return Table(
        name,
        made,
        *(Column(each.name, _sql_type(each.type)) for each in columns),
        Column("vs", time, nullable=False),
        Column("ve", time),
        CheckConstraint("ve IS NULL OR vs <= ve", name=MARK),
        *indexes,
    )


def _changes(made: MetaData, served: ServedTable, columns: Sequence[Held]) -> Table:
    time, name = _time(served.shape), changes_table(served.table)
    keys, values = [each for each in columns if each.key], [each for each in columns if not each.key]
    indexes = [Index(f"ix_{name}_commit", "commit_id")]
    if keys:
        indexes.append(Index(f"ix_{name}_key", *[each.name for each in keys][:_MOST_INDEXED]))
    return Table(
        name,
        made,
        Column("commit_id", BigInteger, nullable=False),
        Column("op", String(8), nullable=False),
        *(Column(each.name, _sql_type(each.type)) for each in keys),
        Column("vs", time, nullable=False),
        Column("ve", time),
        Column("old_ve", time),
        *(Column(each.name, _sql_type(each.type)) for each in values),
        *(Column(f"old_{each.name}", _sql_type(each.type)) for each in values),
        Column("cause", JSON().with_variant(JSONB(), "postgresql"), nullable=False),
        CheckConstraint("op IN ('insert', 'replace', 'delete')", name=MARK),
        *indexes,
    )


def _time(shape: Shape) -> TypeEngine[Any]:
    return _TYPES[Kind.TIMESTAMP if shape.timed else Kind.BIGINT]


def _sql_type(kind: ColumnType) -> TypeEngine[Any]:
    if kind.kind is not Kind.DECIMAL:
        return _TYPES[kind.kind]
    exact = Numeric(kind.precision, kind.scale)
    return exact if kind.precision <= EXACT_DIGITS else exact.with_variant(Text(), "sqlite")
