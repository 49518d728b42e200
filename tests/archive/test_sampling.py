"""The sampling hash in memory is Spark's, on both engines, and the bounds of samples are the same as SQL."""

from __future__ import annotations

import datetime as dt
import decimal
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from errata.archive.sampling import last_hash, near_sampling_obstacle, rows_of_sample, sampling_hashes
from errata.archive.scan_filter import sample_condition, sampling_hash_sql, with_rate_column
from errata.engine.frames import arrow_ddl, fetch_rows, frame_of_rows
from errata.engine.near import is_near
from errata.model.columns import Column, ColumnType
from errata.model.reduction import SamplingRates, hash_bound, uniform_rates
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

COUNT = 300


def a_number(chance: random.Random, bits: int) -> int:
    """Of any length, so that short ones are tried, too."""
    return chance.randrange(2 ** chance.randrange(1, bits)) * chance.choice((1, -1))


def values(kind: str, chance: random.Random) -> pa.Array:
    each = {
        "string": lambda: "".join(chance.choices("aßİ𝄞 é", k=chance.randrange(45))),
        "boolean": lambda: chance.random() < 0.5,
        "int": lambda: a_number(chance, 31),
        "bigint": lambda: a_number(chance, 63),
        "date": lambda: dt.date(1, 1, 1) + dt.timedelta(days=chance.randrange(3_000_000)),
        "timestamp": lambda: a_number(chance, 58),
        "decimal(9,2)": lambda: decimal.Decimal(a_number(chance, 29)).scaleb(-2),
        "decimal(18,4)": lambda: decimal.Decimal(a_number(chance, 59)).scaleb(-4),
        "decimal(38,6)": lambda: decimal.Decimal(a_number(chance, 125)).scaleb(-6, decimal.Context(prec=60)),
    }[kind]
    types = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "date": pa.date32(),
        "timestamp": pa.int64(),
        "decimal(9,2)": pa.decimal128(9, 2),
        "decimal(18,4)": pa.decimal128(18, 4),
        "decimal(38,6)": pa.decimal128(38, 6),
    }
    made = pa.array([each() for _ in range(COUNT)], types.get(kind, pa.string()))
    return made.cast(pa.timestamp("us", "UTC")) if kind == "timestamp" else made


KINDS = ("string", "boolean", "int", "bigint", "date", "timestamp", "decimal(9,2)", "decimal(18,4)")
WIDE = "decimal(38,6)"


def keyed_stream(kinds: tuple[str, ...]) -> Stream:
    columns = tuple(Column(f"k{at}", ColumnType.parse(kind)) for at, kind in enumerate(kinds))
    return Stream("s", (*columns, Column("at", ColumnType.parse("bigint"))), tuple(c.name for c in columns), "at")


def keyed_rows(kinds: tuple[str, ...], chance: random.Random) -> pa.Table:
    places = pa.array(range(COUNT), pa.int64())
    return pa.table({**{f"k{at}": values(kind, chance) for at, kind in enumerate(kinds)}, "at": places})


def test_the_hash_in_memory_is_that_of_both_engines(either: SparkSession, chance: random.Random) -> None:
    keys = [(kind,) for kind in KINDS] + [KINDS, tuple(chance.sample(KINDS, 3))]
    keys += [] if is_near(either) else [(WIDE,), ("string", WIDE, "int")]
    for kinds in keys:
        stream, rows = keyed_stream(kinds), keyed_rows(kinds, chance)
        hashed = frame_of_rows(either, rows, arrow_ddl(rows.schema)).selectExpr(
            "at", sampling_hash_sql(stream) + " AS h"
        )
        found = fetch_rows(hashed).sort_by("at")["h"].to_numpy()
        assert np.array_equal(found, sampling_hashes(rows, stream.key)), kinds


def test_null_and_dictionaries_are_hashed_as_spark_does(spark: SparkSession) -> None:
    plain = pa.table({"k0": pa.array(["a", None, "b", ""]), "k1": pa.array([1, 2, None, 4], pa.int32())})
    far = frame_of_rows(spark, plain, arrow_ddl(plain.schema)).selectExpr("xxhash64(k0, k1) AS h")
    coded = plain.set_column(0, "k0", plain["k0"].dictionary_encode())
    expected = fetch_rows(far)["h"].to_numpy().tolist()
    assert sampling_hashes(plain, ["k0", "k1"]).tolist() == expected
    assert sampling_hashes(coded, ["k0", "k1"]).tolist() == expected
    assert sampling_hashes(plain.slice(1), ["k0", "k1"]).tolist() == expected[1:]


def test_a_long_decimal_in_the_key_is_an_obstacle_near() -> None:
    assert near_sampling_obstacle(keyed_stream(KINDS)) is None
    assert "k1, a decimal(38,6)" in (near_sampling_obstacle(keyed_stream(("int", WIDE))) or "")


