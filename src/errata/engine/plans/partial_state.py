"""What is kept of a group's rows instead of the rows: columns of sums and the like, and what is told from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeVar

from pyspark.sql import DataFrame

from errata.engine.frames import select_sql, union_by_position
from errata.engine.plans.node_rows import extreme_sql, null_sql
from errata.language.expr import Expr
from errata.model.time import HIGHEST

NamedValue = TypeVar("NamedValue")
OWN_TIME = "_own"
"""A row's own time."""
INFINITE_SQL, NAN_SQL = "CAST('Infinity' AS DOUBLE)", "CAST('NaN' AS DOUBLE)"
_LARGE_DOUBLE = f"{1 << 20}D"
_WORN_LIMIT = f"{1 << 12}D"
"""Of 53 bits these 12 are lost, and some more in adding up; 30 tell the ninth digit."""


@dataclass(frozen=True, slots=True)
class StatePart:
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
        return f"-({self.row})" if self.scale is None else _negated_decimal(self.row, self.scale)

    def together(self, name: str, *, near: bool) -> str:
        """The aggregate that makes one of all in a column."""
        return extreme_sql(self.total, name, self.type, near=near)


@dataclass(frozen=True, slots=True)
class Extreme:
    """The greatest or the least of rows that cease to count."""

    function: str
    """`max` or `min`."""
    of: str
    type: str

    def together(self, name: str, *, near: bool) -> str:
        """The aggregate that makes one of all in a column."""
        return extreme_sql(self.function, name, self.type, near=near)


NEGATABLE_DIGITS = 34
"""Digits of a decimal that Spark's minus sign keeps: it rounds to those of an IEEE 754 decimal128."""


def _negated_decimal(number: str, scale: int) -> str:
    """A decimal of 38 digits with the other sign, and all of its digits."""
    limit = f"{Decimal(1).scaleb(NEGATABLE_DIGITS - scale):f}BD"
    text = f"CAST({number} AS STRING)"
    turned = f"IF({number} < 0BD, substr({text}, 2), concat('-', {text}))"
    return f"IF({number} > -{limit} AND {number} < {limit}, -({number}), CAST({turned} AS DECIMAL(38,{scale})))"


@dataclass
class GroupState:
    """All that is kept of a group, and how its aggregates are told from it."""

    for_ever: bool
    order: Mapping[str, str]
    """The columns that the rows of a group go by, one after the other, and their types."""
    corrected: bool = False
    """Whether rows that count for ever may be taken away all the same, when they are corrected."""
    arguments: dict[str, Expr] = field(default_factory=dict)
    """What the aggregates are of, by the column that holds it."""
    parts: dict[str, StatePart] = field(default_factory=dict)
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
        return _column_of(self.arguments, "_a", expr)

    def part(self, row: str, total: str = "sum", kind: str = "BIGINT") -> str:
        """The column of a part; the same for all who need it."""
        return self.made(StatePart(row, kind, total=total))

    def some(
        self, row: str, of: str, kind: str, *, centred: bool = False, ever: bool = False, scale: int | None = None
    ) -> str:
        """The column of a part that is nothing where there are no values."""
        return self.made(
            StatePart(row, kind, centred, self.count(of) if self.corrected else "", ever=ever, scale=scale)
        )

    def made(self, part: StatePart) -> str:
        return _column_of(self.parts, "_p", part)

    def first(self, layer: int, text: str) -> str:
        """Something that is worked out of a row before its parts."""
        return _column_of(self.near[layer], f"_n{layer}_", text)

    def then(self, layer: int, text: str) -> str:
        """Something that is worked out of the parts before the results."""
        return _column_of(self.told[layer], f"_t{layer}_", text)

    def centre(self, number: str, count: str) -> str:
        """The number that a group's values are taken from."""
        name = _column_of(self.centres, "_c", number)
        self.counts[name] = count
        return name

    def nearest(self, of: str, over: str) -> str:
        """The number of a group that is the nearest to zero, so that no other is farther from it than from zero. Where
        numbers are taken away again, their squares are exact, and only large ones have to be made smaller."""
        finite = f"abs({of}) < {INFINITE_SQL}"
        # NULL in both: where there is nothing to go by, the near engine takes any value.
        least = f"min_by(IF({finite}, {of}, NULL), IF({finite}, abs({of}), NULL)) {over}"
        return least if self.for_ever else f"IF(abs({least}) < {_LARGE_DOUBLE}, 0D, {least})"

    def count(self, of: str) -> str:
        """How many values there are."""
        return self.part(f"IF({of} IS NULL, 0L, 1L)")

    def traced(self, of: str, sizes: str, traces: str, when: str, measure: str) -> None:
        """What is taken away from a sum leaves a trace as large as the last digits of what was ever there. Where that
        is much more than what the result is measured by, too few digits of it are left. `sizes` is the sum of sizes of
        what is there, and as long as nothing is taken away the traces are the same."""
        doubt = f"{self.count(of)} > 0 AND NOT coalesce(abs({sizes}) < {INFINITE_SQL}, FALSE)"
        worn = f"{when} AND NOT coalesce({traces} <= {_WORN_LIMIT} * {measure}, FALSE)"
        self.doubts += [doubt] if doubt not in self.doubts else []
        self.worn += [worn] if worn not in self.worn else []

    def extreme(self, of: str, function: str, kind: str) -> str:
        return _column_of(self.extremes, "_m", Extreme(function, of, kind))


