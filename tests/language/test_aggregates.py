"""Aggregate functions: the types that Spark gives them."""

from __future__ import annotations

import pytest

from errata.language.reading.expressions import aggregate_type
from errata.model.columns import ColumnType


@pytest.mark.parametrize(
    ("function", "argument", "result"),
    [
        *((each, kind, "bigint") for each in ("count",) for kind in ("string", "int", "decimal(38,10)")),
        *(
            (each, kind, kind)
            for each in ("min", "max", "first", "last")
            for kind in ("boolean", "date", "decimal(5,5)")
        ),
        ("sum", "int", "bigint"),
        ("sum", "bigint", "bigint"),
        ("sum", "float", "double"),
        ("sum", "decimal(10,2)", "decimal(20,2)"),
        ("sum", "decimal(36,36)", "decimal(38,36)"),
        ("avg", "int", "double"),
        ("avg", "decimal(10,2)", "decimal(14,6)"),
        ("avg", "decimal(37,20)", "decimal(38,24)"),
        ("avg", "decimal(36,36)", "decimal(38,38)"),
        ("stddev", "bigint", "double"),
        ("stddev", "decimal(10,2)", "double"),
        ("sum", "string", None),
        ("avg", "timestamp", None),
        ("stddev", "boolean", None),
    ],
)
def test_the_type_of_an_aggregate_is_that_of_spark(function: str, argument: str, result: str | None) -> None:
    expected = None if result is None else ColumnType.parse(result)
    assert aggregate_type(function, ColumnType.parse(argument)) == expected


def test_only_rows_can_be_counted_without_a_column() -> None:
    assert aggregate_type("count", None) == ColumnType.parse("bigint")
    assert aggregate_type("max", None) is None
