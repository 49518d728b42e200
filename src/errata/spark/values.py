"""Rows that are at hand, given to Spark."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def as_frame(session: SparkSession, rows: pa.Table, declared: str) -> DataFrame:
    """Rows as a DataFrame, their columns declared in Spark's words."""
    # In one piece: PySpark takes the first piece without rows for the end of them.
    return session.createDataFrame(rows.combine_chunks(), declared)
