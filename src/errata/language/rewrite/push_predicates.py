"""Predicates are pushed down as far as possible, and constants are carried across equalities.

A predicate moves only where it sees the rows that it sees now, or cannot fail. It goes below an operator only if the
rows that it drops do not change the results of the others: it stays above a window over rows, goes below a group-by
only on grouped columns, and below a negation only on the columns that are compared, and then on both sides.

The first part finds columns with one literal in all rows of a node. It works on the text of the plan: literals of the
column's own type, floating point ones too, without inference. `lineage.constants` follows the constants of given rows
instead, by equality of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch

from errata.language.expr import (
    BOOLEAN,
    EQUAL,
    SAME,
    TRUE,
    Call,
    Expr,
    Lit,
    Ref,
    conjunction,
    conjuncts,
    expr_sql,
    refs,
)
from errata.language.functions import never_fails
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
)
from errata.language.plan import Plan, PlanError, cached_fact, rebuild_plan
from errata.language.rewrite.rule import (
    equal_column_pairs,
    none_can_fail,
    projection_exprs,
    replace_columns,
    substitute_columns,
    treats_equals_alike,
)

LiteralColumns = dict[str, Lit]


@cached_fact
def literal_columns(plan: Plan) -> LiteralColumns:
    """The columns of the node that equal one literal in all rows, as far as the plan's text says so."""
    return _node_literals(plan)


def literals_in_condition(parts: Iterable[Expr]) -> LiteralColumns:
    """The columns that a condition says are equal to a literal of their type."""
    found: LiteralColumns = {}
    for each in parts:
        if isinstance(each, Call) and each.name in (EQUAL, SAME):
            left, right = each.args
            if isinstance(left, Lit):
                left, right = right, left
            if isinstance(left, Ref) and isinstance(right, Lit) and right.value is not None and left.type == right.type:
                found.setdefault(left.name, right)
    return found


@singledispatch
def _node_literals(plan: Plan) -> LiteralColumns:
    raise PlanError(f"which columns of {type(plan).__name__} are constant is not known")


@_node_literals.register
def _(_plan: Scan) -> LiteralColumns:
    return {}


@_node_literals.register(Sliding)
@_node_literals.register(SlidingRows)
@_node_literals.register(Negation)
def _(plan: Plan) -> LiteralColumns:
    return literal_columns(plan.inputs[0])


@_node_literals.register
def _(plan: Distinct) -> LiteralColumns:
    below = literal_columns(plan.input)
    return {each.name: below[each.name] for each in plan.fields if each.name in below}


@_node_literals.register
def _(plan: Filter) -> LiteralColumns:
    return literals_in_condition(conjuncts(plan.predicate)) | literal_columns(plan.input)


@_node_literals.register
def _(plan: Projection) -> LiteralColumns:
    below = literal_columns(plan.input)
    found = {name: below[name] for name in plan.carried if name in below}
    for output in plan.outputs:
        if isinstance(output.expr, Ref) and output.expr.name in below:
            found[output.name] = below[output.expr.name]
        elif isinstance(output.expr, Lit) and output.expr.value is not None:
            found[output.name] = output.expr
    return found


@_node_literals.register(Join)
@_node_literals.register(RelationJoin)
def _(plan: Join | RelationJoin) -> LiteralColumns:
    return literals_in_condition(conjuncts(plan.condition)) | literal_columns(plan.left) | literal_columns(plan.right)


@_node_literals.register
def _(plan: Intersect) -> LiteralColumns:
    left, right = literal_columns(plan.left), literal_columns(plan.right)
    pairs = list(zip(plan.left.visible, plan.right.visible, strict=True))
    found = {ours.name: right[theirs.name] for ours, theirs in pairs if theirs.name in right}
    return found | {ours.name: left[ours.name] for ours, _ in pairs if ours.name in left}


@_node_literals.register
def _(plan: Union) -> LiteralColumns:
    found: LiteralColumns = {}
    for place, column in enumerate(plan.branches[0].visible):
        values = [literal_columns(branch).get(branch.visible[place].name) for branch in plan.branches]
        first = values[0]
        if first is not None and all(each == first for each in values):
            found[column.name] = first
    return found


