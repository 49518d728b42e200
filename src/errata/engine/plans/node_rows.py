"""The rows of a node (`NodeRows`): a frame, the node that it belongs to, and the names of its columns; SQL snippets
that both engines compute alike; and the result of advancing a plan (`AdvanceResult`).

Expressions of the language are written for the near engine by `language.near_dialect`; here are the aggregates, and the
values that rows are compared by. The near engine adds up whole numbers without overflow checks, does not order NaN as
the greatest number (a NaN made by arithmetic counts as the least), and distinguishes zeros by their sign where it
partitions rows and where it compares structs. Structs with NULL in a field it orders in one way within a batch and in
another between batches.
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
"""By name of a source: its rows."""


def distinguishable(text: str, kind: ColumnType, *, near: bool) -> str:
    """A value by which rows are partitioned, grouped or joined."""
    if not near or kind.kind not in FLOATING_KINDS:
        return text
    return equal_nans(f"({text}) + CAST(0 AS {kind})", str(kind), near=near)


def equal_nans(text: str, kind: str, *, near: bool) -> str:
    """A value as SQL, to be compared with others of its type."""
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


def rank_sql(columns: Mapping[str, str], *, near: bool) -> str:
    """A struct by which rows are ordered, of columns and their types: NULL is the least value, NaN the greatest."""
    fields: list[str] = []
    for text, kind in columns.items():
        if not near:
            fields.append(text)
            continue
        fields.append(f"{text} IS NOT NULL")
        if _is_floating(kind):
            fields.append(f"coalesce(isnan({text}), FALSE)")
            text = equal_nans(f"({text}) + CAST(0 AS {kind})", kind, near=near)  # noqa: PLW2901 - the same, comparable
        fields.append(f"coalesce({text}, {_some_value(kind)})")
    return struct_sql(fields)


def _some_value(kind: str) -> str:
    """A value of a type, which stands where there is none."""
    text = {"STRING": "''", "BOOLEAN": "FALSE", "DATE": "'1970-01-01'", "TIMESTAMP": "'1970-01-01'"}
    return f"CAST({text.get(kind.upper(), '0')} AS {kind})"


def summand_sql(text: str, function: str, kind: ColumnType, *, near: bool) -> str:
    """The summand of a sum or an average."""
    if near and function == "sum" and kind.kind in WHOLE_KINDS:
        return f"CAST({text} AS DECIMAL(38,0))"
    if near and function == "avg" and kind.kind is TypeKind.DECIMAL:
        # The near engine truncates an average to four more digits; with a fifth the fourth is rounded correctly.
        return f"CAST({text} AS DECIMAL({min(kind.precision + 1, 38)},{min(kind.scale + 1, 38)}))"
    return text


def aggregate_result(text: str, aggregate: Aggregate, *, near: bool) -> str:
    """The result of an aggregate, converted to its type; a sum that does not fit fails here."""
    whole = aggregate.function == "sum" and aggregate.type.kind in WHOLE_KINDS
    rounded = aggregate.function == "avg" and aggregate.type.kind is TypeKind.DECIMAL
    return f"CAST({text} AS {str(aggregate.type).upper()})" if near and (whole or rounded) else text


# The input and output of an operator: a frame, the node that it belongs to, and the names of its columns.

VS, VE, TS = "_vs", "_ve", "_ts"
OPEN_END = f"{HIGHEST}L"
VALUE_COLUMN = "_value"
"""A struct of columns. Structs are equal where all columns are equal, NULLs included, and a join on it is an
equi-join."""
RIGHT_PREFIX = "_r"
"""Prefix of a right side's columns."""


def quote_name(name: str) -> str:
    """A column's name, quoted for SQL."""
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


def column_at(number: int) -> str:
    """The name of the column at a position."""
    return f"c{number}"


def columns_at(count: int, start: int = 0) -> list[str]:
    """The names of consecutive columns."""
    return [column_at(number) for number in range(start, start + count)]


@dataclass(frozen=True, slots=True)
class EvaluationMode:
    """The mode of evaluation of a plan."""

    at: int | None
    """The instant of the answer; None: the whole history."""
    scope: tuple[str, ...]
    """Columns that keep several data sets in one frame apart."""
    lineage: bool


