"""Columns of text, or of a file's own types, converted to declared types, with a mask of the values that cannot be.

A column is cast as a whole; if that fails, its distinct values are cast in halves down to the ones that fail. So a
clean column costs one cast, and bad values cost in proportion to their number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.errors import UsageError
from errata.intake.types import arrow_type, exact_decimal, text_rule
from errata.model.columns import ColumnType, TypeKind

_FIRST_INSTANT = -62_135_596_800_000_000
_LAST_INSTANT = 253_402_300_799_999_999
_FIRST_DAY = -719_162
_LAST_DAY = 2_932_896
"""The years 1 to 9999, which Python, Spark and the databases can all hold."""

CastFunction = Callable[[pa.Array], pa.Array]


def convert(values: pa.Array | pa.ChunkedArray, kind: ColumnType) -> tuple[pa.Array, np.ndarray | None]:
    """The values in the declared type, NULL if one cannot be converted; and the mask of those, None if there are
    none."""
    plain = plain_array(values)
    if not is_convertible(plain.type, kind):
        result = pa.nulls(len(plain), arrow_type(kind))
    elif pa.types.is_null(plain.type):
        return pa.nulls(len(plain), arrow_type(kind)), None
    elif kind.kind is TypeKind.STRING:
        result = _to_string(plain)
    elif pa.types.is_string(plain.type):
        result = _drop_out_of_range(_from_text(plain, kind), kind)
    else:
        result = _drop_out_of_range(_from_typed(plain, kind), kind)
    if result.null_count == plain.null_count:
        return result, None
    return result, bool_mask(pc.and_(pc.is_valid(plain), pc.is_null(result)))


def bool_mask(flags: pa.Array) -> np.ndarray:
    """A boolean array without NULLs as a NumPy array."""
    mask: np.ndarray = flags.to_numpy(zero_copy_only=False)
    return mask.astype(bool, copy=False)


def plain_array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The values as one array without chunks and dictionaries, and with one string type."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
        values = values.cast(pa.string())
    return values


def is_convertible(source: pa.DataType, kind: ColumnType) -> bool:
    """Whether values of a file's type can be converted to the declared type at all."""
    if pa.types.is_dictionary(source):
        source = source.value_type
    if pa.types.is_null(source) or pa.types.is_large_string(source) or pa.types.is_string_view(source):
        return True
    return any(is_such(source) for is_such in _SOURCES[kind.kind])


_TEXT = (pa.types.is_string,)
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_SOURCES: dict[TypeKind, tuple[Callable[[pa.DataType], bool], ...]] = {
    TypeKind.STRING: (*_TEXT, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_integer, pa.types.is_boolean),
    TypeKind.BOOLEAN: (*_TEXT, pa.types.is_boolean),
    TypeKind.INT: (*_TEXT, *_NUMBERS),
    TypeKind.BIGINT: (*_TEXT, *_NUMBERS),
    TypeKind.FLOAT: (*_TEXT, *_NUMBERS),
    TypeKind.DOUBLE: (*_TEXT, *_NUMBERS),
    TypeKind.DECIMAL: (*_TEXT, *_NUMBERS),
    TypeKind.DATE: (*_TEXT, pa.types.is_date, pa.types.is_timestamp),
    TypeKind.TIMESTAMP: (*_TEXT, pa.types.is_timestamp, pa.types.is_date),
}


def _to_string(values: pa.Array) -> pa.Array:
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        return values.cast(pa.string())
    # By way of bytes, since Arrow validates UTF-8 only when text is cast from bytes.
    return _cast_or_null(values.cast(pa.binary()), pa.string(), lambda part: part.cast(pa.string()))


def _from_text(texts: pa.Array, kind: ColumnType) -> pa.Array:
    rule, target = text_rule(kind), arrow_type(kind)
    if rule.arrow_agrees(texts):
        whole = _cast_or_none(texts, rule.first_type or target)
        if whole is not None:
            return _drop_overflow(whole.cast(target), texts)
    fits = pc.match_substring_regex(texts, rule.pattern)
    if rule.range_pattern is not None:
        fits = pc.and_(fits, pc.match_substring_regex(texts, rule.range_pattern))
    fits = pc.fill_null(fits, fill_value=False)
    fitting = pc.if_else(fits, texts, pa.scalar(None, pa.string()))
    spelt = rule.respell(fitting)
    if rule.wider_type is not None:
        return _narrow_integers(_cast_or_null(spelt, rule.wider_type, lambda part: part.cast(rule.wider_type)), target)
    result = _cast_or_null(spelt, target, lambda part: part.cast(target))
    if kind.kind is TypeKind.DECIMAL and result.null_count > fitting.null_count:
        result = _exact_decimals(fitting, result, kind)
    return _drop_overflow(result, texts)


def _narrow_integers(numbers: pa.Array, target: pa.DataType) -> pa.Array:
    """The integers in the narrower type, NULL if it cannot hold one."""
    narrow = numbers.cast(target, safe=False)
    return pc.if_else(pc.equal(narrow.cast(numbers.type), numbers), narrow, pa.scalar(None, target))


