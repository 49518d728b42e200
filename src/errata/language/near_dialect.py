"""Expressions as SQL for the near engine, written so that it computes what Spark computes.

Whole numbers overflow silently there where Spark fails. They are added and multiplied in a wider type, which holds
every result, and converted back, which fails where Spark's operator does. Where operands differ in type, or a
function's result type differs from Spark's, the conversion that Spark makes implicitly is written out. Differences that
cannot be written around are declared in `functions` and `near_support`; such expressions are never passed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from errata.language.coercion import common_type, decimal_for, dividend_scale
from errata.language.expr import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    EQUAL,
    INT,
    STRING,
    TIMESTAMP,
    Call,
    Case,
    Cast,
    Expr,
    Lit,
    expr_sql,
    transform_expr,
)
from errata.language.functions import never_fails
from errata.model.columns import FLOATING_KINDS, WHOLE_KINDS, ColumnType, TypeKind
from errata.model.extent import Value

_WIDE = ColumnType(TypeKind.DECIMAL, 38, 0)
_LEAST = {TypeKind.INT: -(2**31), TypeKind.BIGINT: -(2**63)}


def near_sql(expr: Expr, ref: Callable[[str], str] = str) -> str:
    """The expression as SQL that the near engine takes; `ref` writes the name of a column."""
    return expr_sql(transform_expr(expr, near_expr), ref)


def near_expr(expr: Expr) -> Expr:
    """One operator or function, rewritten for the near engine. Its parts have been rewritten already."""
    match expr:
        case Call(name=name) if name in _NEAR_FORMS:
            return _NEAR_FORMS[name](expr)
        case Cast():
            return _near_cast(expr)
        case Case() if expr.type == BOOLEAN and not never_fails(expr):
            return _near_case(expr)
        case Case():
            return replace(expr, branches=tuple((_never_null(when), then) for when, then in expr.branches))
        case Lit(value=int(value), type=kind) if value == _LEAST.get(kind.kind):
            # The near engine reads the sign as an operator, and the digits alone do not fit the type.
            return Cast(Lit(str(value), STRING), kind)
    return expr


_CONTROLS = "".join(map(chr, range(33))) + "\x7f"
"""Characters that Spark strips from both ends of a text before it converts it."""


_BOOLEAN_WORDS = ("t", "true", "y", "yes", "1", "f", "false", "n", "no", "0")


def _near_cast(expr: Cast) -> Expr:
    match expr.arg.type.kind, expr.type.kind:
        case TypeKind.DECIMAL, TypeKind.FLOAT | TypeKind.DOUBLE:
            # A division by a power of ten would round once more.
            return replace(expr, arg=Cast(expr.arg, STRING))
        case TypeKind.TIMESTAMP, TypeKind.STRING:
            return _within_calendar(expr, expr.arg)
        case TypeKind.STRING, TypeKind.INT | TypeKind.BIGINT | TypeKind.DATE | TypeKind.FLOAT | TypeKind.DOUBLE:
            return replace(expr, arg=_trimmed_text(expr.arg))
        case TypeKind.STRING, TypeKind.BOOLEAN:
            # The near engine also accepts parts of these words, and others, as booleans; an empty text never.
            text = _trimmed_text(expr.arg)
            known = _call_of(
                "in", BOOLEAN, _call_of("lower", STRING, text), *(Lit(each, STRING) for each in _BOOLEAN_WORDS)
            )
            no = _call_of("not", BOOLEAN, known)
            return replace(expr, arg=Case(((no, Lit("", STRING)),), text, STRING))
    return expr


def _within_calendar(expr: Expr, moment: Expr) -> Expr:
    """Makes a value fail beyond the end of the near engine's calendar, as a date does, where its result would be
    wrong."""
    there = _call_of("is_not_null", BOOLEAN, Cast(moment, DATE))
    return Case(((there, expr),), None, expr.type)


def _date_field(expr: Call) -> Expr:
    return _within_calendar(expr, expr.args[0]) if expr.args[0].type == TIMESTAMP else expr


def _trimmed_text(text: Expr) -> Expr:
    return _call_of("btrim", STRING, text, Lit(_CONTROLS, STRING))


def _never_null(condition: Expr) -> Expr:
    """A condition that is never NULL. From one that can be, the near engine concludes that its columns are not NULL in
    the branch, and then finds its own plans inconsistent."""
    return _call_of("coalesce", BOOLEAN, condition, Lit(False, BOOLEAN))


def _near_case(expr: Case) -> Expr:
    """The near engine would evaluate all branches of a CASE between booleans, so it is made of numbers."""

    def number(value: Expr) -> Expr:
        return Cast(value, INT)

    branches = tuple((when, number(then)) for when, then in expr.branches)
    otherwise = None if expr.otherwise is None else number(expr.otherwise)
    return _call_of(EQUAL, BOOLEAN, Case(branches, otherwise, INT), Lit(1, INT))


def _cast_to(expr: Expr, kind: ColumnType) -> Expr:
    """The expression converted to a type; the conversion of a decimal to a floating point number is rewritten, too."""
    return expr if expr.type == kind else near_expr(Cast(expr, kind))


def _cast_all_to(expr: Call, kind: ColumnType) -> Call:
    return replace(expr, args=tuple(_cast_to(each, kind) for each in expr.args))


def _call_of(name: str, kind: ColumnType, *args: Expr) -> Call:
    return Call(name, args, kind)


def _zero_of(kind: ColumnType) -> Lit:
    value: Value = Decimal(0) if kind.kind is TypeKind.DECIMAL else 0.0 if kind.kind in FLOATING_KINDS else 0
    return Lit(value, ColumnType(TypeKind.DECIMAL, 1, 0) if kind.kind is TypeKind.DECIMAL else kind)


def _near_arithmetic(expr: Call) -> Expr:
    """+ - * and signs: whole numbers in a type that holds the result, others in the type that Spark takes."""
    if expr.type.kind in WHOLE_KINDS:
        return Cast(_in_wider_type(expr), expr.type)
    return _with_operands_cast(expr)


def _in_wider_type(expr: Call) -> Expr:
    wide = BIGINT if expr.type.kind is TypeKind.INT else _WIDE
    return replace(_cast_all_to(expr, wide), type=wide)


def _with_operands_cast(expr: Call) -> Expr:
    if expr.type.kind in FLOATING_KINDS:
        return _cast_all_to(expr, expr.type)
    if expr.type.kind is TypeKind.DECIMAL:
        args = tuple(each if isinstance(each, Lit) else _cast_to(each, decimal_for(each.type)) for each in expr.args)
        return Cast(replace(expr, args=args), expr.type)
    return expr


def _near_division(expr: Call) -> Expr:
    if expr.type.kind is not TypeKind.DECIMAL:
        return _cast_all_to(expr, expr.type)
    if expr.name != "/":
        return _with_operands_cast(expr)
    # The near engine truncates the quotient four digits after those of the dividend; the conversion rounds it.
    left, right = expr.args
    scale = dividend_scale(decimal_for(left.type), expr.type)
    dividend = Cast(left, ColumnType(TypeKind.DECIMAL, 38, scale))
    return Cast(replace(expr, args=(dividend, _cast_to(right, decimal_for(right.type)))), expr.type)


def _near_comparison(expr: Call) -> Expr:
    common = common_type([each.type for each in expr.args])
    return expr if common is None else _with_equal_nans(_cast_all_to(expr, common))


def _with_equal_nans(expr: Call) -> Call:
    """Replaces every NaN among the operands by one: the near engine has several, some less than all numbers."""
    return replace(expr, args=tuple(map(_equal_nan, expr.args)))


def _equal_nan(expr: Expr) -> Expr:
    if expr.type.kind not in FLOATING_KINDS or isinstance(expr, Lit):
        return expr
    return _call_of("nanvl", expr.type, expr, Lit(math.nan, expr.type))


def _near_nullif(expr: Call) -> Expr:
    value, other = expr.args
    same = _near_comparison(_call_of(EQUAL, BOOLEAN, value, other))
    return Case(((same, Lit(None, expr.type)),), value, expr.type)


def _near_extreme(expr: Call) -> Expr:
    """Keeps Spark's choice among zeros with different signs: the first."""
    if expr.type.kind not in FLOATING_KINDS:
        return expr
    expr, zero = _with_equal_nans(expr), _zero_of(expr.type)
    zeros = (Case(((_call_of(EQUAL, BOOLEAN, each, zero), each),), None, expr.type) for each in expr.args)
    return Case(((_call_of(EQUAL, BOOLEAN, expr, zero), _call_of("coalesce", expr.type, *zeros)),), expr, expr.type)