@dataclass(frozen=True)
class NodeRows:
    """The rows of a node. For one instant they have no lifetimes, only their own time where there is one."""

    plan: Plan
    frame: DataFrame
    mode: EvaluationMode
    scans: range
    """The numbers of the scans below."""

    @property
    def row_times(self) -> RowTimes:
        return row_times(self.plan)

    @property
    def times(self) -> list[str]:
        """The columns of times."""
        own = self.row_times.own
        if self.mode.at is None:
            return [VS, VE, TS] if own is OwnTime.KEPT else [VS, VE]
        return {OwnTime.START: [VS], OwnTime.KEPT: [TS], OwnTime.NONE: []}[own]

    @property
    def own(self) -> str | None:
        """The column of the row's own time."""
        return {OwnTime.START: VS, OwnTime.KEPT: TS, OwnTime.NONE: None}[self.row_times.own]

    @property
    def lineage(self) -> list[str]:
        return [name for number in self.scans for name in lineage_columns(number)] if self.mode.lineage else []

    @property
    def extra_columns(self) -> list[str]:
        """All columns besides the node's own."""
        return [*self.mode.scope, *self.times, *self.lineage]

    @property
    def columns(self) -> list[str]:
        return columns_at(len(self.plan.fields))

    def column(self, name: str) -> str:
        """The name of the node's column in the frame."""
        return self._places[name]

    @property
    def _places(self) -> Mapping[str, str]:
        return {each.name: column_at(number) for number, each in enumerate(self.plan.fields)}

    def sql(self, expr: Expr) -> str:
        """An expression over the node's columns, as SQL."""
        found = self._places
        return (near_sql if self.near else expr_sql)(expr, found.__getitem__)

    def key(self, expr: Expr) -> str:
        """An expression by which rows are partitioned, grouped or joined, as SQL."""
        return distinguishable(self.sql(expr), expr.type, near=self.near)

    def keys(self, names: Iterable[str]) -> list[str]:
        """Columns of the node by which rows are partitioned, grouped or joined."""
        types = self.plan.types
        return [distinguishable(self.column(name), types[name], near=self.near) for name in names]

    @property
    def near(self) -> bool:
        """Whether the frame belongs to the near engine."""
        return is_near(self.frame.sparkSession)

    @property
    def order(self) -> list[str]:
        """The order of the rows: by own time if they have one, then by key."""
        own = [] if self.own is None else [self.own]
        return [*own, *(self.column(name) for name in self.plan.key)]

    @property
    def rank(self) -> str:
        """The order of the rows as one value."""
        types = [*([] if self.own is None else ["BIGINT"]), *(str(self.plan.types[name]) for name in self.plan.key)]
        return rank_sql(dict(zip(self.order, types, strict=True)), near=self.near)

    def visible(self) -> list[str]:
        """The columns that are part of the answer."""
        return [self.column(each.name) for each in self.plan.visible]

    def comparable_columns(self) -> list[str]:
        """The visible columns in the form in which answers are compared."""
        return self.keys(each.name for each in self.plan.visible)

    def for_node(self, plan: Plan, frame: DataFrame) -> NodeRows:
        """The rows of a node above this one."""
        return replace(self, plan=plan, frame=frame)


def lineage_columns(number: int) -> tuple[str, str]:
    """The columns with the first and last vs of a scan's rows that a row was made of."""
    return f"_from_{number}", f"_to_{number}"


def merged_lineage(names: Sequence[str]) -> dict[str, str]:
    """The aggregates that merge the lineage of several rows."""
    return {name: f"{'min' if name.startswith('_from') else 'max'}({name})" for name in names}


def struct_sql(columns: Sequence[str]) -> str:
    """Columns in one struct; see VALUE."""
    named = [f"'v{number}', {name}" for number, name in enumerate(columns)]
    return f"named_struct({', '.join(named)})"


def null_sql(kind: str) -> str:
    """NULL of a type, as SQL. Without the type the near engine cannot always union rows."""
    return f"CAST(NULL AS {kind})"


def instant_sql(at: int) -> str:
    """An instant, as SQL."""
    # The near engine parses the minus sign separately, and the number without it is too large.
    return f"CAST('{at}' AS BIGINT)" if at == LOWEST else f"{at}L"


def add_to_instant(moment: str, by: int) -> str:
    """An instant later by a span; an open end stays open."""
    return f"CASE WHEN {moment} >= {HIGHEST - by}L THEN {OPEN_END} ELSE {moment} + {by}L END"


def shift_instant(moment: str, by: int) -> str:
    """An instant later by a span, or earlier for a negative one; bounded by the first and the last instant."""
    if by < 0:
        return f"CASE WHEN {moment} <= {instant_sql(LOWEST - by)} THEN {instant_sql(LOWEST)} ELSE {moment} - {-by}L END"
    return add_to_instant(moment, by)


def window_sql(by: Sequence[str], order: Sequence[str] = (), rows: str = "") -> str:
    """The OVER clause of a window function: partition, order and frame."""
    parts = [f"PARTITION BY {', '.join(by)}"] if by else []
    parts += [f"ORDER BY {', '.join(order)}"] if order else []
    return f"OVER ({' '.join([*parts, *([rows] if rows else [])])})"


ROWS_UP_TO_NOW = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
"""Frame clause: the rows up to the current one and its peers."""
EARLIER_ROWS = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
ALL_ROWS = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def select_columns(frame: DataFrame, columns: Sequence[str], **made: str) -> DataFrame:
    """Columns as they are, and others as SQL."""
    return select_sql(frame, *columns, *(f"{text} AS {name}" for name, text in made.items()))


# The result of advancing a plan from one instant to a later one.


@dataclass(frozen=True)
class AdvanceResult:
    """A plan's results at the instants `[since, until]`, both included, and the state for the next step."""

    rows: DataFrame
    """In the form of `compile_plan`: the plan's columns, `_vs`, `_ve` and the scope. Either all results that count at
    an instant from `since` on, right at each instant up to `until`; they may have begun earlier, and later instants are
    only a forecast. Or, where results are only added, those that begin within."""
    state: DataFrame | None
    """The state: a summary of rows with an own time before `until`. Rows of the last instant may still come, so that
    instant is computed again. It has the scope and the columns of the strategy, always the same ones; None where no
    state is needed."""
    windows: DataFrame | None = None
    """Parts of final windows, on request: the state's columns and `_vs`, a window's end, of all windows with rows
    before `until` that end from `since` on. Those with `_vs <= until` have closed, and corrections of them start from
    these parts; one that ends at `since` had closed in the step before. Those with `_vs >= until` are the state; one
    that ends at `until` is both."""
