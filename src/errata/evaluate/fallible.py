"""What in a plan can fail, and over which rows it is computed; and which part of an expression it is that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce, singledispatch

from errata.engine.plans.joins import parted
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
    transform,
    walk,
)
from errata.language.functions import total
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Project,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.plan import Plan, PlanError
from errata.model.columns import Kind

_TRIED = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}
"""Operators, and the functions that give NULL where they fail."""
_SAFE_DIGITS = 28
"""Sums of decimals have ten digits more than what they add up, as long as there is room."""


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression that is computed for each row."""

    expr: Expr
    where: str


@dataclass(frozen=True, slots=True)
class Fallible:
    """Expressions that can fail for some row of a node."""

    over: Plan
    all: tuple[Computed, ...]


@dataclass(frozen=True, slots=True)
class Overflow:
    """An aggregate that can become too large for its type."""

    group: Group
    aggregate: Aggregate

    @property
    def tried(self) -> Group:
        """The groups with two columns last: the aggregate, which is NULL where it is too large, and how much it adds
        up."""
        tried = replace(self.aggregate, function=f"try_{self.aggregate.function}")
        return replace(self.group, aggregates=(tried, replace(self.aggregate, function="count")))


def fallible(plan: Plan) -> Iterator[Fallible | Overflow]:
    """All that can fail, in an order in which nothing comes before what it is computed from."""
    for child in plan.inputs:
        yield from fallible(child)
    yield from _own(plan)


@singledispatch
def _own(plan: Plan) -> Iterator[Fallible | Overflow]:
    raise PlanError(f"what can fail in {type(plan).__name__} is not known")


@_own.register(Scan)
@_own.register(Sliding)
@_own.register(SlidingRows)
@_own.register(Union)
@_own.register(Distinct)
@_own.register(Intersect)
@_own.register(Negation)
def _(_plan: Plan) -> Iterator[Fallible | Overflow]:
    yield from ()


def _over(plan: Plan, computed: Sequence[Computed]) -> Iterator[Fallible]:
    risky = tuple(each for each in computed if not total(each.expr))
    if risky:
        yield Fallible(plan, risky)


@_own.register
def _(plan: Filter) -> Iterator[Fallible | Overflow]:
    yield from _predicate(plan.input, conjuncts(plan.predicate), "in HAVING" if _is_grouped(plan) else "in WHERE")


def _is_grouped(plan: Filter) -> bool:
    below = plan.input
    while isinstance(below, Filter):
        below = below.input
    return isinstance(below, Group)


def _predicate(plan: Plan, parts: Sequence[Expr], where: str) -> Iterator[Fallible]:
    """A predicate over a node: what cannot fail is asked first, and the rest only of the rows that it leaves."""
    safe = conjunction([each for each in parts if total(each)])
    risky = conjunction([each for each in parts if not total(each)])
    if risky is not None:
        yield Fallible(plan if safe is None else Filter(plan, safe), (Computed(risky, where),))


@_own.register(Join)
@_own.register(RelationJoin)
def _(plan: Join | RelationJoin) -> Iterator[Fallible | Overflow]:
    where = "in the condition of the join"
    equal, rest = parted(plan)
    sides = [arg for each in equal if isinstance(each, Call) for arg in each.args]
    for side in plan.inputs:
        yield from _over(side, [Computed(each, where) for each in sides if refs(each) <= side.types.keys()])
    yield from _predicate(replace(plan, condition=conjunction(equal)), rest, where)


@_own.register
def _(plan: Project) -> Iterator[Fallible | Overflow]:
    yield from _over(plan.input, [Computed(each.expr, f"in column {each.name}") for each in plan.outputs])


@_own.register
def _(plan: Group) -> Iterator[Fallible | Overflow]:
    computed = [Computed(expr, "in GROUP BY") for expr in plan.by]
    computed += [Computed(each.argument, f"in {each.name}") for each in plan.aggregates if each.argument is not None]
    yield from _over(plan.input, computed)
    yield from (Overflow(plan, each) for each in plan.aggregates if _can_overflow(each))


def _can_overflow(aggregate: Aggregate) -> bool:
    if aggregate.argument is None or aggregate.function not in ("sum", "avg"):
        return False
    kind = aggregate.argument.type
    if kind.kind is Kind.DECIMAL:
        return kind.precision > _SAFE_DIGITS
    return aggregate.function == "sum" and kind.kind is Kind.BIGINT


def doubt(expr: Expr) -> Expr | None:
    """What is true of every row for which the expression fails, and perhaps of others, and cannot fail itself; None
    where that cannot be told."""
    risky = [each for each in walk(expr) if _can_fail(each)]
    if not all(isinstance(each, Cast) or (isinstance(each, Call) and each.name in _TRIED) for each in risky):
        return None
    doubts: list[Expr] = []
    for each in risky:
        known = [Call("is_not_null", (_tried(arg),), BOOLEAN) for arg in children(each)]
        whole = conjunction([*known, Call("is_null", (_tried(each),), BOOLEAN)])
        doubts += [] if whole is None else [whole]
    return either(doubts)


def either(some: Sequence[Expr]) -> Expr | None:
    """One condition that is true when any of them is."""
    return reduce(lambda one, other: Call(OR, (one, other), BOOLEAN), some) if some else None


def _can_fail(expr: Expr) -> bool:
    """Whether it can fail itself, whatever becomes of its parts."""

    def known(part: Expr) -> Expr:
        return part if isinstance(part, Lit) else Ref("", part.type)

    match expr:
        case Call():
            return not total(replace(expr, args=tuple(map(known, expr.args))))
        case Cast():
            return not total(replace(expr, arg=known(expr.arg)))
    return False


def _tried(expr: Expr) -> Expr:
    return transform(expr, _without_failure)


def _without_failure(expr: Expr) -> Expr:
    if isinstance(expr, Cast):
        return replace(expr, safe=True)
    if isinstance(expr, Call) and expr.name in _TRIED and _can_fail(expr):
        return replace(expr, name=_TRIED[expr.name])
    return expr


def innermost(expr: Expr, fails: Callable[[Expr], bool]) -> Expr:
    """Of an expression that fails for a row, the smallest part that does; `fails` tells it of a part for that row.

    A part may fail that is never computed, so they are asked in the order in which they are reached.
    """
    part = _failing_part(expr, lambda each: not total(each) and fails(each))
    return expr if part is None else innermost(part, fails)


def _failing_part(expr: Expr, fails: Callable[[Expr], bool]) -> Expr | None:
    match expr:
        case Call(name="if", args=(when, then, otherwise)):
            return _failing_branch(Case(((when, then),), otherwise, expr.type), fails)
        case Case():
            return _failing_branch(expr, fails)
    # Operators that do not look at all their arguments look at the first ones.
    return next((each for each in children(expr) if fails(each)), None)


def _failing_branch(expr: Case, fails: Callable[[Expr], bool]) -> Expr | None:
    for number, (when, then) in enumerate(expr.branches, start=1):
        if fails(Case(expr.branches[:number], None, expr.type)):
            return when if fails(when) else then
    return expr.otherwise if expr.otherwise is not None and fails(expr.otherwise) else None
