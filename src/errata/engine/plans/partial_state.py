"""The state of a group, kept instead of its rows: columns of sums, counts and extremes, and the SQL that computes
aggregates from them.

A row adds to each part; a row that expires or is corrected subtracts from it. `GroupState` collects parts, so that
aggregates share them, and steps that are computed before and after. The second half computes extremes of rows that
expire, where nothing can be subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeVar

from pyspark.sql import DataFrame

from errata.engine.frames import select_sql, union_by_position
from errata.engine.plans.node_rows import extreme_sql, null_sql, rank_sql
from errata.language.expr import Expr
from errata.model.time import HIGHEST

NamedValue = TypeVar("NamedValue")
OWN_TIME = "_own"
"""A row's own time."""
INFINITE_SQL, NAN_SQL = "CAST('Infinity' AS DOUBLE)", "CAST('NaN' AS DOUBLE)"
_LARGE_DOUBLE = f"{1 << 20}D"
_WORN_LIMIT = f"{1 << 12}D"
"""Ratio of all that was ever added to the result's measure above which a sum is rebuilt. Up to it 12 of a double's 53
bits are lost, and some more in adding up; 30 bits give nine digits."""


@dataclass(frozen=True, slots=True)
class StatePart:
    """A column of the state."""

    addition: str
    """The SQL of what a row adds, over the arguments and over the group's centre."""
    type: str = "BIGINT"
    """In SQL."""
    centred: bool = False
    """Whether it is a sum of values minus the group's centre."""
    only_if: str = ""
    """The part that counts this part's values; while it is 0, this part is NULL."""
    total: str = "sum"
    """The aggregate that merges several."""
    includes_removed: bool = False
    """Whether a removed row adds to it, too: then it is the total ever added."""
    scale: int | None = None
    """For a decimal with more digits than Spark can negate: its digits after the point."""
    order_types: tuple[str, ...] = ()
    """For a struct: the types of its first fields, which order the rows; the others are only carried."""

    @property
    def subtractable(self) -> bool:
        """Whether a removed row subtracts what it added."""
        return self.total == "sum"

    @property
    def removal(self) -> str:
        """The SQL of what a removed row adds. For an extreme that is its value."""
        if not self.subtractable or self.includes_removed:
            return self.addition
        return f"-({self.addition})" if self.scale is None else _negated_decimal(self.addition, self.scale)

    def merge_sql(self, name: str, *, near: bool) -> str:
        """The aggregate that makes one of all in a column."""
        if near and self.order_types:
            return f"{self.total}_by({name}, IF({name} IS NULL, NULL, {self.rank(name, near=near)}))"
        return extreme_sql(self.total, name, self.type, near=near)

    def rank(self, name: str, *, near: bool) -> str:
        """The value by which extremes are compared."""
        if not self.order_types:
            return name
        return rank_sql({f"{name}.v{place}": kind for place, kind in enumerate(self.order_types)}, near=near)


@dataclass(frozen=True, slots=True)
class Extreme:
    """The greatest or the least value of rows that expire."""

    function: str
    """`max` or `min`."""
    of: str
    type: str

    def merge_sql(self, name: str, *, near: bool) -> str:
        """The aggregate that makes one of all in a column."""
        return extreme_sql(self.function, name, self.type, near=near)


NEGATABLE_DIGITS = 34
"""Digits of a decimal that Spark's negation keeps: it rounds to those of an IEEE 754 decimal128."""


def _negated_decimal(number: str, scale: int) -> str:
    """A decimal of 38 digits, negated without loss of digits."""
    limit = f"{Decimal(1).scaleb(NEGATABLE_DIGITS - scale):f}BD"
    text = f"CAST({number} AS STRING)"
    turned = f"IF({number} < 0BD, substr({text}, 2), concat('-', {text}))"
    return f"IF({number} > -{limit} AND {number} < {limit}, -({number}), CAST({turned} AS DECIMAL(38,{scale})))"


