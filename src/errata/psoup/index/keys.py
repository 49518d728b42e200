"""The values of a column as keys: 64-bit integers in the order of the values, so that every comparison with a constant
is a range of keys.

    int, bigint, boolean, date, timestamp      the value
    decimal of up to 18 digits                 its unscaled value
    float, double                              its bits, turned so that they are ordered: -0.0 is 0.0, all NaN are one
                                               key above infinity
    string, decimal of more digits             twice the number of the column's constants below the value, and one more
                                               where it equals a constant: all that a comparison with one can ask

Strings are ordered by their bytes in UTF-8. What the key of a NULL is is not defined: NULLs are set apart by those who
read the keys. A constant need not have the column's type: `price > 0.005` of two digits is right, and so is a constant
that the type cannot hold.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from errata.model.columns import FLOATING_KINDS, ColumnType, TypeKind
from errata.model.registered import Comparison, Constant, ConstantFactor, Factor, MemberFactor
from errata.psoup.value_words import SHORT_DIGITS, double_codes, doubles, whole_words

Keys = npt.NDArray[np.int64]
KeyRange = tuple[int, int]
"""The least and the greatest key of a range, both in it."""

LEAST, GREATEST = -(2**63), 2**63 - 1
EVERY_KEY: KeyRange = (LEAST, GREATEST)

_BEYOND = 2**200
"""A number beyond all keys, which stands for infinity."""

_DISTINCT_TO_HASH = 256
"""Distinct strings of a batch from which on they are looked up among the constants by hash."""


class ColumnKeys(ABC):
    """How the values of one column become keys."""

    @abstractmethod
    def floor(self, constant: Constant) -> tuple[int, bool]:
        """The greatest key of a value that is not above the constant, and whether that value equals it. Beyond the
        64 bits where all values are on one side."""

    @abstractmethod
    def keys(self, values: pa.ChunkedArray) -> Keys:
        """A key for each value."""

    def ranges(self, factor: ConstantFactor | MemberFactor) -> tuple[KeyRange, ...]:
        """The keys of the values for which a factor is true, from the least to the greatest."""
        if isinstance(factor, MemberFactor):
            points = {key for key, equal in map(self.floor, factor.constants) if equal}
            return tuple((key, key) for key in sorted(points) if LEAST <= key <= GREATEST)
        key, equal = self.floor(factor.constant)
        low, high = _compared(factor.comparison, key, equal=equal)
        low, high = max(low, LEAST), min(high, GREATEST)
        return ((low, high),) if low <= high else ()


def _compared(comparison: Comparison, key: int, *, equal: bool) -> KeyRange:
    match comparison:
        case Comparison.LESS:
            return LEAST, key - equal
        case Comparison.AT_MOST:
            return LEAST, key
        case Comparison.EQUAL:
            return key, key if equal else key - 1
        case Comparison.AT_LEAST:
            return key + (not equal), GREATEST
        case Comparison.GREATER:
            return key + 1, GREATEST


class WholeKeys(ColumnKeys):
    """Keys of whole numbers, times, booleans and decimals whose unscaled value fits into 64 bits."""

    def __init__(self, scale: int = 0) -> None:
        self._scale = scale

    def floor(self, constant: Constant) -> tuple[int, bool]:
        return _scaled_floor(constant, self._scale)

    def keys(self, values: pa.ChunkedArray) -> Keys:
        return whole_keys(values)


class FloatKeys(ColumnKeys):
    """Keys of floating point numbers; a float is compared as the double that it is."""

    def floor(self, constant: Constant) -> tuple[int, bool]:
        try:
            near = float(constant)  # type: ignore[arg-type]
        except OverflowError:
            near = math.inf if constant > 0 else -math.inf  # type: ignore[operator]
        key = int(double_codes(np.array([near]))[0])
        if math.isnan(near) or near == constant:
            return key, True
        return (key if near < constant else key - 1), False  # type: ignore[operator]

    def keys(self, values: pa.ChunkedArray) -> Keys:
        return double_codes(doubles(values))


class StringKeys(ColumnKeys):
    """Keys of strings among the constants that a column is compared with."""

    def __init__(self, constants: Iterable[Constant], *, equality_only: bool) -> None:
        """With `equality_only` no comparison but equality is asked for, and all other values may have one key."""
        texts = sorted({str(each).encode() for each in constants})
        self._numbers = {text: 2 * number + 1 for number, text in enumerate(texts)}
        self._ordered = _objects(texts)
        self._members = pa.array(texts, pa.binary()) if equality_only else None

    def floor(self, constant: Constant) -> tuple[int, bool]:
        return self._numbers[str(constant).encode()], True

    def keys(self, values: pa.ChunkedArray) -> Keys:
        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        coded = coded.combine_chunks()
        if isinstance(coded, pa.ChunkedArray):  # as of no rows, or of dictionaries that differ
            coded = coded.unify_dictionaries().combine_chunks()
        distinct = coded.dictionary.cast(pa.binary())
        found = self._distinct_keys(distinct)
        indices = pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False)
        keys: Keys = found[indices] if len(found) else np.zeros(len(indices), np.int64)
        return keys

    def _distinct_keys(self, distinct: pa.Array) -> Keys:
        if self._members is not None and len(distinct) >= _DISTINCT_TO_HASH:
            numbers = pc.fill_null(pc.index_in(distinct, value_set=self._members), -1)
            found: Keys = np.maximum(2 * numbers.to_numpy().astype(np.int64) + 1, 0)
            return found
        return _ranks(self._ordered, _objects(distinct.to_pylist()))


class WideDecimalKeys(ColumnKeys):
    """Keys of decimals of more than 18 digits among the constants that a column is compared with.

    A value is held as its unscaled 128 bits, the sign turned, with the highest byte first: numpy compares such bytes
    as numbers are ordered."""

    def __init__(self, kind: ColumnType, constants: Iterable[Constant]) -> None:
        self._kind = kind
        self._limit = 10**kind.precision
        floors = sorted({self._floor(each)[0] for each in constants})
        self._numbers = {number: 2 * place + 1 for place, number in enumerate(floors)}
        self._ordered = np.array([(number + 2**127).to_bytes(16, "big") for number in floors], "S16")

    def floor(self, constant: Constant) -> tuple[int, bool]:
        number, equal = self._floor(constant)
        return self._numbers[number], equal

    def keys(self, values: pa.ChunkedArray) -> Keys:
        if values.type.scale != self._kind.scale or not pa.types.is_decimal128(values.type):
            values = values.cast(pa.decimal128(self._kind.precision, self._kind.scale))
        low, high = whole_words(values, wide=True)
        octets = np.empty((len(low), 2), ">u8")
        octets[:, 0] = high.view(np.uint64) ^ np.uint64(2**63)
        octets[:, 1] = low.view(np.uint64)
        return _ranks(self._ordered, octets.view("S16").reshape(-1))

    def _floor(self, constant: Constant) -> tuple[int, bool]:
        """A constant that no value reaches is the limit, which none equals."""
        number, equal = _scaled_floor(constant, self._kind.scale)
        limited = max(-self._limit, min(number, self._limit))
        return limited, equal and limited == number


def column_keys(kind: ColumnType, factors: Sequence[Factor]) -> ColumnKeys:
    """The keys of a column of this type that is compared by these factors."""
    if kind.kind in FLOATING_KINDS:
        return FloatKeys()
    wide = kind.kind is TypeKind.DECIMAL and kind.precision > SHORT_DIGITS
    if kind.kind is not TypeKind.STRING and not wide:
        return WholeKeys(kind.scale)
    constants: list[Constant] = []
    ordered = False
    for each in factors:
        if isinstance(each, ConstantFactor):
            constants.append(each.constant)
            ordered |= each.comparison is not Comparison.EQUAL
        elif isinstance(each, MemberFactor):
            constants += each.constants
    if wide:
        return WideDecimalKeys(kind, constants)
    return StringKeys(constants, equality_only=not ordered)


def whole_keys(values: pa.ChunkedArray) -> Keys:
    """Whole numbers, times, booleans or short decimals as 64-bit integers."""
    if pa.types.is_timestamp(values.type) and values.type.unit != "us":
        values = values.cast(pa.timestamp("us", values.type.tz))
    elif pa.types.is_date(values.type):
        values = values.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return whole_words(values, wide=False)[0]


def differences(left: Keys, right: Keys) -> Keys:
    """The left less the right; what 64 bits cannot hold is the least or the greatest that they can."""
    found: Keys = left - right
    beyond = ((left ^ right) & (left ^ found)) < 0
    if beyond.any():
        found[beyond] = np.where(left[beyond] < 0, LEAST, GREATEST)
    return found


def _scaled_floor(constant: Constant, scale: int) -> tuple[int, bool]:
    """The greatest whole number that is not above the constant times ten to the scale, and whether it equals that."""
    if isinstance(constant, int):
        return constant * 10**scale, True
    if not isinstance(constant, float | Decimal):
        raise TypeError(f"{constant!r} is no constant that a number is compared with")
    if not math.isfinite(constant) or abs(Fraction(constant)) > 10**60:
        return (-_BEYOND if constant < 0 else _BEYOND), False
    exact = Fraction(constant) * 10**scale
    number = exact.numerator // exact.denominator
    return number, number == exact


def _ranks(ordered: npt.NDArray[np.generic], values: npt.NDArray[np.generic]) -> Keys:
    """Twice the number of constants below each value, and one more where it equals one."""
    below: Keys = np.searchsorted(ordered, values, "left").astype(np.int64)
    return below + np.searchsorted(ordered, values, "right")


def _objects(texts: Sequence[bytes | None]) -> npt.NDArray[np.object_]:
    found = np.empty(len(texts), np.object_)
    found[:] = texts
    return found
