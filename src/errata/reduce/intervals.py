"""Totals of all rows estimated from a sample, with 95% intervals, as expressions of the language.

A unit is what is in the sample or not as a whole: a row, or all pairs of a join that one row is in. It is there with
probability p, its rate, independently of others, and adds y to a sum and c to a count. With S = sum(y/p) (Horvitz and
Thompson 1952):

    count, sum    S                    variance  V = sum(y^2 (1-p) / p^2)
    avg           R = S / sum(c/p)     variance  sum((y - R c)^2 (1-p) / p^2) / sum(c/p)^2, the ratio estimator's

Units with p = 1 are certain and add nothing to a variance; where all are, the interval is the value itself.

Few units make S and V vary together, and V uncertain. So where all y have one sign the interval is that of the score:
the totals T with (T - S)^2 <= q^2 (V/U) T, where U is the part of S that is not certain, and alike for R; of a count it
is Wilson's. Otherwise it is S +- q sqrt(V). q is the normal quantile for counts of rows, else Student's; of sums and
averages a single unit tells nothing, and the bounds are NULL.

Where values are skewed, V is made of the few great ones, and a sample that has none of them looks as if there were
none. So Student's degrees of freedom are those of the number of units, and at most 0.08 / s^3, with s the largest share
that one unit has of V. tests/reduce/test_intervals.py measures how often intervals contain the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from errata.archive.approximations import SKEWED_DEGREES, STUDENT_SERIES
from errata.language.expr import BIGINT, BOOLEAN, DOUBLE, Call, Case, Cast, Expr, Lit, Ref, refs
from errata.language.nodes import Aggregate, Output
from errata.model.columns import WHOLE_KINDS, ColumnType, TypeKind
from errata.reduce.rates import CONFIDENCE_QUANTILE

ESTIMATED = ("count", "sum", "avg")
"""Aggregates of all rows that a sample can estimate."""
_MAX_BIGINT_SCALE = 4
"""Decimals of up to so many places are made by way of a bigint, which both engines do alike."""


def number(value: float) -> Lit:
    """A constant."""
    return Lit(float(value), DOUBLE)


def plus(*parts: Expr) -> Expr:
    """The sum of parts."""
    whole, *rest = parts
    for part in rest:
        whole = Call("+", (whole, part), DOUBLE)
    return whole


def minus(left: Expr, right: Expr) -> Expr:
    """The difference."""
    return Call("-", (left, right), DOUBLE)


def times(*parts: Expr) -> Expr:
    """The product of parts."""
    whole, *rest = parts
    for part in rest:
        whole = Call("*", (whole, part), DOUBLE)
    return whole


def over(left: Expr, right: Expr) -> Expr:
    """The quotient; NULL where the divisor is 0."""
    return Call("try_divide", (left, right), DOUBLE)


def as_double(expr: Expr) -> Expr:
    """The expression as a double."""
    return expr if expr.type == DOUBLE else Cast(expr, DOUBLE)


@dataclass(frozen=True, slots=True)
class SampleUnits:
    """The columns of the rows, or of other units, that a group aggregates."""

    value: Expr
    """What a unit adds to the total, a double; NULL for nothing."""
    count: Expr
    """The rows with a value that it stands for, a double; NULL for none."""
    rate: Expr
    """The probability with which it is in the sample."""
    single: bool = True
    """Whether each unit is one row."""


@dataclass(frozen=True, slots=True)
class TotalEstimate:
    """An estimate and its interval, over the aggregates of a group."""

    value: Expr
    low: Expr
    high: Expr


@dataclass
class SampleSums:
    """The aggregates over units that estimates are made of, and the columns computed from them: each is computed once.

    A part that is used several times is a column of its own. Written out wherever it is used, it would make expressions
    that take an engine longer to plan than to compute.
    """

    found: dict[str, Aggregate] = field(default_factory=dict)
    layers: list[list[Output]] = field(default_factory=list)
    """Columns computed from the aggregates and from columns of the layers before."""
    _known: dict[Expr, Ref] = field(default_factory=dict)
    _levels: dict[str, int] = field(default_factory=dict)

    def of(self, function: str, argument: Expr, kind: ColumnType = DOUBLE) -> Ref:
        """An aggregate over the units."""
        aggregate = Aggregate(function, argument, kind)
        self.found.setdefault(aggregate.name, aggregate)
        return Ref(aggregate.name, kind)

    def total(self, argument: Expr) -> Ref:
        """The sum of an expression."""
        return self.of("sum", argument)

    def column(self, expr: Expr) -> Expr:
        """The expression as a column."""
        if isinstance(expr, Ref | Lit):
            return expr
        if expr not in self._known:
            level = max((self._levels.get(each, 0) for each in refs(expr)), default=0)
            if level == len(self.layers):
                self.layers.append([])
            ref = Ref(f"_estimate.{len(self._known) + 1}", expr.type)
            self.layers[level].append(Output(ref.name, expr))
            self._levels[ref.name] = level + 1
            self._known[expr] = ref
        return self._known[expr]


def estimate_total(function: str, units: SampleUnits, sums: SampleSums) -> TotalEstimate:
    """The estimate of a count, a sum or an average of all rows."""
    if function == "avg":
        return _estimate_average(units, sums)
    return _estimate_sum(units, sums, counts=function == "count")


def _uncertain(units: SampleUnits, expr: Expr) -> Expr:
    """The expression in units that are not certain to be in the sample; NULL in others."""
    return Case(((Call("<", (units.rate, number(1)), BOOLEAN), expr),), None, DOUBLE)


def _variance_weight(units: SampleUnits) -> Expr:
    rest = minus(number(1), units.rate)
    return Call("/", (rest, times(units.rate, units.rate)), DOUBLE)


def _expanded(units: SampleUnits, expr: Expr) -> Expr:
    """What a unit's value stands for among all rows."""
    return Call("/", (expr, units.rate), DOUBLE)


