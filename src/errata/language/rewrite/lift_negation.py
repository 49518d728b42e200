"""Two rules: a negation is lifted above a join, and relations are joined before negations and retroactive relations.

A negation only counts: of the rows of a value the youngest remain. So a join may come before or after it if at each
instant the join treats all rows of a value alike: it drops them all, or pairs each with one row, the same for all. With
more than one partner figure 6 of Golab and Özsu (2005) is no equivalence under their equation 1: two partners make two
rows of each one on the left, and the right removes only as many as before.
"""

from __future__ import annotations

from errata.language.cost import Statistics
from errata.language.expr import Expr, conjuncts, refs
from errata.language.nodes import Join, Negation, RelationJoin
from errata.language.plan import Plan
from errata.language.rewrite.rule import (
    RewriteRule,
    VisibleTraits,
    apply_where_cheaper,
    equal_column_pairs,
    is_unique_by,
    none_can_fail,
    rebuild_with_traits,
    treats_equals_alike,
)
from errata.language.times import OwnTime, row_times


def can_lift_over(negation: Negation, partner: Plan, condition: Expr | None) -> bool:
    """Whether a join of the negation with the partner treats all rows of a value alike at each instant."""
    parts = conjuncts(condition)
    if not none_can_fail(parts):
        return False
    value = {name for name, _ in negation.columns}
    read = refs(condition) & negation.types.keys() if condition is not None else frozenset()
    if not read <= value or not all(treats_equals_alike(each, value) for each in parts):
        return False
    equated = {
        name
        for pair in equal_column_pairs(parts)
        for name in _partner_column(pair[0].name, pair[1].name, value, partner)
    }
    return is_unique_by(partner, equated)


def _partner_column(one: str, other: str, value: set[str], partner: Plan) -> list[str]:
    """The partner's column, if the pair is one of the value and one of the partner."""
    pairs = ((one, other), (other, one))
    return [theirs for ours, theirs in pairs if ours in value and theirs in partner.types]


def rank_after_join(negation: Negation, partner: Plan) -> tuple[str, ...] | None:
    """The columns that order rows after the join as the negation orders them before it; None if there are none."""
    known = _age_columns(negation)
    # The partner is the same for all rows of a value: its key does not change their order, but keeps rows distinct.
    return None if known is None else tuple(dict.fromkeys((*known, *partner.key)))


def _age_columns(negation: Negation) -> tuple[str, ...] | None:
    left = negation.left
    if negation.rank is not None:
        # Only if no two rows have the same age, so that nothing else decides.
        return negation.rank if is_unique_by(left, negation.rank) else None
    times = row_times(left)
    if times.own is OwnTime.NONE:
        return left.key
    told = sorted(name for name in times.columns if name in left.types)
    return (told[0], *left.key) if told else None


# Negation lifted above a join, so that the join sees no retracted rows (Golab and Özsu, 2005, 5.4.2 and figure 6).
# Costs decide whether it is worth it.


def negation_after_join(plan: Plan) -> Plan:
    """The join as a negation over a join, where one of its sides is a negation and the answer is the same."""
    if isinstance(plan, Join):
        for negation, partner in ((plan.left, plan.right), (plan.right, plan.left)):
            if isinstance(negation, Negation) and can_lift_over(negation, partner, plan.condition):
                rank = rank_after_join(negation, partner)
                if rank is not None:
                    sides = [negation.left if side is negation else side for side in plan.inputs]
                    return Negation(plan.with_inputs(sides), negation.right, negation.columns, rank)
    return plan


def _pull_up(plan: Plan, statistics: Statistics) -> Plan:
    return apply_where_cheaper(plan, negation_after_join, statistics)


PULL_UP_NEGATION = RewriteRule("pull_up_negation", _pull_up)


# Relations joined before rows can be retracted, where possible (Golab and Özsu, 2005, 5.4.2).
#
# Above a negation a join with a retroactive relation can be made first if at each instant it treats all rows of a value
# alike: the relation's key is among the negation's columns, and the condition uses no others. Not so with a
# non-retroactive relation: rows of one value see the versions of their own times, and other rows would remain. But such
# a join can come before a retroactive one, since a row keeps its own time there.


def relation_joins(plan: Plan) -> Plan:
    """The plan with relations joined before negations and retroactive relations, where the answer is the same."""
    return rebuild_with_traits(plan, _move_earlier)


def _move_earlier(plan: Plan, watch: VisibleTraits) -> Plan:
    if not isinstance(plan, RelationJoin):
        return plan
    if plan.retroactive:
        return _before_negation(plan)
    return plan if watch.positions or watch.order else _before_retroactive(plan)


def _before_negation(plan: RelationJoin) -> Plan:
    negation = plan.left
    if not isinstance(negation, Negation) or not can_lift_over(negation, plan.relation, plan.condition):
        return plan
    rank = rank_after_join(negation, plan.relation)
    if rank is None:
        return plan
    return Negation(RelationJoin(negation.left, plan.relation, plan.condition), negation.right, negation.columns, rank)


def _before_retroactive(plan: RelationJoin) -> Plan:
    other = plan.left
    if not isinstance(other, RelationJoin) or not other.retroactive or plan.condition is None:
        return plan
    if refs(plan.condition) & other.relation.types.keys() or not none_can_fail([plan.condition]):
        return plan
    return RelationJoin(RelationJoin(other.left, plan.relation, plan.condition), other.relation, other.condition)
