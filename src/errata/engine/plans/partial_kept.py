"""What is kept of a group's rows instead of the rows: columns of sums and the like, and what is told from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeVar

from errata.engine.plans.spelling import extreme
from errata.language.expr import Expr

V = TypeVar("V")
OWN = "_own"
"""A row's own time."""
INFINITE, NAN = "CAST('Infinity' AS DOUBLE)", "CAST('NaN' AS DOUBLE)"
_LARGE = f"{1 << 20}D"
_WORN = f"{1 << 12}D"
"""Of 53 bits these 12 are lost, and some more in adding up; 30 tell the ninth digit."""


@dataclass(frozen=True, slots=True)
class Part:
    """A column of the state."""

    row: str
    """What a row adds to it: SQL over the arguments, and over the number that a group's values are taken from."""
    type: str = "BIGINT"
    """In SQL."""
    centred: bool = False
    """Whether it is of values less the group's own number."""
    only_if: str = ""
    """The part that counts what this one is made of: as long as that is none, this is nothing."""
    total: str = "sum"
    """The aggregate that makes many of them one."""
    ever: bool = False
    """Whether a row that is taken away adds to it, too: then it tells how much has been there at any time."""
    scale: int | None = None
    """Of a decimal whose numbers may have more digits than Spark can negate: the digits after its point."""
    ranked: int = 0
    """Of a part that is a struct: how many of its fields rows go by; the others are only carried along. 0: all."""

    @property
    def signed(self) -> bool:
        """Whether a row that ceases to count takes away what it added."""
        return self.total == "sum"

    @property
    def taken(self) -> str:
        """What a row that is taken away adds to it. To an extreme it adds what it was."""
        if not self.signed or self.ever:
            return self.row
        return f"-({self.row})" if self.scale is None else _negative(self.row, self.scale)

    def together(self, name: str, *, near: bool) -> str:
        """The aggregate that makes one of all in a column."""
        return extreme(self.total, name, self.type, near=near)


@dataclass(frozen=True, slots=True)
class Extreme:
    """The greatest or the least of rows that cease to count."""

    function: str
    """`max` or `min`."""
    of: str
    type: str

    def together(self, name: str, *, near: bool) -> str:
        """The aggregate that makes one of all in a column."""
        return extreme(self.function, name, self.type, near=near)


NEGATED_EXACTLY = 34
"""Digits of a decimal that Spark's minus sign keeps: it rounds to those of an IEEE 754 decimal128."""


def _negative(number: str, scale: int) -> str:
    """A decimal of 38 digits with the other sign, and all of its digits."""
    limit = f"{Decimal(1).scaleb(NEGATED_EXACTLY - scale):f}BD"
    text = f"CAST({number} AS STRING)"
    turned = f"IF({number} < 0BD, substr({text}, 2), concat('-', {text}))"
    return f"IF({number} > -{limit} AND {number} < {limit}, -({number}), CAST({turned} AS DECIMAL(38,{scale})))"


