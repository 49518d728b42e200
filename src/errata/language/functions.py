"""The functions of the language: what they take, what they give, and whether they can fail. All are Spark's own."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

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
from errata.language.widening import Family, adjusted, arithmetic, as_decimal, family, fits_division, is_shortened
from errata.model.columns import ColumnType, Kind

Gives = Callable[[tuple[Expr, ...]], "ColumnType | None"]


@dataclass(frozen=True, slots=True)
class Taken:
    """What an argument must be."""

    words: str
    fits: Callable[[Expr], bool]


@dataclass(frozen=True, slots=True)
class Unlike:
    """Arguments for which the near engine does not give what Spark gives, also when it is written around."""

    words: str
    fits: Callable[[Expr], bool]
    """Whether a call of the function has such arguments."""


@dataclass(frozen=True, slots=True)
class Near:
    """How far the near engine does what Spark does. All that is said of it is tested, in both directions."""

    unlike: tuple[Unlike, ...] = ()
    """Where it does not: far decides before anything is tried."""
    fails: str | None = None
    """For which values it fails and Spark does not, so that far decides afterwards."""

    def obstacle(self, call: Expr) -> Unlike | None:
        """What about the call is not the same there."""
        return next((each for each in self.unlike if each.fits(call)), None)


SAME = Near()
"""The near engine does it as Spark does, whatever the arguments."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function by its arguments."""

    takes: tuple[Taken, ...]
    gives: Gives
    optional: int = 0
    """How many of the last arguments may be left out."""
    repeated: bool = False
    """Whether more arguments like the last may follow."""
    total: bool = True
    """Whether it never fails, whatever the arguments' values."""
    near: Near = SAME
    """Whether the near engine, too, gives what Spark gives."""

    def accepts(self, args: tuple[Expr, ...]) -> bool:
        """Whether it takes these arguments."""
        most = len(args) if self.repeated else len(self.takes)
        if not len(self.takes) - self.optional <= len(args) <= most:
            return False
        wanted = [*self.takes, *(self.takes[-1] for _ in args[len(self.takes) :])]
        return all(each.fits(arg) for each, arg in zip(wanted, args, strict=False))

    def usage(self, name: str) -> str:
        """How it is written."""
        words = [each.words for each in self.takes]
        for at in range(len(words) - self.optional, len(words)):
            words[at] = f"[{words[at]}]"
        return f"{name}({', '.join(words)}{', ...' if self.repeated else ''})"


def _of(words: str, *kinds: Kind) -> Taken:
    return Taken(words, lambda expr: expr.type.kind in kinds)


def _constant(words: str, fits: Callable[[Lit], bool]) -> Taken:
    return Taken(words, lambda expr: isinstance(expr, Lit) and fits(expr))


def _whole_value(expr: Expr) -> int:
    return expr.value if isinstance(expr, Lit) and isinstance(expr.value, int) else 0


TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
EXTRACTED = ("year", "quarter", "month", "day", "dayofweek", "hour", "minute")
"""What EXTRACT takes from a time: not the second, which has a fraction there."""
_NUMBER = Taken("number", lambda expr: family(expr.type) is Family.NUMBER)
_STRING = _of("string", Kind.STRING)
_INTEGER = _of("int", Kind.INT)
_WHOLE = _of("int or bigint", Kind.INT, Kind.BIGINT)
_FLOATING = _of("float or double", Kind.FLOAT, Kind.DOUBLE)
_TIMESTAMP = _of("timestamp", Kind.TIMESTAMP)
_DATE = _of("date", Kind.DATE)
_TIME = _of("date or timestamp", Kind.DATE, Kind.TIMESTAMP)
_PLACES = _constant("constant int from -38 to 38", lambda lit: lit.type == INT and abs(_whole_value(lit)) <= 38)
# A column could ask for texts longer than memory.
_LENGTH = _constant("constant int from 0 to 10000", lambda lit: lit.type == INT and 0 <= _whole_value(lit) <= 10_000)
_UNIT = _constant(f"one of {', '.join(map(repr, TRUNCATED))}", lambda lit: lit.value in TRUNCATED)


def _always(kind: ColumnType) -> Gives:
    return lambda _args: kind


def _same(args: tuple[Expr, ...]) -> ColumnType:
    return args[0].type


def _rounded_whole(args: tuple[Expr, ...]) -> ColumnType:
    kind = args[0].type
    if kind.kind is not Kind.DECIMAL:
        return BIGINT
    return kind if kind.scale == 0 else adjusted(kind.precision - kind.scale + 1, 0)


def _rounded(args: tuple[Expr, ...]) -> ColumnType:
    kind = args[0].type
    if kind.kind is not Kind.DECIMAL:
        return kind
    places = _whole_value(args[1]) if len(args) > 1 else 0
    before = kind.precision - kind.scale + 1
    if places < 0:
        return ColumnType(Kind.DECIMAL, min(max(before, -places + 1), 38), 0)
    scale = min(kind.scale, places)
    return ColumnType(Kind.DECIMAL, min(before + scale, 38), scale)