@dataclass
class GroupState:
    """The parts kept of a group, and the SQL of its aggregates over them."""

    for_ever: bool
    order: Mapping[str, str]
    """The columns by which a group's rows are ordered, and their types."""
    corrected: bool = False
    """Whether rows that count for ever can be removed nevertheless, by corrections."""
    arguments: dict[str, Expr] = field(default_factory=dict)
    """By column: an argument of the aggregates."""
    parts: dict[str, StatePart] = field(default_factory=dict)
    """By column of the state: the part."""
    centres: dict[str, str] = field(default_factory=dict)
    """The columns of the state with a group's centre (the number that values are centred on), and the values as
    doubles."""
    counts: dict[str, str] = field(default_factory=dict)
    """By column of a centre: the part that counts its values."""
    extremes: dict[str, Extreme] = field(default_factory=dict)
    """By column: an extreme of rows that expire."""
    row_layers: list[dict[str, str]] = field(default_factory=lambda: [{}, {}, {}])
    """Expressions computed from each row before its parts, once the group's centre is known, in layers: a layer reads
    the ones before it."""
    result_layers: list[dict[str, str]] = field(default_factory=lambda: [{}, {}])
    """Expressions computed from the parts before the results, in layers. Spark may compute an expression twice that is
    used twice in one expression."""
    results: dict[str, str] = field(default_factory=dict)
    """The aggregates."""
    row_count: str = ""
    """The part that counts rows; None for rows that are never removed, where it is not needed."""
    doubts: list[str] = field(default_factory=list)
    """Conditions under which the parts just after a removal are not those that the remaining rows would give."""
    worn: list[str] = field(default_factory=list)
    """Conditions under which so much has been removed that the parts may be too far from those."""

    @property
    def types(self) -> dict[str, str]:
        """The SQL types of the columns that rows add to."""
        return {**{name: part.type for name, part in self.parts.items()}, **dict.fromkeys(self.centres, "DOUBLE")}

    @property
    def has_removals(self) -> bool:
        """Whether rows can be removed."""
        return self.corrected or not self.for_ever

    def argument_column(self, expr: Expr) -> str:
        return _column_of(self.arguments, "_a", expr)

    def part(self, row: str, total: str = "sum", kind: str = "BIGINT") -> str:
        """The column of a part; equal parts share one."""
        return self.part_column(StatePart(row, kind, total=total))

    def part_or_null(
        self, row: str, of: str, kind: str, *, centred: bool = False, ever: bool = False, scale: int | None = None
    ) -> str:
        """The column of a part that is NULL where there are no values."""
        return self.part_column(
            StatePart(row, kind, centred, self.count(of) if self.corrected else "", includes_removed=ever, scale=scale)
        )

    def part_column(self, part: StatePart) -> str:
        return _column_of(self.parts, "_p", part)

    def add_row_expr(self, layer: int, text: str) -> str:
        """Add an expression computed from a row before its parts."""
        return _column_of(self.row_layers[layer], f"_n{layer}_", text)

    def add_result_expr(self, layer: int, text: str) -> str:
        """Add an expression computed from the parts before the results."""
        return _column_of(self.result_layers[layer], f"_t{layer}_", text)

    def centre(self, number: str, count: str) -> str:
        """The centre: the number that a group's values are centred on."""
        name = _column_of(self.centres, "_c", number)
        self.counts[name] = count
        return name

    def nearest_to_zero(self, of: str, over: str) -> str:
        """The group's number nearest to zero, so that no other is farther from it than from zero. Where numbers are
        removed again, their squares are exact, and only large ones have to be made smaller."""
        finite = f"abs({of}) < {INFINITE_SQL}"
        # NULL in both: where the ordering value is NULL, the near engine takes any value.
        least = f"min_by(IF({finite}, {of}, NULL), IF({finite}, abs({of}), NULL)) {over}"
        return least if self.for_ever else f"IF(abs({least}) < {_LARGE_DOUBLE}, 0D, {least})"

    def count(self, of: str) -> str:
        """The count of values."""
        return self.part(f"IF({of} IS NULL, 0L, 1L)")

    def track_rounding(self, of: str, sizes: str, traces: str, when: str, measure: str) -> None:
        """Register a sum whose removals leave rounding errors, as large as the last digits of what was ever in it.
        Where the error is much more than the `measure` of the result, too few digits are left. `sizes` is the sum of
        the sizes of current values; as long as nothing is removed the `traces` equal it."""
        doubt = f"{self.count(of)} > 0 AND NOT coalesce(abs({sizes}) < {INFINITE_SQL}, FALSE)"
        worn = f"{when} AND NOT coalesce({traces} <= {_WORN_LIMIT} * {measure}, FALSE)"
        self.doubts += [doubt] if doubt not in self.doubts else []
        self.worn += [worn] if worn not in self.worn else []

    def extreme_column(self, of: str, function: str, kind: str) -> str:
        return _column_of(self.extremes, "_m", Extreme(function, of, kind))


