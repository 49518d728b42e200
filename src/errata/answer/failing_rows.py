"""Finds the one row, and the smallest expression, for which a plan fails.

First, from the plan alone: which expressions can fail for some row, and over which node they are computed, in the order
in which they are computed. Then, with few and small jobs: the first row for which one of them fails. Rows that could
fail are found by a condition where there is one (NULL where `try_…` gives NULL); otherwise the rows are cut into 64
parts by time and by key, a binary search finds the first part that fails, and parts of up to 1,000 rows are searched in
this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce, singledispatch
from typing import assert_never

import pyarrow as pa
from pyspark.sql import DataFrame

from errata.engine.failures import JOB_FAILURES
from errata.engine.frames import arrow_ddl, fetch_rows, frame_of_rows, group_sql, select_sql
from errata.engine.plans.node_rows import VE, VS, NodeRows, instant_sql
from errata.engine.plans.operators import split_condition
from errata.language.expr import (
    BOOLEAN,
    OR,
    Call,
    Case,
    Cast,
    Expr,
    Lit,
    Ref,
    children,
    conjunction,
    conjuncts,
    refs,
    transform_expr,
    walk_expr,
)
from errata.language.functions import never_fails
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Projection,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.plan import Plan, PlanError
from errata.model.columns import TypeKind

_TRY_FUNCTIONS = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}
"""For operators the functions that give NULL where the operators fail."""
_SAFE_DIGITS = 28
"""Digits of decimals up to which sums cannot overflow: a sum has ten digits more, of at most 38."""


@dataclass(frozen=True, slots=True)
class RowExpression:
    """An expression that is computed for each row."""

    expr: Expr
    where: str


@dataclass(frozen=True, slots=True)
class FallibleExpressions:
    """Expressions that can fail for some row of a node."""

    over: Plan
    all: tuple[RowExpression, ...]


@dataclass(frozen=True, slots=True)
class OverflowRisk:
    """An aggregate that can become too large for its type."""

    group: Group
    aggregate: Aggregate

    @property
    def tried(self) -> Group:
        """The groups with two columns last: the aggregate, NULL where it overflows, and the number of its values."""
        tried = replace(self.aggregate, function=f"try_{self.aggregate.function}")
        return replace(self.group, aggregates=(tried, replace(self.aggregate, function="count")))


def fallible_expressions(plan: Plan) -> Iterator[FallibleExpressions | OverflowRisk]:
    """All that can fail, each after what it is computed from."""
    for child in plan.inputs:
        yield from fallible_expressions(child)
    yield from _expressions_of_node(plan)


@singledispatch
def _expressions_of_node(plan: Plan) -> Iterator[FallibleExpressions | OverflowRisk]:
    raise PlanError(f"what can fail in {type(plan).__name__} is not known")


@_expressions_of_node.register(Scan)
@_expressions_of_node.register(Sliding)
@_expressions_of_node.register(SlidingRows)
@_expressions_of_node.register(Union)
@_expressions_of_node.register(Distinct)
@_expressions_of_node.register(Intersect)
@_expressions_of_node.register(Negation)
def _(_plan: Plan) -> Iterator[FallibleExpressions | OverflowRisk]:
    yield from ()


def _expressions_over(plan: Plan, computed: Sequence[RowExpression]) -> Iterator[FallibleExpressions]:
    risky = tuple(each for each in computed if not never_fails(each.expr))
    if risky:
        yield FallibleExpressions(plan, risky)


@_expressions_of_node.register
def _(plan: Filter) -> Iterator[FallibleExpressions | OverflowRisk]:
    yield from _expressions_of_predicate(
        plan.input, conjuncts(plan.predicate), "in HAVING" if _is_grouped(plan) else "in WHERE"
    )


def _is_grouped(plan: Filter) -> bool:
    below = plan.input
    while isinstance(below, Filter):
        below = below.input
    return isinstance(below, Group)


def _expressions_of_predicate(plan: Plan, parts: Sequence[Expr], where: str) -> Iterator[FallibleExpressions]:
    """A predicate over a node: conditions that cannot fail are applied first, the others to the rows that are left."""
    safe = conjunction([each for each in parts if never_fails(each)])
    risky = conjunction([each for each in parts if not never_fails(each)])
    if risky is not None:
        yield FallibleExpressions(plan if safe is None else Filter(plan, safe), (RowExpression(risky, where),))


@_expressions_of_node.register(Join)
@_expressions_of_node.register(RelationJoin)
def _(plan: Join | RelationJoin) -> Iterator[FallibleExpressions | OverflowRisk]:
    where = "in the condition of the join"
    equal, rest = split_condition(plan)
    sides = [arg for each in equal if isinstance(each, Call) for arg in each.args]
    for side in plan.inputs:
        yield from _expressions_over(
            side, [RowExpression(each, where) for each in sides if refs(each) <= side.types.keys()]
        )
    yield from _expressions_of_predicate(replace(plan, condition=conjunction(equal)), rest, where)


@_expressions_of_node.register
def _(plan: Projection) -> Iterator[FallibleExpressions | OverflowRisk]:
    yield from _expressions_over(
        plan.input, [RowExpression(each.expr, f"in column {each.name}") for each in plan.outputs]
    )


@_expressions_of_node.register
def _(plan: Group) -> Iterator[FallibleExpressions | OverflowRisk]:
    computed = [RowExpression(expr, "in GROUP BY") for expr in plan.by]
    computed += [
        RowExpression(each.argument, f"in {each.name}") for each in plan.aggregates if each.argument is not None
    ]
    yield from _expressions_over(plan.input, computed)
    yield from (OverflowRisk(plan, each) for each in plan.aggregates if _can_overflow(each))


def _can_overflow(aggregate: Aggregate) -> bool:
    if aggregate.argument is None or aggregate.function not in ("sum", "avg"):
        return False
    kind = aggregate.argument.type
    if kind.kind is TypeKind.DECIMAL:
        return kind.precision > _SAFE_DIGITS
    return aggregate.function == "sum" and kind.kind is TypeKind.BIGINT


def suspect_condition(expr: Expr) -> Expr | None:
    """A condition that is true for every row for which the expression fails, perhaps for others, and that cannot fail
    itself; None where there is no such."""
    risky = [each for each in walk_expr(expr) if _can_fail(each)]
    if not all(isinstance(each, Cast) or (isinstance(each, Call) and each.name in _TRY_FUNCTIONS) for each in risky):
        return None
    doubts: list[Expr] = []
    for each in risky:
        known = [Call("is_not_null", (_null_on_failure(arg),), BOOLEAN) for arg in children(each)]
        whole = conjunction([*known, Call("is_null", (_null_on_failure(each),), BOOLEAN)])
        doubts += [] if whole is None else [whole]
    return any_condition(doubts)


def any_condition(some: Sequence[Expr]) -> Expr | None:
    """The conditions joined by OR."""
    return reduce(lambda one, other: Call(OR, (one, other), BOOLEAN), some) if some else None


def _can_fail(expr: Expr) -> bool:
    """Whether it can fail itself, where its parts do not."""

    def known(part: Expr) -> Expr:
        return part if isinstance(part, Lit) else Ref("", part.type)

    match expr:
        case Call():
            return not never_fails(replace(expr, args=tuple(map(known, expr.args))))
        case Cast():
            return not never_fails(replace(expr, arg=known(expr.arg)))
        case Ref() | Lit() | Case():
            return False
        case _:
            assert_never(expr)


def _null_on_failure(expr: Expr) -> Expr:
    return transform_expr(expr, _without_failure)


def _without_failure(expr: Expr) -> Expr:
    if isinstance(expr, Cast):
        return replace(expr, safe=True)
    if isinstance(expr, Call) and expr.name in _TRY_FUNCTIONS and _can_fail(expr):
        return replace(expr, name=_TRY_FUNCTIONS[expr.name])
    return expr


def innermost_failure(expr: Expr, fails: Callable[[Expr], bool]) -> Expr:
    """The smallest part that fails of an expression that fails for a row. `fails` tells whether a part does.

    A part that is never computed may fail, too, so that parts are tried in the order of evaluation.
    """
    part = _failing_part(expr, lambda each: not never_fails(each) and fails(each))
    return expr if part is None else innermost_failure(part, fails)


def _failing_part(expr: Expr, fails: Callable[[Expr], bool]) -> Expr | None:
    match expr:
        case Call(name="if", args=(when, then, otherwise)):
            return _failing_branch(Case(((when, then),), otherwise, expr.type), fails)
        case Case():
            return _failing_branch(expr, fails)
    # Operators that stop early evaluate their first arguments.
    return next((each for each in children(expr) if fails(each)), None)


def _failing_branch(expr: Case, fails: Callable[[Expr], bool]) -> Expr | None:
    for number, (when, then) in enumerate(expr.branches, start=1):
        if fails(Case(expr.branches[:number], None, expr.type)):
            return when if fails(when) else then
    return expr.otherwise if expr.otherwise is not None and fails(expr.otherwise) else None


# The row for which an expression fails.

_LOCAL_ROWS = 1_000
"""Rows that are searched in this process, without further jobs."""
_CUTS = 64
"""Parts into which rows are cut, to find the first that fails by six jobs."""


@dataclass(frozen=True)
class FailingRow:
    """A row for which an expression fails."""

    computed: RowExpression
    row: pa.Table
    """The row as a table, with the names of the node's columns; `_vs` and `_ve` come last."""
    error: Exception


