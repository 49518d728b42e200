"""Which groups partial aggregates can be kept of."""

from __future__ import annotations

import pytest

from errata.language.expr import BIGINT, DOUBLE, Cast, Expr
from errata.language.incremental import find_partial_group
from errata.language.nodes import Aggregate, Distinct, Filter, Group, Join, RowWindow, Sliding, TimeWindow, Union
from errata.language.plan import Plan, SourceKind
from errata.model.columns import ColumnType, TypeKind
from fixtures.plans.links import COUNT, column, counted, equal, link, number, on_src, people, select

A, B = link("a"), link("b")
SLID = Sliding(A, 20)
N = column("a.n")
HOPS = TimeWindow(8, 2)


def over(plan: Plan, function: str, argument: Expr = N, *, distinct: bool = False, window: object = None) -> Group:
    kind = DOUBLE if function in ("avg", "stddev") else argument.type
    assert window is None or isinstance(window, TimeWindow)
    return Group(plan, (), (Aggregate(function, argument, kind, distinct),), window, timed=False)


def decimal(digits: int) -> Cast:
    return Cast(N, ColumnType(TypeKind.DECIMAL, digits, 2))


@pytest.mark.parametrize(
    ("plan", "span"),
    [
        pytest.param(counted(A), None, id="a stream"),
        pytest.param(counted(A, None, "a.src"), None, id="by a column"),
        pytest.param(counted(SLID), 20, id="a sliding window"),
        pytest.param(counted(Filter(SLID, equal(N, number(1)))), 20, id="filtered below"),
        pytest.param(counted(Union((SLID, Sliding(B, 20)))), 20, id="windows of one size"),
        pytest.param(counted(on_src(A, B)), None, id="a join of streams"),
        pytest.param(counted(A, HOPS), None, id="final windows"),
        pytest.param(counted(A, TimeWindow(99, 1, early=True)), None, id="early windows"),
        pytest.param(counted(select(counted(A, HOPS, "a.src"), "a.src")), None, id="a group over windows"),
        pytest.param(over(A, "first"), None, id="the first of all"),
        pytest.param(over(SLID, "max"), 20, id="the greatest of a window"),
        pytest.param(over(SLID, "min", distinct=True), 20, id="the least, once"),
        pytest.param(over(SLID, "last"), 20, id="the last of a window"),
        pytest.param(over(SLID, "avg", decimal(23)), 20, id="an average of decimals"),
    ],
)
def test_groups_that_can_be_carried_on(plan: Plan, span: int | None) -> None:
    found = find_partial_group(plan)
    assert found is not None
    assert found.span == span
    assert found.node == plan


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(A, id="no group"),
        pytest.param(counted(counted(SLID, None, "a.src")), id="over what holds"),
        pytest.param(counted(Union((SLID, Sliding(B, 5)))), id="windows of two sizes"),
        pytest.param(counted(on_src(SLID, B)), id="a join with a window"),
        pytest.param(counted(people(SourceKind.RETROACTIVE)), id="a relation"),
        pytest.param(counted(A, RowWindow(3, 1)), id="windows of rows"),
        pytest.param(counted(SLID, HOPS), id="windows over rows that cease to count"),
        pytest.param(counted(A, TimeWindow(34, 2)), id="more windows than rows"),
        pytest.param(over(A, "count", distinct=True), id="how many different ones"),
        pytest.param(over(SLID, "first"), id="the first of a window"),
        pytest.param(over(A, "avg", decimal(24)), id="an average of long decimals"),
        pytest.param(Distinct(counted(A)), id="something else above"),
        pytest.param(Join(counted(A), B), id="joined above"),
    ],
)
def test_groups_that_cannot(plan: Plan) -> None:
    assert find_partial_group(plan) is None


def test_filters_and_projections_above_come_the_lowest_first() -> None:
    group = counted(A, None, "a.src")
    filtered = Filter(group, equal(group.ref(COUNT.name), number(1)))
    found = find_partial_group(select(filtered, "a.src"))
    assert found is not None
    assert found.node == group
    assert [type(each).__name__ for each in found.above] == ["Filter", "Projection"]


def test_only_final_windows_are_never_replaced() -> None:
    covering = [find_partial_group(counted(A, window)) for window in (None, HOPS, TimeWindow(8, 2, early=True))]
    assert [found is not None and found.covering for found in covering] == [True, False, True]


@pytest.mark.parametrize(
    ("plan", "drifts"),
    [
        (over(SLID, "sum", Cast(N, DOUBLE)), True),
        (over(SLID, "stddev", Cast(N, BIGINT)), True),
        (over(SLID, "sum"), False),
        (over(SLID, "max", Cast(N, DOUBLE)), False),
        (over(A, "sum", Cast(N, DOUBLE)), False),
    ],
)
def test_sums_of_doubles_that_are_taken_away_may_drift(plan: Plan, drifts: bool) -> None:
    found = find_partial_group(plan)
    assert found is not None
    assert found.accumulates_rounding is drifts
