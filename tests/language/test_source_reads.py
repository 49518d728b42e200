"""From when on answers over aged streams are whole, and what ageing has to leave for those that go on."""

from __future__ import annotations

import pytest

from errata.language.nodes import Distinct, Negation, RowWindow, Sliding, SlidingRows, TimeWindow, Union
from errata.language.plan import Plan
from errata.language.route import RouteKind, choose_route
from errata.language.source_reads import (
    first_whole_instant,
    first_whole_result,
    oldest_places_read,
    source_extents,
    sources_only_in_state,
)
from errata.model.extent import ExtentAxis
from errata.model.time import LOWEST, Interval
from fixtures.plans.links import counted, link, on_src, query, select

A, B = link("a"), link("b")
RECENT = Sliding(A, 20)
MINUTE = TimeWindow(10, 10)
PASSED = counted(A, MINUTE, "a.src")
"""Windows that are told once, when they close, and stay."""


@pytest.mark.parametrize(
    ("plan", "first", "results"),
    [
        (select(A, "a.src"), 105, 105),
        (select(RECENT, "a.src"), 105 + 19, LOWEST),
        (counted(RECENT, None, "a.src"), 105 + 19, LOWEST),
        # The first window without a row that is gone is [110, 120): only its end is later than 110.
        (PASSED, 111, 111),
        (counted(A, None, "a.src"), 105, 105),
        (Distinct(select(A, "a.src")), 105, 105),
        (SlidingRows(A, 3), 105, 105),
        (on_src(A, B), 105, 105),
    ],
)
def test_the_first_instant_whose_answer_is_whole(plan: Plan, first: int, results: int) -> None:
    aged = {"a": 105, "b": None}
    assert (first_whole_instant(plan, aged), first_whole_result(plan, aged)) == (first, results)


def test_where_nothing_is_gone_everything_is_whole() -> None:
    for aged in ({}, {"a": None}, {"b": 7}, {"a": LOWEST}):
        assert first_whole_instant(counted(RECENT), aged) == LOWEST
        assert first_whole_result(PASSED, aged) == LOWEST


def test_of_several_sources_the_last_decides() -> None:
    plan = on_src(RECENT, Sliding(B, 5))
    assert first_whole_instant(plan, {"a": 105, "b": None}) == 124
    assert first_whole_instant(plan, {"a": 105, "b": 120}) == 124
    assert first_whole_instant(plan, {"a": 105, "b": 121}) == 125


def test_results_of_a_query_are_whole_from_where_it_says() -> None:
    read = query(counted(RECENT, None, "a.src"))
    assert first_whole_instant(select(read, "q.a.src"), {"query": 124}) == 124


@pytest.mark.parametrize(
    "plan",
    [counted(RECENT), on_src(RECENT, Sliding(B, 5)), Union((select(RECENT, "a.n"), select(Sliding(A, 7), "a.n")))],
)
def test_it_is_the_least_instant_that_needs_nothing_of_before(plan: Plan) -> None:
    first = first_whole_instant(plan, {"a": 105})

    def needs_what_is_gone(instant: int) -> bool:
        return source_extents(plan, ExtentAxis.INSTANT, Interval(instant, instant + 1))["a"].interval.start < 105

    assert needs_what_is_gone(first - 1)
    assert not any(needs_what_is_gone(instant) for instant in range(first, first + 50))


@pytest.mark.parametrize(
    ("plan", "kind", "held"),
    [
        (select(A, "a.src"), RouteKind.APPENDED, {"a": 500}),
        (PASSED, RouteKind.GROUPED, {"a": 500}),
        (counted(A, None, "a.src"), RouteKind.GROUPED, {"a": 500}),
        (counted(RECENT, None, "a.src"), RouteKind.GROUPED, {"a": 480}),
        (counted(A, RowWindow(3, 3), "a.src"), RouteKind.ROW_WINDOWS, {"a": 500}),
        (on_src(RECENT, Sliding(B, 5)), RouteKind.APPENDED, {"a": 481, "b": 496}),
        (
            Negation(select(RECENT, "a.src"), select(Sliding(B, 5), "b.src"), (("src", "src"),)),
            RouteKind.RECOMPUTED,
            {"a": 481, "b": 496},
        ),
        (
            Negation(select(A, "a.src"), select(B, "b.src"), (("src", "src"),)),
            RouteKind.RECOMPUTED,
            {"a": LOWEST, "b": LOWEST},
        ),
    ],
)
def test_what_the_next_evaluation_reads_is_held(plan: Plan, kind: RouteKind, held: dict[str, int]) -> None:
    found = choose_route(plan)
    assert found.kind is kind
    assert oldest_places_read(plan, found, 500) == held


def test_what_only_the_state_knows() -> None:
    for_ever, recent = counted(A, None, "a.src"), counted(RECENT, None, "a.src")
    assert sources_only_in_state(for_ever, choose_route(for_ever), 500, {"a": 105}) == ["a"]
    assert sources_only_in_state(for_ever, choose_route(for_ever), 500, {"a": None}) == []
    assert sources_only_in_state(recent, choose_route(recent), 500, {"a": 480}) == []
    assert sources_only_in_state(recent, choose_route(recent), 500, {"a": 481}) == ["a"]
    plain = select(A, "a.src")
    assert sources_only_in_state(plain, choose_route(plain), 500, {"a": 105}) == []
