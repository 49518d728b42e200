"""Constants in the type of the column that they are compared with.

A condition on a whole, decimal or date column is said by a value that the column can hold: `qty > 5.5` is `qty > 5`,
and what is true of every value, or of none, is `IS NOT NULL`, or IN over nothing. So whoever matches rows compares
values of one type, and knows no rule of conversion.

    column        constant                                        becomes
    timestamp     TIMESTAMP '…', DATE '…', '2026-11-18 02:00'      microseconds
    date          DATE '…', '2026-11-18', TIMESTAMP '…'            days
    int, bigint   5, 5.5, 1e3                                     int
    decimal       5, 5.5                                          Decimal with the scale of the column
    double, float any number, double('NaN'), double('Infinity')   float; a float column is compared as doubles
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from datetime import date
from decimal import ROUND_FLOOR, Context, Decimal
from typing import NoReturn

from sqlglot import exp

from errata.language.coercion import TypeFamily, common_type, comparable, type_family
from errata.language.expr import DATE, STRING, TIMESTAMP, Call, Cast, Expr, Lit
from errata.language.reading.expressions import ExpressionReader
from errata.language.reading.literals import is_interval, lower_interval, lower_moment
from errata.language.reading.mistakes import SqlText
from errata.language.registered.conditions import member_factor, plain_constant, plain_offset
from errata.model.columns import FLOATING_KINDS, WHOLE_KINDS, Column, ColumnType, TypeKind
from errata.model.registered import Comparison, Constant, ConstantFactor, Factor, NullFactor
from errata.model.time import DAY

_EPOCH = date(1970, 1, 1).toordinal()
_DATE_LENGTH = len("2026-11-18")
_REAL = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)", re.IGNORECASE | re.ASCII)
_EXACT = Context(prec=100)
_EXACT_IN_DOUBLES = 2**53
_WHOLE_LIMITS = {TypeKind.INT: 2**31, TypeKind.BIGINT: 2**63}
_BELOW = (Comparison.LESS, Comparison.AT_MOST)
_NO_CONVERSION = "Errata guesses no conversion"


def read_constant(text: SqlText, node: exp.Expression) -> Lit:
    """The constant that an expression without columns is."""

    def no_column(column: exp.Column) -> NoReturn:
        raise text.mistake(column, "this is not a constant")

    if isinstance(node.unnest(), exp.Null):
        raise _null_mistake(text, node)
    expr = ExpressionReader(text, no_column, lambda _: None).lower(node)
    value = _value_of(text, node, expr)
    if value is None:
        raise text.mistake(
            node,
            "this is not a plain constant",
            "the constants of a registered query are kept apart from its statement",
            "write the value itself: a number, a 'text', TRUE, DATE '2026-11-18', TIMESTAMP '2026-11-18 02:00:00',"
            " or double('NaN')",
        )
    return value


def _null_mistake(text: SqlText, node: exp.Expression) -> Exception:
    return text.mistake(node, "NULL compares with nothing", how="write IS NULL, or IS NOT NULL")


def _value_of(text: SqlText, node: exp.Expression, expr: Expr) -> Lit | None:
    match expr:
        case Lit(value=None):
            raise _null_mistake(text, node)
        case Lit():
            return expr
        case Call(name="neg", args=(Cast() as inner,)):
            floating = _value_of(text, node, inner)
            number = floating is not None and isinstance(floating.value, float)
            return Lit(-floating.value, floating.type) if number else None  # type: ignore[union-attr, operator]
        case Cast(arg=Lit() as inner, type=kind):
            return _converted(text, node, inner, kind)
    return None


def _converted(text: SqlText, node: exp.Expression, given: Lit, kind: ColumnType) -> Lit | None:
    """The constant of CAST(given AS kind), of those that say what cannot be said otherwise."""
    if given.value is None:
        raise _null_mistake(text, node)
    if kind.kind in FLOATING_KINDS:
        return _floating(text, node, given, kind)
    if kind in (DATE, TIMESTAMP) and isinstance(given.value, str):
        return lower_moment(text, node, given.value, kind)
    return given if given.type == kind else None


def _floating(text: SqlText, node: exp.Expression, given: Lit, kind: ColumnType) -> Lit:
    written = str(given.value).strip()
    if isinstance(given.value, bool) or not _REAL.fullmatch(written):
        raise text.mistake(node, f"{written!r} is not a number", how="write double('NaN'), double('Infinity') or 1.5")
    value = float(written)
    if kind.kind is TypeKind.FLOAT and math.isfinite(value):
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            raise text.mistake(node, "the number is too large for a float") from None
    return Lit(value, kind)


# A column compared with a constant.


def compare_with_constant(
    text: SqlText, node: exp.Expression, column: Column, comparison: Comparison, constant: exp.Expression
) -> Factor:
    """The factor that compares a column with the constant that a node is."""
    given = _as_time(text, constant, column.type, read_constant(text, constant))
    if not comparable(column.type, given.type):
        raise text.mistake(
            node,
            f"{column.type} {comparison.value} {given.type}: the two are not of one kind",
            _NO_CONVERSION,
            f"write a constant of type {column.type}",
        )
    value = given.value
    if column.type.kind in FLOATING_KINDS:
        return ConstantFactor(column.name, comparison, plain_constant(float(_number(value))))
    if type_family(column.type) in (TypeFamily.STRING, TypeFamily.BOOLEAN):
        return ConstantFactor(column.name, comparison, value)
    if column.type == TIMESTAMP:
        return ConstantFactor(column.name, comparison, _micros(value))
    if isinstance(value, float):
        return _beside_a_float(text, constant, column, comparison, value)
    return _on_the_grid(column, comparison, _exact_value(value, column.type))


def constants_of_in(text: SqlText, node: exp.Expression, column: Column, constants: Sequence[exp.Expression]) -> Factor:
    """The factor that a column equals one of the constants: those that it can equal."""
    equal = [compare_with_constant(text, node, column, Comparison.EQUAL, each) for each in constants]
    return member_factor(column.name, [each.constant for each in equal if isinstance(each, ConstantFactor)])


def _as_time(text: SqlText, node: exp.Expression, kind: ColumnType, given: Lit) -> Lit:
    """A text beside a column that is a time is read as one."""
    if type_family(kind) is not TypeFamily.TIME or not isinstance(given.value, str):
        return given
    written = given.value.strip()
    if kind == DATE and len(written) > _DATE_LENGTH:
        raise text.mistake(
            node,
            f"a date stands beside {given.value!r}, which has a time of day",
            "the time of day would be dropped, or the date taken for its midnight",
            f"write DATE '{written[:_DATE_LENGTH]}' or TIMESTAMP '{written}'",
        )
    return lower_moment(text, node, given.value, kind)


def time_constant(text: SqlText, node: exp.Expression, given: Lit) -> int | None:
    """The microseconds of a timestamp, a date or a text that is one; None for another constant."""
    given = _as_time(text, node, TIMESTAMP, given)
    return _micros(given.value) if type_family(given.type) is TypeFamily.TIME else None


def _micros(value: object) -> int:
    if isinstance(value, date):
        return (value.toordinal() - _EPOCH) * DAY
    return int(_number(value))


def _number(value: object) -> int | float | Decimal:
    """The value of a constant whose type is known to be a number, or a time in microseconds."""
    if isinstance(value, (int, float, Decimal)):
        return value
    raise TypeError(f"{value!r} is no number")


def _exact_value(value: object, column: ColumnType) -> Decimal:
    """The constant in units of the last digit of the column, or in days."""
    if column == DATE:
        return _EXACT.divide(Decimal(_micros(value)), Decimal(DAY))
    return Decimal(_number(value)).scaleb(column.scale, _EXACT)


def _limits(kind: ColumnType) -> tuple[int, int]:
    """The least and the greatest value of a type, in units of its last digit; days of the years 1 to 9999."""
    if kind.kind is TypeKind.DECIMAL:
        greatest = int(10**kind.precision) - 1
        return -greatest, greatest
    if kind.kind is TypeKind.DATE:
        return date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH
    limit = _WHOLE_LIMITS[kind.kind]
    return -limit, limit - 1


def _on_the_grid(column: Column, comparison: Comparison, exact: Decimal) -> Factor:
    """The comparison with a constant that the column can hold, or what is true of all of its values."""
    low, high = _limits(column.type)
    below = int(exact.to_integral_value(ROUND_FLOOR, _EXACT))
    if below >= low and exact <= high:
        if below == exact:
            return ConstantFactor(column.name, comparison, _in_type(column.type, below))
        if comparison is Comparison.EQUAL:
            return member_factor(column.name, ())
        rounded = Comparison.AT_MOST if comparison in _BELOW else Comparison.GREATER
        return ConstantFactor(column.name, rounded, _in_type(column.type, below))
    always = comparison in _BELOW if exact > high else comparison not in (*_BELOW, Comparison.EQUAL)
    return NullFactor(column.name, is_null=False) if always else member_factor(column.name, ())


def _in_type(kind: ColumnType, units: int) -> Constant:
    return Decimal(units).scaleb(-kind.scale, _EXACT) if kind.kind is TypeKind.DECIMAL else units


def _beside_a_float(
    text: SqlText, place: exp.Expression, column: Column, comparison: Comparison, value: float
) -> Factor:
    """A whole or decimal column beside a floating constant, where comparing as doubles is comparing exactly."""
    exact = column.type.kind is TypeKind.INT or (column.type.kind is TypeKind.BIGINT and abs(value) < _EXACT_IN_DOUBLES)
    if math.isfinite(value) and not exact:
        raise text.mistake(
            place,
            f"a {column.type} is compared with a floating constant",
            "as doubles, different values of the column would be equal",
            f"write {Decimal(repr(value)):f}, in full and without an exponent",
        )
    if math.isfinite(value):
        return _on_the_grid(column, comparison, Decimal(value))
    # NaN is greater than every number, as infinity is.
    beyond = Decimal(-1 if value < 0 else 1).scaleb(60, _EXACT)
    return _on_the_grid(column, comparison, beyond)


# A constant that is added to a column.


def read_offset(text: SqlText, node: exp.Expression, left: Column, right: Column, sign: int) -> Constant:
    """The constant that is added to the right column of two, in the type that both are compared in."""
    family = type_family(right.type)
    if family is TypeFamily.TIME:
        return sign * _time_offset(text, node, left, right)
    if is_interval(node) or family is not TypeFamily.NUMBER:
        raise _offset_mistake(text, node, right)
    given = read_constant(text, node)
    common = common_type((left.type, right.type))
    if common is None or isinstance(given.value, (str, bool)) or given.type == DATE:
        raise _offset_mistake(text, node, right)
    number = _number(given.value)
    if common.kind in FLOATING_KINDS:
        if given.type.kind is TypeKind.FLOAT:
            raise text.mistake(node, "a float is added to a column", None, "leave out the F: the sum is a double")
        return plain_offset(sign * float(number))
    if isinstance(number, float):
        raise text.mistake(node, f"a floating number is added to a {right.type}", None, "write it without an exponent")
    exact = Decimal(number)
    units = exact.scaleb(common.scale, _EXACT)
    if units != units.to_integral_value(ROUND_FLOOR, _EXACT):
        raise text.mistake(
            node,
            f"{exact} is added to a {right.type} beside a {left.type}",
            "it has more digits after the point than both columns",
            "leave the digits out: columns without them cannot tell the difference",
        )
    if common.kind in WHOLE_KINDS:
        return sign * int(exact)
    return plain_offset(_in_type(common, sign * int(units)))


def _time_offset(text: SqlText, node: exp.Expression, left: Column, right: Column) -> int:
    if left.type != right.type:
        raise text.mistake(
            node,
            f"a {right.type} is shifted beside a {left.type}",
            None,
            "compare two timestamps, or two dates, where one of them is shifted",
        )
    if right.type == TIMESTAMP:
        if not is_interval(node):
            raise text.mistake(node, "a timestamp is shifted by an INTERVAL", how="write ts + INTERVAL '5' MINUTE")
        return lower_interval(text, node)
    given = None if is_interval(node) else read_constant(text, node)
    if given is None or not isinstance(given.value, int) or given.type in (TIMESTAMP, STRING):
        raise text.mistake(node, "a date is shifted by a whole number of days", how="write d + 1")
    return given.value


def _offset_mistake(text: SqlText, node: exp.Expression, right: Column) -> Exception:
    return text.mistake(
        node,
        f"this cannot be added to {right.name}, a {right.type}",
        "a number is added to a number, an INTERVAL to a timestamp, days to a date",
    )
