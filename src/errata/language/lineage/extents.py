"""Extents of a node's rows, and how far in time rows are from the rows that they were made of.

An extent lies in time in one of two ways. Where rows happened and their ends follow from their beginnings, it is given
by the beginnings of whole rows (`ExtentAxis.START`). Elsewhere rows may begin, end or differ at some instants because
of other rows, and it is given by these instants (`ExtentAxis.INSTANT`).

Offsets in time are closed ranges of microseconds (`OffsetRange`). They are computed from edge to edge of the plan, so
that following an extent costs time linear in the plan's nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from errata.language.expr import EQUAL, SAME, Call, Expr, conjuncts, expr_sql
from errata.language.lineage.constants import integer_constant, merged_values
from errata.language.nodes import (
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
from errata.language.plan import Plan, PlanError, cached_fact
from errata.language.times import row_times
from errata.model.extent import Extent, ExtentAxis
from errata.model.time import HIGHEST, LOWEST, Interval


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """A range of offsets by which one time is later than another, from low to high, both included. LOWEST and HIGHEST
    mean unbounded."""

    low: int = LOWEST
    high: int = HIGHEST

    def __add__(self, other: OffsetRange) -> OffsetRange:
        return OffsetRange(bounded_sum(self.low, other.low), bounded_sum(self.high, other.high))

    def __neg__(self) -> OffsetRange:
        return OffsetRange(_negated_bound(self.high), _negated_bound(self.low))

    def __and__(self, other: OffsetRange) -> OffsetRange:
        return OffsetRange(max(self.low, other.low), min(self.high, other.high))

    def __or__(self, other: OffsetRange) -> OffsetRange:
        return OffsetRange(min(self.low, other.low), max(self.high, other.high))

    @property
    def empty(self) -> bool:
        return self.low > self.high

    @property
    def not_before(self) -> OffsetRange:
        """The offsets of the later one of the two times."""
        return OffsetRange(max(0, self.low), max(0, self.high))

    def after(self, interval: Interval) -> Interval:
        """The times that are later by such an offset than some time in the interval."""
        return Interval(bounded_sum(interval.start, self.low), bounded_sum(interval.end, self.high))

    def before(self, interval: Interval) -> Interval:
        """The times that are earlier by such an offset than some time in the interval."""
        return (-self).after(interval)


NO_OFFSET = OffsetRange(HIGHEST, LOWEST)


def bounded_sum(moment: int, by: int) -> int:
    """A sum in which LOWEST and HIGHEST mean unbounded."""
    for each in (moment, by):
        if each in (LOWEST, HIGHEST):
            return each
    return max(LOWEST, min(HIGHEST, moment + by))


def _negated_bound(moment: int) -> int:
    return {LOWEST: HIGHEST, HIGHEST: LOWEST}.get(moment, -moment)


@cached_fact
def extent_axis(plan: Plan) -> ExtentAxis:
    """How extents of the node's rows lie in time."""
    match plan:
        case Scan() | Group():
            return ExtentAxis.START if row_times(plan).happened else ExtentAxis.INSTANT
        case Sliding() | Filter() | Projection():
            return extent_axis(plan.input)
        case RelationJoin(retroactive=False):
            return extent_axis(plan.left)
        case Join() | Union():
            starts = all(extent_axis(each) is ExtentAxis.START for each in plan.inputs)
            return ExtentAxis.START if starts else ExtentAxis.INSTANT
        case RelationJoin() | SlidingRows() | Distinct() | Intersect() | Negation():
            return ExtentAxis.INSTANT
    raise PlanError(f"how rows of {type(plan).__name__} lie in time is not known")


def is_row_by_row(plan: Plan) -> bool:
    """Whether each row of the node is made of one row of each input, or of one row of some inputs."""
    match plan:
        case Sliding() | Filter() | Projection() | Join() | RelationJoin() | Union():
            return True
        case Scan() | SlidingRows() | Distinct() | Intersect() | Negation() | Group():
            return False
    raise PlanError(f"of which rows a row of {type(plan).__name__} is made is not known")


def lifetime_range(plan: Plan) -> OffsetRange:
    """The offsets from a row's own time to the instants at which it can count."""
    longest = row_times(plan).longest
    return OffsetRange(0, HIGHEST if longest is None else longest - 1)


def instants_of(plan: Plan, extent: Extent) -> Interval:
    """The instants at which rows of an extent count."""
    if extent.axis is ExtentAxis.INSTANT:
        return extent.interval
    return lifetime_range(plan).after(extent.interval) & extent.during


