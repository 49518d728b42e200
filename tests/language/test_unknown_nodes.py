"""A dispatch on the kind of operator has no silent default: of an operator that it does not know it says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from errata.language.cost import DefaultStatistics, plan_cost
from errata.language.explain.drawing import to_svg
from errata.language.explain.explanation import explain_plan
from errata.language.expr import BOOLEAN, INT, Call, Lit
from errata.language.feed_properties import derive_feed_properties
from errata.language.incremental import inexact_columns
from errata.language.lineage import InputChange, backward, forward, lineage_sentences, replay_scope, unbounded_inputs
from errata.language.lineage.constants import constants_down, constants_up, membership_columns
from errata.language.lineage.distances import scan_offsets
from errata.language.lineage.extents import extent_axis, input_offsets, is_row_by_row, time_lags
from errata.language.near_support import near_obstacle
from errata.language.nodes import Filter, Output, Projection, Scan
from errata.language.outer_joins import PlanCopy
from errata.language.patterns import choose_operator, update_pattern
from errata.language.plan import Plan, PlanError, Unary
from errata.language.plan_text import fingerprint, operator_exprs, operator_text, plan_tree
from errata.language.rewrite import RULES, RewriteRule, rewrite_plan
from errata.language.rewrite.prune_columns import over_needed_columns, prune_columns
from errata.language.rewrite.push_predicates import literal_columns, push_down
from errata.language.rewrite.rule import ROOT_TRAITS, input_traits
from errata.language.times import row_times
from errata.model.extent import Extent, ExtentAxis, rows_starting_in
from errata.model.time import Interval
from fixtures.plans.choices import pool


@dataclass(frozen=True)
class Sampled(Unary):
    """An operator that nothing but this test knows."""


SCAN = Scan(pool(timed=False)["link1"], "a")
NODE = Sampled(SCAN)
ABOVE = Projection(NODE, (Output("n", NODE.ref("a.n")),))
POSITIVE = Call(">", (NODE.ref("a.n"), Lit(0, INT)), BOOLEAN)


class Again:
    """Names for a copy."""

    def alias(self, wanted: str, /) -> str:
        return f"{wanted}_2"

    def next_window(self) -> int:
        return 2

    def next_union(self) -> int:
        return 2


ASKED: dict[str, Callable[[Plan], object]] = {
    "times": row_times,
    "pattern": update_pattern,
    "feed": lambda plan: derive_feed_properties(plan, {}),
    "text": plan_tree,
    "line": operator_text,
    "fingerprint": fingerprint,
    "expressions": operator_exprs,
    "near obstacle": near_obstacle,
    "rough columns": inexact_columns,
    "cost": lambda plan: plan_cost(plan, DefaultStatistics()),
    "strategy": choose_operator,
    "explanation": explain_plan,
    "drawing": lambda plan: to_svg(explain_plan(plan)),
    "copy": lambda plan: PlanCopy(Again()).copy(plan),
    "lineage in words": lineage_sentences,
    "axis": extent_axis,
    "row by row": is_row_by_row,
    "edges": input_offsets,
    "distances": scan_offsets,
    "wide inputs": unbounded_inputs,
    "lags": time_lags,
    "membership": membership_columns,
    "constants upwards": lambda plan: constants_up(plan, 0, {}),
    "constants downwards": lambda plan: constants_down(plan, {}),
    "what a change touches": lambda plan: forward(plan, InputChange(0, rows_starting_in(Interval(0, 1)))),
    "what an output is made of": lambda plan: backward(plan, Extent(ExtentAxis.START, Interval(0, 1))),
    "replay": lambda plan: replay_scope(plan, InputChange(0, rows_starting_in(Interval(0, 1)))),
    "rewriting": rewrite_plan,
    "needed columns": over_needed_columns,
    "pruned columns": prune_columns,
    "constant columns": literal_columns,
    "predicates": lambda plan: push_down(plan, POSITIVE),
    "what is seen": lambda plan: input_traits(plan, ROOT_TRAITS),
}


@pytest.mark.parametrize("asked", ASKED)
def test_an_operator_that_is_not_known_is_an_error_that_names_it(asked: str) -> None:
    with pytest.raises(PlanError, match="Sampled"):
        ASKED[asked](NODE)


def outcome(rule: RewriteRule, plan: Plan) -> Plan | str:
    try:
        return rule.apply(plan, DefaultStatistics())
    except PlanError as error:
        return str(error)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_changes_nothing_above_an_operator_that_is_not_known_or_says_so(rule: RewriteRule) -> None:
    for plan in (ABOVE, Filter(NODE, POSITIVE)):
        found = outcome(rule, plan)
        assert found == plan or "Sampled" in str(found)
