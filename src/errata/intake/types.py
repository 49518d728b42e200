"""The Arrow type of each declared type, and the rules by which text is read as it.

One set of rules serves CSV and JSON. Arrow casts a whole column at once, but accepts a little more than the rules (0x1F
as an int, 1 as a boolean, nan(12) as a double, an hour as a timestamp) and reads 1e-311 as a decimal zero. So each rule
has a cheap test of the whole column that tells whether Arrow's result, if it has one, is the rule's, and a pattern for
single values when it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Context, Decimal, DecimalException

import pyarrow as pa
import pyarrow.compute as pc

from errata.model.columns import MAX_PRECISION, ColumnType, TypeKind
from errata.model.stream import Stream

_ARROW_TYPES: dict[TypeKind, pa.DataType] = {
    TypeKind.STRING: pa.string(),
    TypeKind.BOOLEAN: pa.bool_(),
    TypeKind.INT: pa.int32(),
    TypeKind.BIGINT: pa.int64(),
    TypeKind.FLOAT: pa.float32(),
    TypeKind.DOUBLE: pa.float64(),
    TypeKind.DATE: pa.date32(),
    TypeKind.TIMESTAMP: pa.timestamp("us", "UTC"),
}


def arrow_type(kind: ColumnType) -> pa.DataType:
    """The Arrow type of a declared type."""
    if kind.kind is TypeKind.DECIMAL:
        return pa.decimal128(kind.precision, kind.scale)
    return _ARROW_TYPES[kind.kind]


def arrow_schema(stream: Stream) -> pa.Schema:
    """The Arrow schema of a stream's rows, in the order of the declaration."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in stream.columns])


# The rules for text.

_INTEGER = r"^[+-]?[0-9]+$"
_BOOLEAN = r"^(?i:true|false)$"
_REAL = r"^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))$"
_DECIMAL = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_DAY = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_MINUTE = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_DATE = rf"^{_DAY}$"
_TIMESTAMP = rf"^{_DAY}[ T]{_MINUTE}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-]{_MINUTE})?$"
_ZONED = r"(?:Z|[+-][0-9]{2}:[0-9]{2})$"
_DECIMAL_CONTEXT = Context(prec=100)


@dataclass(frozen=True, slots=True)
class TextRule:
    """How one type is read from text."""

    pattern: str
    """The pattern of a value; text that does not match is bad."""
    arrow_agrees: Callable[[pa.Array], bool]
    """Whether Arrow's cast of the whole column, if it succeeds, is what the rule says."""
    first_type: pa.DataType | None = None
    """The type of the first attempt, if it is not the declared one."""
    wider_type: pa.DataType | None = None
    """A type that also holds values too large for the declared one, so that only the range has to be checked."""
    range_pattern: str | None = None
    """A second pattern: what the declared precision can hold."""
    respell: Callable[[pa.Array], pa.Array] = lambda texts: texts
    """Makes text that matches the pattern readable for Arrow."""


def _always(_: pa.Array) -> bool:
    return True


def _has_min_length(length: int) -> Callable[[pa.Array], bool]:
    def surely(texts: pa.Array) -> bool:
        shortest = pc.min(pc.binary_length(texts)).as_py()
        return shortest is None or int(shortest) >= length

    return surely


def _has_none_of(*marks: bytes) -> Callable[[pa.Array], bool]:
    def surely(texts: pa.Array) -> bool:
        data = texts.buffers()[2]
        if data is None:
            return True
        whole = data.to_pybytes()
        return not any(mark in whole for mark in marks)

    return surely


def _strip_plus(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, r"^\+", "")


def _plain_decimals(texts: pa.Array) -> bool:
    longest = pc.max(pc.binary_length(texts)).as_py()
    return _has_none_of(b"e", b"E")(texts) and (longest is None or int(longest) <= MAX_PRECISION)


def _plain_or_null(texts: pa.Array) -> pa.Array:
    """Without texts that `exact_decimal` reads: Arrow overflows on more than 38 digits, and reads 1e-311 as zero."""
    odd = pc.or_(pc.match_substring_regex(texts, "[eE]"), pc.greater(pc.binary_length(texts), MAX_PRECISION))
    return pc.if_else(odd, pa.scalar(None, pa.string()), texts)


def _with_zone(texts: pa.Array) -> pa.Array:
    """A timestamp without a zone is UTC."""
    marked = pc.binary_join_element_wise(texts, pa.scalar("Z"), pa.scalar(""))
    return pc.if_else(pc.match_substring_regex(texts, _ZONED), texts, marked)


_RULES = {
    TypeKind.BOOLEAN: TextRule(_BOOLEAN, _has_min_length(4)),
    TypeKind.INT: TextRule(_INTEGER, _has_none_of(b"x", b"X"), wider_type=pa.int64(), respell=_strip_plus),
    TypeKind.BIGINT: TextRule(_INTEGER, _has_none_of(b"x", b"X"), respell=_strip_plus),
    TypeKind.FLOAT: TextRule(_REAL, _has_none_of(b"(")),
    TypeKind.DOUBLE: TextRule(_REAL, _has_none_of(b"(")),
    TypeKind.DECIMAL: TextRule(_DECIMAL, _plain_decimals, respell=_plain_or_null),
    TypeKind.DATE: TextRule(_DATE, _always),
    # Without a zone Arrow also accepts a date, an hour or a minute; all are shorter than a whole time.
    TypeKind.TIMESTAMP: TextRule(_TIMESTAMP, _has_min_length(19), first_type=pa.timestamp("us"), respell=_with_zone),
}


def text_rule(kind: ColumnType) -> TextRule:
    """The rule of a type; string has none, since it takes all text as it is."""
    rule = _RULES[kind.kind]
    if kind.kind is not TypeKind.DECIMAL:
        return rule
    whole = rf"0*[0-9]{{0,{kind.precision - kind.scale}}}"
    return replace(rule, range_pattern=rf"^[+-]?{whole}(?:\.[0-9]{{0,{kind.scale}}}0*)?$|[eE]")


def exact_decimal(text: str, kind: ColumnType) -> Decimal | None:
    """A decimal that Arrow cannot read because of its length or exponent; None if it does not fit without loss."""
    try:
        value = Decimal(text)
        fitted = value.quantize(Decimal(1).scaleb(-kind.scale), context=_DECIMAL_CONTEXT)
    except DecimalException:
        return None
    if fitted != value or len(fitted.as_tuple().digits) > kind.precision:
        return None
    return fitted
