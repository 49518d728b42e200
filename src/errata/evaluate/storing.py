"""For which queries it is worth keeping with each result where the rows lie that it was made of."""

from __future__ import annotations

from errata.evaluate.route import Kind, Route
from errata.language.lineage import Axis, too_wide
from errata.language.lineage.reach import Span, axis
from errata.language.lineage.width import distances
from errata.language.nodes import Filter, Group, Join, Project, RelationJoin, Scan, Sliding, TimeWindow, Union
from errata.language.plan import Plan, fact, walk
from errata.model.interval import HIGHEST, LOWEST


def why_not_stored(plan: Plan, route: Route) -> str | None:
    """Why stored lineage would tell nothing that the plan does not; None: it would."""
    if route.kind is Kind.ROW_WINDOWS:
        return None if spans_below(route.input) else "its windows are made of rows that may be of any age themselves"
    if route.kind is not Kind.APPENDED:
        return _WHY[route.kind]
    if not any(each.stored_helps for each in too_wide(plan)):
        return "its plan tells exactly in which stretch of time the rows of a result lie"
    return None if all(_passes_on(each) for each in walk(plan)) else "its results are made by what rows are not there"


_WHY = {
    Kind.GROUPED: "a result is made of all rows of its group, in its window or so far, as the plan tells",
    Kind.LAST_ROWS: "its results end with rows that they are not made of",
    Kind.NEW_VALUES: "a value may be there because of any of its rows",
    Kind.RECOMPUTED: "its results end or change with rows that they are not made of",
    Kind.ROW_WINDOWS: "",
}


def _passes_on(node: Plan) -> bool:
    """Whether the rows that a result of the node was made of make it again, whatever others there are."""
    if isinstance(node, Group):
        return isinstance(node.window, TimeWindow) and axis(node) is Axis.START
    return isinstance(node, (Scan, Sliding, Filter, Project, Join, RelationJoin, Union)) and axis(node) is Axis.START


@fact
def spans_below(plan: Plan) -> tuple[Span, ...]:
    """For each scan how much later the node's rows are than those that they are made of; nothing where that has no
    bounds."""
    found = distances(plan)
    bounded = axis(plan) is Axis.START and all(each.low > LOWEST and each.high < HIGHEST for each in found)
    return found if bounded else ()