def any_row_fails(rows: NodeRows, found: FallibleExpressions) -> bool:
    """Whether any of the expressions fails for any of the rows."""
    return _job_fails(rows.frame, _probe_sql(rows, [each.expr for each in found.all]))


def find_failing_row(rows: NodeRows, found: FallibleExpressions) -> FailingRow | None:
    """The first row, in the order of time and key, for which any of the expressions fails, if it can be found."""
    probe = _probe_sql(rows, [each.expr for each in found.all])
    doubts = [suspect_condition(each.expr) for each in found.all]
    suspect = any_condition([each for each in doubts if each is not None]) if None not in doubts else None
    if suspect is not None:
        suspects = _first_rows(rows, rows.frame.filter(rows.sql(suspect)))
        if suspects.num_rows and (place := _first_failing(rows, suspects, probe)) is not None:
            return _explain_row(rows, found, suspects.slice(place, 1))
    suspects = _narrow_rows(rows, probe)
    place = _first_failing(rows, suspects, probe)
    return None if place is None else _explain_row(rows, found, suspects.slice(place, 1))


def _probe_sql(rows: NodeRows, exprs: Sequence[Expr]) -> str:
    """A number that is computed from all of the expressions."""
    return f"xxhash64({', '.join(map(rows.sql, exprs))})"


