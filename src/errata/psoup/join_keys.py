"""What the two sides of a relation are compared by: numbers of one kind, in the order that Spark gives the values.

    left op right + offset    →    left key op right key

Whole numbers and decimals are compared exactly, whatever their sizes, and an offset is added exactly. Where a float or
a double takes part, both sides are doubles, and an offset is added as doubles are. A date beside a timestamp is its
midnight. Strings are compared by their bytes. NaN equals NaN and is greater than every number, -0.0 is 0.0, and NULL is
set apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.language.registered.conditions import mirrored
from errata.model.registered import Comparison, Constant, Relation
from errata.model.time import DAY
from errata.psoup.value_words import (
    double_codes,
    doubles_of,
    plus_exactly,
    present_rows,
    scaled_integers,
    times_exactly,
    whole_words,
)

_EXACT = Context(prec=100)


@dataclass(frozen=True, slots=True)
class KeySide:
    """One side of a relation: the source, its column, and a key for each row of the source."""

    source: int
    column: str
    keys: np.ndarray
    present: np.ndarray


@dataclass(frozen=True, slots=True)
class KeyedRelation:
    """A relation as keys: `left.keys comparison right.keys`."""

    left: KeySide
    comparison: Comparison
    right: KeySide

    def seen_from(self, source: int) -> tuple[KeySide, Comparison, KeySide]:
        """The source's side, the comparison with it on the left, and the other side."""
        if self.left.source == source:
            return self.left, self.comparison, self.right
        return self.right, mirrored(self.comparison), self.left


def keyed_relation(relation: Relation, left: pa.ChunkedArray, right: pa.ChunkedArray) -> KeyedRelation:
    """A relation between two columns as keys."""
    left_keys, right_keys = _keys(_plain(left), _plain(right), relation.offset)
    if left_keys.dtype != right_keys.dtype:
        left_keys, right_keys = left_keys.astype(object), right_keys.astype(object)
    return KeyedRelation(
        KeySide(relation.left_source, relation.left, left_keys, present_rows(left).astype(bool)),
        relation.comparison,
        KeySide(relation.right_source, relation.right, right_keys, present_rows(right).astype(bool)),
    )


def compare(left: np.ndarray, comparison: Comparison, right: np.ndarray) -> np.ndarray:
    """Which keys compare so, one by one."""
    match comparison:
        case Comparison.LESS:
            found = left < right
        case Comparison.AT_MOST:
            found = left <= right
        case Comparison.EQUAL:
            found = left == right
        case Comparison.AT_LEAST:
            found = left >= right
        case Comparison.GREATER:
            found = left > right
    return np.asarray(found, dtype=bool)


def _keys(left: pa.ChunkedArray, right: pa.ChunkedArray, offset: Constant) -> tuple[np.ndarray, np.ndarray]:
    types = (left.type, right.type)
    if any(map(_is_text, types)):
        return _text_keys(left, right)
    if any(map(pa.types.is_floating, types)):
        with np.errstate(over="ignore", invalid="ignore"):
            moved = doubles_of(right) + float(cast("float", offset))
        return double_codes(doubles_of(left)), double_codes(moved)
    if any(map(pa.types.is_timestamp, types)):
        return _micros(left), plus_exactly(_micros(right), int(cast("int", offset)))
    if any(map(pa.types.is_date, types)):
        return _days(left), plus_exactly(_days(right), int(cast("int", offset)))
    scale = max(*(kind.scale if pa.types.is_decimal(kind) else 0 for kind in types), _scale_of(offset))
    moved = scaled_integers(right, scale)
    summand = int(Decimal(cast("int | Decimal", offset)).scaleb(scale, _EXACT)) if offset else 0
    return scaled_integers(left, scale), plus_exactly(moved, summand) if summand else moved


def _scale_of(offset: Constant) -> int:
    if not isinstance(offset, Decimal):
        return 0
    exponent = offset.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _days(values: pa.ChunkedArray) -> np.ndarray:
    return whole_words(values.cast(pa.int32()), wide=False)[0]


def _micros(values: pa.ChunkedArray) -> np.ndarray:
    if pa.types.is_date(values.type):
        return times_exactly(_days(values), DAY)
    return whole_words(values, wide=False)[0]


def _text_keys(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The rank of each text among those of both sides."""
    both = pa.chunked_array([*left.cast(pa.string()).chunks, *right.cast(pa.string()).chunks], type=pa.string())
    encoded = both.combine_chunks().dictionary_encode()
    ranks = np.zeros(len(encoded.dictionary) + 1, dtype=np.int64)
    ranks[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(encoded.dictionary))
    keys = ranks[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()]
    return keys[: len(left)], keys[len(left) :]
