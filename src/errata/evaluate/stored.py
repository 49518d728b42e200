"""Stored lineage: of which rows results were made, as evaluation finds it (replay-revisions, 2008, section 3.2.2); and
windows of rows worked out again from just their own rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from errata.engine.frames import grouped_by, joined, stacked
from errata.engine.plans.compile import compile_plan, named, rows_of, upon
from errata.engine.plans.grouping import grouped
from errata.engine.plans.rows import OPEN, VE, Rows, Way, chosen, instant, moved, over, quoted, value
from errata.engine.plans.windows import WINDOW, in_row_windows
from errata.engine.types import arrow_ddl
from errata.engine.values import as_frame
from errata.evaluate.advance import Given
from errata.evaluate.needs import ARRIVING, KEPT, WHOLE
from errata.evaluate.route import Kind, Route
from errata.evaluate.sameness import lanes, steps
from errata.evaluate.storing import spans_below
from errata.language.lineage import stored_columns
from errata.language.nodes import Group, RowWindow
from errata.language.plan import Plan
from errata.language.tails import Tail
from errata.model.evaluation import Step
from errata.model.interval import LOWEST
from errata.model.results import FIRST, FROM, VS

_KNOWN, _COUNT, _LAST, _SEQUENCE, _START, _PLACE = "_known", "_count", "_last", "_s0", "_start", "_place"
_OF, _BEGINS, _ENDS, _HASH, _NUMBER = "_q", "_qf", "_qt", "_qh", "_qn"


def lineage_columns(plan: Plan) -> list[str]:
    """The columns of stored lineage beside a result's key and vs."""
    return [*stored_columns(plan), FIRST]


def lineage_of_step(plan: Plan, route: Route, step: Step, given: Given) -> DataFrame:
    """Of which rows the results of a step were made, and perhaps of others; by the names of the plan."""
    if route.kind is not Kind.ROW_WINDOWS:
        return lineage_of_rows(plan, route, given.frames[WHOLE], _counting_from(step, given))
    rows = _happened(_tail(route), given.frames[ARRIVING], step.since, step.until)
    return _of_windows(plan, _tail(route), _with_former(rows, _tail(route), step, given))


def _counting_from(step: Step, given: Given) -> int | None:
    """At the beginning only what counts then is worked out."""
    return None if step.first or not given.beginning else step.since


def lineage_of_rows(plan: Plan, route: Route, frames: Mapping[str, DataFrame], since: int | None = None) -> DataFrame:
    """Of which rows the results were made that some rows make; without those that have ended by an instant."""
    if route.kind is not Kind.ROW_WINDOWS:
        rows = compile_plan(plan, frames, lineage=True, since=since)
        columns = map(quoted, (*plan.key, VS, *stored_columns(plan)))
        return chosen(rows, [*columns], **{FIRST: "CAST(NULL AS BIGINT)"})
    rows_below = rows_of(_tail(route).input, frames)
    frame = chosen(rows_below.frame, ["*"], **{_KNOWN: "CAST(NULL AS BIGINT)"})
    return _of_windows(plan, _tail(route), rows_below.over(rows_below.plan, frame))


def _tail(route: Route) -> Tail[Group]:
    if route.tail is None or not isinstance(route.tail.node, Group):
        raise AssertionError(route.kind)
    return route.tail


def _window(found: Tail[Group]) -> RowWindow:
    if isinstance(found.node.window, RowWindow):
        return found.node.window
    raise AssertionError(found.node)


def _happened(found: Tail[Group], frames: Mapping[str, DataFrame], since: int, until: int) -> Rows:
    rows = rows_of(found.input, frames)
    since_then = f"{VS} >= {instant(since)}"
    return rows.over(found.input, rows.frame.filter(f"{since_then} AND {VS} <= {instant(until)}"))


def _with_former(rows: Rows, found: Tail[Group], step: Step, given: Given) -> Rows:
    """Rows that arrive, and those of open windows: as they were kept, or else all that came before."""
    unknown = {_KNOWN: "CAST(NULL AS BIGINT)"}
    frame = chosen(rows.frame, [*rows.columns, VS, VE], **unknown)
    if KEPT in given.frames:
        former = _happened(found, given.frames[KEPT], LOWEST, step.since - 1)
        frame = stacked(frame, chosen(former.frame, [*rows.columns, VS, VE], **unknown))
    elif given.state is not None:
        frame = stacked(frame, chosen(given.state, rows.columns, **{VS: VS, VE: OPEN, _KNOWN: _KNOWN}))
    return rows.over(rows.plan, frame)


