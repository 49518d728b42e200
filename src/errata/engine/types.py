"""The model's types in Spark's terms."""

from __future__ import annotations

import pyarrow as pa
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

from errata.model.columns import ColumnType, Kind
from errata.model.stream import Stream

_TYPES: dict[Kind, DataType] = {
    Kind.STRING: StringType(),
    Kind.BOOLEAN: BooleanType(),
    Kind.INT: IntegerType(),
    Kind.BIGINT: LongType(),
    Kind.FLOAT: FloatType(),
    Kind.DOUBLE: DoubleType(),
    Kind.DATE: DateType(),
    Kind.TIMESTAMP: TimestampType(),
}


def spark_type(kind: ColumnType) -> DataType:
    """Spark's type for a column; a timestamp is an instant, shown in UTC."""
    return DecimalType(kind.precision, kind.scale) if kind.kind is Kind.DECIMAL else _TYPES[kind.kind]


def ddl(stream: Stream) -> str:
    """The schema of a stream's rows as text, as Spark's readers and Arrow functions take it. Every field may be NULL,
    keys too: Spark never checks a promise in Parquet, and would drop `IS NULL` tests that it makes needless."""
    return ", ".join(f"`{column.name}` {spark_type(column.type).simpleString()}" for column in stream.columns)


def arrow_ddl(schema: pa.Schema) -> str:
    """An Arrow schema as the text that Arrow functions declare what they yield with."""
    return ", ".join(f"`{field.name}` {from_arrow_type(field.type).simpleString()}" for field in schema)
