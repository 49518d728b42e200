"""Plans that can be evaluated from kept state instead of all rows; decided from the plan alone.

There are two kinds: groups whose partial aggregates are kept (`find_partial_group`), and operators that go on from the
last rows they saw: row windows, last rows and new values (`find_row_windows`, `find_last_rows`, `find_new_values`). The
last section says which columns lose exactness by adding up in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, assert_never

from errata.language.expr import expr_sql, refs
from errata.language.lineage import backward
from errata.language.nodes import (
    AGGREGATES,
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
from errata.language.patterns import update_pattern
from errata.language.plan import Plan, PlanError, Unary, cached_fact, walk_plan
from errata.language.times import RowTimes, row_times
from errata.model.columns import FLOATING_KINDS, ColumnType, TypeKind
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import UpdatePattern
from errata.model.time import HIGHEST, LOWEST, Interval

INT_KINDS = (TypeKind.INT,)
"""Kinds whose squares are added up without loss. The square of a bigint has up to 38 digits, all that a decimal has, so
that a sum of two may not fit; the square of an int has 19."""
_ORDERED_PATTERNS = (UpdatePattern.MONOTONIC, UpdatePattern.WEAKEST)
_DISTINCT_INSENSITIVE = ("min", "max", "first", "last")
"""Aggregates for which it does not matter how often a value occurs."""
_RETRACTABLE = ("count", "sum", "avg", "stddev", "min", "max", "last")
"""Aggregates that can be kept where rows expire in the order in which they came."""
_MAX_WINDOWS = 16
"""Windows per row above which rows are read again rather than added to each window's state."""
MAX_AVERAGE_DIGITS = 23
"""Digits of a decimal above which its average cannot be computed from a kept sum: the division would round."""


@dataclass(frozen=True)
class PartialGroup:
    """A group over rows that happened, and the filters and projections upon it."""

    node: Group
    above: tuple[Filter | Projection, ...]
    """The lowest first."""
    span: int | None
    """How long each row counts; None: for ever."""

    @property
    def covering(self) -> bool:
        """Whether later results replace earlier ones; otherwise results are final windows, which are only added."""
        return not isinstance(self.node.window, TimeWindow) or self.node.window.early

    @property
    def closing_column(self) -> tuple[str, int] | None:
        """For early windows: the result column with the window's beginning, and the window's length. The result is
        final when the window has closed."""
        window = self.node.window
        if not isinstance(window, TimeWindow) or not window.early:
            return None
        return self._named_above(self.node.window_fields[0].name), window.size

    @property
    def group_names(self) -> tuple[str, ...]:
        """The names of the group's columns in the results; they carry its key."""
        return tuple(self._named_above(expr_sql(expr)) for expr in self.node.by)

    def _named_above(self, name: str) -> str:
        for each in self.above:
            if isinstance(each, Projection):
                name = each.kept.get(name, name)
        return name

    @property
    def accumulates_rounding(self) -> bool:
        """Whether removing rows may leave rounding errors, so that sums should be rebuilt from time to time."""
        return self.span is not None and any(_adds_floats(each) for each in self.node.aggregates)


def find_partial_group(plan: Plan) -> PartialGroup | None:
    """The plan as a group whose partial aggregates can be kept; None if it is not one."""
    above: list[Filter | Projection] = []
    while isinstance(plan, Filter | Projection):
        above.append(plan)
        plan = plan.input
    if not isinstance(plan, Group):
        return None
    times = row_times(plan.input)
    orderly = times.happened and times.exact and update_pattern(plan.input) in _ORDERED_PATTERNS
    if not orderly or not _can_be_kept(plan, times):
        return None
    return PartialGroup(plan, tuple(reversed(above)), times.longest)


def adjustment_obstacle(found: PartialGroup) -> str | None:
    """Why results of the group cannot be corrected by adding and removing corrected rows; None if they can."""
    if found.covering:
        return "only windows that are published when they close keep what corrections start from"
    if any(not isinstance(each, Filter | Projection | Union | Scan) for each in walk_plan(found.node.input)):
        return "what a row adds depends on other rows or on a relation, so it must be worked out from them again"
    return None


def _can_be_kept(group: Group, times: RowTimes) -> bool:
    match group.window:
        case RowWindow():
            return False
        case TimeWindow(size=size, slide=slide, early=early):
            if not times.for_ever or (not early and size > _MAX_WINDOWS * slide):
                return False
        case None:
            pass
        case _:
            assert_never(group.window)
    return all(_has_partial_state(each, for_ever=times.for_ever) for each in group.aggregates)


def _has_partial_state(aggregate: Aggregate, *, for_ever: bool) -> bool:
    function = aggregate.function
    if aggregate.distinct and function not in _DISTINCT_INSENSITIVE:
        return False
    kind = _argument_type(aggregate)
    if function == "avg" and kind is not None and kind.kind is TypeKind.DECIMAL and kind.precision > MAX_AVERAGE_DIGITS:
        return False
    return function in (AGGREGATES if for_ever else _RETRACTABLE)


def _adds_floats(aggregate: Aggregate) -> bool:
    kind = _argument_type(aggregate)
    if kind is None:
        return False
    return (aggregate.function in ("sum", "avg") and kind.kind in FLOATING_KINDS) or (
        aggregate.function == "stddev" and kind.kind not in INT_KINDS
    )


