"""When a negation may come after a join that stands above it.

A negation only counts: of the rows of a value the youngest stand. So it does not matter whether a join comes before or
after it, if at each instant the join does one and the same to all rows of a value: either drops them all, or pairs each
with one row, the same for all. With more than one partner figure 6 of Golab and Özsu (2005) is no equivalence under
their equation 1: two partners make two rows of each one on the left, and the right takes away only as many as before.
"""

from __future__ import annotations

from errata.language.expr import Expr, conjuncts, refs
from errata.language.nodes import Negation
from errata.language.plan import Plan
from errata.language.rewrite.sound import all_total, equalities, treats_equals_alike, unique_by
from errata.language.times import Own, timing


def lifted_over(negation: Negation, partner: Plan, condition: Expr | None) -> bool:
    """Whether a join of the negation with the partner does the same to all rows of a value at each instant."""
    parts = conjuncts(condition)
    if not all_total(parts):
        return False
    value = {name for name, _ in negation.columns}
    read = refs(condition) & negation.types.keys() if condition is not None else frozenset()
    if not read <= value or not all(treats_equals_alike(each, value) for each in parts):
        return False
    equated = {name for pair in equalities(parts) for name in _across(pair[0].name, pair[1].name, value, partner)}
    return unique_by(partner, equated)


def _across(one: str, other: str, value: set[str], partner: Plan) -> list[str]:
    """The partner's column, if the pair is one of the value and one of the partner."""
    pairs = ((one, other), (other, one))
    return [theirs for ours, theirs in pairs if ours in value and theirs in partner.types]


def rank_above(negation: Negation, partner: Plan) -> tuple[str, ...] | None:
    """The columns that order rows after the join as the negation orders them before it; None if no columns do."""
    known = _age(negation)
    # The partner is the same for all rows of a value: its key decides nothing, but tells its rows apart.
    return None if known is None else tuple(dict.fromkeys((*known, *partner.key)))


def _age(negation: Negation) -> tuple[str, ...] | None:
    left = negation.left
    if negation.rank is not None:
        # Only where no two rows are of the same age, nothing else decides between them.
        return negation.rank if unique_by(left, negation.rank) else None
    times = timing(left)
    if times.own is Own.NONE:
        return left.key
    told = sorted(name for name in times.columns if name in left.types)
    return (told[0], *left.key) if told else None
