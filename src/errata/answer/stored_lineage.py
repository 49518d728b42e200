"""Stored lineage: of which rows results were made, computed by a step or a correction and written beside the results
(replay-revisions, 2008, section 3.2.2); and row windows recomputed from just their own rows.

A row of lineage has a result's key and vs, and for each scan of the plan the event times of the first and the last of
its rows; of a row window also a hash of the first row's key, which tells that row from others of its time. Writing it
takes a second job over the rows that are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from errata.answer.advance import StepInput
from errata.answer.extents import parts_in_extents
from errata.answer.row_comparison import group_starts, sort_arrays
from errata.answer.task import EvaluationTask
from errata.archive.results import ResultWriter
from errata.archive.schemas import conform, lineage_schema
from errata.archive.task_reports import BUCKET_ROW_SCHEMA, bucket_batches, bucket_from_row
from errata.engine.frames import (
    arrow_ddl,
    fetch_rows,
    frame_of_rows,
    group_sql,
    join_sql,
    select_sql,
    union_by_position,
)
from errata.engine.plans.compile import apply_operators, compile_plan, compile_rows, named_frame
from errata.engine.plans.grouping import WINDOW_COLUMN, assign_row_windows, compile_group
from errata.engine.plans.node_rows import (
    OPEN_END,
    VE,
    EvaluationMode,
    NodeRows,
    instant_sql,
    quote_name,
    select_columns,
    shift_instant,
    struct_sql,
    window_sql,
)
from errata.language.incremental import TailOperator
from errata.language.lineage import stored_columns
from errata.language.nodes import Group, RowWindow
from errata.language.plan import Plan
from errata.language.route import Route, RouteKind, input_spans, why_no_stored_lineage
from errata.language.source_reads import ARRIVING, STATE_SOURCE, WHOLE
from errata.model.bucket import NewBucket, Role
from errata.model.commit import EvaluationSpan
from errata.model.extent import Extent
from errata.model.query import LineageMode
from errata.model.results import EVALUATION, LINEAGE_FIRST_KEY, LINEAGE_FROM, VS
from errata.model.time import LOWEST

_KNOWN, _COUNT, _LAST_VS, _SEQUENCE, _START, _PLACE = "_known", "_count", "_last", "_s0", "_start", "_place"
_SEQUENCE_ID, _SEQUENCE_START, _SEQUENCE_END, _FIRST_HASH, _FIRST_NUMBER = "_q", "_qf", "_qt", "_qh", "_qn"


def lineage_columns(plan: Plan) -> list[str]:
    """The columns of stored lineage, except a result's key and vs."""
    return [*stored_columns(plan), LINEAGE_FIRST_KEY]


def lineage_of_step(plan: Plan, route: Route, step: EvaluationSpan, given: StepInput) -> DataFrame:
    """The lineage of a step's results, and perhaps of others, with the names of the plan."""
    if route.kind is not RouteKind.ROW_WINDOWS:
        return lineage_of_rows(plan, route, given.frames[WHOLE], _lineage_since(step, given))
    rows = _rows_between(_row_window_tail(route), given.frames[ARRIVING], step.since, step.until)
    return _lineage_of_windows(
        plan, _row_window_tail(route), _with_open_windows(rows, _row_window_tail(route), step, given)
    )


def _lineage_since(step: EvaluationSpan, given: StepInput) -> int | None:
    """From which instant on results are computed: at the beginning, only those valid then."""
    return None if step.first or not given.beginning else step.since


def lineage_of_rows(plan: Plan, route: Route, frames: Mapping[str, DataFrame], since: int | None = None) -> DataFrame:
    """The lineage of the results that some rows make, without results that have ended by the instant `since`."""
    if route.kind is not RouteKind.ROW_WINDOWS:
        rows = compile_plan(plan, frames, lineage=True, since=since)
        columns = map(quote_name, (*plan.key, VS, *stored_columns(plan)))
        return select_columns(rows, [*columns], **{LINEAGE_FIRST_KEY: "CAST(NULL AS BIGINT)"})
    rows_below = compile_rows(_row_window_tail(route).input, frames)
    frame = select_columns(rows_below.frame, ["*"], **{_KNOWN: "CAST(NULL AS BIGINT)"})
    return _lineage_of_windows(plan, _row_window_tail(route), rows_below.for_node(rows_below.plan, frame))


def _row_window_tail(route: Route) -> TailOperator[Group]:
    if route.tail is None or not isinstance(route.tail.node, Group):
        raise AssertionError(route.kind)
    return route.tail


def _row_window(found: TailOperator[Group]) -> RowWindow:
    if isinstance(found.node.window, RowWindow):
        return found.node.window
    raise AssertionError(found.node)


def _rows_between(found: TailOperator[Group], frames: Mapping[str, DataFrame], since: int, until: int) -> NodeRows:
    rows = compile_rows(found.input, frames)
    since_then = f"{VS} >= {instant_sql(since)}"
    return rows.for_node(found.input, rows.frame.filter(f"{since_then} AND {VS} <= {instant_sql(until)}"))


