"""The key of a result as a person writes it: `symbol=IBM,window_start=2026-11-18T02:00:00`, or a part of it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from errata.archive.masked_results import spelled
from errata.archive.match import matches
from errata.engine.plans.rows import quoted
from errata.errors import UsageError, unknown
from errata.intake.arrow_types import arrow_type
from errata.intake.convert import convert
from errata.language.expr import Lit, Value, literal
from errata.model.columns import Kind
from errata.model.instants import parse_instant
from errata.model.results import Kept, Shape


def typed(shape: Shape, said: Mapping[str, object], query: str) -> dict[str, pa.Scalar]:
    """What is said of a key, by the names by which its columns are kept. Empty text is NULL."""
    columns = {each.shown: each for each in shape.columns if each.key}
    found = {}
    for name, value in said.items():
        if name not in columns:
            raise _no_such(shape, name, list(columns), query)
        found[columns[name].name] = _typed(columns[name], value, query)
    return found


def _no_such(shape: Shape, name: str, columns: list[str], query: str) -> UsageError:
    where = f"query {query}"
    if not columns:
        return UsageError(
            f"{name} is no column of the key",
            where=where,
            why="it has one result at a time, which needs no key",
            how="leave the key out; --at tells which result is meant",
        )
    if name in shape.visible:
        return UsageError(
            f"{name} is no column of the key",
            where=where,
            why="it is what the results say, and may change",
            how=f"name values of {', '.join(columns)}",
        )
    return unknown("key column", name, columns, where=where)


def _typed(column: Kept, value: object, query: str) -> pa.Scalar:
    """One value; `convert` reads text as it is read from files, and event times may be written as elsewhere."""
    if column.type.kind is Kind.TIMESTAMP and isinstance(value, str) and value:
        return pa.scalar(parse_instant(value), arrow_type(column.type))
    given = _array(value)
    found, wrong = (None, None) if given is None else convert(given, column.type)
    if given is None or found is None or wrong is not None or found.null_count > given.null_count:
        raise UsageError(
            f"{column.shown}={value}: {str(value)!r} is not a {column.type}",
            where=f"query {query}",
            how="an empty value stands for NULL",
        )
    return found[0]


def _array(value: object) -> pa.Array | None:
    """A value, or what stands for NULL; None where it is of no type that a column can have."""
    if value is None or value == "":
        return pa.nulls(1, pa.string())
    try:
        return pa.array([value])
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None


def condition(shape: Shape, key: Mapping[str, pa.Scalar]) -> str:
    """That rows have this key, or this part of one, in SQL."""
    kinds = {each.name: each.type for each in shape.columns}
    plain = constants(key)
    same = (f"{quoted(name)} <=> {literal(Lit(plain[name], kinds[name]))}" for name in key)
    return " AND ".join(same) or "true"


def of_key(rows: pa.Table, key: pa.Table) -> pa.Table:
    """The rows that have a key, which is a table of one row."""
    names = key.column_names
    found, _ = matches(spelled(rows, names), spelled(key, names), names)
    return rows.take(pa.array(found))


def constants(key: Mapping[str, pa.Scalar]) -> dict[str, Value]:
    """The values as lineage has them."""
    found: dict[str, Value] = {}
    for name, value in key.items():
        plain = value.cast(pa.int64()) if pa.types.is_timestamp(value.type) else value
        found[name] = plain.as_py()
    return found
