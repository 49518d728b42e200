"""Filter, projection, union, joins, distinct and intersection, over rows with lifetimes or at one instant.

A join pairs rows whose lifetimes overlap; distinct and intersection merge lifetimes of equal rows into maximal
intervals, with one sort per value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame

from errata.engine.frames import group_sql, join_sql, select_sql, spark_type, union_by_position
from errata.engine.frames import join_sql as joined_on
from errata.engine.plans.node_rows import (
    EARLIER_ROWS,
    OPEN_END,
    RIGHT_PREFIX,
    ROWS_UP_TO_NOW,
    TS,
    VALUE_COLUMN,
    VE,
    VS,
    NodeRows,
    column_at,
    columns_at,
    lineage_columns,
    merged_lineage,
    select_columns,
    struct_sql,
    window_sql,
)
from errata.language.expr import EQUAL, SAME, Call, Expr, conjunction, conjuncts, refs
from errata.language.functions import never_fails
from errata.language.nodes import Distinct, Filter, Intersect, Join, Projection, RelationJoin, Union
from errata.language.plan import Plan, PlanError
from errata.language.times import OwnTime, row_times

_ISLAND_COLUMN, _ENDED_BEFORE = "_island", "_before"


def merge_lifetimes(frame: DataFrame, by: Sequence[str], lineage: Sequence[str] = ()) -> DataFrame:
    """For each value, the maximal intervals in which a row with it counts."""
    begun = select_columns(
        frame, [*by, VS, VE, *lineage], **{_ENDED_BEFORE: f"max({VE}) {window_sql(by, [VS], EARLIER_ROWS)}"}
    )
    # Rows that begin together are in the same interval in any order, so its beginning identifies it.
    begins = f"CASE WHEN {_ENDED_BEFORE} IS NULL OR {VS} > {_ENDED_BEFORE} THEN {VS} END"
    marked = select_columns(
        begun, [*by, VE, *lineage], **{_ISLAND_COLUMN: f"max({begins}) {window_sql(by, [VS], ROWS_UP_TO_NOW)}"}
    )
    merged = [f"{text} AS {name}" for name, text in merged_lineage(lineage).items()]
    whole = group_sql(marked, [*by, _ISLAND_COLUMN], [f"max({VE}) AS {VE}", *merged])
    return select_sql(whole, *by, f"{_ISLAND_COLUMN} AS {VS}", VE, *lineage)


# Operators on single rows: filters, projections, unions.


def compile_filter(plan: Filter, below: NodeRows) -> NodeRows:
    """Rows for which the predicate is true."""
    live = None if below.mode.at is not None else f"{VS} < {VE}"
    return below.for_node(plan, below.frame.filter(guard_predicate(below, plan.predicate, live)))


def guard_predicate(rows: NodeRows, predicate: Expr | None, when: str | None) -> str:
    """A predicate whose fallible parts are evaluated only for rows that exist.

    Spark may push a filter into a join below, and would then evaluate it for pairs that never counted at the same time.
    """
    parts = conjuncts(predicate)
    safe = [f"({rows.sql(part)})" for part in parts if when is None or never_fails(part)]
    risky = [f"({rows.sql(part)})" for part in parts if when is not None and not never_fails(part)]
    if risky:
        # As a number: for booleans the near engine evaluates both branches.
        safe.append(f"CASE WHEN {when} THEN IF({' AND '.join(risky)}, 1, 0) ELSE 0 END = 1")
    return " AND ".join(safe) or "TRUE"


def compile_projection(plan: Projection, below: NodeRows) -> NodeRows:
    """New columns, and the carried columns of the key."""
    texts = [*(below.sql(output.expr) for output in plan.outputs), *map(below.column, plan.carried)]
    columns = [f"{text} AS {column_at(at)}" for at, text in enumerate(texts)]
    return below.for_node(plan, select_sql(below.frame, *columns, *below.extra_columns))


def compile_union(plan: Union, branches: Sequence[NodeRows]) -> NodeRows:
    """The rows of all branches."""
    whole = NodeRows(plan, branches[0].frame, branches[0].mode, range(branches[0].scans.start, branches[-1].scans.stop))
    parts = [_union_branch(plan, number, whole, rows) for number, rows in enumerate(branches)]
    return whole.for_node(plan, union_by_position(*parts))


def _union_branch(plan: Union, number: int, whole: NodeRows, rows: NodeRows) -> DataFrame:
    columns = [*rows.visible(), str(number)]
    if plan.key_positions is None:
        for other, branch in enumerate(plan.branches):
            for name in branch.key:
                missing = f"CAST(NULL AS {spark_type(branch.types[name]).simpleString()})"
                columns.append(rows.column(name) if other == number else missing)
    named = [f"{text} AS {column_at(at)}" for at, text in enumerate(columns)]
    start = row_times(plan.branches[number]).own is OwnTime.START
    times = [f"{VS if name == TS and start else name} AS {name}" for name in whole.times]
    lineage = [
        f"{name if scan in rows.scans else 'CAST(NULL AS BIGINT)'} AS {name}"
        for scan in (whole.scans if whole.mode.lineage else ())
        for name in lineage_columns(scan)
    ]
    return select_sql(rows.frame, *named, *whole.mode.scope, *times, *lineage)


# Joins: of rows that count at the same time, and of rows with the version of a relation at their own time.


def compile_join(plan: Join | RelationJoin, left: NodeRows, right: NodeRows) -> NodeRows:
    """Pairs that fulfil the condition, for as long as both count."""
    together = [] if left.mode.at is not None else _lifetimes_meet(left, right)
    return _join_pairs(plan, left, right, right.times, together)


def compile_relation_join(plan: RelationJoin, left: NodeRows, versions: NodeRows) -> NodeRows:
    """Rows with the versions that were valid at their own time, for the rows' lifetimes."""
    if left.own is None:
        raise PlanError("rows without a time of their own see no version", where="RelationJoin")
    valid = [f"{RIGHT_PREFIX}{VS} <= {left.own}", f"{left.own} < {RIGHT_PREFIX}{VE}"]
    return _join_pairs(plan, left, versions, [VS, VE], valid)


