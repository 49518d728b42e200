"""Columns of Arrow as words of numpy: integers, doubles, and integers in the order of doubles.

NULLs are set apart: what a word is where the value is NULL is not defined, but it is something.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SHORT_DIGITS = 18
"""Digits of a decimal whose scaled value fits into 64 bits."""

_PLAIN_DIGITS = 15
"""Digits of a decimal whose scaled value is a double, exactly."""


def present_rows(values: pa.ChunkedArray) -> np.ndarray:
    found: np.ndarray = values.is_valid().to_numpy().astype(np.uint8)
    return found


def doubles(values: pa.ChunkedArray) -> np.ndarray:
    found: np.ndarray = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy()
    return found


def whole_words(values: pa.ChunkedArray, *, wide: bool) -> tuple[np.ndarray, ...]:
    """Whole numbers, or the scaled values of decimals: in 64 bits, or the lower and the upper 64 of 128. What NULLs
    are is not defined."""
    if not pa.types.is_decimal(values.type):
        return (pc.fill_null(values.cast(pa.int64()), 0).to_numpy(),)
    chunks = [np.frombuffer(each.buffers()[1], "<i8")[2 * each.offset :][: 2 * len(each)] for each in values.chunks]
    words = np.concatenate([np.zeros(0, dtype=np.int64), *chunks]).reshape(-1, 2)
    return (words[:, 0], words[:, 1]) if wide else (words[:, 0],)


def double_codes(values: np.ndarray) -> np.ndarray:
    """Integers in the order of the doubles; all NaN are one, and the greatest."""
    plain = np.where(np.isnan(values), np.nan, values + 0.0)
    bits = np.abs(plain).view(np.int64)
    codes: np.ndarray = np.where(np.signbit(plain) & ~np.isnan(plain), ~bits, bits)
    return codes


def doubles_of(values: pa.ChunkedArray) -> np.ndarray:
    """Numbers of any type as the nearest doubles, as Spark converts them."""
    kind = values.type
    if pa.types.is_floating(kind):
        return doubles(values)
    if not pa.types.is_decimal(kind):
        return whole_words(values, wide=False)[0].astype(np.float64)
    if kind.precision <= _PLAIN_DIGITS:
        quotient: np.ndarray = whole_words(values, wide=False)[0] / 10.0**kind.scale
        return quotient
    # Arrow's own cast is off by the last bit at times; that of text is not.
    return doubles(values.cast(pa.string()).cast(pa.float64()))


def scaled_integers(values: pa.ChunkedArray, scale: int) -> np.ndarray:
    """Whole numbers or decimals times a power of ten: as 64 bits where all are sure to fit, else as Python's integers.
    The scale is at least that of the type."""
    kind = values.type
    decimal = pa.types.is_decimal(kind)
    more = scale - (kind.scale if decimal else 0)
    if decimal and kind.precision > SHORT_DIGITS:
        low, high = whole_words(values, wide=True)
        objects: np.ndarray = (high.astype(object) << 64) + low.view(np.uint64).astype(object)
        return times_exactly(objects, 10**more)
    words = whole_words(values, wide=False)[0]
    return words if more == 0 else times_exactly(words, 10**more)


def times_exactly(words: np.ndarray, factor: int) -> np.ndarray:
    """The products, in Python's integers where 64 bits might not hold one."""
    return words * factor if _greatest_size(words) * factor < 1 << 63 else words.astype(object) * factor


def plus_exactly(words: np.ndarray, summand: int) -> np.ndarray:
    """The sums, in Python's integers where 64 bits might not hold one."""
    return words + summand if _greatest_size(words) + abs(summand) < 1 << 63 else words.astype(object) + summand


def _greatest_size(words: np.ndarray) -> int:
    return max(abs(int(words.min())), abs(int(words.max()))) if len(words) else 0
