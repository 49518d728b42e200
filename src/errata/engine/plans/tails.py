"""The next results of windows of rows, of the last rows and of values not seen yet, from what comes and what was kept.

What is kept are rows of the operator's input, under the names that their columns have within this room: two names in a
query may differ in case only, and in a file they would then be the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import joined, stacked
from errata.engine.plans.advanced import Advanced
from errata.engine.plans.compile import named, rows_of, upon
from errata.engine.plans.grouping import grouped
from errata.engine.plans.rows import ALL, OPEN, OTHER, VALUE, VE, VS, Rows, chosen, instant, over, quoted, value
from errata.engine.plans.spelling import told_apart
from errata.engine.plans.windows import NUMBER, numbered
from errata.language.nodes import Distinct, Group, RowWindow, SlidingRows
from errata.language.plan import PlanError
from errata.language.tails import N, Tail
from errata.model.interval import LOWEST

_KNOWN, _NEWER, _NEWEST, _COUNT = "_known", "_newer", "_newest", "_count"

Frames = Mapping[str, DataFrame]
"""What the operator's input reads, as `compile_plan` takes it."""


def advance_row_windows(
    found: Tail[Group], arriving: Frames, state: DataFrame | None, since: int, until: int, scope: Sequence[str] = ()
) -> Advanced:
    """The windows that rows of `since` to `until` fill: they are added to what there is."""
    unnumbered = {_KNOWN: "CAST(NULL AS BIGINT)"}
    rows = _with_state(_happened(found, arriving, since, until, scope), unnumbered, state, scope)
    going_on = rows if state is None else _of_groups_that_go_on(found.node, rows, since)
    filled = grouped(found.node, going_on, _KNOWN)
    # The row that was kept for its number only may be a whole window by itself.
    new = filled.over(found.node, filled.frame.filter(_from(since)))
    return Advanced(named(upon(found.above, new), scope), _for_open_windows(found, rows, until, scope))


def _of_groups_that_go_on(group: Group, rows: Rows, since: int) -> Rows:
    """The rows of groups for which something arrives. Of the others, which may be many more, no window will be full."""
    everything = over([*rows.way.scope, *map(rows.key, group.by)], rows.order, ALL)
    marked = chosen(rows.frame, ["*"], **{_NEWEST: f"max({VS}) {everything}"})
    return rows.over(rows.plan, marked.filter(f"{_NEWEST} >= {instant(since)}").drop(_NEWEST))


def kept_for_row_windows(found: Tail[Group], frames: Frames, since: int, scope: Sequence[str] = ()) -> DataFrame:
    """The state with which `since` is gone on from, made anew from all rows that came before."""
    rows = _happened(found, frames, LOWEST, since, scope)
    return _for_open_windows(found, _with_state(rows, {_KNOWN: "CAST(NULL AS BIGINT)"}, None, scope), since, scope)


def _for_open_windows(found: Tail[Group], rows: Rows, until: int, scope: Sequence[str]) -> DataFrame:
    """Of the rows before `until` those with which windows have begun that are not full, and the last of each group,
    which tells how many there have been."""
    window = found.node.window
    if not isinstance(window, RowWindow):
        raise PlanError("a group without windows of rows keeps no rows", where="Group")
    by = {f"_g{number}": rows.key(expr) for number, expr in enumerate(found.node.by)}
    before = chosen(rows.frame.filter(f"{VS} < {instant(until)}"), ["*"], **by)
    group = [*rows.way.scope, *by]
    placed = numbered(before, group, rows.order, _KNOWN)
    counted = chosen(placed, ["*"], **{_COUNT: f"max({NUMBER}) {over(group)} + 1L"})
    first_open = f"(({_COUNT} - {window.size}L) DIV {window.step}L + 1) * {window.step}L"
    needed = f"least({_COUNT} - 1, IF({_COUNT} < {window.size}L, 0, {first_open}))"
    return _outside(rows, counted.filter(f"{NUMBER} >= {needed}"), scope, **{_KNOWN: NUMBER})