@given(st.floats(1e-25, 1))
def test_the_last_hash_is_just_below_the_bound(rate: float) -> None:
    assert LOWEST <= last_hash(rate) <= HIGHEST
    assert last_hash(rate) == (HIGHEST if rate == 1 else max(LOWEST, hash_bound(rate) - 1))


@given(st.floats(1e-6, 1), st.floats(1e-6, 1), st.integers(0, 2**32))
def test_samples_are_nested(one: float, other: float, seed: int) -> None:
    hashes = np.random.default_rng(seed).integers(LOWEST, HIGHEST, 200, endpoint=True)
    rows = pa.table({"at": np.arange(200)})
    low, high = (
        set(rows_of_sample(rows, hashes, rate)["at"].to_pylist()) for rate in (min(one, other), max(one, other))
    )
    assert low <= high


STREAM = keyed_stream(("bigint", "string"))


@pytest.mark.parametrize(
    "rates",
    [
        uniform_rates(0.3),
        uniform_rates(1.0),
        SamplingRates((LOWEST, 100, 200), (0.05, 1.0, 0.4)),
        SamplingRates(rates=(0.2,), column="k1", by_value={"A": 1.0, "it's": 0.7, None: 0.5}),
        SamplingRates(rates=(1.0,), column="at", by_value={"7": 0.1}),
    ],
)
def test_the_condition_and_the_rate_of_a_row_are_those_of_the_model(
    either: SparkSession, rates: SamplingRates, chance: random.Random
) -> None:
    rows = pa.table(
        {
            "k0": pa.array([a_number(chance, 63) for _ in range(COUNT)], pa.int64()),
            "k1": pa.array(chance.choices(["A", "B", "it's", None], k=COUNT)),
            "at": pa.array(range(COUNT), pa.int64()),
        }
    )
    frame = with_rate_column(frame_of_rows(either, rows, arrow_ddl(rows.schema)), STREAM, rates)
    condition = sample_condition(STREAM, rates)
    assert (condition is None) == rates.exact
    found = fetch_rows(frame if condition is None else frame.where(condition)).sort_by("at")
    expected = []
    for row, number in zip(rows.to_pylist(), sampling_hashes(rows, STREAM.key).tolist(), strict=True):
        value = None if rates.column is None or row[rates.column] is None else str(row[rates.column])
        rate = rates.rate_at(row["at"]) if rates.column is None else rates.by_value.get(value, rates.rates[0])
        if rate == 1 or number < hash_bound(rate):
            expected.append((row["at"], rate))
    assert list(zip(found["at"].to_pylist(), found["_rate"].to_pylist(), strict=True)) == expected


# Uniformity: whatever the keys are, samples take an equal share of every part of the rows.

DRAWN = 200_000
PARTS = 50


def chi_square(observed: np.ndarray, expected: np.ndarray) -> float:
    """How far counts are from what is expected, in standard deviations of a normal distribution (Wilson and Hilferty's
    approximation)."""
    freedom = len(observed) - 1
    statistic = float((((observed - expected) ** 2) / expected).sum())
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5


def drawn_keys(kind: str, chance: random.Random) -> dict[str, pa.Array]:
    numbers = np.arange(DRAWN)
    start = chance.randrange(2**40)
    return {
        "serial numbers": {"id": pa.array(numbers + start)},
        "ints": {"id": pa.array(numbers.astype(np.int32) - DRAWN // 2)},
        "seconds": {"id": pa.array(start + numbers * 1_000_000).cast(pa.timestamp("us", "UTC"))},
        "texts": {"id": pa.array([f"order-{start + number:012d}" for number in numbers.tolist()])},
        "symbols and seconds": {
            "who": pa.array([("AAPL", "IBM", "ORCL", "MSFT")[number % 4] for number in numbers.tolist()]),
            "id": pa.array(start + (numbers // 4) * 1_000_000).cast(pa.timestamp("us", "UTC")),
        },
    }[kind]


@pytest.mark.parametrize("kind", ["serial numbers", "ints", "seconds", "texts", "symbols and seconds"])
def test_samples_are_uniform_over_keys_groups_and_time(kind: str, chance: random.Random) -> None:
    keys = drawn_keys(kind, chance)
    hashes = sampling_hashes(pa.table(keys), list(keys))
    counts = np.histogram(hashes.astype(np.float64), bins=PARTS, range=(-(2.0**63), 2.0**63))[0]
    # A deviation of 6 is met by chance once in a thousand million times.
    assert chi_square(counts, np.full(PARTS, DRAWN / PARTS)) < 6
    for rate in (0.01, 0.1, 0.5):
        sampled = np.flatnonzero(hashes <= last_hash(rate))
        assert abs(len(sampled) - rate * DRAWN) < 6 * (DRAWN * rate * (1 - rate)) ** 0.5
        for part in (sampled * PARTS // DRAWN, sampled % PARTS, sampled % 4):
            counts = np.bincount(part)
            assert chi_square(counts, np.full(len(counts), len(sampled) / len(counts))) < 6, rate
