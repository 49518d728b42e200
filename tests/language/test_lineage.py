"""Lineage on examples worked out by hand: every operator."""

from __future__ import annotations

from dataclasses import replace

from errata.language.expr import AND, BIGINT, BOOLEAN, Call, Expr, Lit
from errata.language.lineage import InputChange, forward, replay_scope, should_store_lineage, unbounded_inputs
from errata.language.nodes import (
    WINDOW_END,
    WINDOW_START,
    Distinct,
    Filter,
    Intersect,
    Join,
    Negation,
    Output,
    Projection,
    RelationJoin,
    RowWindow,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.plan import Plan, SourceKind
from errata.model.extent import Extent, ExtentAxis, rows_starting_in
from errata.model.time import HIGHEST, LOWEST, Interval
from fixtures.plans.links import call, column, counted, equal, link, number, on_src, people, select, text
from fixtures.regions import AT, change, instant, reads, start

A, B = link("a"), link("b")
WIDE, NARROW = Sliding(A, 20), Sliding(B, 5)


def both(*parts: Expr) -> Call:
    return Call(AND, parts, BOOLEAN)


def near(low: int, high: int) -> Join:
    """Pairs of rows of which b's comes from low to high after a's."""
    at, other = column("a.t"), column("b.t")
    least = call(">=", other, call("+", at, number(low)))
    return Join(A, B, both(least, call("<=", other, call("+", at, number(high)))))


# row by row


def test_a_row_of_a_stream_is_its_own_lineage() -> None:
    assert forward(A, change(a__src="x")) == start(100, 101, a__src="x")
    assert reads(A, start(100, 105, a__src="x")) == {0: start(100, 105, a__src="x")}


def test_a_window_changes_no_beginning() -> None:
    assert forward(WIDE, change()) == start(100, 101)
    # Rows that count at instants from 100 to 104 began after 80.
    assert reads(WIDE, instant(100, 105)) == {0: start(81, 105)}


def test_a_selection_adds_what_it_asks_for_and_lets_nothing_else_through() -> None:
    plan = Filter(A, both(equal(column("a.src"), text("x")), equal(column("a.n"), column("a.id"))))
    assert forward(plan, change(a__id=7)) == start(100, 101, a__src="x", a__id=7, a__n=7)
    assert forward(plan, change(a__src="y")) is None
    assert forward(plan, change(a__src=None)) is None
    assert forward(plan, change(a__id=7, a__n=8)) is None
    assert reads(plan, start(100, 101)) == {0: start(100, 101, a__src="x")}
    assert reads(plan, start(100, 101, a__src="y")) == {}


def test_null_is_a_value_where_the_condition_says_so() -> None:
    missing = Filter(A, Call("is_null", (column("a.src"),), BOOLEAN))
    same = Filter(A, call("<=>", column("a.n"), column("a.id")))
    assert reads(missing, start(0, 9)) == {0: start(0, 9, a__src=None)}
    assert forward(missing, change(a__src="x")) is None
    assert forward(same, change(a__n=None)) == start(100, 101, a__n=None, a__id=None)
    assert forward(Filter(A, equal(column("a.n"), Lit(None, BIGINT))), change()) is None


def test_a_condition_that_may_be_false_tells_nothing() -> None:
    either = Filter(A, Call("or", (equal(column("a.src"), text("x")), equal(column("a.n"), number(1))), BOOLEAN))
    assert reads(either, start(0, 9)) == {0: start(0, 9)}
    assert forward(either, change(a__src="y")) == start(100, 101, a__src="y")


def test_a_projection_renames_carries_keys_and_knows_its_constants() -> None:
    outputs = (
        Output("of", column("a.src")),
        Output("kind", text("link")),
        Output("next", call("+", column("a.n"), number(1))),
    )
    plan = Projection(A, outputs)
    assert forward(plan, change(a__src="x", a__id=7, a__n=1)) == start(100, 101, of="x", kind="link", a__id=7)
    assert reads(plan, start(0, 9, of="x", next=2, a__id=7)) == {0: start(0, 9, a__src="x", a__id=7)}
    assert reads(plan, start(0, 9, kind="other")) == {}
    twice = Projection(A, (Output("one", column("a.src")), Output("two", column("a.src"))))
    assert reads(twice, start(0, 9, one="x", two="y")) == {}


def test_a_constant_event_time_narrows_the_interval() -> None:
    assert reads(A, start(0, 500, a__t=100)) == {0: start(100, 101, a__t=100)}
    assert reads(WIDE, start(0, 90, a__t=100)) == {}
    late = Projection(A, (Output("due", call("+", column("a.t"), number(30))),))
    assert reads(late, start(0, 500, due=130)) == {0: start(100, 101)}


def test_a_union_knows_its_branches() -> None:
    plan = Union((select(A, "a.src", "a.n"), select(B, "b.src", "b.n")))
    assert plan.key_positions is None
    from_b = forward(plan, change(1, b__src="x", b__id=7))
    assert from_b == Extent(ExtentAxis.START, AT, {"src": "x", "_branch": 1, "_branch_1.b.id": 7})
    assert from_b is not None
    assert reads(plan, from_b) == {1: start(100, 101, b__src="x", b__id=7)}
    assert reads(plan, start(0, 9, src="x")) == {0: start(0, 9, a__src="x"), 1: start(0, 9, b__src="x")}
    assert reads(plan, start(0, 9, **{"_branch_0.a.id": 7})) == {0: start(0, 9, a__id=7)}


# joins


def test_sliding_joins_meet_in_the_formula_of_the_model() -> None:
    # A revision at a.vs touches b in (a.vs - T2, a.vs + T1).
    plan = on_src(WIDE, NARROW)
    assert forward(plan, change()) == start(100, 120)
    assert forward(plan, change(1)) == start(100, 105)
    assert reads(plan, start(100, 101)) == {0: start(81, 101), 1: start(96, 101)}
    found = replay_scope(plan, change(a__id=7))
    assert found is not None
    assert found.reads == {0: start(100, 101, a__id=7), 1: start(96, 120)}
    assert found.whole
    other = replay_scope(plan, change(1, b__id=7))
    assert other is not None
    assert other.reads == {0: start(81, 105), 1: start(100, 101, b__id=7)}


def test_a_replay_of_a_whole_region_needs_the_neighbours_of_the_changed_row() -> None:
    found = replay_scope(on_src(WIDE, NARROW), change(), whole=True)
    assert found is not None
    assert found.touched == start(100, 120)
    assert found.reads == {0: start(81, 120), 1: start(96, 120)}
    assert found.whole


def test_equal_columns_of_a_join_share_their_constants_also_when_select_drops_them() -> None:
    plan = select(Filter(on_src(WIDE, NARROW), call(">", column("b.n"), number(3))), "b.n")
    found = replay_scope(plan, change(a__src="x", a__id=7))
    assert found is not None
    assert found.touched == start(100, 120, a__id=7)
    assert found.reads == {0: start(100, 101, a__src="x", a__id=7), 1: start(96, 120, b__src="x")}
    assert found.whole
    without_key = replay_scope(plan, change(a__src="x"))
    assert without_key is not None
    assert without_key.reads == {0: start(100, 101, a__src="x"), 1: start(96, 120, b__src="x")}
    assert not without_key.whole
    assert forward(plan, change(a__src=None)) is None


def test_conditions_on_time_bound_how_far_apart_a_pair_is() -> None:
    pairs = near(0, 30)
    assert forward(pairs, change()) == start(100, 131)
    assert forward(pairs, change(1)) == start(100, 101)
    assert reads(pairs, start(100, 101)) == {0: start(70, 101), 1: start(100, 101)}
    together = Join(A, B, equal(column("a.t"), column("b.t")))
    assert reads(together, start(100, 101)) == {0: start(100, 101), 1: start(100, 101)}
    strictly = Join(
        A,
        B,
        both(call("<", column("a.t"), column("b.t")), call(">", call("+", column("a.t"), number(9)), column("b.t"))),
    )
    assert forward(strictly, change()) == start(101, 109)
    assert not unbounded_inputs(pairs)


def test_conditions_on_time_and_windows_together() -> None:
    # At most 5 apart by the windows, 3 at least by the condition, and b after a.
    plan = Join(Sliding(A, 5), Sliding(B, 50), call("<=", call("+", column("a.t"), number(3)), column("b.t")))
    assert forward(plan, change()) == start(103, 105)
    never = Join(Sliding(A, 3), Sliding(B, 50), call("<=", call("+", column("a.t"), number(3)), column("b.t")))
    assert forward(never, change()) is None
    assert reads(never, start(0, 9)) == {}


def test_bounds_hold_over_several_joins() -> None:
    pairs, c = near(0, 30), link("c")
    plan = Join(
        pairs,
        c,
        both(call(">=", column("c.t"), column("a.t")), call("<=", column("c.t"), call("+", column("a.t"), number(10)))),
    )
    # c is between 30 before and 10 after the later one of a and b.
    assert forward(plan, change(2)) == start(100, 131)
    assert forward(plan, change()) == start(100, 141)
    assert reads(plan, start(100, 101)) == {0: start(60, 101), 1: start(90, 101), 2: start(70, 101)}


def test_a_join_without_a_bound_is_too_wide() -> None:
    plan = on_src(A, B)
    assert forward(plan, change(a__src="x")) == start(100, HIGHEST, a__src="x", b__src="x")
    assert [(each.scan, each.source, each.stored_helps) for each in unbounded_inputs(plan)] == [
        (0, "a", True),
        (1, "b", True),
    ]
    assert should_store_lineage(plan)
    assert not unbounded_inputs(on_src(WIDE, NARROW))


def test_a_join_with_what_holds_is_about_instants() -> None:
    held = counted(WIDE, None, "a.src")
    plan = Join(held, NARROW, equal(held.ref("a.src"), column("b.src")))
    assert forward(plan, change(0, a__src="x")) == instant(100, 120, a__src="x", b__src="x")
    assert forward(plan, change(1, b__src="x")) == instant(100, 105, a__src="x", b__src="x")
    assert reads(plan, instant(100, 101, b__src="x")) == {0: start(81, 101, a__src="x"), 1: start(96, 101, b__src="x")}


# relations


def on_name(kind: SourceKind, left: Plan = WIDE) -> RelationJoin:
    return RelationJoin(left, people(kind), equal(column("a.src"), people(kind).ref("p.name")))


def test_a_version_of_an_nrr_is_seen_by_rows_that_happen_while_it_is_valid() -> None:
    plan = on_name(SourceKind.NRR)
    version = InputChange(1, rows_starting_in(AT, {"p.name": "x", "p.label": "L"}, last_end=130))
    # The version that takes its place has another label.
    assert forward(plan, version) == start(100, 130, a__src="x", p__name="x")
    assert forward(plan, InputChange(1, rows_starting_in(AT))) == start(100, HIGHEST)
    assert reads(plan, start(100, 105, a__src="x")) == {
        0: start(100, 105, a__src="x"),
        1: instant(100, 105, p__name="x"),
    }
    assert reads(plan, start(100, 105, p__label="L"))[1] == instant(100, 105)
    found = replay_scope(plan, version)
    assert found is not None
    assert found.reads == {0: start(100, 130, a__src="x"), 1: instant(100, 130, p__name="x")}


def test_an_nrr_over_a_window_over_rows_is_read_as_of_when_the_rows_happened() -> None:
    plan = on_name(SourceKind.NRR, SlidingRows(A, 3))
    assert forward(plan, InputChange(1, rows_starting_in(AT, last_end=130))) == instant(100, HIGHEST)
    assert reads(plan, instant(100, 105)) == {0: start(LOWEST, 105), 1: instant(LOWEST, 105)}


def test_a_retroactive_relation_counts_while_it_is_valid() -> None:
    plan = on_name(SourceKind.RETROACTIVE)
    assert forward(plan, change(a__src="x")) == instant(100, 120, a__src="x", p__name="x")
    assert forward(plan, InputChange(1, rows_starting_in(AT, {"p.name": "x"}, last_end=130))) == instant(
        100, 130, a__src="x", p__name="x"
    )
    assert reads(plan, instant(100, 105)) == {0: start(81, 105), 1: instant(100, 105)}


# groups


def test_only_windows_that_a_row_is_in_are_touched() -> None:
    # Windows of 10 every 4 end at ..., 98, 102, 106, 110, ...
    plan = counted(A, TimeWindow(10, 4), "a.src")
    assert forward(plan, change(a__src="x", a__n=1)) == start(102, 111, a__src="x")
    assert reads(plan, start(100, 107, a__src="x")) == {0: start(92, 106, a__src="x")}
    assert reads(plan, start(103, 106)) == {}
    assert reads(plan, start(102, 103, **{WINDOW_END: 106})) == {}
    found = replay_scope(plan, change(a__src="x"))
    assert found is not None
    assert found.reads == {0: start(92, 110, a__src="x")}


def test_a_row_at_the_end_of_a_window_is_in_the_next_one_also_before_zero() -> None:
    plan = counted(A, TimeWindow(10, 10))
    assert forward(plan, InputChange(0, rows_starting_in(Interval(-10, -9)))) == start(
        0, 1, **{WINDOW_START: -10, WINDOW_END: 0}
    )
    assert forward(plan, InputChange(0, rows_starting_in(Interval(-11, -10)))) == start(
        -10, -9, **{WINDOW_START: -20, WINDOW_END: -10}
    )
    assert reads(plan, start(-10, 1)) == {0: start(-20, 0)}


def test_windows_of_a_second_group_have_names_of_their_own() -> None:
    plan = replace(counted(A, TimeWindow(10, 10)), number=2)
    assert forward(plan, change()) == start(110, 111, window_start_2=100, window_end_2=110)
    early = replace(counted(A, TimeWindow(10, 10, early=True)), number=2)
    assert reads(early, instant(100, 106, window_start_2=90)) == {0: start(90, 100)}


def test_a_row_between_windows_touches_none() -> None:
    plan = counted(A, TimeWindow(3, 10))
    assert forward(plan, InputChange(0, rows_starting_in(Interval(103, 110)))) is None
    assert forward(plan, InputChange(0, rows_starting_in(Interval(102, 103)))) == start(
        103, 104, **{WINDOW_START: 100, WINDOW_END: 103}
    )


def test_windows_over_rows_that_expire_are_about_instants() -> None:
    plan = counted(WIDE, TimeWindow(10, 10))
    assert forward(plan, change()) == instant(110, 120, **{WINDOW_START: 100, WINDOW_END: 110})
    assert reads(plan, instant(115, 118)) == {0: start(96, 110)}
    short = counted(Sliding(A, 5), TimeWindow(10, 10))
    assert forward(short, change()) is None


def test_an_early_window_is_there_from_its_first_row_on() -> None:
    plan = counted(A, TimeWindow(10, 10, early=True))
    assert forward(plan, change()) == instant(100, HIGHEST, **{WINDOW_START: 100, WINDOW_END: 110})
    assert reads(plan, instant(100, 106)) == {0: start(LOWEST, 106)}
    assert reads(plan, instant(100, 106, **{WINDOW_START: 90})) == {0: start(90, 100)}


def test_a_group_without_a_window_is_made_of_all_that_counts() -> None:
    plan = counted(WIDE, None, "a.src")
    assert forward(plan, change(a__src="x", a__id=7)) == instant(100, 120, a__src="x")
    assert reads(plan, instant(100, 101, a__src="x", **{"count(*)": 3})) == {0: start(81, 101, a__src="x")}
    found = replay_scope(plan, change(a__src="x", a__id=7))
    assert found is not None
    assert found.reads == {0: start(81, 120, a__src="x")}


def test_a_group_over_all_of_a_stream_is_wide_and_storing_lineage_is_no_help() -> None:
    plan = counted(A, None, "a.src")
    assert forward(plan, change(a__src="x")) == instant(100, HIGHEST, a__src="x")
    assert reads(plan, instant(100, 101)) == {0: start(LOWEST, 101)}
    (wide,) = unbounded_inputs(plan)
    assert not wide.stored_helps
    assert not should_store_lineage(plan)


def test_row_windows_are_realigned_within_their_group() -> None:
    plan = counted(A, RowWindow(10, 1), "a.src")
    assert forward(plan, change(a__src="x", a__id=7)) == start(100, HIGHEST, a__src="x")
    assert reads(plan, start(100, 101, a__src="x")) == {0: start(LOWEST, 101, a__src="x")}
    assert should_store_lineage(plan)


def test_a_window_over_rows_is_realigned_over_all_rows() -> None:
    plan = SlidingRows(A, 3)
    assert forward(plan, change(a__src="x")) == instant(100, HIGHEST)
    assert reads(plan, instant(100, 101, a__src="x")) == {0: start(LOWEST, 101)}
    assert "window of 3 rows" in unbounded_inputs(plan)[0].why


# sets


def test_distinct_and_intersection_need_all_rows_of_a_value() -> None:
    distinct = Distinct(select(WIDE, "a.src"))
    assert forward(distinct, change(a__src="x", a__id=7)) == instant(100, 120, src="x")
    assert reads(distinct, instant(100, 101, src="x")) == {0: start(81, 101, a__src="x")}
    both_have = Intersect(select(WIDE, "a.src"), select(NARROW, "b.src"))
    assert forward(both_have, change(1, b__src="x", b__id=7)) == instant(100, 105, src="x")
    assert reads(both_have, instant(100, 101, src=None)) == {
        0: start(81, 101, a__src=None),
        1: start(96, 101, b__src=None),
    }


def test_negation_needs_all_rows_of_a_value_on_both_sides() -> None:
    plan = Negation(WIDE, NARROW, (("a.src", "b.src"),))
    assert forward(plan, change(a__src="x", a__id=7)) == instant(100, 120, a__src="x")
    assert forward(plan, change(1, b__src="x", b__n=1)) == instant(100, 105, a__src="x")
    assert reads(plan, instant(100, 101, a__src="x", a__id=7)) == {
        0: start(81, 101, a__src="x"),
        1: start(96, 101, b__src="x"),
    }


def test_pairs_count_only_while_both_rows_do_also_for_those_above() -> None:
    pairs = on_src(WIDE, NARROW)
    others = Sliding(link("c"), 20)
    plan = Negation(pairs, others, (("a.src", "c.src"),))
    assert forward(plan, change(a__src="x", a__id=7)) == instant(100, 120, a__src="x")
    assert forward(plan, change(1, b__src="x")) == instant(100, 105, a__src="x")
    assert reads(plan, instant(100, 101)) == {0: start(81, 101), 1: start(96, 101), 2: start(81, 101)}