def _with_open_windows(rows: NodeRows, found: TailOperator[Group], step: EvaluationSpan, given: StepInput) -> NodeRows:
    """Arriving rows, and those of open windows: from the state, or else all earlier rows."""
    unknown = {_KNOWN: "CAST(NULL AS BIGINT)"}
    frame = select_columns(rows.frame, [*rows.columns, VS, VE], **unknown)
    if STATE_SOURCE in given.frames:
        former = _rows_between(found, given.frames[STATE_SOURCE], LOWEST, step.since - 1)
        frame = union_by_position(frame, select_columns(former.frame, [*rows.columns, VS, VE], **unknown))
    elif given.state is not None:
        frame = union_by_position(
            frame, select_columns(given.state, rows.columns, **{VS: VS, VE: OPEN_END, _KNOWN: _KNOWN})
        )
    return rows.for_node(rows.plan, frame)


def _lineage_of_windows(plan: Plan, found: TailOperator[Group], rows: NodeRows) -> DataFrame:
    """The lineage of full windows."""
    window = _row_window(found)
    by = {f"_g{number}": rows.key(expr) for number, expr in enumerate(found.node.by)}
    placed = assign_row_windows(select_columns(rows.frame, ["*"], **by), window, list(by), rows.order, _KNOWN)
    first = f"min_by({_row_hash(rows)}, {struct_sql(rows.order)}) AS {LINEAGE_FIRST_KEY}"
    times = [f"min({VS}) AS {_START}", f"max({VS}) AS {_LAST_VS}", f"count(1) AS {_COUNT}"]
    whole = group_sql(placed, [*by, WINDOW_COLUMN], [*times, first]).filter(f"{_COUNT} = {window.size}")
    # The operators above pass the key on unchanged, whatever its columns are called there.
    columns = {quote_name(name): inner for inner, name in zip((*by, WINDOW_COLUMN), plan.key, strict=True)}
    columns[VS] = _LAST_VS
    for number, span in enumerate(input_spans(found.input)):
        columns[f"_from_{number}"] = shift_instant(_START, -span.high)
        columns[f"_to_{number}"] = shift_instant(_LAST_VS, -span.low)
    return select_columns(whole, [], **columns, **{LINEAGE_FIRST_KEY: LINEAGE_FIRST_KEY})


def _row_hash(rows: NodeRows) -> str:
    """A hash that tells a row from others of the same time."""
    return f"xxhash64({', '.join(map(rows.column, rows.plan.key))})"


