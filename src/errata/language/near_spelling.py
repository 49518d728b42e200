"""Expressions as SQL for the near engine: what it computes otherwise than Spark is written so that both do the same.

Whole numbers wrap round there in silence where Spark fails. They are added and multiplied in a wider type, which holds
every result, and brought back by a conversion, which fails where Spark's operator does. Where operands differ in type,
or a function gives another type than Spark's, the conversion that Spark makes unasked is written out. What cannot be
written around is declared in `functions` and `near`, and never comes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

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
    Value,
    sql,
    transform,
)
from errata.language.functions import total
from errata.language.widening import as_decimal, common_type, scaled_dividend
from errata.model.columns import ColumnType, Kind

_WIDE = ColumnType(Kind.DECIMAL, 38, 0)
_WHOLE = (Kind.INT, Kind.BIGINT)
_FLOATING = (Kind.FLOAT, Kind.DOUBLE)
_LEAST = {Kind.INT: -(2**31), Kind.BIGINT: -(2**63)}


def near_sql(expr: Expr, ref: Callable[[str], str] = str) -> str:
    """The expression as SQL that the near engine takes; `ref` writes the name of a column."""
    return sql(transform(expr, spelled), ref)


def spelled(expr: Expr) -> Expr:
    """One operator or function so that the near engine does as Spark does. Its parts are spelled already."""
    match expr:
        case Call(name=name) if name in _SPELLINGS:
            return _SPELLINGS[name](expr)
        case Cast():
            return _converted(expr)
        case Case() if expr.type == BOOLEAN and not total(expr):
            return _lazy(expr)
        case Case():
            return replace(expr, branches=tuple((_sure(when), then) for when, then in expr.branches))
        case Lit(value=int(value), type=kind) if value == _LEAST.get(kind.kind):
            # The sign is taken for an operator there, and the digits alone do not fit.
            return Cast(Lit(str(value), STRING), kind)
    return expr


_CONTROLS = "".join(map(chr, range(33))) + "\x7f"
"""What Spark leaves out before and after a text that it converts."""


_TRUTHS = ("t", "true", "y", "yes", "1", "f", "false", "n", "no", "0")


def _converted(expr: Cast) -> Expr:
    match expr.arg.type.kind, expr.type.kind:
        case Kind.DECIMAL, Kind.FLOAT | Kind.DOUBLE:
            # A division by a power of ten would round once more.
            return replace(expr, arg=Cast(expr.arg, STRING))
        case Kind.TIMESTAMP, Kind.STRING:
            return _in_calendar(expr, expr.arg)
        case Kind.STRING, Kind.INT | Kind.BIGINT | Kind.DATE | Kind.FLOAT | Kind.DOUBLE:
            return replace(expr, arg=_trimmed(expr.arg))
        case Kind.STRING, Kind.BOOLEAN:
            # Parts of these words, and others, are booleans there; an empty text never is.
            text = _trimmed(expr.arg)
            known = _call("in", BOOLEAN, _call("lower", STRING, text), *(Lit(each, STRING) for each in _TRUTHS))
            no = _call("not", BOOLEAN, known)
            return replace(expr, arg=Case(((no, Lit("", STRING)),), text, STRING))
    return expr


def _in_calendar(expr: Expr, moment: Expr) -> Expr:
    """What the near engine has nothing right to say of where its calendar ends, made to fail there as a date does."""
    there = _call("is_not_null", BOOLEAN, Cast(moment, DATE))
    return Case(((there, expr),), None, expr.type)


def _field(expr: Call) -> Expr:
    return _in_calendar(expr, expr.args[0]) if expr.args[0].type == TIMESTAMP else expr


def _trimmed(text: Expr) -> Expr:
    return _call("btrim", STRING, text, Lit(_CONTROLS, STRING))


def _sure(condition: Expr) -> Expr:
    """A condition that is never NULL. From others the near engine concludes that a column of theirs is not NULL in the
    branch, and then finds that its own plans differ."""
    return _call("coalesce", BOOLEAN, condition, Lit(False, BOOLEAN))


def _lazy(expr: Case) -> Expr:
    """Of a CASE between booleans the near engine would work out all parts."""

    def number(value: Expr) -> Expr:
        return Cast(value, INT)

    branches = tuple((when, number(then)) for when, then in expr.branches)
    otherwise = None if expr.otherwise is None else number(expr.otherwise)
    return _call(EQUAL, BOOLEAN, Case(branches, otherwise, INT), Lit(1, INT))


def _as(expr: Expr, kind: ColumnType) -> Expr:
    """The expression in a type; a conversion of a decimal to a floating point number is spelled, too."""
    return expr if expr.type == kind else spelled(Cast(expr, kind))


def _all_as(expr: Call, kind: ColumnType) -> Call:
    return replace(expr, args=tuple(_as(each, kind) for each in expr.args))


def _call(name: str, kind: ColumnType, *args: Expr) -> Call:
    return Call(name, args, kind)


def _zero(kind: ColumnType) -> Lit:
    value: Value = Decimal(0) if kind.kind is Kind.DECIMAL else 0.0 if kind.kind in _FLOATING else 0
    return Lit(value, ColumnType(Kind.DECIMAL, 1, 0) if kind.kind is Kind.DECIMAL else kind)


def _calculated(expr: Call) -> Expr:
    """+ - * and signs: whole numbers by way of a type that holds the result, others in the type that Spark takes."""
    if expr.type.kind in _WHOLE:
        return Cast(_in_wider(expr), expr.type)
    return _converted_first(expr)


def _in_wider(expr: Call) -> Expr:
    wide = BIGINT if expr.type.kind is Kind.INT else _WIDE
    return replace(_all_as(expr, wide), type=wide)


def _converted_first(expr: Call) -> Expr:
    if expr.type.kind in _FLOATING:
        return _all_as(expr, expr.type)
    if expr.type.kind is Kind.DECIMAL:
        args = tuple(each if isinstance(each, Lit) else _as(each, as_decimal(each.type)) for each in expr.args)
        return Cast(replace(expr, args=args), expr.type)
    return expr


def _divided(expr: Call) -> Expr:
    if expr.type.kind is not Kind.DECIMAL:
        return _all_as(expr, expr.type)
    if expr.name != "/":
        return _converted_first(expr)
    # The quotient is cut off there after four digits more than the dividend has, and the conversion rounds it.
    left, right = expr.args
    scale = scaled_dividend(as_decimal(left.type), expr.type)
    dividend = Cast(left, ColumnType(Kind.DECIMAL, 38, scale))
    return Cast(replace(expr, args=(dividend, _as(right, as_decimal(right.type)))), expr.type)


def _compared(expr: Call) -> Expr:
    common = common_type([each.type for each in expr.args])
    return expr if common is None else _with_one_nan(_all_as(expr, common))


def _with_one_nan(expr: Call) -> Call:
    """With one NaN among the operands: there are several, some of them less than all numbers."""
    return replace(expr, args=tuple(map(_one_nan, expr.args)))


def _one_nan(expr: Expr) -> Expr:
    if expr.type.kind not in _FLOATING or isinstance(expr, Lit):
        return expr
    return _call("nanvl", expr.type, expr, Lit(math.nan, expr.type))


def _nullif(expr: Call) -> Expr:
    value, other = expr.args
    same = _compared(_call(EQUAL, BOOLEAN, value, other))
    return Case(((same, Lit(None, expr.type)),), value, expr.type)


def _extreme(expr: Call) -> Expr:
    """Of zeros with different signs Spark takes the first."""
    if expr.type.kind not in _FLOATING:
        return expr
    expr, zero = _with_one_nan(expr), _zero(expr.type)
    zeros = (Case(((_call(EQUAL, BOOLEAN, each, zero), each),), None, expr.type) for each in expr.args)
    return Case(((_call(EQUAL, BOOLEAN, expr, zero), _call("coalesce", expr.type, *zeros)),), expr, expr.type)


def _sign(expr: Call) -> Expr:
    value = _as(expr.args[0], DOUBLE)
    if expr.args[0].type.kind not in _FLOATING:
        return _call("sign", DOUBLE, value)
    return Case(((_call(EQUAL, BOOLEAN, value, _zero(DOUBLE)), value),), _call("sign", DOUBLE, value), DOUBLE)


def _of_double(expr: Call) -> Expr:
    return _all_as(expr, DOUBLE)


def _in_its_type(expr: Call) -> Expr:
    return Cast(expr, expr.type)


def _rounded(expr: Call) -> Expr:
    if expr.type.kind in _FLOATING:  # there is no -0.0 among what Spark rounds to
        return _call("+", expr.type, expr, _zero(expr.type))
    return _in_its_type(expr) if expr.type.kind is Kind.DECIMAL else expr


def _isnan(expr: Call) -> Expr:
    return _call("coalesce", BOOLEAN, expr, Lit(False, BOOLEAN))


def _tried(expr: Call) -> Expr:
    plain = replace(expr, name={"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/"}[expr.name])
    if expr.name == "try_divide":
        divisor = expr.args[1]
        there = Case(((_call("<>", BOOLEAN, divisor, _zero(divisor.type)), divisor),), None, divisor.type)
        return _divided(replace(plain, args=(expr.args[0], there)))
    if expr.type.kind in _WHOLE:
        return Cast(_in_wider(plain), expr.type, safe=True)
    return _converted_first(plain)


def _not_negative(length: Expr) -> Expr:
    zero = Lit(0, INT)
    return Case(((_call("<", BOOLEAN, length, zero), zero),), length, INT)


def _part(expr: Call) -> Expr:
    text, length = expr.args
    return replace(expr, args=(text, _not_negative(length)))


def _substring(expr: Call) -> Expr:
    text, start, *lengths = expr.args
    return replace(expr, args=(text, start, *map(_not_negative, lengths)))


def _week(expr: Call) -> Expr:
    return _all_as(expr, DATE)


def _whole_units(micros: int) -> Callable[[Call], Expr]:
    """Whole units before a time; the near engine counts towards 1970."""

    def write(expr: Call) -> Expr:
        count, size = _call("unix_micros", BIGINT, *expr.args), Lit(micros, BIGINT)
        below = _call("<", BOOLEAN, _call("%", BIGINT, count, size), Lit(0, BIGINT))
        one = Case(((below, Lit(1, BIGINT)),), Lit(0, BIGINT), BIGINT)
        return _call("-", BIGINT, _call("div", BIGINT, count, size), one)

    return write


def _from_units(micros: int) -> Callable[[Call], Expr]:
    def write(expr: Call) -> Expr:
        product = _calculated(_call("*", BIGINT, *expr.args, Lit(micros, BIGINT)))
        return replace(expr, name="timestamp_micros", args=(product,))

    return write


_SPELLINGS: dict[str, Callable[[Call], Expr]] = {
    **dict.fromkeys(("+", "-", "*", "neg", "abs"), _calculated),
    **dict.fromkeys(("/", "%", "div"), _divided),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), _compared),
    **dict.fromkeys(("greatest", "least"), _extreme),
    "in": _with_one_nan,
    **dict.fromkeys(("sqrt", "exp", "ln", "log10", "log2", "power"), _of_double),
    **dict.fromkeys(("try_add", "try_subtract", "try_multiply", "try_divide"), _tried),
    **dict.fromkeys(("left", "right"), _part),
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofweek", "dayofyear"), _field),
    **dict.fromkeys(("hour", "minute", "second"), _field),
    "nullif": _nullif,
    "sign": _sign,
    "round": _rounded,
    "isnan": _isnan,
    "substring": _substring,
    "weekofyear": _week,
    "datediff": _in_its_type,
    "unix_millis": _whole_units(1_000),
    "unix_seconds": _whole_units(1_000_000),
    "timestamp_millis": _from_units(1_000),
    "timestamp_seconds": _from_units(1_000_000),
}
