"""What a rewriting rule is, and how the costs choose where it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from errata.language.cost import Guess, Statistics, cost
from errata.language.plan import Plan

Change = Callable[[Plan], Plan]


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to write a plan differently, with the same answer at every instant."""

    name: str
    apply: Callable[[Plan, Statistics], Plan]


def always(change: Change) -> Rule:
    """A rule that makes no plan worse."""
    return Rule(change.__name__, lambda plan, _statistics: change(plan))


def unless_dearer(change: Change) -> Rule:
    """A rule that is good as a rule, but not where it is known that the plan becomes more expensive."""

    def apply(plan: Plan, statistics: Statistics) -> Plan:
        changed = change(plan)
        kept = is_guess(statistics) or changed is plan or _is_no_dearer(changed, plan, statistics)
        return changed if kept else plan

    return Rule(change.__name__, apply)


def is_guess(statistics: Statistics) -> bool:
    """Whether nothing is known about the sources."""
    return isinstance(statistics, Guess)


def where_cheaper(plan: Plan, change: Change, statistics: Statistics) -> Plan:
    """The plan with single nodes changed, the lowest first, at each place where the whole does not become dearer."""
    return _weighed(plan, change, statistics, lambda whole: whole)


def _weighed(node: Plan, change: Change, statistics: Statistics, around: Change) -> Plan:
    for place, child in enumerate(node.inputs):
        new = _weighed(child, change, statistics, partial(_around, node, place, around))
        node = node if new is child else _with_input(node, place, new)
    changed = change(node)
    if changed is node or not _is_no_dearer(around(changed), around(node), statistics):
        return node
    return changed


def _around(node: Plan, place: int, around: Change, new: Plan) -> Plan:
    return around(_with_input(node, place, new))


def _with_input(node: Plan, place: int, new: Plan) -> Plan:
    return node.with_inputs([new if at == place else child for at, child in enumerate(node.inputs)])


def _is_no_dearer(new: Plan, old: Plan, statistics: Statistics) -> bool:
    return cost(new, statistics).total <= cost(old, statistics).total
