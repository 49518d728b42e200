"""What a rewrite rule is, where an expression may be moved, and which traits of a node the operators above it observe.

Every rule keeps three conditions: the answer is the same at every instant; an expression that can fail sees no rows
that it does not see already; and nothing changes that an operator above observes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial, singledispatch

from errata.language.cost import DefaultStatistics, Statistics, plan_cost
from errata.language.expr import EQUAL, SAME, Call, Expr, Ref, children, refs, transform_expr, walk_expr
from errata.language.functions import never_fails
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
from errata.language.plan import Plan, PlanError
from errata.model.columns import FLOATING_KINDS

PlanChange = Callable[[Plan], Plan]


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """A change of a plan that keeps its answer at every instant."""

    name: str
    """As `errata explain` prints it."""
    apply: Callable[[Plan, Statistics], Plan]


def always_apply(name: str, change: PlanChange) -> RewriteRule:
    """A rule that makes no plan more expensive."""
    return RewriteRule(name, lambda plan, _statistics: change(plan))


def apply_unless_dearer(name: str, change: PlanChange) -> RewriteRule:
    """A rule that is usually an improvement; not applied where statistics show that the plan becomes more expensive."""

    def apply(plan: Plan, statistics: Statistics) -> Plan:
        changed = change(plan)
        kept = has_no_statistics(statistics) or changed is plan or _is_no_dearer(changed, plan, statistics)
        return changed if kept else plan

    return RewriteRule(name, apply)


def has_no_statistics(statistics: Statistics) -> bool:
    """Whether there are no statistics of the sources."""
    return isinstance(statistics, DefaultStatistics)


def apply_where_cheaper(plan: Plan, change: PlanChange, statistics: Statistics) -> Plan:
    """The plan with single nodes changed, the lowest first, wherever the whole plan does not become more expensive."""
    return _if_cheaper(plan, change, statistics, lambda whole: whole)


def _if_cheaper(node: Plan, change: PlanChange, statistics: Statistics, around: PlanChange) -> Plan:
    for place, child in enumerate(node.inputs):
        new = _if_cheaper(child, change, statistics, partial(_plan_around, node, place, around))
        node = node if new is child else _with_input(node, place, new)
    changed = change(node)
    if changed is node or not _is_no_dearer(around(changed), around(node), statistics):
        return node
    return changed


def _plan_around(node: Plan, place: int, around: PlanChange, new: Plan) -> Plan:
    return around(_with_input(node, place, new))


def _with_input(node: Plan, place: int, new: Plan) -> Plan:
    return node.with_inputs([new if at == place else child for at, child in enumerate(node.inputs)])


def _is_no_dearer(new: Plan, old: Plan, statistics: Statistics) -> bool:
    return plan_cost(new, statistics).total <= plan_cost(old, statistics).total


# Where an expression may be moved: it cannot fail, and it treats equal values alike.

COMPARISONS = frozenset((EQUAL, SAME, "<>", "<", "<=", ">", ">="))
_EQUALITY_SAFE = COMPARISONS | {"in", "is_null", "is_not_null"}
"""Operators to which −0.0 is the same as 0.0."""
_MAX_GROWTH = 100


def none_can_fail(parts: Iterable[Expr]) -> bool:
    """Whether no expression can fail, whatever the rows."""
    return all(never_fails(each) for each in parts)


def treats_equals_alike(expr: Expr, columns: Iterable[str]) -> bool:
    """Whether the expression has the same value for all rows that are equal in these columns. Equal values can differ:
    −0.0 = 0.0, but their texts differ."""
    return _is_equality_safe(expr, frozenset(columns))


def _is_equality_safe(expr: Expr, columns: frozenset[str]) -> bool:
    if _is_float(expr, columns):
        return False
    blind = isinstance(expr, Call) and expr.name in _EQUALITY_SAFE
    return all((blind and _is_float(each, columns)) or _is_equality_safe(each, columns) for each in children(expr))


def _is_float(expr: Expr, columns: frozenset[str]) -> bool:
    return isinstance(expr, Ref) and expr.name in columns and expr.type.kind in FLOATING_KINDS


def substitute_columns(expr: Expr, values: Mapping[str, Expr]) -> Expr | None:
    """The expression with columns replaced by the expressions that define them; None where it would grow too much."""
    grown = {name: sum(1 for _ in walk_expr(value)) - 1 for name, value in values.items()}
    growth = sum(grown.get(each.name, 0) for each in walk_expr(expr) if isinstance(each, Ref))
    return None if growth > _MAX_GROWTH else replace_columns(expr, values)


def replace_columns(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with other expressions in place of columns."""
    return transform_expr(expr, lambda each: values.get(each.name, each) if isinstance(each, Ref) else each)


