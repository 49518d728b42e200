"""Expected rates and sizes of each node's rows: the λ, N and d of Golab and Özsu (2005, 5.4.1).

Values are assumed to be spread evenly and columns to be independent, as is usual. A source without statistics is
assumed to have one row per second, to keep those of a day, and to have a hundred values in each column that is no key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import singledispatchmethod
from math import erf, exp, expm1, pi, sqrt
from typing import Protocol, assert_never

from errata.language.expr import (
    EQUAL,
    NOT,
    OR,
    SAME,
    Call,
    Expr,
    Lit,
    Ref,
    conjuncts,
    refs,
)
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Projection,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
    scans_of,
)
from errata.language.patterns import update_pattern
from errata.language.plan import Plan, PlanError
from errata.language.times import row_times
from errata.model.results import UpdatePattern
from errata.model.time import DAY, SECOND

_RATE, _DISTINCT, _RELATION = 1.0, 100.0, 1000.0
_RETENTION_SECONDS = DAY / SECOND
_OVERLAP = 0.5
"""Assumed share of the smaller of two sets of values that is also in the larger one."""
_DEFAULT_SELECTIVITY = 1 / 2
"""Assumed share of rows that fulfil a condition about which nothing is known."""


class Statistics(Protocol):
    """Statistics of streams, relations and queries, by name; None where nothing is known."""

    def rate(self, source: str) -> float | None:
        """Rows per second of event time, or per unit of a plain number."""

    def distinct(self, source: str, column: str) -> float | None:
        """The number of distinct values in the column."""

    def rows(self, source: str) -> float | None:
        """The number of rows; of a relation the number at one time."""


class DefaultStatistics:
    """No statistics at all."""

    def rate(self, source: str) -> float | None:
        """Not known."""
        return self._nothing(source)

    def distinct(self, source: str, column: str) -> float | None:
        """Not known."""
        return self._nothing(source, column)

    def rows(self, source: str) -> float | None:
        """Not known."""
        return self._nothing(source)

    def _nothing(self, *_asked: str) -> float | None:
        return None


@dataclass(frozen=True, slots=True)
class NodeEstimate:
    """The expected rate, size and distinct values of a node's rows."""

    rate: float
    """Results for each second of event time."""
    size: float
    """Results that count at one time."""
    premature_share: float
    """The share of results that end without notice."""
    values: Mapping[str, float]
    """By column: the number of its distinct values."""

    def distinct(self, columns: Iterable[str]) -> float:
        """The expected number of distinct combinations of values at one time."""
        combinations = 1.0
        for name in columns:
            combinations *= max(self.values[name], 1.0)
        return expected_distinct(self.size, combinations)


def expected_distinct(rows: float, values: float) -> float:
    """The expected number of distinct values among `rows` rows drawn from `values` equally likely ones."""
    return -values * expm1(-rows / values) if values > 0 else 0.0


def expected_surplus(left: float, right: float) -> float:
    """The expected amount by which one Poisson count exceeds another, never below 0."""
    spread, mean = sqrt(left + right), left - right
    if spread == 0:
        return 0.0
    share = 0.5 * (1 + erf(mean / spread / sqrt(2)))
    return spread * exp(-((mean / spread) ** 2) / 2) / sqrt(2 * pi) + mean * share


def selectivity(condition: Expr | None, values: Mapping[str, float]) -> float:
    """The part of the rows, or pairs, for which a condition is true."""
    part = 1.0
    for each in conjuncts(condition):
        part *= _selected_fraction(each, values)
    return part


def _selected_fraction(expr: Expr, values: Mapping[str, float]) -> float:
    if isinstance(expr, Lit):
        return 1.0 if expr.value is True else 0.0
    if not isinstance(expr, Call):
        return _DEFAULT_SELECTIVITY
    if expr.name == NOT:
        return 1 - _selected_fraction(expr.args[0], values)
    if expr.name == OR:
        neither = (1 - selectivity(expr.args[0], values)) * (1 - selectivity(expr.args[1], values))
        return 1 - neither
    return _comparison_selectivity(expr, values)


def _comparison_selectivity(expr: Call, values: Mapping[str, float]) -> float:
    equal = 1 / max((expected_values(each, values) for each in expr.args[:2]), default=1.0)
    if expr.name == "in":
        return min(1.0, (len(expr.args) - 1) / expected_values(expr.args[0], values))
    if expr.name == "<>":
        return 1 - equal
    return equal if expr.name in (EQUAL, SAME) else _SELECTIVITIES.get(expr.name, _DEFAULT_SELECTIVITY)


_SELECTIVITIES = {
    **dict.fromkeys(("<", "<=", ">", ">="), 1 / 3),
    **dict.fromkeys(("like", "rlike", "starts_with", "ends_with", "contains"), 1 / 4),
    "is_null": 1 / 20,
    "is_not_null": 19 / 20,
}


