"""The oracle itself, on examples small enough to work out by hand; everything else is compared with it."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from errata.language.expr import BIGINT, BOOLEAN, INT, STRING, Call, Ref
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Group,
    Intersect,
    Join,
    Negation,
    Output,
    Projection,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.plan import Field, Plan, Source, SourceKind, walk_plan
from errata.language.times import row_times
from fixtures.duck import Data, answer_at, answers, same, visible_at
from fixtures.plans.choices import relation
from fixtures.plans.maker import instants, random_case

LINKS = [
    Source(
        name, SourceKind.STREAM, (Field("t", BIGINT), Field("src", STRING), Field("n", INT)), ("t",), "t", timed=False
    )
    for name in ("a", "b")
]
COUNT = Aggregate("count", None, BIGINT)


def rows(*given: tuple[int, str | None] | tuple[int, str | None, int | None]) -> list[dict[str, object]]:
    return [{"t": each[0], "src": each[1], "n": each[2] if len(each) > 2 else 0} for each in given]


def scan(number: int = 0, alias: str | None = None) -> Scan:
    return Scan(LINKS[number], alias or LINKS[number].name)


def only(plan: Plan, *names: str) -> Projection:
    return Projection(plan, tuple(Output(name.replace(".", "_"), plan.ref(name)) for name in names))


def told(plan: Plan, data: Data, *at: int) -> list[list[tuple[object, ...]]]:
    return [sorted(visible_at(plan, data, each), key=repr) for each in at]


def test_a_window_over_time_counts_from_its_row_on_and_no_longer_than_its_span() -> None:
    plan = only(Sliding(scan(), 5), "a.t")
    assert told(plan, {"a": rows((10, "x"))}, 9, 10, 14, 15) == [[], [(10,)], [(10,)], []]


def test_a_window_over_rows_keeps_the_last_by_time_and_key() -> None:
    plan = only(SlidingRows(scan(), 2), "a.t")
    assert told(plan, {"a": rows((1, "x"), (4, "x"), (6, "y"))}, 1, 4, 6, 60) == [
        [(1,)],
        [(1,), (4,)],
        [(4,), (6,)],
        [(4,), (6,)],
    ]


def test_a_join_counts_while_both_sides_do_and_null_is_equal_to_nothing() -> None:
    left, right = Sliding(scan(0), 5), Sliding(scan(1), 3)
    plan = Join(left, right, Call("=", (left.ref("a.src"), right.ref("b.src")), BOOLEAN))
    data = {"a": rows((10, "x"), (11, None)), "b": rows((12, "x"), (12, None))}
    assert [len(answer_at(plan, data, at)) for at in (11, 12, 14, 15)] == [0, 1, 1, 0]


def test_negation_keeps_the_youngest() -> None:
    plan = only(Negation(Sliding(scan(0), 10), Sliding(scan(1), 10), (("a.src", "b.src"),)), "a.t")
    data = {"a": rows((1, "x"), (4, "x"), (6, "x")), "b": rows((5, "x"))}
    assert told(plan, data, 4, 6, 11, 14, 15) == [[(1,), (4,)], [(4,), (6,)], [(6,)], [], [(6,)]]


def test_negation_takes_null_for_a_value() -> None:
    plan = Negation(scan(0), scan(1), (("a.src", "b.src"),))
    assert told(plan, {"a": rows((1, None)), "b": rows((2, None))}, 1, 2) == [[(1, None, 0)], []]


def test_a_group_without_rows_has_no_answer_also_where_there_is_only_one() -> None:
    plan = only(Group(Sliding(scan(), 5), (), (COUNT,)), "count(*)")
    assert told(plan, {"a": rows((10, "x"), (12, "x"))}, 9, 10, 12, 15, 17) == [[], [(1,)], [(2,)], [(1,)], []]


def test_a_window_is_published_at_its_end() -> None:
    plan = only(Group(scan(), (), (COUNT,), TimeWindow(5, 2), timed=False), "window_start", "window_end", "count(*)")
    # 3 lies in the windows [0, 5) and [2, 7), and [-1, 4) is none.
    assert told(plan, {"a": rows((3, "x"))}, 4, 5, 7, 99) == [
        [],
        [(0, 5, 1)],
        [(0, 5, 1), (2, 7, 1)],
        [(0, 5, 1), (2, 7, 1)],
    ]


def test_windows_before_zero_are_windows_like_any_other() -> None:
    plan = only(Group(scan(), (), (COUNT,), TimeWindow(5, 5), timed=False), "window_start", "count(*)")
    assert told(plan, {"a": rows((-1, "x"), (-5, "x"), (-6, "x"))}, 0) == [[(-10, 1), (-5, 2)]]


def test_an_early_window_is_published_from_its_first_row_on() -> None:
    plan = only(Group(scan(), (), (COUNT,), TimeWindow(5, 5, early=True), timed=False), "window_start", "count(*)")
    assert told(plan, {"a": rows((1, "x"), (3, "x"))}, 0, 1, 3, 9) == [[], [(0, 1)], [(0, 2)], [(0, 2)]]


def test_a_window_over_rows_that_expire_loses_them() -> None:
    plan = only(Group(Sliding(scan(), 6), (), (COUNT,), TimeWindow(5, 5), timed=False), "window_start", "count(*)")
    assert told(plan, {"a": rows((1, "x"), (3, "x"))}, 4, 5, 7, 9) == [[], [(0, 2)], [(0, 1)], []]


def test_a_row_window_is_published_when_it_is_full() -> None:
    plan = only(
        Group(
            scan(),
            (Ref("a.src", STRING),),
            (COUNT, Aggregate("max", Ref("a.t", BIGINT), BIGINT)),
            RowWindow(2, 1),
            False,
        ),
        "a.src",
        "window_no",
        "max(a.t)",
    )
    data = {"a": rows((1, "x"), (2, "y"), (3, "x"), (5, "x"))}
    assert told(plan, data, 2, 3, 5) == [[], [("x", 0, 3)], [("x", 0, 3), ("x", 1, 5)]]


def test_first_and_last_are_by_time_and_then_by_key() -> None:
    items = Source("a", SourceKind.STREAM, (*LINKS[0].fields, Field("id", INT)), ("t", "id"), "t", timed=False)
    both = tuple(Aggregate(name, Ref("a.n", INT), INT) for name in ("first", "last"))
    plan = only(Group(Scan(items, "a"), (), both), "first(a.n)", "last(a.n)")
    data = {"a": [{"t": 1, "src": "x", "n": n, "id": number} for number, n in ((2, 20), (1, None), (3, 30))]}
    assert told(plan, data, 1) == [[(None, 30)]]


def test_distinct_and_intersection_take_each_value_once() -> None:
    distinct = Distinct(only(Sliding(scan(0), 5), "a.src"))
    assert told(distinct, {"a": rows((1, "x"), (2, "x"), (3, None), (3, None))}, 3, 6, 7) == [
        sorted([("x",), (None,)], key=repr),
        sorted([("x",), (None,)], key=repr),
        [(None,)],
    ]
    both = Intersect(only(scan(0), "a.src"), only(Sliding(scan(1), 2), "b.src"))
    data = {"a": rows((1, "x"), (2, "x"), (2, None)), "b": rows((3, "x"), (3, None))}
    assert told(both, data, 2, 3, 5) == [[], sorted([("x",), (None,)], key=repr), []]


def test_a_union_has_the_rows_of_all_branches() -> None:
    plan = Union((only(scan(0), "a.src"), only(scan(1), "b.src")))
    assert told(plan, {"a": rows((1, "x")), "b": rows((1, "x"))}, 1) == [[("x",), ("x",)]]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (SourceKind.NRR, [["old"], ["new", "old"], ["new", "old"]]),
        (SourceKind.RETROACTIVE, [["old"], ["new", "new"], []]),
    ],
)
def test_a_row_sees_the_version_of_its_own_time_or_of_now(kind: SourceKind, expected: list[object]) -> None:
    people = Scan(relation("people", False, kind), "p")
    links = scan()
    plan = only(RelationJoin(links, people, Call("=", (links.ref("a.src"), people.ref("p.name")), BOOLEAN)), "p.label")
    versions = [(0, "old", False), (5, "new", None), (9, "new", True)]
    data = {
        "a": rows((1, "x"), (5, "x"), (9, "x")),
        "people": [{"name": "x", "label": label, "since": since, "gone": gone} for since, label, gone in versions],
    }
    assert [sorted(label for (label,) in visible_at(plan, data, at)) for at in (4, 5, 9)] == expected


def test_two_answers_are_compared_as_multisets() -> None:
    assert same([(1, 0.1 + 0.2), (1, float("nan"))], [(1, float("nan")), (1, 0.3)])
    assert not same([(1,), (1,)], [(1,)])
    assert not same([(1,)], [(1,), (2,)])
    assert not same([(1,)], [(True,)])
    assert not same([(Decimal("1.5"),)], [(1.5,)])


def test_random_plans_have_every_operator_and_most_of_them_an_answer() -> None:
    rng = random.Random(1)
    cases = [random_case(rng, data_sets=2) for _ in range(120)]
    found = {type(node) for case in cases for node in walk_plan(case.plan)}
    assert len(found) == 13
    assert {row_times(node).own for case in cases for node in walk_plan(case.plan)} == {"start", "kept", "none"}
    some = sum(bool(answers(case.plan, case.cases, instants(case.plan))) for case in cases[:40])
    assert some >= 20
