"""What plans do with rows is the same near as in Spark: columns in and out, groups, joins, order, aggregates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from errata.engine.failures import JOB_FAILURES, quiet_loggers
from errata.engine.frames import group_sql, join_sql
from errata.engine.plans.node_rows import aggregate_result, distinguishable, extreme_sql, summand_sql
from errata.language.expr import Ref
from errata.language.functions import NearDifference
from errata.language.near_support import AGGREGATES
from errata.language.nodes import AGGREGATES as FUNCTIONS
from errata.language.nodes import Aggregate
from errata.language.reading.expressions import aggregate_type
from errata.model.columns import ColumnType, TypeKind
from fixtures.edges import TYPES, table
from fixtures.engines_compared import plain, simple

ROWS = table()
ROUGH = 1e-9
_FLOATING = (TypeKind.FLOAT, TypeKind.DOUBLE)
_WHOLE = (TypeKind.INT, TypeKind.BIGINT)
FAILS = "fails"


def _lines(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [*zip(*(plain(rows[name]) for name in rows.column_names), strict=True)]


def _sorted(frame: DataFrame) -> list[str]:
    return sorted(map(repr, _lines(frame.toArrow())))


def _types(rows: pa.Table) -> list[pa.DataType]:
    return [simple(each) for each in rows.schema.types]


def test_columns_come_in_and_go_out(near: SparkSession) -> None:
    rows = near.createDataFrame(ROWS).toArrow()
    assert _types(rows) == _types(ROWS)
    assert _lines(rows) == _lines(ROWS)


def test_columns_of_files(spark: SparkSession, near: SparkSession, tmp_path: Path) -> None:
    given, written = tmp_path / "given.parquet", tmp_path / "written"
    pq.write_table(ROWS, given)
    rows = near.read.parquet(str(given))
    assert _lines(rows.toArrow().sort_by("row")) == _lines(ROWS)
    rows.write.parquet(str(written))
    for session in (spark, near):
        again = session.read.parquet(str(written)).toArrow().sort_by("row")
        assert _types(again) == _types(ROWS)
        assert _lines(again) == _lines(ROWS)


@pytest.mark.parametrize("name", TYPES)
def test_groups_and_distinct_values(spark: SparkSession, near: SparkSession, name: str) -> None:
    found = []
    for session in (spark, near):
        key = distinguishable(f"a_{name}", TYPES[name], near=session is near)
        rows = session.createDataFrame(ROWS).selectExpr(f"{key} AS k", "b_int")
        groups = _sorted(group_sql(rows, ["k"], ["count(1) AS n", "count(DISTINCT b_int) AS d"]))
        windows = rows.selectExpr("k", "count(1) OVER (PARTITION BY k) AS n").distinct()
        found.append((groups, _sorted(rows.select("k").distinct()), _sorted(windows)))
    assert found[0] == found[1]


JOINS = (("inner", "x = y"), ("full", "x = y"), ("left_semi", "x = y"), ("left_anti", "x = y"), ("inner", "x <=> y"))


@pytest.mark.parametrize("name", TYPES)
def test_joins(spark: SparkSession, near: SparkSession, name: str) -> None:
    found = []
    for session in (spark, near):
        rows = session.createDataFrame(ROWS)
        left = rows.selectExpr(f"{distinguishable(f'a_{name}', TYPES[name], near=True)} AS x").distinct()
        right = rows.selectExpr(f"{distinguishable(f'w_{name}', TYPES[name], near=True)} AS y", "1 AS one").distinct()
        found.append([_sorted(join_sql(left, right, condition, how)) for how, condition in JOINS])
    assert found[0] == found[1]


@pytest.mark.parametrize("name", TYPES)
def test_order(spark: SparkSession, near: SparkSession, name: str) -> None:
    found = []
    for session in (spark, near):
        rows = session.createDataFrame(ROWS).selectExpr(
            "row", f"{distinguishable(f'w_{name}', TYPES[name], near=True)} AS x"
        )
        ways = [f"x {way} NULLS {ends}, row" for way in ("ASC", "DESC") for ends in ("FIRST", "LAST")]
        numbered = rows.selectExpr(
            "row", *(f"row_number() OVER (ORDER BY {way}) AS n{at}" for at, way in enumerate(ways))
        )
        # The same, told by the engine's own words for it.
        ordered = rows.selectExpr("*", "row_number() OVER (ORDER BY x, row) AS m").orderBy("x", "row")
        found.append((_sorted(numbered), _lines(ordered.toArrow())))
    assert found[0] == found[1]


def _text(function: str, name: str, kind: ColumnType, *, near: bool) -> str:
    """An aggregate as the compiler spells it."""
    match function:
        case "stddev":
            return f"stddev_samp({name})"
        case "first" | "last":
            which = "min_by" if function == "first" else "max_by"
            return f"{which}(named_struct('v', {name}), named_struct('t', row)).v"
        case "min" | "max":
            return extreme_sql(function, name, str(kind), near=near)
        case "sum" | "avg":
            whole = Aggregate(function, Ref(name, kind), aggregate_type(function, kind) or kind)
            return aggregate_result(f"{function}({summand_sql(name, function, kind, near=near)})", whole, near=near)
    return f"{function}({name})"


def _aggregated(rows: DataFrame, *texts: str) -> list[tuple[pa.DataType, tuple[Any, ...]]] | None:
    """Aggregates of each group, in the groups' order; None where one cannot be computed."""
    named = [f"{text} AS v{at}" for at, text in enumerate(texts)]
    try:
        with quiet_loggers():
            found = group_sql(rows, ["g"], named).toArrow().sort_by("g").drop_columns("g")
    except JOB_FAILURES:
        return None
    return [(simple(each.type), plain(each)) for each in found.columns]


