"""Regions made few and disjoint, and found in rows: against looking at each row and each instant."""

from __future__ import annotations

import random
import time
from itertools import combinations, pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.answer.extents import disjoint_extents, merge_extents, parts_in_extents, rows_with_constants
from errata.model.columns import TypeKind
from errata.model.extent import Extent, ExtentAxis
from errata.model.time import HIGHEST, LOWEST, to_micros
from fixtures.chance import seeds
from fixtures.plans.choices import Choices, FromHypothesis, FromRandom
from fixtures.regions import instant, start
from fixtures.result_rows import VALUES, shape_of, table

LAST = 9
COLUMNS = {"a": (None, 1, 2), "b": ("x", None), "c": (1, 2)}
Row = tuple[object, ...]
ROWS: list[Row] = list(product(*COLUMNS.values()))


def some(choices: Choices) -> list[Extent]:
    found = []
    for _ in range(choices.number(0, 7)):
        low = choices.one([*range(LAST), LOWEST])
        high = choices.one([max(low, 0) + choices.number(0, 4), HIGHEST])
        values = {name: choices.one(values) for name, values in COLUMNS.items() if choices.number(0, 1)}
        found.append(instant(low, high, **values))
    return found


def has(region: Extent, row: Row) -> bool:
    return all(row[list(COLUMNS).index(name)] == value for name, value in region.values.items())


def held(regions: list[Extent]) -> set[tuple[Row, int]]:
    """Rows, each with an instant at which it lies in a region."""
    return {
        (row, at)
        for row in ROWS
        for each in regions
        if has(each, row)
        for at in range(-1, LAST + 6)
        if at in each.interval
    }


def together(one: Extent, other: Extent) -> bool:
    """Whether two regions can hold the same row at the same time."""
    agree = all(other.values.get(name, value) == value for name, value in one.values.items())
    return agree and max(one.interval.start, other.interval.start) < min(one.interval.end, other.interval.end)


def crosses(one: Extent, other: Extent) -> bool:
    """Whether each of two has a constant that the other has not, and they meet."""
    apart = set(one.values) - set(other.values) and set(other.values) - set(one.values)
    return bool(apart) and together(one, other)


def check(regions: list[Extent]) -> None:
    found, few = disjoint_extents(regions), merge_extents(regions)
    assert held(few) == held(regions) <= held(found)
    assert not any(together(one, other) for one, other in combinations(found, 2))
    if not any(crosses(one, other) for one, other in combinations(few, 2)):
        assert found == few
    for some_ in (found, few):
        assert not any(each.empty for each in some_)
        assert some_ == sorted(
            some_, key=lambda each: (each.interval.start, each.interval.end, repr(sorted(each.values.items())))
        )


@given(st.data())
def test_disjoint_regions_hold_all_and_meet_nowhere(data: st.DataObject) -> None:
    check(some(FromHypothesis(data.draw)))


def test_many_regions() -> None:
    for seed in seeds(__name__, 300):
        check(some(FromRandom(random.Random(seed))))


@pytest.mark.parametrize("make", [instant, start])
def test_regions_of_the_same_constants_are_one_where_they_touch(make: type[Extent]) -> None:
    found = disjoint_extents([make(5, 9, a=1), make(1, 3, a=1), make(3, 5, a=1), make(11, 12, a=1), make(4, 6, a=2)])
    assert found == [make(1, 9, a=1), make(4, 6, a=2), make(11, 12, a=1)]


def test_what_fewer_constants_hold_is_left_out() -> None:
    assert disjoint_extents([instant(0, 9, a=1), instant(3, 5), instant(4, 5, b="x")]) == [
        instant(0, 3, a=1),
        instant(3, 5),
        instant(5, 9, a=1),
    ]


def test_regions_that_cross_become_one_of_what_they_have_in_common() -> None:
    crossing = [instant(0, 5, a=1, b="x"), instant(3, 9, a=1, c=2), instant(9, 12, a=1, b=None)]
    assert disjoint_extents(crossing) == [instant(0, 9, a=1), instant(9, 12, a=1, b=None)]
    assert merge_extents(crossing) == crossing


def test_many_groups_take_no_time_to_compare() -> None:
    regions = [start(at % 50, HIGHEST, symbol=f"S{at}", window=at % 7) for at in range(15_000)]
    regions += [start(at, at + 3, symbol=f"S{at}", other=1) for at in range(0, 10_000, 8)]
    begun = time.process_time()
    found = disjoint_extents(regions)
    assert time.process_time() - begun < 10
    assert len(found) == 15_000


def columns(rows: list[Row]) -> pa.Table:
    kinds = (pa.int64(), pa.string(), pa.int32())
    return pa.table(
        {
            name: pa.array(list(values), kind)
            for name, values, kind in zip(COLUMNS, zip(*rows, strict=True), kinds, strict=True)
        }
    )


@given(st.data())
def test_parts_of_rows_lie_in_regions(data: st.DataObject) -> None:
    check_parts(FromHypothesis(data.draw))


def test_many_parts_of_rows() -> None:
    for seed in seeds(__name__, 200):
        check_parts(FromRandom(random.Random(seed)))


def check_parts(choices: Choices) -> None:
    regions = some(choices)
    rows = [(choices.one(ROWS), choices.number(-1, LAST), choices.number(1, 5)) for _ in range(choices.number(1, 6))]
    low = np.array([at for _, at, _ in rows])
    found = parts_in_extents(
        columns([row for row, _, _ in rows]), low, low + np.array([size for _, _, size in rows]), regions
    )
    parts = list(zip(found.row.tolist(), found.start.tolist(), found.end.tolist(), strict=True))
    lies = {
        (place, at)
        for place, (row, at_, size) in enumerate(rows)
        for at in range(at_, at_ + size)
        if any(has(each, row) and at in each.interval for each in regions)
    }
    assert [(place, at) for place, begin, end in parts for at in range(begin, end)] == sorted(lies)
    assert all(one[0] < other[0] or one[2] < other[1] for one, other in pairwise(parts))


@pytest.mark.parametrize("kind", [kind for kind in TypeKind if kind not in (TypeKind.FLOAT, TypeKind.DOUBLE)])
def test_rows_have_constants_of_every_type(kind: TypeKind) -> None:
    shape = shape_of([kind, TypeKind.STRING], [])
    values = [(one, other) for one in VALUES[kind] for other in ("a", None)]
    rows = table([{"key": one, "_k1": other, "_vs": 0, "_ve": 1} for one, other in values], shape)
    assert rows_with_constants(rows, start(0, 1)).all()
    for one, other in values:
        wanted = to_micros(one) if kind is TypeKind.TIMESTAMP and one is not None else one
        both = rows_with_constants(rows, Extent(ExtentAxis.START, values={"_k1": other, "key": wanted}))
        assert both.tolist() == [each == (one, other) for each in values]
        assert rows_with_constants(rows, Extent(ExtentAxis.START, values={"key": wanted})).tolist() == [
            each == one for each, _ in values
        ]
