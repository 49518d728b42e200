"""What the operators above a node still see of it, besides its visible columns and when they count.

A rule may change only what nobody sees. Some operators take columns by position, some order rows by the key, column
after column, some ask for a row's own time: first and last, windows over rows, a negation that keeps the youngest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch

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
    RowWindow,
    Scan,
    Sliding,
    SlidingRows,
    Union,
)
from errata.language.plan import Plan, PlanError


@dataclass(frozen=True, slots=True)
class Watch:
    """What is seen of a node."""

    positions: bool = False
    """The order of its columns."""
    order: bool = False
    """The order of its key's columns, which decides between rows of the same time."""
    key: bool = False
    """Which columns are its key."""
    own: bool = False
    """The own times of its rows."""

    @property
    def identity(self) -> bool:
        """Whether anything is seen that tells one row from another of equal visible columns."""
        return self.order or self.key or self.own


ROOT = Watch(positions=True, key=True, own=True)
"""Of the answer the key is seen as a set: who orders results by it takes the columns as the query was read."""
NOTHING = Watch()
_ALL = Watch(positions=True, order=True, key=True, own=True)


def rebuild_watched(plan: Plan, change: Callable[[Plan, Watch], Plan], watch: Watch = ROOT) -> Plan:
    """The plan with every node changed, the lowest first, each told what is seen of it."""
    inputs = [
        rebuild_watched(child, change, seen) for child, seen in zip(plan.inputs, seen_below(plan, watch), strict=True)
    ]
    same = all(new is old for new, old in zip(inputs, plan.inputs, strict=True))
    return change(plan if same else plan.with_inputs(inputs), watch)


def seen_below(plan: Plan, watch: Watch) -> tuple[Watch, ...]:
    """What is seen of each input, where so much is seen of the node."""
    return _below(plan, watch)


@singledispatch
def _below(plan: Plan, _watch: Watch) -> tuple[Watch, ...]:
    raise PlanError(f"what {type(plan).__name__} shows of its inputs is not known")


@_below.register
def _(_plan: Scan, _watch: Watch) -> tuple[Watch, ...]:
    return ()


@_below.register
def _(_plan: Filter, watch: Watch) -> tuple[Watch, ...]:
    return (watch,)


@_below.register
def _(plan: Project, watch: Watch) -> tuple[Watch, ...]:
    # An outer join puts out the keys of its sides. Hidden columns are named after the key of the node below.
    hidden = {each.name for each in plan.input.fields if each.hidden}
    reads_key = any(hidden & refs(each.expr) for each in plan.outputs)
    return (replace(watch, positions=False, order=watch.order or reads_key, key=watch.key or reads_key),)


@_below.register
def _(_plan: Sliding, watch: Watch) -> tuple[Watch, ...]:
    return (replace(watch, own=True),)


@_below.register
def _(_plan: SlidingRows, watch: Watch) -> tuple[Watch, ...]:
    return (Watch(watch.positions, order=True, key=True, own=True),)


@_below.register(Join)
def _(_plan: Join, watch: Watch) -> tuple[Watch, ...]:
    return watch, watch


@_below.register
def _(plan: RelationJoin, watch: Watch) -> tuple[Watch, ...]:
    return replace(watch, own=watch.own or not plan.retroactive), _ALL


@_below.register
def _(plan: Union, watch: Watch) -> tuple[Watch, ...]:
    # Where the key columns of the branches stand, decides how the key of the union is called.
    branch = replace(watch, positions=True, order=watch.order or watch.key)
    return tuple(branch for _ in plan.branches)


@_below.register
def _(_plan: Distinct, watch: Watch) -> tuple[Watch, ...]:
    # Its columns are its key, in their order.
    return (Watch(positions=watch.positions or watch.order),)


@_below.register
def _(_plan: Intersect, _watch: Watch) -> tuple[Watch, ...]:
    return Watch(positions=True), Watch(positions=True)


@_below.register
def _(_plan: Negation, watch: Watch) -> tuple[Watch, ...]:
    # Which rows stand is decided by age and key; on the right rows are only counted.
    return Watch(watch.positions, order=True, key=True, own=True), NOTHING


@_below.register
def _(plan: Group, _watch: Watch) -> tuple[Watch, ...]:
    ordered = isinstance(plan.window, RowWindow) or any(each.function in ("first", "last") for each in plan.aggregates)
    return (Watch(order=ordered, key=ordered, own=ordered or plan.window is not None),)