@_node_literals.register
def _(plan: Group) -> LiteralColumns:
    below = literal_columns(plan.input)
    shown = zip(plan.by, plan.fields, strict=False)
    return {each.name: below[by.name] for by, each in shown if isinstance(by, Ref) and by.name in below}


# Predicates pushed down, node by node.


def push_predicates(plan: Plan) -> Plan:
    """The plan with its predicates pushed down as far as possible, and constants carried across equalities."""
    return rebuild_plan(plan, _push_from)


def _push_from(plan: Plan) -> Plan:
    if isinstance(plan, Filter):
        return _push_filter(plan)
    if isinstance(plan, Join | RelationJoin):
        return _infer_literals(_move_one_sided_conjuncts(plan))
    return plan


def _push_filter(plan: Filter) -> Plan:
    """Push each part down as far as possible. Parts that may fail stay, so that they see no further rows."""
    parts = [each for each in dict.fromkeys(conjuncts(plan.predicate)) if each != TRUE]
    movable = [each for each in parts if never_fails(each)]
    below = plan.input
    for each in movable:
        below = push_down(below, each)
    if (
        movable
        and isinstance(below, Filter)
        and below.input is plan.input
        and conjuncts(below.predicate) == (*movable,)
    ):
        # Nothing went down: one condition stays one.
        return _filter_above(plan.input, parts)
    return _filter_above(below, [each for each in parts if each not in movable])


def _filter_above(plan: Plan, parts: Sequence[Expr]) -> Plan:
    predicate = conjunction(list(parts))
    return plan if predicate is None else Filter(plan, predicate)


@singledispatch
def push_down(plan: Plan, predicate: Expr) -> Plan:
    """The node's rows that fulfil a predicate that cannot fail; rows are dropped as early as possible."""
    raise PlanError(f"whether {expr_sql(predicate)} goes below {type(plan).__name__} is not known")


@push_down.register(Scan)
@push_down.register(SlidingRows)
def _(plan: Plan, predicate: Expr) -> Plan:
    return Filter(plan, predicate)


@push_down.register
def _(plan: Filter, predicate: Expr) -> Plan:
    parts = conjuncts(plan.predicate)
    if predicate in parts:
        return plan
    below = push_down(plan.input, predicate)
    if isinstance(below, Filter) and below.input is plan.input and none_can_fail(parts):
        return _filter_above(plan.input, [*parts, predicate])
    return Filter(below, plan.predicate)


@push_down.register
def _(plan: Projection, predicate: Expr) -> Plan:
    below = substitute_columns(predicate, projection_exprs(plan))
    if below is None or not never_fails(below):
        return Filter(plan, predicate)
    return plan.with_inputs([push_down(plan.input, below)])


@push_down.register
def _(plan: Sliding, predicate: Expr) -> Plan:
    return plan.with_inputs([push_down(plan.input, predicate)])


@push_down.register
def _(plan: Join, predicate: Expr) -> Plan:
    needs = refs(predicate)
    for place, side in enumerate(plan.inputs):
        if needs <= side.types.keys():
            inputs = list(plan.inputs)
            inputs[place] = push_down(side, predicate)
            return plan.with_inputs(inputs)
    return Join(plan.left, plan.right, _and_condition(plan.condition, predicate))


@push_down.register
def _(plan: RelationJoin, predicate: Expr) -> Plan:
    if refs(predicate) <= plan.left.types.keys():
        return plan.with_inputs([push_down(plan.left, predicate), plan.right])
    return RelationJoin(plan.left, plan.right, _and_condition(plan.condition, predicate))


def _and_condition(condition: Expr | None, predicate: Expr) -> Expr | None:
    parts = conjuncts(condition)
    return condition if predicate in parts else conjunction([*parts, predicate])


