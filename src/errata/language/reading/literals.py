"""Constants in SQL: numbers with their types, times, intervals of fixed length, and the names of types."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from datetime import date
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from errata.errors import UsageError
from errata.language.expr import BIGINT, DATE, DOUBLE, INT, TIMESTAMP, Lit
from errata.language.reading.mistakes import LanguageError, SqlText
from errata.language.reading.parser import refuse_unknown_parts, unknown_construct
from errata.model.columns import MAX_PRECISION, ColumnType, TypeKind
from errata.model.time import parse_duration, parse_instant

_NUMBER_PATTERN = re.compile(r"(\d*)(\.\d*)?(E[+-]?\d+)?(L|D|F|BD|S|Y)?", re.IGNORECASE | re.ASCII)
_AMOUNT_PATTERN = re.compile(r"[+-]?\d{1,19}(\.\d{1,6})?", re.ASCII)
_DATE_PATTERN = r"\d{4}-\d\d-\d\d"
_TIME_PATTERN = re.compile(_DATE_PATTERN + r"([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)? ?(Z|UTC|[+-]\d\d:?\d\d)?)?", re.ASCII)
_CALENDAR_UNIT = re.compile(r"months?|mons?|quarters?|years?|yrs?|\d[my]o?\b", re.IGNORECASE)
_INT_LIMIT, _BIGINT_LIMIT = 2**31, 2**63
_MAX_DIGITS = 1_000
_FLOAT = ColumnType(TypeKind.FLOAT)
_FIXED_UNITS = "MICROSECOND, MILLISECOND, SECOND, MINUTE, HOUR, DAY or WEEK"


def lower_number(text: SqlText, node: exp.Expression, written: str, sign: str = "") -> Lit:
    """A number: an int, bigint or decimal by its length, a double with an exponent, or the type of its suffix."""
    found = _NUMBER_PATTERN.fullmatch(written)
    if found is None or not (found[1] or (found[2] or "").strip(".")):
        raise text.mistake(node, f"{written} is not a number")
    digits, suffix = sign + written[: found.start(4)] if found[4] else sign + written, (found[4] or "").upper()
    if suffix in ("S", "Y"):
        raise text.mistake(node, "smallint and tinyint are not types of the language", how="leave out the suffix")
    if suffix in ("D", "F") or (found[3] and not suffix):
        return _floating_literal(text, node, float(digits), suffix == "F")
    if found[3] or (suffix == "L" and found[2]):
        raise text.mistake(node, f"{written} is not a number", how=f"write the digits in full before {suffix}")
    if found[2] or suffix == "BD":
        return _decimal_literal(text, node, digits)
    if len(digits) > _MAX_DIGITS:
        # Python reads no number of thousands of digits, and no type of the language holds one.
        if suffix == "L":
            raise text.mistake(node, "the number is too large for a bigint")
        return _decimal_literal(text, node, digits)
    return _whole_literal(text, node, int(digits), suffix == "L")


def _floating_literal(text: SqlText, node: exp.Expression, value: float, single: bool) -> Lit:
    if single and math.isfinite(value):
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = math.inf
    if not math.isfinite(value):
        raise text.mistake(node, f"the number is too large for a {'float' if single else 'double'}")
    return Lit(value, _FLOAT if single else DOUBLE)


def _whole_literal(text: SqlText, node: exp.Expression, value: int, long: bool) -> Lit:
    if not long and -_INT_LIMIT <= value < _INT_LIMIT:
        return Lit(value, INT)
    if -_BIGINT_LIMIT <= value < _BIGINT_LIMIT:
        return Lit(value, BIGINT)
    if long:
        raise text.mistake(node, "the number is too large for a bigint")
    return _decimal_literal(text, node, str(value))


def _decimal_literal(text: SqlText, node: exp.Expression, digits: str) -> Lit:
    value = Decimal(digits)
    _, kept, exponent = value.as_tuple()
    scale = -int(exponent)
    precision = max(len(kept), scale)
    if precision > MAX_PRECISION:
        raise text.mistake(node, f"the number has {precision} digits", f"a decimal has {MAX_PRECISION} at most")
    return Lit(value, ColumnType(TypeKind.DECIMAL, precision, scale))


def lower_moment(text: SqlText, node: exp.Expression, written: str, kind: ColumnType) -> Lit:
    """A text read as a timestamp or a date."""
    value = _parse_moment(written.strip(), kind)
    if value is not None:
        return Lit(value, kind)
    if kind == DATE:
        raise text.mistake(node, f"{written!r} is not a date", how="write it as 2026-11-18")
    how = "write it as 2026-11-18 02:00:00, with microseconds and a zone if need be; without a zone it is UTC"
    raise text.mistake(node, f"{written!r} is not a date and time", how=how)


def _parse_moment(written: str, kind: ColumnType) -> int | date | None:
    # Python reads weeks and dates without hyphens, too; Spark does not.
    if not _TIME_PATTERN.fullmatch(written):
        return None
    try:
        return parse_instant(written) if kind == TIMESTAMP else date.fromisoformat(written)
    except (UsageError, ValueError):
        return None


def is_interval(node: exp.Expression | None) -> bool:
    """Whether the node is an INTERVAL, or several in a row."""
    match node:
        case exp.Interval():
            return True
        case exp.Paren(this=inner):
            return is_interval(inner)
        case exp.Add(this=left, expression=right) | exp.Sub(this=left, expression=right):
            return is_interval(left) and is_interval(right)
    return False


def lower_interval(text: SqlText, node: exp.Expression) -> int:
    """The microseconds of an INTERVAL."""
    micros = _interval_micros(text, node)
    if not -_BIGINT_LIMIT < micros < _BIGINT_LIMIT:
        raise text.mistake(node, "the interval is too long")
    return micros


def _interval_micros(text: SqlText, node: exp.Expression) -> int:
    match node:
        case exp.Paren(this=inner):
            return _interval_micros(text, inner)
        case exp.Add(this=left, expression=right):
            return _interval_micros(text, left) + _interval_micros(text, right)
        case exp.Sub(this=left, expression=right):
            return _interval_micros(text, left) - _interval_micros(text, right)
        case exp.Interval():
            refuse_unknown_parts(text, node, {"this", "unit"})
            return _single_interval(text, node)
    raise unknown_construct(text, node)


def _single_interval(text: SqlText, node: exp.Interval) -> int:
    amount, unit = node.this, node.args.get("unit")
    sign = 1
    while isinstance(amount, (exp.Neg, exp.Paren)):
        sign, amount = (-sign if isinstance(amount, exp.Neg) else sign), amount.this
    if not isinstance(amount, exp.Literal) or not (unit is None or isinstance(unit, exp.Var)):
        raise _calendar_mistake(text, node)
    written = amount.name
    try:
        if unit is None:
            return sign * parse_duration(written)
        each = parse_duration(f"1 {unit.name}")
        if not _AMOUNT_PATTERN.fullmatch(written.strip()):
            raise _calendar_mistake(text, node)
        micros = Decimal(written.strip()) * each
    except (UsageError, InvalidOperation) as error:
        raise error if isinstance(error, LanguageError) else _calendar_mistake(text, node) from None
    if micros != int(micros):
        raise text.mistake(node, "an interval is a whole number of microseconds")
    return sign * int(micros)


def is_calendar_interval(written: str) -> bool:
    """Whether a text names a span of variable length, such as a month."""
    return _CALENDAR_UNIT.search(written) is not None


def _calendar_mistake(text: SqlText, node: exp.Expression) -> LanguageError:
    return text.mistake(
        node,
        "only an INTERVAL of fixed length is part of the language",
        "months and years differ in length" if is_calendar_interval(node.sql()) else None,
        f"write INTERVAL '5' and one of {_FIXED_UNITS}",
    )


TYPES_BY_NAME: Mapping[str, ColumnType] = {
    kind.value: ColumnType(kind, 10, 0) if kind is TypeKind.DECIMAL else ColumnType(kind) for kind in TypeKind
}
"""The types by the names that may also be written as functions: int('5')."""

_SQLGLOT_KINDS = {
    exp.DType.BOOLEAN: TypeKind.BOOLEAN,
    exp.DType.INT: TypeKind.INT,
    exp.DType.BIGINT: TypeKind.BIGINT,
    exp.DType.FLOAT: TypeKind.FLOAT,
    exp.DType.DOUBLE: TypeKind.DOUBLE,
    exp.DType.DECIMAL: TypeKind.DECIMAL,
    exp.DType.TEXT: TypeKind.STRING,
    exp.DType.DATE: TypeKind.DATE,
    exp.DType.TIMESTAMPTZ: TypeKind.TIMESTAMP,
    exp.DType.TIMESTAMPLTZ: TypeKind.TIMESTAMP,
}


def lower_type(text: SqlText, node: exp.Expression) -> ColumnType:
    """The type that a conversion names."""
    written = node.args.get("to")
    if not isinstance(written, exp.DataType):
        raise text.mistake(node, "this conversion names no type", how="write CAST(x AS type)")
    kind = _SQLGLOT_KINDS.get(written.this)
    if kind is None:
        known = ", ".join(TYPES_BY_NAME)
        raise text.mistake(node, f"{written.sql('spark')} is not a type of the language", how=f"the types are {known}")
    refuse_unknown_parts(text, written, {"this", "expressions"})
    sizes = [_type_size(text, node, each) for each in written.expressions]
    if kind is not TypeKind.DECIMAL:
        if sizes:
            raise text.mistake(node, f"{kind} has no size")
        return ColumnType(kind)
    if len(sizes) > 2:
        raise text.mistake(node, "a decimal has a precision and a scale")
    precision, scale = [*sizes, 10, 0][:2] if not sizes else [*sizes, 0][:2]
    try:
        return ColumnType(kind, precision, scale)
    except UsageError as error:
        raise text.mistake(node, error.what, error.why, error.how) from None


def _type_size(text: SqlText, node: exp.Expression, written: exp.Expression) -> int:
    size = written.this if isinstance(written, exp.DataTypeParam) else written
    if not isinstance(size, exp.Literal) or not size.name.isdecimal() or len(size.name) > 3:
        raise text.mistake(node, "the size of a type is a whole number")
    return int(size.name)
