"""Plans over samples, rewritten so that their aggregates are those of all rows, estimated.

    SELECT symbol, count(*) AS n FROM quotes TABLESAMPLE (10 PERCENT) GROUP BY symbol

    project symbol, n [, n_low, n_high]
      project symbol, round(sum(1/_rate)) as count(*) [, its bounds]      added here
        group by symbol: sum(1/_rate) [, sums of squares]                 in place of count(*)
          scan quotes TABLESAMPLE uniform(0.1), with the hidden column _rate

The engine knows nothing of samples: weights are expressions over the column `_rate`, which a sampled scan has beside
its own and which is carried up to the group (`weights`). Where a join or a union can repeat a row, and bounds are
asked for, rows are first summed by their unit, the sampling hash: rows of one unit are in the sample together.

Sources whose rates turned out to be 1 are exact: their part of the plan stays as it was, and bounds are the value.
What cannot be estimated from a sample is refused with the reason; what is merely not scaled is said in `remarks`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod

from errata.language.expr import Expr, Ref, refs
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Output,
    Projection,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.outer_joins import OuterJoin
from errata.language.plan import Plan, PlanError
from errata.language.sampling import CLAUSE, sampled_sources
from errata.reduce.estimated_groups import (
    HIGH,
    LOW,
    EstimateBounds,
    EstimatedNode,
    bound_output,
    estimate_group,
    exact_group,
    same_bound,
)
from errata.reduce.intervals import ESTIMATED
from errata.reduce.weights import SampleScope, Weighting


@dataclass(frozen=True, slots=True)
class EstimatedPlan:
    """A plan whose aggregates over samples are estimates."""

    plan: Plan
    estimates: tuple[str, ...]
    """The columns of the answer that are estimates."""
    remarks: tuple[str, ...]
    """What a reader must know about columns that are none."""

    @property
    def columns(self) -> list[str]:
        """The answer's columns, bounds included."""
        return [each.name for each in self.plan.visible]


def estimate_plan(plan: Plan, exact: Collection[str], *, with_error: bool = False, where: str = "") -> EstimatedPlan:
    """The plan with estimates for its aggregates over samples. `exact`: the names of sampled sources whose rows are all
    read; `with_error`: each estimate has its bounds behind it."""
    named = frozenset(sampled_sources(plan))
    scope = SampleScope(named, named & frozenset(exact), where)
    if not with_error and named == scope.exact:
        return EstimatedPlan(plan, (), ())
    rewriting = _Rewriting(scope, with_error)
    found = rewriting.node(plan)
    if with_error and not found.estimates:
        raise scope.refusal(
            "no column of the answer is an estimate",
            "an interval is one of a count, a sum or an average of rows that are sampled",
            f"leave out --with-error, or select an aggregate over a stream with {CLAUSE}",
        )
    if scope.samples(plan) and not rewriting.remarks and not found.estimates:
        rewriting.remark("the rows are those of the sample: nothing is scaled")
    return EstimatedPlan(found.plan, tuple(found.estimates), tuple(rewriting.remarks))


