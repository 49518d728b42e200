from __future__ import annotations

from pathlib import Path

import pytest

from errata.language.expr import BIGINT, BOOLEAN, DOUBLE, STRING, TIMESTAMP, Call, Lit, Ref
from errata.language.near_support import AGGREGATES as PROVEN
from errata.language.near_support import near_hash_obstacle, near_obstacle, near_page
from errata.language.nodes import AGGREGATES, Aggregate, Filter, Group, Output, Projection, Scan
from errata.language.plan import Field, Plan, Source, SourceKind
from errata.model.columns import ColumnType, TypeKind
from fixtures.plans.expressions import COLUMNS, read

FIELDS = (Field("id", BIGINT), Field("at", TIMESTAMP), *(Field(name, kind) for name, kind in COLUMNS.items()))
SCAN = Scan(Source("s", SourceKind.STREAM, FIELDS, ("id",), "at"), "x")


def _over(written: str) -> Plan:
    named = Projection(SCAN, tuple(Output(each.name, Ref(f"x.{each.name}", each.type)) for each in FIELDS))
    expr = read(written)
    return Filter(named, expr) if expr.type == BOOLEAN else Projection(named, (Output("out", expr),))


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("n0 + n1 * 2", None),
        ("n3 / n0", None),
        ("upper(s) like 'A%'", None),
        ("s ilike 'A%'", None),
        ("s like s", "s LIKE s is not the same near: a pattern that is no constant, or that Spark refuses"),
        (
            "s like 'a\\\\b'",
            "s LIKE 'a\\\\b' is not the same near: a pattern that is no constant, or that Spark refuses",
        ),
        ("s rlike '^[A-Z]+(x|y)?'", None),
        (
            "s rlike 'a$'",
            "s RLIKE 'a$' is not the same near: patterns of more than letters, sets, groups, ^ | * + ? {n}",
        ),
        ("ln(n3) > 1", "ln(n3) is not the same near: anything: the last bits differ"),
        ("n4 / 3", None),
        ("n5 / 3", "n5 / 3 is not the same near: decimals whose division has more than 38 digits on the way"),
        ("n4 div 3", "n4 DIV 3 is not the same near: decimals"),
        ("n4 * 3 + n0", None),
        ("n5 * n5", "n5 * n5 is not the same near: decimals whose exact result has more than 38 digits"),
        ("abs(n5) > 0", "abs(n5) is not the same near: decimals of more than 34 digits: Spark rounds them to 34"),
        ("cast(s as int)", None),
        ("cast(s as double)", None),
        (
            "try_cast(s as double)",
            "TRY_CAST(s AS DOUBLE) is not the same near: string to float, double and date by TRY_CAST",
        ),
        ("substring(s, 2, 3)", None),
        (
            "substring(s, n0)",
            "substring(s, n0) is not the same near: a start that is no constant, or counts from the end",
        ),
        ("case when n0 > 1 then exp(n3) else n3 end", "exp(n3) is not the same near: anything: the last bits differ"),
    ],
)
def test_what_stands_in_the_way_of_near(written: str, why: str | None) -> None:
    assert near_obstacle(_over(written)) == why


def test_aggregates_and_groups() -> None:
    decimal = ColumnType(TypeKind.DECIMAL, 38, 10)
    total = Aggregate("sum", Ref("x.n5", decimal), decimal)
    mean = Aggregate("avg", Ref("x.n3", DOUBLE), DOUBLE)
    count = Aggregate("count", None, BIGINT)
    assert near_obstacle(Group(SCAN, (Ref("x.s", STRING),), (mean, count))) is None
    assert (
        near_obstacle(Group(SCAN, (), (mean, total)))
        == "sum(x.n5) is not the same near: decimals of more than 28 digits"
    )
    by = Call("like", (Ref("x.s", STRING), Ref("x.s", STRING)), BOOLEAN)
    assert "LIKE" in (near_obstacle(Group(SCAN, (by,), (count,))) or "")
    assert near_obstacle(Filter(Group(SCAN, (), (mean, total)), Lit(True, BOOLEAN))) is not None


def test_every_aggregate_is_told_of() -> None:
    assert set(PROVEN) == set(AGGREGATES)


def test_the_page_is_what_the_command_prints() -> None:
    written = Path(__file__).resolve().parents[2] / "docs" / "near.md"
    assert written.read_text(encoding="utf-8") == near_page(), (
        "run `python -m errata.language.near_support > docs/near.md`"
    )


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (BIGINT, None),
        (STRING, None),
        (ColumnType(TypeKind.DECIMAL, 18, 2), None),
        (ColumnType(TypeKind.DECIMAL, 19, 2), "the hash of x.k, a decimal(19,2), is not the same near"),
        (DOUBLE, "the hash of x.k, a double, is not the same near"),
    ],
)
def test_keys_that_are_hashed_otherwise_near(kind: ColumnType, why: str | None) -> None:
    fields = (Field("at", TIMESTAMP), Field("k", kind))
    assert near_hash_obstacle(Scan(Source("s", SourceKind.STREAM, fields, ("k",), "at"), "x")) == why