def _from_typed(values: pa.Array, kind: ColumnType) -> pa.Array:
    target, source = arrow_type(kind), values.type
    if source == target:
        return values
    if pa.types.is_floating(source):
        return _from_floating(values, kind)
    if kind.kind is TypeKind.DATE and pa.types.is_timestamp(source):
        return _dates_of_midnights(values)
    if kind.kind is TypeKind.DECIMAL and pa.types.is_integer(source):
        return _cast_or_null(values, target, lambda part: part.cast(pa.decimal256(40, 0)).cast(target))
    return _cast_or_null(values, target, lambda part: part.cast(target))


def _from_floating(values: pa.Array, kind: ColumnType) -> pa.Array:
    if kind.kind is TypeKind.DECIMAL:
        # A double stands for the shortest decimal that it prints as, not for its binary digits.
        return _from_text(values.cast(pa.string()), kind)
    if kind.kind in (TypeKind.INT, TypeKind.BIGINT):
        return _integers_of_floats(values, arrow_type(kind))
    return _drop_overflow(values.cast(arrow_type(kind), safe=False), values)


def _dates_of_midnights(values: pa.Array) -> pa.Array:
    """Timestamps at midnight as dates; NULL for others."""
    utc = pa.timestamp("us", "UTC")
    moments = _cast_or_null(values, utc, lambda part: part.cast(utc))
    days = moments.cast(pa.date32())
    midnights = days.cast(pa.timestamp("us")).cast(utc)
    return pc.if_else(pc.equal(midnights, moments), days, pa.scalar(None, pa.date32()))


def _integers_of_floats(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Whole floating point numbers as integers; NULL for others."""
    finite = pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))
    return _cast_or_null(finite, target, lambda part: part.cast(target))


def _cast_or_none(values: pa.Array, target: pa.DataType) -> pa.Array | None:
    try:
        return values.cast(target)
    except pa.ArrowInvalid:
        return None


def _cast_or_null(values: pa.Array, target: pa.DataType, cast: CastFunction) -> pa.Array:
    """The cast, with NULL for values that fail: distinct values are cast in halves down to single ones."""
    try:
        return cast(values)
    except pa.ArrowInvalid:
        encoded = values.dictionary_encode()
    parts: list[pa.Array] = []
    _cast_halves(encoded.dictionary, target, cast, parts)
    return pa.concat_arrays(parts).take(encoded.indices)


def _cast_halves(values: pa.Array, target: pa.DataType, cast: CastFunction, parts: list[pa.Array]) -> None:
    try:
        parts.append(cast(values))
    except pa.ArrowInvalid:
        if len(values) == 1:
            parts.append(pa.nulls(1, target))
            return
        middle = len(values) // 2
        _cast_halves(values.slice(0, middle), target, cast, parts)
        _cast_halves(values.slice(middle), target, cast, parts)


def _exact_decimals(texts: pa.Array, result: pa.Array, kind: ColumnType) -> pa.Array:
    """The result with decimals that Arrow could not read, or was not given, and that fit all the same."""
    lost = pc.and_(pc.is_valid(texts), pc.is_null(result))
    encoded = texts.filter(lost).dictionary_encode()
    found = pa.array([exact_decimal(text, kind) for text in encoded.dictionary.to_pylist()], result.type)
    return pc.replace_with_mask(result, lost, found.take(encoded.indices))


def _drop_overflow(result: pa.Array, source: pa.Array) -> pa.Array:
    """The result without infinities that stand for numbers too large."""
    if not pa.types.is_floating(result.type) or not pc.any(pc.is_inf(result)).as_py():
        return result
    if pa.types.is_floating(source.type):
        meant = pc.is_inf(source)
    else:
        meant = pc.match_substring_regex(source, r"^[+-]?(?i:inf|infinity)$")
    return pc.if_else(pc.and_(pc.is_inf(result), pc.invert(meant)), pa.scalar(None, result.type), result)


def _drop_out_of_range(result: pa.Array, kind: ColumnType) -> pa.Array:
    """Without instants and days outside the years 1 to 9999."""
    if kind.kind is TypeKind.TIMESTAMP:
        numbers, first, last = result.view(pa.int64()), _FIRST_INSTANT, _LAST_INSTANT
    elif kind.kind is TypeKind.DATE:
        numbers, first, last = result.view(pa.int32()), _FIRST_DAY, _LAST_DAY
    else:
        return result
    ends = pc.min_max(numbers)
    if ends["min"].as_py() is None or (ends["min"].as_py() >= first and ends["max"].as_py() <= last):
        return result
    inside = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
    return pc.if_else(inside, result, pa.scalar(None, result.type))


# Single values in the one spelling that the bucket index keeps and compares.


def canonical_text(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column's values as text, each value in one spelling only."""
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def canonical_value(text: str, kind: ColumnType) -> str:
    """A value that a person wrote, in that spelling."""
    value, wrong = convert(pa.array([text], pa.string()), kind)
    if wrong is not None:
        raise UsageError(f"{text!r} is not a {kind}")
    spelt: str = canonical_text(value)[0].as_py()
    return spelt
