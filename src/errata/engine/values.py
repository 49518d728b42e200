"""Rows in memory handed to an engine, and rows fetched from one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from errata.engine.near import is_near


def as_frame(session: SparkSession, rows: pa.Table, declared: str) -> DataFrame:
    """Rows as a DataFrame, their columns declared in Spark's words."""
    return _relation(session, rows) if is_near(session) else session.createDataFrame(_in_one_piece(rows), declared)


def _in_one_piece(rows: pa.Table) -> pa.Table:
    # PySpark takes the first piece without rows for the end of them, and no column without a piece.
    return rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()


def _relation(session: SparkSession, rows: pa.Table) -> DataFrame:
    """The same without a question: `createDataFrame` asks the server for its settings and to read the schema."""
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame  # noqa: PLC0415 - takes a second to import
    from pyspark.sql.connect.plan import LocalRelation  # noqa: PLC0415 - as above
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - as above

    make: Any = ConnectFrame  # of a session of its own kind
    whole = _in_one_piece(rows)
    frame: DataFrame = make(LocalRelation(whole, from_arrow_schema(whole.schema).json()), session)
    return frame


def made_once(frame: DataFrame) -> DataFrame:
    """A frame of few rows that several are made of. The near engine works it out now, and not again for each of them;
    the far one, for which a job costs more, as it sees fit."""
    if not is_near(frame.sparkSession):
        return frame
    return _relation(frame.sparkSession, fetch(frame))


def fetch(frame: DataFrame) -> pa.Table:
    """All rows of a frame, in this process."""
    if not is_near(frame.sparkSession):
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - takes a second to import

    # `toArrow` would ask for the schema first, which comes with the rows.
    near: Any = frame
    rows, schema = near._to_table()  # noqa: SLF001 - as it does
    return rows.cast(to_arrow_schema(schema, timezone="UTC"))
