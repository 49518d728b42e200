"""Lineage in words."""

from __future__ import annotations

import pytest

from errata.language.expr import BOOLEAN, Call, Lit
from errata.language.lineage import lineage_sentences
from errata.language.nodes import (
    Filter,
    Group,
    Join,
    Negation,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
)
from errata.language.plan import Plan, SourceKind
from errata.model.time import MINUTE, SECOND
from fixtures.plans.choices import relation, stream
from fixtures.plans.links import COUNT, call, column, counted, equal, link, number, on_src, query, select, text

A, B = link("a"), link("b")
WIDE, NARROW = Sliding(A, 2000), Sliding(B, 500)


def parts(plan: Plan, place: int = 0) -> list[str]:
    return lineage_sentences(plan)[place].split("; ")


def test_a_sliding_join_in_words_with_durations() -> None:
    left, right = Scan(stream("link1", True), "a"), Scan(stream("link2", True), "b")
    plan = select(on_src(Sliding(left, 2000 * SECOND), Sliding(right, 500 * SECOND)), "a.src", "b.price")
    assert lineage_sentences(plan) == [
        "link1 (a): an output at t is made from link1 rows in the 2000 seconds up to t with the same src; "
        "a change at s touches outputs in [s, s + 2000 seconds); "
        "to replay it takes link2 rows in (s - 500 seconds, s + 2000 seconds) with the same src",
        "link2 (b): an output at t is made from link2 rows in the 500 seconds up to t "
        "with the same src and price; "
        "a change at s touches outputs in [s, s + 500 seconds); "
        "to replay it takes link1 rows in (s - 2000 seconds, s + 500 seconds) with the same src",
    ]


def test_windows_that_close() -> None:
    plan = Scan(stream("link1", True), "a")
    grouped = select(Group(plan, (plan.ref("a.src"),), (COUNT,), TimeWindow(5 * MINUTE, MINUTE)), "a.src")
    assert parts(grouped) == [
        "link1 (a): an output at t is made from link1 rows in the 5 minutes before t with the same src",
        "a change at s touches outputs in (s, s + 5 minutes]",
        "to replay it takes link1 rows in (s - 5 minutes, s + 5 minutes) with the same src",
    ]


@pytest.mark.parametrize(
    ("plan", "place", "expected"),
    [
        (
            select(A, "a.n"),
            0,
            ["a (a): an output at t is made from a rows at t with the same n", "a change at s touches outputs at s"],
        ),
        (
            select(Filter(A, equal(column("a.src"), text("it's"))), "a.n"),
            0,
            [
                "a (a): an output at t is made from a rows at t with the same n and whose src is 'it\\'s'",
                "a change at s touches outputs at s",
            ],
        ),
        (
            select(Filter(A, Call("is_null", (column("a.src"),), BOOLEAN)), "a.n"),
            0,
            [
                "a (a): an output at t is made from a rows at t with the same n and whose src is NULL",
                "a change at s touches outputs at s",
            ],
        ),
        (
            select(Negation(WIDE, NARROW, (("a.src", "b.src"),)), "a.src", "a.n"),
            1,
            [
                "b (b): the answer at t is made from b rows in the 500 up to t with the same src",
                "a change at s touches answers in [s, s + 500)",
                "to replay it takes a rows in (s - 2000, s + 500) with the same src "
                "and b rows in (s - 500, s + 500) with the same src",
            ],
        ),
        (
            select(Join(A, B, call("<=", call("+", column("a.t"), number(30)), column("b.t"))), "a.n", "b.id"),
            1,
            [
                "b (b): an output at t is made from b rows at t with the same id",
                "a change at s touches outputs at s",
                "to replay it takes a rows in (any time, s - 30]",
            ],
        ),
        (
            select(counted(A, RowWindow(10, 1), "a.src"), "a.src"),
            0,
            [
                "a (a): an output at t is made from a rows of any time up to t with the same src",
                "a change at s touches outputs from s on",
                "to replay it takes a rows of any time with the same src",
                "there is no bound on how old these rows can be: "
                "which rows make a window of 10 rows depends on all that came before",
                "stored lineage tells it for each output",
            ],
        ),
        (
            select(counted(SlidingRows(A, 1), None), "count(*)"),
            0,
            [
                "a (a): the answer at t is made from a rows of any time up to t",
                "a change at s touches answers from s on",
                "to replay it takes a rows of any time",
                "there is no bound on how old these rows can be: "
                "how far back a window of 1 row reaches depends on the data",
                "stored lineage tells it for each output",
            ],
        ),
        (
            select(counted(A, None), "count(*)"),
            0,
            [
                "a (a): the answer at t is made from a rows of any time up to t",
                "a change at s touches answers from s on",
                "to replay it takes a rows of any time",
                "there is no bound on how old these rows can be: rows that never expire stay in their group",
            ],
        ),
        (
            select(query(select(counted(WIDE, None, "a.src"), "a.src")), "q.src"),
            0,
            [
                "query (q): the answer at t is made from query results that hold at t with the same src",
                "a change at s touches answers at s",
            ],
        ),
    ],
)
def test_in_words(plan: Plan, place: int, expected: list[str]) -> None:
    assert parts(plan, place) == expected


def test_relations_are_spoken_of_as_versions() -> None:
    people = Scan(relation("people", False, SourceKind.RETROACTIVE), "p")
    plan = select(RelationJoin(WIDE, people, equal(column("a.src"), people.ref("p.name"))), "a.src", "p.label")
    assert parts(plan)[2] == "to replay it takes versions of people valid in [s, s + 2000) whose name is its src"
    assert parts(plan, 1) == [
        "people (p): the answer at t is made from versions of people valid at t whose name is its src",
        "a change of what is valid at s touches answers at s",
        "to replay it takes a rows in (s - 2000, s] whose src is its name",
    ]


def test_a_change_that_a_constant_rules_out_is_not_spoken_of() -> None:
    plan = select(Filter(A, equal(Lit(1, number(1).type), Lit(1, number(1).type))), "a.n")
    assert len(parts(plan)) == 2
