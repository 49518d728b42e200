"""Which plans go on from the end of what came before, and what stands above the operator that does."""

from __future__ import annotations

import random

import pytest

from errata.language.incremental import find_last_rows, find_new_values, find_row_windows, is_local
from errata.language.nodes import (
    Distinct,
    Filter,
    Intersect,
    Join,
    Negation,
    RelationJoin,
    RowWindow,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.plan import Plan, SourceKind, walk_plan
from errata.language.times import row_times
from fixtures.plans.links import call, counted, equal, link, number, on_src, people, query, select
from fixtures.plans.maker import random_case

A, B = link("a"), link("b")
KNOWN = RelationJoin(A, people(SourceKind.NRR), equal(A.ref("a.src"), people(SourceKind.NRR).ref("p.name")))
RETROACTIVE = people(SourceKind.RETROACTIVE)
NEAR = Join(A, B, equal(A.ref("a.t"), B.ref("b.t")))
WINDOWS = counted(A, RowWindow(3, 1), "a.src")
VALUES = Distinct(select(A, "a.src"))
LAST = SlidingRows(A, 3)


def positive(plan: Plan, name: str) -> Filter:
    return Filter(plan, call(">", plan.ref(name), number(0)))


@pytest.mark.parametrize(
    ("plan", "above"),
    [
        pytest.param(WINDOWS, 0, id="a group"),
        pytest.param(select(positive(WINDOWS, "count(*)"), "a.src"), 2, id="with HAVING and SELECT"),
        pytest.param(counted(NEAR, RowWindow(3, 3)), 0, id="over a join"),
        pytest.param(counted(KNOWN, RowWindow(3, 3)), 0, id="over versions of a relation"),
        pytest.param(counted(on_src(A, B), RowWindow(3, 3)), 0, id="over a join without a bound"),
        pytest.param(counted(query(WINDOWS), RowWindow(2, 1)), 0, id="over results that are windows of rows"),
        pytest.param(counted(A, TimeWindow(5, 5)), None, id="not: windows over time"),
        pytest.param(counted(A, None, "a.src"), None, id="not: no windows"),
        pytest.param(Distinct(select(WINDOWS, "count(*)")), None, id="not: distinct above"),
        pytest.param(Join(WINDOWS, B), None, id="not: a join above"),
        pytest.param(counted(LAST, RowWindow(3, 1)), None, id="not: over rows that end"),
        pytest.param(A, None, id="not: a stream"),
    ],
)
def test_windows_of_rows(plan: Plan, above: int | None) -> None:
    found = find_row_windows(plan)
    assert (None if found is None else len(found.above)) == above


@pytest.mark.parametrize(
    ("plan", "above"),
    [
        pytest.param(LAST, 0, id="rows"),
        pytest.param(select(positive(LAST, "a.n"), "a.src"), 2, id="with WHERE and SELECT"),
        pytest.param(positive(counted(LAST, None, "a.src"), "count(*)"), 2, id="a group above"),
        pytest.param(counted(LAST, TimeWindow(5, 5)), 1, id="windows over time above"),
        pytest.param(Distinct(select(Sliding(LAST, 5), "a.src")), 3, id="a window and distinct above"),
        pytest.param(SlidingRows(NEAR, 3), 0, id="over a join within bounds"),
        pytest.param(SlidingRows(KNOWN, 3), 0, id="over versions of a relation"),
        pytest.param(SlidingRows(query(WINDOWS), 3), 0, id="over results of a query"),
        pytest.param(SlidingRows(counted(A, TimeWindow(5, 2)), 3), 0, id="over windows that close"),
        pytest.param(SlidingRows(on_src(A, B), 3), None, id="not: over a join without a bound"),
        pytest.param(SlidingRows(WINDOWS, 3), None, id="not: over windows of rows"),
        pytest.param(SlidingRows(Sliding(A, 5), 3), None, id="not: over rows that end"),
        pytest.param(SlidingRows(LAST, 2), None, id="not: over last rows"),
        pytest.param(Join(LAST, Sliding(B, 5)), None, id="not: something else is read, too"),
        pytest.param(Union((LAST, SlidingRows(A, 2))), None, id="not: twice"),
        pytest.param(counted(LAST, RowWindow(2, 1)), None, id="not: windows of rows above"),
        pytest.param(RelationJoin(LAST, RETROACTIVE), None, id="not: a relation above"),
    ],
)
def test_last_rows(plan: Plan, above: int | None) -> None:
    found = find_last_rows(plan)
    assert (None if found is None else len(found.above)) == above


@pytest.mark.parametrize(
    ("plan", "above"),
    [
        pytest.param(VALUES, 0, id="values"),
        pytest.param(select(positive(Distinct(A), "a.n"), "a.src"), 2, id="with a filter and a projection"),
        pytest.param(Distinct(select(Union((A, B)), "a.src")), 0, id="over a union"),
        pytest.param(Distinct(select(on_src(A, B), "a.src")), 0, id="over a join"),
        pytest.param(Distinct(select(Sliding(A, 5), "a.src")), None, id="not: over rows that end"),
        pytest.param(Distinct(select(Distinct(A), "a.src")), None, id="not: over what only holds"),
        pytest.param(Distinct(Negation(A, B, (("a.src", "b.src"),))), None, id="not: over a negation"),
        pytest.param(counted(VALUES, None), None, id="not: a group above"),
        pytest.param(Intersect(select(A, "a.src"), select(B, "b.src")), None, id="not: an intersection"),
    ],
)
def test_new_values(plan: Plan, above: int | None) -> None:
    found = find_new_values(plan)
    assert (None if found is None else len(found.above)) == above


def test_the_plan_is_what_is_above_the_operator_over_the_operator() -> None:
    plan = select(positive(WINDOWS, "count(*)"), "a.src")
    found = find_row_windows(plan)
    assert found is not None
    assert (found.node, found.input, found.plan) == (WINDOWS, A, plan)
    assert [each.inputs for each in found.above] == [(WINDOWS,), (plan.input,)]
    alone = find_row_windows(WINDOWS)
    assert alone is not None
    assert alone.plan is WINDOWS


@pytest.mark.parametrize(
    ("plan", "local"),
    [
        (A, True),
        (NEAR, True),
        (KNOWN, True),
        (Sliding(A, 5), True),
        (counted(NEAR, TimeWindow(7, 7)), True),
        (on_src(Sliding(A, 5), Sliding(B, 9)), True),
        (on_src(A, B), False),
        (counted(on_src(A, B), TimeWindow(1 << 40, 1 << 40)), False),
        (WINDOWS, False),
        (VALUES, False),
    ],
)
def test_what_needs_a_bounded_stretch_of_its_inputs_only(plan: Plan, local: bool) -> None:
    assert is_local(plan) is local


def test_of_any_plan_at_most_one_operator_goes_on_and_over_rows_that_stay() -> None:
    rng = random.Random(8)
    kinds = set()
    for _ in range(400):
        for node in walk_plan(random_case(rng, depth=1).plan):
            found = [
                each
                for each in (find_row_windows(node), find_last_rows(node), find_new_values(node))
                if each is not None
            ]
            assert len(found) <= 1
            for each in found:
                assert each.plan is node
                assert row_times(each.input).happened
                assert row_times(each.input).for_ever
                kinds.add(type(each.node).__name__)
    assert kinds == {"Group", "SlidingRows", "Distinct"}
