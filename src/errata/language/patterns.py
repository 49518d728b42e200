"""The update pattern of each edge of a plan: the five rules of Golab and Özsu (2005, 5.2), made precise.

The paper leaves out what never expires and takes every group-by for weak. Here streams without a window are monotonic,
and a group-by whose results end whenever the next one of their key comes is keyed: what is above it, other than another
group-by, cannot foretell its ends, and is strict.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import assert_never

from errata.language.nodes import (
    Distinct,
    Filter,
    Group,
    Intersect,
    Join,
    Negation,
    Project,
    RelationJoin,
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
    Union,
)
from errata.language.plan import Plan, PlanError, fact
from errata.language.times import timing
from errata.model.pattern import Pattern

_FORESEEN = (Pattern.MONOTONIC, Pattern.WEAKEST, Pattern.WEAK)


@fact
def pattern(plan: Plan) -> Pattern:
    """How the results of the node come and go."""
    return _pattern(plan)


@singledispatch
def _pattern(plan: Plan) -> Pattern:
    raise PlanError(f"the update pattern of {type(plan).__name__} is not known")


@_pattern.register
def _(plan: Scan) -> Pattern:
    source = plan.source
    if source.plan is not None:
        return pattern(source.plan)
    # A version of a relation's row ends when the next one of its key comes.
    return Pattern.KEYED if source.kind.is_relation else Pattern.MONOTONIC


@_pattern.register
def _(plan: Project) -> Pattern:
    return pattern(plan.input)


@_pattern.register
def _(plan: Filter) -> Pattern:
    # A new value that is filtered out ends the old one, and nothing that comes out says so.
    return _in_order(pattern(plan.input))


@_pattern.register
def _(plan: Sliding) -> Pattern:
    return _in_order(_most((pattern(plan.input), Pattern.WEAKEST)))


@_pattern.register(SlidingRows)
@_pattern.register(Negation)
def _(_plan: Plan) -> Pattern:
    return Pattern.STRICT


@_pattern.register
def _(plan: RelationJoin) -> Pattern:
    return Pattern.STRICT if plan.retroactive else _in_order(pattern(plan.left))


@_pattern.register(Join)
@_pattern.register(Intersect)
@_pattern.register(Distinct)
def _(plan: Plan) -> Pattern:
    return _reordered(plan.inputs)


@_pattern.register
def _(plan: Union) -> Pattern:
    patterns = {pattern(branch) for branch in plan.branches}
    # Windows of different sizes side by side do not expire in the order in which their rows came.
    if patterns == {Pattern.WEAKEST} and timing(plan).exact:
        return Pattern.WEAKEST
    return _reordered(plan.branches)


@_pattern.register
def _(plan: Group) -> Pattern:
    match plan.window:
        case RowWindow():
            return Pattern.STRICT
        case TimeWindow(early=False) if timing(plan.input).for_ever:
            return Pattern.MONOTONIC
        case TimeWindow() | None:
            return Pattern.KEYED
    assert_never(plan.window)


def _most(patterns: Iterable[Pattern]) -> Pattern:
    """The most complex of them."""
    return max(patterns, key=lambda each: each.rank)


def _in_order(below: Pattern) -> Pattern:
    """Rule 1: what keeps no state and no row waiting; of ends that nobody can foretell it makes no better ones."""
    return below if below in _FORESEEN else Pattern.STRICT


def _reordered(inputs: Iterable[Plan]) -> Pattern:
    """Rules 2 and 3: what may yield rows in another order than that of their ends, once there are ends."""
    most = _most(pattern(each) for each in inputs)
    return Pattern.WEAK if most is Pattern.WEAKEST else _in_order(most)
