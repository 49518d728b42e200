"""The operators of a plan, a dozen kinds. Each checks its columns and types when it is made.

A new operator is added here and in every dispatch over node kinds; a dispatch without it raises an error that names it,
and `tests/language/test_unknown_nodes.py` runs them all over a node that none knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

from errata.language.expr import BIGINT, BOOLEAN, INT, TIMESTAMP, Expr, Ref, expr_sql
from errata.language.plan import Binary, Field, Leaf, Plan, PlanError, Source, SourceKind, Unary, cached_fact, walk_plan
from errata.model.columns import ColumnType

BRANCH = "_branch"
WINDOW_START, WINDOW_END, WINDOW_NUMBER = "window_start", "window_end", "window_no"


@dataclass(frozen=True)
class Scan(Leaf):
    """All rows of a stream, a relation or a query. A stream's row counts from its order field on, for ever; a
    relation's version until the next one of its key; a query's result during its own lifetime."""

    source: Source
    alias: str
    columns: tuple[str, ...] | None = None
    """The source's columns that are needed, in the source's order; None for all."""

    def __post_init__(self) -> None:
        self._check()

    def column(self, name: str) -> str:
        """The name within the plan of a column of the source."""
        return f"{self.alias}.{name}"

    def of_source(self, name: str) -> str:
        """The source's name of a column of this scan."""
        return name.removeprefix(f"{self.alias}.")

    def _fields(self) -> tuple[Field, ...]:
        wanted = self.columns
        kept = [each for each in self.source.fields if wanted is None or each.name in wanted]
        return tuple(Field(self.column(each.name), each.type, each.hidden) for each in kept)

    def _key(self) -> tuple[str, ...]:
        return tuple(self.column(name) for name in self.source.key)


@dataclass(frozen=True)
class Sliding(Unary):
    """A window over time: a row counts for a span from its vs, `[vs, vs + span)`."""

    span: int

    def __post_init__(self) -> None:
        self._check()
        if self.span <= 0:
            raise PlanError("a window lasts for more than nothing")


@dataclass(frozen=True)
class SlidingRows(Unary):
    """A window over rows: a row counts until `rows` more have come after it, in the order (vs, key)."""

    rows: int

    def __post_init__(self) -> None:
        self._check()
        if self.rows <= 0:
            raise PlanError("a window has a row at least")


@dataclass(frozen=True)
class Filter(Unary):
    """Rows for which the predicate is true."""

    predicate: Expr

    def __post_init__(self) -> None:
        self._check_expr(self.predicate, self.input, BOOLEAN)
        self._check()


@dataclass(frozen=True)
class Output:
    """A named expression."""

    name: str
    expr: Expr


@dataclass(frozen=True)
class Projection(Unary):
    """New columns from each row. Columns of the key that no output repeats are carried as hidden columns."""

    outputs: tuple[Output, ...]

    def __post_init__(self) -> None:
        for output in self.outputs:
            self._check_expr(output.expr, self.input)
        self._check()

    @cached_property
    def kept(self) -> dict[str, str]:
        """By column of the input: the first output that is this column unchanged."""
        kept: dict[str, str] = {}
        for output in self.outputs:
            if isinstance(output.expr, Ref):
                kept.setdefault(output.expr.name, output.name)
        return kept

    @cached_property
    def carried(self) -> tuple[str, ...]:
        """Columns of the input's key that are carried as hidden columns."""
        return tuple(name for name in self.input.key if name not in self.kept)

    def _fields(self) -> tuple[Field, ...]:
        shown = [Field(output.name, output.expr.type) for output in self.outputs]
        return (*shown, *(Field(name, self.input.types[name], hidden=True) for name in self.carried))

    def _key(self) -> tuple[str, ...]:
        return tuple(self.kept.get(name, name) for name in self.input.key)


