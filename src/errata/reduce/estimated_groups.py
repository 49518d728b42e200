"""Groups over samples: their aggregates are estimated, and columns above them keep their bounds.

Each group becomes a group of sums over rows, or over units where one unit can have several rows, below a projection
with the group's own columns: what is above reads them as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

from errata.language.expr import BOOLEAN, DOUBLE, Call, Case, Cast, Expr, Lit, Ref, expr_sql, transform_expr
from errata.language.nodes import Aggregate, Group, Output, Projection
from errata.language.plan import Plan
from errata.reduce.intervals import (
    ESTIMATED,
    SampleSums,
    SampleUnits,
    as_double,
    bound_type,
    estimate_total,
    high_of_type,
    low_of_type,
    number,
    value_of_type,
)
from errata.reduce.weights import SampleScope, WeightedRows

LOW, HIGH = "_low", "_high"
"""Suffixes of the columns with an estimate's bounds."""
_UNIT_AGGREGATES = ("min", "max")
"""Aggregates that can be computed from those of units."""


@dataclass(frozen=True, slots=True)
class EstimateBounds:
    """The columns with the bounds of an estimate."""

    low: Ref
    high: Ref


@dataclass(frozen=True, slots=True)
class EstimatedNode:
    """A node whose aggregates over samples are estimates."""

    plan: Plan
    estimates: Mapping[str, EstimateBounds | None] = field(default_factory=dict)
    """Its columns that are estimates; None where bounds are not asked for."""
    of_sample: frozenset[str] = frozenset()
    """Its columns that are computed from a sample and not scaled."""

    @property
    def derived(self) -> set[str]:
        """The columns that could be other ones over all rows."""
        return {*self.estimates, *self.of_sample}

    def over(self, plan: Plan) -> EstimatedNode:
        """A node above with the same columns."""
        return replace(self, plan=plan)


def exact_group(plan: Group) -> EstimatedNode:
    """A group all of whose rows are read: the bounds are the values."""
    outputs = [Output(each.name, Ref(each.name, each.type)) for each in plan.fields]
    estimates: dict[str, EstimateBounds | None] = {}
    for each in plan.aggregates:
        if each.function in ESTIMATED:
            same = same_bound(Ref(each.name, each.type))
            estimates[each.name] = _add_bounds(outputs, each.name, same, same)
    return EstimatedNode(Projection(plan, tuple(outputs)), estimates)


def estimate_group(scope: SampleScope, plan: Group, rows: WeightedRows, *, with_error: bool) -> EstimatedNode:
    """A group some of whose rows are missing."""
    by_units = with_error and rows.repeats
    if by_units:
        _check_units(scope, plan)
    sums, below = SampleSums(), Group(rows.plan, plan.by, (), plan.window, plan.timed, plan.number)
    outputs = [Output(each.name, Ref(each.name, each.type)) for each in below.fields]
    by, estimates, of_sample = plan.by, dict[str, EstimateBounds | None](), set[str]()
    if by_units:
        below = _group_of_units(plan, rows)
        by = tuple(each.expr for each in outputs)
    for each in plan.aggregates:
        if each.function not in ESTIMATED:
            argument = Ref(each.name, each.type) if by_units else each.argument
            kept = replace(each, argument=argument)
            sums.found.setdefault(kept.name, kept)
            outputs.append(Output(each.name, Ref(kept.name, each.type)))
            of_sample.add(each.name)
            continue
        found = estimate_total(each.function, _units(each, rows, by_units=by_units), sums)
        outputs.append(Output(each.name, value_of_type(found.value, each.type)))
        estimates[each.name] = None
        if with_error:
            low, high = low_of_type(found.low, each.type), high_of_type(found.high, each.type)
            estimates[each.name] = _add_bounds(outputs, each.name, low, high)
    aggregates = tuple(sums.found.values())
    whole: Plan = Group(below, by, aggregates, timed=plan.timed) if by_units else replace(below, aggregates=aggregates)
    for layer in sums.layers:
        whole = Projection(whole, (*(Output(each.name, Ref(each.name, each.type)) for each in whole.fields), *layer))
    return EstimatedNode(Projection(whole, tuple(outputs)), estimates, frozenset(of_sample))


