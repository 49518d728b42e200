"""Finding rows by key against looking at every row; and that what cannot hold them is not read."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from errata.archive import bucket_files
from errata.archive.bucket_writer import BucketWriter
from errata.archive.revisions import locate as locating
from errata.archive.revisions import locate as probing
from errata.archive.revisions.locate import (
    UNKNOWN_PLACE,
    BucketLookup,
    BucketProbe,
    WantedKeys,
    is_local_lookup,
    locate_rows,
    located_schema,
    plan_lookups,
    probe_by_spark,
    probe_locally,
)
from errata.archive.schemas import unpack_table
from errata.catalog import bucket_writes, declarations, streams
from errata.catalog import buckets as index
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.database import Catalog
from errata.declare.warehouse import Warehouse
from errata.intake.types import arrow_schema
from errata.model.bucket import Bucket, Groups, NewBucket, Role
from errata.model.columns import Column, ColumnType
from errata.model.commit import Cause
from errata.model.stream import Stream

Row = Mapping[str, object]

SMALL_GROUP = 4
"""Rows of a row group here, so that small files have several."""


def a_stream(key: tuple[str, ...], group: tuple[str, ...] = ()) -> Stream:
    kinds = {"at": "bigint", "id": "bigint", "who": "string", "price": "decimal(9,2)", "note": "string"}
    columns = tuple(Column(name, ColumnType.parse(kind)) for name, kind in kinds.items())
    return Stream("orders", columns, key=key, order="at", group=group, max_ahead=None)


def a_row(at: int, number: int, who: str = "ann", **more: object) -> Row:
    return {"at": at, "id": number, "who": who, "price": None, "note": f"{at}/{number}/{who}", **more}


def rows_of(stream: Stream, rows: Sequence[Row], first: int = 0) -> pa.Table:
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=arrow_schema(stream))
    return table.append_column("_pos", pa.array(range(first, first + len(rows)), pa.int64()))


def as_bucket(new: NewBucket, number: int, batch_no: int | None = 1, floor: int = 0) -> Bucket:
    return Bucket(
        number,
        new.role,
        new.path,
        new.rows,
        new.size,
        new.vs_min,
        new.vs_max,
        new.groups,
        new.checksum,
        "batch",
        1,
        None,
        None,
        batch_no=batch_no,
        floor=floor,
    )


def keys_of(stream: Stream, keys: Sequence[tuple[object, ...]]) -> pa.Table:
    schema = pa.schema([arrow_schema(stream).field(name) for name in stream.key])
    return pa.Table.from_pylist([dict(zip(stream.key, key, strict=True)) for key in keys], schema=schema)


def in_order(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=lambda row: (row["_bucket"], row["_pos"]))


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_files, "MAX_ROW_GROUP_ROWS", SMALL_GROUP)


# What is found

moments = st.integers(0, 9)
rows = st.builds(a_row, moments, st.integers(0, 5), st.sampled_from(["ann", "bob", "cyd"]))
KEYS = [("at",), ("at", "who"), ("who", "at"), ("id",), ("id", "who"), ("who",)]


@st.composite
def archives(draw: st.DrawFn) -> tuple[Stream, list[tuple[list[Row], bool, bool, bool]], WantedKeys]:
    key = draw(st.sampled_from(KEYS))
    stream = a_stream(key, tuple(name for name in key if name == "who" and draw(st.booleans())))
    parts = draw(st.lists(st.tuples(st.lists(rows, min_size=1, max_size=14), *[st.booleans()] * 3), max_size=4))
    wanted = draw(st.lists(rows, min_size=1, max_size=6))
    places = None
    if draw(st.booleans()):
        places = np.array([draw(st.sampled_from([row["at"], 4, UNKNOWN_PLACE])) for row in wanted], dtype=np.int64)
    return stream, parts, WantedKeys(keys_of(stream, [tuple(row[name] for name in key) for row in wanted]), places)


def is_wanted(stream: Stream, wanted: WantedKeys, row: Row) -> bool:
    places = [UNKNOWN_PLACE] * wanted.keys.num_rows if wanted.places is None else wanted.places.tolist()
    return any(
        all(key[name] == row[name] for name in stream.key)
        and (stream.key_has_order or place in (UNKNOWN_PLACE, row["at"]))
        for key, place in zip(wanted.keys.to_pylist(), places, strict=True)
    )


@given(archives())
def test_all_rows_and_no_others_are_found(
    archive: tuple[Stream, list[tuple[list[Row], bool, bool, bool]], WantedKeys],
) -> None:
    stream, parts, wanted = archive
    expected: list[dict[str, object]] = []
    with TemporaryDirectory() as folder:
        warehouse = Warehouse(folder)
        buckets: list[Bucket] = []
        data: dict[int, bytes] = {}
        for number, (part, ordered, inline, compacted) in enumerate(parts):
            ordered_rows = sorted(part, key=lambda row: int(str(row["at"]))) if ordered else part
            table = rows_of(stream, ordered_rows, first=100 * number)
            batches = [7] * len(part)
            revisions: list[int | None] = [None] * len(part)
            if compacted:  # rows know their own origin, and were stored before there were notes
                batches, revisions = list(range(len(part))), [None, *range(1, len(part))]
                table = table.append_column("_batch", pa.array(batches, pa.int64()))
                table = table.append_column("_revision", pa.array(revisions, pa.int64())).drop_columns(["note"])
            new = BucketWriter(stream, warehouse, inline=inline).write(table, Role.BASE)
            buckets.append(as_bucket(new, number, None if compacted else 7, floor=number * 10))
            data |= {number: new.data} if new.data is not None else {}
            for place, row in enumerate(ordered_rows):
                if is_wanted(stream, wanted, row):
                    origin = {"_pos": 100 * number + place, "_batch": batches[place], "_revision": revisions[place]}
                    note = None if compacted else row["note"]
                    expected.append({**row, "note": note, **origin, "_bucket": number, "_floor": 10 * number})
        probe = BucketProbe(stream, wanted.with_places(stream))
        found = [
            probe.find_in_file(each, warehouse.path(each.bucket.path))
            if each.bucket.path is not None
            else probe.find_in_rows(each, unpack_table(data[each.bucket.bucket_id]))
            for each in plan_lookups(stream, wanted, buckets)
        ]
    table = pa.concat_tables([located_schema(stream).empty_table(), *found])
    assert table.schema == located_schema(stream)
    assert in_order(table) == expected


# Where is looked


def index_only(number: int, low: int, high: int, groups: Groups | None = None, **changes: int) -> Bucket:
    path, size, rows = f"{number}.parquet", changes.get("size", 100), changes.get("rows", 1)
    new = NewBucket(Role.BASE, rows, size, low, high, groups or Groups(), "sha256:00", path=path)
    return as_bucket(new, number)


def planned(sought: Sequence[BucketLookup]) -> dict[int, tuple[list[int], list[int]]]:
    return {each.bucket.bucket_id: (each.known.tolist(), each.unknown.tolist()) for each in sought}


def test_a_known_place_is_sought_where_it_lies_and_an_unknown_one_everywhere() -> None:
    stream = a_stream(("id",))
    wanted = WantedKeys(keys_of(stream, [(1,), (2,), (3,)]), np.array([20, UNKNOWN_PLACE, 10], dtype=np.int64))
    buckets = [index_only(1, 0, 10), index_only(2, 10, 20), index_only(3, 21, 30)]
    assert planned(plan_lookups(stream, wanted, buckets)) == {1: ([2], [1]), 2: ([2, 0], [1]), 3: ([], [1])}
    known = WantedKeys(wanted.keys, np.array([20, 5, 10], dtype=np.int64))
    assert planned(plan_lookups(stream, known, buckets)) == {1: ([1, 2], []), 2: ([2, 0], [])}


def test_the_key_tells_the_place() -> None:
    stream = a_stream(("who", "at"))
    wanted = WantedKeys(keys_of(stream, [("ann", 30), ("bob", 0)]))
    assert planned(plan_lookups(stream, wanted, [index_only(1, 0, 9), index_only(2, 10, 19)])) == {1: ([1], [])}


def test_groups_rule_buckets_out() -> None:
    stream = a_stream(("who", "id"), ("who",))
    wanted = WantedKeys(keys_of(stream, [("ann", 1), ("bob", 1), ("cyd", 1)]))
    buckets = [
        index_only(1, 0, 9, Groups(members=frozenset({("ann",), ("eve",)}))),
        index_only(2, 0, 9, Groups("b", "c")),
        index_only(3, 0, 9),
        index_only(4, 0, 9, Groups(members=frozenset({("eve",)}))),
    ]
    assert planned(plan_lookups(stream, wanted, buckets)) == {1: ([], [0]), 2: ([], [1]), 3: ([], [0, 1, 2])}


def test_groups_that_the_key_does_not_tell_rule_nothing_out() -> None:
    stream = a_stream(("id",), ("who",))
    wanted = WantedKeys(keys_of(stream, [(1,)]))
    bucket = index_only(1, 0, 9, Groups(members=frozenset({("ann",)})))
    assert planned(plan_lookups(stream, wanted, [bucket])) == {1: ([], [0])}


def test_little_is_read_here_and_much_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_files, "MAX_ROW_GROUP_ROWS", 65_536)
    large = index_only(1, 0, 9, size=8 << 20, rows=8 * 65_536)
    none, one = np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
    many, most = np.zeros(10_000, dtype=np.int64), np.zeros(100, dtype=np.int64)
    assert is_local_lookup([BucketLookup(large, one, none)] * 100)
    assert not is_local_lookup([BucketLookup(large, many, none)] * 100)
    assert is_local_lookup([BucketLookup(large, none, most)] * 20)
    assert not is_local_lookup([BucketLookup(large, none, most)] * 1_000)
    assert not is_local_lookup([BucketLookup(large, none, many)] * 100)


class Reads:
    """What is read of files: the row group and the columns."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, list[str]]] = []
        before = probing._read_group

        def counted(parquet: pq.ParquetFile, number: int, names: Sequence[str]) -> pa.Table:
            self.seen.append((number, list(names)))
            return before(parquet, number, names)

        monkeypatch.setattr(probing, "_read_group", counted)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def one_file(stream: Stream, folder: Path, rows: Sequence[Row]) -> tuple[Warehouse, Bucket]:
    warehouse = Warehouse(str(folder))
    return warehouse, as_bucket(
        BucketWriter(stream, warehouse, inline=False).write(rows_of(stream, rows), Role.BASE), 1
    )