def _column_of(columns: dict[str, NamedValue], prefix: str, value: NamedValue) -> str:
    """The column of a value; a new one if it has none."""
    for name, each in columns.items():
        if each == value:
            return name
    columns[f"{prefix}{len(columns)}"] = value
    return next(reversed(columns))


def clean_state(kept: GroupState) -> list[str]:
    """The state without remainders of removed rows."""
    parts = {name: part.only_if for name, part in kept.parts.items()}
    # Where a sum is empty, its values may be centred on another number.
    centres = {name: kept.counts[name] if kept.corrected else "" for name in kept.centres}
    return [
        f"IF({count} > 0, {name}, NULL) AS {name}" if count else name for name, count in {**parts, **centres}.items()
    ]


# Extremes of rows that expire, in time that grows with the rows and not with the span.
#
# Time is cut into blocks as long as a row counts. At an instant the rows of its block up to the instant count, and
# those of the block before that have not ended: a running extreme from the block's beginning forward, and one from the
# end of the next block back (van Herk, 1992; Gil and Werman, 1993). Only rows that no later row exceeds are kept, since
# only those can become the extreme.

TIME_COLUMN = "_at"
_BLOCK_COLUMN, _LATE_COLUMN, _OLDER_COLUMN, _BEST_COLUMN = "_b", "_late", "_e", "_best"
BLOCK_ORDER = f"{_BLOCK_COLUMN}, {TIME_COLUMN}"
"""The order of a group's rows in one pass over all blocks."""
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

    def _merge_sql(self, name: str, text: str) -> str:
        return self.extremes[name].merge_sql(text, near=self.near)

    def _block(self, moment: str) -> str:
        """The number of the block that an instant is in; nothing overflows on the way."""
        down = f"{moment} DIV {self.span}L - IF({moment} % {self.span}L < 0, 1L, 0L)"
        return f"{down} - IF(pmod({moment}, {self.span}L) < {self.since % self.span}L, 1L, 0L)"

    def sweep(self, events: DataFrame, others: Mapping[str, str], late: DataFrame | None) -> DataFrame:
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
            f"{self._merge_sql(name, f'IF({_LATE_COLUMN}, {name}, NULL)')} {back} AS {_OLDER_COLUMN}{name}"
            for name in self.extremes
        )
        return select_sql(apart, "*", *older).filter(f"NOT {_LATE_COLUMN}")

    def extreme_columns(self) -> list[str]:
        """The extremes at each event of a sweep, as columns of their own."""
        upto = f"OVER (PARTITION BY {', '.join([*self.group, _BLOCK_COLUMN])} ORDER BY {TIME_COLUMN})"
        either = {"max": "greatest", "min": "least"}
        return [
            f"{either[each.function]}({_OLDER_COLUMN}{name}, {self._merge_sql(name, name)} {upto}) AS {name}"
            for name, each in self.extremes.items()
        ]

    def unexceeded_rows(self, rows: DataFrame) -> DataFrame:
        """The rows whose values no later row exceeds, with group and own time; other values become NULL."""
        partition = f"PARTITION BY {', '.join(self.group)} " if self.group else ""
        after = f"OVER ({partition}ORDER BY {OWN_TIME} DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        best = [f"{self._merge_sql(name, name)} {after} AS {_BEST_COLUMN}{name}" for name in self.extremes]
        stands = [
            f"IF({_BEST_COLUMN}{name} IS NULL OR {name} {_COMPARISONS[each.function]} "
            f"{_BEST_COLUMN}{name}, {name}, NULL) AS {name}"
            for name, each in self.extremes.items()
        ]
        left = select_sql(
            select_sql(rows, *self.group, OWN_TIME, *self.extremes, *best), *self.group, OWN_TIME, *stands
        )
        return left.filter(" OR ".join(f"{name} IS NOT NULL" for name in self.extremes))
