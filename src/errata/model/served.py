"""Result tables: what they and their columns may be called, in the catalog's database and beside its own tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from errata.errors import UsageError
from errata.model.columns import check_name

MAX_TABLE = 45
"""So long may a name be: with what stands around it in the names of indexes it has to be one of 63 at most."""

_MAX_COLUMN = 59
"""A column is in the table of changes twice: as it is, and with `old_` before it."""

_RESERVED = ("ix_", "pk_", "uq_", "fk_", "pg_", "sqlite_", "ducklake_")
_OWN = frozenset({"vs", "ve", "old_ve", "commit_id", "op", "cause"})
_HIDDEN = re.compile(r"key_\d+")
_POSTGRES = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})


def changes_table(table: str) -> str:
    """The table beside a result table, with all that has ever changed in it."""
    return f"{table}_changes"


def check_table(name: str) -> str:
    """Refuse a name that a result table and its indexes could not bear on both databases."""
    check_name("table", name)
    if len(name) > MAX_TABLE:
        raise UsageError(
            f"the table's name {name!r} has {len(name)} characters",
            why="names of its indexes are made of it, and databases cut off what is too long",
            how=f"choose one of {MAX_TABLE} at most",
        )
    for beginning in _RESERVED:
        if name.lower().startswith(beginning):
            raise UsageError(
                f"a result table cannot be named {name!r}",
                why=f"what begins with {beginning} is of the database itself or of the catalog",
                how="choose another name",
            )
    return name


def in_the_way(name: str, others: Iterable[str]) -> str | None:
    """Which of other result tables cannot be beside one of this name."""
    taken = taken_by(name)
    return next((other for other in others if taken & taken_by(other)), None)


def check_columns(names: Collection[str], key: Collection[str]) -> None:
    """Refuse columns that a result table could not have beside those that tell when, and why, and what was before."""
    past = {f"old_{name}".lower(): name for name in names if name not in key}
    for name in names:
        why = _unbearable(name, past)
        if why is not None:
            raise UsageError(
                f"column {name} cannot be in a result table",
                why=why,
                how=f"give it another name in the SELECT list, {name} AS …, or leave `serve` out",
            )


def _unbearable(name: str, past: dict[str, str]) -> str | None:
    lower = name.lower()
    if lower in _OWN or _HIDDEN.fullmatch(lower):
        return f"Errata adds a column {lower} itself"
    if lower in past:
        return f"in the table of changes that is the name for what {past[lower]} was before"
    if lower in _POSTGRES:
        return "PostgreSQL has such a column in every table"
    if len(name) > _MAX_COLUMN:
        return f"old_{name} would be longer than databases bear"
    return None


def taken_by(name: str) -> set[str]:
    """The names that a result table needs, in lower case: databases may take upper and lower case for the same."""
    return {name.lower(), changes_table(name).lower()}
