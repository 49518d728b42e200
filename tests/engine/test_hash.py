"""Stored lineage keeps a hash of rows' keys: engines that go on from each other's must make the same."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
from pyspark.sql import SparkSession

from errata.engine.frames import arrow_ddl, fetch_rows, frame_of_rows

ROWS = pa.table(
    {
        "i": pa.array([0, 1, -1, 2**31 - 1, -(2**31), None], pa.int32()),
        "l": pa.array([0, 1, -1, 2**63 - 1, -(2**63), None], pa.int64()),
        "s": pa.array(["", "a", "ß İ 𝄞 é", "x" * 100, " ", None]),
        "b": pa.array([True, False, True, False, True, None]),
        "d": pa.array([dt.date(1, 1, 1), dt.date(1969, 12, 31), *[dt.date(2026, 2, 28)] * 3, None]),
        "t": pa.array([0, 1, -1, 2**52, -(2**52), None], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "n": pa.array([decimal.Decimal(each) for each in ("0", "1.50", "-1.50", "99999.99", "-0.01")] + [None]).cast(
            pa.decimal128(10, 2)
        ),
        "w": pa.array([decimal.Decimal(each) for each in ("0", "1", "-1", "9" * 37, "-12")] + [None]).cast(
            pa.decimal128(38, 0)
        ),
        "x": pa.array([0.0, 1.5, -1.5, float("inf"), float("nan"), None]),
        "f": pa.array([0.0, 1.5, -1.5, float("inf"), float("nan"), None], pa.float32()),
    }
)


def test_hashes_are_the_same_on_both_engines(spark: SparkSession, near: SparkSession) -> None:
    texts = [f"xxhash64({name}) AS {name}" for name in ROWS.column_names]
    several = f"xxhash64({', '.join(name for name in ROWS.column_names if name != 'w')}) AS together"
    far, close = (
        fetch_rows(frame_of_rows(session, ROWS, arrow_ddl(ROWS.schema)).selectExpr(*texts, several))
        for session in (spark, near)
    )
    differ = [name for name in far.column_names if far[name].to_pylist() != close[name].to_pylist()]
    assert differ == ["w"], "language.near_support.near_hash_obstacle says which are not"
