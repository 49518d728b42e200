"""What the compiler writes otherwise for the near engine than for Spark, so that both do the same.

Expressions of the language are spelled by `language.near_spelling`; here are the aggregates, and what values are told
apart by. The near engine adds up whole numbers without a look at where they end, does not know that NaN is the greatest
number, takes one that arithmetic made for the least, and tells zeros apart by their sign where it partitions rows and
where it compares structs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from errata.engine.frames import select_sql
from errata.engine.near import is_near
from errata.language.expr import Expr, expr_sql
from errata.language.near_dialect import near_sql
from errata.language.nodes import Aggregate
from errata.language.plan import Plan
from errata.language.times import OwnTime, RowTimes, row_times
from errata.model.columns import FLOATING_KINDS, WHOLE_KINDS, ColumnType, TypeKind
from errata.model.time import HIGHEST, LOWEST

InputFrames = Mapping[str, DataFrame]
"""The rows of each source, by its name."""


def distinguishable(text: str, kind: ColumnType, *, near: bool) -> str:
    """A value that rows are partitioned by, grouped by or joined by."""
    if not near or kind.kind not in FLOATING_KINDS:
        return text
    return equal_nans(f"({text}) + CAST(0 AS {kind})", str(kind), near=near)


def equal_nans(text: str, kind: str, *, near: bool) -> str:
    """A value of a type in SQL that is compared with others of it."""
    if not near or not _is_floating(kind):
        return text
    return f"nanvl({text}, CAST('NaN' AS {kind}))"


def _is_floating(kind: str) -> bool:
    return kind.upper() in ("FLOAT", "DOUBLE")


def extreme_sql(function: str, text: str, kind: str, *, near: bool) -> str:
    """The greatest or the least of values of a type, NaN being the greatest."""
    if not near or function == "sum" or not _is_floating(kind):
        return f"{function}({text})"
    return f"{function}_by({text}, IF({text} IS NULL, NULL, named_struct('n', isnan({text}), 'v', {text})))"


def summand_sql(text: str, function: str, kind: ColumnType, *, near: bool) -> str:
    """What a sum or an average is made of."""
    if near and function == "sum" and kind.kind in WHOLE_KINDS:
        return f"CAST({text} AS DECIMAL(38,0))"
    if near and function == "avg" and kind.kind is TypeKind.DECIMAL:
        # An average is cut off after four more digits: a fifth tells which way the fourth is rounded.
        return f"CAST({text} AS DECIMAL({min(kind.precision + 1, 38)},{min(kind.scale + 1, 38)}))"
    return text


def aggregate_result(text: str, aggregate: Aggregate, *, near: bool) -> str:
    """What an aggregate comes to, from what it was made in; a sum that does not fit fails here."""
    whole = aggregate.function == "sum" and aggregate.type.kind in WHOLE_KINDS
    rounded = aggregate.function == "avg" and aggregate.type.kind is TypeKind.DECIMAL
    return f"CAST({text} AS {str(aggregate.type).upper()})" if near and (whole or rounded) else text


# What an operator takes and gives: a frame, the node that it belongs to, and what its columns are called.

VS, VE, TS = "_vs", "_ve", "_ts"
OPEN_END = f"{HIGHEST}L"
VALUE_COLUMN = "_value"
"""Columns in one struct, which is equal where they are equal and NULL is NULL: a join on it sees only an equality."""
RIGHT_PREFIX = "_r"
"""Before the names of a right side's columns."""


def quote_name(name: str) -> str:
    """Any text as the name of a column in SQL."""
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


def column_at(number: int) -> str:
    """What the column at a place is called."""
    return f"c{number}"


def columns_at(count: int, start: int = 0) -> list[str]:
    """The same for some that follow one another."""
    return [column_at(number) for number in range(start, start + count)]


@dataclass(frozen=True, slots=True)
class EvaluationMode:
    """How a plan is evaluated."""

    at: int | None
    """The instant that is asked for; None: the whole history."""
    scope: tuple[str, ...]
    """Columns that keep data sets apart."""
    lineage: bool


