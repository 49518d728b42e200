"""The worked examples of docs/model.md about queries, each a test named after its section.

The plans are built by hand; what they answer is told by the oracle of DuckDB.
"""

from __future__ import annotations

from errata.language.expr import BIGINT, BOOLEAN, STRING, Call, Lit, Ref
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Group,
    Join,
    Negation,
    Output,
    Projection,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    TimeWindow,
    Union,
)
from errata.language.patterns import update_pattern
from errata.language.plan import Field, Plan, Source, SourceKind
from errata.language.times import OwnTime, own_time_expr, row_times
from errata.model.results import UpdatePattern
from fixtures.duck import Data, visible_at
from fixtures.plans.choices import relation

COUNT = Aggregate("count", None, BIGINT)


def scan(name: str) -> Scan:
    fields = (Field("t", BIGINT), Field("src", STRING))
    return Scan(Source(name, SourceKind.STREAM, fields, ("t",), "t", timed=False), name)


def equal(left: Plan, right: Plan) -> Call:
    """The condition that both have the same src."""
    sides = [next(plan.ref(name) for name in plan.types if name.endswith(".src")) for plan in (left, right)]
    return Call("=", tuple(sides), BOOLEAN)


def joined(left: Plan, right: Plan) -> Join:
    return Join(left, right, equal(left, right))


def only(plan: Plan, *names: str) -> Projection:
    return Projection(plan, tuple(Output(name, plan.ref(name)) for name in names))


def rows(*times: int) -> list[dict[str, object]]:
    return [{"t": time, "src": "x"} for time in times]


def told(plan: Plan, data: Data, *at: int) -> list[list[tuple[object, ...]]]:
    return [sorted(visible_at(plan, data, each)) for each in at]


def test_what_happened_and_what_holds() -> None:
    join = joined(Sliding(scan("a"), 5), Sliding(scan("b"), 3))
    assert row_times(join).happened
    assert own_time_expr(join) == Call("greatest", (Ref("a.t", BIGINT), Ref("b.t", BIGINT)), BIGINT)
    times = only(join, "a.t", "b.t")
    assert told(times, {"a": rows(10), "b": rows(12)}, 11, 12, 14, 15) == [[], [(10, 12)], [(10, 12)], []]
    values = Distinct(only(Sliding(scan("a"), 5), "a.src"))
    assert row_times(values).own is OwnTime.NONE
    assert told(values, {"a": rows(10)}, 9, 10, 14, 15) == [[], [("x",)], [("x",)], []]


def test_windows_over_time() -> None:
    def windows(of: Plan) -> Plan:
        group = Group(of, (), (COUNT,), TimeWindow(5, 2), timed=False)
        return only(group, "window_start", "window_end")

    data = {"a": rows(3)}
    assert told(windows(scan("a")), data, 4, 5, 7, 99) == [[], [(0, 5)], [(0, 5), (2, 7)], [(0, 5), (2, 7)]]
    assert told(windows(Sliding(scan("a"), 3)), data, 4, 5, 6, 7) == [[], [(0, 5)], [], []]


def test_groups() -> None:
    plan = only(Group(Sliding(scan("a"), 5), (), (COUNT,)), "count(*)")
    assert told(plan, {"a": rows(10, 12)}, 9, 10, 12, 15, 17) == [[], [(1,)], [(2,)], [(1,)], []]


def test_negation() -> None:
    first, second = Sliding(scan("a"), 10), Sliding(scan("b"), 10)
    plan = only(Negation(first, second, (("a.src", "b.src"),)), "a.t")
    data = {"a": rows(1, 4, 6), "b": rows(5)}
    assert told(plan, data, 4, 6, 11, 14, 15) == [[(1,), (4,)], [(4,), (6,)], [(6,)], [], [(6,)]]

    below = joined(Negation(scan("a"), scan("b"), (("a.src", "b.src"),)), scan("c"))
    above = Negation(joined(scan("a"), scan("c")), scan("b"), (("a.src", "b.src"),))
    several: Data = {"a": rows(1, 2), "b": rows(3), "c": rows(4, 5)}
    assert [len(visible_at(plan, several, 6)) for plan in (below, above)] == [2, 3]


def test_rows_in_order() -> None:
    latest = Aggregate("max", Ref("a.t", BIGINT), BIGINT)
    group = Group(scan("a"), (Ref("a.src", STRING),), (latest,), RowWindow(2, 1), timed=False)
    plan = only(group, "window_no", "max(a.t)")
    assert told(plan, {"a": rows(1, 3, 5)}, 2, 3, 5) == [[], [(0, 3)], [(0, 3), (1, 5)]]
    assert told(plan, {"a": rows(1, 2, 3, 5)}, 5) == [[(0, 2), (1, 3), (2, 5)]]


def test_relations() -> None:
    labelled = (("old", 0), ("new", 5))
    versions = [{"name": "x", "label": label, "since": since, "gone": None} for label, since in labelled]

    def labels(kind: SourceKind) -> list[tuple[object, ...]]:
        people = Scan(relation("people", timed=False, kind=kind), "p")
        condition = Call("=", (Ref("a.src", STRING), people.ref("p.name")), BOOLEAN)
        plan = only(RelationJoin(scan("a"), people, condition), "a.t", "p.label")
        return told(plan, {"a": rows(1, 5), "people": versions}, 6)[0]

    assert labels(SourceKind.RETROACTIVE) == [(1, "new"), (5, "new")]
    assert labels(SourceKind.NRR) == [(1, "old"), (5, "new")]


def test_update_patterns() -> None:
    wide, narrow = Sliding(scan("a"), 5), Sliding(scan("b"), 3)
    assert update_pattern(joined(wide, narrow)) is UpdatePattern.WEAK
    assert update_pattern(Union((wide, narrow))) is UpdatePattern.WEAK
    assert update_pattern(Union((wide, Sliding(scan("b"), 5)))) is UpdatePattern.WEAKEST
    negation = Negation(wide, narrow, (("a.src", "b.src"),))
    assert update_pattern(negation) is UpdatePattern.STRICT
    count = Group(negation, (), (COUNT,))
    assert update_pattern(count).shown == "WK"
    having = Filter(count, Call(">", (count.ref("count(*)"), Lit(1, BIGINT)), BOOLEAN))
    assert update_pattern(having) is UpdatePattern.STRICT
