"""What the results of a query guarantee as a feed: derived from its plan and from what its inputs guarantee (logical
merge, IV-G). Pure.

    over ordered inputs                          results
    a window's aggregate, no groups              strictly ordered              R0
    the rows themselves, filtered, projected     ordered as they are           R0, R1
    an aggregate for each group, joins           ordered, ties in any order    R2
    over inputs without order, rows that end
    without notice, early windows                anything                      R3

Rows of a plan are ordered by when they begin to count. A result is never adjusted if its end is known when it comes,
which is what its update pattern says, and if no late row can change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch

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
    TimeWindow,
    Union,
)
from errata.language.patterns import update_pattern
from errata.language.plan import Plan, PlanError
from errata.model.feed import FeedOrder, FeedProperties, what_all_guarantee
from errata.model.results import UpdatePattern

Guarantees = Mapping[str, FeedProperties]
"""What streams guarantee, by name; of others nothing is known."""

_FORESEEABLE = (UpdatePattern.MONOTONIC, UpdatePattern.WEAKEST, UpdatePattern.WEAK)
"""Patterns by which the end of a result is known when it comes."""


def derive_feed_properties(plan: Plan, streams: Guarantees) -> FeedProperties:
    """What the results of a query guarantee."""
    found = _node_properties(plan, streams)
    return replace(found, adjusts=found.adjusts or update_pattern(plan) not in _FORESEEABLE)


@singledispatch
def _node_properties(plan: Plan, _streams: Guarantees) -> FeedProperties:
    raise PlanError(f"what the results of {type(plan).__name__} guarantee is not known")


@_node_properties.register
def _(plan: Scan, streams: Guarantees) -> FeedProperties:
    if plan.source.plan is not None:
        return derive_feed_properties(plan.source.plan, streams)
    if plan.source.kind.is_relation:
        return FeedProperties()
    return streams.get(plan.source.name, FeedProperties())


@_node_properties.register(Filter)
@_node_properties.register(Projection)
@_node_properties.register(Sliding)
def _(plan: Filter | Projection | Sliding, streams: Guarantees) -> FeedProperties:
    # Row by row: each result comes with its row, in the order of the rows.
    return _node_properties(plan.input, streams)


@_node_properties.register
def _(plan: RelationJoin, streams: Guarantees) -> FeedProperties:
    # Versions that were valid at a row's own time may come late; ties are as the versions are found.
    left = _node_properties(plan.left, streams)
    return replace(_loosened(left), adjusts=True, complete=False)


@_node_properties.register
def _(plan: Group, streams: Guarantees) -> FeedProperties:
    below = _node_properties(plan.input, streams)
    if below.order is FeedOrder.NONE or below.adjusts:
        # A late row changes a result that was published already.
        return replace(below, order=FeedOrder.NONE, ties_fixed=False, adjusts=True)
    early = isinstance(plan.window, TimeWindow) and plan.window.early
    if isinstance(plan.window, TimeWindow) and not early and not plan.by:
        return replace(below, order=FeedOrder.STRICT, ties_fixed=False)
    if isinstance(plan.window, RowWindow):
        # A window's result begins with the row that fills it.
        return replace(_loosened(below), adjusts=True)
    return replace(_loosened(below, strict=not plan.by), adjusts=early or plan.window is None)


@_node_properties.register(Distinct)
@_node_properties.register(SlidingRows)
def _(plan: Distinct | SlidingRows, streams: Guarantees) -> FeedProperties:
    # A row ends when others come, or goes on when it would have ended: the update pattern says whether.
    below = _node_properties(plan.input, streams)
    return replace(below, adjusts=below.adjusts or update_pattern(plan) is not UpdatePattern.MONOTONIC)


@_node_properties.register(Join)
@_node_properties.register(Intersect)
def _(plan: Join | Intersect, streams: Guarantees) -> FeedProperties:
    # A pair begins with its later row; which of several pairs comes first depends on which side does.
    return _loosened(what_all_guarantee(_node_properties(each, streams) for each in plan.inputs))


@_node_properties.register(Negation)
def _(plan: Negation, streams: Guarantees) -> FeedProperties:
    # A row of the right ends rows of the left, and begins earlier ones again when it goes.
    least = what_all_guarantee(_node_properties(each, streams) for each in plan.inputs)
    return replace(least, order=FeedOrder.NONE, ties_fixed=False, adjusts=True)


@_node_properties.register
def _(plan: Union, streams: Guarantees) -> FeedProperties:
    # Each branch is ordered by itself; how branches come together depends on which is faster.
    least = what_all_guarantee(_node_properties(each, streams) for each in plan.branches)
    return replace(least, order=FeedOrder.NONE, ties_fixed=False)


def _loosened(properties: FeedProperties, *, strict: bool = False) -> FeedProperties:
    """The same with ties, in any order, where there is an order at all."""
    if properties.order is FeedOrder.NONE or (strict and properties.order is FeedOrder.STRICT):
        return replace(properties, ties_fixed=False)
    return replace(properties, order=FeedOrder.ORDERED, ties_fixed=False)
