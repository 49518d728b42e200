"""The predicate index finds, for every conjunction, exactly the rows that the slow oracle finds.

Values and constants are drawn from the same few, the awkward ones among them, so that bounds meet values. Rows are few
and conjunctions many, rows many and conjunctions few, so that each way of matching is taken; named tests assert which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Context, Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from errata.intake.types import arrow_type
from errata.model.columns import Column, ColumnType
from errata.model.registered import (
    ColumnFactor,
    Comparison,
    Conjunction,
    ConstantFactor,
    Factor,
    MemberFactor,
    NullFactor,
)
from errata.model.stream import Stream
from errata.psoup.index import bit_matching, indexing, keys, matches, predicate_index, row_matching, value_segments
from errata.psoup.index.predicate_index import PredicateIndex
from fixtures import chance
from fixtures.oracle.matching import first_difference, matching_rows

INT, BIGINT = 2**31, 2**63
WIDE = Context(prec=38)
DAYS, MICROS = 2_900_000, 253_402_300_799_999_999
"""The last day and the last microsecond of the year 9999, about."""

VALUES: Mapping[str, list[Any]] = {
    "int": [-INT, INT - 1, -1, 0, 1, 7, 8, 9, 255],
    "bigint": [-BIGINT, 1 - BIGINT, BIGINT - 1, BIGINT - 2, -1, 0, 1, 2**53, 2**53 + 1, 2**62, -(2**62)],
    "float": [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1.5, 2.0**-149, float(np.float32(0.1)), 3.0e38],
    "double": [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -5e-324, 1.7e308, -1.7e308, 0.1, 1.0, 2.0**53],
    "decimal(10,2)": [Decimal(each) for each in ("0.00", "-0.01", "0.01", "99999999.99", "-99999999.99", "1.50")],
    "decimal(38,9)": [
        *(
            Decimal(each)
            for each in ("0E-9", "9223372036.854775807", "18446744073.709551616", "-18446744073.709551616")
        ),
        *(Decimal(unscaled).scaleb(-9, WIDE) for unscaled in (1, -1, 10**38 - 1, 1 - 10**38, 2**64, 2**127 // 10**9)),
    ],
    "string": ["", "a", "A", "ab", "a\x00", "ä", "z", "￿", "\U0001f600", "\U00010000", "é", "é", " "],
    "boolean": [False, True],
    "date": [-719_162, 0, -1, 1, DAYS],
    "timestamp": [-62_135_596_800_000_000, 0, -1, 1, MICROS],
}
"""Strings: U+FFFF is before U+10000 in UTF-8, and behind it in UTF-16."""

COLUMNS = tuple(
    Column(f"{kind.partition('(')[0]}{kind.partition(',')[2].strip(')')}_{side}", ColumnType.parse(kind))
    for kind in VALUES
    for side in ("a", "b")
)
STREAM = Stream(
    "s",
    (Column("id", ColumnType.parse("bigint")), Column("at", ColumnType.parse("timestamp")), *COLUMNS),
    key=("id",),
    order="at",
)


def a_batch(draw: Random, rows: int, nulls: float) -> pa.Table:
    arrays = {}
    for column in COLUMNS:
        pool = VALUES[str(column.type)]
        held = [None if draw.random() < nulls else draw.choice(pool) for _ in range(rows)]
        arrays[column.name] = as_column(held, column.type)
    return pa.table(arrays)


def as_column(held: list[Any], kind: ColumnType) -> pa.Array:
    integers = {"date": pa.int32(), "timestamp": pa.int64()}.get(str(kind))
    return pa.array(held, arrow_type(kind)) if integers is None else pa.array(held, integers).cast(arrow_type(kind))


def a_factor(draw: Random, column: Column) -> Factor:
    pool = VALUES[str(column.type)]
    match draw.randrange(8):
        case 0:
            return NullFactor(column.name, draw.random() < 0.5)
        case 1:
            return MemberFactor(column.name, tuple(draw.sample(pool, draw.randrange(len(pool)))))
        case 2 | 3:
            return a_comparison(draw, column)
    return ConstantFactor(column.name, draw.choice(list(Comparison)), draw.choice(pool))


def a_comparison(draw: Random, column: Column) -> ColumnFactor:
    """Compares a column with the other one of its type."""
    other = column.name[:-1] + ("b" if column.name.endswith("a") else "a")
    offset: Any = 0
    if str(column.type) in {"int", "bigint", "date", "timestamp"}:
        offset = draw.choice([0, 0, 1, -1, 7, 2**31, -(2**62) + 1, 2**62, -(2**63), 2**63 - 1])
    elif column.type.kind.value == "decimal":
        offset = draw.choice([0, 1, Decimal("0.01"), Decimal("-0.000000001"), Decimal("1e28")])
    elif column.type.kind.value in {"float", "double"}:
        offset = draw.choice([0, 1, 0.1, -1.7e308, math.inf])
    return ColumnFactor(column.name, draw.choice(list(Comparison)), other, offset)


def a_conjunction(draw: Random, most: int = 4) -> Conjunction:
    chosen = draw.sample(COLUMNS, draw.randrange(most + 1))
    return tuple(a_factor(draw, draw.choice([*chosen[:2], column])) for column in chosen)


def check(conjunctions: Mapping[int, Conjunction], table: pa.Table) -> None:
    expected = matching_rows(table, conjunctions)
    found = PredicateIndex(STREAM, conjunctions).match(table)
    assert first_difference(table, expected, found) is None
    assert len(found) == len(expected)
    assert found.encoded() == {number: (each.count, each.encode()) for number, each in found.items()}
    assert found.counts() == {number: len(rows) for number, rows in expected.items()}


@pytest.mark.parametrize("seed", chance.seeds("predicate index", 60))
def test_a_few_rows_and_many_conjunctions(seed: int) -> None:
    draw = Random(seed)
    table = a_batch(draw, draw.choice([0, 1, 2, 5, 63, 64, 65, 130]), draw.choice([0, 0.1, 0.9]))
    conjunctions = {number: a_conjunction(draw) for number in range(draw.choice([1, 30, 200]))}
    check(conjunctions, table)


@pytest.mark.parametrize("column", COLUMNS[::2], ids=lambda column: str(column.type))
@pytest.mark.parametrize("comparison", Comparison, ids=lambda comparison: comparison.name)
def test_every_comparison_of_every_type(column: Column, comparison: Comparison) -> None:
    """Every value with every constant, between the constants of all others."""
    pool = VALUES[str(column.type)]
    table = pa.table({column.name: as_column([None, *pool, *pool], column.type)})
    conjunctions: dict[int, Conjunction] = {
        number: (ConstantFactor(column.name, comparison, constant),) for number, constant in enumerate(pool)
    }
    for part in (conjunctions, *({number: each} for number, each in conjunctions.items())):
        check(part, table)


GRID = [(value_segments, "_FEW_ROWS", 0), (indexing, "_FEW_ROWS", 0)]
WAYS: Mapping[str, list[tuple[Any, str, int]]] = {
    "bits alone": [
        (predicate_index, "_FEW_FROM_ROWS", 10**9),
        (bit_matching, "_CHUNK_WORDS", 1),
        (bit_matching, "_CACHED_WORDS", 1),
    ],
    "row by row": [(predicate_index, "_FEW_FROM_ROWS", 1), (predicate_index, "_FEW", 2), (row_matching, "_PAIRS", 50)],
    "bits at parting boundaries": [(bit_matching, "_MOST_LINES", 0), (bit_matching, "_FEW_LINES", 0)],
    "small blocks": [(bit_matching, "_BLOCK_WORDS", 1), (bit_matching, "_RANGES_AT_ONCE", 2)],
    "segments by the grid": [*GRID, (value_segments, "_MOST_STEPS", 10**6)],
    "a grid of few cells": [*GRID, (value_segments, "_FEWEST_CELLS", 1), (value_segments, "_CELLS_PER_CUT", 1)],
    "strings by hash": [(keys, "_DISTINCT_TO_HASH", 0)],
    "those concerned alone": [(predicate_index, "_FEW_CONCERNED", 0), (matches, "_BITS_AT_ONCE", 100)],
}
"""By name, the constants that send every match one way."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", chance.seeds("ways of matching", 6))
def test_every_way_of_matching_finds_the_same(way: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in WAYS[way]:
        monkeypatch.setattr(module, name, value)
    draw = Random(f"{seed} {way}")
    table = a_batch(draw, draw.choice([65, 200]), draw.choice([0, 0.3]))
    check({number: a_conjunction(draw) for number in range(60)}, table)


def test_conjunctions_of_few_rows_are_matched_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of many by bits: a batch is large, one conjunction has two rows of it, the other half of it."""
    routes: dict[str, list[int]] = {}
    for name in ("match_rows", "match_bits"):
        plain = getattr(predicate_index, name)

        def routed(table: Any, batch: Any, places: Any, compared: Any, *, name: str = name, plain: Any = plain) -> Any:
            routes[name] = sorted(table.numbers[places].tolist())
            return plain(table, batch, places, compared)

        monkeypatch.setattr(predicate_index, name, routed)
    table = pa.table({"int_a": np.arange(5_000, dtype=np.int32), "int_b": np.zeros(5_000, np.int32)})
    conjunctions: dict[int, Conjunction] = {
        1: (MemberFactor("int_a", (7, 4_999)),),
        2: (ConstantFactor("int_a", Comparison.LESS, 2_500), ConstantFactor("int_b", Comparison.EQUAL, 0)),
        3: (ConstantFactor("int_b", Comparison.GREATER, 0),),
        4: (ConstantFactor("int_a", Comparison.EQUAL, 12), ConstantFactor("int_b", Comparison.AT_MOST, 0)),
    }
    found = PredicateIndex(STREAM, conjunctions).match(table)
    assert routes == {"match_rows": [1, 4], "match_bits": [2]}
    assert {number: rows.count for number, rows in found.items()} == {1: 2, 2: 2_500, 4: 1}
    assert found[1].positions.tolist() == [7, 4_999]


@pytest.mark.parametrize("ordered", [True, False], ids=["sorted", "unsorted"])
def test_many_rows_of_several_chunks(ordered: bool, chance: Random) -> None:
    table = a_batch(chance, 4_500, 0.05)
    if ordered:
        table = table.sort_by("bigint_a")
    check({number: a_conjunction(chance) for number in range(25)}, table)


def test_thousands_of_conjunctions(chance: Random) -> None:
    table = a_batch(chance, 20, 0.1)
    check({number: a_conjunction(chance) for number in range(3_000)}, table)


def test_rows_that_concern_nobody_are_not_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is matched only if it is in a range by which some conjunction is entered; the other ranges do not count."""
    asked: list[int] = []
    plain = predicate_index.match_all
    monkeypatch.setattr(predicate_index, "match_all", lambda *given: asked.append(given[1].rows) or plain(*given))
    index = PredicateIndex(
        STREAM,
        {
            1: (ConstantFactor("string_a", Comparison.EQUAL, "x"), ConstantFactor("int_a", Comparison.AT_LEAST, 5)),
            2: (ConstantFactor("int_a", Comparison.EQUAL, 3),),
        },
    )
    rows = 2_000
    ints, texts = np.full(rows, 100, np.int32), np.full(rows, "y", object)
    nobody = pa.table({"int_a": ints, "string_a": texts})
    assert dict(index.match(nobody)) == {}
    assert asked == []
    texts[1_500], ints[7] = "x", 3
    found = index.match(pa.table({"int_a": ints, "string_a": texts}))
    assert {number: each.positions.tolist() for number, each in found.items()} == {1: [1_500], 2: [7]}
    assert asked == [2]


def test_a_conjunction_by_itself_sets_no_row_of_its_own_aside(chance: Random) -> None:
    """Here no other conjunction lets a row in, and few rows or none concern anybody."""
    table = a_batch(chance, 600, 0.02)
    conjunctions: list[Conjunction] = [a_conjunction(chance, 2) for _ in range(60)]
    conjunctions += [(NullFactor(column.name, True),) for column in COLUMNS]
    for each in conjunctions:
        check({7: each}, table)


def test_conjunctions_without_factors_have_every_row_and_contradictions_none() -> None:
    conjunctions: dict[int, Conjunction] = {
        1: (),
        2: (ConstantFactor("int_a", Comparison.LESS, 3), ConstantFactor("int_a", Comparison.GREATER, 3)),
        3: (NullFactor("int_a", True), ConstantFactor("int_a", Comparison.LESS, 3)),
        4: (MemberFactor("int_a", ()),),
        5: (NullFactor("int_a", True), NullFactor("int_a", False)),
        6: (ConstantFactor("bigint_a", Comparison.GREATER, 2**63 - 1),),
    }
    table = pa.table({"int_a": pa.array([1, None], pa.int32()), "bigint_a": pa.array([1, 2**63 - 1])})
    found = PredicateIndex(STREAM, conjunctions).match(table)
    assert {number: rows.positions.tolist() for number, rows in found.items()} == {1: [0, 1]}
    assert 1 not in PredicateIndex(STREAM, conjunctions).match(table.slice(0, 0))
    assert len(PredicateIndex(STREAM, {}).match(table)) == 0


def test_constants_that_the_type_cannot_hold_are_compared_as_they_are() -> None:
    table = pa.table(
        {
            "int_a": pa.array([5, 6], pa.int32()),
            "double_a": pa.array([2.0**53, 2.0**53 + 2]),
            "decimal2_a": pa.array([Decimal("0.00"), Decimal("0.01")], pa.decimal128(10, 2)),
            "decimal9_a": pa.array([Decimal(0), Decimal("0.000000001")], pa.decimal128(38, 9)),
        }
    )
    constants: Mapping[str, list[Any]] = {
        "int_a": [5.5, Decimal("5.5"), 5.0, 10**30, -(10**30), math.inf, -math.inf, math.nan],
        "double_a": [2**53 + 1, Decimal(2**53 + 1), 10**400, -(10**400), math.nan],
        "decimal2_a": [Decimal("0.005"), Decimal("1e50"), 0.005, math.nan, -math.inf],
        "decimal9_a": [Decimal("5e-10"), Decimal("1e50"), Decimal("-1e50"), 10**38],
    }
    factors = [
        (ConstantFactor(column, comparison, constant),)
        for column, every in constants.items()
        for constant in every
        for comparison in Comparison
    ]
    check(dict(enumerate(factors)), table)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_strings_are_read_however_arrow_holds_them(kind: pa.DataType, chance: Random) -> None:
    held = [chance.choice([None, *VALUES["string"]]) for _ in range(40)]
    table = pa.table({"string_a": pa.chunked_array([pa.array(held[:15], kind), pa.array(held[15:], kind)])})
    comparisons = [Comparison.EQUAL, Comparison.LESS]
    factors = [(ConstantFactor("string_a", each, value),) for value in VALUES["string"] for each in comparisons]
    check(dict(enumerate(factors)), table)
    check(dict(enumerate(factors[::2])), table)
