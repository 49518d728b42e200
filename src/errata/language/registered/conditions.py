"""The one form of a condition: equal conditions are equal values, however they were written, and so are matched once.

The factors of a conjunction are sorted by column, kind and constants, and each is there once; so are the constants of
IN. All NaN are one object, since NaN does not equal itself, and -0.0 is 0.0, which it equals in SQL.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal

from errata.model.registered import (
    ColumnFactor,
    Comparison,
    Conjunction,
    Constant,
    ConstantFactor,
    Factor,
    MemberFactor,
    NullFactor,
    Relation,
)

_MIRRORED = {
    Comparison.LESS: Comparison.GREATER,
    Comparison.AT_MOST: Comparison.AT_LEAST,
    Comparison.EQUAL: Comparison.EQUAL,
    Comparison.AT_LEAST: Comparison.AT_MOST,
    Comparison.GREATER: Comparison.LESS,
}


def mirrored(comparison: Comparison) -> Comparison:
    """The comparison with its sides exchanged: a < b is b > a."""
    return _MIRRORED[comparison]


def plain_constant(constant: Constant) -> Constant:
    """The constant by which all that equal it in SQL are represented."""
    if isinstance(constant, float):
        return math.nan if math.isnan(constant) else constant + 0.0
    return constant


def _constant_key(constant: Constant) -> tuple[object, ...]:
    """Orders the constants of one column."""
    match constant:
        case float():
            return (1, 0.0) if math.isnan(constant) else (0, constant)
        case str():
            return (constant.encode(),)
        case bool() | int() | Decimal():
            return (constant,)
    raise TypeError(f"{constant!r} is no constant of a column")


def member_factor(column: str, constants: Iterable[Constant]) -> Factor:
    """The factor that a column equals one of these; with no constants no row satisfies it."""
    distinct = {_constant_key(each): each for each in map(plain_constant, constants)}
    if len(distinct) == 1:
        return ConstantFactor(column, Comparison.EQUAL, next(iter(distinct.values())))
    return MemberFactor(column, tuple(distinct[key] for key in sorted(distinct)))


def _factor_key(factor: Factor) -> tuple[object, ...]:
    match factor:
        case NullFactor(column, is_null):
            return column, 0, str(is_null), ()
        case ConstantFactor(column, comparison, constant):
            return column, 1, comparison.value, (_constant_key(constant),)
        case MemberFactor(column, constants):
            return column, 2, "", (len(constants), *map(_constant_key, constants))
        case ColumnFactor(left, comparison, right, offset):
            return left, 3, f"{right} {comparison.value}", (_constant_key(offset),)


def conjunction_of(factors: Iterable[Factor]) -> Conjunction:
    """The factors in the one order, each once."""
    return tuple(_distinct(sorted(factors, key=_factor_key)))


def _distinct(factors: Iterable[Factor]) -> Iterable[Factor]:
    before: object = None
    for each in factors:
        if (key := _factor_key(each)) != before:
            yield each
        before = key


def column_factor(left: str, comparison: Comparison, right: str, offset: Constant = 0) -> ColumnFactor:
    """The factor `left comparison right + offset`, with the names in order where it can be turned round exactly."""
    if _turns_round(offset) and (left > right or (left == right and _is_turned(comparison, offset))):
        return ColumnFactor(right, mirrored(comparison), left, _negated(offset))
    return ColumnFactor(left, comparison, right, plain_offset(offset))


def _is_turned(comparison: Comparison, offset: Constant) -> bool:
    """Whether a comparison of a column with itself is in the one of its two forms that is not used."""
    negative = isinstance(offset, (int, Decimal)) and offset < 0
    return negative if comparison is Comparison.EQUAL else comparison in (Comparison.AT_LEAST, Comparison.GREATER)


def relation_of(relation: Relation) -> Relation:
    """The relation with the earlier source on the left where it can be turned round exactly."""
    if relation.left_source > relation.right_source and _turns_round(relation.offset):
        return Relation(
            relation.right_source,
            relation.right,
            mirrored(relation.comparison),
            relation.left_source,
            relation.left,
            _negated(relation.offset),
        )
    return replace(relation, offset=plain_offset(relation.offset))


def plain_offset(offset: Constant) -> Constant:
    """The offset; 0, of whatever type, as the whole number."""
    return 0 if offset == 0 else offset


def _turns_round(offset: Constant) -> bool:
    """Whether the offset can go to the other side: not among doubles, whose sums are rounded."""
    return offset == 0 or not isinstance(offset, float)


def _negated(offset: Constant) -> Constant:
    if offset == 0:
        return 0
    if isinstance(offset, Decimal):
        return offset.copy_negate()
    if isinstance(offset, int):
        return -offset
    raise TypeError(f"{offset!r} has no exact opposite")


def relations_of(relations: Iterable[Relation]) -> tuple[Relation, ...]:
    """The relations in the one order, each once."""
    found = {_relation_key(each): each for each in map(relation_of, relations)}
    return tuple(found[key] for key in sorted(found))


def _relation_key(relation: Relation) -> tuple[object, ...]:
    return (
        relation.left_source,
        relation.right_source,
        relation.left,
        relation.right,
        relation.comparison.value,
        _constant_key(relation.offset),
    )
