"""Windows, groups, and aggregates over rows with lifetimes.

The windows of a row are found by integer arithmetic; a window is identified by its number, or by the instant at which
it begins. For each group there is one result row for each interval of time in which the same rows count. How it is
computed depends on the lifetimes: a running aggregate for rows that count for ever, a range window for rows of one
span, and numbered beginnings and ends for any others.

Floating point numbers are always added up again from the rows that count: subtracting what was added would leave
rounding errors. Neighbouring results that happen to be equal stay two rows; readers compare normal forms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from errata.engine.frames import group_sql, select_sql, with_columns
from errata.engine.plans.node_rows import (
    OPEN_END,
    ROWS_UP_TO_NOW,
    VE,
    VS,
    NodeRows,
    aggregate_result,
    column_at,
    extreme_sql,
    instant_sql,
    merged_lineage,
    select_columns,
    summand_sql,
    window_sql,
)
from errata.language.nodes import Aggregate, Group, RowWindow, TimeWindow
from errata.language.plan import PlanError

WINDOW_COLUMN, ROW_NUMBER = "_w", "_n"
_WINDOWS_BACK, _FIRST_WINDOW, _PLACE = "_back", "_first", "_place"


def assign_time_windows(frame: DataFrame, window: TimeWindow, own: str, at: int | None) -> DataFrame:
    """The rows, once for each window that contains their own time. Unless results are early, they count from the
    window's end, and not at all if they have ended by then."""
    placed = _rows_back(frame, own, window.size, window.slide)
    # A window that would begin before the least number, or end after the greatest, does not exist.
    starts = select_sql(placed, "*", f"try_subtract({own}, {_WINDOWS_BACK}) AS {WINDOW_COLUMN}").drop(_WINDOWS_BACK)
    starts = starts.filter(f"try_add({WINDOW_COLUMN}, {window.size}L) IS NOT NULL")
    if window.early:
        return starts
    end = f"{WINDOW_COLUMN} + {window.size}L"
    if at is not None:
        return starts.filter(f"{end} <= {instant_sql(at)}")
    return with_columns(starts, {VS: f"greatest({VS}, {end})"}).filter(f"{VS} < {VE}")


def assign_row_windows(
    frame: DataFrame, window: RowWindow, group: Sequence[str], order: Sequence[str], known: str | None = None
) -> DataFrame:
    """The rows, once for each window of their group's rows that they are in, full or not. Windows that begin before the
    first row given are left out; see `number_rows`."""
    placed = _rows_back(number_rows(frame, group, order, known), ROW_NUMBER, window.size, window.step)
    placed = placed.filter(f"{_WINDOWS_BACK} <= {ROW_NUMBER} - {_FIRST_WINDOW}")
    return select_columns(
        placed, ["*"], **{WINDOW_COLUMN: f"({ROW_NUMBER} - {_WINDOWS_BACK}) DIV {window.step}L"}
    ).drop(_WINDOWS_BACK, ROW_NUMBER, _FIRST_WINDOW)


def number_rows(frame: DataFrame, group: Sequence[str], order: Sequence[str], known: str | None = None) -> DataFrame:
    """The rows with their number in their group, from 0. `known` is a column with numbers known already: those of a
    group's first rows, where rows before them are not read."""
    so_far = window_sql(group, order, "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW")
    first = "0L" if known is None else f"coalesce(min({known}) {so_far}, 0L)"
    placed = select_columns(frame, ["*"], **{_FIRST_WINDOW: first, _PLACE: f"row_number() {window_sql(group, order)}"})
    return select_columns(placed, ["*"], **{ROW_NUMBER: f"{_FIRST_WINDOW} + {_PLACE} - 1L"}).drop(_PLACE)


def _rows_back(frame: DataFrame, moment: str, size: int, step: int) -> DataFrame:
    """Adds the distances, in rows, from a row back to the beginnings of its windows; rows in no window are dropped."""
    into = f"pmod({moment}, {step}L)"
    if step >= size:
        return select_sql(frame, "*", f"{into} AS {_WINDOWS_BACK}").filter(f"{_WINDOWS_BACK} < {size}L")
    return select_sql(frame, "*", f"explode(sequence({into}, {size - 1}L, {step}L)) AS {_WINDOWS_BACK}")


# Aggregates over rows with lifetimes.

_POINT_TIME, _NEXT_POINT, _LIVE_COUNT, _LIVE_ROWS = "_p", "_next", "_alive", "_live"
_ROW_COLUMN, _POINT_COLUMN, _MET_COLUMN = "_row", "_point", "_met"


