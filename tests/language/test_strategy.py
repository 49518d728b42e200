"""Operators and state by update pattern, as section 5.3 of the paper has them."""

from __future__ import annotations

import random

import pytest

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
from errata.language.patterns import (
    APPEND_ONLY_LIST,
    BY_GROUP,
    FIFO_LIST,
    HASH_TABLE,
    NO_STATE,
    PARTITIONED_BY_EXPIRY,
    SCANNED_PARTITIONS,
    choose_operator,
    result_choice,
    state_store,
    update_pattern,
)
from errata.language.plan import Plan, SourceKind, walk_plan
from errata.model.results import UpdatePattern
from fixtures.plans.links import column, counted, equal, link, number, on_src, people, select
from fixtures.plans.maker import random_case

A, B = link("a"), link("b")
WIDE, NARROW = Sliding(A, 20), Sliding(B, 5)
PAIRS = on_src(WIDE, NARROW)
WITHOUT = Negation(WIDE, NARROW, (("a.src", "b.src"),))
HELD = counted(WIDE, None, "a.src")


@pytest.mark.parametrize(
    ("plan", "operator", "state"),
    [
        (A, "scan of a stream", NO_STATE),
        (WIDE, "ω window over time", NO_STATE),
        (SlidingRows(A, 3), "ω window over rows", f"{FIFO_LIST} of 3 rows"),
        (Filter(A, equal(column("a.n"), number(1))), "σ selection", NO_STATE),
        (select(A, "a.n"), "π projection", NO_STATE),
        (Union((A, B)), "∪ merge union", NO_STATE),
        (PAIRS, "⋈ join", f"both sides: {FIFO_LIST}"),
        (Join(PAIRS, link("c")), "⋈ join", f"left: {PARTITIONED_BY_EXPIRY}; right: {APPEND_ONLY_LIST}"),
        (Join(HELD, B), "⋈ join", f"left: {BY_GROUP}; right: {APPEND_ONLY_LIST}"),
        (Intersect(select(WIDE, "a.n"), select(NARROW, "b.n")), "∩ intersection", f"both sides: {FIFO_LIST}"),
        (
            Distinct(select(WIDE, "a.src")),
            "δ* duplicate elimination",
            f"output: {PARTITIONED_BY_EXPIRY}; auxiliary: the youngest row of each value",
        ),
        (Distinct(select(A, "a.src")), "δ* duplicate elimination", f"output: {APPEND_ONLY_LIST}"),
        (
            Distinct(select(WITHOUT, "a.src")),
            "δ duplicate elimination",
            f"input: {SCANNED_PARTITIONS}; output: hash table by value",
        ),
        (
            Distinct(select(HELD, "a.src")),
            "δ duplicate elimination",
            f"input: {BY_GROUP}; output: hash table by value",
        ),
        (WITHOUT, "− negation", f"both sides: {FIFO_LIST}; counters of rows for each value"),
        (HELD, "γ group-by", f"input: {FIFO_LIST}; aggregates: {BY_GROUP}"),
        (counted(A, None, "a.src"), "γ group-by", f"aggregates: {BY_GROUP}"),
        (
            counted(A, TimeWindow(5, 5), "a.src"),
            "γ group-by over time windows",
            f"aggregates: {BY_GROUP} and window",
        ),
        (
            counted(WIDE, TimeWindow(5, 5), "a.src"),
            "γ group-by over time windows",
            f"input: {FIFO_LIST}; aggregates: {BY_GROUP}",
        ),
        (
            counted(A, RowWindow(3, 1)),
            "γ group-by over row windows",
            f"aggregates: {BY_GROUP}; the last 3 rows of each group",
        ),
        (
            RelationJoin(WIDE, people(SourceKind.RETROACTIVE)),
            "⋈ᴿ join with a relation",
            f"left: {FIFO_LIST}; right: the relation itself",
        ),
        (RelationJoin(WIDE, people(SourceKind.NRR)), "⋈ᴺᴿᴿ join with a non-retroactive relation", NO_STATE),
    ],
)
def test_the_operator_and_the_state_of(plan: Plan, operator: str, state: str) -> None:
    choice = choose_operator(plan)
    assert (choice.operator, choice.state) == (operator, state)
    assert choice.why


def test_what_is_strict_is_kept_by_value_where_most_of_it_ends_before_its_time() -> None:
    assert (
        choose_operator(Join(WITHOUT, link("c")), premature_often=True).state
        == f"left: {HASH_TABLE}; right: {APPEND_ONLY_LIST}"
    )
    assert choose_operator(Join(WITHOUT, link("c"))).state == f"left: {SCANNED_PARTITIONS}; right: {APPEND_ONLY_LIST}"
    assert choose_operator(PAIRS, premature_often=True) == choose_operator(PAIRS)


def test_the_answer_is_kept_by_its_own_pattern() -> None:
    assert [result_choice(each).state for each in (A, WIDE, PAIRS, HELD, WITHOUT)] == [
        APPEND_ONLY_LIST,
        FIFO_LIST,
        PARTITIONED_BY_EXPIRY,
        BY_GROUP,
        SCANNED_PARTITIONS,
    ]
    assert result_choice(WITHOUT, premature_often=True).state == HASH_TABLE


def test_every_pattern_has_a_store_with_a_reason() -> None:
    assert len({state_store(each) for each in UpdatePattern}) == len(UpdatePattern)
    assert all(all(state_store(each)) for each in UpdatePattern)


def test_every_operator_of_random_plans_has_a_choice_and_duplicates_go_the_cheap_way_where_they_can() -> None:
    rng = random.Random(3)
    signs = set()
    for _ in range(150):
        for node in walk_plan(random_case(rng).plan):
            choice = choose_operator(node)
            signs.add(choice.operator)
            if isinstance(node, Distinct):
                starred = choice.operator.startswith("δ*")
                assert starred == (
                    update_pattern(node.input) in (UpdatePattern.MONOTONIC, UpdatePattern.WEAKEST, UpdatePattern.WEAK)
                )
    assert len(signs) >= 15