def _alike(one: Any, other: Any, function: str, kind: ColumnType) -> bool:
    rough = kind.kind in _FLOATING or function == "stddev" or (function == "avg" and kind.kind in _WHOLE)
    if rough and isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUGH, abs_tol=ROUGH)
    return repr(one).replace("'-0.0'", "0.0") == repr(other).replace("'-0.0'", "0.0")


def _tamed(function: str, column: str, kind: ColumnType) -> str:
    """Values whose order does not tell whether squares are infinite, and a sum is too large on the way."""
    if function == "stddev" and kind.kind in _FLOATING:
        return f"IF(abs({column}) < 1e150, {column}, NULL)"
    if function == "sum" and kind.kind is TypeKind.BIGINT:
        return f"IF({column} BETWEEN -36028797018963968L AND 36028797018963968L, {column}, NULL)"
    return column


def _differing(spark: SparkSession, near: SparkSession, name: str, functions: Sequence[str]) -> list[str]:
    """The aggregates of a type that are not the same near, for each of several groups."""
    kind, found = TYPES[name], []
    asked = [(function, which) for function in functions for which in "wb"]
    for session in (spark, near):
        columns = [f"{_tamed(each, f'{which}_{name}', kind)} AS {each}_{which}" for each, which in asked]
        rows = session.createDataFrame(ROWS).selectExpr("row", "row % 23 AS g", *columns)
        texts = [_text(each, f"{each}_{which}", kind, near=session is near) for each, which in asked]
        found.append(_aggregated(rows, *texts))
    far_found, near_found = found
    if far_found is None or near_found is None:
        return [] if far_found is near_found else list(functions)
    return [
        function
        for (function, _), far_one, near_one in zip(asked, far_found, near_found, strict=True)
        if far_one[0] != near_one[0]
        or not all(_alike(*pair, function, kind) for pair in zip(far_one[1], near_one[1], strict=True))
    ]


def _why_not(function: str, name: str) -> NearDifference | None:
    return AGGREGATES[function].obstacle(Ref("x", TYPES[name]))


def _functions(name: str) -> list[str]:
    return [function for function in FUNCTIONS if aggregate_type(function, TYPES[name]) is not None]


@pytest.mark.parametrize("name", TYPES)
def test_aggregates(spark: SparkSession, near: SparkSession, name: str) -> None:
    proven = [function for function in _functions(name) if _why_not(function, name) is None]
    assert len(proven) >= 5
    assert not _differing(spark, near, name, proven)


@pytest.mark.parametrize("function", [name for name, known in AGGREGATES.items() if known.differences])
def test_aggregates_that_go_to_spark_would_be_otherwise_near(
    spark: SparkSession, near: SparkSession, function: str
) -> None:
    unlikes = {name: why for name in TYPES if function in _functions(name) and (why := _why_not(function, name))}
    differing = {why.words for name, why in unlikes.items() if _differing(spark, near, name, [function])}
    assert differing == {each.words for each in AGGREGATES[function].differences}


SUMS = (
    ([2**63 - 1, 1], FAILS),
    ([-(2**63), -1], FAILS),
    ([2**63 - 1, -1], 2**63 - 2),
    ([None, None], None),
    ([-(2**63), 5], -(2**63) + 5),
)


@pytest.mark.parametrize(("values", "total"), SUMS)
def test_sums_that_do_not_fit(either: SparkSession, near: SparkSession, values: list[int | None], total: Any) -> None:
    rows = either.createDataFrame(pa.table({"g": pa.array([0, 0]), "x": pa.array(values, pa.int64())}))
    found = _aggregated(rows, _text("sum", "x", ColumnType(TypeKind.BIGINT), near=either is near))
    assert (FAILS if found is None else found[0][1][0]) == total