def expected_values(expr: Expr, values: Mapping[str, float]) -> float:
    """The number of distinct values of an expression, 1 at least."""
    combinations = 1.0
    for name in refs(expr):
        combinations *= max(values[name], 1.0)
    return combinations


class Estimator:
    """The estimates of a plan's nodes, each computed once."""

    def __init__(self, statistics: Statistics) -> None:
        self._known = statistics
        self._found: dict[int, NodeEstimate] = {}

    def estimate(self, plan: Plan) -> NodeEstimate:
        """The estimate of a node. The plan must outlive the estimator."""
        if id(plan) not in self._found:
            self._found[id(plan)] = self._estimate(plan)
        return self._found[id(plan)]

    @singledispatchmethod
    def _estimate(self, plan: Plan) -> NodeEstimate:
        raise PlanError(f"nothing can be estimated of {type(plan).__name__}")

    @_estimate.register
    def _(self, plan: Scan) -> NodeEstimate:
        source, known = plan.source, self._known
        made = None if source.plan is None else self.estimate(source.plan)
        rate, rows = known.rate(source.name), known.rows(source.name)
        if made is not None:
            rate, rows = _known_or_guess(rate, made.rate), _known_or_guess(rows, made.size)
        elif source.kind.is_relation:
            rows = _known_or_guess(rows, _RELATION)
            rate = _known_or_guess(rate, rows / _RETENTION_SECONDS)
        else:
            rate = _known_or_guess(rate, _RATE)
            rows = _known_or_guess(rows, rate * _RETENTION_SECONDS)
        values = {}
        for each in plan.fields:
            name = plan.of_source(each.name)
            alone = (name,) == source.key or name == source.order
            guess = made.values[name] if made is not None else rows if alone else _DISTINCT
            values[each.name] = _known_or_guess(known.distinct(source.name, name), guess)
        return NodeEstimate(rate, rows, 0.0 if made is None else made.premature_share, values)

    @_estimate.register
    def _(self, plan: Sliding) -> NodeEstimate:
        below = self.estimate(plan.input)
        return _with_rate_and_size(below, below.rate, min(below.size, below.rate * span_seconds(plan, plan.span)))

    @_estimate.register
    def _(self, plan: SlidingRows) -> NodeEstimate:
        below = self.estimate(plan.input)
        return NodeEstimate(below.rate, min(below.size, float(plan.rows)), 1.0, below.values)

    @_estimate.register
    def _(self, plan: Filter) -> NodeEstimate:
        below = self.estimate(plan.input)
        part = selectivity(plan.predicate, below.values)
        one = {name for each in conjuncts(plan.predicate) if (name := _literal_column(each))}
        values = {name: 1.0 if name in one else count for name, count in below.values.items()}
        # A value that is filtered out ends the one before it without notice.
        unforeseen = 1 - part if update_pattern(plan.input) is UpdatePattern.KEYED else 0.0
        premature = _either_probability(below.premature_share, unforeseen)
        return NodeEstimate(below.rate * part, below.size * part, premature, values)

    @_estimate.register
    def _(self, plan: Projection) -> NodeEstimate:
        below = self.estimate(plan.input)
        values = {name: below.values[name] for name in plan.carried}
        values |= {output.name: expected_values(output.expr, below.values) for output in plan.outputs}
        return NodeEstimate(below.rate, below.size, below.premature_share, values)

    @_estimate.register
    def _(self, plan: Join) -> NodeEstimate:
        left, right = self.estimate(plan.left), self.estimate(plan.right)
        values = {**left.values, **right.values}
        part = selectivity(plan.condition, values)
        rate = (left.rate * right.size + right.rate * left.size) * part
        return NodeEstimate(
            rate,
            left.size * right.size * part,
            _either_probability(left.premature_share, right.premature_share),
            values,
        )

    @_estimate.register
    def _(self, plan: RelationJoin) -> NodeEstimate:
        left, right = self.estimate(plan.left), self.estimate(plan.right)
        values = {**left.values, **right.values}
        part = selectivity(plan.condition, values)
        size, rate, premature = left.size * right.size * part, left.rate * right.size * part, left.premature_share
        if plan.retroactive:
            rate += right.rate * left.size * part
            lifetime = left.size / left.rate if left.rate > 0 else 0.0
            changes = right.rate / right.size if right.size > 0 else 0.0
            premature = _either_probability(premature, -expm1(-lifetime * changes))
        return NodeEstimate(rate, size, premature, values)

    @_estimate.register
    def _(self, plan: Union) -> NodeEstimate:
        parts = [self.estimate(branch) for branch in plan.branches]
        rate, size = sum(each.rate for each in parts), sum(each.size for each in parts)
        values = {each.name: size for each in plan.fields}
        for place, column in enumerate(plan.visible):
            shown = zip(plan.branches, parts, strict=True)
            values[column.name] = max(part.values[branch.visible[place].name] for branch, part in shown)
        premature = sum(each.premature_share * each.size for each in parts) / size if size > 0 else 0.0
        return NodeEstimate(rate, size, premature, values)

    @_estimate.register
    def _(self, plan: Distinct) -> NodeEstimate:
        below = self.estimate(plan.input)
        size = below.distinct(each.name for each in plan.fields)
        return NodeEstimate(
            below.rate * _ratio(size, below.size), size, below.premature_share, _field_values(plan, below)
        )

    @_estimate.register
    def _(self, plan: Intersect) -> NodeEstimate:
        left, right = self.estimate(plan.left), self.estimate(plan.right)
        counts = [
            side.distinct(each.name for each in child.visible)
            for side, child in ((left, plan.left), (right, plan.right))
        ]
        size = _OVERLAP * min(counts)
        rate = (left.rate + right.rate) * _ratio(size, left.size + right.size)
        return NodeEstimate(
            rate, size, _either_probability(left.premature_share, right.premature_share), _field_values(plan, left)
        )

    @_estimate.register
    def _(self, plan: Negation) -> NodeEstimate:
        left, right = self.estimate(plan.left), self.estimate(plan.right)
        mine, theirs = self.negation_value_counts(plan)
        shared = value_overlap(mine, theirs)
        stand = expected_surplus(_ratio(left.size, mine, 1e18), _ratio(right.size, theirs, 1e18))
        size = left.size * (1 - shared) + mine * shared * stand
        # Rows that the right removes come back when the right expires.
        rate = (left.rate + shared * right.rate) * _ratio(size, left.size)
        return NodeEstimate(rate, size, _either_probability(left.premature_share, shared), left.values)

    def negation_value_counts(self, plan: Negation) -> tuple[float, float]:
        """The numbers of distinct values of the negation's columns on the left and on the right."""
        left = self.estimate(plan.left).distinct(name for name, _ in plan.columns)
        return left, self.estimate(plan.right).distinct(name for _, name in plan.columns)

    @_estimate.register
    def _(self, plan: Group) -> NodeEstimate:
        below = self.estimate(plan.input)
        groups = expected_distinct(below.size, expected_combinations(plan.by, below.values))
        values = {each.name: expected_values(by, below.values) for by, each in zip(plan.by, plan.fields, strict=False)}
        match plan.window:
            case TimeWindow(size=size, slide=slide, early=False) if row_times(plan.input).for_ever:
                rows = below.rate * span_seconds(plan, size)
                rate = expected_distinct(rows, expected_combinations(plan.by, below.values)) / span_seconds(plan, slide)
                count = rate * _ratio(below.size, below.rate, 1e18)
            case TimeWindow(size=size, slide=slide):
                rate, count = 2 * below.rate * size / slide, groups * size / slide
            case RowWindow(step=step):
                rate, count = below.rate / step, below.size / step
            case None:
                rate, count = 2 * below.rate, groups
            case _:
                assert_never(plan.window)
        return NodeEstimate(rate, count, 0.0, {each.name: max(count, 1.0) for each in plan.fields} | values)