def normalized_extent(plan: Plan, extent: Extent | None) -> Extent | None:
    """An extent as the node's rows lie in time, as narrow as its constants allow; None if it is empty.

    Of a relation only constants of its key are kept: when a version goes, another one of the key takes its place, and
    that one may differ in everything else.
    """
    if extent is None or extent.empty:
        return None
    interval, values = extent.interval, extent.values
    if isinstance(plan, Scan) and plan.source.kind.is_relation:
        values = {name: value for name, value in values.items() if plan.of_source(name) in plan.source.key}
    during = instants_of(plan, extent)
    if during.empty:
        return None
    if extent_axis(plan) is ExtentAxis.INSTANT:
        return Extent(ExtentAxis.INSTANT, during, values)
    within = lifetime_range(plan).before(during)
    interval = within if extent.axis is ExtentAxis.INSTANT else interval & within
    for name, lag in time_lags(plan).items():
        value = values.get(name)
        if isinstance(value, int):
            interval = interval & lag.after(Interval(value, value + 1))
    return None if interval.empty else Extent(ExtentAxis.START, interval, values, during)


def intersect_extents(one: Extent | None, other: Extent | None) -> Extent | None:
    """The rows that lie in both extents of a node."""
    if one is None or other is None:
        return None
    values = merged_values(one.values, other.values)
    met = replace(one, interval=one.interval & other.interval, during=one.during & other.during)
    return None if values is None or met.empty else replace(met, values=values)


@cached_fact
def time_lags(plan: Plan) -> Mapping[str, OffsetRange]:
    """By column, or by the text of an expression: the offsets from its value to the row's own time, where rows
    happened."""
    if extent_axis(plan) is not ExtentAxis.START:
        return {}
    exactly = {text: OffsetRange(offset, offset) for text, offset in row_times(plan).columns.items()}
    return {**dict(_node_lags(plan)), **exactly}


def _node_lags(plan: Plan) -> Iterator[tuple[str, OffsetRange]]:
    match plan:
        case Sliding() | Filter():
            yield from time_lags(plan.input).items()
        case RelationJoin():
            yield from time_lags(plan.left).items()
        case Projection():
            below = time_lags(plan.input)
            yield from ((name, below[name]) for name in plan.carried if name in below)
            for output in plan.outputs:
                if (lag := expression_lag(output.expr, below)) is not None:
                    yield output.name, lag
        case Join():
            between = pair_offset(plan)
            for side, later in ((plan.left, between), (plan.right, -between)):
                yield from ((name, lag + later.not_before) for name, lag in time_lags(side).items())
        case Union():
            yield from _union_lags(plan)
        case Scan() | Group():
            # Their columns determine it exactly (`row_times`), or not at all.
            return
        case _:
            raise PlanError(f"what columns of {type(plan).__name__} tell of its rows' times is not known")


def _union_lags(plan: Union) -> Iterator[tuple[str, OffsetRange]]:
    for place, column in enumerate(plan.branches[0].visible):
        found = [time_lags(branch).get(branch.visible[place].name) for branch in plan.branches]
        whole = found[0]
        for lag in found[1:]:
            whole = None if whole is None or lag is None else whole | lag
        if whole is not None:
            yield column.name, whole


def expression_lag(expr: Expr, below: Mapping[str, OffsetRange]) -> OffsetRange | None:
    """The offsets from the expression's value to the row's own time; None if they are unknown."""
    if (lag := below.get(expr_sql(expr))) is not None:
        return lag
    match expr:
        case Call(name="shift" | "+" | "-" as name, args=(moved, by)):
            lag, number = expression_lag(moved, below), integer_constant(by)
            if lag is not None and number is not None:
                return lag + OffsetRange(*[number if name == "-" else -number] * 2)
    return None


def pair_offset(plan: Join) -> OffsetRange:
    """The offsets from a left row's own time to that of a right row that can be its partner: both must count at one
    time, and the condition may compare their times."""
    span = OffsetRange(_negated_bound(lifetime_range(plan.right).high), lifetime_range(plan.left).high)
    for part in conjuncts(plan.condition):
        if isinstance(part, Call) and part.name in _BOUNDS:
            span &= _condition_bound(plan, part)
    return span


_BOUNDS: dict[str, tuple[int | None, int | None]] = {
    EQUAL: (0, 0),
    SAME: (0, 0),
    "<=": (0, None),
    "<": (1, None),
    ">=": (None, 0),
    ">": (None, -1),
}
"""From `left OP right` follows that right - left is at least, and at most, so many microseconds."""


def _condition_bound(plan: Join, part: Call) -> OffsetRange:
    one, other = part.args
    for sign, (left, right) in ((1, (one, other)), (-1, (other, one))):
        mine, theirs = expression_lag(left, time_lags(plan.left)), expression_lag(right, time_lags(plan.right))
        if mine is None or theirs is None:
            continue
        least, most = _BOUNDS[part.name]
        greater = OffsetRange(LOWEST if least is None else least, HIGHEST if most is None else most)
        # A side's own time is its value plus its lag.
        return (greater if sign == 1 else -greater) + theirs + -mine
    return OffsetRange()


