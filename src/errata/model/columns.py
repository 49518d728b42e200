"""Columns and their types, and whole numbers, as declarations write them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from errata.errors import UsageError, candidates_text

MAX_DIGITS = 18
"""Digits of a whole number in a declaration, a query or on the command line at most: so it fits into a bigint, and is
far below the length that Python refuses to read."""

SHOWN_LETTERS = 40
"""Letters of a rejected text that a message repeats at most."""


def parse_digits(digits: str) -> int:
    """The value of a run of digits; leading zeros do not count."""
    kept = digits.lstrip("0")
    if len(kept) > MAX_DIGITS:
        raise UsageError(
            f"{digits[:SHOWN_LETTERS]}{'…' if len(digits) > SHOWN_LETTERS else ''} has {len(kept):,} digits",
            how=f"a number has {MAX_DIGITS} digits at most",
        )
    return int(kept or "0")


_NAME_RULE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
MAX_PRECISION = 38
_NAN_VALUE = ("NaN",)


class TypeKind(StrEnum):
    """The kinds of value that a column can hold."""

    STRING = "string"
    BOOLEAN = "boolean"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"


FLOATING_KINDS = (TypeKind.FLOAT, TypeKind.DOUBLE)
"""Kinds in which equal is not the same value (0.0 and -0.0, NaN), and in which sums depend on the order of the rows."""

WHOLE_KINDS = (TypeKind.INT, TypeKind.BIGINT)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A kind, and for decimals the precision and scale."""

    kind: TypeKind
    precision: int = 0
    scale: int = 0

    def __post_init__(self) -> None:
        if self.kind is TypeKind.DECIMAL and not (
            1 <= self.precision <= MAX_PRECISION and 0 <= self.scale <= self.precision
        ):
            raise UsageError(
                f"decimal({self.precision},{self.scale}) is not a type",
                how=f"the precision is 1 to {MAX_PRECISION} and the scale 0 to the precision",
            )

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.kind is TypeKind.DECIMAL else self.kind.value

    @classmethod
    def parse(cls, text: str) -> ColumnType:
        """The type that a declaration's text names, such as 'double' or 'decimal(10,2)'."""
        name = text.strip().lower()
        if (decimal := _DECIMAL.fullmatch(name)) is not None:
            return cls(TypeKind.DECIMAL, parse_digits(decimal[1]), parse_digits(decimal[2]))
        known = [kind.value for kind in TypeKind if kind is not TypeKind.DECIMAL]
        if name not in known:
            raise UsageError(f"unknown type {text!r}", how=candidates_text(name, {*known, "decimal(p,s)"}))
        return cls(TypeKind(name))


@dataclass(frozen=True, slots=True)
class Column:
    """A named, typed column."""

    name: str
    type: ColumnType

    def __post_init__(self) -> None:
        check_name("column", self.name)


def check_name(kind: str, name: str) -> None:
    """Refuse a name that could not be used in SQL, in file names and on the command line alike."""
    if not _NAME_RULE.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a {kind}",
            how="a name begins with a letter and has letters, digits and underscores, 63 at most",
        )


def equality_value(value: object) -> object:
    """The value, or a substitute that compares as SQL does: all NaN are equal, and 0.0 equals -0.0."""
    if isinstance(value, float):
        return _NAN_VALUE if math.isnan(value) else value + 0.0
    return value
