"""Columns and their types, as a declaration names them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from errata.errors import UsageError, candidates
from errata.model.numbers import whole

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
MAX_PRECISION = 38
_NAN = ("NaN",)


class Kind(StrEnum):
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


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A kind, and for decimals the precision and scale."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __post_init__(self) -> None:
        if self.kind is Kind.DECIMAL and not (
            1 <= self.precision <= MAX_PRECISION and 0 <= self.scale <= self.precision
        ):
            raise UsageError(
                f"decimal({self.precision},{self.scale}) is not a type",
                how=f"the precision is 1 to {MAX_PRECISION} and the scale 0 to the precision",
            )

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.kind is Kind.DECIMAL else self.kind.value

    @classmethod
    def parse(cls, text: str) -> ColumnType:
        """The type that a declaration's text names, such as 'double' or 'decimal(10,2)'."""
        name = text.strip().lower()
        if (decimal := _DECIMAL.fullmatch(name)) is not None:
            return cls(Kind.DECIMAL, whole(decimal[1]), whole(decimal[2]))
        known = [kind.value for kind in Kind if kind is not Kind.DECIMAL]
        if name not in known:
            raise UsageError(f"unknown type {text!r}", how=candidates(name, {*known, "decimal(p,s)"}))
        return cls(Kind(name))


@dataclass(frozen=True, slots=True)
class Column:
    """A named, typed column."""

    name: str
    type: ColumnType

    def __post_init__(self) -> None:
        check_name("column", self.name)


def check_name(kind: str, name: str) -> None:
    """Refuse a name that SQL, files and the command line could not all bear."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a {kind}",
            how="a name begins with a letter and has letters, digits and underscores, 63 at most",
        )


def canonical(value: object) -> object:
    """The value, or what stands for it where plain equality of floats is not the equality meant."""
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value + 0.0
    return value