def found_in(stream: Stream, warehouse: Warehouse, bucket: Bucket, wanted: WantedKeys) -> list[str]:
    files = [(warehouse.path(bucket.path or ""), each) for each in plan_lookups(stream, wanted, [bucket])]
    tables = probe_locally(BucketProbe(stream, wanted.with_places(stream)), files)
    return [note for table in tables for note in table["note"].to_pylist()]


def test_a_known_place_is_read_in_its_row_group_alone(tmp_path: Path, reads: Reads) -> None:
    stream = a_stream(("at", "who"))
    warehouse, bucket = one_file(stream, tmp_path, [a_row(10 * at, at) for at in range(12)])
    assert found_in(stream, warehouse, bucket, WantedKeys(keys_of(stream, [(50, "ann")]))) == ["50/5/ann"]
    assert [number for number, _ in reads.seen] == [1, 1, 1]
    reads.seen.clear()
    assert found_in(stream, warehouse, bucket, WantedKeys(keys_of(stream, [(50, "bob")]))) == []
    assert reads.seen == [(1, ["at"]), (1, ["who"])]
    reads.seen.clear()
    assert found_in(stream, warehouse, bucket, WantedKeys(keys_of(stream, [(55, "ann")]))) == []
    assert reads.seen == [(1, ["at"])]


