"""The next results of row windows, last rows and new values, from arriving rows and kept rows.

The state is rows of the operator's input under this folder's column names: two names of a query may differ only in
case, and would be the same in a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import join_sql, union_by_position
from errata.engine.plans.compile import apply_operators, compile_rows, named_frame
from errata.engine.plans.grouping import ROW_NUMBER, compile_group, number_rows
from errata.engine.plans.node_rows import (
    ALL_ROWS,
    OPEN_END,
    RIGHT_PREFIX,
    VALUE_COLUMN,
    VE,
    VS,
    AdvanceResult,
    InputFrames,
    NodeRows,
    distinguishable,
    instant_sql,
    quote_name,
    select_columns,
    struct_sql,
    window_sql,
)
from errata.language.incremental import TailNode, TailOperator
from errata.language.nodes import Distinct, Group, RowWindow, SlidingRows
from errata.language.plan import PlanError
from errata.model.time import LOWEST

_KNOWN_COUNT, _NEWER_COUNT, _NEWEST_NUMBER, _GROUP_SIZE = "_known", "_newer", "_newest", "_count"


def advance_row_windows(
    found: TailOperator[Group],
    arriving: InputFrames,
    state: DataFrame | None,
    since: int,
    until: int,
    scope: Sequence[str] = (),
) -> AdvanceResult:
    """The windows that rows of `since` to `until` fill; they are added to the results."""
    unnumbered = {_KNOWN_COUNT: "CAST(NULL AS BIGINT)"}
    rows = _with_state(_input_rows_between(found, arriving, since, until, scope), unnumbered, state, scope)
    going_on = rows if state is None else _rows_of_active_groups(found.node, rows, since)
    filled = compile_group(found.node, going_on, _KNOWN_COUNT)
    # The row that was kept for its number only may be a whole window by itself.
    new = filled.for_node(found.node, filled.frame.filter(_starts_from(since)))
    return AdvanceResult(
        named_frame(apply_operators(found.above, new), scope), _open_window_rows(found, rows, until, scope)
    )


def _rows_of_active_groups(group: Group, rows: NodeRows, since: int) -> NodeRows:
    """The rows of groups with arrivals. No window of the other groups, which may be many more, gets full."""
    everything = window_sql([*rows.mode.scope, *map(rows.key, group.by)], rows.order, ALL_ROWS)
    marked = select_columns(rows.frame, ["*"], **{_NEWEST_NUMBER: f"max({VS}) {everything}"})
    return rows.for_node(rows.plan, marked.filter(f"{_NEWEST_NUMBER} >= {instant_sql(since)}").drop(_NEWEST_NUMBER))


def row_window_state(
    found: TailOperator[Group], frames: InputFrames, since: int, scope: Sequence[str] = ()
) -> DataFrame:
    """The state at `since`, rebuilt from all earlier rows."""
    rows = _input_rows_between(found, frames, LOWEST, since, scope)
    return _open_window_rows(
        found, _with_state(rows, {_KNOWN_COUNT: "CAST(NULL AS BIGINT)"}, None, scope), since, scope
    )


def _open_window_rows(found: TailOperator[Group], rows: NodeRows, until: int, scope: Sequence[str]) -> DataFrame:
    """Of the rows before `until`, those in windows that are not full yet, and the last of each group, whose number
    tells how many there have been."""
    window = found.node.window
    if not isinstance(window, RowWindow):
        raise PlanError("a group without windows of rows keeps no rows", where="Group")
    by = {f"_g{number}": rows.key(expr) for number, expr in enumerate(found.node.by)}
    before = select_columns(rows.frame.filter(f"{VS} < {instant_sql(until)}"), ["*"], **by)
    group = [*rows.mode.scope, *by]
    placed = number_rows(before, group, rows.order, _KNOWN_COUNT)
    counted = select_columns(placed, ["*"], **{_GROUP_SIZE: f"max({ROW_NUMBER}) {window_sql(group)} + 1L"})
    first_open = f"(({_GROUP_SIZE} - {window.size}L) DIV {window.step}L + 1) * {window.step}L"
    needed = f"least({_GROUP_SIZE} - 1, IF({_GROUP_SIZE} < {window.size}L, 0, {first_open}))"
    return _state_frame(rows, counted.filter(f"{ROW_NUMBER} >= {needed}"), scope, **{_KNOWN_COUNT: ROW_NUMBER})


def advance_last_rows(
    found: TailOperator[SlidingRows],
    arriving: InputFrames,
    state: DataFrame | None,
    since: int,
    until: int,
    scope: Sequence[str] = (),
) -> AdvanceResult:
    """The whole answer from `since` to `until`. The beginning of results that began earlier is unknown."""
    rows = _with_state(_input_rows_between(found, arriving, since, until, scope), {}, state, scope)
    answer = rows
    for node in (found.node, *found.above):
        # Not all rows of earlier instants are read: results there would be wrong, and could fail in operators above.
        answer = apply_operators([node], answer)
        answer = answer.for_node(node, answer.frame.filter(_ends_after(since)))
    return AdvanceResult(named_frame(answer, scope), _newest_rows(found, rows, until, scope))


def last_rows_state(
    found: TailOperator[SlidingRows], frames: InputFrames, since: int, scope: Sequence[str] = ()
) -> DataFrame:
    """The state at `since`, rebuilt from earlier rows: the last ones that the window needs, or more."""
    return _newest_rows(found, _input_rows_between(found, frames, LOWEST, since, scope), since, scope)


def _newest_rows(found: TailOperator[SlidingRows], rows: NodeRows, until: int, scope: Sequence[str]) -> DataFrame:
    """The last rows before `until`."""
    newest = window_sql(rows.mode.scope, [f"{name} DESC NULLS LAST" for name in rows.order])
    placed = select_columns(
        rows.frame.filter(f"{VS} < {instant_sql(until)}"), ["*"], **{_NEWER_COUNT: f"row_number() {newest}"}
    )
    return _state_frame(rows, placed.filter(f"{_NEWER_COUNT} <= {found.node.rows}"), scope)


def advance_new_values(
    found: TailOperator[Distinct],
    arriving: InputFrames,
    known: DataFrame | None,
    since: int,
    until: int,
    scope: Sequence[str] = (),
) -> AdvanceResult:
    """The values that occur from `since` to `until` for the first time; they are added to the results. `known` are the
    published results, at least those before `since`: the key's columns by the plan's names, `_vs`, and the scope. None:
    there are none before `since`."""
    values = apply_operators([found.node], _input_rows_between(found, arriving, since, until, scope))
    if known is not None:
        values = _unknown_values(found, values, known.filter(f"{VS} < {instant_sql(since)}"), scope)
    return AdvanceResult(named_frame(apply_operators(found.above, values), scope), None)


def _unknown_values(
    found: TailOperator[Distinct], values: NodeRows, known: DataFrame, scope: Sequence[str]
) -> NodeRows:
    """The values that are not known. Known ones that occur again are found first: they are few, so the many known
    values need not be shuffled."""
    apart = {f"{RIGHT_PREFIX}{inner}": quote_name(name) for inner, name in zip(values.mode.scope, scope, strict=True)}
    types = found.plan.types
    key = [distinguishable(quote_name(name), types[name], near=values.near) for name in found.plan.key]
    published = select_columns(known, [], **{f"{RIGHT_PREFIX}{VALUE_COLUMN}": struct_sql(key)}, **apart)
    new = select_columns(
        values.frame, ["*"], **{VALUE_COLUMN: struct_sql(values.keys(each.name for each in values.plan.fields))}
    )
    same = " AND ".join(f"{name} = {RIGHT_PREFIX}{name}" for name in (VALUE_COLUMN, *values.mode.scope))
    again = join_sql(published, new, same, "left_semi")
    return values.for_node(values.plan, join_sql(new, again, same, "left_anti").drop(VALUE_COLUMN))


def _input_rows_between(
    found: TailOperator[TailNode], frames: InputFrames, since: int, until: int, scope: Sequence[str]
) -> NodeRows:
    """The rows of the operator's input that happened from `since` to `until`, both included."""
    rows = compile_rows(found.input, frames, scope)
    within = f"{_starts_from(since)} AND {VS} <= {instant_sql(until)}"
    return rows.for_node(found.input, rows.frame.filter(within))


