"""Constants in the type of their column: a condition is true of the same values before and after."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache
from random import Random

import pytest

from errata.language.registered.conditions import column_factor, conjunction_of, member_factor, mirrored, relations_of
from errata.language.registered.read import read_registered
from errata.model.registered import (
    ColumnFactor,
    Comparison,
    Conjunction,
    ConstantFactor,
    MemberFactor,
    NullFactor,
    Relation,
)
from errata.model.time import DAY, parse_instant
from fixtures.registered.oracle import compares, related, satisfies
from fixtures.registered.streams import STREAMS, TRADES, random_rows, values_of

OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "<": lambda left, right: left < right,  # type: ignore[operator]
    "<=": lambda left, right: left <= right,  # type: ignore[operator]
    "=": lambda left, right: left == right,
    ">=": lambda left, right: left >= right,  # type: ignore[operator]
    ">": lambda left, right: left > right,  # type: ignore[operator]
}
NUMBERS = ("5", "-5", "0", "2.5", "-0.005", "0.005", "1.25", "2147483647.5", "-2147483648.5", "9223372036854775807.5")
HUGE = ("9" * 38, f"-{'9' * 38}", "99999999999999999999", "10000000000.00", "9999999999.995", "-9999999999.99")


@cache
def conjunction(condition: str) -> Conjunction:
    text = f"SELECT * FROM trades WHERE {condition} BEGIN (NOW - '1 day') END (NOW)"
    return read_registered(text, STREAMS).conjunctions[0]


def holds(condition: str, column: str, value: object) -> bool:
    """Whether the condition, as it is read, is true of a value of a column."""
    return all(satisfies(TRADES, {column: value}, each) for each in conjunction(condition))


@pytest.mark.parametrize("column", ["qty", "total", "cost", "weight"])
@pytest.mark.parametrize("written", [*NUMBERS, *HUGE])
def test_exact_numbers_are_compared_exactly(column: str, written: str) -> None:
    for name, operator in OPERATORS.items():
        for value in values_of(TRADES, column):
            wanted = operator(Fraction(str(value)), Fraction(written))
            assert holds(f"{column} {name} {written}", column, value) == wanted, (value, name)
            assert holds(f"{written} {mirrored(Comparison(name)).value} {column}", column, value) == wanted
        assert not holds(f"{column} {name} {written}", column, None)


@pytest.mark.parametrize("column", ["qty", "total"])
@pytest.mark.parametrize("written", ["1.5e0", "-2E0", "double('NaN')", "double('Infinity')", "float('-inf')", "1.5D"])
def test_whole_numbers_beside_floating_ones_are_compared_as_doubles(column: str, written: str) -> None:
    constants = {"double('NaN')": math.nan, "double('Infinity')": math.inf, "float('-inf')": -math.inf}
    constant = constants[written] if written in constants else float(written.rstrip("D"))
    for name in OPERATORS:
        for value in values_of(TRADES, column):
            wanted = compares(float(value), Comparison(name), constant)
            assert holds(f"{column} {name} {written}", column, value) == wanted, (value, name)


@pytest.mark.parametrize("column", ["price", "rate"])
@pytest.mark.parametrize(
    ("written", "constant"),
    [
        ("0.1", 0.1),
        ("0.1F", 0.10000000149011612),
        ("5", 5.0),
        ("-0.0", 0.0),
        ("1e300", 1e300),
        ("9007199254740993", 9007199254740992.0),
        ("CAST('NaN' AS DOUBLE)", math.nan),
        ("- double('Infinity')", -math.inf),
    ],
)
def test_floating_columns_are_compared_as_doubles(column: str, written: str, constant: float) -> None:
    for name in OPERATORS:
        (factor,) = conjunction(f"{column} {name} {written}")
        assert isinstance(factor, ConstantFactor)
        assert repr(factor.constant) == repr(constant)
        assert factor.comparison.value == name


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("'2026-11-18'", "2026-11-18"),
        ("DATE '2026-11-18'", "2026-11-18"),
        ("TIMESTAMP '2026-11-18 00:00:01'", "2026-11-18T00:00:01"),
        ("TIMESTAMP '2026-11-17 23:59:59.999999'", "2026-11-17T23:59:59.999999"),
        ("DATE '0001-01-01'", "0001-01-01"),
        ("TIMESTAMP '9999-12-31 23:00:00'", "9999-12-31T23:00"),
    ],
)
def test_dates_and_timestamps_are_compared_as_times(written: str, moment: str) -> None:
    for name, operator in OPERATORS.items():
        for value in values_of(TRADES, "day"):
            assert holds(f"day {name} {written}", "day", value) == operator(value * DAY, parse_instant(moment)), value
        for value in values_of(TRADES, "seen"):
            assert holds(f"seen {name} {written}", "seen", value) == operator(value, parse_instant(moment)), value


def test_times_are_read_with_their_zone() -> None:
    assert conjunction("seen = '2026-11-18T02:00:00.5+01:00'") == conjunction("seen = '2026-11-18 01:00:00.500000'")
    days = date(2026, 11, 18).toordinal() - date(1970, 1, 1).toordinal()
    assert conjunction("day = '2026-11-18'") == (ConstantFactor("day", Comparison.EQUAL, days),)


def test_what_no_value_can_equal_is_in_nothing() -> None:
    nothing = (MemberFactor("qty", ()),)
    assert conjunction("qty = 5.5") == nothing
    assert conjunction("qty > 3000000000") == nothing
    assert conjunction("qty IN (5.5, 3000000000)") == nothing
    assert conjunction("qty IN (5.5, 7, 7.0)") == (ConstantFactor("qty", Comparison.EQUAL, 7),)
    assert conjunction("qty < 3000000000") == (NullFactor("qty", is_null=False),)
    assert conjunction("cost = 0.001") == (MemberFactor("cost", ()),)


def test_constants_have_the_type_of_their_column() -> None:
    found = conjunction("qty = 2.0 AND cost = 2 AND price = 2")
    kinds = {each.column: each.constant for each in found if isinstance(each, ConstantFactor)}
    assert {name: type(value) for name, value in kinds.items()} == {"qty": int, "cost": Decimal, "price": float}
    assert str(kinds["cost"]) == "2.00"


def test_equal_conditions_are_one_value() -> None:
    one = conjunction("price > double('NaN') AND price IN (0.0, double('NaN')) AND qty > 1 AND qty > 1")
    other = conjunction("1 < qty AND price IN (double('nan'), -0.0, 0.0) AND price > CAST('NaN' AS DOUBLE)")
    assert one == other
    assert hash(one) == hash(other)
    assert len(one) == 3


def test_in_with_one_constant_is_equality() -> None:
    assert (
        conjunction("sym IN ('a', 'a')") == conjunction("sym = 'a'") == (ConstantFactor("sym", Comparison.EQUAL, "a"),)
    )


# Comparisons of columns.


@pytest.mark.parametrize("pair", [("qty", "no"), ("no", "qty"), ("qty", "qty"), ("cost", "total"), ("seen", "at")])
def test_comparisons_of_columns_turn_round_exactly(pair: tuple[str, str], chance: Random) -> None:
    rows = random_rows(chance, TRADES, 60)
    for offset in (0, 1, -3, 2):
        for comparison in Comparison:
            plain = ColumnFactor(pair[0], comparison, pair[1], offset)
            turned = column_factor(pair[0], comparison, pair[1], offset)
            back = column_factor(pair[1], mirrored(comparison), pair[0], -offset)
            assert turned == back
            for row in rows:
                assert satisfies(TRADES, row, plain) == satisfies(TRADES, row, turned), (plain, turned)


def test_sums_of_doubles_do_not_change_sides() -> None:
    factor = column_factor("rate", Comparison.LESS, "price", 0.1)
    assert factor == ColumnFactor("rate", Comparison.LESS, "price", 0.1)
    assert column_factor("price", Comparison.GREATER, "cost", 0.5) == ColumnFactor(
        "price", Comparison.GREATER, "cost", 0.5
    )
    assert column_factor("rate", Comparison.LESS, "price", 0.0) == ColumnFactor("price", Comparison.GREATER, "rate")


def test_relations_have_the_earlier_source_on_the_left(chance: Random) -> None:
    rows = random_rows(chance, TRADES, 30)
    for offset in (0, Decimal("0.50")):
        for comparison in Comparison:
            written = Relation(1, "cost", comparison, 0, "cost", offset)
            (turned,) = relations_of([written, written])
            assert (turned.left_source, turned.right_source) == (0, 1)
            for one, other in zip(rows[::2], rows[1::2], strict=True):
                declared, pair = (TRADES, TRADES), (one, other)
                assert related(declared, pair, written) == related(declared, pair, turned)


def test_the_order_of_factors_does_not_depend_on_how_they_are_written() -> None:
    factors = [
        member_factor("sym", ["b", "a"]),
        NullFactor("sym", is_null=False),
        ConstantFactor("qty", Comparison.LESS, 5),
        ConstantFactor("qty", Comparison.LESS, 4),
        ColumnFactor("no", Comparison.EQUAL, "qty", 1),
    ]
    assert conjunction_of(factors) == conjunction_of(reversed([*factors, factors[0]]))