def _lifetimes_meet(left: NodeRows, right: NodeRows) -> list[str]:
    """The conditions under which two lifetimes overlap; an open end is after everything."""
    needed = [] if right.row_times.for_ever else [f"{VS} < {RIGHT_PREFIX}{VE}"]
    return needed + ([] if left.row_times.for_ever else [f"{RIGHT_PREFIX}{VS} < {VE}"])


def _join_pairs(
    plan: Join | RelationJoin, left: NodeRows, right: NodeRows, their_times: Sequence[str], together: Sequence[str]
) -> NodeRows:
    way = left.mode
    pair = NodeRows(plan, left.frame, way, range(left.scans.start, right.scans.stop))
    theirs = columns_at(len(right.plan.fields), len(left.plan.fields))
    renamed = select_columns(
        right.frame,
        right.lineage,
        **{name: column_at(at) for at, name in enumerate(theirs)},
        **{f"{RIGHT_PREFIX}{name}": name for name in (*way.scope, *their_times)},
    )
    scope = [f"{name} = {RIGHT_PREFIX}{name}" for name in way.scope]
    equal, rest = split_condition(plan)
    parts = [*scope, *(pair.sql(part) for part in equal), *together]
    parts.append(guard_predicate(pair, conjunction(rest), " AND ".join(together) or None))
    found = joined_on(left.frame, renamed, " AND ".join(f"({part})" for part in parts))
    columns = [*left.columns, *theirs, *way.scope, *pair.lineage]
    return pair.for_node(plan, select_columns(found, columns, **dict(_pair_times(plan, left, right))))


