"""The near engine: that what it reads from files is what Spark reads there."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from errata.archive.bucket_files import parquet_bytes
from errata.engine.frames import frame_of_rows, join_sql

NAN = math.nan


ROWS = pa.table({"i": [1, 2, 3, 4], "x": [NAN, 1.0, -0.0, None]})


@pytest.fixture
def numbers(either: SparkSession, tmp_path: Path) -> DataFrame:
    """Rows in a file of an archive."""
    file = tmp_path / "x.parquet"
    file.write_bytes(parquet_bytes(ROWS))
    return either.read.schema("i bigint, x double").parquet(str(file))


def test_statistics_that_leave_nan_out_mislead_nobody(near: SparkSession, tmp_path: Path) -> None:
    """Those of a file that others have written."""
    file = tmp_path / "x.parquet"
    pq.write_table(ROWS, file)
    rows = near.read.schema("i bigint, x double").parquet(str(file))
    assert rows.where("x > 5D").toArrow()["i"].to_pylist() == [1]
    assert str(rows.selectExpr("max(x) AS most").toArrow()["most"].to_pylist()) == "[nan]"


@pytest.mark.parametrize(
    ("condition", "there"),
    [
        ("x > 5D", [1]),
        ("x = double('NaN')", [1]),
        ("x <=> double('NaN')", [1]),
        ("x IN (7D, double('NaN'))", [1]),
        ("NOT (x <= 1D)", [1]),
        ("x = 0D", [3]),
        ("x < 0D", []),
    ],
)
def test_no_row_is_passed_over_for_what_statistics_say(numbers: DataFrame, condition: str, there: list[int]) -> None:
    assert numbers.where(condition).toArrow()["i"].to_pylist() == there


def test_a_maximum_is_not_that_of_the_statistics(numbers: DataFrame) -> None:
    (most,) = numbers.selectExpr("max(x) AS most").toArrow()["most"].to_pylist()
    assert math.isnan(most)


def test_a_join_finds_nan(numbers: DataFrame, either: SparkSession) -> None:
    sought = frame_of_rows(either, pa.table({"k": [NAN, 7.0]}), "k double")
    assert join_sql(numbers, sought, "x = k", "left_semi").toArrow()["i"].to_pylist() == [1]
    assert sorted(join_sql(numbers, sought, "x = k", "left_anti").toArrow()["i"].to_pylist()) == [2, 3, 4]
