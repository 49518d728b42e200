"""Rows at hand as DataFrames: all of them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from errata.engine.frames import frame_of_rows


@pytest.mark.parametrize("pieces", [[3], [0, 2], [0, 0, 4], [2, 0, 5, 3], [1, 0], [0], []])
def test_pieces_without_rows_do_not_end_the_rows(spark: SparkSession, pieces: list[int]) -> None:
    column = pa.chunked_array([pa.array(range(size), pa.int64()) for size in pieces], pa.int64())
    found = frame_of_rows(spark, pa.table({"n": column}), "n bigint").toArrow()
    assert found["n"].to_pylist() == column.to_pylist()
