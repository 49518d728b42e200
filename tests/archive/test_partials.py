"""Partial aggregates: whatever way rows are cut into pieces, the parts of the pieces combine into what plain Python
computes from all rows."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from errata.archive.partials import combined_parts, partial_aggregates, results_of
from errata.errors import ErrataError
from errata.intake.types import arrow_schema
from errata.language.summaries import SummaryForm, read_summary
from errata.model.columns import Column, ColumnType
from errata.model.reduction import SummaryDeclaration
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST
from fixtures.chance import seeds

TYPES = {
    "id": "bigint",
    "time": "timestamp",
    "symbol": "string",
    "i": "int",
    "b": "bigint",
    "d": "decimal(10,2)",
    "w": "decimal(38,6)",
    "x": "double",
    "f": "float",
    "day": "date",
    "ok": "boolean",
    "word": "string",
}
ADDED = ("i", "b", "d", "w", "x", "f")
COMPARED = (*ADDED, "day", "ok", "word", "time")
AGGREGATES = {
    "n": "count(*)",
    **{f"count_{name}": f"count({name})" for name in ("x", "word", "i")},
    **{f"{function}_{name}": f"{function}({name})" for function in ("sum", "avg") for name in ADDED},
    **{f"{function}_{name}": f"{function}({name})" for function in ("min", "max") for name in COMPARED},
}
MINUTE = 60_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


def stream_of(types: Mapping[str, str], order: str = "time") -> Stream:
    columns = tuple(Column(name, ColumnType.parse(kind)) for name, kind in types.items())
    return Stream("quotes", columns, ("id",), order)


def form_of(group: Sequence[str], aggregates: Mapping[str, str], window: int = 5 * MINUTE) -> SummaryForm:
    return read_summary(stream_of(TYPES), SummaryDeclaration("s", window, tuple(group), aggregates), "summary s")


def random_rows(draw: random.Random, count: int) -> list[Row]:
    def maybe(value: object) -> object:
        return None if draw.random() < 0.15 else value

    def double() -> float:
        return draw.choice([draw.uniform(-100, 100), -0.0, 0.0, math.nan, draw.uniform(-1, 1)])

    return [
        {
            "id": number,
            "time": EPOCH + timedelta(microseconds=draw.randrange(-20 * MINUTE, 20 * MINUTE)),
            "symbol": maybe(draw.choice(["A", "B", "ä"])),
            "i": maybe(draw.randrange(-(2**31), 2**31)),
            "b": maybe(draw.randrange(-(2**55), 2**55)),
            "d": maybe(Decimal(draw.randrange(-(10**9), 10**9)).scaleb(-2)),
            "w": maybe(Decimal(draw.randrange(-(10**32), 10**32)).scaleb(-6)),
            "x": maybe(double()),
            "f": maybe(draw.choice([1.5, -0.25, 1024.0, math.nan, -0.0])),
            "day": maybe(EPOCH.date() + timedelta(days=draw.randrange(-1000, 1000))),
            "ok": maybe(draw.random() < 0.5),
            "word": maybe(draw.choice(["", "a", "b", "ab", "é"])),
        }
        for number in range(count)
    ]


# The oracle: plain Python, row by row.


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def order_of(value: Any) -> Any:
    """NaN behind all numbers, texts by their bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def expected_value(function: str, name: str, rows: Sequence[Row]) -> Any:
    values = [row[name] for row in rows if row[name] is not None]
    if function == "count":
        return len(values)
    if not values:
        return None
    if function in ("min", "max"):
        return (min if function == "min" else max)(values, key=order_of)
    if isinstance(values[0], float):
        total: Any = math.nan if any(map(math.isnan, values)) else math.fsum(values)
        return total if function == "sum" else total / len(values)
    if isinstance(values[0], int):
        return sum(values) if function == "sum" else float(Fraction(sum(values), len(values)))
    with localcontext() as context:
        context.prec = 100
        exact = sum(values, Decimal(0))
        if function == "sum":
            return exact
        kind = form_of((), {"a": f"avg({name})"}).exact[0].type
        share = exact / len(values)
        return share.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)


