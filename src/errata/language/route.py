"""The route of a query: the strategy by which its next results are computed, as its update pattern and operators allow.

The routes differ only in cost; the recomputed one suits every plan, and all give its answer. The second part decides
for which queries lineage is stored with each result.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from errata.language.incremental import (
    PartialGroup,
    TailOperator,
    adjustment_obstacle,
    find_last_rows,
    find_new_values,
    find_partial_group,
    find_row_windows,
)
from errata.language.lineage import unbounded_inputs
from errata.language.lineage.distances import scan_offsets
from errata.language.lineage.extents import OffsetRange, extent_axis
from errata.language.nodes import Filter, Group, Join, Projection, RelationJoin, Scan, Sliding, TimeWindow, Union
from errata.language.patterns import update_pattern
from errata.language.plan import Plan, cached_fact, walk_plan
from errata.language.times import row_times
from errata.model.extent import ExtentAxis
from errata.model.results import ResultShape, UpdatePattern
from errata.model.time import HIGHEST, LOWEST


class RouteKind(StrEnum):
    """How the next results of a query are computed."""

    APPENDED = "appended"
    """New results are added; existing ones do not change."""
    GROUPED = "grouped"
    """Partial aggregates are kept, and updated with arriving and expiring rows."""
    ROW_WINDOWS = "row windows"
    """The rows that open windows of each group still need are kept."""
    LAST_ROWS = "last rows"
    """The last rows are kept."""
    NEW_VALUES = "new values"
    """The published results say which values are new."""
    RECOMPUTED = "recomputed"
    """The answer is computed from all rows that count, and compared with the published one."""


@dataclass(frozen=True)
class Route:
    """The strategy for a plan, and the reason for it."""

    kind: RouteKind
    why: str
    covering: bool = False
    """Whether a step computes the whole answer from its first instant on, not only additions to it."""
    partial: PartialGroup | None = None
    tail: TailOperator[Any] | None = None
    """The operator of the plan that keeps state."""

    @property
    def keeps_state(self) -> bool:
        """Whether the strategy continues from state kept by the step before."""
        return self.kind in (RouteKind.GROUPED, RouteKind.ROW_WINDOWS, RouteKind.LAST_ROWS)

    @property
    def keeps_parts(self) -> bool:
        """Whether partial aggregates of final windows are kept, so that these are corrected without reading their
        rows."""
        return self.partial is not None and adjustment_obstacle(self.partial) is None

    @property
    def input(self) -> Plan:
        """The part of the plan that is computed for arriving and expiring rows."""
        if self.partial is not None:
            return self.partial.node.input
        if self.tail is not None:
            return self.tail.input
        raise AssertionError(f"the strategy {self.kind} looks at the whole plan")


_PREDICTABLE = (UpdatePattern.MONOTONIC, UpdatePattern.WEAKEST, UpdatePattern.WEAK)


@cached_fact
def choose_route(plan: Plan) -> Route:
    """The cheapest strategy that suits the plan."""
    if (partial := find_partial_group(plan)) is not None:
        why = "the aggregates of what counts are kept, and only what comes and what expires is read"
        return Route(RouteKind.GROUPED, why, covering=partial.covering, partial=partial)
    if (windows := find_row_windows(plan)) is not None:
        return Route(RouteKind.ROW_WINDOWS, "the rows of windows that are not full yet are kept", tail=windows)
    if (last := find_last_rows(plan)) is not None:
        return Route(RouteKind.LAST_ROWS, "the last rows are kept", covering=True, tail=last)
    if (values := find_new_values(plan)) is not None:
        return Route(RouteKind.NEW_VALUES, "values that have come stay, and results say which have come", tail=values)
    if row_times(plan).happened and update_pattern(plan) in _PREDICTABLE:
        return Route(RouteKind.APPENDED, "a result and its end are certain once its rows have come")
    why = "results may end or change when nobody could foresee it, so all rows that count are read"
    return recompute_route(why)


def recompute_route(why: str) -> Route:
    """The route that suits every plan."""
    return Route(RouteKind.RECOMPUTED, why, covering=True)


def closing_column(plan: Plan, route: Route, shape: ResultShape) -> tuple[str, int] | None:
    """For results that become final when a window closes: the kept column with the window's beginning, and its
    length."""
    found = None if route.partial is None else route.partial.closing_column
    if found is None:
        return None
    kept = dict(zip((each.name for each in plan.fields), shape.names, strict=True))
    return kept[found[0]], found[1]


# Queries whose results are stored with their lineage: where the rows lie that each result was made of.


def why_no_stored_lineage(plan: Plan, route: Route) -> str | None:
    """Why stored lineage would add nothing to what the plan says; None if it would."""
    if route.kind is RouteKind.ROW_WINDOWS:
        return None if input_spans(route.input) else "its windows are made of rows that may be of any age themselves"
    if route.kind is not RouteKind.APPENDED:
        return _NO_STORED_LINEAGE[route.kind]
    if not any(each.stored_helps for each in unbounded_inputs(plan)):
        return "its plan tells exactly in which stretch of time the rows of a result lie"
    return (
        None
        if all(_keeps_lineage(each) for each in walk_plan(plan))
        else "its results are made by what rows are not there"
    )


_NO_STORED_LINEAGE = {
    RouteKind.GROUPED: "a result is made of all rows of its group, in its window or so far, as the plan tells",
    RouteKind.LAST_ROWS: "its results end with rows that they are not made of",
    RouteKind.NEW_VALUES: "a value may be there because of any of its rows",
    RouteKind.RECOMPUTED: "its results end or change with rows that they are not made of",
    RouteKind.ROW_WINDOWS: "",
}


def _keeps_lineage(node: Plan) -> bool:
    """Whether the rows that a result of the node was made of are enough to make it again, whatever other rows there
    are."""
    if isinstance(node, Group):
        return isinstance(node.window, TimeWindow) and extent_axis(node) is ExtentAxis.START
    return (
        isinstance(node, (Scan, Sliding, Filter, Projection, Join, RelationJoin, Union))
        and extent_axis(node) is ExtentAxis.START
    )


@cached_fact
def input_spans(plan: Plan) -> tuple[OffsetRange, ...]:
    """For each scan how much later the node's rows are than the rows that they are made of; empty where that is
    unbounded."""
    found = scan_offsets(plan)
    bounded = extent_axis(plan) is ExtentAxis.START and all(each.low > LOWEST and each.high < HIGHEST for each in found)
    return found if bounded else ()
