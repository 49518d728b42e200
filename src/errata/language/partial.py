"""Groups whose results can be carried on from partial aggregates: which they are, decided from the plan alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from errata.language.expr import sql
from errata.language.nodes import AGGREGATES, Aggregate, Filter, Group, Project, RowWindow, Scan, TimeWindow, Union
from errata.language.patterns import pattern
from errata.language.plan import Plan, walk
from errata.language.times import Timing, timing
from errata.model.columns import ColumnType, Kind
from errata.model.pattern import Pattern

WHOLE = (Kind.INT,)
"""Kinds whose squares can be added up without loss."""
FLOATING = (Kind.FLOAT, Kind.DOUBLE)
_ORDERLY = (Pattern.MONOTONIC, Pattern.WEAKEST)
_ALWAYS_ONCE = ("min", "max", "first", "last")
"""To these it makes no difference how often a value is there."""
_TAKEN_AWAY = ("count", "sum", "avg", "stddev", "min", "max", "last")
"""What can be worked out where rows cease to count in the order in which they came."""
_MOST_WINDOWS = 16
"""A row that is in more windows than this is better read again than kept in each."""
AVERAGED = 23
"""Decimals of more digits are divided less precisely than the average of them is."""


@dataclass(frozen=True)
class PartialGroup:
    """A group over rows that happened, and the filters and projections upon it."""

    node: Group
    above: tuple[Filter | Project, ...]
    """The lowest first."""
    span: int | None
    """For how long each row counts; None: for ever."""

    @property
    def covering(self) -> bool:
        """Whether results are replaced by others; else they are final windows, which are only ever added."""
        return not isinstance(self.node.window, TimeWindow) or self.node.window.early

    @property
    def closes(self) -> tuple[str, int] | None:
        """Of windows whose results are told early: the column of the results that tells when a window begins, and how
        long a window is. When it has closed its result is final."""
        window = self.node.window
        if not isinstance(window, TimeWindow) or not window.early:
            return None
        return self._named_above(self.node.window_fields[0].name), window.size

    @property
    def group_names(self) -> tuple[str, ...]:
        """The names that the columns of the group have in the results; they carry its key along."""
        return tuple(self._named_above(sql(expr)) for expr in self.node.by)

    def _named_above(self, name: str) -> str:
        for each in self.above:
            if isinstance(each, Project):
                name = each.kept.get(name, name)
        return name

    @property
    def drifts(self) -> bool:
        """Whether taking rows away may leave traces, however small, so that sums should be made anew now and then."""
        return self.span is not None and any(_floats(each) for each in self.node.aggregates)


def partial_group(plan: Plan) -> PartialGroup | None:
    """The plan as a group that partial aggregates can be kept of, if it is one."""
    above: list[Filter | Project] = []
    while isinstance(plan, Filter | Project):
        above.append(plan)
        plan = plan.input
    if not isinstance(plan, Group):
        return None
    times = timing(plan.input)
    orderly = times.happened and times.exact and pattern(plan.input) in _ORDERLY
    if not orderly or not _can_be_kept(plan, times):
        return None
    return PartialGroup(plan, tuple(reversed(above)), times.longest)


def adjustable(found: PartialGroup) -> str | None:
    """Why results of the group cannot be corrected by what corrected rows add and take away; None: they can."""
    if found.covering:
        return "only windows that are published when they close keep what corrections start from"
    if any(not isinstance(each, Filter | Project | Union | Scan) for each in walk(found.node.input)):
        return "what a row adds depends on other rows or on a relation, so it must be worked out from them again"
    return None


def _can_be_kept(group: Group, times: Timing) -> bool:
    match group.window:
        case RowWindow():
            return False
        case TimeWindow(size=size, slide=slide, early=early):
            if not times.for_ever or (not early and size > _MOST_WINDOWS * slide):
                return False
        case None:
            pass
        case _:
            assert_never(group.window)
    return all(_carried_on(each, for_ever=times.for_ever) for each in group.aggregates)


def _carried_on(aggregate: Aggregate, *, for_ever: bool) -> bool:
    function = aggregate.function
    if aggregate.distinct and function not in _ALWAYS_ONCE:
        return False
    kind = _type(aggregate)
    if function == "avg" and kind is not None and kind.kind is Kind.DECIMAL and kind.precision > AVERAGED:
        return False
    return function in (AGGREGATES if for_ever else _TAKEN_AWAY)


def _floats(aggregate: Aggregate) -> bool:
    kind = _type(aggregate)
    if kind is None:
        return False
    return (aggregate.function in ("sum", "avg") and kind.kind in FLOATING) or (
        aggregate.function == "stddev" and kind.kind not in WHOLE
    )


def _type(aggregate: Aggregate) -> ColumnType | None:
    return None if aggregate.argument is None else aggregate.argument.type
