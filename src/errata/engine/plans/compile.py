"""From a plan to a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

from pyspark.sql import DataFrame

from errata.engine.frames import selected
from errata.engine.plans import scan
from errata.engine.plans.grouping import grouped
from errata.engine.plans.joins import joined, joined_as_of
from errata.engine.plans.negation import negated
from errata.engine.plans.rows import VE, VS, Rows, Way, instant, place, quoted
from errata.engine.plans.rowwise import filtered, projected, united
from errata.engine.plans.sets import distinct, intersection
from errata.errors import unknown
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
)
from errata.language.plan import Plan, PlanError
from errata.model.interval import HIGHEST


def compile_plan(
    plan: Plan,
    frames: Mapping[str, DataFrame],
    *,
    at: int | None = None,
    scope: Sequence[str] = (),
    lineage: bool = False,
    since: int | None = None,
) -> DataFrame:
    """The plan over what its sources have said, by their names: the plan's columns, `_vs` and `_ve`, the scope and the
    lineage.

    A stream and a relation are frames of their declared columns; a query is one of its result's columns, hidden ones
    too, with `_vs` and `_ve`. With `at` it is the answer at that instant, worked out with plain operators, and the
    lifetimes are `[at, at + 1)`. The `scope` are columns of every frame, never NULL, that keep data sets apart. The
    `lineage` is `_from_<i>` and `_to_<i>`: the least and greatest vs of the rows of the plan's i-th scan that the row
    was made of; NULL if there was none. With `since` rows that have ended by then are left out wherever they have no
    say in later ones: the frames need not hold what only such are made of, and nothing is computed of a part of it.
    """
    if at == HIGHEST:
        raise PlanError("nothing counts at the end of time")
    return named(_Inputs(frames, tuple(scope), _way(at, scope, lineage=lineage)).rows(plan, 0, since), scope)


def rows_of(plan: Plan, frames: Mapping[str, DataFrame], scope: Sequence[str] = ()) -> Rows:
    """The rows of a node, whole histories, as operators take them; `upon` and `named` lead on from there."""
    return _Inputs(frames, tuple(scope), _way(None, scope, lineage=False)).rows(plan, 0)


def upon(nodes: Sequence[Plan], rows: Rows) -> Rows:
    """The rows of operators that stand one upon the other, the lowest first, over the rows of what is below them."""
    for node in nodes:
        rows = _operate(node, [rows])
    return rows


def named(rows: Rows, scope: Sequence[str] = ()) -> DataFrame:
    """The rows of a node as `compile_plan` gives them."""
    way = rows.way
    columns = [f"{place(number)} AS {quoted(each.name)}" for number, each in enumerate(rows.plan.fields)]
    times = [VS, VE] if way.at is None else [f"{instant(way.at)} AS {VS}", f"{way.at + 1}L AS {VE}"]
    apart = [f"{inner} AS {quoted(name)}" for inner, name in zip(way.scope, scope, strict=True)]
    return selected(rows.frame, *columns, *times, *apart, *rows.lineage)


def _way(at: int | None, scope: Sequence[str], *, lineage: bool) -> Way:
    return Way(at, tuple(f"_s{number}" for number in range(len(scope))), lineage)


@dataclass(frozen=True)
class _Inputs:
    """What the scans of a plan read, and how."""

    frames: Mapping[str, DataFrame]
    scope: tuple[str, ...]
    way: Way

    def rows(self, plan: Plan, number: int, since: int | None = None) -> Rows:
        """The rows of a node whose first scan has that number; without those that have ended by an instant."""
        found = self._rows(plan, number, since)
        if since is None or found.timing.for_ever:
            return found
        return found.over(plan, found.frame.filter(f"{VE} > {instant(since)}"))

    def _rows(self, plan: Plan, number: int, since: int | None) -> Rows:
        if isinstance(plan, Scan):
            return scan.scanned(plan, self._frame(plan), self.way, number, self.scope)
        if isinstance(plan, RelationJoin) and not plan.retroactive:
            left = self.rows(plan.left, number, since)
            versions = scan.history(plan.relation, self._frame(plan.relation), self.way, left.scans.stop, self.scope)
            return joined_as_of(plan, left, versions)
        inputs: list[Rows] = []
        # How many rows have come after another one does not depend on whether they still count.
        by_rows = isinstance(plan, SlidingRows) or (isinstance(plan, Group) and isinstance(plan.window, RowWindow))
        for child in plan.inputs:
            inputs.append(self.rows(child, number, None if by_rows else since))
            number = inputs[-1].scans.stop
        return _operate(plan, inputs)

    def _frame(self, plan: Scan) -> DataFrame:
        name = plan.source.name
        if name not in self.frames:
            raise unknown("source", name, list(self.frames))
        return self.frames[name]


@singledispatch
def _operate(plan: Plan, _inputs: Sequence[Rows]) -> Rows:
    raise PlanError(f"{type(plan).__name__} cannot be evaluated")


@_operate.register
def _(plan: Sliding, inputs: Sequence[Rows]) -> Rows:
    return scan.slid(plan, inputs[0])


@_operate.register
def _(plan: SlidingRows, inputs: Sequence[Rows]) -> Rows:
    return scan.slid_by_rows(plan, inputs[0])


@_operate.register
def _(plan: Filter, inputs: Sequence[Rows]) -> Rows:
    return filtered(plan, inputs[0])


@_operate.register
def _(plan: Project, inputs: Sequence[Rows]) -> Rows:
    return projected(plan, inputs[0])


@_operate.register(Join)
@_operate.register(RelationJoin)
def _(plan: Join | RelationJoin, inputs: Sequence[Rows]) -> Rows:
    return joined(plan, inputs[0], inputs[1])


@_operate.register
def _(plan: Union, inputs: Sequence[Rows]) -> Rows:
    return united(plan, inputs)


@_operate.register
def _(plan: Distinct, inputs: Sequence[Rows]) -> Rows:
    return distinct(plan, inputs[0])


@_operate.register
def _(plan: Intersect, inputs: Sequence[Rows]) -> Rows:
    return intersection(plan, inputs[0], inputs[1])


@_operate.register
def _(plan: Negation, inputs: Sequence[Rows]) -> Rows:
    return negated(plan, inputs[0], inputs[1])


@_operate.register
def _(plan: Group, inputs: Sequence[Rows]) -> Rows:
    return grouped(plan, inputs[0])
