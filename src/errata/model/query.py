"""A query as it is declared, and what applying it has found out about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from errata.model.columns import Column, ColumnType, check_name
from errata.model.instants import format_duration
from errata.model.pattern import Pattern
from errata.model.stream import OnRevision, Retention


class Emit(StrEnum):
    """When a window's result is published."""

    FINAL = "final"
    """When the window closes."""
    EARLY = "early"
    """From its first row on, and then whenever it changes."""


@dataclass(frozen=True, slots=True)
class Query:
    """The declaration of one query."""

    name: str
    sql_file: str
    """The file as declared; mistakes in the text are told with it."""
    text: str
    on_revision: OnRevision | None = None
    """None: what the inputs allow."""
    emit: Emit = Emit.FINAL
    retention: Retention | None = None
    in_units: bool = False
    """Whether the retention's span is units of a plain bigint, and not a duration."""

    def __post_init__(self) -> None:
        check_name("query", self.name)

    @property
    def retention_text(self) -> str:
        """The retention in words."""
        if self.retention is None:
            return "for ever"
        if self.retention.rows is not None:
            return f"{self.retention.rows} rows"
        span = self.retention.span or 0
        return f"{span} units" if self.in_units else format_duration(span)


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """A query that has been read and found good, and what its plan says of its results."""

    query: Query
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns, hidden ones too, that identify a result together with its vs."""
    reads: tuple[str, ...]
    """The streams, relations and queries it reads, by name."""
    pattern: Pattern
    on_revision: OnRevision
    """What is in force: declared, or the weakest of what it reads."""
    fingerprint: str
    """Tells plans apart: equal for texts that mean the same."""
    digest: str
    """Of all that decided this: where it is the same, the query need not be read again."""

    @property
    def name(self) -> str:
        return self.query.name


def to_record(query: Query) -> dict[str, Any]:
    """The options as JSON can hold them; `from_record` reads them back."""
    kept = query.retention
    return {
        "sql_file": query.sql_file,
        "on_revision": query.on_revision and query.on_revision.value,
        "emit": query.emit.value,
        "retention": kept and {"span": kept.span, "rows": kept.rows},
        "in_units": query.in_units,
    }


def from_record(name: str, text: str, record: dict[str, Any]) -> Query:
    """The declaration that `to_record` wrote."""
    stated, kept = record["on_revision"], record["retention"]
    return Query(
        name,
        record["sql_file"],
        text,
        stated and OnRevision(stated),
        Emit(record["emit"]),
        kept and Retention(**kept),
        record["in_units"],
    )


def columns_record(columns: tuple[Column, ...]) -> list[list[str]]:
    """Columns as JSON can hold them, in their order."""
    return [[each.name, str(each.type)] for each in columns]


def columns_from(record: list[list[str]]) -> tuple[Column, ...]:
    """The columns that `columns_record` wrote."""
    return tuple(Column(name, ColumnType.parse(kind)) for name, kind in record)