def _student_quantile(uncertain: Expr, share: Expr, sums: SampleSums) -> Expr:
    """Student's quantile for a number of units, of which one has a share of the variance; NULL for one unit."""
    plain = sums.column(over(number(1), minus(as_double(uncertain), number(1))))
    skewed = _coalesce(over(times(share, share, share), number(SKEWED_DEGREES)), 0)
    least = Call("least", (skewed, number(1)), DOUBLE)
    step = sums.column(plus(plain, Call("greatest", (minus(least, plain), number(0)), DOUBLE)))
    series: Expr = number(STUDENT_SERIES[-1])
    for each in STUDENT_SERIES[-2::-1]:
        series = plus(number(each), times(step, series))
    return sums.column(plus(number(CONFIDENCE_QUANTILE), times(step, series)))


def _coalesce(expr: Expr, otherwise: float) -> Expr:
    return Call("coalesce", (expr, number(otherwise)), DOUBLE)


def _sqrt(expr: Expr) -> Expr:
    return Call("sqrt", (Call("greatest", (expr, number(0)), DOUBLE),), DOUBLE)


def _choose(cases: Sequence[tuple[Expr, Expr]], otherwise: Expr) -> Expr:
    return Case(tuple(cases), otherwise, DOUBLE)


def _none(count: Expr) -> Expr:
    return Call("=", (count, Lit(0, BIGINT)), BOOLEAN)


def _estimate_sum(units: SampleUnits, sums: SampleSums, *, counts: bool) -> TotalEstimate:
    total: Expr = sums.total(_expanded(units, units.value))
    uncertain_total: Expr = sums.total(_uncertain(units, _expanded(units, units.value)))
    square = times(units.value, units.value, _variance_weight(units))
    variance: Expr = sums.total(square)
    quantile: Expr = number(CONFIDENCE_QUANTILE)
    if not counts:
        uncertain = sums.of("count", _uncertain(units, units.value), BIGINT)
        quantile = _student_quantile(uncertain, sums.column(over(sums.of("max", square), variance)), sums)
        ratio = over(variance, uncertain_total)
    else:
        share = over(sums.of("max", square), variance)
        total, uncertain_total, variance = (
            sums.column(_coalesce(each, 0)) for each in (total, uncertain_total, variance)
        )
        # A sample of a count without any row that counts still tells how many there can be.
        uncertain = sums.of("count", _uncertain(units, number(1)), BIGINT)
        if not units.single:
            quantile = _student_quantile(uncertain, sums.column(share), sums)
        rows = sums.total(_uncertain(units, _expanded(units, number(1))))
        plain = over(sums.total(_uncertain(units, _variance_weight(units))), rows)
        ratio = Call("coalesce", (over(variance, uncertain_total), plain), DOUBLE)
    # Half of the change of the variance with the total, in units of the interval.
    shift = sums.column(times(quantile, sums.column(ratio), number(0.5)))
    middle = sums.column(plus(total, times(quantile, shift)))
    width = sums.column(times(quantile, _sqrt(plus(variance, times(shift, shift)))))
    low, high = sums.column(minus(middle, width)), sums.column(plus(middle, width))
    if counts:
        seen = _coalesce(sums.total(units.value), 0)
        low = Call("greatest", (low, seen), DOUBLE)
    else:
        least, most = sums.of("min", units.value), sums.of("max", units.value)
        both = sums.column(_both_signs(least, most))
        plain_width = sums.column(times(quantile, _sqrt(variance)))
        low = _choose([(both, minus(total, plain_width))], low)
        high = _choose([(both, plus(total, plain_width))], high)
    certain = _none(uncertain)
    return TotalEstimate(total, _choose([(certain, total)], low), _choose([(certain, total)], high))