@dataclass(frozen=True)
class LifetimeGroups:
    """Rows to aggregate."""

    frame: DataFrame
    """Its columns: the group, the values, and the lifetime if there is one."""
    group: tuple[str, ...]
    """The columns that make the group."""
    values: tuple[str, ...]
    """The columns that the aggregates read."""
    results: Mapping[str, str]
    """The aggregates, by name."""
    distinct_arguments: frozenset[str]
    """The arguments whose equal values count once."""


def aggregate_at_once(given: LifetimeGroups, more: Mapping[str, str]) -> DataFrame:
    """All rows of a group together, whatever their lifetimes. Without any rows there may be a row."""
    return group_sql(given.frame, given.group, _aggregate_list(given, more))


def _aggregate_list(given: LifetimeGroups, more: Mapping[str, str]) -> list[str]:
    texts = {**{name: _is_distinct_text(given, text) for name, text in given.results.items()}, **more}
    return [f"{text} AS {name}" for name, text in texts.items()] or [f"count(1) AS {_LIVE_ROWS}"]


def _is_distinct_text(given: LifetimeGroups, text: str) -> str:
    function, _, argument = text.partition("(")
    return f"{function}(DISTINCT {argument}" if argument.removesuffix(")") in given.distinct_arguments else text


def running_aggregates(given: LifetimeGroups) -> DataFrame:
    """For rows that count for ever: a running aggregate in one pass over each group's rows."""
    frame = given.frame
    # A distinct value counts where it occurs first.
    if given.distinct_arguments and given.group:
        frame = frame.repartition(*given.group)
    for name in sorted(given.distinct_arguments):
        first = f"row_number() {window_sql([*given.group, name], [VS])} = 1"
        frame = with_columns(frame, {name: f"IF({first}, {name}, NULL)"})
    upto = window_sql(given.group, [VS], ROWS_UP_TO_NOW)
    results = {name: f"{text} {upto}" for name, text in given.results.items()}
    run = select_columns(
        frame, given.group, **{_POINT_TIME: VS, _NEXT_POINT: f"lead({VS}) {window_sql(given.group, [VS])}"}, **results
    )
    return _aggregate_stretches(run, [*given.group, *given.results])


def sliding_aggregates(given: LifetimeGroups, span: int, *, timed: bool) -> DataFrame:
    """For rows that all count for the same span: at each beginning and end, the rows of the span up to there."""
    marks = (
        f"inline(array(struct({VS} AS {_POINT_TIME}, TRUE AS {_LIVE_COUNT}), struct({VE} AS "
        f"{_POINT_TIME}, FALSE AS {_LIVE_COUNT})))"
    )
    marked = select_sql(given.frame, *given.group, *given.values, marks).filter(f"{_POINT_TIME} < {OPEN_END}")
    # A marker of an end only says that the aggregate changes there.
    values = {name: f"IF({_LIVE_COUNT}, {name}, NULL)" for name in given.values}
    points = select_columns(
        marked, [*given.group, _POINT_TIME], **values, **{_LIVE_COUNT: f"IF({_LIVE_COUNT}, 1, NULL)"}
    )
    # Near the lowest number a span would overflow; decimals have room. Times are never near it.
    order = _POINT_TIME if timed else f"CAST({_POINT_TIME} AS DECIMAL(20,0))"
    live = window_sql(
        given.group, [order], f"RANGE BETWEEN {span - 1}{'L' if timed else 'BD'} PRECEDING AND CURRENT ROW"
    )
    aggregates = {**given.results, _LIVE_ROWS: f"count({_LIVE_COUNT})"}
    results = {name: f"{text} {live}" for name, text in aggregates.items()}
    run = select_columns(
        points,
        [*given.group, _POINT_TIME],
        **{_NEXT_POINT: f"lead({_POINT_TIME}) {window_sql(given.group, [_POINT_TIME])}"},
        **results,
    )
    return _aggregate_stretches(run, [*given.group, *aggregates]).filter(f"{_LIVE_ROWS} > 0")


def _aggregate_stretches(run: DataFrame, kept: Sequence[str]) -> DataFrame:
    """From the results at each row's instant, the results from each instant to the next."""
    last = run.filter(f"{_NEXT_POINT} IS NULL OR {_NEXT_POINT} > {_POINT_TIME}")
    return select_columns(last, kept, **{VS: _POINT_TIME, VE: f"coalesce({_NEXT_POINT}, {OPEN_END})"})


