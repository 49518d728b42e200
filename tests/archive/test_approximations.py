"""Approximate revision processing: certain bounds hold for any values, pieces and corrections; those of samples hold
about as often as they say."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from errata.archive.approximations import (
    ESTIMATED,
    BoundedValues,
    Estimates,
    KnownValues,
    SampledValues,
    corrected,
    count_ranges,
    even_edges,
    keep_impact,
    merge_impact,
)
from errata.errors import UsageError
from fixtures.chance import random_for, seeds

Pair = tuple[int, float]


def known(pairs: Sequence[Pair]) -> KnownValues:
    return KnownValues(np.array([g for g, _ in pairs], dtype=np.int64), np.array([v for _, v in pairs], dtype=float))


def truth(function: str, values: Sequence[float]) -> float:
    if function == "count":
        return len(values)
    if not values:
        return math.nan
    found = {"min": min, "max": max}.get(function)
    if found is not None:
        return found(values)
    return math.fsum(values) / (1 if function == "sum" else len(values))


def assert_holds(approximation: BoundedValues, pairs: Sequence[Pair]) -> None:
    of: defaultdict[int, list[float]] = defaultdict(list)
    for group, value in pairs:
        of[group].append(value)
    for function in ESTIMATED:
        found = approximation.estimate(function)
        for group in range(approximation.size):
            right = truth(function, of[group])
            value, low, high = (float(each[group]) for each in (found.value, found.low, found.high))
            if math.isnan(right):
                assert math.isnan(value)
                assert math.isnan(low)
                assert math.isnan(high)
            else:
                assert low <= right <= high, (function, group, right, low, high)
                assert low - 1e-9 * abs(low) <= value <= high + 1e-9 * abs(high)


def random_value(draw: random.Random) -> float:
    return draw.choice([draw.uniform(-10, 10), float(draw.randrange(-3, 4)), draw.gauss(0, 1000), 1e12, -0.0, 0.1])


@pytest.mark.parametrize("seed", seeds(__name__, 60))
@pytest.mark.parametrize("method", ["impact", "histogram"])
def test_certain_bounds_hold_after_corrections(seed: int, method: str) -> None:
    draw = random.Random(seed)
    size, kept = draw.randrange(1, 5), draw.choice([0, 1, 3, 1000])
    pairs = [(draw.randrange(size), random_value(draw)) for _ in range(draw.choice([0, 1, 5, 60]))]
    pieces: list[list[Pair]] = [[] for _ in range(3)]
    for pair in pairs:
        draw.choice(pieces).append(pair)
    whole = known(pairs)
    if method == "impact":
        one, two, three = (keep_impact(part.groups, part.values, size, kept) for part in map(known, pieces))
        found = merge_impact(one, merge_impact(two, three, kept), kept)
        assert_same_listed(found, keep_impact(whole.groups, whole.values, size, kept))
    else:
        found = count_ranges(whole.groups, whole.values, size, even_edges(whole.values, draw.choice([1, 4, 20])))
    assert_holds(found, pairs)
    removed = draw.sample(pairs, draw.randrange(len(pairs) + 1))
    added = [(draw.randrange(size), random_value(draw)) for _ in range(draw.randrange(4))]
    left = list(pairs)
    for pair in removed:
        left.remove(pair)
    assert_holds(corrected(found, known(removed), known(added)), [*left, *added])


def assert_same_listed(one: BoundedValues, other: BoundedValues) -> None:
    """Merged from pieces, the values that are listed are the greatest of all, as sizes."""

    def sizes(of: BoundedValues) -> list[Pair]:
        return sorted(zip(of.known.groups.tolist(), np.abs(of.known.values).tolist(), strict=True))

    assert sizes(one) == sizes(other)
    assert one.ranged.counts.tolist() == other.ranged.counts.tolist()


def test_what_is_listed_whole_is_exact() -> None:
    found = keep_impact(np.array([0, 0, 1]), np.array([1.0, -5.0, 2.5]), 3, 10).estimate("sum")
    assert found.value.tolist()[:2] == [-4.0, 2.5]
    assert math.isnan(found.value[2])
    assert np.all(found.high[:2] - found.low[:2] < 1e-9)


def test_the_greatest_values_bound_a_skewed_sum_tightly() -> None:
    draw = random_for(__name__)
    values = np.array([draw.paretovariate(1.1) for _ in range(5_000)])
    groups = np.zeros(len(values), dtype=np.int64)
    widths = []
    for kept in (10, 100, 1000):
        found = keep_impact(groups, values, 1, kept).estimate("sum")
        widths.append(float(found.high[0] - found.low[0]))
    assert widths == sorted(widths, reverse=True)


def test_intervals_of_samples_contain_the_truth_about_as_often_as_they_say() -> None:
    chance = np.random.default_rng(random_for(__name__ + "samples").randrange(2**32))
    size, runs, rate = 4, 1_000, 0.2
    groups = np.arange(2_000) % size
    values = chance.normal(50, 20, len(groups)) + 10 * groups
    added = KnownValues(np.array([1, 2]), np.array([400.0, -3.0]))
    all_groups, all_values = np.append(groups, added.groups), np.append(values, added.values)
    held = dict.fromkeys(("count", "sum", "avg"), 0)
    for _ in range(runs):
        drawn = chance.random(len(groups)) < rate
        approximation = SampledValues(size, rate, KnownValues(groups[drawn], values[drawn]), added)
        for function in held:
            found: Estimates = approximation.estimate(function)
            right = np.array([truth(function, all_values[all_groups == at].tolist()) for at in range(size)])
            held[function] += int(((found.low <= right) & (right <= found.high)).sum())
    shares = {function: count / (runs * size) for function, count in held.items()}
    assert all(0.93 <= share <= 0.97 for share in shares.values()), shares


@pytest.mark.parametrize(("values", "rows"), [("lognormal", 30), ("lognormal", 200), ("normal", 30)])
def test_intervals_of_few_and_skewed_rows_contain_the_truth(values: str, rows: int) -> None:
    # Each group is a population of its own, a few of them without a row in the sample or with a single one.
    chance = np.random.default_rng(random_for(__name__ + values + str(rows)).randrange(2**32))
    size, rate = 4_000, 0.1
    groups = np.repeat(np.arange(size), round(rows / rate))
    every = chance.lognormal(0, 2, len(groups)) if values == "lognormal" else chance.normal(50, 20, len(groups))
    drawn = chance.random(len(groups)) < rate
    sample = SampledValues(size, rate, KnownValues(groups[drawn], every[drawn]))
    whole = KnownValues(groups, every)
    right = {"count": whole.count(size), "sum": whole.sum(size), "avg": whole.sum(size) / whole.count(size)}
    for function, truths in right.items():
        found = sample.estimate(function)
        assert ((found.low <= truths) & (truths <= found.high)).mean() >= 0.93, function


def test_a_sample_without_rows_or_with_one_knows_what_it_does_not_know() -> None:
    one = SampledValues(
        3, 0.5, KnownValues(np.array([0]), np.array([4.0])), KnownValues(np.array([1]), np.array([2.0]))
    )
    count = one.estimate("count")
    assert count.value.tolist() == [2.0, 1.0, 0.0]
    assert count.low.tolist()[1:] == [1.0, 0.0]
    assert min(count.high.tolist()) > 3, "also where no row is in the sample, there may be some"
    for function, values in (("sum", [8.0, 2.0]), ("avg", [4.0, 2.0])):
        found = one.estimate(function)
        assert found.value.tolist()[:2] == values
        assert math.isnan(found.value[2])
        assert np.isnan([*found.low, *found.high]).all()


def test_a_sample_of_all_rows_is_exact_and_says_nothing_of_extremes() -> None:
    whole = SampledValues(1, 1.0, KnownValues(np.zeros(3, dtype=np.int64), np.array([1.0, 2.0, 6.0])))
    for function, right in (("count", 3.0), ("sum", 9.0), ("avg", 3.0)):
        found = whole.estimate(function)
        assert (found.value[0], found.low[0], found.high[0]) == (right, right, right)
    with pytest.raises(UsageError, match="cannot be estimated from a sample"):
        whole.estimate("max")
