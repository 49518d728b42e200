"""The functions of the language: parameters, result types, whether they can fail, and whether the near engine supports
them.

All are Spark's own. A new function is one entry of `FUNCTIONS`; what is said of the near
engine there is tested against Spark in both directions.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from errata.language.coercion import (
    TypeFamily,
    arithmetic_type,
    bounded_decimal,
    decimal_for,
    division_fits,
    loses_digits,
    type_family,
)
from errata.language.expr import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    SHIFT,
    STRING,
    TIMESTAMP,
    Call,
    Case,
    Cast,
    Expr,
    Lit,
    Ref,
    children,
)
from errata.model.columns import FLOATING_KINDS, WHOLE_KINDS, ColumnType, TypeKind

ResultType = Callable[[tuple[Expr, ...]], "ColumnType | None"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """The requirement on an argument."""

    words: str
    fits: Callable[[Expr], bool]


@dataclass(frozen=True, slots=True)
class NearDifference:
    """Arguments for which the near engine does not give Spark's result, however it is written."""

    words: str
    fits: Callable[[Expr], bool]
    """Whether a call of the function has such arguments."""


@dataclass(frozen=True, slots=True)
class NearSupport:
    """How far the near engine agrees with Spark. Tested in both directions."""

    differences: tuple[NearDifference, ...] = ()
    """Arguments for which it does not: Spark does the work from the start."""
    fails_for: str | None = None
    """Values for which it fails and Spark does not: Spark does the work again."""

    def obstacle(self, call: Expr) -> NearDifference | None:
        """The difference that applies to a call; None if there is none."""
        return next((each for each in self.differences if each.fits(call)), None)


SAME_ON_NEAR = NearSupport()
"""The near engine agrees with Spark for all arguments."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function by its arguments."""

    parameters: tuple[Parameter, ...]
    result_type: ResultType
    optional_count: int = 0
    """The number of trailing arguments that may be omitted."""
    variadic: bool = False
    """Whether more arguments like the last may follow."""
    never_fails: bool = True
    """Whether it never fails, whatever the arguments' values."""
    near: NearSupport = SAME_ON_NEAR
    """Whether the near engine, too, gives what Spark gives."""

    def accepts(self, args: tuple[Expr, ...]) -> bool:
        """Whether it takes these arguments."""
        most = len(args) if self.variadic else len(self.parameters)
        if not len(self.parameters) - self.optional_count <= len(args) <= most:
            return False
        wanted = [*self.parameters, *(self.parameters[-1] for _ in args[len(self.parameters) :])]
        return all(each.fits(arg) for each, arg in zip(wanted, args, strict=False))

    def usage(self, name: str) -> str:
        """Its usage, as messages show it."""
        words = [each.words for each in self.parameters]
        for at in range(len(words) - self.optional_count, len(words)):
            words[at] = f"[{words[at]}]"
        return f"{name}({', '.join(words)}{', ...' if self.variadic else ''})"


def _parameter_of(words: str, *kinds: TypeKind) -> Parameter:
    return Parameter(words, lambda expr: expr.type.kind in kinds)


def _constant_parameter(words: str, fits: Callable[[Lit], bool]) -> Parameter:
    return Parameter(words, lambda expr: isinstance(expr, Lit) and fits(expr))


def _whole_value(expr: Expr) -> int:
    return expr.value if isinstance(expr, Lit) and isinstance(expr.value, int) else 0


TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
EXTRACTED = ("year", "quarter", "month", "day", "dayofweek", "hour", "minute")
"""Fields that EXTRACT takes from a time. Not the second, which has a fraction there."""
_NUMBER = Parameter("number", lambda expr: type_family(expr.type) is TypeFamily.NUMBER)
_STRING = _parameter_of("string", TypeKind.STRING)
_INTEGER = _parameter_of("int", TypeKind.INT)
_WHOLE = _parameter_of("int or bigint", *WHOLE_KINDS)
_FLOATING = _parameter_of("float or double", *FLOATING_KINDS)
_TIMESTAMP = _parameter_of("timestamp", TypeKind.TIMESTAMP)
_DATE = _parameter_of("date", TypeKind.DATE)
_TIME = _parameter_of("date or timestamp", TypeKind.DATE, TypeKind.TIMESTAMP)
_PLACES = _constant_parameter(
    "constant int from -38 to 38", lambda lit: lit.type == INT and abs(_whole_value(lit)) <= 38
)
# Constant, since a column could ask for texts longer than memory.
_LENGTH = _constant_parameter(
    "constant int from 0 to 10000", lambda lit: lit.type == INT and 0 <= _whole_value(lit) <= 10_000
)
_UNIT = _constant_parameter(f"one of {', '.join(map(repr, TRUNCATED))}", lambda lit: lit.value in TRUNCATED)


