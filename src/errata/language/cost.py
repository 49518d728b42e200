"""The cost of a plan per second of event time, as Golab and Özsu (2005, 5.4.1) count it: rows touched.

These are estimates, used only to compare plans of one query with each other. Plans over plain numbers are counted per
unit of event time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatchmethod
from math import log2

from errata.language.estimates import DefaultStatistics, Estimator, NodeEstimate, Statistics, value_overlap
from errata.language.nodes import (
    Aggregate,
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
from errata.language.patterns import update_pattern
from errata.language.plan import Plan, PlanError, walk_plan
from errata.model.results import UpdatePattern

_INCREMENTAL_AGGREGATES = ("count", "sum", "avg", "stddev")
"""Aggregates that a row is simply added to, or taken away from."""


@dataclass(frozen=True, slots=True)
class NodeCost:
    """The estimated rate, size and cost of a node."""

    node: Plan
    rate: float
    """Results per second of event time: λ."""
    size: float
    """Results that count at one time: N."""
    cost: float
    """Rows touched per second of event time."""


@dataclass(frozen=True, slots=True)
class PlanCost:
    """The cost of a plan, in total and by node."""

    total: float
    by_node: tuple[NodeCost, ...]
    """In the order of `walk_plan`: each node before its inputs."""


def plan_cost(plan: Plan, statistics: Statistics | None = None) -> PlanCost:
    """The cost of a plan per second of event time; deterministic for a plan and its statistics."""
    work = _CostModel(Estimator(DefaultStatistics() if statistics is None else statistics))
    nodes = tuple(work.node(each) for each in walk_plan(plan))
    return PlanCost(sum(each.cost for each in nodes), nodes)


class _CostModel:
    """The formulas of 5.4.1 over estimates of rates and sizes."""

    def __init__(self, estimates: Estimator) -> None:
        self._estimates = estimates

    def node(self, plan: Plan) -> NodeCost:
        inputs = [self._estimates.estimate(child) for child in plan.inputs]
        own = self._estimates.estimate(plan)
        return NodeCost(plan, own.rate, own.size, self._cost(plan, inputs))

    def _negative(self, plan: Plan) -> float:
        """The factor by which negative tuples increase the rows to process: rows that end without notice count
        twice."""
        ends = [
            self._estimates.estimate(child).premature_share
            for child in plan.inputs
            if update_pattern(child) is UpdatePattern.STRICT
        ]
        return 1.0 + max(ends, default=0.0)

    @singledispatchmethod
    def _cost(self, plan: Plan, _inputs: Sequence[NodeEstimate]) -> float:
        raise PlanError(f"the costs of {type(plan).__name__} are not known")

    @_cost.register(Scan)
    @_cost.register(Sliding)
    def _(self, _plan: Plan, _inputs: Sequence[NodeEstimate]) -> float:
        # The end of a row is known when it comes: a window does no work.
        return 0.0

    @_cost.register
    def _(self, _plan: SlidingRows, inputs: Sequence[NodeEstimate]) -> float:
        # Each row pushes another one out.
        return 2 * inputs[0].rate

    @_cost.register(Filter)
    @_cost.register(Projection)
    @_cost.register(Union)
    def _(self, plan: Plan, inputs: Sequence[NodeEstimate]) -> float:
        return sum(each.rate for each in inputs) * self._negative(plan)

    @_cost.register(Join)
    @_cost.register(Intersect)
    def _(self, plan: Plan, inputs: Sequence[NodeEstimate]) -> float:
        return sum(each.rate * each.size for each in inputs) * self._negative(plan)

    @_cost.register
    def _(self, plan: RelationJoin, inputs: Sequence[NodeEstimate]) -> float:
        left, relation = inputs
        if plan.retroactive:
            return (left.rate * left.size + relation.rate * relation.size) * self._negative(plan)
        # Nothing of the left is kept; each row looks up one version (4.1).
        return left.rate * log2(2 + relation.size) * self._negative(plan)

    @_cost.register
    def _(self, plan: Distinct, inputs: Sequence[NodeEstimate]) -> float:
        (below,) = inputs
        kept = self._estimates.estimate(plan).size
        # Over strict input all of it is kept, and looked through when a result ends (2.1, 5.3.1).
        if update_pattern(plan.input) is UpdatePattern.STRICT:
            return below.rate * (below.size + kept) / 2 * self._negative(plan)
        return below.rate * kept / 2

    @_cost.register
    def _(self, plan: Group, inputs: Sequence[NodeEstimate]) -> float:
        (below,) = inputs
        rows = below.size / max(self._estimates.estimate(plan).size, 1.0)
        again = sum(_recompute_cost(each, rows) for each in plan.aggregates)
        return 2 * below.rate * max(again, 1.0)

    @_cost.register
    def _(self, plan: Negation, inputs: Sequence[NodeEstimate]) -> float:
        left, right = inputs
        mine, theirs = self._estimates.negation_value_counts(plan)
        counted = 2 * left.rate * log2(max(mine, 2.0)) + 2 * right.rate * log2(max(theirs, 2.0))
        # The right takes rows of the left back and lets them stand again: each time the left's state is looked up.
        return (counted + 2 * right.rate * value_overlap(mine, theirs)) * self._negative(plan)


def _recompute_cost(aggregate: Aggregate, rows: float) -> float:
    """C of 5.4.1: the rows read to recompute an aggregate when one row of a group of `rows` comes or goes."""
    if aggregate.function in _INCREMENTAL_AGGREGATES and not aggregate.distinct:
        return 1.0
    return log2(2 + rows)


__all__ = ["DefaultStatistics", "NodeCost", "PlanCost", "Statistics", "plan_cost"]