def projection_exprs(plan: Projection) -> dict[str, Expr]:
    """By column of a projection: its expression over the columns below."""
    carried: dict[str, Expr] = {name: plan.input.ref(name) for name in plan.carried}
    return carried | {output.name: output.expr for output in plan.outputs}


def equal_column_pairs(parts: Iterable[Expr]) -> list[tuple[Ref, Ref]]:
    """The pairs of columns of one type that the conditions equate."""
    found = []
    for each in parts:
        if isinstance(each, Call) and each.name in (EQUAL, SAME):
            left, right = each.args
            if isinstance(left, Ref) and isinstance(right, Ref) and left.type == right.type:
                found.append((left, right))
    return found


def is_unique_by(plan: Plan, columns: Iterable[str]) -> bool:
    """Whether at each instant no two rows have equal values in these columns."""
    return set(plan.key) <= set(columns)


# The traits of a node that operators above it observe, besides its visible columns and lifetimes.
#
# A rule may change only traits that no operator observes. Some operators take columns by position, some order rows by
# the key, column after column, some use a row's own time: first and last, windows over rows, a negation that keeps the
# youngest.


@dataclass(frozen=True, slots=True)
class VisibleTraits:
    """The observed traits of a node."""

    positions: bool = False
    """The order of its columns."""
    order: bool = False
    """The order of its key's columns, which breaks ties between rows of the same time."""
    key: bool = False
    """The set of its key's columns."""
    own: bool = False
    """The own times of its rows."""

    @property
    def identity(self) -> bool:
        """Whether a trait is observed that distinguishes rows of equal visible columns."""
        return self.order or self.key or self.own


ROOT_TRAITS = VisibleTraits(positions=True, key=True, own=True)
"""The traits of the answer. Its key is observed as a set: code that orders results by it takes the columns of the plan
as it was read."""
NO_TRAITS = VisibleTraits()
_ALL_TRAITS = VisibleTraits(positions=True, order=True, key=True, own=True)


def rebuild_with_traits(
    plan: Plan, change: Callable[[Plan, VisibleTraits], Plan], watch: VisibleTraits = ROOT_TRAITS
) -> Plan:
    """The plan with every node changed, the lowest first, each with its observed traits."""
    inputs = [
        rebuild_with_traits(child, change, seen)
        for child, seen in zip(plan.inputs, input_traits(plan, watch), strict=True)
    ]
    same = all(new is old for new, old in zip(inputs, plan.inputs, strict=True))
    return change(plan if same else plan.with_inputs(inputs), watch)


def input_traits(plan: Plan, watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    """The observed traits of each input of a node with the given ones."""
    return _node_input_traits(plan, watch)


@singledispatch
def _node_input_traits(plan: Plan, _watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    raise PlanError(f"what {type(plan).__name__} shows of its inputs is not known")


@_node_input_traits.register
def _(_plan: Scan, _watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    return ()


@_node_input_traits.register
def _(_plan: Filter, watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    return (watch,)


@_node_input_traits.register
def _(plan: Projection, watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    # An outer join outputs the keys of its sides. Hidden columns are named after the key of the node below.
    hidden = {each.name for each in plan.input.fields if each.hidden}
    reads_key = any(hidden & refs(each.expr) for each in plan.outputs)
    return (replace(watch, positions=False, order=watch.order or reads_key, key=watch.key or reads_key),)


@_node_input_traits.register
def _(_plan: Sliding, watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    return (replace(watch, own=True),)


@_node_input_traits.register
def _(_plan: SlidingRows, watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    return (VisibleTraits(watch.positions, order=True, key=True, own=True),)


@_node_input_traits.register(Join)
def _(_plan: Join, watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    return watch, watch


@_node_input_traits.register
def _(plan: RelationJoin, watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    return replace(watch, own=watch.own or not plan.retroactive), _ALL_TRAITS


@_node_input_traits.register
def _(plan: Union, watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    # The positions of the branches' key columns decide the names of the union's key.
    branch = replace(watch, positions=True, order=watch.order or watch.key)
    return tuple(branch for _ in plan.branches)


@_node_input_traits.register
def _(_plan: Distinct, watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    # Its columns are its key, in their order.
    return (VisibleTraits(positions=watch.positions or watch.order),)


@_node_input_traits.register
def _(_plan: Intersect, _watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    return VisibleTraits(positions=True), VisibleTraits(positions=True)


@_node_input_traits.register
def _(_plan: Negation, watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    # Age and key decide which rows remain; on the right rows are only counted.
    return VisibleTraits(watch.positions, order=True, key=True, own=True), NO_TRAITS


@_node_input_traits.register
def _(plan: Group, _watch: VisibleTraits) -> tuple[VisibleTraits, ...]:
    ordered = isinstance(plan.window, RowWindow) or any(each.function in ("first", "last") for each in plan.aggregates)
    return (VisibleTraits(order=ordered, key=ordered, own=ordered or plan.window is not None),)
