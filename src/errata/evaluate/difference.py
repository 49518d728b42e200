"""How two forms of a query differ in their answers: published when the edited one takes the former one's place."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import joined
from errata.engine.plans.rows import chosen, quoted
from errata.engine.types import spark_type
from errata.model.results import OLD_VE, OP, RUN, VE, VS, Shape, old

_OLD, _THERE, _WAS_THERE = "_o_", "_there", "_was_there"


def comparable(one: Shape, other: Shape) -> bool:
    """Whether results of the two can be told to be the same result: they have the same key."""
    return one.timed == other.timed and _key(one) == _key(other)


def _key(shape: Shape) -> list[tuple[str, str]]:
    return sorted((each.name, str(each.type)) for each in shape.columns if each.key)


def differences(was: DataFrame, was_shape: Shape, now: DataFrame, shape: Shape, run: int) -> DataFrame:
    """The change records that lead from the one answer to the other, both in their kept forms. The former one may have
    reached further: what it says of later instants is withdrawn, too. Columns that it did not have were NULL."""
    types = {each.name: each.type for each in was_shape.columns}
    payload = [name for name in shape.payload if types.get(name) == shape_type(shape, name)]
    former = {_former(name): quoted(name) for name in (*shape.key, *payload, VS, VE)}
    before = chosen(was, [], **former, **{_WAS_THERE: "TRUE"})
    after = chosen(now, [*map(quoted, shape.names), VS, VE], **{_THERE: "TRUE"})
    same = [f"{VS} = {_former(VS)}", *(_alike(name) for name in shape.key)]
    both = joined(after, before, " AND ".join(same), "full_outer")
    differs = [f"{_THERE} IS NULL", f"{_WAS_THERE} IS NULL", *(f"NOT ({_alike(name)})" for name in (*payload, VE))]
    differs += [f"{quoted(name)} IS NOT NULL" for name in shape.payload if name not in payload]
    return chosen(both.filter(" OR ".join(differs)), [], **_record(shape, payload, run))


def shape_type(shape: Shape, name: str) -> object:
    """The type of a column."""
    return next(each.type for each in shape.columns if each.name == name)


def _former(name: str) -> str:
    return quoted(_OLD + name)


def _alike(name: str) -> str:
    return f"{quoted(name)} <=> {_former(name)}"


def _record(shape: Shape, known: Sequence[str], run: int) -> dict[str, str]:
    either = {name: f"coalesce({quoted(name)}, {_former(name)})" for name in (*shape.key, VS)}
    told = {quoted(name): either.get(name, quoted(name)) for name in (*shape.names, VS, VE)}
    before = {
        quoted(old(each.name)): _former(each.name)
        if each.name in known
        else f"CAST(NULL AS {spark_type(each.type).simpleString()})"
        for each in shape.columns
        if not each.key
    }
    op = f"CASE WHEN {_THERE} IS NULL THEN 'delete' WHEN {_WAS_THERE} IS NULL THEN 'insert' ELSE 'replace' END"
    return {OP: op, **told, OLD_VE: _former(VE), **before, RUN: f"{run}L"}