def replay_sequences(route: Route, rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The sequences of rows that make some row windows, by their lineage. `key`: the names of the plan's key there.
    A sequence has the group's columns (`_q0` and on) and an id; the event time of its first row, the hash of that and
    its number among the rows of its group; and the event time of its last row.

    Windows that share rows, or of which one begins where the other ends, are one sequence. Others are replayed apart:
    rows are missing between them, and counting over the gap would shift all windows after it.
    """
    found = _row_window_tail(route)
    window, spans = _row_window(found), input_spans(found.input)
    group, number = key[:-1], rows[key[-1]].to_numpy()
    lanes = sort_arrays(rows, group)
    order = np.lexsort((number, *reversed(lanes)))
    ordered = rows.take(pa.array(order))
    begins = ordered[f"{LINEAGE_FROM}0"].to_numpy() + spans[0].high
    first = number[order] * window.step
    fresh = group_starts([lane[order] for lane in lanes], len(order)) if lanes else np.arange(len(order)) == 0
    fresh[1:] |= first[1:] > first[:-1] + window.size
    heads = np.flatnonzero(fresh)
    lasts = np.append(heads[1:], len(order))[: len(heads)] - 1
    at = pa.array(heads)
    columns = {f"_q{place}": ordered[name].take(at) for place, name in enumerate(group)}
    # In the order of their numbers windows end one after the other.
    ends = ordered[VS].to_numpy()[lasts]
    told_by = {
        _SEQUENCE_ID: np.arange(len(heads)),
        _SEQUENCE_START: begins[heads],
        _SEQUENCE_END: ends,
        _FIRST_NUMBER: first[heads],
    }
    whole = {**columns, **{name: pa.array(each, pa.int64()) for name, each in told_by.items()}}
    return pa.table({**whole, _FIRST_HASH: ordered[LINEAGE_FIRST_KEY].take(at)})


def recompute_results(
    plan: Plan, route: Route, frames: Mapping[str, DataFrame], lineage: pa.Table, key: Sequence[str]
) -> DataFrame:
    """The results whose lineage is given, and perhaps others, from the rows that they were made of."""
    if route.kind is RouteKind.ROW_WINDOWS:
        return replay_row_windows(route, frames, replay_sequences(route, lineage, key))
    return compile_plan(plan, frames)


def replay_row_windows(route: Route, frames: Mapping[str, DataFrame], of: pa.Table) -> DataFrame:
    """The results of all windows that lie wholly in the sequences, with the names of the plan."""
    found = _row_window_tail(route)
    rows = compile_rows(found.input, frames)
    session = rows.frame.sparkSession
    wanted = frame_of_rows(session, of, arrow_ddl(of.schema)).hint("broadcast")
    by = {f"_g{place}": rows.sql(expr) for place, expr in enumerate(found.node.by)}
    mine = [
        f"{VS} >= {_SEQUENCE_START} AND {VS} <= {_SEQUENCE_END}",
        *(f"_g{place} <=> _q{place}" for place in range(len(by))),
    ]
    placed = join_sql(select_columns(rows.frame, ["*"], **by), wanted, " AND ".join(mine))
    # Rows of the same time as the first one may come before it.
    numbers = {_PLACE: f"row_number() {window_sql([_SEQUENCE_ID], rows.order)}"}
    firsts = (
        f"min(IF({VS} = {_SEQUENCE_START} AND {_row_hash(rows)} = {_FIRST_HASH}, {_PLACE}, NULL)) "
        f"{window_sql([_SEQUENCE_ID])}"
    )
    placed = select_columns(select_columns(placed, ["*"], **numbers), ["*"], **{_START: firsts}).filter(
        f"{_PLACE} >= {_START}"
    )
    known = f"IF({_PLACE} = {_START}, {_FIRST_NUMBER}, NULL)"
    frame = select_columns(placed, [*rows.columns, VS, VE], **{_SEQUENCE: _SEQUENCE_ID, _KNOWN: known})
    apart = replace(rows, frame=frame, mode=EvaluationMode(None, (_SEQUENCE,), lineage=False))
    filled = compile_group(found.node, apart, _KNOWN)
    return named_frame(apply_operators(found.above, filled), [_SEQUENCE_ID]).drop(_SEQUENCE_ID)


# Lineage written beside results.


def stores_lineage(task: EvaluationTask) -> bool:
    """Whether lineage is stored for the query's results."""
    declared = task.query.checked.query.lineage is LineageMode.STORED
    return declared and why_no_stored_lineage(task.rewritten, task.route) is None


def stored_lineage_schema(task: EvaluationTask) -> pa.Schema:
    """The schema of stored lineage."""
    return lineage_schema(task.shape, lineage_columns(task.rewritten))


def write_step_lineage(
    task: EvaluationTask, given: StepInput, since: int, writer: ResultWriter, tasks: int
) -> list[NewBucket]:
    """Write the lineage of a step's results that begin from `since` on: in this process, or in `tasks` Spark tasks."""
    found = _lineage_frame(task, lineage_of_step(task.rewritten, task.route, task.step, given))
    since = max(since, task.results_from)
    after = f"{VS} <= {task.step.until}L" + (f" AND {VS} >= {since}L" if since > LOWEST else "")
    return _LineageWriter(writer, stored_lineage_schema(task), task.number).written(found.where(after), tasks)


def write_region_lineage(
    task: EvaluationTask, frames: Mapping[str, DataFrame], regions: Sequence[Extent], writer: ResultWriter, tasks: int
) -> list[NewBucket]:
    """Write the lineage of the results in regions, which have the names of results."""
    start, end = min(each.interval.start for each in regions), max(each.interval.end for each in regions)
    hull = f"{VS} < {min(end, task.step.until + 1)}L" + (f" AND {VS} >= {start}L" if start > LOWEST else "")
    found = _lineage_frame(task, lineage_of_rows(task.rewritten, task.route, frames)).where(hull)
    return _LineageWriter(writer, stored_lineage_schema(task), task.number, tuple(regions)).written(found, tasks)


def _lineage_frame(task: EvaluationTask, rows: DataFrame) -> DataFrame:
    """Lineage with the names of results."""
    key = [f"{quote_name(name)} AS {quote_name(task.kept_names[name])}" for name in task.plan.key]
    return select_sql(rows, *key, VS, *lineage_columns(task.rewritten))


@dataclass(frozen=True, slots=True)
class _LineageWriter:
    """Writes lineage. It crosses to Spark's workers."""

    writer: ResultWriter
    schema: pa.Schema
    run: int
    regions: tuple[Extent, ...] | None = None
    """Only lineage of results in these is written; None: all."""

    def written(self, rows: DataFrame, tasks: int) -> list[NewBucket]:
        if not tasks:
            return list(self._buckets(fetch_rows(rows)))
        made = fetch_rows(rows.repartitionByRange(tasks, VS).mapInArrow(self._task, arrow_ddl(BUCKET_ROW_SCHEMA)))
        return [bucket_from_row(each) for each in made.to_pylist()]

    def _task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read = [pa.Table.from_batches([each]) for each in batches if each.num_rows]
        if read:
            yield from bucket_batches(self._buckets(pa.concat_tables(read)))

    def _buckets(self, rows: pa.Table) -> list[NewBucket]:
        rows = conform(
            rows.append_column(EVALUATION, pa.repeat(pa.scalar(self.run, pa.int64()), rows.num_rows)), self.schema
        )
        if self.regions is not None:
            begins = rows[VS].to_numpy()
            rows = rows.take(pa.array(np.unique(parts_in_extents(rows, begins, begins + 1, self.regions).row)))
        return self.writer.write(Role.LINEAGE, rows)
