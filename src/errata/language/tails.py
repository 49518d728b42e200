"""Operators that go on from the end of what came before: windows of rows, the last rows, values not seen yet.

Over rows that happened and count for ever, each of them is kept answered with little: of the rows that came before,
only those that open windows have begun with, or only the last ones, or only the values themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from errata.language.lineage import Axis, Region, backward
from errata.language.nodes import Distinct, Filter, Group, Project, RowWindow, Sliding, SlidingRows
from errata.language.plan import Plan, Unary, fact
from errata.language.times import timing
from errata.model.interval import HIGHEST, LOWEST, Interval

N = TypeVar("N", bound=Unary)
_LONG = Interval(0, 1 << 50)
"""Longer than any window, so that some close in it."""


@dataclass(frozen=True)
class Tail(Generic[N]):
    """Such an operator in a plan."""

    node: N
    above: tuple[Plan, ...]
    """The operators above it, the lowest first; each reads only the one below it."""

    @property
    def input(self) -> Plan:
        """What the operator reads: rows that happened and count for ever."""
        return self.node.input

    @property
    def plan(self) -> Plan:
        """The whole plan."""
        return self.above[-1] if self.above else self.node


def row_windows(plan: Plan) -> Tail[Group] | None:
    """Windows of rows, with nothing above them that looks at more than one window at a time."""
    node, above = _descended(plan, _is_row_wise)
    suits = isinstance(node, Group) and isinstance(node.window, RowWindow) and _stays(node.input)
    return Tail(node, above) if isinstance(node, Group) and suits else None


def last_rows(plan: Plan) -> Tail[SlidingRows] | None:
    """The last rows of what can be worked out from rows not much older, and nothing read but them."""
    node, above = _descended(plan, _is_of_the_instant)
    if not isinstance(node, SlidingRows) or any(isinstance(each, SlidingRows) for each in above):
        return None
    return Tail(node, above) if _stays(node.input) and is_local(node.input) else None


def new_values(plan: Plan) -> Tail[Distinct] | None:
    """Values that stay once they have come, with nothing above them that looks at more than one at a time."""
    node, above = _descended(plan, _is_row_wise)
    return Tail(node, above) if isinstance(node, Distinct) and _stays(node.input) else None


@fact
def is_local(plan: Plan) -> bool:
    """Whether rows that happen in an interval can be told from a bounded stretch of what each input said."""
    if not timing(plan).happened:
        return False
    reads = backward(plan, Region(Axis.START, _LONG)).values()
    return all(each.interval.start > LOWEST and each.interval.end < HIGHEST for each in reads)


def _stays(plan: Plan) -> bool:
    """Whether rows come at their own time, and stay."""
    return timing(plan).happened and timing(plan).for_ever


def _descended(plan: Plan, through: Callable[[Plan], bool]) -> tuple[Plan, tuple[Plan, ...]]:
    """The first node from the top on that is something else, and those above it, the lowest first."""
    above: list[Plan] = []
    while isinstance(plan, Unary) and through(plan):
        above.insert(0, plan)
        plan = plan.input
    return plan, tuple(above)


def _is_row_wise(plan: Plan) -> bool:
    return isinstance(plan, (Filter, Project))


def _is_of_the_instant(plan: Plan) -> bool:
    """Whether what the operator says at an instant is about rows that count then, and no others."""
    if isinstance(plan, Group):
        return not isinstance(plan.window, RowWindow)
    return isinstance(plan, (Filter, Project, Sliding, Distinct))
