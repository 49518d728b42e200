"""Columns that no operator reads are dropped, down to the declared sources.

The key of every node stays as it is, and so do the columns that define a scan's rows: the order column, and of a
relation the column that marks deleted rows. Operators that compare columns by position keep all their columns.
"""

from __future__ import annotations

from collections import defaultdict
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
    Projection,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
    scans_of,
)
from errata.language.plan import Plan, PlanError, Source, cached_fact, rebuild_plan

ColumnNames = frozenset[str]


def prune_columns(plan: Plan) -> Plan:
    """The plan without columns, expressions and aggregates that the answer does not need."""
    return _narrowed_node(plan, frozenset(plan.types))


def _narrowed_node(plan: Plan, needed: ColumnNames) -> Plan:
    """The node with the columns needed, its key, and perhaps some more."""
    return _narrow_node(plan, needed & plan.types.keys() | set(plan.key))


def _with_narrowed_inputs(plan: Plan, needed: Sequence[ColumnNames]) -> Plan:
    inputs = [_narrowed_node(child, names) for child, names in zip(plan.inputs, needed, strict=True)]
    return plan if all(new is old for new, old in zip(inputs, plan.inputs, strict=True)) else plan.with_inputs(inputs)


def _columns_of(exprs: Iterable[Expr | None]) -> ColumnNames:
    return frozenset(name for each in exprs if each is not None for name in refs(each))


@singledispatch
def _narrow_node(plan: Plan, _needed: ColumnNames) -> Plan:
    raise PlanError(f"which columns {type(plan).__name__} needs is not known")


@_narrow_node.register(Distinct)
@_narrow_node.register(Intersect)
def _(plan: Plan, _needed: ColumnNames) -> Plan:
    # All visible columns make the value.
    return _with_narrowed_inputs(plan, [frozenset(field.name for field in child.visible) for child in plan.inputs])


@_narrow_node.register
def _(plan: Scan, needed: ColumnNames) -> Plan:
    source = plan.source
    always = {*source.key, source.order, source.deleted}
    there = [each.name for each in source.fields if plan.column(each.name) in plan.types]
    kept = tuple(name for name in there if name in always or plan.column(name) in needed) or tuple(there[:1])
    return plan if len(kept) == len(there) else replace(plan, columns=kept)


@_narrow_node.register(Sliding)
@_narrow_node.register(SlidingRows)
def _(plan: Plan, needed: ColumnNames) -> Plan:
    return _with_narrowed_inputs(plan, [needed])


@_narrow_node.register
def _(plan: Filter, needed: ColumnNames) -> Plan:
    return _with_narrowed_inputs(plan, [needed | refs(plan.predicate)])


@_narrow_node.register
def _(plan: Projection, needed: ColumnNames) -> Plan:
    kept = tuple(each for each in plan.outputs if each.name in needed) or plan.outputs[:1]
    narrow = plan if len(kept) == len(plan.outputs) else replace(plan, outputs=kept)
    return _with_narrowed_inputs(narrow, [_columns_of(each.expr for each in kept) | needed])


@_narrow_node.register(Join)
@_narrow_node.register(RelationJoin)
def _(plan: Join | RelationJoin, needed: ColumnNames) -> Plan:
    return _with_narrowed_inputs(plan, [needed | _columns_of([plan.condition])] * 2)


@_narrow_node.register
def _(plan: Union, needed: ColumnNames) -> Plan:
    branches = plan.branches
    if not all(isinstance(branch, Projection) for branch in branches):
        return _with_narrowed_inputs(plan, [frozenset(branch.types) for branch in branches])
    keys = {place for branch in branches for place, each in enumerate(branch.visible) if each.name in branch.key}
    wanted = {place for place, each in enumerate(plan.branches[0].visible) if each.name in needed} | keys or {0}
    kept = [frozenset(branch.visible[place].name for place in wanted) for branch in branches]
    return _with_narrowed_inputs(plan, kept)


@_narrow_node.register
def _(plan: Negation, needed: ColumnNames) -> Plan:
    left = needed | {name for name, _ in plan.columns} | set(plan.rank or ())
    return _with_narrowed_inputs(plan, [left, frozenset(name for _, name in plan.columns)])


@_narrow_node.register
def _(plan: Group, needed: ColumnNames) -> Plan:
    read = tuple(each for each in plan.aggregates if each.name in needed)
    kept = read if read or plan.by or plan.window is not None else plan.aggregates[:1]
    narrow = plan if len(kept) == len(plan.aggregates) else replace(plan, aggregates=kept)
    return _with_narrowed_inputs(narrow, [_columns_of((*plan.by, *(each.argument for each in kept)))])


# A plan over sources with only the columns that it reads.
#
# It distinguishes the forms of a query. A column that is added to a stream, or moved within its declaration, changes
# only the plans of queries that read it or list `*`.


@cached_fact
def over_needed_columns(plan: Plan) -> Plan:
    """The plan without the columns that no operator needs; the columns of its sources are sorted by name. Queries that
    are read through others are narrowed likewise."""
    pruned = prune_columns(plan)
    needed: dict[str, set[str]] = defaultdict(set)
    for scan in scans_of(pruned):
        needed[scan.source.name].update(scan.of_source(each.name) for each in scan.fields)
    sources = {scan.source.name: _narrowed_source(scan.source, needed[scan.source.name]) for scan in scans_of(pruned)}
    return rebuild_plan(
        pruned, lambda node: _scan_of(node, sources[node.source.name]) if isinstance(node, Scan) else node
    )


def _narrowed_source(source: Source, needed: set[str]) -> Source:
    fields = sorted((each for each in source.fields if each.name in needed), key=lambda each: each.name)
    inner = None if source.plan is None else over_needed_columns(source.plan)
    return replace(source, fields=tuple(fields), plan=inner)


def _scan_of(scan: Scan, source: Source) -> Scan:
    """The scan of a narrowed source; two scans of one source may need different columns of it."""
    own = {scan.of_source(each.name) for each in scan.fields}
    kept = tuple(each.name for each in source.fields if each.name in own)
    return Scan(source, scan.alias, None if len(kept) == len(source.fields) else kept)
