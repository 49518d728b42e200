"""No relation is joined to rows that may be taken back, where that can be avoided (Golab and Özsu, 2005, 5.4.2).

Above a negation a join with a retroactive relation can be made first, where at each instant it does the same to all
rows of a value: the relation's key is among the negation's columns, and the condition speaks of no others. Not so with
a non-retroactive relation: rows of one value see the versions of their own times, and which of them stand would change.
But such a join can come before a retroactive one, since a row keeps its own time there.
"""

from __future__ import annotations

from errata.language.expr import refs
from errata.language.nodes import Negation, RelationJoin
from errata.language.plan import Plan
from errata.language.rewrite.lifting import lifted_over, rank_above
from errata.language.rewrite.sound import all_total
from errata.language.rewrite.watched import Watch, rebuild_watched


def relation_joins(plan: Plan) -> Plan:
    """The plan with relations joined before negations and retroactive relations, where the answer is the same."""
    return rebuild_watched(plan, _earlier)


def _earlier(plan: Plan, watch: Watch) -> Plan:
    if not isinstance(plan, RelationJoin):
        return plan
    if plan.retroactive:
        return _before_negation(plan)
    return plan if watch.positions or watch.order else _before_retroactive(plan)


def _before_negation(plan: RelationJoin) -> Plan:
    negation = plan.left
    if not isinstance(negation, Negation) or not lifted_over(negation, plan.relation, plan.condition):
        return plan
    rank = rank_above(negation, plan.relation)
    if rank is None:
        return plan
    return Negation(RelationJoin(negation.left, plan.relation, plan.condition), negation.right, negation.columns, rank)


def _before_retroactive(plan: RelationJoin) -> Plan:
    other = plan.left
    if not isinstance(other, RelationJoin) or not other.retroactive or plan.condition is None:
        return plan
    if refs(plan.condition) & other.relation.types.keys() or not all_total([plan.condition]):
        return plan
    return RelationJoin(RelationJoin(other.left, plan.relation, plan.condition), other.relation, other.condition)