def _tried(operator: str, near: Near) -> Function:
    return Function((_NUMBER, _NUMBER), lambda args: arithmetic(operator, args[0], args[1]), near=near)


def _has_decimal(call: Expr) -> bool:
    return Kind.DECIMAL in (call.type.kind, *(each.type.kind for each in children(call)))


def _over_digits(call: Expr) -> bool:
    return isinstance(call, Call) and is_shortened(call.name, *call.args)


def _is_floating(call: Expr) -> bool:
    return call.type.kind in (Kind.FLOAT, Kind.DOUBLE)


def _starts_anywhere(call: Expr) -> bool:
    start = children(call)[1]
    return not isinstance(start, Lit) or _whole_value(start) < 0


def _divides_long(call: Expr) -> bool:
    return call.type.kind is Kind.DECIMAL and not fits_division(*children(call))


DECIMALS = Unlike("decimals", _has_decimal)
LONG_DIVISION = Unlike("decimals whose division has more than 38 digits on the way", _divides_long)
OVER_DIGITS = Unlike("decimals whose exact result has more than 38 digits", _over_digits)
SIGNED_DIGITS = Unlike(
    "decimals of more than 34 digits: Spark rounds them to 34",
    lambda call: call.type.kind is Kind.DECIMAL and call.type.precision > 34,
)
_FLOATS_TO_PLACES = Unlike(
    "floats and doubles to a number of places", lambda call: _is_floating(call) and len(children(call)) > 1
)
_STARTS = Unlike("a start that is no constant, or counts from the end", _starts_anywhere)
_LAST_BITS = Near((Unlike("anything: the last bits differ", lambda _call: True),))
_FAR_DATES = Near(fails="dates hundreds of thousands of years away")
_DOUBLE_OF_NUMBER = Function((_NUMBER,), _always(DOUBLE))
_CALENDAR = Near(fails="times after the year 262142, where its calendar ends")
_INT_OF_TIME = Function((_TIME,), _always(INT), near=_CALENDAR)
_INT_OF_TIMESTAMP = Function((_TIMESTAMP,), _always(INT), near=_CALENDAR)
_BIGINT_OF_TIMESTAMP = Function((_TIMESTAMP,), _always(BIGINT))
_STRING_OF_STRING = Function((_STRING,), _always(STRING))
_TRIMMED = Function((_STRING,), _always(STRING))
_PART = Function((_STRING, _INTEGER), _always(STRING))
_PADDED = Function((_STRING, _LENGTH, _STRING), _always(STRING), optional=1)
_TEST = Function((_STRING, _STRING), _always(BOOLEAN))

FUNCTIONS: Mapping[str, Function] = {
    "abs": Function((_NUMBER,), _same, total=False, near=Near((SIGNED_DIGITS,))),
    "ceil": Function((_NUMBER,), _rounded_whole),
    "floor": Function((_NUMBER,), _rounded_whole),
    "round": Function((_NUMBER, _PLACES), _rounded, optional=1, total=False, near=Near((_FLOATS_TO_PLACES,))),
    **dict.fromkeys(("sqrt", "sign"), _DOUBLE_OF_NUMBER),
    **dict.fromkeys(("exp", "ln", "log10", "log2"), Function((_NUMBER,), _always(DOUBLE), near=_LAST_BITS)),
    "power": Function((_NUMBER, _NUMBER), _always(DOUBLE), near=_LAST_BITS),
    "isnan": Function((_FLOATING,), _always(BOOLEAN)),
    "try_add": _tried("+", Near((OVER_DIGITS,))),
    "try_subtract": _tried("-", Near((OVER_DIGITS,))),
    "try_multiply": _tried("*", Near((OVER_DIGITS,))),
    "try_divide": _tried("/", Near((LONG_DIVISION,))),
    **dict.fromkeys(("upper", "lower", "reverse"), _STRING_OF_STRING),
    **dict.fromkeys(("trim", "ltrim", "rtrim"), _TRIMMED),
    "length": Function((_STRING,), _always(INT)),
    "substring": Function((_STRING, _INTEGER, _INTEGER), _always(STRING), optional=1, near=Near((_STARTS,))),
    "left": _PART,
    "right": _PART,
    "lpad": _PADDED,
    "rpad": _PADDED,
    "instr": Function((_STRING, _STRING), _always(INT)),
    "concat": Function((_STRING,), _always(STRING), repeated=True),
    "replace": Function((_STRING, _STRING, _STRING), _always(STRING), optional=1),
    **dict.fromkeys(("startswith", "endswith", "contains"), _TEST),
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofweek", "dayofyear", "weekofyear"), _INT_OF_TIME),
    **dict.fromkeys(("hour", "minute", "second"), _INT_OF_TIMESTAMP),
    "date_trunc": Function(
        (_UNIT, _TIMESTAMP), _always(TIMESTAMP), near=Near(fails="times before 1677 and after 2262")
    ),
    "date_add": Function((_DATE, _INTEGER), _always(DATE), total=False, near=_FAR_DATES),
    "date_sub": Function((_DATE, _INTEGER), _always(DATE), total=False, near=_FAR_DATES),
    "datediff": Function((_DATE, _DATE), _always(INT)),
    **dict.fromkeys(("unix_micros", "unix_millis", "unix_seconds"), _BIGINT_OF_TIMESTAMP),
    "timestamp_micros": Function((_WHOLE,), _always(TIMESTAMP)),
    "timestamp_millis": Function((_WHOLE,), _always(TIMESTAMP), total=False),
    "timestamp_seconds": Function((_WHOLE,), _always(TIMESTAMP), total=False),
}
"""Functions whose arguments stay as they are. `expressions.py` has those that need one common type."""