def _type_always(kind: ColumnType) -> ResultType:
    return lambda _args: kind


def _type_of_first(args: tuple[Expr, ...]) -> ColumnType:
    return args[0].type


def _type_of_ceiling(args: tuple[Expr, ...]) -> ColumnType:
    kind = args[0].type
    if kind.kind is not TypeKind.DECIMAL:
        return BIGINT
    return kind if kind.scale == 0 else bounded_decimal(kind.precision - kind.scale + 1, 0)


def _type_of_round(args: tuple[Expr, ...]) -> ColumnType:
    kind = args[0].type
    if kind.kind is not TypeKind.DECIMAL:
        return kind
    places = _whole_value(args[1]) if len(args) > 1 else 0
    before = kind.precision - kind.scale + 1
    if places < 0:
        return ColumnType(TypeKind.DECIMAL, min(max(before, -places + 1), 38), 0)
    scale = min(kind.scale, places)
    return ColumnType(TypeKind.DECIMAL, min(before + scale, 38), scale)


def _try_function(operator: str, near: NearSupport) -> Function:
    return Function((_NUMBER, _NUMBER), lambda args: arithmetic_type(operator, args[0], args[1]), near=near)


def _has_decimal(call: Expr) -> bool:
    return TypeKind.DECIMAL in (call.type.kind, *(each.type.kind for each in children(call)))


def _over_digits(call: Expr) -> bool:
    return isinstance(call, Call) and loses_digits(call.name, *call.args)


def _is_floating(call: Expr) -> bool:
    return call.type.kind in FLOATING_KINDS


def _has_variable_start(call: Expr) -> bool:
    start = children(call)[1]
    return not isinstance(start, Lit) or _whole_value(start) < 0


def _has_long_division(call: Expr) -> bool:
    return call.type.kind is TypeKind.DECIMAL and not division_fits(*children(call))


DECIMALS = NearDifference("decimals", _has_decimal)
LONG_DIVISION = NearDifference("decimals whose division has more than 38 digits on the way", _has_long_division)
OVER_DIGITS = NearDifference("decimals whose exact result has more than 38 digits", _over_digits)
SIGNED_DIGITS = NearDifference(
    "decimals of more than 34 digits: Spark rounds them to 34",
    lambda call: call.type.kind is TypeKind.DECIMAL and call.type.precision > 34,
)
_FLOATS_TO_PLACES = NearDifference(
    "floats and doubles to a number of places", lambda call: _is_floating(call) and len(children(call)) > 1
)
_STARTS = NearDifference("a start that is no constant, or counts from the end", _has_variable_start)
_LAST_BITS = NearSupport((NearDifference("anything: the last bits differ", lambda _call: True),))
_FAR_DATES = NearSupport(fails_for="dates hundreds of thousands of years away")
_DOUBLE_OF_NUMBER = Function((_NUMBER,), _type_always(DOUBLE))
_CALENDAR = NearSupport(fails_for="times after the year 262142, where its calendar ends")
_INT_OF_TIME = Function((_TIME,), _type_always(INT), near=_CALENDAR)
_INT_OF_TIMESTAMP = Function((_TIMESTAMP,), _type_always(INT), near=_CALENDAR)
_BIGINT_OF_TIMESTAMP = Function((_TIMESTAMP,), _type_always(BIGINT))
_STRING_OF_STRING = Function((_STRING,), _type_always(STRING))
_TRIMMED = Function((_STRING,), _type_always(STRING))
_PART = Function((_STRING, _INTEGER), _type_always(STRING))
_PADDED = Function((_STRING, _LENGTH, _STRING), _type_always(STRING), optional_count=1)
_TEST = Function((_STRING, _STRING), _type_always(BOOLEAN))

