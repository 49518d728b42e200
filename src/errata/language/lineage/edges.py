"""How far in time an operator's rows are from those of its inputs, edge by edge."""

from __future__ import annotations

from errata.language.lineage.reach import NEVER, Axis, Span, alive, apart, axis, common, plus
from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Project,
    RelationJoin,
    RowWindow,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.plan import Plan, PlanError, fact
from errata.model.interval import HIGHEST, LOWEST, Interval

SAME_TIME = Span(0, 0)
FROM_THEN_ON = Span(0, HIGHEST)


@fact
def edges(plan: Plan) -> tuple[Span, ...]:
    """For each input of a node how much later a row of the node is than a row that it is made of, or that it would
    change with; each at its place in time, be that where it begins or an instant at which it counts."""
    return tuple(_edge(plan, place) for place in range(len(plan.inputs)))


def _edge(plan: Plan, place: int) -> Span:
    match plan:
        case SlidingRows() | Group(window=RowWindow()):
            # How long it takes until so many rows have come, nobody knows.
            return FROM_THEN_ON
        case Group(window=TimeWindow() as window):
            return _window(plan, window)
        case RelationJoin(retroactive=False) if place == 1:
            return alive(plan.left) if axis(plan) is Axis.INSTANT else SAME_TIME
        case Join() if axis(plan) is Axis.START:
            between = apart(plan)
            return NEVER if between.empty else (between if place == 0 else -between).not_before
        case Sliding() | Filter() | Project() | Join() | RelationJoin() | Union():
            pass
        case Distinct() | Intersect() | Negation() | Group():
            pass
        case _:
            raise PlanError(f"how far the rows of {type(plan).__name__} are from those of its inputs is not known")
    below = plan.inputs[place]
    return alive(below) if axis(below) is not axis(plan) else SAME_TIME


def _window(plan: Group, window: TimeWindow) -> Span:
    if axis(plan) is Axis.START:
        return Span(1, window.size)
    if axis(plan.input) is Axis.INSTANT:
        return SAME_TIME
    return alive(plan.input) if window.early else alive(plan.input) & Span(1, HIGHEST)


def upwards(plan: Plan, place: int, interval: Interval) -> Interval:
    """Where rows of the node lie that rows of one of its inputs in the interval can touch."""
    found = edges(plan)[place].after(interval)
    if edges(plan)[place].empty:
        return Interval(0, 0)
    if (window := _closing(plan)) is None:
        return found
    ends = ends_of_rows(window, interval)
    # The result is there from the window's end on, and if rows never expire, that is its place.
    return ends if axis(plan) is Axis.START or ends.empty else common(found, Interval(ends.start))


def downwards(plan: Plan, place: int, interval: Interval) -> Interval:
    """Where the rows of one of its inputs lie that make the node's rows in the interval."""
    found = edges(plan)[place].before(interval)
    if edges(plan)[place].empty:
        return Interval(0, 0)
    if (window := _closing(plan)) is None:
        return found
    if axis(plan) is Axis.START:
        return rows_of_ends(window, interval)
    return common(found, rows_of_ends(window, Interval(LOWEST, interval.end)))


def _closing(plan: Plan) -> TimeWindow | None:
    """The windows of a group, if rows have their place in time by where they begin and are seen when windows close."""
    window = plan.window if isinstance(plan, Group) else None
    if not isinstance(window, TimeWindow) or window.early or axis(plan.inputs[0]) is not Axis.START:
        return None
    return window


def ends_of_rows(window: TimeWindow, starts: Interval) -> Interval:
    """From the first to the last end of the windows that rows of these times are in."""
    first = _end_from(window, plus(starts.start, 1))
    last = _end_until(window, plus(plus(starts.end, -1), window.size))
    return Interval(first, plus(last, 1))


def rows_of_ends(window: TimeWindow, ends: Interval) -> Interval:
    """From the first to the last time of the rows in windows that end then."""
    first, last = _end_from(window, ends.start), _end_until(window, plus(ends.end, -1))
    return Interval(plus(first, -window.size), last) if first <= last else Interval(0, 0)


def _end_from(window: TimeWindow, moment: int) -> int:
    """The first end of a window at the moment or after it. Ends are n * slide + size."""
    return moment if moment in (LOWEST, HIGHEST) else moment + (window.size - moment) % window.slide


def _end_until(window: TimeWindow, moment: int) -> int:
    """The last end of a window at the moment or before it."""
    return moment if moment in (LOWEST, HIGHEST) else moment - (moment - window.size) % window.slide
