"""Declared summaries: what can be kept of a window, and what is refused with words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from errata.errors import UsageError
from errata.language.summaries import SketchKind, SummaryForm, read_summary
from errata.model.columns import Column, ColumnType
from errata.model.reduction import SummaryDeclaration
from errata.model.stream import Stream
from errata.model.time import HOUR

TYPES = {"id": "bigint", "time": "timestamp", "symbol": "string", "price": "decimal(10,2)", "x": "double"}


def stream(types: dict[str, str] | None = None) -> Stream:
    columns = tuple(Column(name, ColumnType.parse(kind)) for name, kind in (types or TYPES).items())
    return Stream("quotes", columns, ("id",), "time")


def form(aggregates: dict[str, str], group: tuple[str, ...] = ("symbol",), over: Stream | None = None) -> SummaryForm:
    return read_summary(over or stream(), SummaryDeclaration("hourly", HOUR, group, aggregates), "summary hourly")


def test_a_summary_is_taken_apart_into_exact_parts_and_sketches() -> None:
    found = form({"n": "count(*)", "mean": "AVG(price)", "users": "approx_count_distinct(id)", "p": "max(x)"})
    assert [each.name for each in found.plan.fields] == ["at", "symbol", "n", "mean", "users", "p"]
    assert [str(each.type) for each in found.plan.fields][2:] == ["bigint", "decimal(14,6)", "bigint", "double"]
    assert [(each.name, each.function) for each in found.exact] == [("n", "count"), ("mean", "avg"), ("p", "max")]
    assert [(each.name, each.kind) for each in found.sketches] == [("users", SketchKind.DISTINCT)]
    assert found.columns_read == ("time", "symbol", "price", "x", "id")


@pytest.mark.parametrize(
    ("aggregate", "group", "words"),
    [
        ("count(DISTINCT price)", ("symbol",), "does not follow from those of its parts"),
        ("stddev(x)", ("symbol",), "does not follow from those of its parts"),
        ("sum(price) / 2", ("symbol",), "each column of a summary is one aggregate"),
        ("sum(price * 2)", ("symbol",), "aggregates columns, not expressions"),
        ("price", ("symbol",), "neither grouped by nor within an aggregate"),
        ("sum(pric)", ("symbol",), "did you mean price"),
        ("count(*) AS a, count(*)", ("symbol",), "each column of a summary is one aggregate"),
        ("count(*)", ("x",), "cannot be in the group"),
        ("count(*)", ("symbl",), "did you mean symbol"),
        ("approx_percentile(symbol, 0.5)", (), "no column of numbers"),
        ("approx_percentile(price, 2)", (), "a share from 0 to 1"),
        ("approx_percentile(price, much)", (), "not a number"),
        ("impact(price)", (), "from 1 to 1000"),
        ("impact(price, 2, 3)", (), "how many values are kept"),
        ("impact(symbol, 2)", (), "no column of numbers"),
        ("histogram(price, 5, 1, 4)", (), "the least and the greatest value"),
        ("histogram(price, 0, 1, 0.5)", (), "from 1 to 1000"),
        ("impact(price, 20)", (), "is no column of it"),
        ("approx_count_distinct(x)", (), "int, bigint or string"),
        ("approx_count_distinct(pric)", (), "did you mean price"),
    ],
)
def test_what_cannot_be_kept_is_refused(aggregate: str, group: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError) as error:
        form({"n": aggregate}, group)
    assert words in str(error.value)


def test_names_windows_and_relations_are_checked() -> None:
    with pytest.raises(UsageError, match="two columns Symbol"):
        form({"Symbol": "count(*)", "symbol": "count(*)"})
    with pytest.raises(UsageError, match="computes something"):
        form({})
    with pytest.raises(UsageError, match="more than zero"):
        read_summary(stream(), SummaryDeclaration("s", 0, (), {"n": "count(*)"}), "summary s")


def test_the_digest_says_what_decides_about_the_parts() -> None:
    first = form({"n": "count(*)", "total": "sum(price)"})
    renamed = form({"total_price": "sum(price)", "rows": "count(*)"})
    assert renamed.digest == first.digest
    wider = stream({**TYPES, "price": "decimal(12,2)"})
    others = [
        form({"n": "count(*)", "total": "sum(x)"}),
        form({"n": "count(*)", "total": "sum(price)"}, ()),
        form({"n": "count(*)", "total": "sum(price)"}, over=wider),
        read_summary(stream(), replace(first.declaration, window=HOUR + 1), "summary hourly"),
    ]
    assert len({first.digest, *(each.digest for each in others)}) == 5
    assert form({"n": "count(*)", "p": "approx_percentile(x, 0.5)"}).digest != form({"n": "count(*)"}).sketch_digest


def test_approximations_are_no_columns() -> None:
    found = form({"n": "count(*)", "top": "impact(price, 20)", "spread": "histogram(x, -1, 2.5, 4)"})
    assert [each.name for each in found.plan.fields] == ["at", "symbol", "n"]
    assert {each.name: each.arguments for each in found.approximations} == {"top": (20.0,), "spread": (-1, 2.5, 4)}
    fewer = form({"n": "count(*)", "top": "impact(price, 10)", "spread": "histogram(x, -1, 2.5, 4)"})
    assert fewer.approximation_digest != found.approximation_digest
    assert fewer.digest == found.digest
