"""Joins are ordered by update pattern: inputs with simple patterns first, strict ones last, so that few operators see
retracted rows (Golab and Özsu, 2005, 5.4.2).

Joins with retroactive relations, which make every pattern strict, come after plain joins. No pair of inputs is joined
without a condition that was not joined so before.
"""

from __future__ import annotations

from collections.abc import Iterable

from errata.language.expr import Expr, conjunction, conjuncts, refs
from errata.language.nodes import Join, RelationJoin
from errata.language.patterns import update_pattern
from errata.language.plan import Plan
from errata.language.rewrite.rule import VisibleTraits, none_can_fail, rebuild_with_traits


def simplify_patterns(plan: Plan) -> Plan:
    """The plan with its joins in the order of their inputs' patterns, where no operator observes the order of the
    columns."""
    return rebuild_with_traits(plan, _simplify_node)


def _simplify_node(plan: Plan, watch: VisibleTraits) -> Plan:
    if not isinstance(plan, Join):
        return plan
    after = _relation_after(plan, moves=not (watch.positions or watch.order))
    if after is not plan or watch.positions or watch.order:
        return after
    return _reorder_joins(plan)


def _relation_after(plan: Join, *, moves: bool) -> Plan:
    """The join below a retroactive relation join of one of its sides; of the left one only if columns may move."""
    for side, other in ((plan.right, plan.left), (plan.left, plan.right)):
        if not isinstance(side, RelationJoin) or not side.retroactive or (side is plan.left and not moves):
            continue
        relation = side.relation
        parts = conjuncts(plan.condition)
        late = [each for each in parts if refs(each) & relation.types.keys()]
        early = [each for each in parts if each not in late]
        joined = not parts or any(_connects_inputs(each, side.left, other) for each in early)
        if joined and none_can_fail([*parts, *conjuncts(side.condition)]):
            inputs = [side.left if each is side else each for each in plan.inputs]
            below = Join(inputs[0], inputs[1], conjunction(early))
            return RelationJoin(below, relation, conjunction([*conjuncts(side.condition), *late]))
    return plan


def _connects_inputs(condition: Expr, one: Plan, other: Plan) -> bool:
    names = refs(condition)
    return bool(names & one.types.keys()) and bool(names & other.types.keys())


def _reorder_joins(plan: Join) -> Plan:
    """The joins from here down, ordered by the patterns of their inputs."""
    inputs, parts = _join_inputs(plan)
    ordered = _order_inputs(inputs, parts)
    if all(new is old for new, old in zip(ordered, inputs, strict=True)) or not none_can_fail(parts):
        return plan
    rebuilt = _left_deep_join(ordered, parts)
    return rebuilt if _unconditional_joins(rebuilt) <= _unconditional_joins(plan) else plan


def _join_inputs(plan: Plan) -> tuple[list[Plan], list[Expr]]:
    """The inputs of the joins from here down, from left to right, and all their conditions."""
    if not isinstance(plan, Join):
        return [plan], []
    left, right = _join_inputs(plan.left), _join_inputs(plan.right)
    return [*left[0], *right[0]], [*left[1], *right[1], *conjuncts(plan.condition)]


def _order_inputs(inputs: list[Plan], parts: list[Expr]) -> list[Plan]:
    """The simplest patterns first, but each one joined by some condition to those before it, if there is one."""
    rest = sorted(inputs, key=lambda each: update_pattern(each).rank)
    ordered = [rest.pop(0)]
    while rest:
        there = _columns_of_plans(ordered)
        joined = (each for each in rest if any(_is_join_condition(part, there, each) for part in parts))
        following = next(joined, rest[0])
        ordered.append(following)
        rest = [each for each in rest if each is not following]
    return ordered


def _is_join_condition(condition: Expr, there: frozenset[str], plan: Plan) -> bool:
    """Whether it is a condition between the inputs joined so far and this one."""
    names = refs(condition)
    mine = names & plan.types.keys()
    return bool(mine) and bool(names - mine) and names - mine <= there


def _columns_of_plans(plans: Iterable[Plan]) -> frozenset[str]:
    return frozenset(name for each in plans for name in each.types)


def _left_deep_join(inputs: list[Plan], parts: list[Expr]) -> Plan:
    """The inputs joined from left to right, each condition as soon as its columns are there."""
    plan, rest = inputs[0], list(parts)
    for each in inputs[1:]:
        there = _columns_of_plans((plan, each))
        ready = [part for part in rest if refs(part) <= there]
        rest = [part for part in rest if part not in ready]
        plan = Join(plan, each, conjunction(ready))
    return plan


def _unconditional_joins(plan: Plan) -> int:
    """The number of joins from here down without a condition between their sides."""
    if not isinstance(plan, Join):
        return 0
    here = not any(_connects_inputs(each, plan.left, plan.right) for each in conjuncts(plan.condition))
    return here + _unconditional_joins(plan.left) + _unconditional_joins(plan.right)
