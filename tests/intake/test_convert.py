"""The rules for text, value by value, against a converter in plain Python."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from errata.intake.convert import convert
from errata.intake.types import arrow_type
from errata.model.columns import ColumnType, TypeKind

KINDS = [ColumnType.parse(text) for text in ("boolean", "int", "bigint", "float", "double", "date", "timestamp")]
KINDS += [ColumnType.parse(text) for text in ("decimal(5,2)", "decimal(38,10)", "decimal(4,0)", "decimal(3,3)")]
BAD = object()
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?(?:(Z)|([+-])(\d\d):(\d\d))?", re.ASCII
)
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


def plain(text: str, kind: ColumnType) -> object:
    """One value, slowly: what it is, or BAD."""
    try:
        return _READ[kind.kind](text, kind)
    except (ValueError, ArithmeticError):
        return BAD


def plain_boolean(text: str, _: ColumnType) -> object:
    return {"true": True, "false": False}.get(text.lower(), BAD) if text.isascii() else BAD


def plain_int(text: str, kind: ColumnType) -> object:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return BAD
    bits = 31 if kind.kind is TypeKind.INT else 63
    return int(text) if -(2**bits) <= int(text) < 2**bits else BAD


def plain_double(text: str, kind: ColumnType) -> object:
    if re.fullmatch(r"[+-]?(?:nan|inf|infinity)", text, re.IGNORECASE | re.ASCII):
        return float(text)
    if not re.fullmatch(_NUMBER, text):
        return BAD
    value = float(text)
    if kind.kind is TypeKind.FLOAT:
        with np.errstate(over="ignore"):
            value = float(np.float32(text))
    return BAD if math.isinf(value) else value


def plain_decimal(text: str, kind: ColumnType) -> object:
    if not re.fullmatch(_NUMBER, text):
        return BAD
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return Decimal(0)
    if abs(exponent) > 500:
        return BAD
    scaled = int("".join(map(str, digits))) * 10 ** max(exponent + kind.scale, 0)
    cut = 10 ** max(-(exponent + kind.scale), 0)
    if scaled % cut or scaled // cut >= 10**kind.precision:
        return BAD
    return Decimal((sign, tuple(map(int, str(scaled // cut))), -kind.scale))


def plain_date(text: str, _: ColumnType) -> object:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return BAD
    return date.fromisoformat(text)


def plain_timestamp(text: str, _: ColumnType) -> object:
    match = _TIME.fullmatch(text)
    if match is None:
        return BAD
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    moment = datetime(year, month, day, hour, minute, second, int((match[7] or "").ljust(6, "0")), tzinfo=UTC)
    if match[9]:
        if int(match[10]) > 23 or int(match[11]) > 59:
            return BAD
        offset = timedelta(hours=int(match[10]), minutes=int(match[11]))
        moment = moment - offset if match[9] == "+" else moment + offset
    return moment


_READ = {
    TypeKind.BOOLEAN: plain_boolean,
    TypeKind.INT: plain_int,
    TypeKind.BIGINT: plain_int,
    TypeKind.FLOAT: plain_double,
    TypeKind.DOUBLE: plain_double,
    TypeKind.DECIMAL: plain_decimal,
    TypeKind.DATE: plain_date,
    TypeKind.TIMESTAMP: plain_timestamp,
}


ODD = [
    "0x1F",
    "nan(1)",
    "+5",
    "1e400",
    "-1e400",
    "1e39",
    "-inf",
    "+Infinity",
    "iNF",
    "TRUE",
    "fAlse",
    "t",
    "1",
    "0",
    "",
    " 1",
    "1 ",
    "0e40",
    "1e2",
    "1e-3",
    "0.000",
    "007",
    "-0",
    "é",
    "\n1",
    "1\n",
    "2026-11-18",
    "2026-11-18 10",
    "2026-11-18 10+01:00",
    "2026-11-18 10:11",
    "2026-02-30 00:00:00",
    "2026-02-30",
    "0001-01-01T00:00:00+00:01",
    "9999-12-31 23:59:59-00:01",
    "2026-11-18 02:00:00.1234567",
    "2026-11-18T02:00:00.1",
    "0000-01-01",
    "0000-01-01 00:00:00",
    "2026-11-18\n",
    "true\n",
    "٣",
    "ſ",
    "2e-311",
    "1.2300000000000000000000000000000000000000000000000",
]


def near_misses() -> st.SearchStrategy[str]:
    """Text that is of a type, or nearly."""
    times = st.datetimes().map(str)
    zones = st.sampled_from(["", "Z", "z", "+01:00", "-23:59", "+24:00", "+0100", "+01", " Z", "+00:60"])
    numbers = st.one_of(
        st.integers(-(2**64), 2**64).map(str),
        st.floats().map(repr),
        st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
        st.from_regex(rf"\A{_NUMBER}\Z"),
    )
    odd = st.sampled_from(ODD)
    return st.one_of(odd, numbers, st.builds(str.__add__, times, zones), st.dates().map(str), st.text(max_size=4))


def same(found: object, meant: object) -> bool:
    if isinstance(found, float) and isinstance(meant, float):
        return found == meant or (math.isnan(found) and math.isnan(meant))
    return found == meant


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(deadline=None)
@given(texts=st.lists(st.none() | near_misses(), max_size=8))
@example(texts=["2026-11-18 02:00:00", "2026-11-18T02:00:00Z", None, "2026-11-18 02:00:00+01:00"])
@example(texts=["1", "2", "true"])
@example(texts=["1.23" + "0" * 45])
@example(texts=["9" * 38])
@example(texts=["2e-311"])
def test_text_is_read_by_the_rules_whatever_stands_beside_it(kind: ColumnType, texts: list[str | None]) -> None:
    array, mask = convert(pa.array(texts, pa.string()), kind)
    assert array.type == arrow_type(kind)
    for row, text in enumerate(texts):
        meant = None if text is None else plain(text, kind)
        assert same(array[row].as_py(), None if meant is BAD else meant), (text, meant)
        assert bool(mask is not None and mask[row]) == (meant is BAD), text


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(deadline=None)
@given(text=near_misses())
def test_a_column_of_one_value_reads_as_it_does_among_others(kind: ColumnType, text: str) -> None:
    alone, _ = convert(pa.array([text]), kind)
    among, _ = convert(pa.array(["?", text, "!", text]), kind)
    assert same(alone[0].as_py(), among[1].as_py())
    assert same(alone[0].as_py(), among[3].as_py())


def test_slices_and_chunks_are_read_alone() -> None:
    whole = pa.array(["x", "1", "2", "0x3"])
    array, mask = convert(whole.slice(1, 2), ColumnType.parse("int"))
    assert (array.to_pylist(), mask) == ([1, 2], None)
    array, mask = convert(pa.chunked_array([["1"], ["x"]]), ColumnType.parse("int"))
    assert array.to_pylist() == [1, None]
    assert mask is not None
    assert mask.tolist() == [False, True]


NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
TYPED = [
    (pa.array([1, None], pa.int32()), "bigint", [1, None], []),
    (pa.array([1, 2**31], pa.int64()), "int", [1, None], [1]),
    (pa.array([1, 2**60 + 1], pa.int64()), "double", [1.0, None], [1]),
    (pa.array([2.0, 2.5, math.inf, math.nan]), "int", [2, None, None, None], [1, 2, 3]),
    (pa.array([0.1, 0.125, 1e9]), "decimal(5,2)", [Decimal("0.10"), None, None], [1, 2]),
    (pa.array([7, 1000]), "decimal(5,2)", [Decimal("7.00"), None], [1]),
    (pa.array([Decimal("1.250"), Decimal("1.255")]), "decimal(5,2)", [Decimal("1.25"), None], [1]),
    (pa.array([1e300, math.inf, 0.5]), "float", [None, math.inf, 0.5], [0]),
    (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms")), "timestamp", [NOON], []),
    (pa.array([1_000, 1_001], pa.timestamp("ns")), "timestamp", [datetime(1970, 1, 1, 0, 0, 0, 1, UTC), None], [1]),
    (pa.array([NOON], pa.timestamp("us", "America/New_York")), "timestamp", [NOON], []),
    (pa.array(["a", "b", "a"]).dictionary_encode(), "string", ["a", "b", "a"], []),
    (pa.array(["1", "x"], pa.large_string()), "int", [1, None], [1]),
    (pa.array([b"ok", b"\xff"], pa.binary()), "string", ["ok", None], [1]),
    (pa.array([True]), "boolean", [True], []),
    (pa.array([1, None]), "boolean", [None, None], [0]),
    (pa.nulls(2), "date", [None, None], []),
    (pa.array([date(2026, 11, 18)]), "timestamp", [datetime(2026, 11, 18, tzinfo=UTC)], []),
    (pa.array([NOON]), "date", [None], [0]),
]


@pytest.mark.parametrize(
    ("values", "kind", "meant", "bad"), TYPED, ids=lambda value: str(getattr(value, "type", value))
)
def test_typed_values_are_cast_without_loss(values: pa.Array, kind: str, meant: list[object], bad: list[int]) -> None:
    array, mask = convert(values, ColumnType.parse(kind))
    assert array.to_pylist() == meant
    assert ([] if mask is None else np.flatnonzero(mask).tolist()) == bad