@dataclass
class Kept:
    """All that is kept of a group, and how its aggregates are told from it."""

    for_ever: bool
    order: Mapping[str, str]
    """The columns that the rows of a group go by, one after the other, and their types."""
    corrected: bool = False
    """Whether rows that count for ever may be taken away all the same, when they are corrected."""
    arguments: dict[str, Expr] = field(default_factory=dict)
    """What the aggregates are of, by the column that holds it."""
    parts: dict[str, Part] = field(default_factory=dict)
    """By the column of the state."""
    centres: dict[str, str] = field(default_factory=dict)
    """The columns of the state with the number that a group's values are taken from, and the values as doubles."""
    counts: dict[str, str] = field(default_factory=dict)
    """By these columns, the parts that count the values."""
    extremes: dict[str, Extreme] = field(default_factory=dict)
    """What is greatest or least among rows that cease to count, by the column it is in."""
    near: list[dict[str, str]] = field(default_factory=lambda: [{}, {}, {}])
    """What is worked out of each row first, once its group's number is known: columns that read those before them."""
    told: list[dict[str, str]] = field(default_factory=lambda: [{}, {}])
    """What is worked out of the parts first: the same. In an expression that is used twice Spark may do all twice."""
    results: dict[str, str] = field(default_factory=dict)
    """The aggregates."""
    live: str = ""
    """The part that tells how many rows count; of rows that are never taken away nobody asks."""
    doubts: list[str] = field(default_factory=list)
    """Conditions under which what is left when rows have just been taken away is not what those that are left make."""
    worn: list[str] = field(default_factory=list)
    """Conditions under which so much has been taken away by now that what is left may be too far from that."""

    @property
    def types(self) -> dict[str, str]:
        """The types of the columns that rows add something to, in SQL."""
        return {**{name: part.type for name, part in self.parts.items()}, **dict.fromkeys(self.centres, "DOUBLE")}

    @property
    def taken(self) -> bool:
        """Whether rows can be taken away."""
        return self.corrected or not self.for_ever

    def argument(self, expr: Expr) -> str:
        return _named(self.arguments, "_a", expr)

    def part(self, row: str, total: str = "sum", kind: str = "BIGINT") -> str:
        """The column of a part; the same for all who need it."""
        return self.made(Part(row, kind, total=total))

    def some(
        self, row: str, of: str, kind: str, *, centred: bool = False, ever: bool = False, scale: int | None = None
    ) -> str:
        """The column of a part that is nothing where there are no values."""
        return self.made(Part(row, kind, centred, self.count(of) if self.corrected else "", ever=ever, scale=scale))

    def made(self, part: Part) -> str:
        return _named(self.parts, "_p", part)

    def first(self, layer: int, text: str) -> str:
        """Something that is worked out of a row before its parts."""
        return _named(self.near[layer], f"_n{layer}_", text)

    def then(self, layer: int, text: str) -> str:
        """Something that is worked out of the parts before the results."""
        return _named(self.told[layer], f"_t{layer}_", text)

    def centre(self, number: str, count: str) -> str:
        """The number that a group's values are taken from."""
        name = _named(self.centres, "_c", number)
        self.counts[name] = count
        return name

    def nearest(self, of: str, over: str) -> str:
        """The number of a group that is the nearest to zero, so that no other is farther from it than from zero. Where
        numbers are taken away again, their squares are exact, and only large ones have to be made smaller."""
        finite = f"abs({of}) < {INFINITE}"
        # NULL in both: where there is nothing to go by, the near engine takes any value.
        least = f"min_by(IF({finite}, {of}, NULL), IF({finite}, abs({of}), NULL)) {over}"
        return least if self.for_ever else f"IF(abs({least}) < {_LARGE}, 0D, {least})"

    def count(self, of: str) -> str:
        """How many values there are."""
        return self.part(f"IF({of} IS NULL, 0L, 1L)")

    def traced(self, of: str, sizes: str, traces: str, when: str, measure: str) -> None:
        """What is taken away from a sum leaves a trace as large as the last digits of what was ever there. Where that
        is much more than what the result is measured by, too few digits of it are left. `sizes` is the sum of sizes of
        what is there, and as long as nothing is taken away the traces are the same."""
        doubt = f"{self.count(of)} > 0 AND NOT coalesce(abs({sizes}) < {INFINITE}, FALSE)"
        worn = f"{when} AND NOT coalesce({traces} <= {_WORN} * {measure}, FALSE)"
        self.doubts += [doubt] if doubt not in self.doubts else []
        self.worn += [worn] if worn not in self.worn else []

    def extreme(self, of: str, function: str, kind: str) -> str:
        return _named(self.extremes, "_m", Extreme(function, of, kind))


def _named(columns: dict[str, V], prefix: str, value: V) -> str:
    """The column that a value is in; a new one if it is in none."""
    for name, each in columns.items():
        if each == value:
            return name
    columns[f"{prefix}{len(columns)}"] = value
    return next(reversed(columns))


def cleared(kept: Kept) -> list[str]:
    """All that is kept, without what rows that are gone may have left in it."""
    parts = {name: part.only_if for name, part in kept.parts.items()}
    # Where a sum is nothing any more, it may as well be of values less another number.
    centres = {name: kept.counts[name] if kept.corrected else "" for name in kept.centres}
    return [
        f"IF({count} > 0, {name}, NULL) AS {name}" if count else name for name, count in {**parts, **centres}.items()
    ]
