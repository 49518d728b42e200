"""How a query's results are kept: as rows with lifetimes, in an archive of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from errata.model.columns import ColumnType
from errata.model.pattern import Pattern

VS, VE = "_vs", "_ve"
"""A row's lifetime, half-open; HIGHEST where no end of it is known."""
RUN = "_run"
"""The number of the evaluation that published the row."""
FROM, TO, FIRST = "_from_", "_to_", "_first"
"""Of stored lineage: before the number of a scan, where the first and the last of its rows lie that a result was made
of; and a hash of the first row's key, where it has to be told from others of the same time."""
OP, OLD_VE = "_op", "_old_ve"
"""Of a record of the change feed: what has happened to the result, and where it ended before."""


def old(name: str) -> str:
    """The column of the change feed with a column's value from before."""
    return f"_old_{name}"


@dataclass(frozen=True, slots=True)
class Kept:
    """A column of the results as it is kept."""

    name: str
    """The column's own name; of a hidden one, a name that no person gives."""
    type: ColumnType
    key: bool = False
    hidden: bool = False
    called: str = ""
    """What a hidden one is called in the plan: `quotes.time`."""

    @property
    def shown(self) -> str:
        """By which name persons know it."""
        return self.called or self.name


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a query's results, in the order of its plan, and what kind of results they are."""

    columns: tuple[Kept, ...]
    pattern: Pattern
    timed: bool = True
    """Whether event time is a time; otherwise it is a plain number."""

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.columns]

    @property
    def key(self) -> list[str]:
        """The columns that, with the vs, tell one result from all others."""
        return [each.name for each in self.columns if each.key]

    @property
    def payload(self) -> list[str]:
        return [each.name for each in self.columns if not each.key]

    @property
    def visible(self) -> list[str]:
        """The columns of the SELECT list."""
        return [each.name for each in self.columns if not each.hidden]


def shaped(
    fields: Iterable[tuple[str, ColumnType, bool]], key: Iterable[str], pattern: Pattern, *, timed: bool
) -> Shape:
    """The shape of results whose plan has these fields, each with its name, its type, and whether it is hidden."""
    told, number = set(key), 0
    columns = []
    for name, kind, hidden in fields:
        kept, called = (f"_k{number}", name) if hidden else (name, "")
        columns.append(Kept(kept, kind, name in told, hidden, called))
        number += hidden
    return Shape(tuple(columns), pattern, timed)


def to_record(shape: Shape) -> dict[str, Any]:
    """The shape as JSON can hold it; `from_record` reads it back."""
    columns = [[each.name, str(each.type), each.key, each.hidden, each.called] for each in shape.columns]
    return {"columns": columns, "pattern": shape.pattern.value, "timed": shape.timed}


def from_record(record: Mapping[str, Any]) -> Shape:
    """The shape that `to_record` wrote."""
    columns = (Kept(name, ColumnType.parse(kind), *told) for name, kind, *told in record["columns"])
    return Shape(tuple(columns), Pattern(record["pattern"]), record["timed"])
