"""How results are kept: their update pattern, the columns with their lifetimes, and names of result tables.

A result is a row with a lifetime [vs, ve) in an archive of its own. The update patterns are those of Golab and Özsu
(2005, 3.1), and KEYED.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from errata.errors import UsageError
from errata.model.columns import ColumnType, check_name


class UpdatePattern(StrEnum):
    """The update pattern of an edge in a plan, the simplest first."""

    MONOTONIC = "MON"
    """Results are only added."""
    WEAKEST = "WKS"
    """Results expire in the order of their arrival, each after the same span."""
    WEAK = "WK"
    """The end of each result is known when it comes, but they do not expire in the order of their arrival."""
    KEYED = "KEYED"
    """A result ends when the next one of its key comes, at an instant that is not known before."""
    STRICT = "STR"
    """Some results end at instants that cannot be predicted."""

    @property
    def shown(self) -> str:
        """The paper's abbreviation; keyed results are among its weak ones (rule 4)."""
        return "WK" if self is UpdatePattern.KEYED else self.value

    @property
    def rank(self) -> int:
        """Its complexity, as a number from 0."""
        return list(UpdatePattern).index(self)


VS, VE = "_vs", "_ve"
"""The columns of a row's lifetime [vs, ve); ve is HIGHEST where no end is known."""
EVALUATION = "_run"
"""The column with the number of the evaluation that published the row."""
LINEAGE_FROM, LINEAGE_TO, LINEAGE_FIRST_KEY = "_from_", "_to_", "_first"
"""Columns of stored lineage. The first two are prefixes to the number of a scan: the times of the first and the last of
its rows that a result was computed from. The third is a hash of the first row's key, where several have its time."""
OP, OLD_VE = "_op", "_old_ve"
"""Columns of a change record: the operation, and the former end of the result."""


def old_column(name: str) -> str:
    """The column with the former value of a column, in change records, overlays and pending revisions."""
    return f"_old_{name}"


@dataclass(frozen=True, slots=True)
class ArchiveColumn:
    """A column of the results as it is kept."""

    name: str
    """The name of the column; a hidden one has a name that no query can give."""
    type: ColumnType
    key: bool = False
    hidden: bool = False
    called: str = ""
    """The name of a hidden column in the plan, such as `quotes.time`."""

    @property
    def shown(self) -> str:
        """The name of the column in messages."""
        return self.called or self.name


@dataclass(frozen=True, slots=True)
class ResultShape:
    """The columns of a query's results, in the order of its plan, and their update pattern."""

    columns: tuple[ArchiveColumn, ...]
    pattern: UpdatePattern
    timed: bool = True
    """Whether event time is a time; otherwise it is a plain number."""

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.columns]

    @property
    def key(self) -> list[str]:
        """The columns that identify a result together with its vs."""
        return [each.name for each in self.columns if each.key]

    @property
    def payload(self) -> list[str]:
        return [each.name for each in self.columns if not each.key]

    @property
    def visible(self) -> list[str]:
        """The columns of the SELECT list."""
        return [each.name for each in self.columns if not each.hidden]


def make_shape(
    fields: Iterable[tuple[str, ColumnType, bool]], key: Iterable[str], pattern: UpdatePattern, *, timed: bool
) -> ResultShape:
    """The shape of results whose plan has these fields, each with its name, its type, and whether it is hidden."""
    told, number = set(key), 0
    columns = []
    for name, kind, hidden in fields:
        kept, called = (f"_k{number}", name) if hidden else (name, "")
        columns.append(ArchiveColumn(kept, kind, name in told, hidden, called))
        number += hidden
    return ResultShape(tuple(columns), pattern, timed)


def have_same_key(one: ResultShape, other: ResultShape) -> bool:
    """Whether results of both have the same key, so that they can be matched."""
    return one.timed == other.timed and _key_types(one) == _key_types(other)


def _key_types(shape: ResultShape) -> list[tuple[str, str]]:
    return sorted((each.name, str(each.type)) for each in shape.columns if each.key)


def shape_to_record(shape: ResultShape) -> dict[str, Any]:
    """The shape as a JSON object, which `shape_from_record` reads."""
    columns = [[each.name, str(each.type), each.key, each.hidden, each.called] for each in shape.columns]
    return {"columns": columns, "pattern": shape.pattern.value, "timed": shape.timed}


def shape_from_record(record: Mapping[str, Any]) -> ResultShape:
    """The shape in a record of `shape_to_record`."""
    columns = (ArchiveColumn(name, ColumnType.parse(kind), *told) for name, kind, *told in record["columns"])
    return ResultShape(tuple(columns), UpdatePattern(record["pattern"]), record["timed"])


MAX_TABLE_NAME = 45
"""Characters of a result table's name at most: names of its indexes contain it, and have 63 at most."""

_MAX_COLUMN_NAME = 59
"""Characters of a column's name at most: the table of changes also has it with `old_` before it."""

_RESERVED_PREFIXES = ("ix_", "pk_", "uq_", "fk_", "pg_", "sqlite_", "ducklake_")
_ERRATA_COLUMNS = frozenset({"vs", "ve", "old_ve", "commit_id", "op", "cause"})
_KEY_COLUMN = re.compile(r"key_\d+")
_POSTGRES_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


def changes_table_name(table: str) -> str:
    """The name of the table with all changes of a result table."""
    return f"{table}_changes"


def check_table_name(name: str) -> str:
    """Refuse a name that a result table and its indexes could not have on both databases."""
    check_name("table", name)
    if len(name) > MAX_TABLE_NAME:
        raise UsageError(
            f"the table's name {name!r} has {len(name)} characters",
            why="names of its indexes are made of it, and databases cut off what is too long",
            how=f"choose one of {MAX_TABLE_NAME} at most",
        )
    for beginning in _RESERVED_PREFIXES:
        if name.lower().startswith(beginning):
            raise UsageError(
                f"a result table cannot be named {name!r}",
                why=f"what begins with {beginning} is of the database itself or of the catalog",
                how="choose another name",
            )
    return name


def conflicting_table(name: str, others: Iterable[str]) -> str | None:
    """The first of other result tables that needs the same names; None if none does."""
    taken = occupied_names(name)
    return next((other for other in others if taken & occupied_names(other)), None)


def check_table_columns(names: Collection[str], key: Collection[str]) -> None:
    """Refuse columns whose names a result table or its table of changes needs for others."""
    past = {f"old_{name}".lower(): name for name in names if name not in key}
    for name in names:
        why = _column_obstacle(name, past)
        if why is not None:
            raise UsageError(
                f"column {name} cannot be in a result table",
                why=why,
                how=f"give it another name in the SELECT list, {name} AS …, or leave `serve` out",
            )


def _column_obstacle(name: str, past: dict[str, str]) -> str | None:
    lower = name.lower()
    if lower in _ERRATA_COLUMNS or _KEY_COLUMN.fullmatch(lower):
        return f"Errata adds a column {lower} itself"
    if lower in past:
        return f"in the table of changes that is the name for what {past[lower]} was before"
    if lower in _POSTGRES_COLUMNS:
        return "PostgreSQL has such a column in every table"
    if len(name) > _MAX_COLUMN_NAME:
        return f"old_{name} would be longer than databases bear"
    return None


def occupied_names(name: str) -> set[str]:
    """The names that a result table needs, in lower case: databases may take upper and lower case for the same."""
    return {name.lower(), changes_table_name(name).lower()}
