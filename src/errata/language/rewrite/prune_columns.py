"""Columns that nobody reads are not carried along.

The key of every node stays as it is, and so do the columns that make a scan's rows what they are: the order column, and
of a relation the one that says that a row is gone. What decides by position keeps all its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import singledispatch

from errata.language.expr import Expr, refs
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Project,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.plan import Plan, PlanError

Names = frozenset[str]


def prune_columns(plan: Plan) -> Plan:
    """The plan without columns, expressions and aggregates that the answer does not need."""
    return _narrowed(plan, frozenset(plan.types))


def _narrowed(plan: Plan, needed: Names) -> Plan:
    """The node with the columns needed, its key, and perhaps some more."""
    return _narrow(plan, needed & plan.types.keys() | set(plan.key))


def _over(plan: Plan, needed: Sequence[Names]) -> Plan:
    inputs = [_narrowed(child, names) for child, names in zip(plan.inputs, needed, strict=True)]
    return plan if all(new is old for new, old in zip(inputs, plan.inputs, strict=True)) else plan.with_inputs(inputs)


def _read_by(exprs: Iterable[Expr | None]) -> Names:
    return frozenset(name for each in exprs if each is not None for name in refs(each))


@singledispatch
def _narrow(plan: Plan, _needed: Names) -> Plan:
    raise PlanError(f"which columns {type(plan).__name__} needs is not known")


@_narrow.register(Distinct)
@_narrow.register(Intersect)
def _(plan: Plan, _needed: Names) -> Plan:
    # All that is visible makes the value.
    return _over(plan, [frozenset(field.name for field in child.visible) for child in plan.inputs])


@_narrow.register
def _(plan: Scan, needed: Names) -> Plan:
    source = plan.source
    always = {*source.key, source.order, source.deleted}
    there = [each.name for each in source.fields if plan.column(each.name) in plan.types]
    kept = tuple(name for name in there if name in always or plan.column(name) in needed) or tuple(there[:1])
    return plan if len(kept) == len(there) else replace(plan, columns=kept)


@_narrow.register(Sliding)
@_narrow.register(SlidingRows)
def _(plan: Plan, needed: Names) -> Plan:
    return _over(plan, [needed])


@_narrow.register
def _(plan: Filter, needed: Names) -> Plan:
    return _over(plan, [needed | refs(plan.predicate)])


@_narrow.register
def _(plan: Project, needed: Names) -> Plan:
    kept = tuple(each for each in plan.outputs if each.name in needed) or plan.outputs[:1]
    narrow = plan if len(kept) == len(plan.outputs) else replace(plan, outputs=kept)
    return _over(narrow, [_read_by(each.expr for each in kept) | needed])


@_narrow.register(Join)
@_narrow.register(RelationJoin)
def _(plan: Join | RelationJoin, needed: Names) -> Plan:
    return _over(plan, [needed | _read_by([plan.condition])] * 2)


@_narrow.register
def _(plan: Union, needed: Names) -> Plan:
    branches = plan.branches
    if not all(isinstance(branch, Project) for branch in branches):
        return _over(plan, [frozenset(branch.types) for branch in branches])
    keys = {place for branch in branches for place, each in enumerate(branch.visible) if each.name in branch.key}
    wanted = {place for place, each in enumerate(plan.branches[0].visible) if each.name in needed} | keys or {0}
    kept = [frozenset(branch.visible[place].name for place in wanted) for branch in branches]
    return _over(plan, kept)


@_narrow.register
def _(plan: Negation, needed: Names) -> Plan:
    left = needed | {name for name, _ in plan.columns} | set(plan.rank or ())
    return _over(plan, [left, frozenset(name for _, name in plan.columns)])


@_narrow.register
def _(plan: Group, needed: Names) -> Plan:
    read = tuple(each for each in plan.aggregates if each.name in needed)
    kept = read if read or plan.by or plan.window is not None else plan.aggregates[:1]
    narrow = plan if len(kept) == len(plan.aggregates) else replace(plan, aggregates=kept)
    return _over(narrow, [_read_by((*plan.by, *(each.argument for each in kept)))])
