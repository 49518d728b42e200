"""From when on answers over aged streams are whole, and what ageing has to leave for those that go on."""

from __future__ import annotations

import pytest

from errata.evaluate.ageing import first_whole, held_from, lost_with, results_from
from errata.evaluate.reads import reaches
from errata.evaluate.route import Kind, route
from errata.language.lineage import Axis
from errata.language.nodes import Distinct, Negation, RowWindow, Sliding, SlidingRows, TimeWindow, Union
from errata.language.plan import Plan
from errata.model.interval import LOWEST, Interval
from fixtures.links import counted, link, on_src, query, select

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
    assert (first_whole(plan, aged), results_from(plan, aged)) == (first, results)


def test_where_nothing_is_gone_everything_is_whole() -> None:
    for aged in ({}, {"a": None}, {"b": 7}, {"a": LOWEST}):
        assert first_whole(counted(RECENT), aged) == LOWEST
        assert results_from(PASSED, aged) == LOWEST


def test_of_several_sources_the_last_decides() -> None:
    plan = on_src(RECENT, Sliding(B, 5))
    assert first_whole(plan, {"a": 105, "b": None}) == 124
    assert first_whole(plan, {"a": 105, "b": 120}) == 124
    assert first_whole(plan, {"a": 105, "b": 121}) == 125


def test_results_of_a_query_are_whole_from_where_it_says() -> None:
    read = query(counted(RECENT, None, "a.src"))
    assert first_whole(select(read, "q.a.src"), {"query": 124}) == 124


@pytest.mark.parametrize(
    "plan",
    [counted(RECENT), on_src(RECENT, Sliding(B, 5)), Union((select(RECENT, "a.n"), select(Sliding(A, 7), "a.n")))],
)
def test_it_is_the_least_instant_that_needs_nothing_of_before(plan: Plan) -> None:
    first = first_whole(plan, {"a": 105})

    def needs_what_is_gone(instant: int) -> bool:
        return reaches(plan, Axis.INSTANT, Interval(instant, instant + 1))["a"].interval.start < 105

    assert needs_what_is_gone(first - 1)
    assert not any(needs_what_is_gone(instant) for instant in range(first, first + 50))


@pytest.mark.parametrize(
    ("plan", "kind", "held"),
    [
        (select(A, "a.src"), Kind.APPENDED, {"a": 500}),
        (PASSED, Kind.GROUPED, {"a": 500}),
        (counted(A, None, "a.src"), Kind.GROUPED, {"a": 500}),
        (counted(RECENT, None, "a.src"), Kind.GROUPED, {"a": 480}),
        (counted(A, RowWindow(3, 3), "a.src"), Kind.ROW_WINDOWS, {"a": 500}),
        (on_src(RECENT, Sliding(B, 5)), Kind.APPENDED, {"a": 481, "b": 496}),
        (
            Negation(select(RECENT, "a.src"), select(Sliding(B, 5), "b.src"), (("src", "src"),)),
            Kind.RECOMPUTED,
            {"a": 481, "b": 496},
        ),
        (
            Negation(select(A, "a.src"), select(B, "b.src"), (("src", "src"),)),
            Kind.RECOMPUTED,
            {"a": LOWEST, "b": LOWEST},
        ),
    ],
)
def test_what_the_next_evaluation_reads_is_held(plan: Plan, kind: Kind, held: dict[str, int]) -> None:
    found = route(plan)
    assert found.kind is kind
    assert held_from(plan, found, 500) == held


def test_what_only_the_state_knows() -> None:
    for_ever, recent = counted(A, None, "a.src"), counted(RECENT, None, "a.src")
    assert lost_with(for_ever, route(for_ever), 500, {"a": 105}) == ["a"]
    assert lost_with(for_ever, route(for_ever), 500, {"a": None}) == []
    assert lost_with(recent, route(recent), 500, {"a": 480}) == []
    assert lost_with(recent, route(recent), 500, {"a": 481}) == ["a"]
    plain = select(A, "a.src")
    assert lost_with(plain, route(plain), 500, {"a": 105}) == []
