"""What is kept of a group's rows instead of the rows: columns of sums and the like, and what is told from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from errata.language.expr import Expr

V = TypeVar("V")
OWN = "_own"
"""A row's own time."""
INFINITE, NAN = "CAST('Infinity' AS DOUBLE)", "CAST('NaN' AS DOUBLE)"
_LARGE = f"{1 << 20}D"


@dataclass(frozen=True, slots=True)
class Part:
    """A column of the state."""

    row: str
    """What a row adds to it: SQL over the arguments, and over the number that a group's values are taken from."""
    centred: bool = False
    """Whether it is of values less the group's own number."""
    only_if: str = ""
    """The part that counts what this one is made of: as long as that is none, this is nothing."""
    total: str = "sum"
    """The aggregate that makes many of them one."""

    @property
    def signed(self) -> bool:
        """Whether a row that ceases to count takes away what it added."""
        return self.total == "sum"


@dataclass
class Kept:
    """All that is kept of a group, and how its aggregates are told from it."""

    for_ever: bool
    order: tuple[str, ...]
    """The columns that the rows of a group go by, one after the other."""
    arguments: dict[str, Expr] = field(default_factory=dict)
    """What the aggregates are of, by the column that holds it."""
    parts: dict[str, Part] = field(default_factory=dict)
    """By the column of the state."""
    centres: dict[str, str] = field(default_factory=dict)
    """The columns of the state with the number that a group's values are taken from, and the values as doubles."""
    extremes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What is greatest or least among rows that cease to count: `max` or `min`, and of what, by the column it is in."""
    near: list[dict[str, str]] = field(default_factory=lambda: [{}, {}, {}])
    """What is worked out of each row first, once its group's number is known: columns that read those before them."""
    told: list[dict[str, str]] = field(default_factory=lambda: [{}, {}])
    """What is worked out of the parts first: the same. In an expression that is used twice Spark may do all twice."""
    results: dict[str, str] = field(default_factory=dict)
    """The aggregates."""
    live: str = ""
    """The part that tells how many rows count; of rows that count for ever nobody asks."""

    def argument(self, expr: Expr) -> str:
        return _named(self.arguments, "_a", expr)

    def part(self, row: str, total: str = "sum") -> str:
        """The column of a part; the same for all who need it."""
        return self.made(Part(row, total=total))

    def made(self, part: Part) -> str:
        return _named(self.parts, "_p", part)

    def first(self, layer: int, text: str) -> str:
        """Something that is worked out of a row before its parts."""
        return _named(self.near[layer], f"_n{layer}_", text)

    def then(self, layer: int, text: str) -> str:
        """Something that is worked out of the parts before the results."""
        return _named(self.told[layer], f"_t{layer}_", text)

    def centre(self, number: str) -> str:
        """The number that a group's values are taken from."""
        return _named(self.centres, "_c", number)

    def nearest(self, of: str, over: str) -> str:
        """The number of a group that is the nearest to zero, so that no other is farther from it than from zero. Where
        numbers are taken away again, their squares are exact, and only large ones have to be made smaller."""
        least = f"min_by({of}, IF(abs({of}) < {INFINITE}, abs({of}), NULL)) {over}"
        return least if self.for_ever else f"IF(abs({least}) < {_LARGE}, 0D, {least})"

    def count(self, of: str) -> str:
        """How many values there are."""
        return self.part(f"IF({of} IS NULL, 0L, 1L)")

    def extreme(self, function: str, of: str) -> str:
        return _named(self.extremes, "_m", (function, of))


def _named(columns: dict[str, V], prefix: str, value: V) -> str:
    """The column that a value is in; a new one if it is in none."""
    for name, each in columns.items():
        if each == value:
            return name
    columns[f"{prefix}{len(columns)}"] = value
    return next(reversed(columns))


def cleared(name: str, part: Part) -> str:
    """A part without what rows that are gone may have left in it."""
    return f"IF({part.only_if} > 0, {name}, 0D)" if part.only_if else name
