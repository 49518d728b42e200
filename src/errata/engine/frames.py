"""Steps on frames that the DataFrame API takes as columns only, written as SQL text.

A `pyspark.sql.functions` column belongs to a classic session or to Spark Connect, and a process may have both. Text
belongs to neither: with these a plan is written once for every engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from errata.engine.near import is_near
from errata.model.columns import ColumnType, TypeKind
from errata.model.stream import Stream


def sql_column(frame: DataFrame, text: str) -> Column:
    """SQL text as a column that the frame's own session takes."""
    if is_connect_frame(frame):
        from pyspark.sql.connect.functions import expr as connect_expr  # noqa: PLC0415 - takes a second to import

        return connect_expr(text)
    from pyspark.sql.functions import expr  # noqa: PLC0415 - a client of Spark Connect may not need it

    return expr(text)


def is_connect_frame(frame: DataFrame) -> bool:
    """Whether a frame belongs to a session of Spark Connect."""
    return type(frame).__module__.startswith("pyspark.sql.connect")


_PLAIN = re.compile(r"(`[^`]+`|[A-Za-z_][A-Za-z_0-9]*)(?: AS (`[^`]+`|[A-Za-z_][A-Za-z_0-9]*))?")
_WORDS = frozenset({"NULL", "TRUE", "FALSE"})


def select_sql(frame: DataFrame, *texts: str) -> DataFrame:
    """Columns from SQL. To the near engine those that are only called otherwise go as they are: it takes longer to read
    a text than to carry it out, and keeps for good some kilobytes of each."""
    if not is_near(frame.sparkSession):
        return frame.selectExpr(*texts)
    from pyspark.sql.connect.functions import col, expr  # noqa: PLC0415 - takes a second to import

    def item(text: str) -> Any:
        plain = _PLAIN.fullmatch(text)
        if plain is None or plain[1].upper() in _WORDS:
            return expr(text)
        return col(plain[1]) if plain[2] is None else col(plain[1]).alias(plain[2].strip("`"))

    return frame.select(*(item(text) for text in texts))


def group_sql(frame: DataFrame, by: Sequence[str], aggregates: Sequence[str]) -> DataFrame:
    """One row for each group, by columns' names, with aggregates in SQL."""
    return frame.groupBy(*by).agg(*(sql_column(frame, text) for text in aggregates))


def with_columns(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """A frame with more columns from SQL, or with others in the place of those that are called so."""
    return frame.withColumns({name: sql_column(frame, text) for name, text in columns.items()}) if columns else frame


def join_sql(left: DataFrame, right: DataFrame, condition: str, how: str = "inner") -> DataFrame:
    """A join on a condition in SQL. Both sides' columns have different names."""
    return left.join(right, sql_column(left, condition), how)


def broadcast_frame(frame: DataFrame) -> DataFrame:
    """The frame, marked as small enough to go to every task whole."""
    return frame.hint("broadcast")


def union_by_name(frames: Iterable[DataFrame]) -> DataFrame:
    """The rows of one or more frames whose columns have the same names."""
    # Not by `DataFrame.unionByName` as a function: that is of the kind of session that the process began with.
    return reduce(lambda left, right: left.unionByName(right), frames)


def union_by_position(*frames: DataFrame) -> DataFrame:
    """The rows of one or more frames whose columns stand in the same places, under the names of the first."""
    # What is stacked already comes first: Sail loses the columns of a union that is the right side of another.
    return reduce(lambda left, right: left.unionAll(right), frames)


# The model's types in Spark's terms.

_SPARK_TYPES: dict[TypeKind, DataType] = {
    TypeKind.STRING: StringType(),
    TypeKind.BOOLEAN: BooleanType(),
    TypeKind.INT: IntegerType(),
    TypeKind.BIGINT: LongType(),
    TypeKind.FLOAT: FloatType(),
    TypeKind.DOUBLE: DoubleType(),
    TypeKind.DATE: DateType(),
    TypeKind.TIMESTAMP: TimestampType(),
}


def spark_type(kind: ColumnType) -> DataType:
    """Spark's type for a column; a timestamp is an instant, shown in UTC."""
    return DecimalType(kind.precision, kind.scale) if kind.kind is TypeKind.DECIMAL else _SPARK_TYPES[kind.kind]


def stream_ddl(stream: Stream) -> str:
    """The schema of a stream's rows as text, as Spark's readers and Arrow functions take it. Every field may be NULL,
    keys too: Spark never checks a promise in Parquet, and would drop `IS NULL` tests that it makes needless."""
    return ", ".join(f"`{column.name}` {spark_type(column.type).simpleString()}" for column in stream.columns)


def arrow_ddl(schema: pa.Schema) -> str:
    """An Arrow schema as the text that Arrow functions declare what they yield with."""
    return ", ".join(f"`{field.name}` {from_arrow_type(field.type).simpleString()}" for field in schema)


# Rows in memory handed to an engine, and rows fetched from one.


def frame_of_rows(session: SparkSession, rows: pa.Table, declared: str) -> DataFrame:
    """Rows as a DataFrame, their columns declared in Spark's words."""
    return (
        _local_relation(session, rows)
        if is_near(session)
        else session.createDataFrame(_combined_chunks(rows), declared)
    )


def _combined_chunks(rows: pa.Table) -> pa.Table:
    # PySpark takes the first piece without rows for the end of them, and no column without a piece.
    return rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()


def _local_relation(session: SparkSession, rows: pa.Table) -> DataFrame:
    """The same without a question: `createDataFrame` asks the server for its settings and to read the schema."""
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame  # noqa: PLC0415 - takes a second to import
    from pyspark.sql.connect.plan import LocalRelation  # noqa: PLC0415 - as above
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - as above

    make: Any = ConnectFrame  # of a session of its own kind
    whole = _combined_chunks(rows)
    frame: DataFrame = make(LocalRelation(whole, from_arrow_schema(whole.schema).json()), session)
    return frame


def materialize_small(frame: DataFrame) -> DataFrame:
    """A frame of few rows that several are made of. The near engine works it out now, and not again for each of them;
    the far one, for which a job costs more, as it sees fit."""
    if not is_near(frame.sparkSession):
        return frame
    return _local_relation(frame.sparkSession, fetch_rows(frame))


def fetch_rows(frame: DataFrame) -> pa.Table:
    """All rows of a frame, in this process."""
    if not is_near(frame.sparkSession):
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - takes a second to import

    # `toArrow` would ask for the schema first, which comes with the rows.
    near: Any = frame
    rows, schema = near._to_table()  # noqa: SLF001 - as it does
    return rows.cast(to_arrow_schema(schema, timezone="UTC"))