def _both_signs(least: Expr, most: Expr) -> Expr:
    return Call("and", (_below(least, number(0)), _below(number(0), most)), BOOLEAN)


def _below(left: Expr, right: Expr) -> Expr:
    return Call("<", (left, right), BOOLEAN)


def _estimate_average(units: SampleUnits, sums: SampleSums) -> TotalEstimate:
    count = sums.total(_expanded(units, units.count))
    mean = sums.column(over(sums.total(_expanded(units, units.value)), count))
    weight = _variance_weight(units)
    squares = sums.total(times(units.value, units.value, weight))
    products = sums.total(times(units.value, units.count, weight))
    counts = sums.total(times(units.count, units.count, weight))
    spread = sums.column(plus(minus(squares, times(number(2), mean, products)), times(mean, mean, counts)))
    variance = sums.column(over(spread, times(count, count)))
    uncertain = sums.of("count", _uncertain(units, units.value), BIGINT)
    each = _uncertain(units, over(units.value, units.count))
    least, most = sums.of("min", each), sums.of("max", each)
    share = sums.column(over(_farthest(units, mean, (least, most), sums), spread))
    quantile = _student_quantile(uncertain, share, sums)
    # As of a sum: the variance goes with the mean where all values have one sign.
    shift = sums.column(times(quantile, _coalesce(over(variance, mean), 0), number(0.5)))
    middle = sums.column(plus(mean, times(quantile, shift)))
    score = sums.column(times(quantile, _sqrt(plus(variance, times(shift, shift)))))
    width = sums.column(times(quantile, _sqrt(variance)))
    both, certain = sums.column(_both_signs(least, most)), _none(uncertain)
    low = _choose([(certain, mean), (both, minus(mean, width))], minus(middle, score))
    high = _choose([(certain, mean), (both, plus(mean, width))], plus(middle, score))
    return TotalEstimate(mean, low, high)


def _farthest(units: SampleUnits, mean: Expr, extremes: tuple[Expr, Expr], sums: SampleSums) -> Expr:
    """About the most that one unit adds to the variance of an average: exactly so where all rates are one."""
    least, most = extremes
    root = _sqrt(_variance_weight(units))
    weighted = times(units.value, root)
    heaviest = sums.of("max", times(units.count, root))
    # Beyond the mean, the great values; on the side of 0, as if the value farthest there had the greatest weight.
    above = (minus(sums.of("max", weighted), times(mean, heaviest)), times(minus(mean, least), heaviest))
    below = (minus(times(mean, heaviest), sums.of("min", weighted)), times(minus(most, mean), heaviest))
    sides = [sums.column(Call("greatest", side, DOUBLE)) for side in (above, below)]
    farthest = sums.column(_choose([(_below(number(0), mean), sides[0])], sides[1]))
    return times(farthest, farthest)


# The types of results.


def bound_type(kind: ColumnType) -> ColumnType:
    """The type of the bounds of a value of some type."""
    return BIGINT if kind.kind in WHOLE_KINDS else DOUBLE


def value_of_type(expr: Expr, kind: ColumnType) -> Expr:
    """An estimate as a value of the aggregate's type."""
    if kind == DOUBLE:
        return expr
    if kind.kind in WHOLE_KINDS:
        return Cast(Call("round", (expr,), DOUBLE), kind)
    if kind.kind is TypeKind.DECIMAL and kind.scale <= _MAX_BIGINT_SCALE:
        from_units = Cast(Call("round", (times(expr, number(10**kind.scale)),), DOUBLE), BIGINT)
        return _decimal_of_units(from_units, kind)
    return Cast(expr, kind)


def _decimal_of_units(units: Expr, kind: ColumnType) -> Expr:
    if kind.scale == 0:
        return Cast(units, kind)
    unit = Lit(Decimal(1).scaleb(-kind.scale), ColumnType(TypeKind.DECIMAL, kind.scale, kind.scale))
    whole = Cast(units, ColumnType(TypeKind.DECIMAL, 19, 0))
    product = ColumnType(TypeKind.DECIMAL, 19 + kind.scale + 1, kind.scale)
    return Cast(Call("*", (whole, unit), product), kind)


def low_of_type(expr: Expr, kind: ColumnType) -> Expr:
    """The lower bound of a value of some type."""
    return Call("floor", (expr,), BIGINT) if bound_type(kind) == BIGINT else expr


def high_of_type(expr: Expr, kind: ColumnType) -> Expr:
    """The upper bound of a value of some type."""
    return Call("ceil", (expr,), BIGINT) if bound_type(kind) == BIGINT else expr
