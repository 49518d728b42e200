"""How far apart outputs and the rows that make them are, over all operators between; and where that has no bound."""

from __future__ import annotations

from dataclasses import dataclass

from errata.language.lineage.edges import SAME_TIME, edges
from errata.language.lineage.reach import Axis, Span, alive, axis, row_by_row
from errata.language.lineage.replays import path_to
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
    Union,
    scans,
)
from errata.language.plan import Plan, PlanError, fact
from errata.model.interval import HIGHEST


def distances(plan: Plan) -> tuple[Span, ...]:
    """For each scan how much later an output is than a row that it is made of, each at its place in time."""
    return tuple(each.place for each in _reaches(plan))


@dataclass(frozen=True, slots=True)
class _Reach:
    """How much later a node's rows are than a row of a scan that they are made of."""

    place: Span
    during: Span
    """How much later than that row's place they count, if they are whole rows."""


@fact
def _reaches(plan: Plan) -> tuple[_Reach, ...]:
    if not plan.inputs:
        return (_counting(plan, SAME_TIME, Span()),)
    return tuple(
        _above(plan, child, edge, below)
        for child, edge in zip(plan.inputs, edges(plan), strict=True)
        for below in _reaches(child)
    )


def _above(plan: Plan, child: Plan, edge: Span, below: _Reach) -> _Reach:
    place = edge + below.place
    if axis(child) is Axis.INSTANT:
        return _counting(plan, place, Span())
    if axis(plan) is Axis.INSTANT:
        return _Reach(place & below.during, Span())
    return _counting(plan, place, below.during if row_by_row(plan) else Span())


def _counting(plan: Plan, place: Span, during: Span) -> _Reach:
    return _Reach(place, during & (alive(plan) + place)) if axis(plan) is Axis.START else _Reach(place, Span())


@dataclass(frozen=True, slots=True)
class Wide:
    """An input of which an output may need rows of any age."""

    scan: int
    """Its place in `scans(plan)`."""
    source: str
    why: str
    stored_helps: bool
    """Whether the rows that one output was made of lie closer together than the plan can tell."""


def too_wide(plan: Plan) -> tuple[Wide, ...]:
    """The inputs whose rows may be of any age when they make an output, so that replaying reads all of the past."""
    found = []
    for place, (scan, distance) in enumerate(zip(scans(plan), distances(plan), strict=True)):
        if distance.high == HIGHEST:
            nodes = [node for node, at in path_to(plan, place) if edges(node)[at].high == HIGHEST]
            helps = not any(_made_of_all(node) for node in nodes)
            found.append(Wide(place, scan.source.name, _why(nodes[0]), helps))
    return tuple(found)


def stored_is_advised(plan: Plan) -> bool:
    """Whether it is worth storing with each output from which to which time the rows lie that it was made of."""
    return any(each.stored_helps for each in too_wide(plan))


def _made_of_all(node: Plan) -> bool:
    """Whether its rows are indeed made of all that came before, not only of what cannot be told beforehand."""
    match node:
        case Group(window=window):
            return window is None
        case Distinct() | Intersect() | Negation():
            return True
        case Scan() | Sliding() | SlidingRows() | Filter() | Project() | Join() | RelationJoin() | Union():
            return False
    raise PlanError(f"of which rows a row of {type(node).__name__} is made is not known")


def _why(node: Plan) -> str:
    match node:
        case SlidingRows(rows=rows):
            return f"how far back a window of {_rows(rows)} reaches depends on the data"
        case Group(window=RowWindow(size=size)):
            return f"which rows make a window of {_rows(size)} depends on all that came before"
        case Join() if axis(node) is Axis.START:
            return "nothing bounds how long after a row its partner in a join can come"
        case Group():
            return "rows that never expire stay in their group"
    return "rows that never expire count at all times to come"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