def _check_units(scope: SampleScope, plan: Group) -> None:
    if len(samples := scope.samples(plan)) > 1:
        raise scope.refusal(
            f"there are no intervals over {' and '.join(sorted(samples))} together",
            "rows of two samples with equal keys are in them together, so that their errors do not add up",
            "aggregate each by itself, or leave out --with-error",
        )
    for each in plan.aggregates:
        if each.function not in (*ESTIMATED, *_UNIT_AGGREGATES):
            raise scope.refusal(
                f"{each.name} cannot stand beside intervals over joined rows",
                "rows are summed for each sampled row first, and it cannot be computed from these sums",
                f"leave out {each.name}, or --with-error",
            )


def _row_values(aggregate: Aggregate) -> tuple[Expr, Expr]:
    """What a row adds to the total and to the count of an aggregate."""
    argument = aggregate.argument
    if argument is None:
        return number(1), number(1)
    present = Case(((Call("is_not_null", (argument,), BOOLEAN), number(1)),), None, DOUBLE)
    return (present if aggregate.function == "count" else as_double(argument)), present


def _total(expr: Expr) -> Aggregate:
    return Aggregate("sum", expr, DOUBLE)


def _group_of_units(plan: Group, rows: WeightedRows) -> Group:
    """The sums over the rows of each unit."""
    aggregates: dict[str, Aggregate] = {}
    for each in plan.aggregates:
        some = map(_total, _row_values(each)) if each.function in ESTIMATED else [each]
        aggregates.update((own.name, own) for own in some)
    return Group(
        rows.plan, (*plan.by, rows.rate, rows.unit), tuple(aggregates.values()), plan.window, plan.timed, plan.number
    )


def _units(aggregate: Aggregate, rows: WeightedRows, *, by_units: bool) -> SampleUnits:
    value, count = _row_values(aggregate)
    if not by_units:
        return SampleUnits(value, count, rows.rate)
    summed, counted = (Ref(_total(each).name, DOUBLE) for each in (value, count))
    return SampleUnits(summed, counted, Ref(expr_sql(rows.rate), DOUBLE), single=False)


def _add_bounds(outputs: list[Output], name: str, low: Expr, high: Expr) -> EstimateBounds:
    outputs += [Output(f"{name} low", low), Output(f"{name} high", high)]
    return EstimateBounds(Ref(f"{name} low", low.type), Ref(f"{name} high", high.type))


def same_bound(value: Ref) -> Expr:
    """A bound that is the value itself."""
    kind = bound_type(value.type)
    return value if value.type == kind else Cast(value, kind)


# Bounds of expressions over estimates.


def bound_output(scope: SampleScope, output: Output, below: EstimatedNode, *, upper: bool) -> Output:
    """The output with a bound in place of the estimate."""
    name, expr = f"{output.name}{HIGH if upper else LOW}", output.expr
    if not _increases(expr):
        raise scope.refusal(
            f"{output.name} has no interval: it is {expr_sql(expr)}",
            "intervals are of one count, sum or average, converted, rounded, or with a constant added or multiplied",
            "select the aggregates as columns of their own, or leave out --with-error",
        )
    if isinstance(expr, Ref):
        return Output(name, _bound_of(below, expr, upper=upper))
    return Output(
        name, transform_expr(expr, lambda part: _bound_as(below, part, upper=upper) if isinstance(part, Ref) else part)
    )


def _bound_of(below: EstimatedNode, ref: Ref, *, upper: bool) -> Ref:
    bounds = below.estimates[ref.name]
    if bounds is None:
        raise AssertionError(f"{ref.name} has no bounds")
    return bounds.high if upper else bounds.low


def _bound_as(below: EstimatedNode, ref: Ref, *, upper: bool) -> Expr:
    """The bound in the type of its estimate."""
    bound: Expr = _bound_of(below, ref, upper=upper)
    return bound if bound.type == ref.type else Cast(bound, ref.type)


def _increases(expr: Expr) -> bool:
    """Whether an expression over one estimate grows with it."""
    match expr:
        case Ref():
            return True
        case Cast(arg=arg):
            return _increases(arg)
        case Call(name="round" | "floor" | "ceil", args=(arg, *_)):
            return _increases(arg)
        case Call(name="+" | "-", args=(arg, Lit())) | Call(name="+", args=(Lit(), arg)):
            return _increases(arg)
        case Call(name="*" | "/", args=(arg, Lit() as by)) | Call(name="*", args=(Lit() as by, arg)):
            return isinstance(by.value, int | float | Decimal) and by.value > 0 and _increases(arg)
    return False