FUNCTIONS: Mapping[str, Function] = {
    "abs": Function((_NUMBER,), _type_of_first, never_fails=False, near=NearSupport((SIGNED_DIGITS,))),
    "ceil": Function((_NUMBER,), _type_of_ceiling),
    "floor": Function((_NUMBER,), _type_of_ceiling),
    "round": Function(
        (_NUMBER, _PLACES), _type_of_round, optional_count=1, never_fails=False, near=NearSupport((_FLOATS_TO_PLACES,))
    ),
    **dict.fromkeys(("sqrt", "sign"), _DOUBLE_OF_NUMBER),
    **dict.fromkeys(("exp", "ln", "log10", "log2"), Function((_NUMBER,), _type_always(DOUBLE), near=_LAST_BITS)),
    "power": Function((_NUMBER, _NUMBER), _type_always(DOUBLE), near=_LAST_BITS),
    "isnan": Function((_FLOATING,), _type_always(BOOLEAN)),
    "try_add": _try_function("+", NearSupport((OVER_DIGITS,))),
    "try_subtract": _try_function("-", NearSupport((OVER_DIGITS,))),
    "try_multiply": _try_function("*", NearSupport((OVER_DIGITS,))),
    "try_divide": _try_function("/", NearSupport((LONG_DIVISION,))),
    **dict.fromkeys(("upper", "lower", "reverse"), _STRING_OF_STRING),
    **dict.fromkeys(("trim", "ltrim", "rtrim"), _TRIMMED),
    "length": Function((_STRING,), _type_always(INT)),
    "substring": Function(
        (_STRING, _INTEGER, _INTEGER), _type_always(STRING), optional_count=1, near=NearSupport((_STARTS,))
    ),
    "left": _PART,
    "right": _PART,
    "lpad": _PADDED,
    "rpad": _PADDED,
    "instr": Function((_STRING, _STRING), _type_always(INT)),
    "concat": Function((_STRING,), _type_always(STRING), variadic=True),
    "replace": Function((_STRING, _STRING, _STRING), _type_always(STRING), optional_count=1),
    **dict.fromkeys(("startswith", "endswith", "contains"), _TEST),
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofweek", "dayofyear", "weekofyear"), _INT_OF_TIME),
    **dict.fromkeys(("hour", "minute", "second"), _INT_OF_TIMESTAMP),
    "date_trunc": Function(
        (_UNIT, _TIMESTAMP), _type_always(TIMESTAMP), near=NearSupport(fails_for="times before 1677 and after 2262")
    ),
    "date_add": Function((_DATE, _INTEGER), _type_always(DATE), never_fails=False, near=_FAR_DATES),
    "date_sub": Function((_DATE, _INTEGER), _type_always(DATE), never_fails=False, near=_FAR_DATES),
    "datediff": Function((_DATE, _DATE), _type_always(INT)),
    **dict.fromkeys(("unix_micros", "unix_millis", "unix_seconds"), _BIGINT_OF_TIMESTAMP),
    "timestamp_micros": Function((_WHOLE,), _type_always(TIMESTAMP)),
    "timestamp_millis": Function((_WHOLE,), _type_always(TIMESTAMP), never_fails=False),
    "timestamp_seconds": Function((_WHOLE,), _type_always(TIMESTAMP), never_fails=False),
}
"""Functions whose arguments keep their types. `reading/expressions.py` has those that need one common type."""

WITH_COMMON_TYPE = ("coalesce", "greatest", "least", "if", "nullif")
"""Functions whose arguments are converted to one type."""

ALIASES: Mapping[str, str] = {
    "ceiling": "ceil",
    "pow": "power",
    "signum": "sign",
    "ucase": "upper",
    "lcase": "lower",
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "substr": "substring",
    "starts_with": "startswith",
    "ends_with": "endswith",
    "dayofmonth": "day",
    "date_diff": "datediff",
    "nvl": "coalesce",
    "ifnull": "coalesce",
    "regexp": "rlike",
    "regexp_like": "rlike",
    "negative": "neg",
    "mod": "%",
    "isnull": "is_null",
    "isnotnull": "is_not_null",
}
"""Other names that Spark has for these functions."""

OPERATORS = ("like", "ilike", "rlike", "neg", "positive", "%", "is_null", "is_not_null")
"""Operators that may be written as functions."""


