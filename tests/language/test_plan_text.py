"""The text of a plan says all of it, in one way; its fingerprint says what it reads, too."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal

import pytest

from errata.language.expr import BIGINT, BOOLEAN, DOUBLE, INT, SHIFT, STRING, TIMESTAMP, Call, Expr, Lit, Ref
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Filter,
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
    scans_of,
)
from errata.language.plan import Field, Plan, Source, SourceKind
from errata.language.plan_text import fingerprint, operator_text, plan_tree
from errata.model.columns import ColumnType, TypeKind
from errata.model.time import MINUTE, SECOND
from fixtures.chance import seeds
from fixtures.plans.choices import pool
from fixtures.plans.maker import random_case

FLOAT = ColumnType(TypeKind.FLOAT)


def decimal(precision: int, scale: int) -> ColumnType:
    return ColumnType(TypeKind.DECIMAL, precision, scale)


QUOTES = Source(
    "quotes",
    SourceKind.STREAM,
    (Field("time", TIMESTAMP), Field("symbol", STRING), Field("price", DOUBLE)),
    ("time", "symbol"),
    "time",
)
SCAN = Scan(QUOTES, "quotes")
OTHER = Scan(QUOTES, "b")
PRICE, SYMBOL = SCAN.ref("quotes.price"), SCAN.ref("quotes.symbol")
FILTER = Filter(SCAN, Call(">", (PRICE, Lit(0, INT)), BOOLEAN))
MEAN, COUNT = Aggregate("avg", PRICE, DOUBLE), Aggregate("count", None, BIGINT)
GROUP = Group(FILTER, (SYMBOL,), (MEAN,), TimeWindow(5 * MINUTE, MINUTE))
PLAN = Projection(GROUP, (Output("symbol", GROUP.ref("quotes.symbol")), Output("mean", GROUP.ref("avg(quotes.price)"))))


def equal(left: Expr, right: Expr) -> Call:
    return Call("=", (left, right), BOOLEAN)


PAIRS = equal(SYMBOL, OTHER.ref("b.symbol"))
PEOPLE, PLACES = (Scan(pool(True)[name], "r") for name in ("people", "places"))
NAMED = equal(SYMBOL, PEOPLE.ref("r.name"))


def test_a_plan_is_indented_lines_with_the_root_first() -> None:
    assert plan_tree(PLAN) == (
        "project  symbol = quotes.symbol, mean = avg(quotes.price)\n"
        "  group by quotes.symbol, window(5 minutes every 1 minute)  avg(quotes.price)\n"
        "    filter quotes.price > 0\n"
        "      scan stream quotes\n"
    )


def test_notes_stand_in_one_column_and_long_lines_do_not_move_them() -> None:
    long = Projection(FILTER, tuple(Output(f"column_{number}", PRICE) for number in range(9)))
    noted = plan_tree(long, lambda node: "" if isinstance(node, Scan) else type(node).__name__)
    assert noted.splitlines()[0].endswith("column_8 = quotes.price  -- Projection")
    assert noted.splitlines()[1:] == ["  filter quotes.price > 0  -- Filter", "    scan stream quotes"]


LINES = [
    (SCAN, "scan stream quotes"),
    (OTHER, "scan stream quotes as b"),
    (Scan(QUOTES, "quotes", ("time", "symbol")), "scan stream quotes (time, symbol)"),
    (PEOPLE, "scan retroactive relation people as r"),
    (PLACES, "scan nrr relation places as r"),
    (Sliding(SCAN, 2000 * SECOND), "sliding 2000 seconds"),
    (Sliding(Scan(pool(False)["link1"], "a"), 20), "sliding 20"),
    (SlidingRows(SCAN, 1), "sliding 1 row"),
    (SlidingRows(SCAN, 10), "sliding 10 rows"),
    (Join(SCAN, OTHER), "cross join"),
    (Join(SCAN, OTHER, PAIRS), "join on quotes.symbol = b.symbol"),
    (RelationJoin(SCAN, PLACES), "relation join"),
    (RelationJoin(SCAN, PEOPLE, NAMED), "relation join on quotes.symbol = r.name"),
    (Union((SCAN, OTHER)), "union all"),
    (Distinct(SCAN), "distinct"),
    (Intersect(SCAN, OTHER), "intersect"),
    (Negation(SCAN, OTHER, (("quotes.symbol", "b.symbol"),)), "negation on quotes.symbol = b.symbol"),
    (
        Negation(SCAN, OTHER, (("quotes.symbol", "b.symbol"),), ("quotes.time", "quotes.price")),
        "negation on quotes.symbol = b.symbol  youngest by (quotes.time, quotes.price)",
    ),
    (Group(SCAN, (), (COUNT,)), "group  count(*)"),
    (Group(SCAN, (SYMBOL,), ()), "group by quotes.symbol"),
    (
        Group(SCAN, (SYMBOL,), (replace(COUNT, argument=PRICE, distinct=True), MEAN)),
        "group by quotes.symbol  count(DISTINCT quotes.price), avg(quotes.price)",
    ),
    (Group(SCAN, (), (COUNT,), TimeWindow(MINUTE, MINUTE)), "group by window(1 minute)  count(*)"),
    (Group(SCAN, (), (COUNT,), TimeWindow(5, 1, early=True), False), "group by window(5 every 1, early)  count(*)"),
    (Group(SCAN, (SYMBOL,), (COUNT,), RowWindow(10, 10)), "group by quotes.symbol, row_window(10)  count(*)"),
    (Group(SCAN, (SYMBOL,), (COUNT,), RowWindow(10, 3)), "group by quotes.symbol, row_window(10 every 3)  count(*)"),
]


@pytest.mark.parametrize(("plan", "text"), LINES, ids=[text for _, text in LINES])
def test_each_operator_says_what_it_is_told(plan: Plan, text: str) -> None:
    assert operator_text(plan) == text


def test_a_query_is_a_query() -> None:
    source = Source("means", SourceKind.QUERY, PLAN.fields, PLAN.key, plan=PLAN)
    assert operator_text(Scan(source, "m")) == "scan query means as m"


def test_a_column_called_like_an_expression_is_not_that_expression() -> None:
    upper = Call("upper", (SYMBOL,), STRING)
    group = Group(SCAN, (SYMBOL, upper), (MEAN,))
    as_column = Projection(group, (Output("u", group.ref("upper(quotes.symbol)")), Output("m", group.ref(MEAN.name))))
    as_call = replace(as_column, outputs=(Output("u", Call("upper", (group.ref("quotes.symbol"),), STRING)),))
    assert operator_text(as_column) == "project  u = `upper(quotes.symbol)`, m = avg(quotes.price)"
    assert operator_text(as_call) == "project  u = upper(quotes.symbol)"


@pytest.mark.parametrize(
    ("constant", "text"),
    [
        (Lit(5, INT), "5"),
        (Lit(5, BIGINT), "5L"),
        (Lit(-(2**31), INT), "-2147483648"),
        (Lit(2**31, BIGINT), "2147483648"),
        (Lit(1.5, DOUBLE), "1.5D"),
        (Lit(1.5, FLOAT), "1.5F"),
        (Lit(Decimal("1.50"), decimal(3, 2)), "1.50"),
        (Lit(Decimal("0.05"), decimal(2, 2)), "0.05"),
        (Lit(Decimal(-7), decimal(1, 0)), "-7BD"),
        (Lit(Decimal("1.50"), decimal(9, 2)), "1.50  (1.50: decimal(9,2))"),
        (Lit(Decimal("0.05"), decimal(3, 2)), "0.05  (0.05: decimal(3,2))"),
        (Lit(None, BIGINT), "CAST(NULL AS BIGINT)"),
    ],
)
def test_a_constant_of_an_unusual_type_says_so(constant: Lit, text: str) -> None:
    assert operator_text(Projection(SCAN, (Output("c", constant),))) == f"project  c = {text}"


def test_a_shift_needs_no_type() -> None:
    moved = Call(SHIFT, (SCAN.ref("quotes.time"), Lit(MINUTE, BIGINT)), TIMESTAMP)
    assert operator_text(Projection(SCAN, (Output("t", moved),))) == "project  t = quotes.time + INTERVAL '1' MINUTE"


def test_whatever_differs_has_another_text_and_another_fingerprint() -> None:
    texts: dict[tuple[bool, str], Plan] = {}
    prints: dict[str, Plan] = {}
    for seed in seeds(__name__, 400):
        plan = random_case(random.Random(seed), data_sets=0).plan
        timed = scans_of(plan)[0].source.timed
        # Queries are random too and called alike: their plans are not part of the text, but of the fingerprint.
        assert texts.setdefault((timed, plan_tree(plan)), plan) == plan or reads_queries(plan), seed
        assert prints.setdefault(fingerprint(plan), plan) == plan, seed


def reads_queries(plan: Plan) -> bool:
    return any(each.source.kind is SourceKind.QUERY for each in scans_of(plan))


CHANGES = [
    replace(QUOTES, kind=SourceKind.NRR),
    replace(QUOTES, key=("symbol", "time")),
    replace(QUOTES, order=None),
    replace(QUOTES, timed=False),
    replace(QUOTES, deleted="price"),
    replace(QUOTES, fields=(*QUOTES.fields[:2], Field("price", INT))),
    replace(QUOTES, fields=(*QUOTES.fields[:2], Field("price", DOUBLE, hidden=True))),
    replace(QUOTES, fields=(*QUOTES.fields, Field("more", DOUBLE))),
]


@pytest.mark.parametrize("changed", CHANGES, ids=range(len(CHANGES)))
def test_the_fingerprint_changes_with_the_declaration_of_what_is_read(changed: Source) -> None:
    # The filter is over a constant: whether the price is a number does not matter to it.
    def over(source: Source) -> Plan:
        return Filter(Scan(source, "quotes"), Lit(True, BOOLEAN))

    assert fingerprint(over(QUOTES)) == fingerprint(over(replace(QUOTES)))
    assert fingerprint(over(QUOTES)) != fingerprint(over(changed))


def test_the_fingerprint_changes_with_a_query_that_is_read_through_another() -> None:
    def through(price: int) -> Plan:
        plan: Plan = Filter(SCAN, Call(">", (PRICE, Lit(price, INT)), BOOLEAN))
        for name in ("low", "high"):
            source = Source(name, SourceKind.QUERY, plan.fields, plan.key, plan=plan)
            scan = Scan(source, name)
            outputs = tuple(Output(each.partition(".")[2], Ref(each, kind)) for each, kind in scan.types.items())
            plan = Projection(scan, outputs)
        return plan

    assert plan_tree(through(1)) == plan_tree(through(2))
    assert fingerprint(through(1)) == fingerprint(through(1))
    assert fingerprint(through(1)) != fingerprint(through(2))
