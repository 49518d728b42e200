from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import DecimalType, TimestampType

from errata.engine.frames import stream_ddl
from errata.model.columns import Column, ColumnType
from errata.model.stream import Stream

KINDS = ["timestamp", "string", "boolean", "int", "bigint", "float", "double", "decimal(10,2)", "date"]
STREAM = Stream(
    name="all",
    columns=tuple(Column(f"c{number}", ColumnType.parse(kind)) for number, kind in enumerate(KINDS)),
    key=("c0", "c1"),
    order="c0",
)


def test_every_kind_has_a_spark_type(spark: SparkSession) -> None:
    schema = spark.createDataFrame([], stream_ddl(STREAM)).schema
    assert schema.names == list(STREAM.names)
    assert schema["c0"].dataType == TimestampType()
    assert schema["c7"].dataType == DecimalType(10, 2)
    assert all(field.nullable for field in schema)


def test_timestamps_come_back_as_instants_of_microseconds(spark: SparkSession) -> None:
    kind = pa.timestamp("us", tz="UTC")
    table = pa.table({"c0": pa.array([1_795_000_000_123_456], kind)})
    frame = spark.createDataFrame(table)
    assert frame.schema["c0"].dataType == TimestampType()
    assert frame.toArrow().column("c0").cast(pa.int64()).to_pylist() == [1_795_000_000_123_456]