def known_names() -> list[str]:
    """The names that can be called."""
    written = {*FUNCTIONS, *WITH_COMMON_TYPE, *ALIASES, "like", "ilike", "rlike", "positive", "to_date", "to_timestamp"}
    return sorted(name for name in written if name.isidentifier())


def similar_names(name: str) -> list[str]:
    """Known functions whose names are like this one."""
    return difflib.get_close_matches(name, known_names(), n=3, cutoff=0.6)


def never_fails(expr: Expr) -> bool:
    """Whether it never fails in ANSI mode, whatever the values of its columns."""
    if not all(never_fails(each) for each in children(expr)):
        return False
    match expr:
        case Cast(arg=arg, type=kind, safe=safe):
            return safe or always_castable(arg.type, kind)
        case Call():
            return _call_never_fails(expr)
        case Ref() | Lit() | Case():
            return True
    assert_never(expr)


_TOTAL_OPERATORS = frozenset(
    ("=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or", "not", "is_null", "is_not_null", "in", "||", "try_mod")
) | frozenset(WITH_COMMON_TYPE)
"""Operators, and functions that no table above has, which never fail."""


def _call_never_fails(expr: Call) -> bool:
    name, kind = expr.name, expr.type.kind
    floating = kind in FLOATING_KINDS
    if name == SHIFT:
        # A timestamp (years 1 to 9999) and a shift within these bounds stay far from the end of a bigint.
        return _has_small_shift(expr)
    match name:
        case "+" | "-" | "*" | "neg" | "abs" | "round":
            return floating
        case "/" | "%" | "div":
            return _has_safe_divisor(expr, floating)
        case "like":
            return _is_valid_like(expr.args[1])
        case "rlike":
            return False
    # Names that no table has (spellings for the near engine) may fail.
    return name in _TOTAL_OPERATORS or (name in FUNCTIONS and FUNCTIONS[name].never_fails)


def _has_safe_divisor(expr: Call, floating: bool) -> bool:
    """Whether the divisor is a constant other than 0, and the result cannot be too large."""
    divisor = expr.args[1]
    known = isinstance(divisor, Lit) and isinstance(divisor.value, int | float) and divisor.value > 0
    whole = all(each.type.kind in WHOLE_KINDS for each in expr.args)
    return known and (floating or whole)


def _has_small_shift(expr: Call) -> bool:
    by = expr.args[1]
    return isinstance(by, Lit) and isinstance(by.value, int) and abs(by.value) < 2**60


def _is_valid_like(expr: Expr) -> bool:
    """Whether LIKE takes it: after a backslash only what it may stand before."""
    if not isinstance(expr, Lit) or not isinstance(expr.value, str):
        return False
    rest = iter(expr.value)
    return all(each != "\\" or next(rest, "") in ("\\", "%", "_") for each in rest)


def always_castable(source: ColumnType, target: ColumnType) -> bool:
    """Whether each value of one type can be converted to the other."""
    if source == target or target.kind is TypeKind.STRING or source.kind is TypeKind.BOOLEAN:
        return (
            source.kind is not TypeKind.BOOLEAN
            or target.kind is not TypeKind.DECIMAL
            or target.precision > target.scale
        )
    if type_family(source) is TypeFamily.TIME:
        return True
    match target.kind:
        case TypeKind.BOOLEAN | TypeKind.DOUBLE | TypeKind.FLOAT:
            return type_family(source) is TypeFamily.NUMBER
        case TypeKind.BIGINT:
            return source.kind is TypeKind.INT
        case TypeKind.DECIMAL if source.kind in (TypeKind.INT, TypeKind.BIGINT, TypeKind.DECIMAL):
            digits = decimal_for(source)
            whole = {TypeKind.INT: 10, TypeKind.BIGINT: 19}.get(source.kind, digits.precision - digits.scale)
            # A shorter scale rounds, and may round up to one digit more.
            more = 1 if target.scale < digits.scale else 0
            return target.precision - target.scale >= whole + more
    return False


def castable(source: ColumnType, target: ColumnType) -> bool:
    """Whether a conversion between the types has a meaning: a number is not a time, nor a time a number."""
    families = {type_family(source), type_family(target)}
    return TypeFamily.STRING in families or TypeFamily.TIME not in families or families == {TypeFamily.TIME}
