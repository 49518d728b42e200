"""When an expression may be moved: what cannot fail, and what treats equal values alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from errata.language.expr import EQUAL, SAME, Call, Expr, Ref, children, transform, walk
from errata.language.functions import total
from errata.language.nodes import Project
from errata.language.plan import Plan
from errata.model.columns import Kind

COMPARISONS = frozenset((EQUAL, SAME, "<>", "<", "<=", ">", ">="))
_BLIND = COMPARISONS | {"in", "is_null", "is_not_null"}
"""To these −0.0 is the same as 0.0."""
_LARGEST_GROWTH = 100


def all_total(parts: Iterable[Expr]) -> bool:
    """Whether none of them can fail, whatever the rows."""
    return all(total(each) for each in parts)


def treats_equals_alike(expr: Expr, columns: Iterable[str]) -> bool:
    """Whether the expression has the same value for all rows that are equal in these columns. Equal is not the same:
    −0.0 = 0.0, and as text they differ."""
    return _alike(expr, frozenset(columns))


def _alike(expr: Expr, columns: frozenset[str]) -> bool:
    if _is_float(expr, columns):
        return False
    blind = isinstance(expr, Call) and expr.name in _BLIND
    return all((blind and _is_float(each, columns)) or _alike(each, columns) for each in children(expr))


def _is_float(expr: Expr, columns: frozenset[str]) -> bool:
    return isinstance(expr, Ref) and expr.name in columns and expr.type.kind in (Kind.FLOAT, Kind.DOUBLE)


def substituted(expr: Expr, values: Mapping[str, Expr]) -> Expr | None:
    """The expression with columns replaced by what they are made of; None where it would grow out of all bounds."""
    grown = {name: sum(1 for _ in walk(value)) - 1 for name, value in values.items()}
    growth = sum(grown.get(each.name, 0) for each in walk(expr) if isinstance(each, Ref))
    return None if growth > _LARGEST_GROWTH else replaced(expr, values)


def replaced(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """The expression with other expressions in place of columns."""
    return transform(expr, lambda each: values.get(each.name, each) if isinstance(each, Ref) else each)


def made_of(plan: Project) -> dict[str, Expr]:
    """What each column of a projection is made of, in terms of the columns below."""
    carried: dict[str, Expr] = {name: plan.input.ref(name) for name in plan.carried}
    return carried | {output.name: output.expr for output in plan.outputs}


def equalities(parts: Iterable[Expr]) -> list[tuple[Ref, Ref]]:
    """The pairs of columns of one type that the conditions say are equal, or both NULL."""
    found = []
    for each in parts:
        if isinstance(each, Call) and each.name in (EQUAL, SAME):
            left, right = each.args
            if isinstance(left, Ref) and isinstance(right, Ref) and left.type == right.type:
                found.append((left, right))
    return found


def unique_by(plan: Plan, columns: Iterable[str]) -> bool:
    """Whether at each instant no two rows have equal values in these columns."""
    return set(plan.key) <= set(columns)
