"""What the ranked tree keeps for each aggregate of a column: the values of leaves, and annotations that fold.

An annotation stands for some leaves. Annotations are folded, sixty-four at a time, into annotations of all their
leaves; the result of an aggregate is read from any set of annotations. Both are tuples of arrays of equal length, so
that one call of numpy serves thousands of them.

    measure      a leaf                     an annotation
    Presence     whether it is there        how many are
    WholeSum     the value                  how many; the sum, in limbs of 32 bits, each in 64
    DoubleSum    the value                  how many; two doubles that are the sum together; NaN and infinities apart
    ExtremeValue the value, as a code       how many; the least or the greatest code

Nothing is ever subtracted, so an aggregate depends on the leaves of its range alone. Whole numbers and decimals are
exact for up to 2^31 leaves. Sums of doubles are kept in twice the precision and rounded once, at the end; numbers from
2^960 on are kept scaled, so that only a result can overflow, and never a part of it. NULL counts nowhere. NaN is
greater than every number, and -0.0 is 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Context, Decimal
from fractions import Fraction
from functools import total_ordering
from typing import Protocol, cast

import numpy as np
import pyarrow as pa

from errata.errors import ErrataError
from errata.model.columns import FLOATING_KINDS, ColumnType, TypeKind
from errata.model.registered import AggregateFunction
from errata.psoup.value_words import SHORT_DIGITS, double_codes, doubles, present_rows, whole_words

FANOUT = 64
"""Annotations that are folded into one. More make the tree flatter, and the ends of a range longer to read."""

Arrays = tuple[np.ndarray, ...]
"""Leaves, or annotations: arrays of equal length."""

_LIMB = 32
_LIMB_MASK = (1 << _LIMB) - 1
_HUGE_DOUBLE = 2.0**960
"""Doubles from here on are summed apart, scaled: a sum of 2^31 smaller ones is far from overflow."""
_HUGE_SCALE = 2.0**-64
_EXACT = Context(prec=100)


class Measure(Protocol):
    """An aggregate of one column, as leaves and annotations."""

    def leaves(self, values: pa.ChunkedArray) -> Arrays:
        """The leaves of a column's values."""
        ...

    def lift(self, leaves: Arrays) -> Arrays:
        """The annotation of each leaf."""
        ...

    def fold(self, annotations: Arrays) -> Arrays:
        """The annotations of each sixty-four."""
        ...

    def result(self, annotations: Arrays) -> object:
        """The aggregate of all of them; None for NULL."""
        ...


class Presence:
    """`count(column)`."""

    def leaves(self, values: pa.ChunkedArray) -> Arrays:
        return (present_rows(values),)

    def lift(self, leaves: Arrays) -> Arrays:
        return (leaves[0].astype(np.int64),)

    def fold(self, annotations: Arrays) -> Arrays:
        return (_fold_with(np.add, annotations[0]),)

    def result(self, annotations: Arrays) -> object:
        return int(annotations[0].sum())


class WholeSum:
    """`sum` or `avg` of ints, bigints and decimals: exact, and an error where the result's type cannot hold it."""

    def __init__(self, kind: ColumnType, function: AggregateFunction, output: ColumnType, name: str) -> None:
        self._kind, self._function, self._output, self._name = kind, function, output, name
        self._wide = kind.kind is TypeKind.DECIMAL and kind.precision > SHORT_DIGITS

    def leaves(self, values: pa.ChunkedArray) -> Arrays:
        present = present_rows(values)
        return (present, *(np.where(present, each, 0) for each in whole_words(values, wide=self._wide)))

    def lift(self, leaves: Arrays) -> Arrays:
        limbs = [part for word in leaves[1:] for part in (word & _LIMB_MASK, word >> _LIMB)]
        if self._wide:
            limbs[1] &= _LIMB_MASK  # only the upper word has a sign
        return (leaves[0].astype(np.int64), *limbs)

    def fold(self, annotations: Arrays) -> Arrays:
        return tuple(_fold_with(np.add, each) for each in annotations)

    def result(self, annotations: Arrays) -> object:
        count = int(annotations[0].sum())
        if count == 0:
            return None
        total = sum(int(each.sum()) << (_LIMB * at) for at, each in enumerate(annotations[1:]))
        average = self._function is AggregateFunction.AVG
        if self._kind.kind is TypeKind.DECIMAL:
            exact = Fraction(total, 10**self._kind.scale) / (count if average else 1)
            return self._decimal(exact)
        if average:
            return total / count
        if not -(1 << 63) <= total < 1 << 63:
            raise self._overflow("a bigint holds numbers of 64 bits", "write CAST(... AS double) for a rough sum")
        return total

    def _decimal(self, exact: Fraction) -> Decimal:
        """The value rounded half away from zero, as Spark rounds."""
        scaled = _round_half_up(exact * 10**self._output.scale)
        if abs(scaled) >= 10**self._output.precision:
            raise self._overflow(f"{self._output} has {self._output.precision} digits", "declare fewer digits")
        return scaled_decimal(scaled, self._output.scale)

    def _overflow(self, why: str, how: str) -> ErrataError:
        return ErrataError(
            f"{self._name}: the {'average' if self._function is AggregateFunction.AVG else 'sum'} does not fit",
            why=why,
            how=f"ask for a smaller window; or {how}",
        )


