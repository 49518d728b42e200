"""Operations on DataFrames written as SQL text, Spark types of the model's columns, and rows passed to and from an
engine.

A `pyspark.sql.functions` column belongs to a classic session or to Spark Connect, and a process may have both. Text
belongs to neither: with these functions a plan is compiled in the same way for every engine.
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
    """SQL text as a column for the session that the frame belongs to."""
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
    """Select columns as SQL. Columns that are only renamed are passed to the near engine without SQL: parsing a text
    takes longer than running it, and the engine keeps some kilobytes of each text for good."""
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
    """One row for each group of the named columns, with aggregates as SQL."""
    return frame.groupBy(*by).agg(*(sql_column(frame, text) for text in aggregates))


def with_columns(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """The frame with columns from SQL added, or replaced where the name exists."""
    return frame.withColumns({name: sql_column(frame, text) for name, text in columns.items()}) if columns else frame


def join_sql(left: DataFrame, right: DataFrame, condition: str, how: str = "inner") -> DataFrame:
    """A join on a condition as SQL. Column names of both sides must differ."""
    return left.join(right, sql_column(left, condition), how)


def broadcast_frame(frame: DataFrame) -> DataFrame:
    """The frame, marked for broadcast to every task."""
    return frame.hint("broadcast")


def union_by_name(frames: Iterable[DataFrame]) -> DataFrame:
    """The rows of one or more frames whose columns have the same names."""
    # Called on the frame: `DataFrame.unionByName` belongs to the kind of session that the process began with.
    return reduce(lambda left, right: left.unionByName(right), frames)


def union_by_position(*frames: DataFrame) -> DataFrame:
    """The rows of one or more frames with the same columns by position, under the names of the first."""
    # A union comes first: Sail loses the columns of a union that is the right side of another.
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
    """The schema of a stream's rows as DDL, for Spark's readers and Arrow functions. Every field is nullable, keys too:
    Spark never checks a NOT NULL of Parquet, and would drop `IS NULL` tests because of it."""
    return ", ".join(f"`{column.name}` {spark_type(column.type).simpleString()}" for column in stream.columns)


def arrow_ddl(schema: pa.Schema) -> str:
    """An Arrow schema as the DDL of an Arrow function's result."""
    return ", ".join(f"`{field.name}` {from_arrow_type(field.type).simpleString()}" for field in schema)


# Rows in memory passed to an engine, and rows fetched from one.


def frame_of_rows(session: SparkSession, rows: pa.Table, declared: str) -> DataFrame:
    """Rows as a DataFrame with the declared columns (DDL)."""
    return (
        _local_relation(session, rows)
        if is_near(session)
        else session.createDataFrame(_combined_chunks(rows), declared)
    )


def _combined_chunks(rows: pa.Table) -> pa.Table:
    # PySpark stops at the first chunk without rows, and needs at least one chunk.
    return rows.combine_chunks() if rows.num_rows else rows.schema.empty_table()


def _local_relation(session: SparkSession, rows: pa.Table) -> DataFrame:
    """`frame_of_rows` for Spark Connect without a round trip: `createDataFrame` asks the server for its settings and
    for the schema."""
    from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame  # noqa: PLC0415 - takes a second to import
    from pyspark.sql.connect.plan import LocalRelation  # noqa: PLC0415 - as above
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - as above

    make: Any = ConnectFrame  # of a session of its own kind
    whole = _combined_chunks(rows)
    frame: DataFrame = make(LocalRelation(whole, from_arrow_schema(whole.schema).json()), session)
    return frame


def materialize_small(frame: DataFrame) -> DataFrame:
    """A small frame that several others use. The near engine computes it once, now; the far engine, where a job costs
    more, as it sees fit."""
    if not is_near(frame.sparkSession):
        return frame
    return _local_relation(frame.sparkSession, fetch_rows(frame))


def fetch_rows(frame: DataFrame) -> pa.Table:
    """All rows of a frame as an Arrow table."""
    if not is_near(frame.sparkSession):
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - takes a second to import

    # `toArrow` would ask for the schema first, which comes with the rows anyway.
    near: Any = frame
    rows, schema = near._to_table()  # noqa: SLF001 - as it does
    return rows.cast(to_arrow_schema(schema, timezone="UTC"))