def test_an_unknown_place_is_read_where_the_filters_let_it(tmp_path: Path, reads: Reads) -> None:
    stream = a_stream(("id", "who"))
    ids = [(17 * at) % 40 for at in range(40)]
    warehouse, bucket = one_file(stream, tmp_path, [a_row(at, ids[at], f"w{at}") for at in range(40)])
    assert found_in(stream, warehouse, bucket, WantedKeys(keys_of(stream, [(ids[21], "w21")]))) == [f"21/{ids[21]}/w21"]
    assert {number for number, _ in reads.seen} == {5}
    reads.seen.clear()
    assert found_in(stream, warehouse, bucket, WantedKeys(keys_of(stream, [(ids[21], "w20")]))) == []
    assert reads.seen == [(5, ["id", "who"])]
    reads.seen.clear()
    assert found_in(stream, warehouse, bucket, WantedKeys(keys_of(stream, [(20, "nobody")]))) == []
    assert reads.seen == []


def test_too_many_for_the_filters_are_found_all_the_same(
    tmp_path: Path, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "MAX_FILTER_VALUES", 1)
    stream = a_stream(("who",))
    warehouse, bucket = one_file(stream, tmp_path, [a_row(at, at, f"w{at}") for at in range(8)])
    assert found_in(stream, warehouse, bucket, WantedKeys(keys_of(stream, [("w3",), ("none",)]))) == ["3/3/w3"]
    assert {number for number, _ in reads.seen} == {0, 1}


def test_files_without_filters_are_read(tmp_path: Path, reads: Reads) -> None:
    stream = a_stream(("id",))
    table = rows_of(stream, [a_row(at, number) for at, number in enumerate([0, 10, 20, 30, 5, 15, 25, 35])])
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=SMALL_GROUP)
    warehouse = Warehouse(str(tmp_path))
    warehouse.write("old.parquet", file.getvalue())
    bucket = as_bucket(NewBucket(Role.BASE, 8, 100, 0, 7, Groups(), "sha256:00", path="old.parquet"), 1)
    assert found_in(stream, warehouse, bucket, WantedKeys(keys_of(stream, [(25,)]))) == ["6/25/ann"]
    assert {number for number, _ in reads.seen} == {0, 1}
    reads.seen.clear()
    assert found_in(stream, warehouse, bucket, WantedKeys(keys_of(stream, [(35,), (36,)]))) == ["7/35/ann"]
    assert {number for number, _ in reads.seen} == {1}  # told by the statistics of the key


