"""Corrections as files bring them: what they do, which row they speak of, and what they give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from errata.intake.files import inspect_file
from errata.intake.layout import plan_splits, read_layout
from errata.intake.split_reader import SplitRows, read_split
from errata.model.batch import Op, SourceFile
from errata.model.columns import Column, ColumnType
from errata.model.stream import Stream

Write = Callable[[str, bytes], SourceFile]
T = "2026-11-18 02:00:00"


def stream_of(order: str, key: tuple[str, ...], **columns: str) -> Stream:
    return Stream("s", tuple(Column(name, ColumnType.parse(kind)) for name, kind in columns.items()), key, order)


def only(file: SourceFile, stream: Stream, default_op: Op = Op.INSERT) -> SplitRows:
    layout = read_layout(file, stream, default_op)
    (split,) = plan_splits([file], [layout])
    return read_split(split, layout, stream)


def replacing(file: SourceFile, stream: Stream) -> SplitRows:
    return only(file, stream, Op.REPLACE)


def told(found: SplitRows) -> list[tuple[str, str, str]]:
    rows = found.corrections.select(["_op", "_given", "_claimed"]).to_pylist()
    return [(row["_op"], row["_given"], row["_claimed"]) for row in rows]


def test_a_correction_may_name_its_row_by_old_values_alone(write: Write, quotes: Stream) -> None:
    body = f"""_op,time,price,_old_symbol
