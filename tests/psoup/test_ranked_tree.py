"""Aggregates of any range equal those of its values one by one, whatever was added and removed before."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from time import perf_counter

import numpy as np
import pyarrow as pa
import pytest

from errata.errors import ErrataError
from errata.intake.types import arrow_type
from errata.language.reading.expressions import aggregate_type
from errata.model.columns import ColumnType
from errata.model.registered import AggregateFunction
from errata.psoup.measures import measure_for
from errata.psoup.ranked_tree import PAGE, RankedTree, TreeColumn

TYPES = {
    name: ColumnType.parse(kind)
    for name, kind in {
        "i": "int",
        "b": "bigint",
        "d": "double",
        "f": "float",
        "short": "decimal(9,2)",
        "wide": "decimal(27,3)",
        "s": "string",
        "t": "timestamp",
        "day": "date",
        "flag": "boolean",
    }.items()
}
SUMMABLE = ("i", "b", "d", "f", "short", "wide")
EXTREMES = {
    "d": [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7e308, -1.7e308],
    "s": ["", "é", "Z", "a\x00", "😀", "～"],
}


def tree_columns(functions: dict[str, tuple[str, ...]]) -> list[TreeColumn]:
    found = []
    for name, named in functions.items():
        for function in named:
            kind = TYPES[name]
            output = aggregate_type(function, kind)
            assert output is not None
            measure = measure_for(AggregateFunction(function), kind, output, f"{function}({name})")
            found.append(TreeColumn(name, kind, measure))
    return found


ALL = {name: ("count", "min", "max", *(("sum", "avg") if name in SUMMABLE else ())) for name in TYPES}
LABELS = [(name, function) for name, functions in ALL.items() for function in functions]


def draw(chance: random.Random, name: str) -> object:
    if chance.random() < 0.15:
        return None
    if name in EXTREMES and chance.random() < 0.05:
        return chance.choice(EXTREMES[name])
    return DRAWN[name](chance)


DRAWN: dict[str, Callable[[random.Random], object]] = {
    "i": lambda chance: chance.choice([chance.randrange(-5, 5), 2**31 - 1, -(2**31)]),
    "b": lambda chance: chance.choice([chance.randrange(-5, 5), chance.randrange(-(2**52), 2**52)]),
    "d": lambda chance: chance.uniform(-1e6, 1e6),
    "f": lambda chance: float(np.float32(chance.uniform(-1e3, 1e3))),
    "short": lambda chance: Decimal(chance.randrange(-(10**9) + 1, 10**9)).scaleb(-2),
    "wide": lambda chance: Decimal(chance.randrange(-(10**27) + 1, 10**27)).scaleb(-3),
    "s": lambda chance: chance.choice("abcdef") * chance.randrange(3),
    "t": lambda chance: chance.randrange(-(10**15), 10**15),
    "day": lambda chance: chance.randrange(-9999, 9999),
    "flag": lambda chance: chance.random() < 0.5,
}


def column_of(name: str, values: list[object]) -> pa.ChunkedArray:
    """The values in two chunks, the second of which has an offset."""
    kind = arrow_type(TYPES[name])
    storage = {"t": pa.int64(), "day": pa.int32()}.get(name, kind)
    half = len(values) // 2
    whole = pa.array([None, *values], type=storage).cast(kind)
    return pa.chunked_array([whole.slice(1, half), whole.slice(1 + half)])


def naive(name: str, function: str, values: list[object]) -> object:
    """The aggregate in plain Python."""
    kind = TYPES[name]
    there = [each for each in values if each is not None]
    if function == "count":
        return len(there)
    if not there:
        return None
    if function in ("min", "max"):
        choose = min if function == "min" else max
        return choose(there, key=lambda each: (each != each, each))
    if name in ("d", "f"):
        return naive_double(function, there)
    total = sum(map(Fraction, there))
    result = total / len(there) if function == "avg" else total
    if name in ("i", "b"):
        return float(result) if function == "avg" else int(result)
    output = aggregate_type(function, kind)
    assert output is not None
    exact = Context(prec=120).divide(Decimal(result.numerator), Decimal(result.denominator))
    return exact.quantize(Decimal(1).scaleb(-output.scale), rounding=ROUND_HALF_UP, context=Context(prec=60))


def naive_double(function: str, values: list[float]) -> float:
    if any(map(math.isnan, values)) or {math.inf, -math.inf} <= set(values):
        return math.nan
    infinite = [each for each in values if math.isinf(each)]
    exact = sum(map(Fraction, values), Fraction()) if not infinite else Fraction()
    try:
        total = infinite[0] if infinite else float(exact)
    except OverflowError:
        total = math.inf if exact > 0 else -math.inf
    return total / len(values) if function == "avg" else total


def assert_same(found: object, expected: object, label: object) -> None:
    if isinstance(expected, float) and isinstance(found, float):
        same = (math.isnan(found) and math.isnan(expected)) or math.isclose(
            found, expected, rel_tol=1e-12, abs_tol=1e-12
        )
        assert same, (label, found, expected)
    else:
        assert (type(found), found) == (type(expected), expected), label


class Leaves:
    """Rows in order, as a list: the oracle of the tree."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, dict[str, object]]] = []

    def add(self, new: list[tuple[int, int, dict[str, object]]]) -> None:
        self.rows = sorted([*self.rows, *new], key=lambda row: row[0])

    def remove(self, rows: set[int]) -> None:
        self.rows = [row for row in self.rows if row[1] not in rows]


