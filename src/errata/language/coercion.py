"""The common types of values, and the result types of arithmetic: Spark's rules in ANSI mode, where they lose
nothing."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from errata.language.expr import BIGINT, DOUBLE, TIMESTAMP, Expr, Lit
from errata.model.columns import FLOATING_KINDS, MAX_PRECISION, WHOLE_KINDS, ColumnType, TypeKind

_MIN_SCALE = 6
"""Digits after the point that Spark keeps when a decimal would be too long."""


class TypeFamily(StrEnum):
    """Kinds of value that can be compared with each other."""

    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    TIME = "date or timestamp"


_FAMILIES = {
    TypeKind.STRING: TypeFamily.STRING,
    TypeKind.BOOLEAN: TypeFamily.BOOLEAN,
    TypeKind.DATE: TypeFamily.TIME,
    TypeKind.TIMESTAMP: TypeFamily.TIME,
    **dict.fromkeys((*WHOLE_KINDS, *FLOATING_KINDS, TypeKind.DECIMAL), TypeFamily.NUMBER),
}
_WHOLE = {TypeKind.INT: 10, TypeKind.BIGINT: 20}
"""Digits of the decimals that Spark converts whole numbers to."""


def type_family(kind: ColumnType) -> TypeFamily:
    """The family of types whose values can be compared with this one's."""
    return _FAMILIES[kind.kind]


def comparable(left: ColumnType, right: ColumnType) -> bool:
    """Whether values of the two types can be compared."""
    return type_family(left) is type_family(right)


def common_type(types: Iterable[ColumnType]) -> ColumnType | None:
    """The type that holds the values of all; None when there is none."""
    common: ColumnType | None
    common, *rest = types
    for each in rest:
        common = _wider_type(common, each)
    return common


def _wider_type(left: ColumnType | None, right: ColumnType) -> ColumnType | None:
    if left is None or left == right:
        return left
    if not comparable(left, right):
        return None
    return TIMESTAMP if type_family(left) is TypeFamily.TIME else _wider_number_type(left, right)


def _wider_number_type(left: ColumnType, right: ColumnType) -> ColumnType | None:
    if {left.kind, right.kind} & set(FLOATING_KINDS):
        return DOUBLE
    if TypeKind.DECIMAL not in (left.kind, right.kind):
        return BIGINT
    one, other = decimal_for(left), decimal_for(right)
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return ColumnType(TypeKind.DECIMAL, precision, scale) if precision <= MAX_PRECISION else None


def decimal_for(number: ColumnType) -> ColumnType:
    """The decimal type that holds every value of a whole type; a decimal type itself."""
    return number if number.kind is TypeKind.DECIMAL else ColumnType(TypeKind.DECIMAL, _WHOLE[number.kind], 0)


def _operand_type(expr: Expr) -> ColumnType:
    """The type of a number combined with a decimal: a whole constant has as many digits as it is written with."""
    if isinstance(expr, Lit) and isinstance(expr.value, int) and expr.type.kind in _WHOLE:
        return ColumnType(TypeKind.DECIMAL, len(str(abs(expr.value))), 0)
    return decimal_for(expr.type)


def arithmetic_type(operator: str, left: Expr, right: Expr) -> ColumnType | None:
    """The type of `left operator right`, one of + - * / % div; None when it does not take them."""
    kinds = {left.type.kind, right.type.kind}
    if not all(type_family(each.type) is TypeFamily.NUMBER for each in (left, right)):
        return None
    floating = bool(kinds & set(FLOATING_KINDS))
    if operator == "div":
        return None if floating else BIGINT
    if floating or TypeKind.DECIMAL not in kinds:
        return DOUBLE if operator == "/" else common_type((left.type, right.type))
    return _decimal_type(operator, _operand_type(left), _operand_type(right))


def _decimal_type(operator: str, left: ColumnType, right: ColumnType) -> ColumnType:
    """Spark's `DecimalPrecision`: as SQL Server has it."""
    before = (left.precision - left.scale, right.precision - right.scale)
    scale = max(left.scale, right.scale)
    match operator:
        case "*":
            return bounded_decimal(left.precision + right.precision + 1, left.scale + right.scale)
        case "/":
            scale = max(_MIN_SCALE, left.scale + right.precision + 1)
            return bounded_decimal(before[0] + right.scale + scale, scale)
        case "%":
            return bounded_decimal(min(before) + scale, scale)
        case "+" | "-":
            return bounded_decimal(max(before) + scale + 1, scale)
    raise ValueError(f"the type of decimals under {operator} is not known")


def loses_digits(operator: str, left: Expr, right: Expr) -> bool:
    """Whether Spark takes digits off the exact type of the decimal that + - * or % of two numbers gives."""
    kinds = {left.type.kind, right.type.kind}
    if TypeKind.DECIMAL not in kinds or kinds & set(FLOATING_KINDS):
        return False
    one, other = _operand_type(left), _operand_type(right)
    if operator in ("*", "try_multiply"):
        return one.precision + other.precision + 1 > MAX_PRECISION
    before, scale = max(one.precision - one.scale, other.precision - other.scale), max(one.scale, other.scale)
    return before + scale + (operator != "%") > MAX_PRECISION


def dividend_scale(left: ColumnType, quotient: ColumnType) -> int:
    """The scale that a dividend needs for a quotient with one digit more than its type, where a division that cuts off
    gives four digits more than the dividend has."""
    return max(left.scale, quotient.scale - 3)


def division_fits(left: Expr, right: Expr) -> bool:
    """Whether a division of decimals stays below 38 digits in all intermediate results: in Spark (which rounds to 38
    digits after the point, and then once more) and where the dividend is scaled."""
    one, other = _operand_type(left), _operand_type(right)
    quotient = _decimal_type("/", one, other)
    scaled = one.precision - one.scale + dividend_scale(one, quotient) + 4 + other.scale
    return max(scaled, other.precision + quotient.scale + 2) <= MAX_PRECISION


def bounded_decimal(precision: int, scale: int) -> ColumnType:
    """A decimal of at most 38 digits; digits after the point go first, down to six."""
    if precision > MAX_PRECISION:
        scale = max(MAX_PRECISION - (precision - scale), min(scale, _MIN_SCALE))
    return ColumnType(TypeKind.DECIMAL, min(precision, MAX_PRECISION), scale)
