"""What a plan tells about the times of its rows: whether they have a time of their own, and how long they count.

A row that came from one event, or from one event of each side of a join, *happened*: its vs is its own time, and is the
same whatever becomes of its neighbours. What a group without a window, a distinct or an intersection yields does not
happen, it *holds*: its vs is only where a value begins. A negation keeps rows of its left side, but from when they
stand depends on others; their own time is carried along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import singledispatch
from typing import assert_never

from errata.language.expr import BIGINT, SHIFT, TIMESTAMP, Call, Expr, Lit, Ref, sql
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Project,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.plan import Plan, PlanError, SourceKind, fact


class Own(StrEnum):
    """Whether rows have a time of their own."""

    START = "start"
    """It is where their lifetime begins."""
    KEPT = "kept"
    """They have one, and their lifetime may begin later."""
    NONE = "none"
    """They say what holds, not what happened."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a node's rows."""

    own: Own
    longest: int | None = None
    """The longest lifetime of a row that happened; None: without bound, or it cannot be told."""
    exact: bool = False
    """Whether each row counts for just as long as `longest` (None: for ever)."""
    columns: Mapping[str, int] = field(default_factory=dict)
    """What a row's own time can be told from: columns, or the text of an expression over them; it is so much later."""
    later: Expr | None = None
    """Of a join: the later one of its sides' own times, which is the own time of the pair."""

    @property
    def happened(self) -> bool:
        """Whether each row's vs is its own time."""
        return self.own is Own.START

    @property
    def for_ever(self) -> bool:
        """Whether rows never cease to count."""
        return self.exact and self.longest is None


HOLDS = Timing(Own.NONE)


@fact
def timing(plan: Plan) -> Timing:
    """What is known of the times of the node's rows."""
    return _timing(plan)


@singledispatch
def _timing(plan: Plan) -> Timing:
    raise PlanError(f"the times of {type(plan).__name__} are not known")


@_timing.register
def _(plan: Sliding) -> Timing:
    below = timing(plan.input)
    shortened = plan.span if below.longest is None else min(plan.span, below.longest)
    return Timing(below.own, shortened, below.exact, below.columns)


@_timing.register
def _(plan: SlidingRows) -> Timing:
    # When so many rows will have come, nobody knows.
    below = timing(plan.input)
    return Timing(below.own, below.longest, False, below.columns)


@_timing.register
def _(plan: Filter) -> Timing:
    return timing(plan.input)


@_timing.register
def _(plan: Project) -> Timing:
    below = timing(plan.input)
    return Timing(below.own, below.longest, below.exact, _projected(plan, below))


@_timing.register(Distinct)
@_timing.register(Intersect)
def _(_plan: Plan) -> Timing:
    return HOLDS


@_timing.register
def _(plan: Negation) -> Timing:
    left = timing(plan.left)
    own = Own.NONE if left.own is Own.NONE else Own.KEPT
    return Timing(own, left.longest, False, left.columns)


@_timing.register
def _(plan: Scan) -> Timing:
    source = plan.source
    if source.plan is not None:
        made = timing(source.plan)
        columns = {plan.column(name): offset for name, offset in made.columns.items()}
        # What stood for a time only is read back as it is in the archive: its own time is not.
        own = Own.NONE if made.own is Own.KEPT else made.own
        return Timing(own, made.longest, made.exact, _there(plan, columns) if own is not Own.NONE else {})
    if source.kind is SourceKind.STREAM and source.order is not None:
        return Timing(Own.START, None, True, _there(plan, {plan.column(source.order): 0}))
    return HOLDS


def _there(plan: Plan, columns: Mapping[str, int]) -> dict[str, int]:
    return {name: offset for name, offset in columns.items() if name in plan.types}


def _projected(plan: Project, below: Timing) -> dict[str, int]:
    columns = {name: below.columns[name] for name in plan.carried if name in below.columns}
    for output in plan.outputs:
        known = offset_of(output.expr, below)
        if known is not None:
            columns[output.name] = known
    return columns


