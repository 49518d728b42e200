"""The times of a plan's rows: whether they have an own time, and how long they count.

A row that came from one event, or from one event of each side of a join, *happened*: its vs is its own time, and stays
the same whatever other rows come or go. A result of a group without a window, of a distinct or of an intersection does
not happen, it *holds*: its vs is only where a value begins. A negation keeps rows of its left side, but the instant
from which they count depends on other rows; their own time is carried beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import singledispatch
from typing import assert_never

from errata.language.expr import BIGINT, SHIFT, TIMESTAMP, Call, Expr, Lit, Ref, expr_sql
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Projection,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.plan import Plan, PlanError, SourceKind, cached_fact


class OwnTime(StrEnum):
    """Whether rows have a time of their own."""

    START = "start"
    """It is where their lifetime begins."""
    KEPT = "kept"
    """They have one, and their lifetime may begin later."""
    NONE = "none"
    """They have none: their vs is only where a value begins."""


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The times of a node's rows."""

    own: OwnTime
    longest: int | None = None
    """The longest lifetime of a row that happened; None: unbounded or unknown."""
    exact: bool = False
    """Whether each row counts for just as long as `longest` (None: for ever)."""
    columns: Mapping[str, int] = field(default_factory=dict)
    """By column, or by the text of an expression over columns: how much later the row's own time is than its value."""
    later_own_time: Expr | None = None
    """Of a join: the later of its sides' own times, which is the own time of the pair."""

    @property
    def happened(self) -> bool:
        """Whether each row's vs is its own time."""
        return self.own is OwnTime.START

    @property
    def for_ever(self) -> bool:
        """Whether every row counts for ever."""
        return self.exact and self.longest is None


NO_OWN_TIME = RowTimes(OwnTime.NONE)


@cached_fact
def row_times(plan: Plan) -> RowTimes:
    """The times of the node's rows, as far as the plan determines them."""
    return _node_times(plan)


@singledispatch
def _node_times(plan: Plan) -> RowTimes:
    raise PlanError(f"the times of {type(plan).__name__} are not known")


@_node_times.register
def _(plan: Sliding) -> RowTimes:
    below = row_times(plan.input)
    shortened = plan.span if below.longest is None else min(plan.span, below.longest)
    return RowTimes(below.own, shortened, below.exact, below.columns)


@_node_times.register
def _(plan: SlidingRows) -> RowTimes:
    # The time until so many rows have come is unknown.
    below = row_times(plan.input)
    return RowTimes(below.own, below.longest, False, below.columns)


@_node_times.register
def _(plan: Filter) -> RowTimes:
    return row_times(plan.input)


@_node_times.register
def _(plan: Projection) -> RowTimes:
    below = row_times(plan.input)
    return RowTimes(below.own, below.longest, below.exact, _projected_times(plan, below))


@_node_times.register(Distinct)
@_node_times.register(Intersect)
def _(_plan: Plan) -> RowTimes:
    return NO_OWN_TIME


@_node_times.register
def _(plan: Negation) -> RowTimes:
    left = row_times(plan.left)
    own = OwnTime.NONE if left.own is OwnTime.NONE else OwnTime.KEPT
    return RowTimes(own, left.longest, False, left.columns)


@_node_times.register
def _(plan: Scan) -> RowTimes:
    source = plan.source
    if source.plan is not None:
        made = row_times(source.plan)
        columns = {plan.column(name): offset for name, offset in made.columns.items()}
        # Rows that began to count later than their own time are read back from the archive without it.
        own = OwnTime.NONE if made.own is OwnTime.KEPT else made.own
        return RowTimes(
            own, made.longest, made.exact, _present_columns(plan, columns) if own is not OwnTime.NONE else {}
        )
    if source.kind is SourceKind.STREAM and source.order is not None:
        return RowTimes(OwnTime.START, None, True, _present_columns(plan, {plan.column(source.order): 0}))
    return NO_OWN_TIME


def _present_columns(plan: Plan, columns: Mapping[str, int]) -> dict[str, int]:
    return {name: offset for name, offset in columns.items() if name in plan.types}


def _projected_times(plan: Projection, below: RowTimes) -> dict[str, int]:
    columns = {name: below.columns[name] for name in plan.carried if name in below.columns}
    for output in plan.outputs:
        known = offset_of(output.expr, below)
        if known is not None:
            columns[output.name] = known
    return columns


