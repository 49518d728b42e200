"""A negation comes after a join above it, so that the join sees no row that is taken back (Golab and Özsu, 2005,
5.4.2 and figure 6), where that is exactly the same; see `lifting`. Whether it is worth it, the costs tell."""

from __future__ import annotations

from errata.language.cost import Statistics
from errata.language.nodes import Join, Negation
from errata.language.plan import Plan
from errata.language.rewrite.lifting import lifted_over, rank_above
from errata.language.rewrite.rule import Rule, where_cheaper


def after_join(plan: Plan) -> Plan:
    """The join as a negation over a join, where one of its sides is a negation and that is the same."""
    if isinstance(plan, Join):
        for negation, partner in ((plan.left, plan.right), (plan.right, plan.left)):
            if isinstance(negation, Negation) and lifted_over(negation, partner, plan.condition):
                rank = rank_above(negation, partner)
                if rank is not None:
                    sides = [negation.left if side is negation else side for side in plan.inputs]
                    return Negation(plan.with_inputs(sides), negation.right, negation.columns, rank)
    return plan


def _pull_up(plan: Plan, statistics: Statistics) -> Plan:
    return where_cheaper(plan, after_join, statistics)


PULL_UP_NEGATION = Rule("pull_up_negation", _pull_up)
