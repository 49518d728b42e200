"""Expressions of a plan: immutable, typed, and printed as Spark SQL in exactly one way.

An expression is one of five kinds: a column (`Ref`), a constant (`Lit`), an operator or function (`Call`), a conversion
(`Cast`) or a `Case`. Its type was checked when it was read. Two expressions mean the same column of a group exactly
when their SQL is the same, so the text that `expr_sql` prints is part of plans and fingerprints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any, assert_never

from errata.model.columns import ColumnType, TypeKind
from errata.model.extent import Value
from errata.model.time import to_datetime


@dataclass(frozen=True, slots=True)
class Ref:
    """A column of the node's input, by its name within the plan."""

    name: str
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Lit:
    """A constant. A timestamp is an integer of microseconds; None is a NULL of the type."""

    value: Value
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function of the language (`functions.py` lists them) on arguments."""

    name: str
    args: tuple[Expr, ...]
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion that fails on what it cannot convert; a `safe` one gives NULL."""

    arg: Expr
    type: ColumnType
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """The first branch whose condition is true, else the last value."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None
    type: ColumnType


Expr = Ref | Lit | Call | Cast | Case

BOOLEAN = ColumnType(TypeKind.BOOLEAN)
BIGINT = ColumnType(TypeKind.BIGINT)
INT = ColumnType(TypeKind.INT)
DOUBLE = ColumnType(TypeKind.DOUBLE)
STRING = ColumnType(TypeKind.STRING)
TIMESTAMP = ColumnType(TypeKind.TIMESTAMP)
DATE = ColumnType(TypeKind.DATE)

AND, OR, NOT, EQUAL, SAME = "and", "or", "not", "=", "<=>"
SHIFT = "shift"
"""A timestamp moved by a whole number of microseconds, a bigint literal."""
TRUE = Lit(True, BOOLEAN)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression."""
    match expr:
        case Call():
            return expr.args
        case Cast():
            return (expr.arg,)
        case Case():
            parts = [part for branch in expr.branches for part in branch]
            return (*parts, *(() if expr.otherwise is None else (expr.otherwise,)))
        case Ref() | Lit():
            return ()
    assert_never(expr)


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """The expression and everything within it."""
    yield expr
    for child in children(expr):
        yield from walk_expr(child)


def refs(expr: Expr) -> frozenset[str]:
    """The columns that an expression reads."""
    return frozenset(each.name for each in walk_expr(expr) if isinstance(each, Ref))


