"""The language's functions are Spark's: of the same types, with the same constants, and as unable to fail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as pt

from errata.language.coercion import arithmetic_type, common_type, comparable
from errata.language.expr import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    SHIFT,
    STRING,
    TIMESTAMP,
    Call,
    Case,
    Cast,
    Expr,
    Lit,
    Ref,
    expr_sql,
)
from errata.language.functions import FUNCTIONS, TRUNCATED, castable, never_fails
from errata.language.reading.expressions import coerce_expr
from errata.model.columns import ColumnType, TypeKind
from fixtures.plans.expressions import COLUMNS, read

REFS = [Ref(name, kind) for name, kind in COLUMNS.items()]
NUMBERS = [each for each in REFS if each.name.startswith("n")]
CONSTANTS = [
    Lit(7, INT),
    Lit(-7, INT),
    Lit(0, INT),
    Lit(-(2**31), INT),
    Lit(5, BIGINT),
    Lit(-(2**63), BIGINT),
    Lit(2**40, BIGINT),
    Lit(1.5, ColumnType(TypeKind.FLOAT)),
    Lit(-1e300, DOUBLE),
    Lit(Decimal("0.05"), ColumnType(TypeKind.DECIMAL, 2, 2)),
    Lit(Decimal(-12), ColumnType(TypeKind.DECIMAL, 2, 0)),
    Lit(Decimal("123456789012345678901234567890.12345678"), ColumnType(TypeKind.DECIMAL, 38, 8)),
]
TEXTS = [
    Lit(text, STRING)
    for text in (
        "",
        "it's",
        '"',
        "\\",
        "\\\\n",
        "\n\r\t",
        "\0",
        "\x1a",
        "%\\_",
        "\\%",
        "é𝄞",
        "\\u0041",
        "--/*",
        "\\101",
        "${x}",
        "${",
    )
]
MOMENTS = [
    *(Lit(micros, TIMESTAMP) for micros in (0, -1, 1_700_000_000_123_456, -62_135_596_800_000_000)),
    Lit(date(1, 1, 1), DATE),
    Lit(date(9999, 12, 31), DATE),
]
TARGETS = [*map(ColumnType.parse, ("decimal(3,0)", "decimal(38,0)", "decimal(1,1)")), *COLUMNS.values()]


def _calls() -> Iterator[Expr]:
    constants = [Lit(2, INT), Lit(-3, INT), Lit("x", STRING)]
    units = [Lit(each, STRING) for each in TRUNCATED]
    for name, function in FUNCTIONS.items():
        for count in range(
            len(function.parameters) - function.optional_count, len(function.parameters) + 1 + function.variadic
        ):
            first = units if name == "date_trunc" else REFS
            second = [*NUMBERS, Ref("s", STRING), Ref("d", DATE), Ref("t", TIMESTAMP), *constants]
            second = second if count == 2 else [Ref("s", STRING), Ref("n0", INT), *constants[1:]]
            for args in product(first, *([second] * (count - 1))):
                if function.accepts(args) and (kind := function.result_type(args)) is not None:
                    yield Call(name, args, kind)


def _operators() -> Iterator[Expr]:
    for left, right in [*product(NUMBERS, repeat=2), *product(NUMBERS, CONSTANTS), *product(CONSTANTS[:3], NUMBERS)]:
        for name in ("+", "-", "*", "/", "%", "div"):
            if (kind := arithmetic_type(name, left, right)) is not None:
                yield Call(name, (left, right), kind)
    for left, right in product(REFS, repeat=2):
        if comparable(left.type, right.type):
            yield from (Call(name, (left, right), BOOLEAN) for name in ("=", "<=>", "<"))
            yield Call("nullif", (left, right), left.type)
        if (common := common_type([left.type, right.type])) is not None:
            both = (coerce_expr(left, common), coerce_expr(right, common))
            yield from (Call(name, both, common) for name in ("coalesce", "greatest", "least"))
            yield Call("if", (Ref("o", BOOLEAN), *both), common)
            yield Case(((Ref("o", BOOLEAN), both[0]),), both[1], common)
            yield Call("in", (*both, both[0]), BOOLEAN)
    yield from (Call("neg", (each,), each.type) for each in NUMBERS)
    yield from (Call(name, (each,), BOOLEAN) for each in REFS for name in ("is_null", "is_not_null"))
    yield from (Call(SHIFT, (Ref("t", TIMESTAMP), Lit(by, BIGINT)), TIMESTAMP) for by in (0, 1, -1_500_000, 60_000_000))
    texts = (Ref("s", STRING), Lit("a%\\_", STRING))
    yield from (Call(name, texts, STRING if name == "||" else BOOLEAN) for name in ("||", "like", "rlike"))


def _conversions() -> Iterator[Expr]:
    for each, kind in product(REFS, TARGETS):
        if castable(each.type, kind):
            yield from (Cast(each, kind), Cast(each, kind, safe=True))
    yield from (Lit(None, kind) for kind in TARGETS)


def _everything() -> list[Expr]:
    return [*_calls(), *_operators(), *_conversions(), *CONSTANTS, *TEXTS, *MOMENTS]


EXTREMES = (
    (0, 0, 0.0, 0.0, Decimal(0), Decimal(0), "", datetime(1970, 1, 1, tzinfo=UTC), date(1970, 1, 1), True),
    (
        2**31 - 1,
        2**63 - 1,
        float("inf"),
        1.7e308,
        Decimal("99999999.99"),
        Decimal("9999999999999999999999999999.9999999999"),
        "\\",
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        date(9999, 12, 31),
        False,
    ),
    (
        -(2**31),
        -(2**63),
        float("nan"),
        -1.7e308,
        Decimal("-99999999.99"),
        Decimal("-9999999999999999999999999999.9999999999"),
        "not a number",
        datetime(1, 1, 3, tzinfo=UTC),
        date(1, 1, 1),
        None,
    ),
    (-1, -1, -0.0, float("nan"), Decimal("-0.01"), Decimal("-0.0000000001"), "é%_", None, None, True),
    (None,) * 10,
)


def _schema() -> str:
    return ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


EVERYTHING = tuple(_everything())


@pytest.fixture(scope="module")
def extremes(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(list(EXTREMES), _schema())


def test_every_function_has_the_type_that_spark_gives_it(extremes: DataFrame) -> None:
    shown = EVERYTHING
    frame = extremes.select(*(sf.expr(expr_sql(each)).alias(f"c{at}") for at, each in enumerate(shown)))
    expected = [pt.DataType.fromDDL(str(each.type)) for each in shown]
    differing = [
        f"{expr_sql(each)}: {found.dataType.simpleString()} in Spark, {each.type} here"
        for each, found, kind in zip(shown, frame.schema.fields, expected, strict=True)
        if found.dataType != kind
    ]
    assert not differing, "\n".join(differing[:20])


AS_WRITTEN = (
    *(r"'\x41'", r"'\101'", r"'\0'", "'a''b'", "'a' 'b'", r"r'\d'", "\"it''s\"", '"a""b"', r"'\%\_\Z\b\q\\n\''"),
    *(
        r"'\u00e9\U0001F600'",
        r"'\400'",
        r"'\1'",
        "'\n'",
        ".5",
        "5.",
        "1e3",
        "1E-3",
        "-2147483648",
        "2147483648",
        "1.50",
    ),
    *(
        "00.5",
        "0.050",
        "0.00",
        "12345678901234567890",
        "5L",
        "1.5D",
        "1.5F",
        "5BD",
        "007",
        "- 5",
        "1.e3",
        "1e3F",
        "0.1F",
    ),
    *("-9223372036854775808", "DATE '2020-01-01'", "'-'", "true"),
)
"""As a person may write them; Spark reads them directly, and as they are printed."""


def test_constants_mean_the_same_in_spark(spark: SparkSession) -> None:
    constants = [*CONSTANTS, *TEXTS, *MOMENTS, *map(read, AS_WRITTEN)]
    written = spark.range(1).select(*(sf.expr(each).alias(f"c{at}") for at, each in enumerate(AS_WRITTEN)))
    printed = [expr_sql(each) for each in constants[-len(AS_WRITTEN) :]]
    again = spark.range(1).select(*(sf.expr(each).alias(f"c{at}") for at, each in enumerate(printed)))
    assert written.schema == again.schema
    assert written.collect() == again.collect()
    shown = [Call("unix_micros", (each,), BIGINT) if each.type == TIMESTAMP else each for each in constants]
    frame = spark.range(1).select(*(sf.expr(expr_sql(each)).alias(f"c{at}") for at, each in enumerate(shown)))
    assert list(frame.collect()[0]) == [each.value for each in constants]


def test_what_is_said_never_to_fail_does_not(extremes: DataFrame) -> None:
    never = [each for each in EVERYTHING if never_fails(each)]
    assert len(never) > 500
    extremes.select(*(sf.expr(expr_sql(each)).alias(f"c{at}") for at, each in enumerate(never))).write.format(
        "noop"
    ).mode("overwrite").save()
