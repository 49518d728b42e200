"""Rows that are at hand, given to Spark."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def as_frame(session: SparkSession, rows: pa.Table, declared: str) -> DataFrame:
    """Rows as a DataFrame, their columns declared in Spark's words."""
    # In one piece: PySpark takes the first piece without rows for the end of them, and no column without a piece.
    whole = rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()
    return session.createDataFrame(whole, declared)