def _near_sign(expr: Call) -> Expr:
    value = _cast_to(expr.args[0], DOUBLE)
    if expr.args[0].type.kind not in FLOATING_KINDS:
        return _call_of("sign", DOUBLE, value)
    return Case(((_call_of(EQUAL, BOOLEAN, value, _zero_of(DOUBLE)), value),), _call_of("sign", DOUBLE, value), DOUBLE)


def _with_double(expr: Call) -> Expr:
    return _cast_all_to(expr, DOUBLE)


def _cast_to_own_type(expr: Call) -> Expr:
    return Cast(expr, expr.type)


def _near_round(expr: Call) -> Expr:
    if expr.type.kind in FLOATING_KINDS:  # there is no -0.0 among what Spark rounds to
        return _call_of("+", expr.type, expr, _zero_of(expr.type))
    return _cast_to_own_type(expr) if expr.type.kind is TypeKind.DECIMAL else expr


def _near_isnan(expr: Call) -> Expr:
    return _call_of("coalesce", BOOLEAN, expr, Lit(False, BOOLEAN))


def _near_try(expr: Call) -> Expr:
    plain = replace(expr, name={"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/"}[expr.name])
    if expr.name == "try_divide":
        divisor = expr.args[1]
        there = Case(((_call_of("<>", BOOLEAN, divisor, _zero_of(divisor.type)), divisor),), None, divisor.type)
        return _near_division(replace(plain, args=(expr.args[0], there)))
    if expr.type.kind in WHOLE_KINDS:
        return Cast(_in_wider_type(plain), expr.type, safe=True)
    return _with_operands_cast(plain)