def _column_of(columns: dict[str, NamedValue], prefix: str, value: NamedValue) -> str:
    """The column that a value is in; a new one if it is in none."""
    for name, each in columns.items():
        if each == value:
            return name
    columns[f"{prefix}{len(columns)}"] = value
    return next(reversed(columns))


def clean_state(kept: GroupState) -> list[str]:
    """All that is kept, without what rows that are gone may have left in it."""
    parts = {name: part.only_if for name, part in kept.parts.items()}
    # Where a sum is nothing any more, it may as well be of values less another number.
    centres = {name: kept.counts[name] if kept.corrected else "" for name in kept.centres}
    return [
        f"IF({count} > 0, {name}, NULL) AS {name}" if count else name for name, count in {**parts, **centres}.items()
    ]


# The greatest and the least of rows that cease to count, in time that grows with the rows and not with the span.
#
# Time is cut into blocks as long as a row counts. At an instant there count the rows of its block up to the instant,
# and those of the block before that have not ended: a running extreme from the block's beginning on, and one from the
# end of the next block back (van Herk, 1992; Gil and Werman, 1993). Kept are only rows that no later row outdoes, since
# those are the ones that will ever be told.

TIME_COLUMN = "_at"
_BLOCK_COLUMN, _LATE_COLUMN, _OLDER_COLUMN, _BEST_COLUMN = "_b", "_late", "_e", "_best"
BLOCK_ORDER = f"{_BLOCK_COLUMN}, {TIME_COLUMN}"
"""What the rows of a group go by in one pass over all blocks."""
_COMPARISONS = {"max": ">", "min": "<"}


@dataclass(frozen=True)
class ExtremeWork:
    """Extremes of groups, by the columns that the values are in."""

    extremes: Mapping[str, Extreme]
    group: Sequence[str]
    span: int
    since: int
    """A block begins here."""
    near: bool

    def _together(self, name: str, text: str) -> str:
        return self.extremes[name].together(text, near=self.near)

    def _block(self, moment: str) -> str:
        """The number of the block that an instant is in; nothing overflows on the way."""
        down = f"{moment} DIV {self.span}L - IF({moment} % {self.span}L < 0, 1L, 0L)"
        return f"{down} - IF(pmod({moment}, {self.span}L) < {self.since % self.span}L, 1L, 0L)"

    def swept(self, events: DataFrame, others: Mapping[str, str], late: DataFrame | None) -> DataFrame:
        """The events with what is extreme among rows of the block before that still count; `late` are rows that may.

        The events' columns are the group, the instant, the others, told by their types, and the values of rows that
        begin then.
        """
        columns = [*self.group, TIME_COLUMN, *others, *self.extremes]
        marked = select_sql(
            events, *columns, f"{self._block(TIME_COLUMN)} AS {_BLOCK_COLUMN}", f"FALSE AS {_LATE_COLUMN}"
        )
        if late is None:
            return select_sql(
                marked,
                "*",
                *(f"{null_sql(each.type)} AS {_OLDER_COLUMN}{name}" for name, each in self.extremes.items()),
            )
        last = f"least({OWN_TIME}, {HIGHEST - self.span}L) + {self.span - 1}L AS {TIME_COLUMN}"
        unknown = [f"{null_sql(kind)} AS {name}" for name, kind in others.items()]
        next_block = f"{self._block(OWN_TIME)} + 1L AS {_BLOCK_COLUMN}"
        ends = select_sql(late, *self.group, last, *unknown, *self.extremes, next_block, f"TRUE AS {_LATE_COLUMN}")
        whole = union_by_position(marked, ends)
        # By group, so that what comes next needs no other order of tasks.
        apart = whole.repartition(*self.group) if self.group else whole.repartition(1)
        back = f"OVER (PARTITION BY {', '.join([*self.group, _BLOCK_COLUMN])} ORDER BY {TIME_COLUMN} DESC)"
        older = (
            f"{self._together(name, f'IF({_LATE_COLUMN}, {name}, NULL)')} {back} AS {_OLDER_COLUMN}{name}"
            for name in self.extremes
        )
        return select_sql(apart, "*", *older).filter(f"NOT {_LATE_COLUMN}")

    def found(self) -> list[str]:
        """The extremes at each event of a sweep, as columns of their own."""
        upto = f"OVER (PARTITION BY {', '.join([*self.group, _BLOCK_COLUMN])} ORDER BY {TIME_COLUMN})"
        either = {"max": "greatest", "min": "least"}
        return [
            f"{either[each.function]}({_OLDER_COLUMN}{name}, {self._together(name, name)} {upto}) AS {name}"
            for name, each in self.extremes.items()
        ]

    def undone(self, rows: DataFrame) -> DataFrame:
        """Of rows with their group, own time and values those that no later one outdoes; other values become NULL."""
        partition = f"PARTITION BY {', '.join(self.group)} " if self.group else ""
        after = f"OVER ({partition}ORDER BY {OWN_TIME} DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        best = [f"{self._together(name, name)} {after} AS {_BEST_COLUMN}{name}" for name in self.extremes]
        stands = [
            f"IF({_BEST_COLUMN}{name} IS NULL OR {name} {_COMPARISONS[each.function]} "
            f"{_BEST_COLUMN}{name}, {name}, NULL) AS {name}"
            for name, each in self.extremes.items()
        ]
        left = select_sql(
            select_sql(rows, *self.group, OWN_TIME, *self.extremes, *best), *self.group, OWN_TIME, *stands
        )
        return left.filter(" OR ".join(f"{name} IS NOT NULL" for name in self.extremes))