@dataclass(frozen=True)
class Join(Binary):
    """Pairs that fulfil the condition, for as long as both count. None: all pairs."""

    condition: Expr | None = None

    def __post_init__(self) -> None:
        self._check()
        self._check_expr(self.condition, self, BOOLEAN)

    def _fields(self) -> tuple[Field, ...]:
        return (*self.left.fields, *self.right.fields)

    def _key(self) -> tuple[str, ...]:
        return (*self.left.key, *self.right.key)


@dataclass(frozen=True)
class RelationJoin(Binary):
    """Rows of the left with rows of a relation, which is a scan on the right, perhaps filtered. The kind of the
    relation decides which: the versions that count at the same time (retroactive), or the version valid at the left
    row's own time (non-retroactive)."""

    condition: Expr | None = None

    def __post_init__(self) -> None:
        self._check()
        self._check_expr(self.condition, self, BOOLEAN)
        relation = self.right
        if not isinstance(relation, Scan) or not relation.source.kind.is_relation:
            raise PlanError("the right side of a relation join is the scan of a relation")

    @property
    def relation(self) -> Scan:
        return cast("Scan", self.right)

    @property
    def retroactive(self) -> bool:
        return self.relation.source.kind is SourceKind.RETROACTIVE

    def _fields(self) -> tuple[Field, ...]:
        return (*self.left.fields, *self.right.fields)

    def _key(self) -> tuple[str, ...]:
        return (*self.left.key, *self.right.key)


@dataclass(frozen=True)
class Union(Plan):
    """The rows of all branches (UNION ALL). Columns match by position and have the names of the first branch."""

    branches: tuple[Plan, ...]
    number: int = 1
    """The number of this union in its statement; keeps names of hidden columns apart."""

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return self.branches

    def with_inputs(self, inputs: Sequence[Plan]) -> Plan:
        return replace(self, branches=tuple(inputs))

    def __post_init__(self) -> None:
        _check_columns_agree(self, self.branches)
        self._check()

    @cached_property
    def key_positions(self) -> tuple[int, ...] | None:
        """The positions of the keys among the visible columns, if they are the same in all branches. Otherwise None,
        and each branch has hidden key columns of its own."""
        found = {_visible_positions(branch) for branch in self.branches}
        return found.pop() if len(found) == 1 else None

    @cached_property
    def branch_column(self) -> str:
        """The hidden column that tells the branch."""
        return _numbered(BRANCH, self.number)

    def key_column(self, branch: int, name: str) -> str:
        """The hidden column that holds a branch's key column; NULL in rows of other branches."""
        return f"{self.branch_column}_{branch}.{name}"

    def _fields(self) -> tuple[Field, ...]:
        shown = self.branches[0].visible
        hidden = [Field(self.branch_column, INT, hidden=True)]
        if self.key_positions is None:
            for number, branch in enumerate(self.branches):
                hidden += [Field(self.key_column(number, each), branch.types[each], True) for each in branch.key]
        return (*shown, *hidden)

    def _key(self) -> tuple[str, ...]:
        if self.key_positions is not None:
            return (self.branch_column, *(self.branches[0].visible[place].name for place in self.key_positions))
        named = [self.key_column(at, name) for at, branch in enumerate(self.branches) for name in branch.key]
        return (self.branch_column, *named)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}_{number}"


def _visible_positions(plan: Plan) -> tuple[int, ...] | None:
    names = [each.name for each in plan.visible]
    return tuple(map(names.index, plan.key)) if set(plan.key) <= set(names) else None


@dataclass(frozen=True)
class Distinct(Unary):
    """Each combination of visible columns once, for as long as any row with it counts."""

    def _fields(self) -> tuple[Field, ...]:
        return self.input.visible

    def _key(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.fields)


@dataclass(frozen=True)
class Intersect(Binary):
    """Each combination of visible columns once, while both sides have it. Named by the left."""

    def __post_init__(self) -> None:
        _check_columns_agree(self, self.inputs)
        self._check()

    def _fields(self) -> tuple[Field, ...]:
        return self.left.visible

    def _key(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.fields)


