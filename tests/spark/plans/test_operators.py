"""Each operator on a few rows, with lifetimes and lineage worked out by hand. Times are plain numbers here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from errata.language.expr import BIGINT, BOOLEAN, DOUBLE, INT, Call, Expr, Lit, Ref
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Output,
    Project,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.plan import Plan, PlanError
from errata.model.columns import ColumnType, Kind
from errata.model.interval import HIGHEST, LOWEST
from fixtures.choices import pool
from fixtures.compiled import INTERPRETED, Asked, Lived, configured, evaluate, evaluate_one, live
from fixtures.duck import Data, Row, same

POOL = pool(timed=False)
EVER = HIGHEST
NAN = float("nan")


def event(time: int, number: int, src: str | None = "s", **more: Any) -> Row:
    return {"time": time, "id": number, "src": src, "n": None, "x": None, "price": None, "ok": None, **more}


def version(name: str, since: int, label: str | None, gone: bool | None = False) -> Row:
    return {"name": name, "label": label, "since": since, "gone": gone}


def scan(alias: str, *columns: str, source: str = "link1") -> Scan:
    key = POOL[source].key
    return Scan(POOL[source], alias, tuple(each.name for each in POOL[source].fields if each.name in {*key, *columns}))


def group(plan: Plan, by: tuple[Expr, ...], *aggregates: Aggregate, window: Any = None) -> Group:
    return Group(plan, by, aggregates, window, timed=False)


def count(argument: Expr | None = None, *, distinct: bool = False) -> Aggregate:
    return Aggregate("count", argument, BIGINT, distinct)


def equal(a: Expr, b: Expr, name: str = "=") -> Expr:
    return Call(name, (a, b), BOOLEAN)


@dataclass(frozen=True)
class Example:
    """A plan over data, and what comes out: values (hidden ones too), start, end, and the lineage by scan."""

    plan: Plan
    data: Data
    rows: list[tuple[tuple[Any, ...], int, int, tuple[int | None, ...]]]


def _windows() -> dict[str, Example]:
    a = scan("a", "n")
    data = {"link1": [event(1, 1), event(1, 2), event(1, 3), event(4, 4)]}
    edge = {"link1": [event(HIGHEST - 2, 1), event(HIGHEST, 2), event(LOWEST, 3), event(-3, 4)]}
    low = (LOWEST, LOWEST)
    return {
        "a stream counts for ever": Example(a, {"link1": [event(-3, 1, n=7)]}, [((-3, 1, 7), -3, EVER, (-3, -3))]),
        "what it is ordered by may be pruned": Example(
            scan("i", "n", source="items"), {"items": [event(5, 1, n=7)]}, [((1, 7), 5, EVER, (5, 5))]
        ),
        "a span never reaches beyond the end of time": Example(
            Sliding(a, 10),
            edge,
            [
                ((HIGHEST - 2, 1, None), HIGHEST - 2, EVER, (HIGHEST - 2, HIGHEST - 2)),
                ((LOWEST, 3, None), LOWEST, LOWEST + 10, low),
                ((-3, 4, None), -3, 7, (-3, -3)),
            ],
        ),
        "rows of a window of rows leave in the order of time and key": Example(
            SlidingRows(a, 2),
            data,
            [
                ((1, 2, None), 1, 4, (1, 1)),
                ((1, 3, None), 1, EVER, (1, 1)),
                ((4, 4, None), 4, EVER, (4, 4)),
            ],
        ),
    }


def _joins() -> dict[str, Example]:
    left, right = Sliding(scan("a", "src"), 5), Sliding(scan("b", "src", source="link2"), 2)
    data = {
        "link1": [event(1, 1, "x"), event(2, 2, None)],
        "link2": [event(5, 5, "x"), event(6, 6, "x"), event(3, 3, None)],
    }
    met = ((1, 1, "x", 5, 5, "x"), 5, 6, (1, 1, 5, 5))
    alike = ((2, 2, None, 3, 3, None), 3, 5, (2, 2, 3, 3))
    ends = (left.ref("a.src"), right.ref("b.src"))
    people, places = (Scan(POOL[name], "r", ("name", "label")) for name in ("people", "places"))
    named = equal(left.ref("a.src"), people.ref("r.name"))
    told = [
        version("x", 0, "L"),
        version("x", 4, "M"),
        version("x", 5, "M", gone=True),
        version("y", 3, "Y"),
        version("x", 8, None, gone=None),
    ]
    seen = {"link1": [event(1, 1, "x"), event(4, 2, "x"), event(5, 3, "x"), event(-1, 4, "x"), event(9, 5, None)]}
    return {
        "pairs count while both do, and NULL equals nothing": Example(Join(left, right, equal(*ends)), data, [met]),
        "unless it is asked for": Example(Join(left, right, equal(*ends, "<=>")), data, [met, alike]),
        "a condition that could fail is asked of pairs only": Example(
            Filter(
                Join(left, right),
                equal(
                    Call("div", (Lit(1, INT), Call("-", (right.ref("b.id"), Lit(6, INT)), INT)), BIGINT), Lit(-1, INT)
                ),
            ),
            {"link1": [event(1, 1)], "link2": [event(5, 5), event(6, 6)]},
            [((1, 1, "s", 5, 5, "s"), 5, 6, (1, 1, 5, 5))],
        ),
        "a retroactive relation is what it is at the time": Example(
            RelationJoin(left, people, named),
            {**seen, "people": told},
            [
                ((1, 1, "x", "x", "L"), 1, 4, (1, 1, 0, 0)),
                ((1, 1, "x", "x", "M"), 4, 5, (1, 1, 4, 4)),
                ((4, 2, "x", "x", "M"), 4, 5, (4, 4, 4, 4)),
                ((4, 2, "x", "x", None), 8, 9, (4, 4, 8, 8)),
                ((5, 3, "x", "x", None), 8, 10, (5, 5, 8, 8)),
                ((-1, 4, "x", "x", "L"), 0, 4, (-1, -1, 0, 0)),
            ],
        ),
        "of another relation a row sees what was at its own time": Example(
            RelationJoin(left, places, named),
            {**seen, "places": told},
            [((1, 1, "x", "x", "L"), 1, 6, (1, 1, 0, 0)), ((4, 2, "x", "x", "M"), 4, 9, (4, 4, 4, 4))],
        ),
        "a joined row's own time is the later one": Example(
            group(Join(left, right), (), Aggregate("last", Ref("a.id", INT), INT)),
            {"link1": [event(6, 1), event(4, 2)], "link2": [event(5, 5)]},
            [((2,), 5, 6, (4, 4, 5, 5)), ((1,), 6, 7, (4, 6, 5, 5))],
        ),
    }


def _sets() -> dict[str, Example]:
    x = Project(Sliding(scan("a", "x"), 3), (Output("x", Ref("a.x", DOUBLE)),))
    src = Project(Sliding(scan("a", "src"), 3), (Output("v", scan("a", "src").ref("a.src")),))
    other = Project(scan("b", "src", source="link2"), (Output("w", scan("b", "src").ref("b.src")),))
    stream = Project(scan("a", "src"), src.outputs)
    data = {
        "link1": [event(1, 1, "x"), event(3, 2, "x"), event(6, 3, "x"), event(10, 4, "x"), event(2, 5, None)],
        "link2": [event(4, 1, "x"), event(7, 2, "x"), event(3, 3, None), event(0, 4, "y")],
    }
    floats = {"link1": [event(1, 1, x=-0.0), event(2, 2, x=0.0), event(1, 3, x=NAN), event(4, 4, x=NAN)]}
    return {
        "lifetimes that overlap or touch are one": Example(
            Distinct(src),
            data,
            [(("x",), 1, 9, (1, 6)), (("x",), 10, 13, (10, 10)), ((None,), 2, 5, (2, 2))],
        ),
        "zeros and not-a-numbers are equal": Example(
            Distinct(x), floats, [((0.0,), 1, 5, (1, 2)), ((NAN,), 1, 7, (1, 4))]
        ),
        "of what counts for ever the first one is enough": Example(
            Distinct(stream), data, [(("x",), 1, EVER, (1, 10)), ((None,), 2, EVER, (2, 2))]
        ),
        "an intersection counts while both sides do": Example(
            Intersect(src, other),
            data,
            [
                (("x",), 4, 9, (1, 6, 4, 7)),
                (("x",), 10, 13, (10, 10, 4, 7)),
                ((None,), 3, 5, (2, 2, 3, 3)),
            ],
        ),
        "a union keeps who said it": Example(
            Union((Project(scan("a", "src"), src.outputs), other)),
            {"link1": [event(1, 2, "x")], "link2": [event(3, 4, "y")]},
            [
                (("x", 0, 1, 2, None, None), 1, EVER, (1, 1, None, None)),
                (("y", 1, None, None, 3, 4), 3, EVER, (None, None, 3, 3)),
            ],
        ),
        "a union of equal keys shares their columns": Example(
            Union((scan("a"), scan("b", source="link2"))),
            {"link1": [event(1, 2)], "link2": [event(3, 4)]},
            [((1, 2, 0), 1, EVER, (1, 1, None, None)), ((3, 4, 1), 3, EVER, (None, None, 3, 3))],
        ),
    }


def _negations() -> dict[str, Example]:
    left = Sliding(scan("a", "src", "n"), 10)
    right = scan("b", "src", source="link2")
    on = (("a.src", "b.src"),)
    two = {"link1": [event(1, 1, "x", n=2), event(2, 2, "x", n=1)], "link2": [event(5, 9, "x")]}
    return {
        "the youngest stand, and an expiry may fell one": Example(
            Negation(left, right, on),
            two,
            [((1, 1, "x", 2), 1, 5, (1, 1, 5, 5)), ((2, 2, "x", 1), 2, 11, (1, 2, 5, 5))],
        ),
        "what was felled may rise again": Example(
            Negation(left, Sliding(right, 3), on),
            two,
            [
                ((1, 1, "x", 2), 1, 5, (1, 1, 5, 5)),
                ((1, 1, "x", 2), 8, 11, (1, 1, 5, 5)),
                ((2, 2, "x", 1), 2, 12, (1, 2, 5, 5)),
            ],
        ),
        "another order tells another youngest": Example(
            Negation(left, Sliding(right, 3), on, rank=("a.n",)),
            two,
            [
                ((1, 1, "x", 2), 1, 11, (1, 2, 5, 5)),
                ((2, 2, "x", 1), 2, 5, (2, 2, 5, 5)),
                ((2, 2, "x", 1), 8, 12, (2, 2, 5, 5)),
            ],
        ),
        "NULL fells NULL only, at the very instant": Example(
            Negation(left, right, on),
            {"link1": [event(1, 1, None), event(1, 2, "y")], "link2": [event(1, 9, None), event(3, 8, "")]},
            [((1, 2, "y", None), 1, 11, (1, 1, None, None))],
        ),
        "its rows keep their own time": Example(
            group(Negation(left, Sliding(right, 3), on), (), Aggregate("first", Ref("a.id", INT), INT)),
            {"link1": [event(1, 1, "x"), event(2, 2, "x")], "link2": [event(1, 9, "x")]},
            [((2,), 2, 4, (1, 2, 1, 1)), ((1,), 4, 11, (1, 2, 1, 1)), ((2,), 11, 12, (1, 2, 1, 1))],
        ),
    }


def _groups() -> dict[str, Example]:
    a = scan("a", "src", "n", "x", "price")
    src, n, x = a.ref("a.src"), a.ref("a.n"), a.ref("a.x")
    price = a.ref("a.price")
    kind = ColumnType(Kind.DECIMAL, 18, 2)
    data = {
        "link1": [
            event(1, 1, "x", n=5),
            event(1, 2, "x", n=None),
            event(4, 3, "x", n=5),
            event(2, 4, None, n=1),
            event(9, 5, "x", n=7),
        ]
    }
    far = {"link1": [event(1, 1, x=1e16), event(2, 2, x=1.0), event(3, 3, x=NAN), event(9, 4, x=-0.0)]}
    last, first = Aggregate("last", n, INT), Aggregate("first", n, INT)
    once = count(n, distinct=True)
    return {
        "of what counts for ever it runs": Example(
            group(a, (src,), count(), count(n), once, last),
            data,
            [
                (("x", 2, 1, 1, None), 1, 4, (1, 1)),
                (("x", 3, 2, 1, 5), 4, 9, (1, 4)),
                (("x", 4, 3, 2, 7), 9, EVER, (1, 9)),
                ((None, 1, 1, 1, 1), 2, EVER, (2, 2)),
            ],
        ),
        "of equal spans it slides, and no rows give no row": Example(
            group(Sliding(a, 4), (src,), count(), first, Aggregate("sum", price, kind)),
            {"link1": [*data["link1"], event(9, 6, "x", n=1, price=Decimal("1.50"))]},
            [
                (("x", 2, 5, None), 1, 4, (1, 1)),
                (("x", 3, 5, None), 4, 5, (1, 4)),
                (("x", 1, 5, None), 5, 8, (4, 4)),
                (("x", 2, 7, Decimal("1.50")), 9, 13, (9, 9)),
                ((None, 1, 1, None), 2, 6, (2, 2)),
            ],
        ),
        "of any lifetimes it is worked out where they begin and end": Example(
            group(SlidingRows(a, 2), (src,), count(), once, last),
            data,
            [
                (("x", 2, 1, None), 1, 2, (1, 1)),
                (("x", 1, 0, None), 2, 4, (1, 1)),
                (("x", 1, 1, 5), 4, 9, (4, 4)),
                (("x", 2, 2, 7), 9, EVER, (4, 9)),
                ((None, 1, 1, 1), 2, 9, (2, 2)),
            ],
        ),
        "sums leave no traces": Example(
            group(Sliding(a, 3), (), Aggregate("sum", x, DOUBLE), Aggregate("min", x, DOUBLE)),
            far,
            [
                ((1e16, 1e16), 1, 2, (1, 1)),
                ((1e16, 1.0), 2, 3, (1, 2)),
                ((NAN, 1.0), 3, 4, (1, 3)),
                ((NAN, 1.0), 4, 5, (2, 3)),
                ((NAN, NAN), 5, 6, (3, 3)),
                ((0.0, 0.0), 9, 12, (9, 9)),
            ],
        ),
        "spans near the ends of time": Example(
            group(Sliding(a, 10), (), count()),
            {"link1": [event(LOWEST, 1), event(HIGHEST - 1, 2)]},
            [
                ((1,), LOWEST, LOWEST + 10, (LOWEST, LOWEST)),
                ((1,), HIGHEST - 1, EVER, (HIGHEST - 1, HIGHEST - 1)),
            ],
        ),
        "one group of no rows": Example(group(a, (), count()), {}, []),
        "one row of the rest": Example(
            group(group(a, (src,), count()), (), Aggregate("max", Ref("count(*)", BIGINT), BIGINT)),
            data,
            [((2,), 1, 2, (1, 1)), ((2,), 2, 4, (1, 2)), ((3,), 4, 9, (1, 4)), ((4,), 9, EVER, (1, 9))],
        ),
        "one row has no deviation": Example(
            group(a, (), Aggregate("stddev", n, DOUBLE), Aggregate("avg", n, DOUBLE)),
            {"link1": [event(1, 1, n=1), event(2, 2, n=3)]},
            [((None, 1.0), 1, 2, (1, 1)), ((2**0.5, 2.0), 2, EVER, (1, 2))],
        ),
    }


def _grouped_windows() -> dict[str, Example]:
    a = scan("a", "src", "n")
    n = a.ref("a.n")
    negative = {"link1": [event(-1, 1), event(-5, 2), event(-6, 3), event(0, 4)]}
    few = {"link1": [event(4, 1), event(6, 2)]}
    rows = {"link1": [event(time, time, "x", n=time) for time in (1, 2, 3, 4, 5)] + [event(3, 9, "y")]}
    first, last = Aggregate("first", n, INT), Aggregate("last", n, INT)
    return {
        "windows begin at multiples, before 0 too, and are final at their end": Example(
            group(a, (), count(), window=TimeWindow(5, 5)),
            negative,
            [
                ((-10, -5, 1), -5, EVER, (-6, -6)),
                ((-5, 0, 2), 0, EVER, (-5, -1)),
                ((0, 5, 1), 5, EVER, (0, 0)),
            ],
        ),
        "windows that overlap": Example(
            group(a, (), count(), window=TimeWindow(5, 3)),
            few,
            [
                ((0, 5, 1), 5, EVER, (4, 4)),
                ((3, 8, 2), 8, EVER, (4, 6)),
                ((6, 11, 1), 11, EVER, (6, 6)),
            ],
        ),
        "windows with gaps": Example(
            group(a, (), count(), window=TimeWindow(2, 4)), few, [((4, 6, 1), 6, EVER, (4, 4))]
        ),
        "early windows count from their first row": Example(
            group(a, (), count(), window=TimeWindow(4, 4, early=True)),
            {"link1": [event(4, 1), event(6, 2)]},
            [((4, 8, 1), 4, 6, (4, 4)), ((4, 8, 2), 6, EVER, (4, 6))],
        ),
        "early windows of what expires": Example(
            group(Sliding(a, 3), (), count(), window=TimeWindow(4, 4, early=True)),
            {"link1": [event(4, 1), event(6, 2)]},
            [((4, 8, 1), 4, 6, (4, 4)), ((4, 8, 2), 6, 7, (4, 6)), ((4, 8, 1), 7, 9, (6, 6))],
        ),
        "windows of what expires hold what is left": Example(
            group(Sliding(a, 5), (), count(), window=TimeWindow(4, 4)),
            {"link1": [event(4, 1), event(3, 3), event(6, 2)]},
            [
                ((0, 4, 1), 4, 8, (3, 3)),
                ((4, 8, 2), 8, 9, (4, 6)),
                ((4, 8, 1), 9, 11, (6, 6)),
            ],
        ),
        "windows that do not fit between the ends of time are none": Example(
            group(a, (), count(), window=TimeWindow(10, 10)),
            {"link1": [event(LOWEST, 1), event(HIGHEST - 1, 2), event(5, 3)]},
            [((0, 10, 1), 10, EVER, (5, 5))],
        ),
        "windows of rows are published when full": Example(
            group(a, (a.ref("a.src"),), first, last, count(), window=RowWindow(3, 2)),
            rows,
            [(("x", 0, 1, 3, 3), 3, EVER, (1, 3)), (("x", 1, 3, 5, 3), 5, EVER, (3, 5))],
        ),
        "windows of rows with gaps": Example(
            group(a, (a.ref("a.src"),), first, window=RowWindow(1, 2)),
            rows,
            [
                (("x", 0, 1), 1, EVER, (1, 1)),
                (("x", 1, 3), 3, EVER, (3, 3)),
                (("x", 2, 5), 5, EVER, (5, 5)),
                (("y", 0, None), 3, EVER, (3, 3)),
            ],
        ),
    }


EXAMPLES: Mapping[str, Example] = {
    **_windows(),
    **_joins(),
    **_sets(),
    **_negations(),
    **_groups(),
    **_grouped_windows(),
}


@pytest.fixture(scope="module")
def histories(spark: SparkSession) -> dict[str, list[Lived]]:
    return _evaluated(spark, [Asked(each.plan, [each.data], lineage=True) for each in EXAMPLES.values()])


@pytest.fixture(scope="module")
def moments(spark: SparkSession) -> dict[str, list[Lived]]:
    """The examples at the instants at which the last of their rows begin."""
    return _evaluated(
        spark, [Asked(each.plan, [each.data], at=_moment(each), lineage=True) for each in EXAMPLES.values()]
    )


def _evaluated(spark: SparkSession, asked: list[Asked]) -> dict[str, list[Lived]]:
    with configured(spark, INTERPRETED):
        return {name: found.get(0, []) for name, found in zip(EXAMPLES, evaluate(spark, asked), strict=True)}


def _moment(example: Example) -> int:
    return max((start for _, start, _, _ in example.rows), default=0)


@pytest.mark.parametrize("name", EXAMPLES)
def test_lifetimes_and_lineage(name: str, histories: dict[str, list[Lived]]) -> None:
    found = [(*row.values, row.start, row.end, *row.lineage) for row in histories[name]]
    wanted = [(*values, start, end, *lineage) for values, start, end, lineage in EXAMPLES[name].rows]
    assert same(found, wanted), f"{sorted(found, key=str)}\ninstead of\n{sorted(wanted, key=str)}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_answer_at_an_instant(name: str, moments: dict[str, list[Lived]]) -> None:
    at = _moment(EXAMPLES[name])
    wanted = live((Lived(values, start, end) for values, start, end, _ in EXAMPLES[name].rows), at)
    assert same([row.values for row in moments[name]], wanted)
    assert {(row.start, row.end) for row in moments[name]} <= {(at, at + 1)}


@pytest.mark.parametrize("at", [None, 3])
def test_windows_over_what_only_holds_are_refused(spark: SparkSession, at: int | None) -> None:
    held = Distinct(scan("a", "src"))
    refused = [
        Sliding(held, 3),
        SlidingRows(held, 3),
        group(held, (), count(), window=TimeWindow(5, 5)),
        group(held, (), Aggregate("first", held.ref("a.src"), held.types["a.src"])),
        RelationJoin(held, Scan(POOL["places"], "r")),
    ]
    for plan in refused:
        with pytest.raises(PlanError):
            evaluate_one(spark, plan, {}, at=at)


def test_a_sum_that_is_too_large_is_an_error(spark: SparkSession) -> None:
    a = scan("a", "time")
    plan = group(a, (), Aggregate("sum", a.ref("a.time"), BIGINT))
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        evaluate_one(spark, plan, {"link1": [event(HIGHEST - 1, 1), event(HIGHEST - 2, 2)]})


def test_a_plan_may_keep_several_columns_whose_names_differ_in_case_only(spark: SparkSession) -> None:
    a = scan("a", "n")
    plan = Project(a, (Output("v", a.ref("a.n")), Output("V", a.ref("a.id"))))
    again = Filter(plan, equal(plan.ref("V"), Lit(1, INT)))
    assert [row.values for row in evaluate_one(spark, again, {"link1": [event(1, 1, n=7)]})] == [(7, 1, 1)]