# Both ways


def no_session() -> SparkSession:
    raise AssertionError("no session is needed")


def test_files_and_inline_buckets_are_found_through_the_catalog(
    catalog: Catalog, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = a_stream(("id", "who"))
    commit = declarations.apply_changes(catalog, Cause("apply"), write=[stream], drop=[], summary={})
    warehouse = Warehouse(str(tmp_path))
    first = rows_of(stream, [a_row(at, at, f"w{at}") for at in range(30)])
    second = rows_of(stream, [a_row(40 + at, at) for at in range(5)])
    third = rows_of(stream, [a_row(50 + at, 3) for at in range(2)])
    made = [BucketWriter(stream, warehouse, inline=False).write(each, Role.BASE) for each in (first, third)]
    made.append(BucketWriter(stream, warehouse, inline=True).write(second, Role.BASE))
    basis = streams.stream_state(catalog, stream.name)
    with catalog.writing() as connection:
        bucket_writes.add_buckets(connection, basis.stream_id, commit, BucketAddition(made))
    buckets = index.visible_buckets(catalog, basis.stream_id, commit)
    assert [bucket.inline for bucket in buckets] == [False, True, False]
    wanted = WantedKeys(
        keys_of(stream, [(3, "w3"), (3, "ann"), (4, "ann"), (5, "w5")]),
        np.array([UNKNOWN_PLACE, UNKNOWN_PLACE, 44, 6], dtype=np.int64),
    )
    here = locate_rows(no_session, catalog, warehouse, stream, wanted, buckets)
    assert sorted(here["note"].to_pylist()) == ["3/3/w3", "43/3/ann", "44/4/ann", "50/3/ann", "51/3/ann"]
    monkeypatch.setattr(locating, "MAX_LOCAL_BYTES", 0)
    there = locate_rows(lambda: spark, catalog, warehouse, stream, wanted, buckets)
    assert there.schema == here.schema
    assert in_order(there) == in_order(here)
    nothing = locate_rows(no_session, catalog, warehouse, stream, WantedKeys(keys_of(stream, [])), buckets)
    assert nothing.schema == here.schema
    assert nothing.num_rows == 0


def test_spark_and_this_process_agree_on_every_type(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {
        "time": "timestamp",
        "day": "date",
        "flag": "boolean",
        "code": "int",
        "sum": "decimal(24,4)",
        "ratio": "double",
    }
    columns = tuple(Column(name, ColumnType.parse(kind)) for name, kind in kinds.items())
    stream = Stream("all", columns, key=("day", "flag", "code", "sum"), order="time", max_ahead=None)
    warehouse = Warehouse(str(tmp_path))
    count = 20
    numbers = np.arange(count)
    table = pa.table(
        {
            "time": pa.array(numbers * 3_600_000_000 - 10**15, pa.int64()),
            "day": pa.array(numbers.astype(np.int32), pa.int32()),
            "flag": pa.array(numbers % 2 == 0),
            "code": pa.array(numbers, pa.int32()),
            "sum": pa.array(numbers, pa.int64()),
            "ratio": pa.array([None, float("nan"), *map(float, range(count - 2))], pa.float64()),
        }
    ).cast(arrow_schema(stream))
    table = table.append_column("_pos", pa.array(numbers))
    writer = BucketWriter(stream, warehouse, inline=False)
    buckets = [as_bucket(writer.write(table.slice(start, 5), Role.BASE), start) for start in range(0, count, 5)]
    chosen = table.take([0, 1, 7, 8, 19])
    wanted = WantedKeys(chosen.select(list(stream.key)))
    probe = BucketProbe(stream, wanted.with_places(stream))
    files = [(warehouse.path(each.bucket.path or ""), each) for each in plan_lookups(stream, wanted, buckets)]
    here, there = pa.concat_tables(probe_locally(probe, files)), probe_by_spark(spark, probe, files)
    assert here["_pos"].to_pylist() == [0, 1, 7, 8, 19]
    assert here.select(stream.names).to_pylist()[2:] == chosen.select(stream.names).to_pylist()[2:]
    assert list(map(str, in_order(there))) == list(map(str, in_order(here)))  # as text, NaN is NaN
