"""Which columns of what a plan reads have a say in which results there are, and of which rows each is made.

A row of which only other columns are corrected stays where it was: in the same results, which at most say something
else. Then what was known of their lineage still holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from errata.language.expr import Expr, refs
from errata.language.nodes import (
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
from errata.language.plan import Plan, PlanError, fact


@fact
def membership(plan: Plan) -> tuple[frozenset[str], ...]:
    """For each scan, by its place in `scans(plan)`, the source's names of the columns that have a say."""
    return tuple(_of_scans(plan, frozenset(plan.key)))


def _of_scans(plan: Plan, wanted: frozenset[str]) -> Iterable[frozenset[str]]:
    """The same where some of the node's columns have a say in what is above it."""
    if isinstance(plan, Scan):
        source = plan.source
        also = {each for each in (*source.key, source.order, source.deleted) if each is not None}
        yield frozenset({plan.of_source(name) for name in wanted} | also)
        return
    for place, child in enumerate(plan.inputs):
        yield from _of_scans(child, _below(plan, place, wanted) | frozenset(child.key))


def _below(plan: Plan, place: int, wanted: frozenset[str]) -> frozenset[str]:
    """The columns of an input that have a say."""
    child = plan.inputs[place]
    match plan:
        case Sliding():
            found = wanted
        case Filter():
            found = wanted | refs(plan.predicate)
        case Project():
            found = _all_of(each.expr for each in plan.outputs if each.name in wanted) | (wanted & set(plan.carried))
        case Join() | RelationJoin():
            condition = frozenset() if plan.condition is None else frozenset(refs(plan.condition))
            found = (wanted | condition) & set(child.types)
        case Union():
            names = [each.name for each in plan.branches[0].visible]
            found = frozenset(each.name for name, each in zip(names, child.visible, strict=True) if name in wanted)
        case Group():
            told = [each.argument for each in plan.aggregates if each.name in wanted and each.argument is not None]
            found = _all_of([*plan.by, *told])
        case SlidingRows() | Distinct() | Intersect() | Negation():
            # Of rows that are compared as a whole, everything has.
            found = frozenset(child.types)
        case _:
            raise PlanError(f"which columns have a say in what rows of {type(plan).__name__} there are is not known")
    return found


def _all_of(exprs: Iterable[Expr]) -> frozenset[str]:
    return frozenset(name for each in exprs for name in refs(each))
