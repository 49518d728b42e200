"""What an operator takes and gives: a frame, the node that it belongs to, and what its columns are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from errata.engine.frames import selected
from errata.engine.near import is_near
from errata.engine.plans.spelling import told_apart
from errata.language.expr import Expr, sql
from errata.language.near_spelling import near_sql
from errata.language.plan import Plan
from errata.language.times import Own, Timing, timing
from errata.model.interval import HIGHEST, LOWEST

VS, VE, TS = "_vs", "_ve", "_ts"
OPEN = f"{HIGHEST}L"
VALUE = "_value"
"""Columns in one struct, which is equal where they are equal and NULL is NULL: a join on it sees only an equality."""
OTHER = "_r"
"""Before the names of a right side's columns."""


def quoted(name: str) -> str:
    """Any text as the name of a column in SQL."""
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


def place(number: int) -> str:
    """What the column at a place is called."""
    return f"c{number}"


def places(count: int, start: int = 0) -> list[str]:
    """The same for some that follow one another."""
    return [place(number) for number in range(start, start + count)]


@dataclass(frozen=True, slots=True)
class Way:
    """How a plan is evaluated."""

    at: int | None
    """The instant that is asked for; None: the whole history."""
    scope: tuple[str, ...]
    """Columns that keep data sets apart."""
    lineage: bool


@dataclass(frozen=True)
class Rows:
    """The rows of a node. At an instant they have no lifetimes, only their own time where there is one."""

    plan: Plan
    frame: DataFrame
    way: Way
    scans: range
    """The numbers of the scans below."""

    @property
    def timing(self) -> Timing:
        return timing(self.plan)

    @property
    def times(self) -> list[str]:
        """The columns that tell times."""
        own = self.timing.own
        if self.way.at is None:
            return [VS, VE, TS] if own is Own.KEPT else [VS, VE]
        return {Own.START: [VS], Own.KEPT: [TS], Own.NONE: []}[own]

    @property
    def own(self) -> str | None:
        """The column of the row's own time."""
        return {Own.START: VS, Own.KEPT: TS, Own.NONE: None}[self.timing.own]

    @property
    def lineage(self) -> list[str]:
        return [name for number in self.scans for name in lineage_columns(number)] if self.way.lineage else []

    @property
    def beside(self) -> list[str]:
        """All that stands beside the node's own columns."""
        return [*self.way.scope, *self.times, *self.lineage]

    @property
    def columns(self) -> list[str]:
        return places(len(self.plan.fields))

    def column(self, name: str) -> str:
        """What a column of the node is called."""
        return self._places[name]

    @property
    def _places(self) -> Mapping[str, str]:
        return {each.name: place(number) for number, each in enumerate(self.plan.fields)}

    def sql(self, expr: Expr) -> str:
        """An expression over the node's columns."""
        found = self._places
        return (near_sql if self.near else sql)(expr, found.__getitem__)

    def key(self, expr: Expr) -> str:
        """An expression that rows are told apart by."""
        return told_apart(self.sql(expr), expr.type, near=self.near)

    def keys(self, names: Iterable[str]) -> list[str]:
        """Columns of the node that rows are told apart by."""
        types = self.plan.types
        return [told_apart(self.column(name), types[name], near=self.near) for name in names]

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

    def over(self, plan: Plan, frame: DataFrame) -> Rows:
        """The rows of a node above this one."""
        return replace(self, plan=plan, frame=frame)


def lineage_columns(number: int) -> tuple[str, str]:
    """The columns that tell where among a scan's rows those lie that a row was made of."""
    return f"_from_{number}", f"_to_{number}"


def lineage_of(names: Sequence[str]) -> dict[str, str]:
    """How the lineage of several rows becomes that of one."""
    return {name: f"{'min' if name.startswith('_from') else 'max'}({name})" for name in names}


def value(columns: Sequence[str]) -> str:
    """Columns in one struct; see VALUE."""
    named = [f"'v{number}', {name}" for number, name in enumerate(columns)]
    return f"named_struct({', '.join(named)})"


def missing(kind: str) -> str:
    """NULL of a type, in SQL. Without one the near engine cannot always put rows below others."""
    return f"CAST(NULL AS {kind})"


def instant(at: int) -> str:
    """An instant in SQL."""
    # The near engine reads the minus sign apart from the number, which is too large without it.
    return f"CAST('{at}' AS BIGINT)" if at == LOWEST else f"{at}L"


def later(moment: str, by: int) -> str:
    """An instant so much later, or never."""
    return f"CASE WHEN {moment} >= {HIGHEST - by}L THEN {OPEN} ELSE {moment} + {by}L END"


def moved(moment: str, by: int) -> str:
    """An instant so much later or, below zero, earlier: the last of all, or the first, where there is none."""
    if by < 0:
        return f"CASE WHEN {moment} <= {instant(LOWEST - by)} THEN {instant(LOWEST)} ELSE {moment} - {-by}L END"
    return later(moment, by)


def over(by: Sequence[str], order: Sequence[str] = (), rows: str = "") -> str:
    """The window of a function: the rows with the same values, their order, and which of them."""
    parts = [f"PARTITION BY {', '.join(by)}"] if by else []
    parts += [f"ORDER BY {', '.join(order)}"] if order else []
    return f"OVER ({' '.join([*parts, *([rows] if rows else [])])})"


UP_TO_NOW = "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
"""Of a window's rows those up to the row, and all that are equal to it in order."""
EARLIER = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
ALL = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def chosen(frame: DataFrame, columns: Sequence[str], **made: str) -> DataFrame:
    """Columns as they are, and others from SQL."""
    return selected(frame, *columns, *(f"{text} AS {name}" for name, text in made.items()))