def offset_of(expr: Expr, times: RowTimes) -> int | None:
    """How much later than the expression's value the row's own time is, if that is the same for all rows."""
    if (known := times.columns.get(expr_sql(expr))) is not None:
        return known
    if isinstance(expr, Call) and expr.name == SHIFT:
        moved, by = expr.args
        known = offset_of(moved, times)
        if known is not None and isinstance(by, Lit) and isinstance(by.value, int):
            return known - by.value
    return None


def own_time_expr(plan: Plan) -> Expr | None:
    """The row's own time as an expression over the node's columns, if there is one."""
    times = row_times(plan)
    told = [_moved_expr(plan.ref(text), offset) for text, offset in times.columns.items() if text in plan.types]
    return min(told, key=lambda expr: (len(expr_sql(expr)), expr_sql(expr)), default=times.later_own_time)


def _moved_expr(expr: Ref, by: int) -> Expr:
    if by == 0:
        return expr
    if expr.type == TIMESTAMP:
        return Call(SHIFT, (expr, Lit(by, BIGINT)), TIMESTAMP)
    return Call("+", (expr, Lit(by, BIGINT)), BIGINT)


@_node_times.register
def _(plan: Join) -> RowTimes:
    left, right = row_times(plan.left), row_times(plan.right)
    if OwnTime.NONE in (left.own, right.own):
        return NO_OWN_TIME
    own = OwnTime.START if left.happened and right.happened else OwnTime.KEPT
    bounds = [each.longest for each in (left, right) if each.longest is not None]
    sides = (own_time_expr(plan.left), own_time_expr(plan.right))
    later = None
    if own is OwnTime.START and sides[0] is not None and sides[1] is not None:
        later = Call("greatest", (sides[0], sides[1]), sides[0].type)
    columns = {} if later is None else {expr_sql(later): 0}
    return RowTimes(own, min(bounds, default=None), left.for_ever and right.for_ever, columns, later)


@_node_times.register
def _(plan: RelationJoin) -> RowTimes:
    left = row_times(plan.left)
    # With a retroactive relation a row begins to count again whenever the relation changes.
    if plan.retroactive:
        return RowTimes(OwnTime.NONE if left.own is OwnTime.NONE else OwnTime.KEPT, left.longest, False, left.columns)
    return left


@_node_times.register
def _(plan: Union) -> RowTimes:
    times = [row_times(branch) for branch in plan.branches]
    if any(each.own is OwnTime.NONE for each in times):
        return NO_OWN_TIME
    own = OwnTime.START if all(each.happened for each in times) else OwnTime.KEPT
    lengths = {each.longest for each in times}
    longest = None if None in lengths else max(each for each in lengths if each is not None)
    exact = len(lengths) == 1 and all(each.exact for each in times)
    return RowTimes(own, longest, exact, _same_columns(plan, times))


def _same_columns(plan: Union, times: list[RowTimes]) -> dict[str, int]:
    """Visible columns that determine the own time in the same way in every branch."""
    found = {}
    for place, column in enumerate(plan.branches[0].visible):
        offsets = {
            known.columns.get(branch.visible[place].name) for branch, known in zip(plan.branches, times, strict=True)
        }
        if len(offsets) == 1 and (offset := offsets.pop()) is not None:
            found[column.name] = offset
    return found


@_node_times.register
def _(plan: Group) -> RowTimes:
    below = row_times(plan.input)
    match plan.window:
        case TimeWindow(size=size, early=False) if below.for_ever:
            start, end = plan.window_fields
            return RowTimes(OwnTime.START, None, True, {end.name: 0, start.name: size})
        case RowWindow():
            last = {each.name: 0 for each in plan.aggregates if _is_last_time(each, below)}
            return RowTimes(OwnTime.START, None, True, last)
        case TimeWindow() | None:
            return NO_OWN_TIME
    assert_never(plan.window)


def _is_last_time(aggregate: Aggregate, below: RowTimes) -> bool:
    """Whether it is the time of a window's last row, at which the window is published."""
    argument = aggregate.argument
    return aggregate.function in ("max", "last") and argument is not None and offset_of(argument, below) == 0