def _of_windows(plan: Plan, found: Tail[Group], rows: Rows) -> DataFrame:
    """Of which rows windows were made that are full."""
    window = _window(found)
    by = {f"_g{number}": rows.key(expr) for number, expr in enumerate(found.node.by)}
    placed = in_row_windows(chosen(rows.frame, ["*"], **by), window, list(by), rows.order, _KNOWN)
    first = f"min_by({_hash(rows)}, {value(rows.order)}) AS {FIRST}"
    times = [f"min({VS}) AS {_START}", f"max({VS}) AS {_LAST}", f"count(1) AS {_COUNT}"]
    whole = grouped_by(placed, [*by, WINDOW], [*times, first]).filter(f"{_COUNT} = {window.size}")
    # The key goes through what stands above unchanged, whatever its columns are called there.
    told = {quoted(name): inner for inner, name in zip((*by, WINDOW), plan.key, strict=True)}
    told[VS] = _LAST
    for number, span in enumerate(spans_below(found.input)):
        told[f"_from_{number}"] = moved(_START, -span.high)
        told[f"_to_{number}"] = moved(_LAST, -span.low)
    return chosen(whole, [], **told, **{FIRST: FIRST})


def _hash(rows: Rows) -> str:
    """What tells a row from others of the same time."""
    return f"xxhash64({', '.join(map(rows.column, rows.plan.key))})"


def sequences(route: Route, rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The sequences of rows that make some windows of rows, told by their lineage. `key`: the names in there of the
    plan's key. A sequence has the group's columns, `_q0` and on, and a number; and it is told where its first row lies,
    the hash of that and its number among the rows of its group, and where its last row lies.

    Windows that share rows, or of which one begins where the other ends, are one sequence. Others are replayed apart:
    from one to the next rows are missing, and to count over the gap would shift all windows behind it.
    """
    found = _tail(route)
    window, spans = _window(found), spans_below(found.input)
    group, number = key[:-1], rows[key[-1]].to_numpy()
    told = lanes(rows, group)
    order = np.lexsort((number, *reversed(told)))
    ordered = rows.take(pa.array(order))
    begins = ordered[f"{FROM}0"].to_numpy() + spans[0].high
    first = number[order] * window.step
    fresh = steps([lane[order] for lane in told], len(order)) if told else np.arange(len(order)) == 0
    fresh[1:] |= first[1:] > first[:-1] + window.size
    heads = np.flatnonzero(fresh)
    lasts = np.append(heads[1:], len(order))[: len(heads)] - 1
    at = pa.array(heads)
    columns = {f"_q{place}": ordered[name].take(at) for place, name in enumerate(group)}
    # Of windows in the order of their numbers none ends before the one before it.
    ends = ordered[VS].to_numpy()[lasts]
    told_by = {_OF: np.arange(len(heads)), _BEGINS: begins[heads], _ENDS: ends, _NUMBER: first[heads]}
    whole = {**columns, **{name: pa.array(each, pa.int64()) for name, each in told_by.items()}}
    return pa.table({**whole, _HASH: ordered[FIRST].take(at)})


def made_again(
    plan: Plan, route: Route, frames: Mapping[str, DataFrame], lineage: pa.Table, key: Sequence[str]
) -> DataFrame:
    """The results whose lineage is told, and perhaps others, from the rows that they were made of."""
    if route.kind is Kind.ROW_WINDOWS:
        return replayed(route, frames, sequences(route, lineage, key))
    return compile_plan(plan, frames)


def replayed(route: Route, frames: Mapping[str, DataFrame], of: pa.Table) -> DataFrame:
    """The results of all windows that lie wholly in the sequences, by the names of the plan."""
    found = _tail(route)
    rows = rows_of(found.input, frames)
    session = rows.frame.sparkSession
    wanted = as_frame(session, of, arrow_ddl(of.schema)).hint("broadcast")
    by = {f"_g{place}": rows.sql(expr) for place, expr in enumerate(found.node.by)}
    mine = [f"{VS} >= {_BEGINS} AND {VS} <= {_ENDS}", *(f"_g{place} <=> _q{place}" for place in range(len(by)))]
    placed = joined(chosen(rows.frame, ["*"], **by), wanted, " AND ".join(mine))
    # Rows of the same time as the first one may come before it.
    numbers = {_PLACE: f"row_number() {over([_OF], rows.order)}"}
    firsts = f"min(IF({VS} = {_BEGINS} AND {_hash(rows)} = {_HASH}, {_PLACE}, NULL)) {over([_OF])}"
    placed = chosen(chosen(placed, ["*"], **numbers), ["*"], **{_START: firsts}).filter(f"{_PLACE} >= {_START}")
    known = f"IF({_PLACE} = {_START}, {_NUMBER}, NULL)"
    frame = chosen(placed, [*rows.columns, VS, VE], **{_SEQUENCE: _OF, _KNOWN: known})
    apart = replace(rows, frame=frame, way=Way(None, (_SEQUENCE,), lineage=False))
    filled = grouped(found.node, apart, _KNOWN)
    return named(upon(found.above, filled), [_OF]).drop(_OF)
