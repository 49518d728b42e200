"""Bloom filters: what pyarrow writes is read rightly here, and Spark reads the same files."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from errata.archive.bloom import FALSE_POSITIVE_RATE, bloom_options, column_hashes, key_hashes, may_contain, xxh64
from errata.archive.bucket_files import MAX_ROW_GROUP_ROWS
from errata.archive.bucket_writer import BucketWriter
from errata.declare.warehouse import Warehouse
from errata.model.bucket import Role
from errata.model.columns import Column, ColumnType
from errata.model.stream import Stream

VECTORS = {
    b"": 0xEF46DB3751D8E999,
    b"a": 0xD24EC4F1A98C6E5B,
    b"as": 0x1C330FB2D66BE179,
    b"asd": 0x631C37CE72A97393,
    b"asdf": 0x415872F599CEA71E,
    b"Call me Ishmael. Some years ago--never mind how long precisely-": 0x02A2E85470D6FD96,
}
"""Those that implementations of xxHash publish in their own tests."""

COUNT = 3_000
DAY_ONE = datetime(1960, 1, 1, tzinfo=UTC)


def moment(number: int) -> datetime:
    return DAY_ONE + timedelta(microseconds=number * 977_777_777)


KINDS: dict[str, tuple[pa.DataType, object]] = {
    "text": (pa.string(), lambda number: "né " * (number % 20) + str(number)),
    "bytes": (pa.binary(), lambda number: b"\0" * (number % 70) + str(number).encode()),
    "int": (pa.int32(), lambda number: number * 700_000 - 2**31),
    "bigint": (pa.int64(), lambda number: number * 7**17 - 2**62),
    "time": (pa.timestamp("us", "UTC"), moment),
    "date": (pa.date32(), lambda number: date(1960, 1, 1) + timedelta(days=number)),
    "short": (pa.decimal128(5, 2), lambda number: Decimal(number - 2_000) / 100),
    "middling": (pa.decimal128(18, 3), lambda number: Decimal(number - 2_000) * 7**14 / 1000),
    "long": (pa.decimal128(38, 10), lambda number: Decimal(number - 2_000) * 7**30 / 100),
}


def column(kind: str, first: int, count: int) -> pa.Array:
    made, value = KINDS[kind]
    return pa.array([value(number) for number in range(first, first + count)], made)


def written(table: pa.Table, row_group: int = MAX_ROW_GROUP_ROWS) -> tuple[io.BytesIO, pq.FileMetaData]:
    file = io.BytesIO()
    options = bloom_options(table, table.column_names, row_group)
    pq.write_table(table, file, row_group_size=row_group, bloom_filter_options=options or None)
    return file, pq.read_metadata(file)


@pytest.mark.parametrize("data", VECTORS)
def test_hashes_are_those_that_are_published(data: bytes) -> None:
    assert xxh64(np.frombuffer(data, dtype=np.uint8).reshape(1, -1)).tolist() == [VECTORS[data]]
    assert column_hashes(pa.array([b"before", data, b"after"])[1:2]).tolist() == [VECTORS[data]]


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_hashes_of_several_are_those_of_each(values: list[bytes]) -> None:
    each = [int(xxh64(np.frombuffer(value, dtype=np.uint8).reshape(1, -1))[0]) for value in values]
    assert column_hashes(pa.array(values, pa.binary())).tolist() == each


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_there_is_found_and_little_else(kind: str) -> None:
    file, metadata = written(pa.table({kind: column(kind, 0, COUNT)}))
    group = metadata.row_group(0)
    there = may_contain(file, group, key_hashes(pa.table({kind: column(kind, 0, COUNT)})))
    absent = may_contain(file, group, key_hashes(pa.table({kind: column(kind, COUNT, COUNT)})))
    assert there is not None
    assert there.all()
    assert absent is not None
    assert absent.mean() < 2 * FALSE_POSITIVE_RATE


def test_as_many_are_let_through_as_was_declared() -> None:
    values = 13_500  # a filter for them is just about a power of two
    file, metadata = written(pa.table({"n": pa.array(range(values), pa.int64())}))
    absent = may_contain(file, metadata.row_group(0), key_hashes(pa.table({"n": np.arange(values, 40 * values)})))
    assert absent is not None
    assert FALSE_POSITIVE_RATE / 2 < absent.mean() < 2 * FALSE_POSITIVE_RATE


def test_a_filter_is_as_large_as_a_row_group_needs() -> None:
    rows = 4_000
    table = pa.table({"few": [str(number % 5) for number in range(rows)], "many": [str(n) for n in range(rows)]})
    options = bloom_options(table, ["few", "many"], 1_000)
    assert options == {
        "few": {"ndv": 5, "fpp": FALSE_POSITIVE_RATE},
        "many": {"ndv": 1_000, "fpp": FALSE_POSITIVE_RATE},
    }
    late = pa.table({"n": [0] * 1_000 + list(range(400))})
    assert bloom_options(late, ["n"], 1_000)["n"]["ndv"] == 400


def test_all_columns_of_a_key_must_agree() -> None:
    table = pa.table({"id": pa.array(range(100), pa.int64()), "who": [f"w{number}" for number in range(100)]})
    file, metadata = written(table)
    asked = pa.table({"id": pa.array([5, 5, 5_000], pa.int64()), "who": ["w5", "nobody", "w5"]})
    held = may_contain(file, metadata.row_group(0), key_hashes(asked))
    assert held is not None
    assert held.tolist() == [True, False, False]


def test_booleans_have_no_filter() -> None:
    table = pa.table({"flag": [True, False], "id": pa.array([1, 2], pa.int64())})
    file, metadata = written(table)
    asked = pa.table({"flag": [True, True], "id": pa.array([1, 7], pa.int64())})
    held = may_contain(file, metadata.row_group(0), key_hashes(asked))
    assert held is not None
    assert held.tolist() == [True, False]
    file, metadata = written(table.select(["flag"]))
    assert may_contain(file, metadata.row_group(0), key_hashes(asked)) is None


def test_files_without_filters_say_nothing() -> None:
    file = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2]}), file)
    group = pq.read_metadata(file).row_group(0)
    assert may_contain(file, group, key_hashes(pa.table({"id": [7]}))) is None


def test_filters_of_another_kind_say_nothing() -> None:
    file, metadata = written(pa.table({"id": [1, 2]}))
    offset = metadata.row_group(0).column(0).bloom_filter_offset
    length = metadata.row_group(0).column(0).bloom_filter_length
    good = file.getvalue()[offset : offset + length]
    asked = key_hashes(pa.table({"id": [1, 7]}))

    def held(data: bytes) -> list[bool] | None:
        chunk = SimpleNamespace(path_in_schema="id", bloom_filter_offset=0, bloom_filter_length=len(data))
        group = SimpleNamespace(num_columns=1, column=[chunk].__getitem__)
        found = may_contain(io.BytesIO(data), group, asked)
        return None if found is None else found.tolist()

    assert held(good) == [True, False]
    other_algorithm = good.replace(b"\x1c\x1c", b"\x1c\x2c", 1)
    assert other_algorithm != good
    assert held(other_algorithm) is None
    assert held(good[:-1]) is None


def filters_of(stream: Stream, folder: Path, role: Role) -> list[str]:
    rows = pa.table({"at": pa.array([1, 2], pa.int64()), "id": pa.array([7, 8], pa.int64()), "_pos": [0, 1]})
    warehouse = Warehouse(str(folder))
    bucket = BucketWriter(stream, warehouse, inline=False).write(rows, role)
    group = pq.read_metadata(warehouse.path(bucket.path or "")).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return [each.path_in_schema for each in columns if each.bloom_filter_offset is not None]


def test_buckets_have_filters_where_the_key_does_not_tell_the_place(tmp_path: Path) -> None:
    columns = (Column("at", ColumnType.parse("bigint")), Column("id", ColumnType.parse("bigint")))
    by_id = Stream("orders", columns, key=("id",), order="at")
    by_place = Stream("ticks", columns, key=("id", "at"), order="at")
    assert filters_of(by_id, tmp_path, Role.BASE) == ["id"]
    assert filters_of(by_place, tmp_path, Role.BASE) == []
    assert filters_of(by_id, tmp_path, Role.PENDING) == []


def test_spark_reads_files_with_filters(spark: SparkSession, tmp_path: Path) -> None:
    """Spark looks into the filters too: it finds what is there, and nothing of what is not."""
    count = 400
    evens = {kind: column(kind, 0, 2 * count).take(pa.array(range(0, 2 * count, 2))) for kind in KINDS}
    table = pa.table({"number": pa.array(range(0, 2 * count, 2), pa.int32()), **evens})
    path = str(tmp_path / "filtered.parquet")
    pq.write_table(table, path, row_group_size=100, bloom_filter_options=bloom_options(table, list(KINDS), 100))
    rows = spark.read.parquet(path)
    found = None
    for kind in KINDS:
        for wanted in (250, 251):
            value = column(kind, wanted, 1)[0].as_py()
            same = rows.where(rows[kind] == value).select("number")
            found = same if found is None else found.unionAll(same)
    assert found is not None
    assert found.toArrow()["number"].to_pylist() == [250] * len(KINDS)


def test_a_row_is_hashed_alike_among_few_rows_and_among_many() -> None:
    chance = np.random.default_rng(3)
    data, seeds = chance.integers(0, 256, (40_000, 13), dtype=np.uint8), chance.integers(0, 1 << 63, 40_000, np.uint64)
    for some in (None, seeds):
        alone = [xxh64(data[at : at + 1], None if some is None else some[at : at + 1]) for at in (0, 39_999)]
        assert xxh64(data, some)[[0, -1]].tolist() == [int(each[0]) for each in alone]