@dataclass(frozen=True)
class Negation(Binary):
    """Rows of the left without as many of equal value as the right has: of v1 rows on the left and v2 on the right, the
    v1 - v2 youngest remain (Golab and Özsu, 2005, equation 1)."""

    columns: tuple[tuple[str, str], ...]
    """The columns that make the value: of the left and of the right."""
    rank: tuple[str, ...] | None = None
    """Columns of the left whose order decides which row is youngest (the last). None: the row's own time, then the key.
    """

    def __post_init__(self) -> None:
        for left, right in self.columns:
            self._check_names([left], self.left)
            self._check_names([right], self.right)
            if self.left.types[left] != self.right.types[right]:
                raise PlanError(f"{left} and {right} differ in type", where="Negation")
        self._check_names(self.rank or (), self.left)
        self._check()

    def _fields(self) -> tuple[Field, ...]:
        return self.left.fields

    def _key(self) -> tuple[str, ...]:
        return self.left.key


@dataclass(frozen=True)
class TimeWindow:
    """Windows `[n * slide, n * slide + size)` of event time. A window is published at its end, when it is final; an
    early one from its first row on."""

    size: int
    slide: int
    early: bool = False


@dataclass(frozen=True)
class RowWindow:
    """Windows of `size` rows of a group in the order (vs, key), each `step` rows after the one before; published with
    the row that fills it."""

    size: int
    step: int


AGGREGATES = ("count", "sum", "avg", "min", "max", "stddev", "first", "last")


@dataclass(frozen=True)
class Aggregate:
    """An aggregate function; `argument` is None for count(*)."""

    function: str
    argument: Expr | None
    type: ColumnType
    distinct: bool = False

    @property
    def name(self) -> str:
        """Its name among the group's columns: its text."""
        inner = "*" if self.argument is None else expr_sql(self.argument)
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{inner})"


@dataclass(frozen=True)
class Group(Unary):
    """One row for each group (and window). Without a time window the result for a group holds until the next one; a
    group without rows has none, also where there is only one group. Its columns: what it groups by, the window's, the
    aggregates."""

    by: tuple[Expr, ...]
    aggregates: tuple[Aggregate, ...]
    window: TimeWindow | RowWindow | None = None
    timed: bool = True
    """Whether windows begin and end at timestamps; otherwise at plain numbers."""
    number: int = 1
    """The number of this windowed group in its statement; keeps names of window columns apart."""

    def __post_init__(self) -> None:
        for expr in self.by:
            self._check_expr(expr, self.input)
        for aggregate in self.aggregates:
            self._check_expr(aggregate.argument, self.input)
        self._check()

    @cached_property
    def window_fields(self) -> tuple[Field, ...]:
        if isinstance(self.window, TimeWindow):
            kind = TIMESTAMP if self.timed else BIGINT
            return tuple(Field(_numbered(name, self.number), kind) for name in (WINDOW_START, WINDOW_END))
        return () if self.window is None else (Field(_numbered(WINDOW_NUMBER, self.number), BIGINT),)

    def _fields(self) -> tuple[Field, ...]:
        by = [Field(expr_sql(expr), expr.type) for expr in self.by]
        return (*by, *self.window_fields, *(Field(each.name, each.type) for each in self.aggregates))

    def _key(self) -> tuple[str, ...]:
        return (*(expr_sql(expr) for expr in self.by), *(each.name for each in self.window_fields[:1]))


def _check_columns_agree(plan: Plan, inputs: Sequence[Plan]) -> None:
    kinds = {tuple(each.type for each in branch.visible) for branch in inputs}
    if len(kinds) != 1 or len(inputs) < 2:
        raise PlanError("the inputs differ in number or types of columns", where=type(plan).__name__)


@cached_fact
def scans_of(plan: Plan) -> tuple[Scan, ...]:
    """The scans of a plan, from left to right. A source that is read twice is listed twice."""
    return tuple(each for each in walk_plan(plan) if isinstance(each, Scan))