@dataclass
class _Rewriting:
    """Rewrites one plan, from the root down."""

    scope: SampleScope
    with_error: bool
    remarks: dict[str, None] = field(default_factory=dict)

    def remark(self, words: str) -> None:
        """Note what a reader must know."""
        self.remarks[words] = None

    def node(self, plan: Plan) -> EstimatedNode:
        """The node with estimates below it; nodes over other sources stay as they are."""
        return self._node(plan) if self.scope.concerned(plan) else EstimatedNode(plan)

    @singledispatchmethod
    def _node(self, plan: Plan) -> EstimatedNode:
        raise PlanError(f"how {type(plan).__name__} is estimated is not known")

    @_node.register
    def _(self, plan: Scan) -> EstimatedNode:
        return EstimatedNode(plan)

    @_node.register
    def _(self, plan: Sliding) -> EstimatedNode:
        below = self.node(plan.input)
        return below.over(plan.with_inputs([below.plan]))

    @_node.register
    def _(self, plan: SlidingRows) -> EstimatedNode:
        if self.scope.samples(plan):
            raise self.scope.rows_refusal("a window over rows")
        return EstimatedNode(plan)

    @_node.register
    def _(self, plan: Filter) -> EstimatedNode:
        below = self.node(plan.input)
        self._check_condition(plan.predicate, below, "HAVING")
        return below.over(Filter(below.plan, plan.predicate))

    def _check_condition(self, condition: Expr | None, below: EstimatedNode, what: str) -> None:
        compared = sorted(below.derived & refs(condition)) if condition is not None else []
        if compared and self.scope.samples(below.plan):
            raise self.scope.refusal(
                f"{what} compares {', '.join(compared)}, which is computed from a sample",
                "rows near the limit would be in the answer or not by chance, and no interval says which",
                f"leave out the condition, and compare in the answer; or leave out {CLAUSE}",
            )

    @_node.register
    def _(self, plan: Distinct) -> EstimatedNode:
        below = self.node(plan.input)
        if not below.derived and self.scope.samples(plan):
            self.remark(_MISSING_VALUES)
        return below.over(Distinct(below.plan))

    @_node.register
    def _(self, plan: Intersect) -> EstimatedNode:
        self._check_no_estimates(plan, "INTERSECT")
        if self.scope.samples(plan):
            self.remark(_MISSING_VALUES)
        return EstimatedNode(plan)

    @_node.register
    def _(self, plan: Negation) -> EstimatedNode:
        if self.scope.samples(plan):
            raise self.scope.negation_refusal()
        return EstimatedNode(plan)

    @_node.register
    def _(self, plan: OuterJoin) -> EstimatedNode:
        self._check_no_estimates(plan, "an outer join")
        self.scope.check_outer(plan)
        return EstimatedNode(plan)

    def _check_no_estimates(self, plan: Plan, what: str) -> None:
        if any(self.scope.samples(each) for each in self.scope.groups(plan)):
            raise self.scope.refusal(
                f"{what} cannot be over estimates",
                "groups of which the sample has no row are missing, and the others are uncertain",
                f"write JOIN, or leave out {CLAUSE}",
            )

    @_node.register(Join)
    @_node.register(RelationJoin)
    def _(self, plan: Join | RelationJoin) -> EstimatedNode:
        left, right = self.node(plan.left), self.node(plan.right)
        for side in (left, right):
            self._check_condition(plan.condition, side, "JOIN")
        joined = type(plan)(left.plan, right.plan, plan.condition)
        return EstimatedNode(joined, {**left.estimates, **right.estimates}, left.of_sample | right.of_sample)

    @_node.register
    def _(self, plan: Projection) -> EstimatedNode:
        below = self.node(plan.input)
        outputs: list[Output] = []
        estimates: dict[str, EstimateBounds | None] = {}
        for output in plan.outputs:
            outputs.append(output)
            if refs(output.expr) & below.estimates.keys():
                estimates[output.name] = None
                if self.with_error:
                    bounds = [bound_output(self.scope, output, below, upper=upper) for upper in (False, True)]
                    outputs += bounds
                    estimates[output.name] = EstimateBounds(*(Ref(each.name, each.expr.type) for each in bounds))
        self._check_names(outputs)
        of_sample = frozenset(each.name for each in plan.outputs if refs(each.expr) & below.of_sample)
        return EstimatedNode(Projection(below.plan, tuple(outputs)), estimates, of_sample)

    def _check_names(self, outputs: Sequence[Output]) -> None:
        names = [each.name.lower() for each in outputs]
        for each in outputs:
            if names.count(each.name.lower()) > 1:
                raise self.scope.refusal(
                    f"the column {each.name} is there twice",
                    f"with --with-error the bounds of n are n{LOW} and n{HIGH}",
                    "give the column another name: expression AS name",
                )

    @_node.register
    def _(self, plan: Union) -> EstimatedNode:
        branches = [self.node(each) for each in plan.branches]
        columns = [[each.name for each in branch.visible] for branch in plan.branches]
        pairs = [*zip(branches, columns, strict=True)]
        estimated = sorted({at for node, mine in pairs for at, name in enumerate(mine) if name in node.estimates})
        of_sample = {at for node, mine in pairs for at, name in enumerate(mine) if name in node.of_sample}
        names = [each.name for each in plan.visible]
        told = frozenset(names[at] for at in of_sample)
        if not self.with_error:
            union = plan.with_inputs([each.plan for each in branches])
            return EstimatedNode(union, dict.fromkeys((names[at] for at in estimated), None), told)
        union = plan.with_inputs([_with_bounds(node, mine, names, estimated) for node, mine in pairs])
        bounds = {names[at]: tuple(f"{names[at]}{suffix}" for suffix in (LOW, HIGH)) for at in estimated}
        refs_of = {name: EstimateBounds(*(union.ref(each) for each in both)) for name, both in bounds.items()}
        return EstimatedNode(union, refs_of, told)

    @_node.register
    def _(self, plan: Group) -> EstimatedNode:
        if not self.scope.samples(plan):
            return exact_group(plan) if self.with_error else EstimatedNode(plan)
        if isinstance(plan.window, RowWindow):
            raise self.scope.rows_refusal("row_window(...)")
        for aggregate in plan.aggregates:
            if aggregate.distinct:
                raise self.scope.refusal(
                    f"{aggregate.name} cannot be estimated from a sample",
                    "how many values the other rows add does not follow from the sample",
                    f"leave out {CLAUSE}, or keep a summary with approx_count_distinct(...)",
                )
        if plan.by or plan.window is not None:
            self.remark("groups of which the sample has no row are missing")
        if kept := [each.name for each in plan.aggregates if each.function not in ESTIMATED]:
            self.remark(f"not scaled, but that of the sample: {', '.join(kept)}")
        rows = Weighting(self.scope).rows(plan.input)
        return estimate_group(self.scope, plan, rows, with_error=self.with_error)


_MISSING_VALUES = "values that no row of the sample has are missing"


def _with_bounds(node: EstimatedNode, columns: Sequence[str], names: Sequence[str], estimated: Sequence[int]) -> Plan:
    """A branch of a union with bounds behind each column that is an estimate in any branch."""
    outputs: list[Output] = []
    for at, (name, shown) in enumerate(zip(columns, names, strict=True)):
        value = node.plan.ref(name)
        outputs.append(Output(name, value))
        if at in estimated:
            known = node.estimates.get(name)
            low, high = (known.low, known.high) if known is not None else (same_bound(value),) * 2
            outputs += [Output(f"{shown}{LOW}", low), Output(f"{shown}{HIGH}", high)]
    return Projection(node.plan, tuple(outputs))