# Offsets between the rows of an operator and those of its inputs, edge by edge.

SAME_TIME = OffsetRange(0, 0)
ANY_LATER_TIME = OffsetRange(0, HIGHEST)


@cached_fact
def input_offsets(plan: Plan) -> tuple[OffsetRange, ...]:
    """For each input of a node: the offsets from a row of it to the rows of the node that are made of it, or change
    with it. Both are taken at their place in time: a beginning, or an instant at which the row counts."""
    return tuple(_input_offset(plan, place) for place in range(len(plan.inputs)))


def _input_offset(plan: Plan, place: int) -> OffsetRange:
    match plan:
        case SlidingRows() | Group(window=RowWindow()):
            # The time until enough rows have come is unbounded.
            return ANY_LATER_TIME
        case Group(window=TimeWindow() as window):
            return _window_offset(plan, window)
        case RelationJoin(retroactive=False) if place == 1:
            return lifetime_range(plan.left) if extent_axis(plan) is ExtentAxis.INSTANT else SAME_TIME
        case Join() if extent_axis(plan) is ExtentAxis.START:
            between = pair_offset(plan)
            return NO_OFFSET if between.empty else (between if place == 0 else -between).not_before
        case Sliding() | Filter() | Projection() | Join() | RelationJoin() | Union():
            pass
        case Distinct() | Intersect() | Negation() | Group():
            pass
        case _:
            raise PlanError(f"how far the rows of {type(plan).__name__} are from those of its inputs is not known")
    below = plan.inputs[place]
    return lifetime_range(below) if extent_axis(below) is not extent_axis(plan) else SAME_TIME


def _window_offset(plan: Group, window: TimeWindow) -> OffsetRange:
    if extent_axis(plan) is ExtentAxis.START:
        return OffsetRange(1, window.size)
    if extent_axis(plan.input) is ExtentAxis.INSTANT:
        return SAME_TIME
    return lifetime_range(plan.input) if window.early else lifetime_range(plan.input) & OffsetRange(1, HIGHEST)


def output_interval(plan: Plan, place: int, interval: Interval) -> Interval:
    """Where the rows of the node lie that can be touched by rows of one of its inputs in the interval."""
    found = input_offsets(plan)[place].after(interval)
    if input_offsets(plan)[place].empty:
        return Interval(0, 0)
    if (window := _closing_window(plan)) is None:
        return found
    ends = window_ends_of_rows(window, interval)
    # The result is there from the window's end on, and if rows never expire, that is its place.
    return ends if extent_axis(plan) is ExtentAxis.START or ends.empty else found & Interval(ends.start)


def input_interval(plan: Plan, place: int, interval: Interval) -> Interval:
    """Where the rows of one of its inputs lie that make the node's rows in the interval."""
    found = input_offsets(plan)[place].before(interval)
    if input_offsets(plan)[place].empty:
        return Interval(0, 0)
    if (window := _closing_window(plan)) is None:
        return found
    if extent_axis(plan) is ExtentAxis.START:
        return rows_of_window_ends(window, interval)
    return found & rows_of_window_ends(window, Interval(LOWEST, interval.end))


def _closing_window(plan: Plan) -> TimeWindow | None:
    """The windows of a group, if its input's rows are placed by their beginnings and results are published when windows
    close; otherwise None."""
    window = plan.window if isinstance(plan, Group) else None
    if not isinstance(window, TimeWindow) or window.early or extent_axis(plan.inputs[0]) is not ExtentAxis.START:
        return None
    return window


def window_ends_of_rows(window: TimeWindow, starts: Interval) -> Interval:
    """From the first to the last end of the windows that rows of these times are in."""
    first = _first_end_from(window, bounded_sum(starts.start, 1))
    last = _last_end_until(window, bounded_sum(bounded_sum(starts.end, -1), window.size))
    return Interval(first, bounded_sum(last, 1))


def rows_of_window_ends(window: TimeWindow, ends: Interval) -> Interval:
    """From the first to the last time of the rows in windows that end then."""
    first, last = _first_end_from(window, ends.start), _last_end_until(window, bounded_sum(ends.end, -1))
    return Interval(bounded_sum(first, -window.size), last) if first <= last else Interval(0, 0)


def _first_end_from(window: TimeWindow, moment: int) -> int:
    """The first end of a window at the moment or after it. Ends are n * slide + size."""
    return moment if moment in (LOWEST, HIGHEST) else moment + (window.size - moment) % window.slide


def _last_end_until(window: TimeWindow, moment: int) -> int:
    """The last end of a window at the moment or before it."""
    return moment if moment in (LOWEST, HIGHEST) else moment - (moment - window.size) % window.slide
