"""How often intervals contain the truth, over thousands of samples: the expressions themselves are evaluated, by numpy.

A matrix has a sample in each row and the population in its columns; a row that is not in a sample is NULL there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from errata.language.expr import DOUBLE, Call, Case, Cast, Expr, Lit, Ref
from errata.model.columns import ColumnType, TypeKind
from errata.reduce.intervals import (
    SampleSums,
    SampleUnits,
    TotalEstimate,
    estimate_total,
    high_of_type,
    low_of_type,
    value_of_type,
)

Numbers = NDArray[np.float64]
UNITS = SampleUnits(Ref("y", DOUBLE), Ref("c", DOUBLE), Ref("p", DOUBLE))
CLUSTERS = SampleUnits(Ref("y", DOUBLE), Ref("c", DOUBLE), Ref("p", DOUBLE), single=False)
RUNS = 5_000
RUNS_AT_ONCE = 500


def _divide(left: Numbers, right: Numbers) -> Numbers:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(right == 0, np.nan, left / right)


def _coalesce(*parts: Numbers) -> Numbers:
    whole = parts[-1]
    for part in parts[-2::-1]:
        whole = np.where(np.isnan(part), whole, part)
    return whole


_CALLS: dict[str, Callable[..., Numbers]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "try_divide": _divide,
    "sqrt": np.sqrt,
    "greatest": np.fmax,
    "least": np.fmin,
    "coalesce": _coalesce,
    "<": np.less,
    "=": np.equal,
    "and": np.logical_and,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "floor": np.floor,
    "ceil": np.ceil,
}


def evaluate(expr: Expr, columns: dict[str, Numbers]) -> Numbers:
    """An expression as Spark has it, with NaN for NULL."""
    match expr:
        case Ref(name=name):
            return columns[name]
        case Lit(value=value):
            return np.float64(value)  # type: ignore[return-value,arg-type]
        case Call(name=name, args=args):
            return _CALLS[name](*(evaluate(each, columns) for each in args))
        case Case(branches=branches, otherwise=otherwise):
            whole = np.float64(np.nan) if otherwise is None else evaluate(otherwise, columns)
            for when, then in branches[::-1]:
                whole = np.where(evaluate(when, columns), evaluate(then, columns), whole)
            return whole
        case Cast(arg=arg):
            return evaluate(arg, columns)
    raise AssertionError(expr)


_AGGREGATES: dict[str, Callable[[Numbers], Numbers]] = {
    "sum": lambda x: np.where(np.isnan(x).all(axis=1), np.nan, np.nansum(x, axis=1)),
    "count": lambda x: (~np.isnan(x)).sum(axis=1),
    "min": lambda x: np.fmin.reduce(x, axis=1),
    "max": lambda x: np.fmax.reduce(x, axis=1),
}


def estimated(function: str, units: SampleUnits, columns: dict[str, Numbers]) -> tuple[Numbers, Numbers, Numbers]:
    """The estimate and its bounds, of each sample."""
    sums = SampleSums()
    found: TotalEstimate = estimate_total(function, units, sums)
    shape = columns["p"].shape
    totals = {}
    for name, each in sums.found.items():
        assert each.argument is not None
        totals[name] = _AGGREGATES[each.function](np.broadcast_to(evaluate(each.argument, columns), shape))
    for output in (output for layer in sums.layers for output in layer):
        totals[output.name] = evaluate(output.expr, totals)
    return tuple(evaluate(each, totals) for each in (found.value, found.low, found.high))  # type: ignore[return-value]


def samples(rng: np.random.Generator, y: Numbers, c: Numbers, p: Numbers, runs: int) -> dict[str, Numbers]:
    there = rng.random((runs, len(y))) < p
    return {name: np.where(there, each, np.nan) for name, each in {"y": y, "c": c, "p": p}.items()}


def coverage(
    rng: np.random.Generator, function: str, population: tuple[Numbers, Numbers, Numbers], units: SampleUnits = UNITS
) -> float:
    """The share of intervals that contain the truth."""
    y, c, p = population
    truth = {"count": y.sum(), "sum": y.sum(), "avg": y.sum() / c.sum()}[function]
    hits = 0
    for _ in range(RUNS // RUNS_AT_ONCE):
        _, low, high = estimated(function, units, samples(rng, y, c, p, RUNS_AT_ONCE))
        hits += int(((low <= truth) & (truth <= high)).sum())
    return hits / RUNS


ROWS = 2_000
VALUES: dict[str, Callable[[np.random.Generator], Numbers]] = {
    "even": lambda rng: rng.uniform(0, 10, ROWS),
    "around 0": lambda rng: rng.normal(0, 1, ROWS),
    "far from 0": lambda rng: rng.normal(100, 2, ROWS),
    "negative": lambda rng: -rng.uniform(1, 3, ROWS),
    "skewed": lambda rng: rng.exponential(1, ROWS),
}
RATES: dict[str, Callable[[], Numbers]] = {
    "a tenth": lambda: np.full(ROWS, 0.1),
    "half": lambda: np.full(ROWS, 0.5),
    "by age": lambda: np.repeat([1.0, 0.5, 0.25, 0.125], ROWS // 4),
}


@pytest.mark.parametrize(
    ("function", "values", "rates"),
    [("count", "even", each) for each in RATES] + [*product(["sum", "avg"], VALUES, RATES)],
)
def test_intervals_contain_the_truth_in_95_of_100_samples(
    function: str, values: str, rates: str, chance: random.Random
) -> None:
    rng = np.random.default_rng(chance.getrandbits(64))
    y, ones = VALUES[values](rng), np.ones(ROWS)
    share = coverage(rng, function, (ones if function == "count" else y, ones, RATES[rates]()))
    assert 0.93 <= share <= 0.97


@pytest.mark.parametrize("function", ["count", "sum", "avg"])
def test_rows_that_are_sampled_together_count_as_one_unit(function: str, chance: random.Random) -> None:
    rng = np.random.default_rng(chance.getrandbits(64))
    c = rng.integers(1, 12, ROWS).astype(float)
    y = c if function == "count" else c * rng.uniform(5, 10, ROWS)
    share = coverage(rng, function, (y, c, np.full(ROWS, 0.2)), CLUSTERS)
    assert 0.93 <= share <= 0.97
    if function != "avg":
        # As if each row had been sampled by itself, the interval is too narrow.
        rows = np.repeat(np.arange(ROWS), c.astype(int))
        there = rng.random((RUNS_AT_ONCE, ROWS)) < 0.2
        value = (y / c)[rows]
        columns = {"y": value, "c": np.ones(len(rows)), "p": np.full(len(rows), 0.2)}
        _, low, high = estimated(
            function, UNITS, {name: np.where(there[:, rows], each, np.nan) for name, each in columns.items()}
        )
        assert ((low <= y.sum()) & (y.sum() <= high)).mean() < 0.9


@pytest.mark.parametrize("rows", [60, 200])
def test_few_rows_have_wide_intervals_not_wrong_ones(rows: int, chance: random.Random) -> None:
    rng = np.random.default_rng(chance.getrandbits(64))
    y, ones, p = rng.uniform(5, 10, rows), np.ones(rows), np.full(rows, 0.15)
    for function in ("count", "sum", "avg"):
        assert coverage(rng, function, (ones if function == "count" else y, ones, p)) > 0.91


SKEWED: dict[str, Callable[[np.random.Generator, tuple[int, int]], Numbers]] = {
    "lognormal": lambda rng, shape: rng.lognormal(0, 2, shape),
    "negative": lambda rng, shape: -rng.lognormal(0, 2, shape),
    "of both signs": lambda rng, shape: rng.lognormal(0, 2, shape) * rng.choice([-1, 1], shape),
}


@pytest.mark.parametrize(
    ("values", "rows", "rate"),
    [*product(["lognormal"], [30, 100, 300], [0.1, 0.5]), ("negative", 30, 0.1), ("of both signs", 100, 0.1)],
)
def test_a_few_rows_of_very_skewed_values_have_wide_intervals(
    values: str, rows: int, rate: float, chance: random.Random
) -> None:
    # Of a single population the greatest value alone would decide, so each sample is of another one.
    rng = np.random.default_rng(chance.getrandbits(64))
    size = round(rows / rate)
    for function in ("sum", "avg"):
        hits = 0
        for _ in range(RUNS // RUNS_AT_ONCE):
            y = SKEWED[values](rng, (RUNS_AT_ONCE, size))
            there = rng.random(y.shape) < rate
            columns = {"y": y, "c": np.ones(y.shape), "p": np.full(y.shape, rate)}
            _, low, high = estimated(
                function, UNITS, {name: np.where(there, each, np.nan) for name, each in columns.items()}
            )
            truth = y.sum(axis=1) if function == "sum" else y.mean(axis=1)
            hits += int(((low <= truth) & (truth <= high)).sum())
        assert hits / RUNS >= 0.93, function


def test_estimates_are_right_on_average(chance: random.Random) -> None:
    rng = np.random.default_rng(chance.getrandbits(64))
    y, ones, p = rng.normal(3, 2, ROWS), np.ones(ROWS), RATES["by age"]()
    for function, truth, wide in (("count", ROWS, 45.0), ("sum", y.sum(), 180.0), ("avg", y.mean(), 0.06)):
        value, low, high = estimated(function, UNITS, samples(rng, ones if function == "count" else y, ones, p, 2_000))
        # Six standard errors of a mean of 2,000 estimates.
        assert abs(value.mean() - truth) < 6 * wide / 2_000**0.5
        assert (low <= value).all()
        assert (value <= high).all()


def test_the_variance_is_that_of_horvitz_and_thompson() -> None:
    rng = np.random.default_rng(5)
    y, p = rng.choice([-1, 1], 50) * rng.uniform(0.9, 1.1, 50), rng.uniform(0.4, 0.6, 50)
    columns = {"y": y[None, :], "c": np.ones((1, 50)), "p": p[None, :]}
    value, low, high = estimated("sum", UNITS, columns)
    total = sum(each / rate for each, rate in zip(y, p, strict=True))
    variance = sum(each**2 * (1 - rate) / rate**2 for each, rate in zip(y, p, strict=True))
    assert value[0] == pytest.approx(total)
    # 2.0096 is Student's quantile with 49 degrees of freedom.
    assert (high[0] - low[0]) / 2 == pytest.approx(2.0096 * variance**0.5, rel=1e-3)
    ratio, low, high = estimated("avg", UNITS, columns)
    rows = sum(1 / rate for rate in p)
    variance = sum((each - total / rows) ** 2 * (1 - rate) / rate**2 for each, rate in zip(y, p, strict=True)) / rows**2
    assert ratio[0] == pytest.approx(total / rows)
    assert (high[0] - low[0]) / 2 == pytest.approx(2.0096 * variance**0.5, rel=1e-3)


@pytest.mark.parametrize("function", ["count", "sum", "avg"])
def test_what_is_certain_has_no_interval(function: str) -> None:
    y = np.ones((1, 4)) if function == "count" else np.array([[1.0, -2.0, 5.0, 7.0]])
    value, low, high = estimated(function, UNITS, {"y": y, "c": np.ones((1, 4)), "p": np.ones((1, 4))})
    assert value[0] == low[0] == high[0] == {"count": 4, "sum": 11, "avg": 2.75}[function]


def test_one_row_tells_nothing_of_a_sum() -> None:
    columns = {"y": np.array([[3.0]]), "c": np.ones((1, 1)), "p": np.full((1, 1), 0.5)}
    for function, value in (("sum", 6.0), ("avg", 3.0)):
        found = estimated(function, UNITS, columns)
        assert found[0][0] == value
        assert np.isnan(found[1][0])
        assert np.isnan(found[2][0])


def test_a_count_without_rows_that_count_still_has_an_upper_bound() -> None:
    columns = {"y": np.full((1, 5), np.nan), "c": np.full((1, 5), np.nan), "p": np.full((1, 5), 0.1)}
    value, low, high = estimated("count", UNITS, columns)
    assert value[0] == 0
    assert low[0] == pytest.approx(0)
    assert high[0] == pytest.approx(1.96**2 * 0.9 / 0.1, rel=1e-3)
    value, low, high = estimated("sum", UNITS, columns)
    assert np.isnan([value[0], low[0], high[0]]).all()


def test_a_count_is_at_least_what_was_seen() -> None:
    columns = {name: np.full((1, 3), each) for name, each in {"y": 1.0, "c": 1.0, "p": 0.95}.items()}
    _, low, _ = estimated("count", UNITS, columns)
    assert low[0] >= 3


@pytest.mark.parametrize(
    ("kind", "value", "low", "high"),
    [
        (ColumnType(TypeKind.BIGINT), 13, 12, 14),
        (ColumnType(TypeKind.DOUBLE), 12.5, 12.25, 13.25),
        (ColumnType(TypeKind.DECIMAL, 20, 2), 12.5, 12.25, 13.25),
    ],
)
def test_results_have_the_types_of_the_aggregates(kind: ColumnType, value: float, low: float, high: float) -> None:
    made = value_of_type(Lit(12.5, DOUBLE), kind)
    assert made.type == kind
    assert evaluate(made, {}) == value
    assert evaluate(low_of_type(Lit(12.25, DOUBLE), kind), {}) == low
    assert evaluate(high_of_type(Lit(13.25, DOUBLE), kind), {}) == high