@dataclass(frozen=True)
class NodeRows:
    """The rows of a node. At an instant they have no lifetimes, only their own time where there is one."""

    plan: Plan
    frame: DataFrame
    way: EvaluationMode
    scans: range
    """The numbers of the scans below."""

    @property
    def timing(self) -> RowTimes:
        return row_times(self.plan)

    @property
    def times(self) -> list[str]:
        """The columns that tell times."""
        own = self.timing.own
        if self.way.at is None:
            return [VS, VE, TS] if own is OwnTime.KEPT else [VS, VE]
        return {OwnTime.START: [VS], OwnTime.KEPT: [TS], OwnTime.NONE: []}[own]

    @property
    def own(self) -> str | None:
        """The column of the row's own time."""
        return {OwnTime.START: VS, OwnTime.KEPT: TS, OwnTime.NONE: None}[self.timing.own]

    @property
    def lineage(self) -> list[str]:
        return [name for number in self.scans for name in lineage_columns(number)] if self.way.lineage else []

    @property
    def beside(self) -> list[str]:
        """All that stands beside the node's own columns."""
        return [*self.way.scope, *self.times, *self.lineage]

    @property
    def columns(self) -> list[str]:
        return columns_at(len(self.plan.fields))

    def column(self, name: str) -> str:
        """What a column of the node is called."""
        return self._places[name]

    @property
    def _places(self) -> Mapping[str, str]:
        return {each.name: column_at(number) for number, each in enumerate(self.plan.fields)}

    def sql(self, expr: Expr) -> str:
        """An expression over the node's columns."""
        found = self._places
        return (near_sql if self.near else expr_sql)(expr, found.__getitem__)

    def key(self, expr: Expr) -> str:
        """An expression that rows are told apart by."""
        return distinguishable(self.sql(expr), expr.type, near=self.near)

    def keys(self, names: Iterable[str]) -> list[str]:
        """Columns of the node that rows are told apart by."""
        types = self.plan.types
        return [distinguishable(self.column(name), types[name], near=self.near) for name in names]

    @property
    def near(self) -> bool:
        """Whether the near engine has them."""
        return is_near(self.frame.sparkSession)

    @property
    def order(self) -> list[str]:
        """What the rows' order goes by: the own time if they have one, and the key."""
        own = [] if self.own is None else [self.own]
        return [*own, *(self.column(name) for name in self.plan.key)]

    def visible(self) -> list[str]:
        """The columns that are part of the answer."""
        return [self.column(each.name) for each in self.plan.visible]

    def values(self) -> list[str]:
        """The same, as equal answers are told from others."""
        return self.keys(each.name for each in self.plan.visible)

    def over(self, plan: Plan, frame: DataFrame) -> NodeRows:
        """The rows of a node above this one."""
        return replace(self, plan=plan, frame=frame)


def lineage_columns(number: int) -> tuple[str, str]:
    """The columns that tell where among a scan's rows those lie that a row was made of."""
    return f"_from_{number}", f"_to_{number}"


def merged_lineage(names: Sequence[str]) -> dict[str, str]:
    """How the lineage of several rows becomes that of one."""
    return {name: f"{'min' if name.startswith('_from') else 'max'}({name})" for name in names}


def struct_sql(columns: Sequence[str]) -> str:
    """Columns in one struct; see VALUE."""
    named = [f"'v{number}', {name}" for number, name in enumerate(columns)]
    return f"named_struct({', '.join(named)})"


def null_sql(kind: str) -> str:
    """NULL of a type, in SQL. Without one the near engine cannot always put rows below others."""
    return f"CAST(NULL AS {kind})"


def instant_sql(at: int) -> str:
    """An instant in SQL."""
    # The near engine reads the minus sign apart from the number, which is too large without it.
    return f"CAST('{at}' AS BIGINT)" if at == LOWEST else f"{at}L"


def add_to_instant(moment: str, by: int) -> str:
    """An instant so much later, or never."""
    return f"CASE WHEN {moment} >= {HIGHEST - by}L THEN {OPEN_END} ELSE {moment} + {by}L END"


def shift_instant(moment: str, by: int) -> str:
    """An instant so much later or, below zero, earlier: the last of all, or the first, where there is none."""
    if by < 0:
        return f"CASE WHEN {moment} <= {instant_sql(LOWEST - by)} THEN {instant_sql(LOWEST)} ELSE {moment} - {-by}L END"
    return add_to_instant(moment, by)


def window_sql(by: Sequence[str], order: Sequence[str] = (), rows: str = "") -> str:
    """The window of a function: the rows with the same values, their order, and which of them."""
    parts = [f"PARTITION BY {', '.join(by)}"] if by else []
    parts += [f"ORDER BY {', '.join(order)}"] if order else []
    return f"OVER ({' '.join([*parts, *([rows] if rows else [])])})"


ROWS_UP_TO_NOW = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
"""Of a window's rows those up to the row, and all that are equal to it in order."""
EARLIER_ROWS = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
ALL_ROWS = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def select_columns(frame: DataFrame, columns: Sequence[str], **made: str) -> DataFrame:
    """Columns as they are, and others from SQL."""
    return select_sql(frame, *columns, *(f"{text} AS {name}" for name, text in made.items()))


# What carrying a plan on from one instant to a later one comes to.


@dataclass(frozen=True)
class AdvanceResult:
    """What a plan says at the instants `[since, until]`, both included, and what the next time needs."""

    rows: DataFrame
    """As `compile_plan` gives them: the plan's columns, `_vs`, `_ve` and the scope. Either all that count at an instant
    from `since` on, right at each instant up to `until`; they may have begun earlier, and what they say of later
    instants is only foreseen. Or, where results are only ever added, those that begin within."""
    state: DataFrame | None
    """What is known of rows with an own time before `until`: rows of the last instant may still come, so that one is
    worked out again. A cache, of the scope and whatever columns the strategy needs, the same ones every time; None
    where nothing has to be known."""
    windows: DataFrame | None = None
    """If the parts of final windows were asked for: the state's columns and `_vs`, a window's end, of all windows with
    rows before `until` that end from `since` on. Those with `_vs <= until` have closed, and this is what corrections of
    them start from; one that ends at `since` had closed the last time already. Those with `_vs >= until` are the state;
    one that ends at `until` is both."""