def _starts_from(since: int) -> str:
    return "TRUE" if since == LOWEST else f"{VS} >= {since}L"


def _ends_after(since: int) -> str:
    return "TRUE" if since == LOWEST else f"{VE} > {since}L"


def _with_state(rows: NodeRows, more: Mapping[str, str], state: DataFrame | None, scope: Sequence[str]) -> NodeRows:
    """Arriving rows and kept rows. The latter have `more` columns; arrivals get the given values there."""
    frame = select_columns(rows.frame, [*rows.columns, *rows.extra_columns], **more)
    if state is not None:
        apart = {inner: quote_name(name) for inner, name in zip(rows.mode.scope, scope, strict=True)}
        kept = select_columns(state, rows.columns, **apart, **{VS: VS, VE: OPEN_END}, **{name: name for name in more})
        frame = union_by_position(frame, kept)
    return rows.for_node(rows.plan, frame)


def _state_frame(rows: NodeRows, frame: DataFrame, scope: Sequence[str], **more: str) -> DataFrame:
    """Rows in the form of the state: their columns, their own time, and the scope under its outside names."""
    apart = {quote_name(name): inner for inner, name in zip(rows.mode.scope, scope, strict=True)}
    return select_columns(frame, [*rows.columns, VS], **more, **apart)
