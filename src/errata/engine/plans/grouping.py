"""Groups: what a group's rows are brought to, its windows, and how the aggregates are worked out over lifetimes."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import selected
from errata.engine.plans import sequenced
from errata.engine.plans.rows import OPEN, VE, VS, Rows, chosen, lineage_of, place, value
from errata.engine.plans.sequenced import Grouping
from errata.engine.plans.spelling import brought_back, extreme, summand
from errata.engine.plans.windows import WINDOW, in_row_windows, in_time_windows
from errata.language.nodes import Aggregate, Group, RowWindow, TimeWindow
from errata.language.plan import PlanError

_ORDER, _OWN, _SIZE = "_o", "_own", "_size"


def grouped(plan: Group, below: Rows, numbers: str | None = None) -> Rows:
    """One row for each group and window, each time that it changes. For windows of rows, `numbers` is the column with
    what is known of the rows' numbers already; see `windows.numbered`."""
    by = [f"_g{number}" for number in range(len(plan.by))]
    group = [*below.way.scope, *by, *([] if plan.window is None else [WINDOW])]
    frame = _windowed(plan, below, _with_groups(plan, below, by), [*below.way.scope, *by], numbers)
    arguments = {f"_a{number}": _argument(below, each) for number, each in enumerate(plan.aggregates)}
    ordered = [_ORDER] if _needs_order(plan) else []
    times = [VS, VE] if below.way.at is None else ([_OWN] if isinstance(plan.window, RowWindow) else [])
    read = chosen(frame, [*group, *times, *ordered, *below.lineage], **arguments)
    results = {f"_r{number}": _result(below, each, f"_a{number}") for number, each in enumerate(plan.aggregates)}
    grouping = Grouping(
        read,
        tuple(group),
        (*arguments, *ordered, *below.lineage),
        {**results, **lineage_of(below.lineage)},
        frozenset(f"_a{number}" for number, each in enumerate(plan.aggregates) if _counts_once(each)),
    )
    return finished(plan, below, by, _aggregated(plan, below, grouping))


def _with_groups(plan: Group, below: Rows, by: Sequence[str]) -> DataFrame:
    columns = {name: below.key(expr) for name, expr in zip(by, plan.by, strict=True)}
    if below.own is not None:
        columns[_OWN] = below.own
    if _needs_order(plan):
        if below.own is None:
            raise PlanError("rows without a time of their own have no first and no last", where="Group")
        columns[_ORDER] = value(below.order)
    return chosen(below.frame, ["*"], **columns)


def _windowed(plan: Group, below: Rows, frame: DataFrame, group: Sequence[str], numbers: str | None) -> DataFrame:
    window = plan.window
    if window is None:
        return frame
    if not below.timing.happened:
        raise PlanError("a window needs rows that happened", where="Group")
    if isinstance(window, RowWindow):
        if not below.timing.for_ever:
            raise PlanError("windows of rows need rows that count for ever", where="Group")
        return in_row_windows(frame, window, group, below.order, numbers)
    return in_time_windows(frame, window, _OWN, below.way.at)


def _needs_order(plan: Group) -> bool:
    return any(each.function in ("first", "last") for each in plan.aggregates)


def _counts_once(aggregate: Aggregate) -> bool:
    """Whether equal values count once; of others it makes no difference."""
    return aggregate.distinct and aggregate.function not in ("min", "max", "first", "last")


def _argument(below: Rows, aggregate: Aggregate) -> str:
    if aggregate.argument is None:
        return "1"
    if _counts_once(aggregate):
        return summand(below.key(aggregate.argument), aggregate.function, aggregate.argument.type, near=below.near)
    text = below.sql(aggregate.argument)
    match aggregate.function:
        case "first" | "last":
            # The first row's value is the first even if it is NULL, and aggregates overlook NULL: so it comes wrapped.
            return f"named_struct('v', {text})"
        case "sum" | "avg":
            return summand(text, aggregate.function, aggregate.argument.type, near=below.near)
    return text


def _result(below: Rows, aggregate: Aggregate, argument: str) -> str:
    match aggregate.function:
        case "min" | "max" if aggregate.argument is not None:
            return extreme(aggregate.function, argument, str(aggregate.argument.type), near=below.near)
        case "first":
            return f"min_by({argument}, {_ORDER})"
        case "last":
            return f"max_by({argument}, {_ORDER})"
        case "stddev":
            return f"stddev_samp({argument})"
    return f"{aggregate.function}({argument})"


def _aggregated(plan: Group, below: Rows, grouping: Grouping) -> DataFrame:
    """The aggregates of each group, with lifetimes if the whole history is asked for."""
    match plan.window:
        case RowWindow(size=size):
            last = _OWN if below.way.at is not None else VS
            whole = sequenced.at_once(grouping, {_SIZE: "count(1)", VS: f"max({last})"}).filter(f"{_SIZE} = {size}")
            return whole if below.way.at is not None else chosen(whole, ["*"], **{VE: OPEN})
        case TimeWindow(size=size, early=False) if below.timing.for_ever:
            whole = sequenced.at_once(grouping, {})
            return chosen(whole, ["*"], **{VS: f"{WINDOW} + {size}L", VE: OPEN})
    if below.way.at is not None:
        return sequenced.at_once(grouping, {_SIZE: "count(1)"}).filter(f"{_SIZE} > 0")
    if below.timing.for_ever:
        return sequenced.growing(grouping)
    kept = plan.window is None or (isinstance(plan.window, TimeWindow) and plan.window.early)
    if kept and below.timing.exact and below.timing.longest is not None and not grouping.once and not below.near:
        return sequenced.sliding(grouping, below.timing.longest, timed=_timed(plan))
    return sequenced.changing(grouping)


def _timed(plan: Group) -> bool:
    return plan.timed


def finished(plan: Group, below: Rows, by: Sequence[str], frame: DataFrame) -> Rows:
    """The group's columns in their places."""
    texts = list(by)
    match plan.window:
        case TimeWindow(size=size):
            texts += [f"timestamp_micros({each})" if plan.timed else each for each in (WINDOW, f"{WINDOW} + {size}L")]
        case RowWindow():
            texts.append(WINDOW)
    for number, each in enumerate(plan.aggregates):
        wrapped = each.function in ("first", "last")
        texts.append(f"_r{number}.v" if wrapped else brought_back(f"_r{number}", each, near=below.near))
    whole = below.over(plan, frame)
    columns = [f"{text} AS {place(at)}" for at, text in enumerate(texts)]
    return below.over(plan, selected(frame, *columns, *whole.beside))