def add_rows(tree: RankedTree, rows: list[tuple[int, int, dict[str, object]]], names: list[str]) -> RankedTree:
    order, numbers = (np.array([row[at] for row in rows], dtype=np.int64) for at in (0, 1))
    return tree.with_rows(order, numbers, {name: column_of(name, [row[2][name] for row in rows]) for name in names})


@pytest.mark.parametrize("size", [5, 130, 2_000])
def test_any_range_after_any_changes_equals_its_values_one_by_one(chance: random.Random, size: int) -> None:
    tree, oracle, number = RankedTree(tree_columns(ALL)), Leaves(), 0
    span = size * 2
    for _step in range(8):
        many = chance.randrange(1, size)
        start = chance.choice([0, span])  # in between, or behind all
        new = []
        for _ in range(many):
            new.append((start + chance.randrange(span), number, {name: draw(chance, name) for name in TYPES}))
            number += 1
        tree = add_rows(tree, new, list(TYPES))
        oracle.add(new)
        gone = chance.sample(oracle.rows, chance.randrange(len(oracle.rows)) // 2)
        tree = tree.without_rows(*(np.array([row[at] for row in gone], dtype=np.int64) for at in (0, 1)))
        oracle.remove({row[1] for row in gone})
        check_ranges(tree, oracle, chance)


def check_ranges(tree: RankedTree, oracle: Leaves, chance: random.Random) -> None:
    rows = oracle.rows
    assert len(tree) == len(rows)
    assert sorted(tree.rows(0, len(rows)).tolist()) == sorted(row[1] for row in rows)
    by_number = {row[1]: row[2] for row in rows}
    for _ in range(4):
        begin, end = sorted(chance.sample(range(-2, 4 + max([row[0] for row in rows], default=0)), 2))
        first, last = tree.rank(begin), tree.rank(end)
        inside = [row[2] for row in rows if begin <= row[0] < end]
        assert last - first == len(inside)
        cut = chance.randrange(first, last + 1)  # a range may end within equal order fields
        for ranges in ([(first, last)], [(first, cut)], [(first, cut), (cut, last)]):
            numbers = [number for each in ranges for number in tree.rows(*each).tolist()]
            for label, found in zip(LABELS, tree.aggregate(*ranges), strict=True):
                assert_same(found, naive(*label, [by_number[each][label[0]] for each in numbers]), (label, ranges))


def double_tree(values: np.ndarray, functions: tuple[str, ...] = ("sum",)) -> RankedTree:
    order = np.arange(len(values))
    return RankedTree(tree_columns({"d": functions})).with_rows(order, order, {"d": pa.chunked_array([values])})


def test_the_sum_of_a_window_does_not_depend_on_what_lies_outside_it(chance: random.Random) -> None:
    inside = np.array([chance.uniform(-1, 1) for _ in range(10_000)])
    alone = double_tree(inside).aggregate((0, 10_000))
    for outside in (1e300, 1.7e308, math.inf, math.nan, 1e-300):
        for before in (1, 63, 64, PAGE - 1, 5_000):
            values = np.concatenate([np.full(before, outside), inside, np.full(77, outside)])
            (found,) = double_tree(values).aggregate((before, before + 10_000))
            assert found == pytest.approx(alone[0], rel=1e-15, abs=0)
    assert alone[0] == math.fsum(inside)


def test_a_sum_of_doubles_is_rounded_once_and_overflows_only_at_the_end() -> None:
    assert double_tree(np.array([1e16, 1.0, -1e16] * 5_000)).aggregate((0, 15_000)) == [5_000.0]
    large = np.array([1.7e308] * 5_000 + [-1.7e308] * 4_999 + [1.0])
    assert double_tree(large).aggregate((0, 10_000)) == [1.7e308]
    assert double_tree(large, ("sum", "avg")).aggregate((0, 2)) == [math.inf, math.inf]
    assert double_tree(-large).aggregate((0, 300)) == [-math.inf]


def test_sums_that_do_not_fit_their_type_are_errors_that_name_them() -> None:
    order = np.arange(2)
    tree = RankedTree(tree_columns({"b": ("sum",)}))
    full = tree.with_rows(order, order, {"b": pa.chunked_array([pa.array([2**63 - 1, 1])])})
    assert full.aggregate((0, 1)) == [2**63 - 1]
    with pytest.raises(ErrataError, match=r"sum\(b\): the sum does not fit") as refused:
        full.aggregate((0, 2))
    assert "smaller window" in str(refused.value.how)
    assert full.with_rows(order + 2, order + 2, {"b": pa.chunked_array([pa.array([-1, -1])])}).aggregate((0, 4)) == [
        2**63 - 2
    ]


def test_the_widest_decimals_are_exact_and_too_many_of_them_an_error() -> None:
    kind = ColumnType.parse("decimal(38,0)")
    column = TreeColumn("w", kind, measure_for(AggregateFunction.SUM, kind, kind, "sum(w)"))
    values = [Decimal(10**38 - 1), Decimal(-(10**38) + 1), Decimal(7)]
    whole = pa.chunked_array([pa.array(values, type=pa.decimal128(38, 0))])
    tree = RankedTree([column]).with_rows(np.arange(3), np.arange(3), {"w": whole})
    assert [tree.aggregate(each) for each in ((0, 1), (1, 2), (0, 3))] == [[values[0]], [values[1]], [Decimal(7)]]
    with pytest.raises(ErrataError, match="does not fit"):
        tree.aggregate((0, 1), (2, 3))


def test_a_tree_remains_what_it_was_when_others_are_made_of_it() -> None:
    first = double_tree(np.arange(10_000.0))
    more = first.with_rows(np.array([5, 20_000]), np.array([-1, -2]), {"d": pa.chunked_array([[1.0, 2.0]])})
    less = first.without_rows(np.arange(5_000), np.arange(5_000))
    assert (len(first), len(more), len(less)) == (10_000, 10_002, 5_000)
    assert first.aggregate((0, 10_000)) == [49_995_000.0]
    assert more.aggregate((0, 10_002)) == [49_995_003.0]
    assert less.aggregate((0, 5_000)) == [49_995_000.0 - 12_497_500.0]
    assert sum(mine is theirs for mine, theirs in zip(first._pages, more._pages, strict=True)) == len(more._pages) - 2


def test_an_empty_range_has_a_count_of_nothing_and_otherwise_null() -> None:
    for tree in (
        RankedTree(tree_columns(ALL)),
        add_rows(RankedTree(tree_columns(ALL)), [(0, 0, dict.fromkeys(TYPES))], list(TYPES)),
    ):
        assert tree.aggregate((0, 1)) == [0 if function == "count" else None for _name, function in LABELS]
        assert tree.aggregate() == tree.aggregate((0, 0)) == tree.aggregate((5, 3))


def test_a_thinned_tree_is_made_anew() -> None:
    tree = double_tree(np.ones(20 * PAGE))
    gone = np.arange(20 * PAGE)[np.arange(20 * PAGE) % 16 > 0]
    thin = tree.without_rows(gone, gone)
    assert thin.aggregate((0, len(thin))) == [float(20 * PAGE // 16)]
    assert len(thin._pages) < len(tree._pages) / 8


def test_a_window_of_a_million_leaves_reads_no_more_than_a_few_hundred() -> None:
    """The time is measured by `errata bench psoup`; here the leaves and annotations that a range reads are counted."""
    values = np.random.default_rng(7).normal(size=1 << 20)
    tree = double_tree(values, ("sum", "max"))
    most = 2 * 64 * 3 + len(tree._pages) // 64 + 1
    for window in (1 << 10, 1 << 20):
        ends = list(tree._end_ranges(len(values) - window + 1, len(values) - 1))
        whole = list(tree._whole_pages(len(values) - window + 1, len(values) - 1))
        assert sum(min(high - low, 2 * 64 + 64) for _at, low, high in ends) <= 2 * 192
        assert sum(-(-(high - low) // 64) + 2 * 64 for low, high in whole) <= most
    started = perf_counter()
    found = tree.aggregate((1, len(values) - 1))
    assert perf_counter() - started < 0.1
    assert found[0] == pytest.approx(math.fsum(values[1:-1]), rel=1e-12)