def advance_last_rows(
    found: Tail[SlidingRows],
    arriving: Frames,
    state: DataFrame | None,
    since: int,
    until: int,
    scope: Sequence[str] = (),
) -> Advanced:
    """The whole answer from `since` to `until`. Of results that began before, the beginning is not known."""
    rows = _with_state(_happened(found, arriving, since, until, scope), {}, state, scope)
    answer = rows
    for node in (found.node, *found.above):
        # Of instants before, not all rows are there: what is said of them is wrong, and could be an error further up.
        answer = upon([node], answer)
        answer = answer.over(node, answer.frame.filter(_ends_after(since)))
    return Advanced(named(answer, scope), _last(found, rows, until, scope))


def kept_for_last_rows(found: Tail[SlidingRows], frames: Frames, since: int, scope: Sequence[str] = ()) -> DataFrame:
    """The state with which `since` is gone on from, made anew from rows that came before: the last so many, or more."""
    return _last(found, _happened(found, frames, LOWEST, since, scope), since, scope)


def _last(found: Tail[SlidingRows], rows: Rows, until: int, scope: Sequence[str]) -> DataFrame:
    """The last rows before `until`."""
    newest = over(rows.way.scope, [f"{name} DESC NULLS LAST" for name in rows.order])
    placed = chosen(rows.frame.filter(f"{VS} < {instant(until)}"), ["*"], **{_NEWER: f"row_number() {newest}"})
    return _outside(rows, placed.filter(f"{_NEWER} <= {found.node.rows}"), scope)


def advance_new_values(
    found: Tail[Distinct], arriving: Frames, known: DataFrame | None, since: int, until: int, scope: Sequence[str] = ()
) -> Advanced:
    """The values that come from `since` to `until` for the first time: they are added to what there is. `known` are the
    results that have been published, those before `since` at least: the key's columns by the plan's names, `_vs`, and
    the scope. None: there are none before `since`."""
    values = upon([found.node], _happened(found, arriving, since, until, scope))
    if known is not None:
        values = _not_among(found, values, known.filter(f"{VS} < {instant(since)}"), scope)
    return Advanced(named(upon(found.above, values), scope), None)


def _not_among(found: Tail[Distinct], values: Rows, known: DataFrame, scope: Sequence[str]) -> Rows:
    """The values that are not known. Those that are known and come again are found first: they are few, and so the many
    that are known need not be moved."""
    apart = {f"{OTHER}{inner}": quoted(name) for inner, name in zip(values.way.scope, scope, strict=True)}
    types = found.plan.types
    key = [told_apart(quoted(name), types[name], near=values.near) for name in found.plan.key]
    published = chosen(known, [], **{f"{OTHER}{VALUE}": value(key)}, **apart)
    new = chosen(values.frame, ["*"], **{VALUE: value(values.keys(each.name for each in values.plan.fields))})
    same = " AND ".join(f"{name} = {OTHER}{name}" for name in (VALUE, *values.way.scope))
    again = joined(published, new, same, "left_semi")
    return values.over(values.plan, joined(new, again, same, "left_anti").drop(VALUE))


def _happened(found: Tail[N], frames: Frames, since: int, until: int, scope: Sequence[str]) -> Rows:
    """The rows of the operator's input that happened from `since` to `until`, both included."""
    rows = rows_of(found.input, frames, scope)
    within = f"{_from(since)} AND {VS} <= {instant(until)}"
    return rows.over(found.input, rows.frame.filter(within))


def _from(since: int) -> str:
    return "TRUE" if since == LOWEST else f"{VS} >= {since}L"


def _ends_after(since: int) -> str:
    return "TRUE" if since == LOWEST else f"{VE} > {since}L"


def _with_state(rows: Rows, more: Mapping[str, str], state: DataFrame | None, scope: Sequence[str]) -> Rows:
    """The rows that arrive and those that were kept, which have `more` columns; in arrivals they are as told."""
    frame = chosen(rows.frame, [*rows.columns, *rows.beside], **more)
    if state is not None:
        apart = {inner: quoted(name) for inner, name in zip(rows.way.scope, scope, strict=True)}
        kept = chosen(state, rows.columns, **apart, **{VS: VS, VE: OPEN}, **{name: name for name in more})
        frame = stacked(frame, kept)
    return rows.over(rows.plan, frame)


def _outside(rows: Rows, frame: DataFrame, scope: Sequence[str], **more: str) -> DataFrame:
    """Rows as they are kept: their columns, their own time, and the scope under the names that others know."""
    apart = {quoted(name): inner for inner, name in zip(rows.way.scope, scope, strict=True)}
    return chosen(frame, [*rows.columns, VS], **more, **apart)
