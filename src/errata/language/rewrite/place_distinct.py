"""Distinct is moved below a join, so that the join can share what δ* keeps (Golab and Özsu, 2005, 5.4.2), and dropped
over rows that are distinct already."""

from __future__ import annotations

from errata.language.cost import Statistics
from errata.language.expr import Ref, conjuncts, refs
from errata.language.nodes import Distinct, Join, Output, Projection
from errata.language.plan import Plan, rebuild_plan
from errata.language.rewrite.rule import (
    RewriteRule,
    VisibleTraits,
    apply_where_cheaper,
    has_no_statistics,
    is_unique_by,
    rebuild_with_traits,
    treats_equals_alike,
)
from errata.language.times import OwnTime, row_times


def distinct_before_join(plan: Plan) -> Plan:
    """A distinct over a join with both of the join's sides made distinct first, on the columns that are needed.

    The outer distinct stays; where it has become needless, the other rule drops it.
    """
    if (
        not isinstance(plan, Distinct)
        or not isinstance(plan.input, Projection)
        or not isinstance(plan.input.input, Join)
    ):
        return plan
    project, join = plan.input, plan.input.input
    exprs = [*(each.expr for each in project.outputs), *conjuncts(join.condition)]
    # A column that is output unchanged may be any one of equal values.
    computed = [each for each in exprs if not isinstance(each, Ref)]
    if not all(treats_equals_alike(each, join.types) for each in computed):
        return plan
    needed = frozenset(name for each in exprs for name in refs(each))
    sides = [_distinct_on(side, needed) for side in join.inputs]
    if all(new is old for new, old in zip(sides, join.inputs, strict=True)):
        return plan
    return Distinct(project.with_inputs([join.with_inputs(sides)]))


def _distinct_on(plan: Plan, needed: frozenset[str]) -> Plan:
    """Each combination of the columns once; the node itself where its rows differ in them anyway."""
    names = [each.name for each in plan.fields if each.name in needed]
    if not names or is_unique_by(plan, names):
        return plan
    return Distinct(Projection(plan, tuple(Output(name, plan.ref(name)) for name in names)))


def drop_needless_distinct(plan: Plan) -> Plan:
    """The plan without each distinct over what is distinct already."""
    return rebuild_with_traits(plan, _without_distinct)


def _without_distinct(plan: Plan, watch: VisibleTraits) -> Plan:
    if not isinstance(plan, Distinct):
        return plan
    below = plan.input
    same_key = set(below.key) == set(plan.key) and (below.key == plan.key or not watch.order)
    if same_key and below.fields == plan.fields and row_times(below).own is OwnTime.NONE:
        return below
    # Other columns become the key, and rows may have times of their own again.
    return below if is_unique_by(below, plan.types) and not watch.identity else plan


def _place_distinct(plan: Plan, statistics: Statistics) -> Plan:
    plan = drop_needless_distinct(plan)
    moved = (
        rebuild_plan(plan, distinct_before_join)
        if has_no_statistics(statistics)
        else apply_where_cheaper(plan, distinct_before_join, statistics)
    )
    return drop_needless_distinct(moved)


PLACE_DISTINCT = RewriteRule("place_distinct", _place_distinct)
