"""Joins: of rows that count at the same time, and of rows with what a relation said at their own time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from errata.engine.frames import joined as joined_on
from errata.engine.plans.rows import OTHER, TS, VE, VS, Rows, chosen, place, places
from errata.engine.plans.rowwise import guarded
from errata.language.expr import EQUAL, SAME, Call, Expr, conjunction, conjuncts, refs
from errata.language.nodes import Join, RelationJoin
from errata.language.plan import Plan, PlanError
from errata.language.times import Own, timing


def joined(plan: Join | RelationJoin, left: Rows, right: Rows) -> Rows:
    """Pairs that fulfil the condition, for as long as both count."""
    together = [] if left.way.at is not None else _overlap(left, right)
    return _pairs(plan, left, right, right.times, together)


def joined_as_of(plan: RelationJoin, left: Rows, versions: Rows) -> Rows:
    """Rows with the versions that were valid at their own time, for as long as the rows count."""
    if left.own is None:
        raise PlanError("rows without a time of their own see no version", where="RelationJoin")
    valid = [f"{OTHER}{VS} <= {left.own}", f"{left.own} < {OTHER}{VE}"]
    return _pairs(plan, left, versions, [VS, VE], valid)


def _overlap(left: Rows, right: Rows) -> list[str]:
    """What makes two lifetimes meet; what never ends is after everything."""
    needed = [] if right.timing.for_ever else [f"{VS} < {OTHER}{VE}"]
    return needed + ([] if left.timing.for_ever else [f"{OTHER}{VS} < {VE}"])


def _pairs(
    plan: Join | RelationJoin, left: Rows, right: Rows, their_times: Sequence[str], together: Sequence[str]
) -> Rows:
    way = left.way
    pair = Rows(plan, left.frame, way, range(left.scans.start, right.scans.stop))
    theirs = places(len(right.plan.fields), len(left.plan.fields))
    renamed = chosen(
        right.frame,
        right.lineage,
        **{name: place(at) for at, name in enumerate(theirs)},
        **{f"{OTHER}{name}": name for name in (*way.scope, *their_times)},
    )
    scope = [f"{name} = {OTHER}{name}" for name in way.scope]
    equal, rest = parted(plan)
    parts = [*scope, *(pair.sql(part) for part in equal), *together]
    parts.append(guarded(pair, conjunction(rest), " AND ".join(together) or None))
    found = joined_on(left.frame, renamed, " AND ".join(f"({part})" for part in parts))
    columns = [*left.columns, *theirs, *way.scope, *pair.lineage]
    return pair.over(plan, chosen(found, columns, **dict(_times(plan, left, right))))


def parted(plan: Join | RelationJoin) -> tuple[list[Expr], list[Expr]]:
    """The condition's equalities of one side with the other, by which Spark finds the pairs, and the rest."""
    equal: list[Expr] = []
    rest: list[Expr] = []
    sides = (set(plan.left.types), set(plan.right.types))
    for part in conjuncts(plan.condition):
        across = isinstance(part, Call) and part.name in (EQUAL, SAME) and _across(part.args, sides)
        (equal if across else rest).append(part)
    return equal, rest


def _across(args: tuple[Expr, ...], sides: tuple[set[str], set[str]]) -> bool:
    read = [refs(each) for each in args]
    return all(read) and any(read[0] <= one and read[1] <= other for one, other in (sides, sides[::-1]))


def _times(plan: Plan, left: Rows, right: Rows) -> Iterable[tuple[str, str]]:
    """The times of a pair, from those of its sides."""
    as_of = isinstance(plan, RelationJoin) and not plan.retroactive
    if as_of:
        return [(name, name) for name in left.times]
    found = []
    if left.way.at is None:
        found = [(VS, f"greatest({VS}, {OTHER}{VS})"), (VE, f"least({VE}, {OTHER}{VE})")]
    elif timing(plan).own is Own.START:
        found = [(VS, f"greatest({VS}, {OTHER}{VS})")]
    if timing(plan).own is Own.KEPT:
        owns = [left.own or ""] if isinstance(plan, RelationJoin) else [left.own or "", f"{OTHER}{right.own}"]
        found.append((TS, f"greatest({', '.join(owns)})" if len(owns) > 1 else owns[0]))
    return found
