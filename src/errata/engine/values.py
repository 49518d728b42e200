"""Rows in memory handed to an engine, and rows fetched from one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.engine.near import is_near


def as_frame(session: SparkSession, rows: pa.Table, declared: str) -> DataFrame:
    """Rows as a DataFrame, their columns declared in Spark's words."""
    # In one piece: PySpark takes the first piece without rows for the end of them, and no column without a piece.
    whole = rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()
    return _relation(session, whole) if is_near(session) else session.createDataFrame(whole, declared)


def _relation(session: SparkSession, rows: pa.Table) -> DataFrame:
    """The same without a question: `createDataFrame` asks the server for its settings and to read the schema."""
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame  # noqa: PLC0415 - takes a second to import
    from pyspark.sql.connect.plan import LocalRelation  # noqa: PLC0415 - as above
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - as above

    make: Any = ConnectFrame  # of a session of its own kind
    frame: DataFrame = make(LocalRelation(rows, from_arrow_schema(rows.schema).json()), session)
    return frame


def fetch(frame: DataFrame) -> pa.Table:
    """All rows of a frame, in this process."""
    if not is_near(frame.sparkSession):
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - takes a second to import

    # `toArrow` would ask for the schema first, which comes with the rows.
    near: Any = frame
    rows, schema = near._to_table()  # noqa: SLF001 - as it does
    return rows.cast(to_arrow_schema(schema, timezone="UTC"))
