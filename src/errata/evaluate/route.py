"""By which strategy a query is kept answered: what its update pattern and its operators allow."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from errata.language.partial import PartialGroup, adjustable, partial_group
from errata.language.patterns import pattern
from errata.language.plan import Plan, fact
from errata.language.tails import Tail, last_rows, new_values, row_windows
from errata.language.times import timing
from errata.model.pattern import Pattern
from errata.model.results import Shape


class Kind(StrEnum):
    """How the next instants of an answer are worked out."""

    APPENDED = "appended"
    """New results are added; none that are there change."""
    GROUPED = "grouped"
    """Partial aggregates are kept, and brought up to date with what comes and what expires."""
    ROW_WINDOWS = "row windows"
    """Of each group the rows that open windows still need are kept."""
    LAST_ROWS = "last rows"
    """The last so many rows are kept."""
    NEW_VALUES = "new values"
    """What has been published says which values are new."""
    RECOMPUTED = "recomputed"
    """The answer is worked out from all rows that count, and compared with what is published."""


@dataclass(frozen=True)
class Route:
    """The strategy for a plan, and why it is this one."""

    kind: Kind
    why: str
    covering: bool = False
    """Whether what is worked out is the whole answer from the first instant on, and not only what is added."""
    partial: PartialGroup | None = None
    tail: Tail[Any] | None = None
    """What the strategy has found in the plan."""

    @property
    def keeps_state(self) -> bool:
        """Whether the strategy goes on from what it kept the last time."""
        return self.kind in (Kind.GROUPED, Kind.ROW_WINDOWS, Kind.LAST_ROWS)

    @property
    def keeps_parts(self) -> bool:
        """Whether the partial aggregates of final windows are kept, so that these are corrected without their rows."""
        return self.partial is not None and adjustable(self.partial) is None

    @property
    def input(self) -> Plan:
        """The part of the plan whose rows come and go."""
        if self.partial is not None:
            return self.partial.node.input
        if self.tail is not None:
            return self.tail.input
        raise AssertionError(f"the strategy {self.kind} looks at the whole plan")


_FORESEEN = (Pattern.MONOTONIC, Pattern.WEAKEST, Pattern.WEAK)


@fact
def route(plan: Plan) -> Route:
    """The cheapest strategy that suits the plan."""
    if (partial := partial_group(plan)) is not None:
        why = "the aggregates of what counts are kept, and only what comes and what expires is read"
        return Route(Kind.GROUPED, why, covering=partial.covering, partial=partial)
    if (windows := row_windows(plan)) is not None:
        return Route(Kind.ROW_WINDOWS, "the rows of windows that are not full yet are kept", tail=windows)
    if (last := last_rows(plan)) is not None:
        return Route(Kind.LAST_ROWS, "the last rows are kept", covering=True, tail=last)
    if (values := new_values(plan)) is not None:
        return Route(Kind.NEW_VALUES, "values that have come stay, and results say which have come", tail=values)
    if timing(plan).happened and pattern(plan) in _FORESEEN:
        return Route(Kind.APPENDED, "a result and its end are certain once its rows have come")
    why = "results may end or change when nobody could foresee it, so all rows that count are read"
    return recomputed(why)


def recomputed(why: str) -> Route:
    """What suits every plan."""
    return Route(Kind.RECOMPUTED, why, covering=True)


def closing(plan: Plan, route: Route, shape: Shape) -> tuple[str, int] | None:
    """Of results that are final when a window has closed: the kept column that tells when it begins, and its length."""
    found = None if route.partial is None else route.partial.closes
    if found is None:
        return None
    kept = dict(zip((each.name for each in plan.fields), shape.names, strict=True))
    return kept[found[0]], found[1]
