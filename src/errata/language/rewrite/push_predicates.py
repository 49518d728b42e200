"""Predicates go down as far as they can: what they drop, nobody above has to look at.

A predicate moves only where it sees rows that it sees now, or cannot fail. It goes below an operator only if the rows
that it drops do not change what becomes of the others; so it stays above a window over rows, goes below a group-by only
on what is grouped by, and below a negation only on the columns that make the value, and then on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from errata.language.expr import (
    BOOLEAN,
    EQUAL,
    TRUE,
    Call,
    Expr,
    Lit,
    Ref,
    conjunction,
    conjuncts,
    refs,
    sql,
)
from errata.language.functions import total
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
from errata.language.plan import Plan, PlanError, rebuild
from errata.language.rewrite.constants import constants, said
from errata.language.rewrite.sound import all_total, equalities, made_of, replaced, substituted, treats_equals_alike


def push_predicates(plan: Plan) -> Plan:
    """The plan with its predicates as far down as they can go, and constants carried across equalities."""
    return rebuild(plan, _pushed)


def _pushed(plan: Plan) -> Plan:
    if isinstance(plan, Filter):
        return _filter(plan)
    if isinstance(plan, Join | RelationJoin):
        return _inferred(_own_conjuncts(plan))
    return plan


def _filter(plan: Filter) -> Plan:
    """Its parts each as far down as possible; those that may fail stay, and see no more than before."""
    parts = [each for each in dict.fromkeys(conjuncts(plan.predicate)) if each != TRUE]
    movable = [each for each in parts if total(each)]
    below = plan.input
    for each in movable:
        below = sink(below, each)
    if (
        movable
        and isinstance(below, Filter)
        and below.input is plan.input
        and conjuncts(below.predicate) == (*movable,)
    ):
        # Nothing went down: what is written in one condition stays in one.
        return _on_top(plan.input, parts)
    return _on_top(below, [each for each in parts if each not in movable])


def _on_top(plan: Plan, parts: Sequence[Expr]) -> Plan:
    predicate = conjunction(list(parts))
    return plan if predicate is None else Filter(plan, predicate)


@singledispatch
def sink(plan: Plan, predicate: Expr) -> Plan:
    """The node's rows for which a predicate that cannot fail is true; dropped as early as possible."""
    raise PlanError(f"whether {sql(predicate)} goes below {type(plan).__name__} is not known")


@sink.register(Scan)
@sink.register(SlidingRows)
def _(plan: Plan, predicate: Expr) -> Plan:
    return Filter(plan, predicate)


@sink.register
def _(plan: Filter, predicate: Expr) -> Plan:
    parts = conjuncts(plan.predicate)
    if predicate in parts:
        return plan
    below = sink(plan.input, predicate)
    if isinstance(below, Filter) and below.input is plan.input and all_total(parts):
        return _on_top(plan.input, [*parts, predicate])
    return Filter(below, plan.predicate)


@sink.register
def _(plan: Project, predicate: Expr) -> Plan:
    below = substituted(predicate, made_of(plan))
    if below is None or not total(below):
        return Filter(plan, predicate)
    return plan.with_inputs([sink(plan.input, below)])


@sink.register
def _(plan: Sliding, predicate: Expr) -> Plan:
    return plan.with_inputs([sink(plan.input, predicate)])


@sink.register
def _(plan: Join, predicate: Expr) -> Plan:
    needs = refs(predicate)
    for place, side in enumerate(plan.inputs):
        if needs <= side.types.keys():
            inputs = list(plan.inputs)
            inputs[place] = sink(side, predicate)
            return plan.with_inputs(inputs)
    return Join(plan.left, plan.right, _also(plan.condition, predicate))


@sink.register
def _(plan: RelationJoin, predicate: Expr) -> Plan:
    if refs(predicate) <= plan.left.types.keys():
        return plan.with_inputs([sink(plan.left, predicate), plan.right])
    return RelationJoin(plan.left, plan.right, _also(plan.condition, predicate))


