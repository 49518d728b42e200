"""How results come and go: the update patterns of Golab and Özsu (2005, 3.1), and one more."""

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
    """Results are only ever added."""
    WEAKEST = "WKS"
    """Results expire in the order in which they came, each after the same span."""
    WEAK = "WK"
    """Each result's end is known when it comes, but they do not expire in the order in which they came."""
    KEYED = "KEYED"
    """A result ends when the next one of its key comes; nobody knows yet when that will be."""
    STRICT = "STR"
    """Some results end at moments that nobody can foretell."""

    @property
    def shown(self) -> str:
        """As the paper abbreviates it; keyed results are its weak ones (rule 4)."""
        return "WK" if self is UpdatePattern.KEYED else self.value

    @property
    def rank(self) -> int:
        """How complex it is, from 0."""
        return list(UpdatePattern).index(self)


# How a query's results are kept: as rows with lifetimes, in an archive of their own.

VS, VE = "_vs", "_ve"
"""A row's lifetime, half-open; HIGHEST where no end of it is known."""
EVALUATION = "_run"
"""The number of the evaluation that published the row."""
LINEAGE_FROM, LINEAGE_TO, LINEAGE_FIRST_KEY = "_from_", "_to_", "_first"
"""Of stored lineage: before the number of a scan, where the first and the last of its rows lie that a result was made
of; and a hash of the first row's key, where it has to be told from others of the same time."""
OP, OLD_VE = "_op", "_old_ve"
"""Of a record of the change feed: what has happened to the result, and where it ended before."""


def old_column(name: str) -> str:
    """The column with the former value of a column, in change records, overlays and pending revisions."""
    return f"_old_{name}"


@dataclass(frozen=True, slots=True)
class ArchiveColumn:
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
class ResultShape:
    """The columns of a query's results, in the order of its plan, and what kind of results they are."""

    columns: tuple[ArchiveColumn, ...]
    pattern: UpdatePattern
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
    """Whether results of the two can be told to be the same result: they have the same key."""
    return one.timed == other.timed and _key_types(one) == _key_types(other)


def _key_types(shape: ResultShape) -> list[tuple[str, str]]:
    return sorted((each.name, str(each.type)) for each in shape.columns if each.key)


def shape_to_record(shape: ResultShape) -> dict[str, Any]:
    """The shape as JSON can hold it; `from_record` reads it back."""
    columns = [[each.name, str(each.type), each.key, each.hidden, each.called] for each in shape.columns]
    return {"columns": columns, "pattern": shape.pattern.value, "timed": shape.timed}


def shape_from_record(record: Mapping[str, Any]) -> ResultShape:
    """The shape that `to_record` wrote."""
    columns = (ArchiveColumn(name, ColumnType.parse(kind), *told) for name, kind, *told in record["columns"])
    return ResultShape(tuple(columns), UpdatePattern(record["pattern"]), record["timed"])


# Result tables: what they and their columns may be called, in the catalog's database and beside its own tables.

MAX_TABLE_NAME = 45
"""So long may a name be: with what stands around it in the names of indexes it has to be one of 63 at most."""

_MAX_COLUMN_NAME = 59
"""A column is in the table of changes twice: as it is, and with `old_` before it."""

_RESERVED_PREFIXES = ("ix_", "pk_", "uq_", "fk_", "pg_", "sqlite_", "ducklake_")
_ERRATA_COLUMNS = frozenset({"vs", "ve", "old_ve", "commit_id", "op", "cause"})
_KEY_COLUMN = re.compile(r"key_\d+")
_POSTGRES_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


def changes_table_name(table: str) -> str:
    """The table beside a result table, with all that has ever changed in it."""
    return f"{table}_changes"


def check_table_name(name: str) -> str:
    """Refuse a name that a result table and its indexes could not bear on both databases."""
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
    """Which of other result tables cannot be beside one of this name."""
    taken = occupied_names(name)
    return next((other for other in others if taken & occupied_names(other)), None)


def check_table_columns(names: Collection[str], key: Collection[str]) -> None:
    """Refuse columns that a result table could not have beside those that tell when, and why, and what was before."""
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