def changing_aggregates(given: LifetimeGroups) -> DataFrame:
    """For rows with any lifetimes: at each beginning and end, the rows that count there.

    A group's beginnings and ends are numbered, and each row is repeated for each of them at which it counts: rows are
    not joined with each other, or read twice.
    """
    columns = [*given.group, *given.values]
    rows = select_columns(
        given.frame, [*columns, VS, VE], **{_ROW_COLUMN: f"row_number() {window_sql(given.group, [VS])}"}
    )
    marks = (
        f"inline(array(struct({VS} AS {_POINT_TIME}, TRUE AS {_LIVE_COUNT}), struct({VE} AS "
        f"{_POINT_TIME}, FALSE AS {_LIVE_COUNT})))"
    )
    marked = select_sql(rows.filter(f"{VS} < {VE}"), *columns, _ROW_COLUMN, marks)
    numbered = select_columns(
        marked, ["*"], **{_POINT_COLUMN: f"dense_rank() {window_sql(given.group, [_POINT_TIME])}"}
    )
    # The marker after a row's beginning is its end, and no marker follows.
    until = select_columns(
        numbered,
        ["*"],
        **{_NEXT_POINT: f"lead({_POINT_COLUMN}) {window_sql([*given.group, _ROW_COLUMN], [_POINT_TIME])}"},
    )
    values = {name: f"IF({_LIVE_COUNT}, {name}, NULL)" for name in given.values}
    own = {
        _POINT_TIME: f"IF({_MET_COLUMN} = {_POINT_COLUMN}, {_POINT_TIME}, NULL)",
        _LIVE_COUNT: f"IF({_LIVE_COUNT}, 1, NULL)",
    }
    each = select_columns(
        until,
        ["*"],
        **{_MET_COLUMN: f"explode(sequence({_POINT_COLUMN}, coalesce({_NEXT_POINT} - 1, {_POINT_COLUMN})))"},
    )
    there = select_columns(each, [*given.group, _MET_COLUMN], **values, **own)
    aggregates = _aggregate_list(given, {_POINT_TIME: f"max({_POINT_TIME})", _LIVE_COUNT: f"count({_LIVE_COUNT})"})
    found = group_sql(there, [*given.group, _MET_COLUMN], aggregates).filter(f"{_POINT_TIME} < {OPEN_END}")
    times = {VS: _POINT_TIME, VE: f"coalesce(lead({_POINT_TIME}) {window_sql(given.group, [_POINT_TIME])}, {OPEN_END})"}
    whole = select_columns(found, [*given.group, *given.results, _LIVE_COUNT], **times)
    return whole.filter(f"{_LIVE_COUNT} > 0").drop(_LIVE_COUNT)


# Groups: windows, arguments and results of the aggregates, computed over lifetimes.

_ORDER_COLUMN, _OWN_COLUMN, _SIZE_COLUMN = "_o", "_own", "_size"


def compile_group(plan: Group, below: NodeRows, numbers: str | None = None) -> NodeRows:
    """One row for each group and window, each time that it changes. For windows of rows, `numbers` is a column with row
    numbers known already; see `number_rows`."""
    by = [f"_g{number}" for number in range(len(plan.by))]
    group = [*below.mode.scope, *by, *([] if plan.window is None else [WINDOW_COLUMN])]
    frame = _window_rows(plan, below, _with_group_columns(plan, below, by), [*below.mode.scope, *by], numbers)
    arguments = {f"_a{number}": _argument_sql(below, each) for number, each in enumerate(plan.aggregates)}
    ordered = [_ORDER_COLUMN] if _needs_order(plan) else []
    times = [VS, VE] if below.mode.at is None else ([_OWN_COLUMN] if isinstance(plan.window, RowWindow) else [])
    read = select_columns(frame, [*group, *times, *ordered, *below.lineage], **arguments)
    results = {f"_r{number}": _result_sql(below, each, f"_a{number}") for number, each in enumerate(plan.aggregates)}
    grouping = LifetimeGroups(
        read,
        tuple(group),
        (*arguments, *ordered, *below.lineage),
        {**results, **merged_lineage(below.lineage)},
        frozenset(f"_a{number}" for number, each in enumerate(plan.aggregates) if _is_distinct(each)),
    )
    return group_columns(plan, below, by, _aggregate_rows(plan, below, grouping))


def _with_group_columns(plan: Group, below: NodeRows, by: Sequence[str]) -> DataFrame:
    columns = {name: below.key(expr) for name, expr in zip(by, plan.by, strict=True)}
    if below.own is not None:
        columns[_OWN_COLUMN] = below.own
    if _needs_order(plan):
        if below.own is None:
            raise PlanError("rows without a time of their own have no first and no last", where="Group")
        columns[_ORDER_COLUMN] = below.rank
    return select_columns(below.frame, ["*"], **columns)