def expected_combinations(exprs: Iterable[Expr], values: Mapping[str, float]) -> float:
    """The number of combinations of values of several expressions."""
    combinations = 1.0
    for each in exprs:
        combinations *= expected_values(each, values)
    return combinations


def value_overlap(left: float, right: float) -> float:
    """The share of the left's values that the right is expected to have, too (5.3.2)."""
    return _OVERLAP * min(1.0, _ratio(right, left))


def span_seconds(plan: Plan, span: int) -> float:
    """A span of event time in seconds, or in units of a plain number."""
    return span / SECOND if all(scan.source.timed for scan in scans_of(plan)) else float(span)


def _known_or_guess(known: float | None, guess: float) -> float:
    return guess if known is None else float(known)


def _with_rate_and_size(below: NodeEstimate, rate: float, size: float) -> NodeEstimate:
    return NodeEstimate(rate, size, below.premature_share, below.values)


def _field_values(plan: Plan, below: NodeEstimate) -> dict[str, float]:
    return {each.name: below.values[each.name] for each in plan.fields}


def _ratio(part: float, whole: float, most: float = 1.0) -> float:
    return min(part / whole, most) if whole > 0 else 0.0


def _either_probability(one: float, other: float) -> float:
    return 1 - (1 - one) * (1 - other)


def _literal_column(expr: Expr) -> str | None:
    """The column that a condition says is equal to a literal."""
    if isinstance(expr, Call) and expr.name in (EQUAL, SAME):
        left, right = expr.args
        for column, value in ((left, right), (right, left)):
            if isinstance(column, Ref) and isinstance(value, Lit):
                return column.name
    return None
