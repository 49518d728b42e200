"""Columns that have the same value in all rows, because a condition below says so."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch

from errata.language.expr import EQUAL, SAME, Call, Expr, Lit, Ref, conjuncts
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
from errata.language.plan import Plan, PlanError, fact

Constants = dict[str, Lit]


@fact
def constants(plan: Plan) -> Constants:
    """The columns of the node that are equal to one and the same literal, as far as it is written."""
    return _constants(plan)


def said(parts: Iterable[Expr]) -> Constants:
    """The columns that a condition says are equal to a literal of their type."""
    found: Constants = {}
    for each in parts:
        if isinstance(each, Call) and each.name in (EQUAL, SAME):
            left, right = each.args
            if isinstance(left, Lit):
                left, right = right, left
            if isinstance(left, Ref) and isinstance(right, Lit) and right.value is not None and left.type == right.type:
                found.setdefault(left.name, right)
    return found


@singledispatch
def _constants(plan: Plan) -> Constants:
    raise PlanError(f"which columns of {type(plan).__name__} are constant is not known")


@_constants.register
def _(_plan: Scan) -> Constants:
    return {}


@_constants.register(Sliding)
@_constants.register(SlidingRows)
@_constants.register(Negation)
def _(plan: Plan) -> Constants:
    return constants(plan.inputs[0])


@_constants.register
def _(plan: Distinct) -> Constants:
    below = constants(plan.input)
    return {each.name: below[each.name] for each in plan.fields if each.name in below}


@_constants.register
def _(plan: Filter) -> Constants:
    return said(conjuncts(plan.predicate)) | constants(plan.input)


@_constants.register
def _(plan: Project) -> Constants:
    below = constants(plan.input)
    found = {name: below[name] for name in plan.carried if name in below}
    for output in plan.outputs:
        if isinstance(output.expr, Ref) and output.expr.name in below:
            found[output.name] = below[output.expr.name]
        elif isinstance(output.expr, Lit) and output.expr.value is not None:
            found[output.name] = output.expr
    return found


@_constants.register(Join)
@_constants.register(RelationJoin)
def _(plan: Join | RelationJoin) -> Constants:
    return said(conjuncts(plan.condition)) | constants(plan.left) | constants(plan.right)


@_constants.register
def _(plan: Intersect) -> Constants:
    left, right = constants(plan.left), constants(plan.right)
    pairs = list(zip(plan.left.visible, plan.right.visible, strict=True))
    found = {ours.name: right[theirs.name] for ours, theirs in pairs if theirs.name in right}
    return found | {ours.name: left[ours.name] for ours, _ in pairs if ours.name in left}


@_constants.register
def _(plan: Union) -> Constants:
    found: Constants = {}
    for place, column in enumerate(plan.branches[0].visible):
        values = [constants(branch).get(branch.visible[place].name) for branch in plan.branches]
        first = values[0]
        if first is not None and all(each == first for each in values):
            found[column.name] = first
    return found


@_constants.register
def _(plan: Group) -> Constants:
    below = constants(plan.input)
    shown = zip(plan.by, plan.fields, strict=False)
    return {each.name: below[by.name] for by, each in shown if isinstance(by, Ref) and by.name in below}