def _window_rows(
    plan: Group, below: NodeRows, frame: DataFrame, group: Sequence[str], numbers: str | None
) -> DataFrame:
    window = plan.window
    if window is None:
        return frame
    if not below.row_times.happened:
        raise PlanError("a window needs rows that happened", where="Group")
    if isinstance(window, RowWindow):
        if not below.row_times.for_ever:
            raise PlanError("windows of rows need rows that count for ever", where="Group")
        return assign_row_windows(frame, window, group, below.order, numbers)
    return assign_time_windows(frame, window, _OWN_COLUMN, below.mode.at)


def _needs_order(plan: Group) -> bool:
    return any(each.function in ("first", "last") for each in plan.aggregates)


def _is_distinct(aggregate: Aggregate) -> bool:
    """Whether equal values count once; for other aggregates it makes no difference."""
    return aggregate.distinct and aggregate.function not in ("min", "max", "first", "last")


def _argument_sql(below: NodeRows, aggregate: Aggregate) -> str:
    if aggregate.argument is None:
        return "1"
    if _is_distinct(aggregate):
        return summand_sql(below.key(aggregate.argument), aggregate.function, aggregate.argument.type, near=below.near)
    text = below.sql(aggregate.argument)
    match aggregate.function:
        case "first" | "last":
            # The value of the first row counts even if it is NULL, and aggregates skip NULL: so it is wrapped in a
            # struct.
            return f"named_struct('v', {text})"
        case "sum" | "avg":
            return summand_sql(text, aggregate.function, aggregate.argument.type, near=below.near)
    return text


def _result_sql(below: NodeRows, aggregate: Aggregate, argument: str) -> str:
    match aggregate.function:
        case "min" | "max" if aggregate.argument is not None:
            return extreme_sql(aggregate.function, argument, str(aggregate.argument.type), near=below.near)
        case "first":
            return f"min_by({argument}, {_ORDER_COLUMN})"
        case "last":
            return f"max_by({argument}, {_ORDER_COLUMN})"
        case "stddev":
            return f"stddev_samp({argument})"
    return f"{aggregate.function}({argument})"


def _aggregate_rows(plan: Group, below: NodeRows, grouping: LifetimeGroups) -> DataFrame:
    """The aggregates of each group, with lifetimes if the whole history is asked for."""
    match plan.window:
        case RowWindow(size=size):
            last = _OWN_COLUMN if below.mode.at is not None else VS
            whole = aggregate_at_once(grouping, {_SIZE_COLUMN: "count(1)", VS: f"max({last})"}).filter(
                f"{_SIZE_COLUMN} = {size}"
            )
            return whole if below.mode.at is not None else select_columns(whole, ["*"], **{VE: OPEN_END})
        case TimeWindow(size=size, early=False) if below.row_times.for_ever:
            whole = aggregate_at_once(grouping, {})
            return select_columns(whole, ["*"], **{VS: f"{WINDOW_COLUMN} + {size}L", VE: OPEN_END})
    if below.mode.at is not None:
        return aggregate_at_once(grouping, {_SIZE_COLUMN: "count(1)"}).filter(f"{_SIZE_COLUMN} > 0")
    if below.row_times.for_ever:
        return running_aggregates(grouping)
    kept = plan.window is None or (isinstance(plan.window, TimeWindow) and plan.window.early)
    if (
        kept
        and below.row_times.exact
        and below.row_times.longest is not None
        and not grouping.distinct_arguments
        and not below.near
    ):
        return sliding_aggregates(grouping, below.row_times.longest, timed=_is_timed(plan))
    return changing_aggregates(grouping)


def _is_timed(plan: Group) -> bool:
    return plan.timed


def group_columns(plan: Group, below: NodeRows, by: Sequence[str], frame: DataFrame) -> NodeRows:
    """The group's columns at their positions."""
    texts = list(by)
    match plan.window:
        case TimeWindow(size=size):
            texts += [
                f"timestamp_micros({each})" if plan.timed else each
                for each in (WINDOW_COLUMN, f"{WINDOW_COLUMN} + {size}L")
            ]
        case RowWindow():
            texts.append(WINDOW_COLUMN)
    for number, each in enumerate(plan.aggregates):
        wrapped = each.function in ("first", "last")
        texts.append(f"_r{number}.v" if wrapped else aggregate_result(f"_r{number}", each, near=below.near))
    whole = below.for_node(plan, frame)
    columns = [f"{text} AS {column_at(at)}" for at, text in enumerate(texts)]
    return below.for_node(plan, select_sql(frame, *columns, *whole.extra_columns))