replace,{T},1,A
delete,{T},,B
replace,{T},2,
,{T},3,C
"""
    found = only(write("a.csv", body.encode()), quotes)
    assert told(found) == [("replace", "time,price", "symbol"), ("delete", "time,price", "symbol")]
    assert [(ordinal, reason) for ordinal, _, reason in found.bad] == [
        (2, "symbol: not given, and it is part of the key"),
        (3, "symbol: not given, and it is part of the key"),
    ]
    rows = [
        {"_op": "replace", "_old_time": T, "_old_symbol": "A", "price": None},
        {"_op": "replace", "_old_time": T, "symbol": "B", "_old_symbol": None},
        {"_op": "replace", "time": None, "_old_time": T, "symbol": "B"},
        {"_op": "delete", "time": None, "_old_time": T, "symbol": "B"},
        {"_op": "delete", "_old_time": T, "symbol": None},
        {"_op": "delete", "_old_time": "soon", "symbol": "A"},
    ]
    found = only(write("a.jsonl", "\n".join(map(json.dumps, rows)).encode()), quotes)
    assert told(found) == [
        ("replace", "price", "time,symbol"),
        ("replace", "symbol", "time,symbol"),
        ("delete", "time,symbol", "time"),
    ]
    # A replacement would make NULL of a key that it gives as such; to a deletion that means nothing.
    assert [reason for _, _, reason in found.bad] == [
        "time: empty, and it is part of the key",
        "symbol: empty, and it is part of the key",
        "_old_time: 'soon' is not a timestamp",
    ]


def test_an_order_is_never_made_null(write: Write) -> None:
    stream = stream_of("at", ("id",), id="int", at="timestamp", x="double")
    text = f"_op,id,at,_old_at\nreplace,1,,{T}\nreplace,2,,\nreplace,,{T},{T}\ndelete,3,,\n"
    found = only(write("a.csv", text.encode()), stream)
    assert told(found) == [("delete", "id,at", "at")]
    assert [reason for _, _, reason in found.bad] == [
        "at: empty, and it is the order",
        "at: empty, and it is the order",
        "id: empty, and it is part of the key",
    ]


def test_an_order_of_arrival_in_the_key_is_named_by_its_old_value(write: Write) -> None:
    stream = stream_of("arrived", ("id", "arrived"), id="int", arrived="timestamp", x="double")
    text = f"_op,id,x,_old_arrived\nreplace,1,2,{T}\nreplace,1,2,\n,1,2,\n"
    found = only(write("a.csv", text.encode()), stream)
    assert told(found) == [("replace", "id,x", "arrived")]
    assert found.rows.to_pylist() == [{"id": 1, "x": 2.0}]
    assert [reason for _, _, reason in found.bad] == ["arrived: not given, and it is part of the key"]


def test_rows_that_do_not_say_replace_where_that_is_the_default(write: Write, quotes: Stream, tmp_path: Path) -> None:
    found = replacing(write("a.csv", f"time,symbol,price\n{T},A,1\n{T},B,\n{T},,1\n".encode()), quotes)
    assert told(found) == [("replace", "time,symbol,price", "")] * 2
    assert (found.rows.num_rows, len(found.bad)) == (0, 1)
    ops = ["", "insert", "delete", "replace", "upsert"]
    found = replacing(write("b.csv", "".join(["time,symbol,_op\n", *(f"{T},A,{op}\n" for op in ops)]).encode()), quotes)
    assert [op for op, _, _ in told(found)] == ["replace", "delete", "replace"]
    assert (found.ordinals.tolist(), len(found.bad)) == ([1], 1)
    rows = [
        {"time": T, "symbol": "A"},
        {"time": T, "symbol": "A", "_op": None},
        {"_op": "insert", "time": T, "symbol": "B"},
    ]
    found = replacing(write("c.jsonl", "\n".join(map(json.dumps, rows)).encode()), quotes)
    assert told(found) == [("replace", "time,symbol", "")] * 2
    assert found.rows.column("symbol").to_pylist() == ["B"]
    pq.write_table(pa.table({"_old_time": [T], "symbol": ["A"], "price": [1]}), tmp_path / "d.parquet")
    assert told(replacing(inspect_file(UPath(tmp_path / "d.parquet")), quotes)) == [("replace", "symbol,price", "time")]


def test_sets_of_columns_are_told_row_by_row(write: Write, quotes: Stream) -> None:
    rows = [{"time": T, "symbol": "A"} | ({"price": 1} if n % 3 else {"_old_price": n}) for n in range(1_000)]
    found = replacing(write("a.jsonl", "\n".join(map(json.dumps, rows)).encode()), quotes)
    assert told(found) == [
        ("replace", ",".join(name for name in row if name != "_old_price"), "price" if "_old_price" in row else "")
        for row in rows
    ]


def test_rows_of_parquet_are_told_as_they_would_be_written(tmp_path: Path) -> None:
    stream = stream_of("at", ("at",), at="timestamp", day="date", n="int", f="float", d="decimal(9,3)", s="string")
    moments = pa.array([1_000, 2_001, 86_400_000_000_000, None], pa.int64()).cast(pa.timestamp("ns", "Europe/Vienna"))
    columns = {
        "at": moments,
        "day": pa.array([0, 1, 86_400, None], pa.int64()).cast(pa.timestamp("s")),
        "n": pa.array([7.0, 7.5, None, 8.0]),
        "f": pa.array([0.1, float("nan"), float("inf"), None], pa.float32()),
        "d": pa.array([0.1, 2.5, 1e-9, None], pa.float32()),
        "s": pa.array([1, 2, 3, None]),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = only(inspect_file(UPath(tmp_path / "a.parquet")), stream)
    bad = {ordinal: text for ordinal, text, _ in found.bad}
    # What is told is read again as what it was.
    again = tmp_path / "b.jsonl"
    again.write_text("".join(f"{text}\n" for text in [found.texts([0])[0], *bad.values()]))
    read = only(inspect_file(UPath(again)), stream)
    assert read.rows.to_pylist() == found.rows.to_pylist()
    assert json.loads(found.texts([0])[0])["at"] == "1970-01-01T00:00:00.000001"
    assert json.loads(bad[2])["day"] == "1970-01-02"
    assert [len(reason.split("; ")) for _, _, reason in read.bad] == [len(r.split("; ")) for _, _, r in found.bad]