class DoubleSum:
    """`sum` or `avg` of floats and doubles."""

    def __init__(self, function: AggregateFunction) -> None:
        self._average = function is AggregateFunction.AVG

    def leaves(self, values: pa.ChunkedArray) -> Arrays:
        return (present_rows(values), doubles(values))

    def lift(self, leaves: Arrays) -> Arrays:
        present, values = leaves
        counted = present.astype(bool)
        size = np.abs(values)
        common, huge = counted & (size < _HUGE_DOUBLE), counted & (size >= _HUGE_DOUBLE) & (size < np.inf)
        none = np.zeros(len(values))
        apart = (np.isnan(values), values == np.inf, values == -np.inf)
        return (
            present.astype(np.int64),
            *((each & counted).astype(np.int64) for each in apart),
            np.where(common, values, 0.0),
            none,
            np.where(huge, values, 0.0) * _HUGE_SCALE,
            none,
        )

    def fold(self, annotations: Arrays) -> Arrays:
        counts = tuple(_fold_with(np.add, each) for each in annotations[:4])
        return (*counts, *_folddoubles(*annotations[4:6]), *_folddoubles(*annotations[6:8]))

    def result(self, annotations: Arrays) -> object:
        count, missing, up, down = (int(each.sum()) for each in annotations[:4])
        if count == 0:
            return None
        if missing or (up and down):
            return math.nan
        total = math.inf if up else -math.inf if down else _double_total(*annotations[4:])
        return total / count if self._average else total


class ExtremeValue:
    """`min` or `max` of any type."""

    def __init__(self, kind: ColumnType, function: AggregateFunction) -> None:
        self._kind = kind
        self._greatest = function is AggregateFunction.MAX
        self._plain = _has_integer_codes(kind)

    def leaves(self, values: pa.ChunkedArray) -> Arrays:
        present = present_rows(values)
        codes = _codes(values, self._kind)
        absent: object = _LAST if not self._greatest else _FIRST
        if self._plain:
            limit = np.iinfo(np.int64)
            absent = limit.min if self._greatest else limit.max
        codes[~present.astype(bool)] = absent
        return (present, codes)

    def lift(self, leaves: Arrays) -> Arrays:
        return (leaves[0].astype(np.int64), leaves[1])

    def fold(self, annotations: Arrays) -> Arrays:
        choose = np.maximum if self._greatest else np.minimum
        return (_fold_with(np.add, annotations[0]), _fold_with(choose, annotations[1]))

    def result(self, annotations: Arrays) -> object:
        if int(annotations[0].sum()) == 0:
            return None
        code = annotations[1].max() if self._greatest else annotations[1].min()
        return _decode(code, self._kind)


def measure_for(function: AggregateFunction, kind: ColumnType, output: ColumnType, name: str) -> Measure:
    """The measure of an aggregate of a column; `output` is the type of its result, `name` what errors call it."""
    match function:
        case AggregateFunction.COUNT:
            return Presence()
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return ExtremeValue(kind, function)
        case AggregateFunction.SUM | AggregateFunction.AVG:
            if kind.kind in FLOATING_KINDS:
                return DoubleSum(function)
            return WholeSum(kind, function, output, name)


def scaled_decimal(value: int, scale: int) -> Decimal:
    """The decimal whose scaled value is given; exact for any number of digits up to a hundred."""
    return Decimal(value).scaleb(-scale, _EXACT)


