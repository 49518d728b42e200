"""Where the rows lie that conditions leave: never narrower than the conditions."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from errata.language.expr import Call, Expr, Lit, Ref
from errata.language.nodes import Filter, scans_of
from errata.language.plan import Plan, walk_plan
from errata.language.queries import read_one_time_query, stream_source
from errata.language.rewrite import rewritten_plan
from errata.language.scan_bounds import scan_bounds
from errata.model.columns import Column, ColumnType
from errata.model.stream import RelationKind, Stream
from errata.model.time import DAY, EVERYTHING, HIGHEST, HOUR, LOWEST, MINUTE, Interval, parse_instant
from fixtures.chance import seeds

TWO = parse_instant("2026-11-18T02:00:00")
TODAY = parse_instant("2026-11-18")
AT = "TIMESTAMP '2026-11-18 02:00:00'"


def a_stream(name: str, order: str, kind: str, **more: Any) -> Stream:
    columns = {order: kind, "who": "string", "price": "double"}
    made = tuple(Column(each, ColumnType.parse(of)) for each, of in columns.items())
    return Stream(name, made, ("who", order), order, **more)


STREAMS = {
    "quotes": a_stream("quotes", "time", "timestamp"),
    "ticks": a_stream("ticks", "at", "bigint"),
    "names": a_stream("names", "since", "timestamp", relation=RelationKind.RETROACTIVE),
}


def planned(text: str) -> Plan:
    return read_one_time_query(text, "the query", {name: stream_source(each) for name, each in STREAMS.items()})


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (f"time >= {AT}", Interval(TWO)),
        (f"time > {AT}", Interval(TWO + 1)),
        (f"{AT} > time AND price > 3", Interval(LOWEST, TWO)),
        (f"time <= {AT}", Interval(LOWEST, TWO + 1)),
        (f"time = {AT}", Interval(TWO, TWO + 1)),
        (f"time BETWEEN {AT} AND {AT} + INTERVAL 1 hour", Interval(TWO, TWO + HOUR + 1)),
        (f"time >= {AT} - INTERVAL '10' MINUTE AND time < {AT}", Interval(TWO - 10 * MINUTE, TWO)),
        ("time >= DATE '2026-11-18' AND time < DATE '2026-11-19'", Interval(TODAY, TODAY + DAY)),
        (f"time > {AT} AND time < {AT}", Interval(0, 0)),
        (f"time >= {AT} OR price > 3", EVERYTHING),
        (f"NOT time = {AT}", EVERYTHING),
        (f"time + INTERVAL 1 hour >= {AT}", EVERYTHING),
    ],
)
@pytest.mark.parametrize("sampled", ["", " TABLESAMPLE (10 PERCENT)"])
def test_conditions_on_the_order_field_bound_a_scan(condition: str, expected: Interval, sampled: str) -> None:
    (found,) = scan_bounds([planned(f"SELECT count(*) AS n FROM quotes{sampled} WHERE {condition}")]).values()
    assert found == expected


def test_conditions_of_other_rows_do_not() -> None:
    windowed = (
        f"SELECT window_start, count(*) AS n FROM quotes GROUP BY window(time, '1 hour') HAVING window_start > {AT}"
    )
    assert scan_bounds([planned(windowed)]) == {"quotes": EVERYTHING}
    joined = f"SELECT q.price FROM quotes AS q JOIN names AS n ON q.who = n.who WHERE n.since > {AT} AND q.time < {AT}"
    assert scan_bounds([planned(joined)]) == {"quotes": Interval(LOWEST, TWO), "names": EVERYTHING}


def test_several_scans_are_bounded_by_the_hull_of_all() -> None:
    both = "SELECT a.price FROM ticks AS a JOIN ticks AS b ON a.who = b.who WHERE a.at > 5 AND b.at > 9 AND b.at < 20"
    assert scan_bounds([planned(both)]) == {"ticks": Interval(6)}
    one = planned("SELECT price FROM ticks WHERE at < 3")
    assert scan_bounds([one, planned("SELECT price FROM ticks WHERE at BETWEEN 7 AND 8")]) == {
        "ticks": Interval(LOWEST, 9)
    }
    assert scan_bounds([one, planned("SELECT price FROM ticks")]) == {"ticks": EVERYTHING}


def random_condition(draw: random.Random, depth: int = 0) -> str:
    if depth < 3 and draw.random() < 0.6:
        parts = [random_condition(draw, depth + 1) for _ in range(draw.randrange(2, 4))]
        return f"({draw.choice([' AND ', ' AND ', ' OR ']).join(parts)})"
    column, value = draw.choice(["at", "at", "at", "price"]), draw.randrange(-10, 11)
    return draw.choice(
        [
            f"{column} {draw.choice(['<', '<=', '>', '>=', '=', '<=>', '<>'])} {value}",
            f"{value} {draw.choice(['<', '<=', '>', '>=', '='])} {column}",
            f"{column} BETWEEN {value} AND {value + draw.randrange(6)}",
            f"NOT {column} > {value}",
            f"{column} + 1 > {value}",
        ]
    )


OPERATORS: Mapping[str, Any] = {
    "and": lambda left, right: left and right,
    "or": lambda left, right: left or right,
    "not": lambda value: not value,
    "+": lambda left, right: left + right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "=": lambda left, right: left == right,
    "<=>": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
}


def value_of(expr: Expr, row: Mapping[str, float]) -> Any:
    """An expression over a row without NULLs, by definition."""
    match expr:
        case Ref(name):
            return row[name.rpartition(".")[2]]
        case Lit(value):
            return value
        case Call(name, args):
            return OPERATORS[name](*(value_of(each, row) for each in args))
        case _:
            return value_of(expr.arg, row)  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", seeds(__name__, 40))
def test_no_row_that_a_condition_leaves_is_out_of_bounds(seed: int) -> None:
    draw = random.Random(seed)
    condition = random_condition(draw)
    plan = planned(f"SELECT at, price FROM ticks WHERE {condition}")
    bounds = scan_bounds([plan])["ticks"]
    predicates = [each.predicate for each in walk_plan(plan) if isinstance(each, Filter)]
    for at in range(-13, 14):
        for price in range(-11, 12, 2):
            left = all(value_of(each, {"at": at, "price": price}) for each in predicates)
            assert at in bounds or not left, condition
    assert len(scans_of(rewritten_plan(plan))) == 1
    assert bounds.start >= LOWEST
    assert bounds.end <= HIGHEST