def _argument_type(aggregate: Aggregate) -> ColumnType | None:
    return None if aggregate.argument is None else aggregate.argument.type


# Operators that go on from the last rows they saw: windows of rows, the last rows, values not seen before.
#
# Over rows that happened and count for ever they need little of the earlier rows: those in windows that are not full
# yet, the last ones, or the values themselves.

TailNode = TypeVar("TailNode", bound=Unary)
_LONG_INTERVAL = Interval(0, 1 << 50)
"""Microseconds, about 36 years: longer than any window, so that some window closes in it."""


@dataclass(frozen=True)
class TailOperator(Generic[TailNode]):
    """An operator that goes on from the last rows it saw, and the operators above it."""

    node: TailNode
    above: tuple[Plan, ...]
    """The operators above it, the lowest first; each reads only the one below it."""

    @property
    def input(self) -> Plan:
        """The operator's input: rows that happened and count for ever."""
        return self.node.input

    @property
    def plan(self) -> Plan:
        """The whole plan."""
        return self.above[-1] if self.above else self.node


def find_row_windows(plan: Plan) -> TailOperator[Group] | None:
    """Windows of rows, if no operator above looks at more than one window at a time."""
    node, above = _descend(plan, _is_row_wise)
    suits = isinstance(node, Group) and isinstance(node.window, RowWindow) and _rows_stay(node.input)
    return TailOperator(node, above) if isinstance(node, Group) and suits else None


def find_last_rows(plan: Plan) -> TailOperator[SlidingRows] | None:
    """The last rows of a window over rows, if its input can be computed from rows not much older."""
    node, above = _descend(plan, _is_of_the_instant)
    if not isinstance(node, SlidingRows) or any(isinstance(each, SlidingRows) for each in above):
        return None
    return TailOperator(node, above) if _rows_stay(node.input) and is_local(node.input) else None


def find_new_values(plan: Plan) -> TailOperator[Distinct] | None:
    """Distinct values that stay for ever, if no operator above looks at more than one at a time."""
    node, above = _descend(plan, _is_row_wise)
    return TailOperator(node, above) if isinstance(node, Distinct) and _rows_stay(node.input) else None


@cached_fact
def is_local(plan: Plan) -> bool:
    """Whether rows that happen in an interval are made of a bounded interval of each input."""
    if not row_times(plan).happened:
        return False
    reads = backward(plan, Extent(ExtentAxis.START, _LONG_INTERVAL)).values()
    return all(each.interval.start > LOWEST and each.interval.end < HIGHEST for each in reads)


def _rows_stay(plan: Plan) -> bool:
    """Whether rows begin at their own time and count for ever."""
    return row_times(plan).happened and row_times(plan).for_ever


def _descend(plan: Plan, through: Callable[[Plan], bool]) -> tuple[Plan, tuple[Plan, ...]]:
    """The first node from the top for which `through` is false, and the nodes above it, the lowest first."""
    above: list[Plan] = []
    while isinstance(plan, Unary) and through(plan):
        above.insert(0, plan)
        plan = plan.input
    return plan, tuple(above)


def _is_row_wise(plan: Plan) -> bool:
    return isinstance(plan, (Filter, Projection))


def _is_of_the_instant(plan: Plan) -> bool:
    """Whether the operator's answer at an instant depends only on rows that count then."""
    match plan:
        case Group():
            return not isinstance(plan.window, RowWindow)
        case Filter() | Projection() | Sliding() | Distinct():
            return True
        case SlidingRows():
            return False
    raise PlanError(f"whether {type(plan).__name__} answers an instant from the rows that count then is not known")


# Columns that may differ in their last bits when the same rows are added up in another order.

_SUMMING_AGGREGATES = ("sum", "avg", "stddev")


@cached_fact
def inexact_columns(plan: Plan) -> frozenset[str]:
    """The columns that are computed from sums of floating point numbers."""
    match plan:
        case Scan():
            inner = plan.source.plan
            below = frozenset[str]() if inner is None else inexact_columns(inner)
            return frozenset(each.name for each in plan.fields if plan.of_source(each.name) in below)
        case Projection():
            below = inexact_columns(plan.input)
            made = {each.name for each in plan.outputs if refs(each.expr) & below}
            return frozenset(made | (below & set(plan.carried)))
        case Group():
            below = inexact_columns(plan.input)
            added = [
                each
                for each in plan.aggregates
                if each.function in _SUMMING_AGGREGATES and each.type.kind in FLOATING_KINDS
            ]
            of_rough = [each for each in plan.aggregates if each.argument is not None and refs(each.argument) & below]
            return frozenset(each.name for each in (*added, *of_rough))
        case Union():
            first = plan.branches[0].visible
            places = [
                place
                for place in range(len(first))
                if any(branch.visible[place].name in inexact_columns(branch) for branch in plan.branches)
            ]
            return frozenset(plan.visible[place].name for place in places)
        case Sliding() | SlidingRows() | Filter() | Join() | RelationJoin() | Distinct() | Intersect() | Negation():
            return _inexact_inputs(plan)
    raise PlanError(f"which columns of {type(plan).__name__} come of sums is not known")


def _inexact_inputs(plan: Plan) -> frozenset[str]:
    """The inexact columns of the inputs that are columns of the node."""
    names = {each.name for each in plan.fields}
    return frozenset(name for child in plan.inputs for name in inexact_columns(child) if name in names)
