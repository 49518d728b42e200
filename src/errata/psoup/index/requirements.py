"""What a conjunction requires of a row: for each attribute, ranges of keys that its key is in.

An attribute is what ranges are over: a column, or the difference of two columns, since over whole numbers and times
`a < b + 5` is `a - b < 5`. Several factors over one attribute are one requirement, the intersection of their ranges. A
conjunction that contradicts itself requires nothing that a row could have, and is left out. Factors that are no range
of an attribute (floating point numbers and strings of two columns) are kept as they are, to be compared row by row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from errata.model.columns import ColumnType, TypeKind
from errata.model.registered import ColumnFactor, Conjunction, ConstantFactor, MemberFactor, NullFactor
from errata.model.stream import Stream
from errata.psoup.index.keys import EVERY_KEY, ColumnKeys, KeyRange, WholeKeys, column_keys
from errata.psoup.value_words import SHORT_DIGITS

Attribute = str | tuple[str, str]
"""A column, or two whose difference it is."""

Ranges = tuple[KeyRange, ...]
"""Ranges that do not touch each other, from the least to the greatest."""

_GREATEST_OFFSET = 2**62
"""Differences beyond 64 bits are cut off, which no smaller offset can tell."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a conjunction requires of a row: NULL in the columns of `nulls`, and a key in a range of each attribute."""

    ranges: Mapping[Attribute, Ranges]
    nulls: frozenset[str] = frozenset()
    compared: tuple[ColumnFactor, ...] = ()


@dataclass(slots=True)
class RequirementReader:
    """Reads the conjunctions of one stream."""

    stream: Stream
    conjunctions: Mapping[int, Conjunction]
    keys: dict[str, ColumnKeys] = field(init=False)
    """For each column that is compared with constants, or asked whether it is NULL."""

    def __post_init__(self) -> None:
        factors: dict[str, list[ConstantFactor | MemberFactor | NullFactor]] = defaultdict(list)
        for conjunction in self.conjunctions.values():
            for each in conjunction:
                if not isinstance(each, ColumnFactor):
                    factors[each.column].append(each)
        self.keys = {name: column_keys(self.stream.column(name).type, every) for name, every in factors.items()}

    def read(self, conjunction: Conjunction) -> Requirement | None:
        """What the conjunction requires; None where no row can satisfy it."""
        ranges: dict[Attribute, Ranges] = {}
        nulls: set[str] = set()
        compared: list[ColumnFactor] = []
        for factor in conjunction:
            match factor:
                case NullFactor(column, True):
                    nulls.add(column)
                    continue
                case NullFactor(column, False):
                    attribute: Attribute = column
                    found: Ranges = (EVERY_KEY,)
                case ConstantFactor() | MemberFactor():
                    attribute, found = factor.column, self.keys[factor.column].ranges(factor)
                case ColumnFactor():
                    if (difference := self._difference(factor)) is None:
                        compared.append(factor)
                        continue
                    attribute, found = difference
            ranges[attribute] = intersection(ranges.get(attribute, (EVERY_KEY,)), found)
        if not all(ranges.values()) or any(attribute in nulls for attribute in ranges):
            return None
        return Requirement(ranges, frozenset(nulls), tuple(compared))

    def _difference(self, factor: ColumnFactor) -> tuple[Attribute, Ranges] | None:
        """The difference that a factor is a range of, if it is one."""
        kinds = [self.stream.column(name).type for name in (factor.left, factor.right)]
        offset = factor.offset
        if not _subtractable(*kinds) or not isinstance(offset, int) or abs(offset) >= _GREATEST_OFFSET:
            return None
        if kinds[0].scale and offset:
            return None
        ranges = WholeKeys().ranges(ConstantFactor("", factor.comparison, offset))
        return (factor.left, factor.right), ranges


def _subtractable(left: ColumnType, right: ColumnType) -> bool:
    """Whether both are whole numbers of one measure, whose difference is one, too."""
    whole = {TypeKind.INT: TypeKind.BIGINT}
    measures = [whole.get(each.kind, each.kind) for each in (left, right)]
    if measures[0] is TypeKind.DECIMAL:
        return measures[1] is TypeKind.DECIMAL and left.scale == right.scale and _short(left) and _short(right)
    return measures[0] is measures[1] and measures[0] in {TypeKind.BIGINT, TypeKind.DATE, TypeKind.TIMESTAMP}


def _short(kind: ColumnType) -> bool:
    return kind.precision <= SHORT_DIGITS


def intersection(first: Sequence[KeyRange], second: Sequence[KeyRange]) -> Ranges:
    """The keys that are in a range of both."""
    if len(first) == len(second) == 1:
        low, high = max(first[0][0], second[0][0]), min(first[0][1], second[0][1])
        return ((low, high),) if low <= high else ()
    found = []
    here = there = 0
    while here < len(first) and there < len(second):
        low, high = max(first[here][0], second[there][0]), min(first[here][1], second[there][1])
        if low <= high:
            found.append((low, high))
        if first[here][1] < second[there][1]:
            here += 1
        else:
            there += 1
    return tuple(found)