def _job_fails(frame: DataFrame, probe: str) -> bool:
    try:
        group_sql(frame, [], [f"max({probe})"]).collect()
    except JOB_FAILURES:
        return True
    return False


def _first_rows(rows: NodeRows, frame: DataFrame) -> pa.Table:
    """The first rows in the order of time and key. One more than the limit tells that there are others."""
    columns = [*rows.columns, VS, VE]
    order = [VS, *map(rows.column, rows.plan.key)]
    return fetch_rows(frame.select(*columns).orderBy(*order).limit(_LOCAL_ROWS + 1))


def _narrow_rows(rows: NodeRows, probe: str) -> pa.Table:
    """At most _LOCAL_ROWS rows of which one fails, if possible: cut by time three times, and then by key twice."""
    frame = rows.frame
    key = f"xxhash64({', '.join(map(rows.column, rows.plan.key)) or 0})"
    for position in (VS, VS, VS, key, key):
        suspects = _first_rows(rows, frame)
        if suspects.num_rows <= _LOCAL_ROWS or _first_failing(rows, suspects, probe) is not None:
            break
        frame = _first_failing_part(frame, position, probe)
    return suspects


def _first_failing_part(frame: DataFrame, position: str, probe: str) -> DataFrame:
    """The first part in which the expression fails, of _CUTS about equally large ones by position."""
    shares = ", ".join(f"{number / _CUTS}D" for number in range(1, _CUTS))
    cuts = group_sql(frame, [], [f"approx_percentile({position}, array({shares}))"]).collect()[0][0]
    ends = sorted(set(cuts or ()))
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if _job_fails(frame.filter(f"{position} <= {instant_sql(ends[middle])}"), probe):
            high = middle
        else:
            low = middle + 1
    if low < len(ends):
        frame = frame.filter(f"{position} <= {instant_sql(ends[low])}")
    return frame.filter(f"{position} > {instant_sql(ends[low - 1])}") if low else frame


def _first_failing(rows: NodeRows, suspects: pa.Table, probe: str) -> int | None:
    """The index of the first row that fails."""
    if _failure_of(rows, suspects, probe) is None:
        return None
    low, high = 0, suspects.num_rows - 1
    while low < high:
        middle = (low + high) // 2
        if _failure_of(rows, suspects.slice(low, middle - low + 1), probe) is not None:
            high = middle
        else:
            low = middle + 1
    return low


def _failure_of(rows: NodeRows, suspects: pa.Table, probe: str) -> Exception | None:
    """The error that rows in memory cause, if any; no job is needed."""
    local = frame_of_rows(rows.frame.sparkSession, suspects, arrow_ddl(suspects.schema))
    try:
        select_sql(local, probe).collect()
    except JOB_FAILURES as error:
        return error
    return None


def _explain_row(rows: NodeRows, found: FallibleExpressions, row: pa.Table) -> FailingRow | None:
    """The smallest expression that fails for the row."""

    def failing(expr: Expr) -> bool:
        return _failure_of(rows, row, _probe_sql(rows, [expr])) is not None

    computed = next((each for each in found.all if failing(each.expr)), None)
    if computed is None:
        return None
    smallest = innermost_failure(computed.expr, failing)
    error = _failure_of(rows, row, _probe_sql(rows, [smallest]))
    if error is None:
        return None
    named = row.rename_columns([*(each.name for each in rows.plan.fields), VS, VE])
    return FailingRow(RowExpression(smallest, computed.where), named, error)
