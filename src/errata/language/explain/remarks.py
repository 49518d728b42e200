"""Warnings and hints about a query before it runs: one sentence each, about one thing in the plan.

Each function yields the remarks on one subject for one node; a new subject is a function in the list of `plan_remarks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from errata.language.expr import EQUAL, SAME, Call, Expr, Ref, conjuncts, refs
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
    RowWindow,
    SlidingRows,
    TimeWindow,
    scans_of,
)
from errata.language.outer_joins import OuterJoin
from errata.language.patterns import update_pattern
from errata.language.plan import Plan, walk_plan
from errata.language.plan_text import expr_text, operator_exprs, operator_text, span_text
from errata.language.times import row_times
from errata.model.columns import FLOATING_KINDS
from errata.model.results import UpdatePattern


def plan_remarks(plan: Plan) -> tuple[str, ...]:
    """The remarks on a whole query, the most important first, each once."""
    found = [said for tell in _REMARKS for node in _written_operators(plan) for said in tell(plan, node)]
    return tuple(dict.fromkeys(found))


def _written_operators(plan: Plan) -> Iterator[Plan]:
    """The operators that the query's text has: of an outer join the pairs, not the copies that read the same inputs
    again."""
    yield plan
    for child in plan.inputs[:1] if isinstance(plan, OuterJoin) else plan.inputs:
        yield from _written_operators(child)


def _strict_remarks(root: Plan, node: Plan) -> Iterator[str]:
    """Where unforeseeable ends begin; only if they reach the answer."""
    if update_pattern(root) is not UpdatePattern.STRICT or update_pattern(node) is not UpdatePattern.STRICT:
        return
    below = node.inputs[:1] if isinstance(node, OuterJoin) else node.inputs
    if all(update_pattern(child) is not UpdatePattern.STRICT for child in below):
        yield f"The answer is strict (STR) because of `{operator_text(node)}`: {_strict_reason(node)}."


def _strict_reason(node: Plan) -> str:
    why = "what it reads changes whenever the next result of a key comes, and nobody knows when that will be"
    match node:
        case OuterJoin(branches=(Projection(input=RelationJoin(retroactive=False)), *_)):
            why = "rows without a version are those that a negation leaves, and of these no end is known beforehand"
        case OuterJoin():
            why = "a row stands without a partner only until one comes, and nobody knows when that will be"
        case Negation():
            why = "a row on the right takes one of the left back, and nobody knows when one will come"
        case RelationJoin(retroactive=True):
            why = "whenever the relation changes, rows that met its old version cease to count"
        case SlidingRows():
            why = "how long a row counts depends on when the next ones will come"
        case Group(window=RowWindow()):
            why = "a row that is added or taken away later moves the rows of all windows of its group after it"
    return why


def _window_remarks(_root: Plan, node: Plan) -> Iterator[str]:
    match node:
        case Group(window=TimeWindow(size=size, early=False), timed=timed):
            yield (
                f"A window of {span_text(size, timed=timed)} is published when it is closed: its result counts from the"
                " window's end on. Until then the newest rows are in no answer."
            )
        case Group(window=TimeWindow(size=size, early=True), timed=timed):
            yield (
                f"A window of {span_text(size, timed=timed)} is in the answer from its first row on, with "
                "a value for the"
                " time being; with the window's end it is final."
            )
        case Group(window=RowWindow(size=size)):
            yield f"A row window is published with the row that fills it: the last {size - 1} rows may still wait."


def _unbounded_state_remarks(_root: Plan, node: Plan) -> Iterator[str]:
    """State without a bound."""
    if isinstance(node, Join | Intersect | Negation):
        for child in node.inputs:
            if row_times(child).for_ever:
                names = ", ".join(dict.fromkeys(scan.source.name for scan in scans_of(child)))
                grouped = any(isinstance(each, Group | Distinct) for each in walk_plan(child))
                what = f"all results ever made of {names}" if grouped else f"every row that ever came from {names}"
                yield (
                    f"`{operator_text(node)}` keeps {what}, since none ceases to count."
                    " A window, such as sliding(…, '1 hour'), would bound that."
                )
    elif isinstance(node, Distinct) and row_times(node.input).for_ever:
        yield "`distinct` keeps every value that ever came: no row ceases to count."
    elif isinstance(node, Group) and node.window is None and row_times(node.input).for_ever:
        yield f"`{operator_text(node)}` is over all rows since the beginning: it has no window."


def _cross_join_remarks(_root: Plan, node: Plan) -> Iterator[str]:
    if isinstance(node, Join) and not any(_connects_sides(each, node) for each in conjuncts(node.condition)):
        yield (
            f"`{operator_text(node)}` has no equality between its sides: each row of one is tried with "
            "each of the other."
        )


def _connects_sides(part: Expr, node: Join) -> bool:
    """Whether it equates expressions of both sides."""
    if not (isinstance(part, Call) and part.name in (EQUAL, SAME)):
        return False
    sides = [refs(each) for each in part.args]
    left, right = set(node.left.types), set(node.right.types)
    return any(bool(a) and a <= left and bool(b) and b <= right for a, b in (sides, reversed(sides)))


def _empty_group_remarks(_root: Plan, node: Plan) -> Iterator[str]:
    if isinstance(node, Group) and not node.by and node.window is None:
        yield (
            f"`{operator_text(node)}` has no row while there is nothing to group: in particular no row "
            "with a count of 0."
        )


def _failure_remarks(_root: Plan, node: Plan) -> Iterator[str]:
    for expr in operator_exprs(node):
        if not never_fails(expr):
            yield f"`{expr_text(expr)}` can fail; one row for which it does stops the query."


def _similar_columns_remarks(root: Plan, node: Plan) -> Iterator[str]:
    if node is not root or not any(each.hidden for each in root.fields):
        return
    told = {name for name in root.key if not _is_hidden_column(root, name)}
    if isinstance(root, Projection):
        told |= root.kept.keys()
    pairs = [pair for each in walk_plan(root) for pair in _equal_columns(each)]
    while any((left in told) != (right in told) for left, right in pairs):
        told |= {name for pair in pairs if told & set(pair) for name in pair}
    unseen = sorted(set(root.key) - told)
    if unseen:
        yield (
            f"Rows of the answer are told apart by {', '.join(unseen)} too, which it does not show:"
            " rows that look alike can stand beside each other."
        )


def _is_hidden_column(plan: Plan, name: str) -> bool:
    return any(each.hidden for each in plan.fields if each.name == name)


def _equal_columns(node: Plan) -> Iterator[tuple[str, str]]:
    """Columns that have the same value in each row, because a condition says so."""
    if isinstance(node, Filter | Join | RelationJoin):
        for part in chain.from_iterable(map(conjuncts, operator_exprs(node))):
            match part:
                case Call(name="=" | "<=>", args=(Ref(name=left), Ref(name=right))):
                    yield left, right


def _rounding_remarks(_root: Plan, node: Plan) -> Iterator[str]:
    if isinstance(node, Group):
        named = [each.name for each in node.aggregates if _is_rounded(each)]
        if named:
            yield f"The last digits of {', '.join(named)} depend on the order in which rows are added up."


def _is_rounded(aggregate: Aggregate) -> bool:
    argument = aggregate.argument
    return (
        aggregate.function in ("sum", "avg", "stddev") and argument is not None and argument.type.kind in FLOATING_KINDS
    )


_REMARKS: tuple[Callable[[Plan, Plan], Iterator[str]], ...] = (
    _strict_remarks,
    _window_remarks,
    _unbounded_state_remarks,
    _cross_join_remarks,
    _empty_group_remarks,
    _similar_columns_remarks,
    _failure_remarks,
    _rounding_remarks,
)
