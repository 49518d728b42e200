"""Simple SQL over rows in memory comes to what Spark makes of it, or is left to Spark."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from errata.engine.plans.at_hand import AtHand, added_up
from errata.engine.plans.simple_sql import NotSimpleError
from errata.engine.types import arrow_ddl
from errata.engine.values import as_frame
from errata.language.expr import DATE, DOUBLE, STRING, TIMESTAMP, Lit, literal
from fixtures.compiled import INTERPRETED, configured

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("f", pa.float32()),
        ("x", pa.float64()),
        ("m", pa.decimal128(10, 2)),
        ("w", pa.decimal128(38, 0)),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
        ("d", pa.date32()),
        ("o", pa.bool_()),
    ]
)
MOMENT = datetime(2026, 3, 1, 12, 30, 0, 5, tzinfo=UTC)


def rows(*columns: Sequence[Any]) -> pa.Table:
    return pa.table([pa.array(each, kind) for each, kind in zip(columns, SCHEMA.types, strict=True)], SCHEMA.names)


PLAIN = rows(
    [1, 7, -3],
    [2, 7, -9],
    [0.5, 1.25, 8.0],
    [1.5, 7.0, -0.25],
    [Decimal("1.25"), Decimal("7.00"), Decimal("-3.50")],
    [Decimal(2), Decimal(7), Decimal(10**20)],
    ["a", "b", "é"],
    [MOMENT, MOMENT.replace(year=1969), MOMENT],
    [date(2026, 3, 1), date(1969, 1, 1), date(2026, 3, 1)],
    [True, False, True],
)
WITH_NULLS = pa.concat_tables([PLAIN.slice(0, 2), rows(*[[None]] * len(SCHEMA))])
EDGES = rows(
    [2**31 - 1, -(2**31)],
    [2**63 - 1, -(2**63)],
    [math.inf, 0.0],
    [math.nan, -0.0],
    [Decimal("99999999.99"), Decimal("0.00")],
    [Decimal(10**37), Decimal(-(10**37))],
    ["", "a"],
    [MOMENT, MOMENT],
    [date(2026, 3, 1), date(2026, 3, 1)],
    [True, None],
)
HUGE = EDGES.set_column(3, "x", pa.array([1e300, -math.inf], pa.float64()))
TABLES = [PLAIN, WITH_NULLS, EDGES, HUGE]
CONSTANTS = ["3", "2L", "0.5D", "NULL", "0L", "CAST('Infinity' AS DOUBLE)"]
CONSTANTS += [
    literal(each)
    for each in (
        Lit("b'\\\n", STRING),
        Lit(1.5e300, DOUBLE),
        Lit(5_000_000, TIMESTAMP),
        Lit(date(2026, 3, 1), DATE),
    )
]


SOME = 300


def texts(chance: random.Random) -> list[str]:
    """Some of all operators and functions on pairs of columns and constants."""
    some = [*SCHEMA.names, *CONSTANTS]
    operators = ["+", "-", "*", "/", "=", "<>", "<", "<=", ">", ">="]
    found = [f"{left} {operator} {right}" for operator in operators for left, right in product(some, some)]
    found += [f"{name}({left}, {right})" for name in ("coalesce", "nullif") for left, right in product(some, some)]
    found += [f"IF(o, {left}, {right})" for left, right in product(some, some)]
    found += [f"CASE WHEN i > 1 THEN {each} WHEN o THEN NULL END" for each in some]
    kinds = ("DOUBLE", "BIGINT", "INT", "STRING", "FLOAT", "DECIMAL(38,0)", "DECIMAL(38,2)", "DECIMAL(12,2)", "DATE")
    found += [f"CAST({each} AS {kind})" for kind, each in product(kinds, SCHEMA.names)]
    found += [form.format(each) for each in some for form in ("-({})", "abs({})", "{} IS NULL", "{} IS NOT NULL")]
    found += [f"{name} IN ('b', 'c')" for name in "so"]
    found += [
        "pmod(n, 5L)",
        "pmod(n, 0L)",
        "unix_micros(t)",
        "timestamp_micros(n)",
        "NOT o",
        "o AND NULL",
        "o OR i = 1",
    ]
    found += ["try_add(n, 1L)", "try_subtract(n, i)", "i DIV 2", "n % 2", "concat(s, s)", "-2L", "`n` + 1"]
    return chance.sample(found, SOME)


def simply(table: pa.Table, some: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """What these come to, those that are simple."""
    found = {}
    for text in some:
        try:
            found[text] = AtHand(table).selectExpr(f"{text} AS r").table["r"]
        except NotSimpleError:
            continue
    return found


def values(column: pa.ChunkedArray) -> list[Any]:
    """The values; times as numbers, since Python has none beyond the year 9999."""
    kinds = {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64()}
    return column.cast(kinds.get(column.type, column.type)).to_pylist()


def compare(spark: SparkSession, table: pa.Table, some: Sequence[str]) -> int:
    """How many are simple; they are Spark's, in type and value."""
    found = simply(table, some)
    if not found:
        return 0
    frame = as_frame(spark, table, arrow_ddl(table.schema))
    right = frame.selectExpr(*(f"{text} AS r{number}" for number, text in enumerate(found))).toArrow()
    for (text, got), want in zip(found.items(), right.columns, strict=True):
        # Spark calls the type of nothing void.
        assert got.type == want.type, text
        assert repr(values(got)) == repr(values(want)), text
    return len(found)


