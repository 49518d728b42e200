"""Plans compiled to DataFrames: `compile_plan` for a whole plan, `compile_rows` and `apply_operators` for parts of one;
also scans and sliding windows.

Nodes are compiled bottom up, each from its inputs' `NodeRows`. Nothing is read until the resulting frame is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from pyspark.sql import DataFrame

from errata.engine.frames import select_sql, with_columns
from errata.engine.near import is_near
from errata.engine.plans.grouping import compile_group
from errata.engine.plans.negation import compile_negation
from errata.engine.plans.node_rows import (
    OPEN_END,
    VE,
    VS,
    EvaluationMode,
    InputFrames,
    NodeRows,
    add_to_instant,
    column_at,
    distinguishable,
    instant_sql,
    lineage_columns,
    quote_name,
    select_columns,
    window_sql,
)
from errata.engine.plans.operators import (
    compile_distinct,
    compile_filter,
    compile_intersection,
    compile_join,
    compile_projection,
    compile_relation_join,
    compile_union,
)
from errata.errors import unknown_name_error
from errata.language.expr import TIMESTAMP
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
    Union,
)
from errata.language.plan import Plan, PlanError, Source
from errata.model.time import HIGHEST, LOWEST

_PUSHED_OUT, _STRETCH_NUMBER, _FIRST_NUMBER = "_pushed", "_stretch", "_first"

ROW_WINDOW_TASKS = 8
"""Tasks of Spark from which the ends of rows in a window over rows are found in parallel. That costs two to three times
the work of one task, in which rows are moved and sorted once."""


def compile_scan(plan: Scan, frame: DataFrame, way: EvaluationMode, number: int, scope: tuple[str, ...]) -> NodeRows:
    """The rows of a source; for one instant, those that count then."""
    rows = scan_history(plan, frame, way, number, scope)
    if way.at is None:
        return rows
    now = instant_sql(way.at)
    live = rows.frame.filter(f"{VS} <= {now}" if rows.row_times.for_ever else f"{VS} <= {now} AND {now} < {VE}")
    return NodeRows(plan, live.select(*rows.columns, *rows.extra_columns), way, rows.scans)


def scan_history(plan: Scan, frame: DataFrame, way: EvaluationMode, number: int, scope: tuple[str, ...]) -> NodeRows:
    """All rows of a source, with lifetimes in any mode."""
    source = plan.source
    columns = [f"{quote_name(plan.of_source(field.name))} AS {column_at(at)}" for at, field in enumerate(plan.fields)]
    named = [f"{quote_name(name)} AS {inner}" for name, inner in zip(scope, way.scope, strict=True)]
    times = _source_lifetime(source)
    gone = [] if source.deleted is None else [f"{quote_name(source.deleted)} AS _gone"]
    lineage = [f"{times[VS]} AS {each}" for each in lineage_columns(number)] if way.lineage else []
    if source.kind.is_relation:
        types = {each.name: each.type for each in source.fields}
        near = is_near(frame.sparkSession)
        thing = [
            *map(quote_name, scope),
            *(distinguishable(quote_name(name), types[name], near=near) for name in source.key),
        ]
        times[VE] = f"coalesce(lead({times[VS]}) {window_sql(thing, [times[VS]])}, {OPEN_END})"
    lived = [f"{text} AS {name}" for name, text in times.items()]
    read = select_sql(frame, *columns, *named, *lived, *lineage, *gone)
    if gone:
        read = read.filter("NOT coalesce(_gone, FALSE)").drop("_gone")
    return NodeRows(plan, read if source.timed else read.filter(f"{VS} < {VE}"), way, range(number, number + 1))


def _source_lifetime(source: Source) -> dict[str, str]:
    if source.plan is not None:
        return {VS: VS, VE: VE}
    if source.order is None:
        raise PlanError("it is not known from when a row counts", where=source.name)
    kind = next(each.type for each in source.fields if each.name == source.order)
    order = quote_name(source.order)
    return {VS: f"unix_micros({order})" if kind == TIMESTAMP else f"CAST({order} AS BIGINT)", VE: OPEN_END}


def compile_sliding(plan: Sliding, below: NodeRows) -> NodeRows:
    """Rows that count for a span only."""
    _require_own_time(plan, below)
    at = below.mode.at
    if at is not None:
        return below.for_node(plan, below.frame.filter(f"{VS} > {instant_sql(max(at - plan.span, LOWEST))}"))
    ends = add_to_instant(VS, plan.span)
    return below.for_node(plan, with_columns(below.frame, {VE: f"least({VE}, {ends})"}))


def compile_sliding_rows(plan: SlidingRows, below: NodeRows) -> NodeRows:
    """Rows that count until a number of rows have come after them."""
    _require_own_time(plan, below)
    if below.mode.at is not None:
        newest = window_sql(below.mode.scope, [f"{name} DESC NULLS LAST" for name in below.order])
        numbered = select_columns(below.frame, ["*"], _newer=f"row_number() {newest}")
        return below.for_node(plan, numbered.filter(f"_newer <= {plan.rows}").drop("_newer"))
    oldest = [f"{name} ASC NULLS FIRST" for name in below.order]
    if _task_count(below) < ROW_WINDOW_TASKS:
        pushed = with_columns(
            below.frame, {_PUSHED_OUT: f"lead({VS}, {plan.rows}) {window_sql(below.mode.scope, oldest)}"}
        )
    else:
        pushed = _push_out_parallel(below, plan.rows, oldest)
    ended = with_columns(pushed, {VE: f"least({VE}, {_PUSHED_OUT})"}).drop(_PUSHED_OUT)
    return below.for_node(plan, ended.filter(f"{VS} < {VE}"))


def _task_count(below: NodeRows) -> int:
    """The number of tasks after a shuffle."""
    return 1 if below.near else int(below.frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _push_out_parallel(below: NodeRows, count: int, oldest: Sequence[str]) -> DataFrame:
    """The rows with the vs of the row that is `count` rows later in the one order of all, in many tasks.

    Rows are partitioned into intervals of time; equal times stay together. Within an interval all rows but the last
    `count` find theirs. The last rows of every interval look among the first and last `count` rows of every interval:
    the `count` rows that follow any of them are all there. So the one task that has these has no more rows than that.
    """
    apart = below.mode.scope
    parted = select_columns(below.frame.repartitionByRange(VS), ["*"], **{_STRETCH_NUMBER: "spark_partition_id()"})
    within = window_sql([*apart, _STRETCH_NUMBER], oldest)
    found = {_PUSHED_OUT: f"lead({VS}, {count}) {within}", _FIRST_NUMBER: f"row_number() {within}"}
    edge = f"IF({_PUSHED_OUT} IS NULL OR {_FIRST_NUMBER} <= {count}, -1, {_STRETCH_NUMBER})"
    marked = with_columns(select_columns(parted, ["*"], **found), {_STRETCH_NUMBER: edge}).drop(_FIRST_NUMBER)
    further = f"coalesce({_PUSHED_OUT}, lead({VS}, {count}) {window_sql([*apart, _STRETCH_NUMBER], oldest)})"
    return with_columns(marked, {_PUSHED_OUT: further}).drop(_STRETCH_NUMBER)


def _require_own_time(plan: Plan, below: NodeRows) -> None:
    if not below.row_times.happened:
        raise PlanError("a window needs rows that happened", where=type(plan).__name__)


# Plans to DataFrames.


def compile_plan(
    plan: Plan,
    frames: InputFrames,
    *,
    at: int | None = None,
    scope: Sequence[str] = (),
    lineage: bool = False,
    since: int | None = None,
) -> DataFrame:
    """The plan over its sources' rows, by their names: the plan's columns, `_vs` and `_ve`, the scope and the lineage.

    A stream and a relation are frames of their declared columns; a query is a frame of its result's columns, hidden
    ones too, with `_vs` and `_ve`. With `at` the result is the answer at that instant, computed with plain operators,
    and the lifetimes are `[at, at + 1)`. The `scope` are columns of every frame, never NULL, that keep data sets apart.
    The `lineage` is `_from_<i>` and `_to_<i>`: the least and greatest vs of the rows of the plan's i-th scan that the
    row was made of; NULL if there was none. With `since`, rows that have ended by then are left out wherever they do
    not affect later ones: the frames need not hold the rows that only these are made of, and no result is computed from
    a part of its rows.
    """
    if at == HIGHEST:
        raise PlanError("nothing counts at the end of time")
    return named_frame(
        _PlanInputs(frames, tuple(scope), _evaluation_mode(at, scope, lineage=lineage)).rows(plan, 0, since), scope
    )


def compile_rows(plan: Plan, frames: InputFrames, scope: Sequence[str] = ()) -> NodeRows:
    """The rows of a node, with whole histories, in the form that operators take; `apply_operators` and `named_frame`
    continue from there."""
    return _PlanInputs(frames, tuple(scope), _evaluation_mode(None, scope, lineage=False)).rows(plan, 0)


def apply_operators(nodes: Sequence[Plan], rows: NodeRows) -> NodeRows:
    """The rows of stacked operators, the lowest first, over the rows of the node below them."""
    for node in nodes:
        rows = _compile_node(node, [rows])
    return rows


def named_frame(rows: NodeRows, scope: Sequence[str] = ()) -> DataFrame:
    """The rows of a node in the form of `compile_plan`."""
    way = rows.mode
    columns = [f"{column_at(number)} AS {quote_name(each.name)}" for number, each in enumerate(rows.plan.fields)]
    times = [VS, VE] if way.at is None else [f"{instant_sql(way.at)} AS {VS}", f"{way.at + 1}L AS {VE}"]
    apart = [f"{inner} AS {quote_name(name)}" for inner, name in zip(way.scope, scope, strict=True)]
    return select_sql(rows.frame, *columns, *times, *apart, *rows.lineage)


def _evaluation_mode(at: int | None, scope: Sequence[str], *, lineage: bool) -> EvaluationMode:
    return EvaluationMode(at, tuple(f"_s{number}" for number in range(len(scope))), lineage)


@dataclass(frozen=True)
class _PlanInputs:
    """The frames of a plan's scans, and the mode of evaluation."""

    frames: InputFrames
    scope: tuple[str, ...]
    way: EvaluationMode

    def rows(self, plan: Plan, number: int, since: int | None = None) -> NodeRows:
        """The rows of a node whose first scan has that number; rows that have ended by `since` are left out."""
        found = self._rows(plan, number, since)
        if since is None or found.row_times.for_ever:
            return found
        return found.for_node(plan, found.frame.filter(f"{VE} > {instant_sql(since)}"))

    def _rows(self, plan: Plan, number: int, since: int | None) -> NodeRows:
        if isinstance(plan, Scan):
            return compile_scan(plan, self._frame(plan), self.way, number, self.scope)
        if isinstance(plan, RelationJoin) and not plan.retroactive:
            left = self.rows(plan.left, number, since)
            versions = scan_history(plan.relation, self._frame(plan.relation), self.way, left.scans.stop, self.scope)
            return compile_relation_join(plan, left, versions)
        inputs: list[NodeRows] = []
        # How many rows came after another does not depend on whether they still count.
        by_rows = isinstance(plan, SlidingRows) or (isinstance(plan, Group) and isinstance(plan.window, RowWindow))
        for child in plan.inputs:
            inputs.append(self.rows(child, number, None if by_rows else since))
            number = inputs[-1].scans.stop
        return _compile_node(plan, inputs)

    def _frame(self, plan: Scan) -> DataFrame:
        name = plan.source.name
        if name not in self.frames:
            raise unknown_name_error("source", name, list(self.frames))
        return self.frames[name]


