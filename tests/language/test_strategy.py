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
from errata.language.patterns import pattern
from errata.language.plan import Plan, SourceKind, walk
from errata.language.strategy import (
    APPENDED,
    BY_GROUP,
    FIFO,
    HASHED,
    NOTHING,
    PARTITIONED,
    SCANNED,
    choose,
    result,
    store,
)
from errata.model.pattern import Pattern
from fixtures.links import column, counted, equal, link, number, on_src, people, select
from fixtures.plans import random_case

A, B = link("a"), link("b")
WIDE, NARROW = Sliding(A, 20), Sliding(B, 5)
PAIRS = on_src(WIDE, NARROW)
WITHOUT = Negation(WIDE, NARROW, (("a.src", "b.src"),))
HELD = counted(WIDE, None, "a.src")


@pytest.mark.parametrize(
    ("plan", "operator", "state"),
    [
        (A, "scan of a stream", NOTHING),
        (WIDE, "ω window over time", NOTHING),
        (SlidingRows(A, 3), "ω window over rows", f"{FIFO} of 3 rows"),
        (Filter(A, equal(column("a.n"), number(1))), "σ selection", NOTHING),
        (select(A, "a.n"), "π projection", NOTHING),
        (Union((A, B)), "∪ merge union", NOTHING),
        (PAIRS, "⋈ join", f"both sides: {FIFO}"),
        (Join(PAIRS, link("c")), "⋈ join", f"left: {PARTITIONED}; right: {APPENDED}"),
        (Join(HELD, B), "⋈ join", f"left: {BY_GROUP}; right: {APPENDED}"),
        (Intersect(select(WIDE, "a.n"), select(NARROW, "b.n")), "∩ intersection", f"both sides: {FIFO}"),
        (
            Distinct(select(WIDE, "a.src")),
            "δ* duplicate elimination",
            f"output: {PARTITIONED}; auxiliary: the youngest row of each value",
        ),
        (Distinct(select(A, "a.src")), "δ* duplicate elimination", f"output: {APPENDED}"),
        (
            Distinct(select(WITHOUT, "a.src")),
            "δ duplicate elimination",
            f"input: {SCANNED}; output: hash table by value",
        ),
        (
            Distinct(select(HELD, "a.src")),
            "δ duplicate elimination",
            f"input: {BY_GROUP}; output: hash table by value",
        ),
        (WITHOUT, "− negation", f"both sides: {FIFO}; counters of rows for each value"),
        (HELD, "γ group-by", f"input: {FIFO}; aggregates: {BY_GROUP}"),
        (counted(A, None, "a.src"), "γ group-by", f"aggregates: {BY_GROUP}"),
        (
            counted(A, TimeWindow(5, 5), "a.src"),
            "γ group-by over time windows",
            f"aggregates: {BY_GROUP} and window",
        ),
        (
            counted(WIDE, TimeWindow(5, 5), "a.src"),
            "γ group-by over time windows",
            f"input: {FIFO}; aggregates: {BY_GROUP}",
        ),
        (
            counted(A, RowWindow(3, 1)),
            "γ group-by over row windows",
            f"aggregates: {BY_GROUP}; the last 3 rows of each group",
        ),
        (
            RelationJoin(WIDE, people(SourceKind.RETROACTIVE)),
            "⋈ᴿ join with a relation",
            f"left: {FIFO}; right: the relation itself",
        ),
        (RelationJoin(WIDE, people(SourceKind.NRR)), "⋈ᴺᴿᴿ join with a non-retroactive relation", NOTHING),
    ],
)
def test_the_operator_and_the_state_of(plan: Plan, operator: str, state: str) -> None:
    choice = choose(plan)
    assert (choice.operator, choice.state) == (operator, state)
    assert choice.why


def test_what_is_strict_is_kept_by_value_where_most_of_it_ends_before_its_time() -> None:
    assert choose(Join(WITHOUT, link("c")), premature_often=True).state == f"left: {HASHED}; right: {APPENDED}"
    assert choose(Join(WITHOUT, link("c"))).state == f"left: {SCANNED}; right: {APPENDED}"
    assert choose(PAIRS, premature_often=True) == choose(PAIRS)


def test_the_answer_is_kept_by_its_own_pattern() -> None:
    assert [result(each).state for each in (A, WIDE, PAIRS, HELD, WITHOUT)] == [
        APPENDED,
        FIFO,
        PARTITIONED,
        BY_GROUP,
        SCANNED,
    ]
    assert result(WITHOUT, premature_often=True).state == HASHED


def test_every_pattern_has_a_store_with_a_reason() -> None:
    assert len({store(each) for each in Pattern}) == len(Pattern)
    assert all(all(store(each)) for each in Pattern)


def test_every_operator_of_random_plans_has_a_choice_and_duplicates_go_the_cheap_way_where_they_can() -> None:
    rng = random.Random(3)
    signs = set()
    for _ in range(150):
        for node in walk(random_case(rng).plan):
            choice = choose(node)
            signs.add(choice.operator)
            if isinstance(node, Distinct):
                starred = choice.operator.startswith("δ*")
                assert starred == (pattern(node.input) in (Pattern.MONOTONIC, Pattern.WEAKEST, Pattern.WEAK))
    assert len(signs) >= 15
