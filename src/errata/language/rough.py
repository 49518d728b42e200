"""Which columns may differ in their last bits when the same rows are added up in another order."""

from __future__ import annotations

from errata.language.expr import refs
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
from errata.model.columns import Kind

_ADDED_UP = ("sum", "avg", "stddev")
_FLOATING = (Kind.FLOAT, Kind.DOUBLE)


@fact
def rough_columns(plan: Plan) -> frozenset[str]:
    """The columns that come of sums of floating point numbers."""
    match plan:
        case Scan():
            inner = plan.source.plan
            below = frozenset[str]() if inner is None else rough_columns(inner)
            return frozenset(each.name for each in plan.fields if plan.of_source(each.name) in below)
        case Project():
            below = rough_columns(plan.input)
            made = {each.name for each in plan.outputs if refs(each.expr) & below}
            return frozenset(made | (below & set(plan.carried)))
        case Group():
            below = rough_columns(plan.input)
            added = [each for each in plan.aggregates if each.function in _ADDED_UP and each.type.kind in _FLOATING]
            of_rough = [each for each in plan.aggregates if each.argument is not None and refs(each.argument) & below]
            return frozenset(each.name for each in (*added, *of_rough))
        case Union():
            first = plan.branches[0].visible
            places = [
                place
                for place in range(len(first))
                if any(branch.visible[place].name in rough_columns(branch) for branch in plan.branches)
            ]
            return frozenset(plan.visible[place].name for place in places)
        case Sliding() | SlidingRows() | Filter() | Join() | RelationJoin() | Distinct() | Intersect() | Negation():
            return _passed_on(plan)
    raise PlanError(f"which columns of {type(plan).__name__} come of sums is not known")


def _passed_on(plan: Plan) -> frozenset[str]:
    """Those of the inputs that are columns of the node."""
    names = {each.name for each in plan.fields}
    return frozenset(name for child in plan.inputs for name in rough_columns(child) if name in names)
