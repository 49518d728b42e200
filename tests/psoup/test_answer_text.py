"""Answers as JSON, CSV and Arrow: what is read back is what was there."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal

import pyarrow as pa

from errata.psoup.answer_text import arrow_answer, csv_answer, json_answer, json_change, type_name
from errata.psoup.following import Answer, AnswerChange

ROWS = pa.table(
    {
        "name": pa.array(['b"\n,x', "a", None], pa.string()),
        "price": pa.array([1.5, float("nan"), None], pa.float64()),
        "at": pa.array([0, 1_500_000, None], pa.timestamp("us")),
        "exact": pa.array([Decimal("1.10"), Decimal("-0.05"), None], pa.decimal128(10, 2)),
        "count": pa.array([2**53 + 1, -1, None], pa.int64()),
        "good": pa.array([True, False, None]),
    }
)


def test_json_has_the_head_the_columns_and_the_rows() -> None:
    found = json.loads(json_answer(Answer("h", 7, 1_500_000, True, ROWS), ROWS, {"total": 3, "next": None}))
    assert (found["handle"], found["commit"], found["now"]) == ("h", 7, "1970-01-01T00:00:01.500000")
    assert (found["total"], found["next"]) == (3, None)
    assert [each["type"] for each in found["columns"]] == [
        *("string", "double", "timestamp", "decimal(10,2)", "bigint", "boolean"),
    ]
    first, second, third = found["rows"]
    assert first == {
        "name": 'b"\n,x',
        "price": 1.5,
        "at": "1970-01-01T00:00:00.000000",
        "exact": 1.1,
        "count": 2**53 + 1,
        "good": True,
    }
    assert second["price"] == "NaN"
    assert set(third.values()) == {None}


def test_an_event_time_that_is_no_instant_stays_a_number() -> None:
    assert json.loads(json_answer(Answer("h", 7, 42, False, ROWS), ROWS.slice(0, 0), {}))["now"] == 42


def test_a_change_says_what_came_and_what_went_or_all() -> None:
    answer = Answer("h", 7, 0, True, ROWS)
    change = json.loads(json_change(AnswerChange(answer, ROWS.slice(0, 1), ROWS.slice(1, 1), whole=False)))
    assert ([each["name"] for each in change["added"]], [each["name"] for each in change["gone"]]) == (
        ['b"\n,x'],
        ["a"],
    )
    whole = json.loads(json_change(AnswerChange(answer, ROWS, ROWS.slice(0, 0), whole=True)))
    assert len(whole["rows"]) == 3
    assert "added" not in whole


def test_csv_and_arrow_read_back() -> None:
    header, first, *_ = csv.reader(io.StringIO(csv_answer(ROWS).decode(), newline=""))
    assert header == ROWS.schema.names
    assert first[:2] == ['b"\n,x', "1.5"]
    assert pa.ipc.open_stream(arrow_answer(ROWS)).read_all().equals(ROWS.combine_chunks()) is False, "NaN"
    assert pa.ipc.open_stream(arrow_answer(ROWS)).read_all().drop(["price"]).equals(ROWS.drop(["price"]))


def test_no_rows_are_an_answer_too() -> None:
    empty = ROWS.slice(0, 0)
    assert json.loads(json_answer(Answer("h", 1, 0, True, empty), empty, {}))["rows"] == []
    assert csv_answer(empty) == b"name,price,at,exact,count,good\n"
    assert pa.ipc.open_stream(arrow_answer(empty)).read_all().num_rows == 0


def test_types_have_their_declared_names() -> None:
    assert [type_name(each) for each in (pa.int32(), pa.date32(), pa.timestamp("us", "UTC"))] == [
        *("int", "date", "timestamp"),
    ]