@push_down.register
def _(plan: Union, predicate: Expr) -> Plan:
    shown = [each.name for each in plan.visible]
    if not refs(predicate) <= set(shown):
        return Filter(plan, predicate)
    return plan.with_inputs(
        [push_down(branch, _predicate_by_position(predicate, shown, branch)) for branch in plan.branches]
    )


def _predicate_by_position(predicate: Expr, names: Sequence[str], other: Plan) -> Expr:
    return replace_columns(
        predicate, {name: other.ref(each.name) for name, each in zip(names, other.visible, strict=True)}
    )


@push_down.register
def _(plan: Distinct, predicate: Expr) -> Plan:
    if not treats_equals_alike(predicate, plan.types):
        return Filter(plan, predicate)
    return plan.with_inputs([push_down(plan.input, predicate)])


@push_down.register
def _(plan: Intersect, predicate: Expr) -> Plan:
    if not treats_equals_alike(predicate, plan.types):
        return Filter(plan, predicate)
    other = _predicate_by_position(predicate, [each.name for each in plan.left.visible], plan.right)
    return plan.with_inputs([push_down(plan.left, predicate), push_down(plan.right, other)])


@push_down.register
def _(plan: Negation, predicate: Expr) -> Plan:
    values: dict[str, Expr] = {}
    for left, right in plan.columns:
        values.setdefault(left, plan.right.ref(right))
    if not refs(predicate) <= values.keys() or not treats_equals_alike(predicate, values):
        return Filter(plan, predicate)
    return plan.with_inputs(
        [push_down(plan.left, predicate), push_down(plan.right, replace_columns(predicate, values))]
    )


@push_down.register
def _(plan: Group, predicate: Expr) -> Plan:
    by = {each.name: expr for each, expr in zip(plan.fields, plan.by, strict=False)}
    below = substitute_columns(predicate, by) if refs(predicate) <= by.keys() else None
    if below is None or not never_fails(below) or not treats_equals_alike(predicate, by):
        return Filter(plan, predicate)
    return plan.with_inputs([push_down(plan.input, below)])


def _move_one_sided_conjuncts(plan: Join | RelationJoin) -> Join | RelationJoin:
    """The join with conditions about one side pushed into that side."""
    inputs = list(plan.inputs)
    sides = inputs if isinstance(plan, Join) else inputs[:1]
    kept = []
    for each in conjuncts(plan.condition):
        places = [at for at, side in enumerate(sides) if refs(each) <= side.types.keys()]
        if each == TRUE:
            continue
        if places and never_fails(each):
            inputs[places[0]] = push_down(inputs[places[0]], each)
        else:
            kept.append(each)
    if len(kept) == len(conjuncts(plan.condition)):
        return plan
    return type(plan)(inputs[0], inputs[1], conjunction(kept))


def _infer_literals(plan: Join | RelationJoin) -> Join | RelationJoin:
    """Carry constants across equalities: a.x = b.y and a.x = 'v' give b.y = 'v', pushed to the side that lacks it."""
    parts = conjuncts(plan.condition)
    inputs = list(plan.inputs)
    known = literals_in_condition(parts) | literal_columns(plan.left) | literal_columns(plan.right)
    for pair in equal_column_pairs(parts):
        for column, other in (pair, pair[::-1]):
            value = known.get(column.name)
            if value is not None and other.name not in known:
                _carry_literal(plan, inputs, other, value)
                known[other.name] = value
    changed = any(new is not old for new, old in zip(inputs, plan.inputs, strict=True))
    return type(plan)(inputs[0], inputs[1], plan.condition) if changed else plan


def _carry_literal(plan: Join | RelationJoin, inputs: list[Plan], column: Ref, value: Lit) -> None:
    for place, side in enumerate(inputs):
        # The right side of a relation join is a scan and stays one.
        if column.name in side.types and (place == 0 or isinstance(plan, Join)):
            less = push_down(side, Call(EQUAL, (column, value), BOOLEAN))
            # Where the column is computed below, the plan would not show that it is constant.
            if column.name in literal_columns(less):
                inputs[place] = less
