"""Rewriting: plans with the same answer at every instant that cost less. One module per rule or pair of rules, each a
pure function.

A rule may change what no operator above a node observes of it (`rule.VisibleTraits`): the order of hidden columns and,
at the root, the order of the key's columns. Code that reads a query's results by key therefore takes the columns of the
plan as it was read. May import the facts about plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errata.language.cost import DefaultStatistics, Statistics
from errata.language.plan import Plan, PlanError, cached_fact
from errata.language.rewrite.lift_negation import PULL_UP_NEGATION, relation_joins
from errata.language.rewrite.place_distinct import PLACE_DISTINCT
from errata.language.rewrite.prune_columns import prune_columns
from errata.language.rewrite.push_predicates import push_predicates
from errata.language.rewrite.rule import RewriteRule, always_apply, apply_unless_dearer
from errata.language.rewrite.simplify_patterns import simplify_patterns

RULES: tuple[RewriteRule, ...] = (
    always_apply("push_predicates", push_predicates),
    always_apply("relation_joins", relation_joins),
    apply_unless_dearer("simplify_patterns", simplify_patterns),
    PULL_UP_NEGATION,
    PLACE_DISTINCT,
    always_apply("prune_columns", prune_columns),
)
"""Applied in this order, repeatedly, until none changes anything."""

_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class RewriteStep:
    """The plan after one rule."""

    rule: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """A plan that no rule changes any more, and the steps that led to it."""

    plan: Plan
    steps: tuple[RewriteStep, ...]


def rewrite_plan(
    plan: Plan, statistics: Statistics | None = None, rules: Sequence[RewriteRule] = RULES
) -> RewriteResult:
    """The plan after all rules."""
    known = DefaultStatistics() if statistics is None else statistics
    steps: list[RewriteStep] = []
    for _ in range(_ROUNDS):
        before = len(steps)
        for rule in rules:
            changed = rule.apply(plan, known)
            if changed is not plan and changed != plan:
                steps.append(RewriteStep(rule.name, changed))
                plan = changed
        if len(steps) == before:
            return RewriteResult(plan, tuple(steps))
    names = ", ".join(dict.fromkeys(step.rule for step in steps[-len(rules) :]))
    raise PlanError(f"rewriting does not come to an end: {names} undo each other", where="rewrite")


@cached_fact
def rewritten_plan(plan: Plan) -> Plan:
    """The plan after all rules, without statistics."""
    return rewrite_plan(plan).plan


__all__ = ["RULES", "RewriteResult", "RewriteRule", "RewriteStep", "rewrite_plan", "rewritten_plan"]