def test_operators_and_functions_are_sparks(spark: SparkSession, chance: random.Random) -> None:
    with configured(spark, INTERPRETED):
        counts = [compare(spark, table, texts(chance)) for table in TABLES]
    assert min(counts) > SOME // 20
    assert max(counts) > SOME // 5


class Nested:
    """Random nested texts; what binds stronger is not in parentheses."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def number(self, depth: int) -> str:
        if not depth:
            return self.chance.choice(["i", "n", "x", "3", "2L", "0.5D"])
        left, right = self.number(depth - 1), self.number(depth - 1)
        forms = [f"{left} {self.chance.choice('+-*')} {right}", f"({left}) / ({right})", f"-{self.number(0)} + {left}"]
        forms += [f"IF({self.truth(depth - 1)}, {left}, {right})", f"coalesce({left}, {right})", f"nullif({left}, 3)"]
        forms += [f"CASE WHEN {self.truth(depth - 1)} THEN {left} ELSE {right} END", f"CAST({left} AS DOUBLE)"]
        return self.chance.choice(forms)

    def truth(self, depth: int) -> str:
        if not depth:
            return self.chance.choice(["o", "s = 'a'", "i > 1", "TRUE"])
        left, right = self.truth(depth - 1), self.truth(depth - 1)
        forms = [
            f"{left} AND {right}",
            f"{left} OR {right}",
            f"NOT {left}",
            f"({left}) IS NULL",
            f"({left} OR {right})",
        ]
        forms += [
            f"{self.number(depth - 1)} {self.chance.choice(['<', '<=', '<>', '=', '>='])} {self.number(depth - 1)}"
        ]
        forms += [f"{self.number(depth - 1)} IS NOT NULL", f"i > 1 IS NULL AND {left}"]
        return self.chance.choice(forms)


def test_what_is_nested_is_read_as_spark_reads_it(spark: SparkSession, chance: random.Random) -> None:
    make = Nested(chance)
    some = [make.number(chance.randint(1, 4)) for _ in range(60)] + [
        make.truth(chance.randint(1, 4)) for _ in range(60)
    ]
    with configured(spark, INTERPRETED):
        assert sum(compare(spark, table, some) for table in (PLAIN, WITH_NULLS)) > 40


AGGREGATES = [f"{name}({each})" for name in ("sum", "min", "max") for each in [*SCHEMA.names, "NULL", "1L", "-(n)"]]
AGGREGATES += ["count_if(i > 1)", "count_if(NULL)", "sum(x) FILTER (WHERE i > 1)", "max(s) FILTER (WHERE o)"]


@pytest.mark.parametrize("table", [*TABLES, PLAIN.slice(0, 0)])
@pytest.mark.parametrize("by", ["s", "o", "t", "m", "x"])
def test_aggregates_are_sparks(spark: SparkSession, table: pa.Table, by: str) -> None:
    twice = pa.concat_tables([table, table.slice(1), table.slice(1)])
    found = {}
    for text in AGGREGATES:
        try:
            found[text] = added_up(AtHand(twice), [by], [f"{text} AS r"])
        except NotSimpleError:
            continue
    assert found or by == "x"
    with configured(spark, INTERPRETED):
        frame = as_frame(spark, twice, arrow_ddl(twice.schema)).coalesce(1)
        wanted = (
            frame.groupBy(by).agg(*(sf.expr(f"{text} AS r{at}") for at, text in enumerate(found))).toArrow()
            if found
            else None
        )
    for at, (text, got) in enumerate(found.items()):
        assert isinstance(got, AtHand)
        assert wanted is not None
        want = wanted.select([by, f"r{at}"]).rename_columns([by, "r"])
        assert got.table.schema.types == want.schema.types, text
        assert sorted(map(repr, got.table.to_pylist())) == sorted(map(repr, want.to_pylist())), text


def test_rows_are_chosen_put_together_and_multiplied_as_in_spark(spark: SparkSession) -> None:
    def made(frame: Any) -> Any:
        some = frame.filter("i > 1 OR o IS NULL").selectExpr("i", "s", "NULL AS p", "1 AS q")
        both = some.unionAll(frame.selectExpr("i", "s", "x AS p", "2L AS q").drop("nothing"))
        return both.selectExpr("*", "explode(sequence(pmod(q, 3L), 9L, 4L)) AS e").drop("s")

    with configured(spark, INTERPRETED):
        want = made(as_frame(spark, WITH_NULLS, arrow_ddl(SCHEMA))).toArrow()
    got = made(AtHand(WITH_NULLS)).table
    assert got.schema.names == want.schema.names
    assert got.schema.types == want.schema.types
    assert sorted(map(repr, got.to_pylist())) == sorted(map(repr, want.to_pylist()))


@pytest.mark.parametrize(
    "text",
    [
        "i +",
        "i i",
        "(i",
        "i AS",
        "i + 1",
        "CASE END",
        "CAST(i DOUBLE)",
        "1.5 AS a",
        "9223372036854775808L AS a",
        "t.i AS a",
        "max(i) OVER () AS a",
        "'a\\_' AS a",
        "TIMESTAMP '2026' AS a",
        "i ? 1 AS a",
        "missing AS a",
        "CAST(i AS BINARY) AS a",
    ],
)
def test_what_is_not_simple_is_not_guessed(text: str) -> None:
    with pytest.raises(NotSimpleError):
        AtHand(PLAIN).selectExpr(text)