def split_condition(plan: Join | RelationJoin) -> tuple[list[Expr], list[Expr]]:
    """The condition's equalities between the sides, by which Spark finds the pairs, and the rest."""
    equal: list[Expr] = []
    rest: list[Expr] = []
    sides = (set(plan.left.types), set(plan.right.types))
    for part in conjuncts(plan.condition):
        across = isinstance(part, Call) and part.name in (EQUAL, SAME) and _is_across(part.args, sides)
        (equal if across else rest).append(part)
    return equal, rest


def _is_across(args: tuple[Expr, ...], sides: tuple[set[str], set[str]]) -> bool:
    read = [refs(each) for each in args]
    return all(read) and any(read[0] <= one and read[1] <= other for one, other in (sides, sides[::-1]))


def _pair_times(plan: Plan, left: NodeRows, right: NodeRows) -> Iterable[tuple[str, str]]:
    """The times of a pair, from those of its sides."""
    as_of = isinstance(plan, RelationJoin) and not plan.retroactive
    if as_of:
        return [(name, name) for name in left.times]
    found = []
    if left.mode.at is None:
        found = [(VS, f"greatest({VS}, {RIGHT_PREFIX}{VS})"), (VE, f"least({VE}, {RIGHT_PREFIX}{VE})")]
    elif row_times(plan).own is OwnTime.START:
        found = [(VS, f"greatest({VS}, {RIGHT_PREFIX}{VS})")]
    if row_times(plan).own is OwnTime.KEPT:
        owns = [left.own or ""] if isinstance(plan, RelationJoin) else [left.own or "", f"{RIGHT_PREFIX}{right.own}"]
        found.append((TS, f"greatest({', '.join(owns)})" if len(owns) > 1 else owns[0]))
    return found


# Distinct and intersection: each value once, while any row with it counts.


def compile_distinct(plan: Distinct, below: NodeRows) -> NodeRows:
    """Each combination of visible columns once."""
    columns = {column_at(at): text for at, text in enumerate(below.comparable_columns())}
    frame = select_columns(below.frame, below.extra_columns, **columns)
    return below.for_node(plan, _distinct_values(below, frame, [*below.mode.scope, *columns]))


def _distinct_values(below: NodeRows, frame: DataFrame, by: Sequence[str]) -> DataFrame:
    """Each combination of columns once; with lifetimes if the whole history is computed."""
    merged = merged_lineage(below.lineage)
    if below.mode.at is None and not below.row_times.for_ever:
        return merge_lifetimes(frame, by, below.lineage)
    if below.mode.at is None:
        merged = {VS: f"min({VS})", VE: OPEN_END, **merged}
    aggregates = [f"{text} AS {name}" for name, text in merged.items()]
    return group_sql(frame, by, aggregates) if aggregates else frame.select(*by).distinct()


def compile_intersection(plan: Intersect, left: NodeRows, right: NodeRows) -> NodeRows:
    """Each combination of visible columns once, while both sides have it."""
    whole = NodeRows(plan, left.frame, left.mode, range(left.scans.start, right.scans.stop))
    by = [*left.mode.scope, VALUE_COLUMN]
    mine, theirs = (
        _distinct_values(
            rows,
            select_columns(rows.frame, rows.extra_columns, **{VALUE_COLUMN: struct_sql(rows.comparable_columns())}),
            by,
        )
        for rows in (left, right)
    )
    parts = [f"{name} = {RIGHT_PREFIX}{name}" for name in by]
    times = {}
    if left.mode.at is None:
        parts += [f"{VS} < {RIGHT_PREFIX}{VE}", f"{RIGHT_PREFIX}{VS} < {VE}"]
        times = {VS: f"greatest({VS}, {RIGHT_PREFIX}{VS})", VE: f"least({VE}, {RIGHT_PREFIX}{VE})"}
    renamed = select_columns(theirs, right.lineage, **{f"{RIGHT_PREFIX}{name}": name for name in (*by, *times)})
    found = join_sql(mine, renamed, " AND ".join(parts))
    unpacked = {column_at(at): f"{VALUE_COLUMN}.v{at}" for at in range(len(plan.fields))}
    return whole.for_node(plan, select_columns(found, [*left.mode.scope, *whole.lineage], **unpacked, **times))