def _clamped_length(length: Expr) -> Expr:
    zero = Lit(0, INT)
    return Case(((_call_of("<", BOOLEAN, length, zero), zero),), length, INT)


def _near_part(expr: Call) -> Expr:
    text, length = expr.args
    return replace(expr, args=(text, _clamped_length(length)))


def _near_substring(expr: Call) -> Expr:
    text, start, *lengths = expr.args
    return replace(expr, args=(text, start, *map(_clamped_length, lengths)))


def _near_week(expr: Call) -> Expr:
    return _cast_all_to(expr, DATE)


def _to_units(micros: int) -> Callable[[Call], Expr]:
    """Whole units up to a time, rounded down; the near engine rounds towards 1970."""

    def write(expr: Call) -> Expr:
        count, size = _call_of("unix_micros", BIGINT, *expr.args), Lit(micros, BIGINT)
        below = _call_of("<", BOOLEAN, _call_of("%", BIGINT, count, size), Lit(0, BIGINT))
        one = Case(((below, Lit(1, BIGINT)),), Lit(0, BIGINT), BIGINT)
        return _call_of("-", BIGINT, _call_of("div", BIGINT, count, size), one)

    return write


def _from_units_since_epoch(micros: int) -> Callable[[Call], Expr]:
    def write(expr: Call) -> Expr:
        product = _near_arithmetic(_call_of("*", BIGINT, *expr.args, Lit(micros, BIGINT)))
        return replace(expr, name="timestamp_micros", args=(product,))

    return write


_NEAR_FORMS: dict[str, Callable[[Call], Expr]] = {
    **dict.fromkeys(("+", "-", "*", "neg", "abs"), _near_arithmetic),
    **dict.fromkeys(("/", "%", "div"), _near_division),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), _near_comparison),
    **dict.fromkeys(("greatest", "least"), _near_extreme),
    "in": _with_equal_nans,
    **dict.fromkeys(("sqrt", "exp", "ln", "log10", "log2", "power"), _with_double),
    **dict.fromkeys(("try_add", "try_subtract", "try_multiply", "try_divide"), _near_try),
    **dict.fromkeys(("left", "right"), _near_part),
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofweek", "dayofyear"), _date_field),
    **dict.fromkeys(("hour", "minute", "second"), _date_field),
    "nullif": _near_nullif,
    "sign": _near_sign,
    "round": _near_round,
    "isnan": _near_isnan,
    "substring": _near_substring,
    "weekofyear": _near_week,
    "datediff": _cast_to_own_type,
    "unix_millis": _to_units(1_000),
    "unix_seconds": _to_units(1_000_000),
    "timestamp_millis": _from_units_since_epoch(1_000),
    "timestamp_seconds": _from_units_since_epoch(1_000_000),
}