@singledispatch
def _compile_node(plan: Plan, _inputs: Sequence[NodeRows]) -> NodeRows:
    raise PlanError(f"{type(plan).__name__} cannot be evaluated")


@_compile_node.register
def _(plan: Sliding, inputs: Sequence[NodeRows]) -> NodeRows:
    return compile_sliding(plan, inputs[0])


@_compile_node.register
def _(plan: SlidingRows, inputs: Sequence[NodeRows]) -> NodeRows:
    return compile_sliding_rows(plan, inputs[0])


@_compile_node.register
def _(plan: Filter, inputs: Sequence[NodeRows]) -> NodeRows:
    return compile_filter(plan, inputs[0])


@_compile_node.register
def _(plan: Projection, inputs: Sequence[NodeRows]) -> NodeRows:
    return compile_projection(plan, inputs[0])


@_compile_node.register(Join)
@_compile_node.register(RelationJoin)
def _(plan: Join | RelationJoin, inputs: Sequence[NodeRows]) -> NodeRows:
    return compile_join(plan, inputs[0], inputs[1])


@_compile_node.register
def _(plan: Union, inputs: Sequence[NodeRows]) -> NodeRows:
    return compile_union(plan, inputs)


@_compile_node.register
def _(plan: Distinct, inputs: Sequence[NodeRows]) -> NodeRows:
    return compile_distinct(plan, inputs[0])


@_compile_node.register
def _(plan: Intersect, inputs: Sequence[NodeRows]) -> NodeRows:
    return compile_intersection(plan, inputs[0], inputs[1])


@_compile_node.register
def _(plan: Negation, inputs: Sequence[NodeRows]) -> NodeRows:
    return compile_negation(plan, inputs[0], inputs[1])


@_compile_node.register
def _(plan: Group, inputs: Sequence[NodeRows]) -> NodeRows:
    return compile_group(plan, inputs[0])