def _also(condition: Expr | None, predicate: Expr) -> Expr | None:
    parts = conjuncts(condition)
    return condition if predicate in parts else conjunction([*parts, predicate])


@sink.register
def _(plan: Union, predicate: Expr) -> Plan:
    shown = [each.name for each in plan.visible]
    if not refs(predicate) <= set(shown):
        return Filter(plan, predicate)
    return plan.with_inputs([sink(branch, _by_position(predicate, shown, branch)) for branch in plan.branches])


def _by_position(predicate: Expr, names: Sequence[str], other: Plan) -> Expr:
    return replaced(predicate, {name: other.ref(each.name) for name, each in zip(names, other.visible, strict=True)})


@sink.register
def _(plan: Distinct, predicate: Expr) -> Plan:
    if not treats_equals_alike(predicate, plan.types):
        return Filter(plan, predicate)
    return plan.with_inputs([sink(plan.input, predicate)])


@sink.register
def _(plan: Intersect, predicate: Expr) -> Plan:
    if not treats_equals_alike(predicate, plan.types):
        return Filter(plan, predicate)
    other = _by_position(predicate, [each.name for each in plan.left.visible], plan.right)
    return plan.with_inputs([sink(plan.left, predicate), sink(plan.right, other)])


@sink.register
def _(plan: Negation, predicate: Expr) -> Plan:
    values: dict[str, Expr] = {}
    for left, right in plan.columns:
        values.setdefault(left, plan.right.ref(right))
    if not refs(predicate) <= values.keys() or not treats_equals_alike(predicate, values):
        return Filter(plan, predicate)
    return plan.with_inputs([sink(plan.left, predicate), sink(plan.right, replaced(predicate, values))])


@sink.register
def _(plan: Group, predicate: Expr) -> Plan:
    by = {each.name: expr for each, expr in zip(plan.fields, plan.by, strict=False)}
    below = substituted(predicate, by) if refs(predicate) <= by.keys() else None
    if below is None or not total(below) or not treats_equals_alike(predicate, by):
        return Filter(plan, predicate)
    return plan.with_inputs([sink(plan.input, below)])


def _own_conjuncts(plan: Join | RelationJoin) -> Join | RelationJoin:
    """A join whose condition speaks of both sides; what spoke of one alone has gone there."""
    inputs = list(plan.inputs)
    sides = inputs if isinstance(plan, Join) else inputs[:1]
    kept = []
    for each in conjuncts(plan.condition):
        places = [at for at, side in enumerate(sides) if refs(each) <= side.types.keys()]
        if each == TRUE:
            continue
        if places and total(each):
            inputs[places[0]] = sink(inputs[places[0]], each)
        else:
            kept.append(each)
    if len(kept) == len(conjuncts(plan.condition)):
        return plan
    return type(plan)(inputs[0], inputs[1], conjunction(kept))


def _inferred(plan: Join | RelationJoin) -> Join | RelationJoin:
    """With a.x = b.y and a.x = 'v' also b.y = 'v': carried to the side that does not know it yet."""
    parts = conjuncts(plan.condition)
    inputs = list(plan.inputs)
    known = said(parts) | constants(plan.left) | constants(plan.right)
    for pair in equalities(parts):
        for column, other in (pair, pair[::-1]):
            value = known.get(column.name)
            if value is not None and other.name not in known:
                _carry(plan, inputs, other, value)
                known[other.name] = value
    changed = any(new is not old for new, old in zip(inputs, plan.inputs, strict=True))
    return type(plan)(inputs[0], inputs[1], plan.condition) if changed else plan


def _carry(plan: Join | RelationJoin, inputs: list[Plan], column: Ref, value: Lit) -> None:
    for place, side in enumerate(inputs):
        # The right side of a relation join is a scan and stays one.
        if column.name in side.types and (place == 0 or isinstance(plan, Join)):
            less = sink(side, Call(EQUAL, (column, value), BOOLEAN))
            # Where the column is computed below, the plan would not show that it is known now.
            if column.name in constants(less):
                inputs[place] = less