# The codes of values.


def _has_integer_codes(kind: ColumnType) -> bool:
    return kind.kind is not TypeKind.STRING and not (kind.kind is TypeKind.DECIMAL and kind.precision > SHORT_DIGITS)


def _codes(values: pa.ChunkedArray, kind: ColumnType) -> np.ndarray:
    """Values that numpy orders as the language does: integers of 64 bits where the type fits, else Python's."""
    match kind.kind:
        case TypeKind.STRING:
            return np.array(values.cast(pa.string()).to_numpy(zero_copy_only=False), dtype=object)
        case TypeKind.FLOAT | TypeKind.DOUBLE:
            return double_codes(doubles(values))
        case TypeKind.DECIMAL if kind.precision > SHORT_DIGITS:
            low, high = whole_words(values, wide=True)
            objects: np.ndarray = (high.astype(object) << 64) + low.view(np.uint64).astype(object)
            return objects
        case TypeKind.DECIMAL:
            return whole_words(values, wide=False)[0].copy()
        case TypeKind.DATE:
            return whole_words(values.cast(pa.int32()), wide=False)[0].copy()
        case TypeKind.INT | TypeKind.BIGINT | TypeKind.BOOLEAN | TypeKind.TIMESTAMP:
            return whole_words(values, wide=False)[0].copy()


def _decode(code: object, kind: ColumnType) -> object:
    """The value of a code: times as microseconds, dates as days."""
    match kind.kind:
        case TypeKind.FLOAT | TypeKind.DOUBLE:
            bits = np.int64(cast("int", code))
            value = float((bits if bits >= 0 else ~bits).view(np.float64))
            return value if bits >= 0 else -value
        case TypeKind.DECIMAL:
            return scaled_decimal(int(cast("int", code)), kind.scale)
        case TypeKind.BOOLEAN:
            return bool(code)
        case TypeKind.STRING:
            return code
        case TypeKind.INT | TypeKind.BIGINT | TypeKind.DATE | TypeKind.TIMESTAMP:
            return int(cast("int", code))


@total_ordering
class _Limit:
    """Before, or after, every value."""

    def __init__(self, *, first: bool) -> None:
        self._first = first

    def __eq__(self, other: object) -> bool:
        return self is other

    def __lt__(self, other: object) -> bool:
        return self._first and self is not other

    def __hash__(self) -> int:
        return id(self)


_FIRST, _LAST = _Limit(first=True), _Limit(first=False)


# Folding.


def _fold_with(choose: np.ufunc, values: np.ndarray) -> np.ndarray:
    if len(values) == 0:
        return values
    folded: np.ndarray = choose.reduceat(values, np.arange(0, len(values), FANOUT))
    return folded


def _folddoubles(high: np.ndarray, low: np.ndarray) -> Arrays:
    """Sums of two doubles each, added up in twice the precision, by halves."""
    groups = -(-len(high) // FANOUT)
    parts = np.zeros((2, groups * FANOUT))
    parts[0, : len(high)], parts[1, : len(low)] = high, low
    if not parts.any():
        return np.zeros(groups), np.zeros(groups)
    one, rest = parts.reshape(2, groups, FANOUT)
    while one.shape[1] > 1:
        half = one.shape[1] // 2
        left, right = one[:, :half], one[:, half:]
        added = left + right
        shadow = added - left
        error = (left - (added - shadow)) + (right - shadow)
        error += rest[:, :half] + rest[:, half:]
        one = added + error
        rest = error - (one - added)
    return one[:, 0], rest[:, 0]


def _double_total(high: np.ndarray, low: np.ndarray, huge: np.ndarray, huge_low: np.ndarray) -> float:
    if not huge.any():
        return math.fsum(_floats(high, low))
    exact = sum(map(Fraction, _floats(huge, huge_low)), Fraction()) / Fraction(_HUGE_SCALE)
    exact += sum(map(Fraction, _floats(high, low)), Fraction())
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _floats(*parts: np.ndarray) -> Iterable[float]:
    found: list[float] = np.concatenate(parts).tolist()
    return found


def _round_half_up(value: Fraction) -> int:
    size = (2 * abs(value.numerator) + value.denominator) // (2 * value.denominator)
    return size if value >= 0 else -size