def offset_of(expr: Expr, times: Timing) -> int | None:
    """How much later than the expression's value the row's own time is, if that is the same for all rows."""
    if (known := times.columns.get(sql(expr))) is not None:
        return known
    if isinstance(expr, Call) and expr.name == SHIFT:
        moved, by = expr.args
        known = offset_of(moved, times)
        if known is not None and isinstance(by, Lit) and isinstance(by.value, int):
            return known - by.value
    return None


def own_time(plan: Plan) -> Expr | None:
    """The row's own time as an expression over the node's columns, if there is one."""
    times = timing(plan)
    told = [_moved(plan.ref(text), offset) for text, offset in times.columns.items() if text in plan.types]
    return min(told, key=lambda expr: (len(sql(expr)), sql(expr)), default=times.later)


def _moved(expr: Ref, by: int) -> Expr:
    if by == 0:
        return expr
    if expr.type == TIMESTAMP:
        return Call(SHIFT, (expr, Lit(by, BIGINT)), TIMESTAMP)
    return Call("+", (expr, Lit(by, BIGINT)), BIGINT)


@_timing.register
def _(plan: Join) -> Timing:
    left, right = timing(plan.left), timing(plan.right)
    if Own.NONE in (left.own, right.own):
        return HOLDS
    own = Own.START if left.happened and right.happened else Own.KEPT
    bounds = [each.longest for each in (left, right) if each.longest is not None]
    sides = (own_time(plan.left), own_time(plan.right))
    later = None
    if own is Own.START and sides[0] is not None and sides[1] is not None:
        later = Call("greatest", (sides[0], sides[1]), sides[0].type)
    columns = {} if later is None else {sql(later): 0}
    return Timing(own, min(bounds, default=None), left.for_ever and right.for_ever, columns, later)


@_timing.register
def _(plan: RelationJoin) -> Timing:
    left = timing(plan.left)
    # With a retroactive relation a row begins to count again whenever the relation changes.
    if plan.retroactive:
        return Timing(Own.NONE if left.own is Own.NONE else Own.KEPT, left.longest, False, left.columns)
    return left


@_timing.register
def _(plan: Union) -> Timing:
    times = [timing(branch) for branch in plan.branches]
    if any(each.own is Own.NONE for each in times):
        return HOLDS
    own = Own.START if all(each.happened for each in times) else Own.KEPT
    lengths = {each.longest for each in times}
    longest = None if None in lengths else max(each for each in lengths if each is not None)
    exact = len(lengths) == 1 and all(each.exact for each in times)
    return Timing(own, longest, exact, _same_columns(plan, times))


def _same_columns(plan: Union, times: list[Timing]) -> dict[str, int]:
    """Visible columns that tell the own time in every branch alike."""
    found = {}
    for place, column in enumerate(plan.branches[0].visible):
        offsets = {
            known.columns.get(branch.visible[place].name) for branch, known in zip(plan.branches, times, strict=True)
        }
        if len(offsets) == 1 and (offset := offsets.pop()) is not None:
            found[column.name] = offset
    return found


@_timing.register
def _(plan: Group) -> Timing:
    below = timing(plan.input)
    match plan.window:
        case TimeWindow(size=size, early=False) if below.for_ever:
            start, end = plan.window_fields
            return Timing(Own.START, None, True, {end.name: 0, start.name: size})
        case RowWindow():
            last = {each.name: 0 for each in plan.aggregates if _is_last_time(each, below)}
            return Timing(Own.START, None, True, last)
        case TimeWindow() | None:
            return HOLDS
    assert_never(plan.window)


def _is_last_time(aggregate: Aggregate, below: Timing) -> bool:
    """Whether it is the time of a window's last row, at which the window is published."""
    argument = aggregate.argument
    return aggregate.function in ("max", "last") and argument is not None and offset_of(argument, below) == 0
