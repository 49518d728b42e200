"""Lineage of whole queries worked out by hand: those of the papers, chains of queries, and what else there is."""

from __future__ import annotations

import pytest

from errata.language.expr import BIGINT, DOUBLE, INT, Cast, Lit
from errata.language.lineage import (
    InputChange,
    backward,
    forward,
    forward_through_queries,
    reads_through_queries,
    replay_scope,
    stored_columns,
)
from errata.language.nodes import (
    WINDOW_END,
    Distinct,
    Filter,
    Join,
    Negation,
    Output,
    Projection,
    Scan,
    Sliding,
    TimeWindow,
)
from errata.language.plan import PlanError
from errata.model.extent import Extent, ExtentAxis, rows_starting_in
from errata.model.time import EVERYTHING, Interval
from fixtures.plans.choices import stream
from fixtures.plans.links import column, counted, equal, link, number, on_src, query, select
from fixtures.regions import AT, change, instant, reads, start

A, B = link("a"), link("b")
WIDE, NARROW = Sliding(A, 20), Sliding(B, 5)


# the queries of the paper (figure 8)


def test_query_1() -> None:
    ftp = Filter(WIDE, equal(column("a.n"), number(21)))
    plan = select(on_src(ftp, NARROW), "a.src", "b.n")
    assert reads(plan, start(100, 101, src="x")) == {
        0: start(81, 101, a__src="x", a__n=21),
        1: start(96, 101, b__src="x"),
    }
    assert forward(plan, change(a__n=23)) is None
    found = replay_scope(plan, change(1, b__src="x", b__id=7))
    assert found is not None
    assert found.reads == {0: start(81, 105, a__src="x", a__n=21), 1: start(100, 101, b__src="x", b__id=7)}


def test_query_2() -> None:
    plan = Distinct(select(WIDE, "a.src"))
    found = replay_scope(plan, change(a__src="x", a__id=7))
    assert found is not None
    assert found.touched == instant(100, 120, src="x")
    assert found.reads == {0: start(81, 120, a__src="x")}
    assert found.whole


def test_query_3() -> None:
    plan = select(Negation(WIDE, NARROW, (("a.src", "b.src"),)), "a.src", "a.n")
    found = replay_scope(plan, change(1, b__src="x", b__id=7))
    assert found is not None
    assert found.touched == instant(100, 105, src="x")
    assert found.reads == {0: start(81, 105, a__src="x"), 1: start(96, 105, b__src="x")}


def test_the_moving_average_of_the_replay_paper() -> None:
    # An average of 5 minutes every minute: t16 to t24 are replayed for t20 (section 3).
    plan = counted(A, TimeWindow(5, 1))
    found = replay_scope(plan, InputChange(0, rows_starting_in(Interval(20, 21))))
    assert found is not None
    assert found.reads == {0: start(16, 25)}


# chains


def test_lineage_goes_through_queries_down_to_streams() -> None:
    inner = select(counted(A, TimeWindow(10, 10), "a.src"), "a.src", WINDOW_END, "count(*)")
    windows = query(Projection(inner.input, (*inner.outputs[:2], Output("many", column("count(*)")))))
    plan = select(Sliding(windows, 30), "q.src", "q.many")
    named = forward_through_queries(plan, (0, 0), change(a__src="x"))
    assert named is not None
    assert (named.axis, named.interval) == (ExtentAxis.START, Interval(110, 111))
    assert named.values == {"src": "x", "q.window_start": 100}
    wanted = backward(plan, instant(100, 101, src="x"))
    assert wanted == {0: start(71, 101, q__src="x")}
    assert reads_through_queries(plan, wanted) == {(0, 0): start(70, 100, a__src="x")}


def test_what_holds_is_read_and_changed_at_instants() -> None:
    held = query(select(counted(WIDE, None, "a.src"), "a.src"))
    assert forward(held, InputChange(0, rows_starting_in(AT, {"q.src": "x"}, last_end=107))) == instant(
        100, 107, q__src="x"
    )
    assert forward_through_queries(held, (0, 0), change(a__src="x")) == instant(100, 120, q__src="x")
    assert reads_through_queries(held, backward(held, instant(100, 101))) == {(0, 0): start(81, 101)}


def test_a_path_ends_where_there_is_no_query() -> None:
    with pytest.raises(PlanError, match="is not a query"):
        forward_through_queries(A, (0, 0), change())


# what else


def test_a_scan_is_named_by_its_place() -> None:
    third = Join(on_src(WIDE, NARROW), Sliding(link("c"), 3))
    assert forward(third, change(2)) == start(100, 103)
    assert stored_columns(third) == ("_from_0", "_to_0", "_from_1", "_to_1", "_from_2", "_to_2")
    with pytest.raises(PlanError, match="there is no scan 3") as found:
        forward(third, change(3))
    assert "2 c" in str(found.value)


def test_everything_stays_everything_and_nothing_nothing() -> None:
    plan = counted(on_src(WIDE, NARROW), TimeWindow(10, 4))
    assert reads(plan, Extent(ExtentAxis.INSTANT)) == {0: Extent(ExtentAxis.START), 1: Extent(ExtentAxis.START)}
    assert forward(plan, InputChange(0, rows_starting_in(EVERYTHING))) == Extent(ExtentAxis.INSTANT)
    assert forward(plan, InputChange(0, rows_starting_in(Interval(5, 5)))) is None
    assert reads(plan, instant(5, 5)) == {}
    assert replay_scope(plan, InputChange(0, rows_starting_in(Interval(5, 5)))) is None


def test_unknown_columns_and_floating_point_constants_are_left_out() -> None:
    assert forward(A, change(a__nothing=1)) == start(100, 101)
    measured = Scan(stream("m", False), "m")
    assert forward(measured, change(m__x=0.0, m__n=1)) == start(100, 101, m__n=1)
    assert reads(Filter(measured, equal(measured.ref("m.x"), Lit(0.0, DOUBLE))), start(0, 9)) == {0: start(0, 9)}


def test_columns_of_two_types_share_no_constants() -> None:
    measured = Scan(stream("m", False), "m")
    rounded = Cast(measured.ref("m.x"), BIGINT)
    plan = Join(Sliding(A, 5), Sliding(measured, 5), equal(column("a.n"), rounded))
    assert forward(plan, change(a__n=1)) == start(100, 105, a__n=1)
    widened = Filter(A, equal(column("a.n"), Cast(Lit(3, INT), BIGINT)))
    assert reads(widened, start(0, 9)) == {0: start(0, 9, a__n=3)}