WITH_COMMON_TYPE = ("coalesce", "greatest", "least", "if", "nullif")
"""Functions whose arguments are brought to one type."""

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
"""Other names by which Spark knows the same."""

OPERATORS = ("like", "ilike", "rlike", "neg", "positive", "%", "is_null", "is_not_null")
"""Operators that may be written as functions."""


def known_names() -> list[str]:
    """The names that may be written before brackets."""
    written = {*FUNCTIONS, *WITH_COMMON_TYPE, *ALIASES, "like", "ilike", "rlike", "positive", "to_date", "to_timestamp"}
    return sorted(name for name in written if name.isidentifier())


def similar(name: str) -> list[str]:
    """Known functions whose names are like this one."""
    return difflib.get_close_matches(name, known_names(), n=3, cutoff=0.6)


def total(expr: Expr) -> bool:
    """Whether it never fails in ANSI mode, whatever the values of its columns."""
    if not all(total(each) for each in children(expr)):
        return False
    match expr:
        case Cast(arg=arg, type=kind, safe=safe):
            return safe or fits_always(arg.type, kind)
        case Call():
            return _total_call(expr)
        case Ref() | Lit() | Case():
            return True
    assert_never(expr)


_TOTAL = frozenset(
    ("=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or", "not", "is_null", "is_not_null", "in", "||", "try_mod")
) | frozenset(WITH_COMMON_TYPE)
"""Operators, and functions that no table above has, which never fail."""


def _total_call(expr: Call) -> bool:
    name, kind = expr.name, expr.type.kind
    floating = kind in (Kind.FLOAT, Kind.DOUBLE)
    if name == SHIFT:
        # A timestamp (years 1 to 9999) and a shift within these bounds stay far from the end of a bigint.
        return _shifts_little(expr)
    match name:
        case "+" | "-" | "*" | "neg" | "abs" | "round":
            return floating
        case "/" | "%" | "div":
            return _divides(expr, floating)
        case "like":
            return _is_pattern(expr.args[1])
        case "rlike":
            return False
    # What no table has (the near engine's spellings) may fail.
    return name in _TOTAL or (name in FUNCTIONS and FUNCTIONS[name].total)


def _divides(expr: Call, floating: bool) -> bool:
    """Whether the divisor is a constant other than 0, and the result cannot be too large."""
    divisor = expr.args[1]
    known = isinstance(divisor, Lit) and isinstance(divisor.value, int | float) and divisor.value > 0
    whole = all(each.type.kind in (Kind.INT, Kind.BIGINT) for each in expr.args)
    return known and (floating or whole)


def _shifts_little(expr: Call) -> bool:
    by = expr.args[1]
    return isinstance(by, Lit) and isinstance(by.value, int) and abs(by.value) < 2**60


def _is_pattern(expr: Expr) -> bool:
    """Whether LIKE takes it: after a backslash only what it may stand before."""
    if not isinstance(expr, Lit) or not isinstance(expr.value, str):
        return False
    rest = iter(expr.value)
    return all(each != "\\" or next(rest, "") in ("\\", "%", "_") for each in rest)


def fits_always(source: ColumnType, target: ColumnType) -> bool:
    """Whether each value of one type can be converted to the other."""
    if source == target or target.kind is Kind.STRING or source.kind is Kind.BOOLEAN:
        return source.kind is not Kind.BOOLEAN or target.kind is not Kind.DECIMAL or target.precision > target.scale
    if family(source) is Family.TIME:
        return True
    match target.kind:
        case Kind.BOOLEAN | Kind.DOUBLE | Kind.FLOAT:
            return family(source) is Family.NUMBER
        case Kind.BIGINT:
            return source.kind is Kind.INT
        case Kind.DECIMAL if source.kind in (Kind.INT, Kind.BIGINT, Kind.DECIMAL):
            digits = as_decimal(source)
            whole = {Kind.INT: 10, Kind.BIGINT: 19}.get(source.kind, digits.precision - digits.scale)
            # A shorter scale rounds, and may round up to one digit more.
            more = 1 if target.scale < digits.scale else 0
            return target.precision - target.scale >= whole + more
    return False


def castable(source: ColumnType, target: ColumnType) -> bool:
    """Whether a value of one type can be meant as one of the other: not a number as a time, nor a time as a number."""
    families = {family(source), family(target)}
    return Family.STRING in families or Family.TIME not in families or families == {Family.TIME}
