"""What the results of queries guarantee as feeds (logical merge, IV-G)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from errata.language.feed_properties import derive_feed_properties
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.plan import Plan, SourceKind
from errata.model.feed import FeedOrder, FeedProperties
from fixtures.plans.links import column, counted, equal, link, number, people, query, select

A, B = link("a"), link("b")
STRICT = FeedProperties(FeedOrder.STRICT, ties_fixed=True, adjusts=False, complete=True)
FIXED = replace(STRICT, order=FeedOrder.ORDERED)
LOOSE = replace(FIXED, ties_fixed=False)
NOTHING = FeedProperties()
WINDOW = TimeWindow(10, 10)


def windowed(plan: Plan, *by: str, early: bool = False) -> Group:
    return counted(plan, replace(WINDOW, early=early), *by)


@pytest.mark.parametrize(
    ("plan", "input_guarantees", "expected"),
    [
        # The paper's list: 1, what an input publishes; 3, an aggregate of windows; 5 and 6, one for each group.
        (A, FIXED, FIXED),
        (windowed(A), LOOSE, replace(STRICT, ties_fixed=False)),
        (windowed(A, "a.src"), STRICT, LOOSE),
        (windowed(A, "a.src"), replace(STRICT, order=FeedOrder.NONE), None),
        (windowed(A), replace(STRICT, adjusts=True), None),
        (windowed(A, early=True), STRICT, None),
        # Row by row.
        (Filter(A, equal(column("a.n"), number(1))), STRICT, STRICT),
        (select(A, "a.n"), FIXED, FIXED),
        (Sliding(A, 20), STRICT, STRICT),
        (query(select(A, "a.n")), FIXED, FIXED),
        # Several rows make one.
        (Join(Sliding(A, 20), Sliding(B, 5)), STRICT, LOOSE),
        (Intersect(select(A, "a.n"), select(B, "b.n")), STRICT, LOOSE),
        (Distinct(select(A, "a.n")), STRICT, STRICT),
    ],
)
def test_properties_follow_from_plan_and_inputs(
    plan: Plan, input_guarantees: FeedProperties, expected: FeedProperties | None
) -> None:
    found = derive_feed_properties(plan, {"a": input_guarantees, "b": STRICT})
    if expected is None:
        assert found.adjusts or found.order is FeedOrder.NONE
    else:
        assert found == expected


@pytest.mark.parametrize(
    "plan",
    [
        counted(A, None, "a.src"),
        counted(A, RowWindow(3, 1), "a.src"),
        SlidingRows(A, 3),
        Distinct(select(Sliding(A, 20), "a.n")),
        Negation(Sliding(A, 20), Sliding(B, 5), (("a.n", "b.n"),)),
        RelationJoin(A, people(SourceKind.RETROACTIVE)),
        RelationJoin(A, people(SourceKind.NRR)),
        people(SourceKind.RETROACTIVE),
    ],
)
def test_results_whose_ends_are_not_known_beforehand_are_adjusted(plan: Plan) -> None:
    assert derive_feed_properties(plan, {"a": STRICT, "b": STRICT}).adjusts


def test_branches_of_a_union_are_ordered_each_by_itself() -> None:
    union = Union((select(A, "a.n"), select(B, "b.n")))
    assert derive_feed_properties(union, {"a": STRICT, "b": STRICT}) == replace(LOOSE, order=FeedOrder.NONE)


def test_of_several_inputs_the_least_counts() -> None:
    join = Join(A, B)
    assert derive_feed_properties(join, {"a": STRICT, "b": replace(FIXED, complete=False)}) == replace(
        LOOSE, complete=False
    )


@pytest.mark.parametrize(
    "plan", [A, windowed(A), Join(A, B), Distinct(A), SlidingRows(A, 3), counted(A, None, "a.src")]
)
def test_of_streams_that_guarantee_nothing_nothing_follows(plan: Plan) -> None:
    assert derive_feed_properties(plan, {}) == NOTHING


def test_a_scan_of_a_stream_guarantees_what_the_stream_does() -> None:
    assert isinstance(A, Scan)
    assert derive_feed_properties(A, {"b": STRICT}) == NOTHING