def expected(form: SummaryForm, rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    of: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        start = micros(row["time"]) // form.window * form.window
        of[start, *(row[name] for name in form.declaration.group)].append(row)
    return {
        key: {
            each.name: len(some) if each.column is None else expected_value(each.function, each.column.name, some)
            for each in form.exact
        }
        for key, some in of.items()
    }


def found(form: SummaryForm, results: pa.Table) -> dict[tuple[Any, ...], Row]:
    rows = results.to_pylist()
    made = {
        (micros(row["at"]), *(row[name] for name in form.declaration.group)): {
            each.name: row[each.name] for each in form.exact
        }
        for row in rows
    }
    assert len(made) == len(rows), "a window and group is there twice"
    return made


def same(one: Any, other: Any, scale: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return (math.isnan(one) and math.isnan(other)) or abs(one - other) <= 1e-9 * max(scale, 1.0)
    return bool(one == other) and type(one) is type(other)


def assert_same(form: SummaryForm, results: pa.Table, rows: Sequence[Row]) -> None:
    right, got = expected(form, rows), found(form, results)
    assert got.keys() == right.keys()
    for key, values in right.items():
        for name, value in values.items():
            assert same(got[key][name], value, 2.0**40), (key, name, got[key][name], value)


@pytest.mark.parametrize("seed", seeds(__name__, 12))
def test_parts_of_any_pieces_combine_into_the_whole(seed: int) -> None:
    draw = random.Random(seed)
    form = form_of(
        draw.choice([(), ("symbol",), ("symbol", "ok"), ("i",)]), AGGREGATES, draw.choice([1, 5, 7]) * MINUTE
    )
    rows = random_rows(draw, draw.choice([0, 1, 3, 40, 300]))
    pieces: list[list[Row]] = [[] for _ in range(draw.randrange(1, 6))]
    for row in rows:
        draw.choice(pieces).append(row)
    parts = [partial_aggregates(form, pa.Table.from_pylist(piece, arrow_schema(form.stream))) for piece in pieces]
    at = draw.randrange(len(parts) + 1)
    once = combined_parts(form, [combined_parts(form, parts[:at]), combined_parts(form, parts[at:])])
    assert_same(form, results_of(form, once), rows)
    assert results_of(form, once).schema.names == [*(each.name for each in form.plan.fields), "_vs", "_ve"]


def test_results_have_the_types_and_lifetimes_of_the_query() -> None:
    form = form_of(("symbol",), AGGREGATES)
    rows = pa.Table.from_pylist(random_rows(random.Random(1), 20), arrow_schema(form.stream))
    results = results_of(form, partial_aggregates(form, rows))
    kinds = {"avg(d)": "decimal(14,6)", "sum(d)": "decimal(20,2)", "sum(w)": "decimal(38,6)", "avg(i)": "double"}
    for name, kind in kinds.items():
        column = name.replace("(", "_").rstrip(")")
        assert str(next(each.type for each in form.plan.fields if each.name == column)) == kind
    assert results["avg_d"].type == pa.decimal128(14, 6)
    assert results["sum_w"].type == pa.decimal128(38, 6)
    assert results["_vs"].to_pylist() == [micros(each) + form.window for each in results["at"].to_pylist()]
    assert set(results["_ve"].to_pylist()) == {HIGHEST}


def test_sums_beyond_their_type_are_refused() -> None:
    form = form_of((), {"total": "sum(b)"})
    rows = [{"id": at, "time": EPOCH, "b": 2**62} for at in range(2)]
    with pytest.raises(ErrataError, match="total: the sum does not fit"):
        results_of(form, partial_aggregates(form, pa.Table.from_pylist(rows, arrow_schema(form.stream))))
    rows.append({"id": 2, "time": EPOCH, "b": -5})
    fits = results_of(form, partial_aggregates(form, pa.Table.from_pylist(rows[1:], arrow_schema(form.stream))))
    assert fits["total"].to_pylist() == [2**62 - 5]


def test_windows_beyond_the_numbers_do_not_exist() -> None:
    stream = stream_of({"id": "bigint", "place": "bigint"}, "place")
    form = read_summary(stream, SummaryDeclaration("s", 1000, (), {"n": "count(*)"}), "summary s")
    rows = [{"id": at, "place": place} for at, place in enumerate([LOWEST, LOWEST + 1000, -1, 0, HIGHEST])]
    results = results_of(form, partial_aggregates(form, pa.Table.from_pylist(rows, arrow_schema(stream))))
    first = (LOWEST + 1000) // 1000 * 1000
    assert sorted(zip(results["at"].to_pylist(), results["n"].to_pylist(), strict=True)) == [
        (first, 1),
        (-1000, 1),
        (0, 1),
    ]