def transform_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every part changed, the innermost first."""
    match expr:
        case Call():
            expr = replace(expr, args=tuple(transform_expr(each, change) for each in expr.args))
        case Cast():
            expr = replace(expr, arg=transform_expr(expr.arg, change))
        case Case():
            branches = tuple(
                (transform_expr(when, change), transform_expr(then, change)) for when, then in expr.branches
            )
            otherwise = None if expr.otherwise is None else transform_expr(expr.otherwise, change)
            expr = replace(expr, branches=branches, otherwise=otherwise)
        case Ref() | Lit():
            pass
        case _:
            assert_never(expr)
    return change(expr)


def conjuncts(expr: Expr | None) -> tuple[Expr, ...]:
    """The parts of a condition joined by AND; empty for no condition."""
    if expr is None:
        return ()
    if isinstance(expr, Call) and expr.name == AND:
        return tuple(part for each in expr.args for part in conjuncts(each))
    return (expr,)


def conjunction(parts: tuple[Expr, ...] | list[Expr]) -> Expr | None:
    """One condition that is true when all parts are, nested to the left; None for no part."""
    whole: Expr | None = None
    for part in parts:
        whole = part if whole is None else Call(AND, (whole, part), BOOLEAN)
    return whole


_BINARY = {
    OR: (1, "OR"),
    AND: (2, "AND"),
    **{name: (4, name) for name in ("=", "<>", "<", "<=", ">", ">=", "<=>")},
    "like": (4, "LIKE"),
    "rlike": (4, "RLIKE"),
    **{name: (6, name) for name in ("+", "-", "||")},
    **{name: (7, name) for name in ("*", "/", "%")},
    "div": (7, "DIV"),
}
_COMPARISON = 4
_ATOM = 9


def expr_sql(expr: Expr, ref: Callable[[str], str] = str) -> str:
    """The expression as Spark SQL; `ref` writes the name of a column."""
    return _print_expr(expr, ref)[0]


def _print_expr(expr: Expr, ref: Callable[[str], str]) -> tuple[str, int]:
    """The text, and the binding strength of its outermost operator."""
    match expr:
        case Ref():
            return ref(expr.name), _ATOM
        case Lit():
            return literal_sql(expr), _ATOM
        case Cast():
            name = "TRY_CAST" if expr.safe else "CAST"
            return f"{name}({expr_sql(expr.arg, ref)} AS {str(expr.type).upper()})", _ATOM
        case Case():
            parts = [f"WHEN {expr_sql(when, ref)} THEN {expr_sql(then, ref)}" for when, then in expr.branches]
            parts += [] if expr.otherwise is None else [f"ELSE {expr_sql(expr.otherwise, ref)}"]
            return f"CASE {' '.join(parts)} END", _ATOM
        case Call():
            return _call_sql(expr, ref)
    assert_never(expr)


def _call_sql(expr: Call, ref: Callable[[str], str]) -> tuple[str, int]:
    name, args = expr.name, expr.args
    if name in _BINARY:
        strength, symbol = _BINARY[name]
        left = _within_operator(args[0], strength + (strength == _COMPARISON), ref)
        return f"{left} {symbol} {_within_operator(args[1], strength + 1, ref)}", strength
    if name in _PRINTERS:
        strength, write = _PRINTERS[name]
        return write(expr, ref), strength
    return f"{name}({', '.join(expr_sql(each, ref) for each in args)})", _ATOM


def _list_sql(expr: Call, ref: Callable[[str], str]) -> str:
    return f"{_within_operator(expr.args[0], 5, ref)} IN ({', '.join(expr_sql(each, ref) for each in expr.args[1:])})"


def _within_operator(expr: Expr, strength: int, ref: Callable[[str], str]) -> str:
    text, own = _print_expr(expr, ref)
    return text if own >= strength else f"({text})"


_UNITS = (("DAY", 86_400_000_000), ("HOUR", 3_600_000_000), ("MINUTE", 60_000_000), ("SECOND", 1_000_000))


def _shift_sql(expr: Call, ref: Callable[[str], str]) -> str:
    moved, by = expr.args
    if not isinstance(by, Lit) or not isinstance(by.value, int):
        raise TypeError("a timestamp is shifted by a constant")
    sign, size = ("-", -by.value) if by.value < 0 else ("+", by.value)
    unit, micros = next((each for each in _UNITS if size % each[1] == 0), ("MICROSECOND", 1))
    return f"{_within_operator(moved, 6, ref)} {sign} INTERVAL '{size // micros}' {unit}"


_PRINTERS: dict[str, tuple[int, Callable[[Call, Callable[[str], str]], str]]] = {
    NOT: (3, lambda expr, ref: f"NOT {_within_operator(expr.args[0], 3, ref)}"),
    # In brackets: two minus signs begin a comment.
    "neg": (8, lambda expr, ref: f"-({expr_sql(expr.args[0], ref)})"),
    "is_null": (_COMPARISON, lambda expr, ref: f"{_within_operator(expr.args[0], 5, ref)} IS NULL"),
    "is_not_null": (_COMPARISON, lambda expr, ref: f"{_within_operator(expr.args[0], 5, ref)} IS NOT NULL"),
    "in": (_COMPARISON, _list_sql),
    SHIFT: (6, _shift_sql),
}


def literal_sql(lit: Lit) -> str:
    """A constant as Spark SQL writes it, with its type."""
    value = lit.value
    if value is None:
        return f"CAST(NULL AS {str(lit.type).upper()})"
    if lit.type.kind is TypeKind.TIMESTAMP and isinstance(value, int):
        moment = to_datetime(value).replace(tzinfo=None)
        return f"TIMESTAMP '{moment.isoformat(sep=' ', timespec='microseconds')}'"
    if lit.type.kind is TypeKind.BIGINT and isinstance(value, int) and -(2**31) <= value < 2**31:
        return f"{value}L"
    if lit.type.kind is TypeKind.FLOAT and isinstance(value, float):
        return _double_sql(value, "F", "FLOAT")
    return _LITERALS[type(value)](value)


def _text_sql(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    # Spark puts the values of variables into the text of a statement, constants not excepted.
    escaped = escaped.replace("${", "\\u0024{")
    return f"'{escaped}'"


def _decimal_sql(value: Decimal) -> str:
    return f"{value:f}" if "." in f"{value:f}" else f"{value:f}BD"


def _double_sql(value: float, suffix: str = "D", kind: str = "DOUBLE") -> str:
    text = repr(value)
    return f"{text}{suffix}" if all(each.isdigit() or each in ".e+-" for each in text) else f"CAST('{text}' AS {kind})"


_LITERALS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "TRUE" if value else "FALSE",
    date: lambda value: f"DATE '{value.isoformat()}'",
    float: _double_sql,
    int: str,
    str: _text_sql,
    Decimal: _decimal_sql,
}
