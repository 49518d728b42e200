"""What is written is read back the same by readers that are not ours."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.intake.encoding import csv_header, csv_lines, json_lines, plain_text
from errata.intake.formats import parse_csv

TIME = pa.timestamp("us", tz="UTC")


def one(values: list[object], kind: pa.DataType) -> list[str | None]:
    found: list[str | None] = plain_text(pa.array(values, kind)).to_pylist()
    return found


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (TIME, datetime(2026, 11, 18, 2, tzinfo=UTC), "2026-11-18T02:00:00.000000"),
        (TIME, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "1969-12-31T23:59:59.999999"),
        (pa.date32(), date(2026, 2, 3), "2026-02-03"),
        (pa.bool_(), True, "true"),
        (pa.int64(), -(2**63), "-9223372036854775808"),
        (pa.float64(), 0.1, "0.1"),
        (pa.float64(), 5e-324, "5e-324"),
        (pa.float64(), math.nan, "NaN"),
        (pa.float64(), -math.inf, "-Infinity"),
        (pa.float32(), 0.1, "0.1"),
        (pa.decimal128(20, 10), Decimal("-0.0000000001"), "-0.0000000001"),
        (pa.decimal128(20, 10), Decimal(0), "0.0000000000"),
        (pa.decimal128(38, 38), Decimal("0.5"), f"0.5{'0' * 37}"),
        (pa.decimal128(38, 0), Decimal(10**38 - 1), "9" * 38),
        (pa.decimal128(6, 2), Decimal("-1234.5"), "-1234.50"),
    ],
)
def test_values_have_one_spelling(kind: pa.DataType, value: object, text: str) -> None:
    assert one([value, None, value], kind) == [text, None, text]
    assert plain_text(pa.array([None, value], kind).slice(1)).to_pylist() == [text]


@given(st.lists(st.floats()))
def test_doubles_read_back_the_same(values: list[float]) -> None:
    for value, text in zip(values, one([*values], pa.float64()), strict=True):
        assert text is not None
        assert float(text) == value or (math.isnan(value) and math.isnan(float(text)))


@given(st.lists(st.decimals(min_value=-(10**8), max_value=10**8, places=9)))
def test_decimals_read_back_the_same_and_have_no_exponent(values: list[Decimal]) -> None:
    texts = one([*values], pa.decimal128(18, 9))
    assert [Decimal(text or "") for text in texts] == values
    assert not any("E" in (text or "") for text in texts)


# The csv module cannot read a NUL, and takes a carriage return without a line feed for the end of a line.
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
rows = st.lists(st.tuples(words | st.none(), st.integers(-5, 5) | st.none(), words))


def batch(values: list[tuple[str | None, int | None, str]]) -> pa.RecordBatch:
    columns = list(zip(*values, strict=True)) or [[], [], []]
    kinds = (pa.string(), pa.int32(), pa.string())
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], ["a", "n", "ü"]
    )


@given(rows)
def test_csv_is_read_back_by_pythons_reader(values: list[tuple[str | None, int | None, str]]) -> None:
    text = (csv_header(["a", "n", "ü"]) + csv_lines(batch(values))).decode()
    header, *found = csv.reader(io.StringIO(text, newline=""))
    assert header == ["a", "n", "ü"]
    assert found == [[a or "", "" if n is None else str(n), b] for a, n, b in values]


@given(rows)
def test_json_is_read_back_by_pythons_reader(values: list[tuple[str | None, int | None, str]]) -> None:
    # Not splitlines: it also breaks at characters that JSON lets stand.
    lines = json_lines(batch(values)).decode().split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == [{"a": a, "n": n, "ü": b} for a, n, b in values]


def test_nothing_and_the_empty_string_are_told_apart() -> None:
    assert csv_lines(batch([(None, None, ""), ("", 1, "x")])) == b',,""\n"",1,x\n'


def test_strings_are_quoted_only_when_needed() -> None:
    found = csv_lines(batch([("a,b", 1, 'say "hi"'), ("two words", 2, "a\nb"), (" edge", 3, "it's; fine")]))
    assert found.decode() == '"a,b",1,"say ""hi"""\ntwo words,2,"a\nb"\n" edge",3,it\'s; fine\n'


def test_json_has_no_number_for_nan() -> None:
    found = pa.RecordBatch.from_arrays([pa.array([math.nan, math.inf, None, 1.5])], ["d"])
    assert json_lines(found) == b'{"d":"NaN"}\n{"d":"Infinity"}\n{"d":null}\n{"d":1.5}\n'


def test_a_piece_of_a_batch_and_nothing_at_all() -> None:
    whole = batch([("a", 1, "x"), ("b", 2, "y"), ("c", 3, "z")])
    assert csv_lines(whole.slice(1, 1)) == b"b,2,y\n"
    assert csv_lines(whole.slice(0, 0)) == json_lines(whole.slice(3)) == b""


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [1, None, 3, None]),
        (pa.float64(), [None, 0.5]),
        (pa.string(), ["a", None, "b", ""]),
        (TIME, [None]),
        (pa.bool_(), [None, None]),
    ],
)
@pytest.mark.parametrize("columns", [1, 2])
def test_every_row_of_nulls_is_a_row_to_every_reader(kind: pa.DataType, values: list[object], columns: int) -> None:
    names = [f"c{number}" for number in range(columns)]
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)] * columns, names)
    text = csv_header(names) + csv_lines(batch)
    missing = [value in (None, "") for value in values]
    assert pd.read_csv(io.BytesIO(text))["c0"].isna().tolist() == missing
    read = list(csv.DictReader(io.StringIO(text.decode())))
    assert [row["c0"] == "" for row in read] == missing
    ours = parse_csv(csv_lines(batch), names)
    assert (ours.lines, len(ours.columns["c0"]), ours.bad) == (len(values), len(values), {})
    if columns > 1:
        assert [value is None for value in ours.columns["c0"].to_pylist()] == [value is None for value in values]
