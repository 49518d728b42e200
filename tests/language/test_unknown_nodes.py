"""A dispatch on the kind of operator has no silent default: of an operator that it does not know it says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from errata.language.copies import Copy
from errata.language.cost import Guess, cost
from errata.language.explaining.draw import to_svg
from errata.language.explaining.explain import explain
from errata.language.expr import BOOLEAN, INT, Call, Lit
from errata.language.lineage import Change, backward, forward, in_words, replay, too_wide
from errata.language.lineage.constants import down, up
from errata.language.lineage.edges import edges
from errata.language.lineage.membership import membership
from errata.language.lineage.reach import Axis, Region, axis, lags, row_by_row
from errata.language.lineage.width import distances
from errata.language.near import obstacle
from errata.language.needed_columns import over_needed_columns
from errata.language.nodes import Filter, Output, Project, Scan
from errata.language.patterns import pattern
from errata.language.plan import Plan, PlanError, Unary
from errata.language.rewrite import RULES, Rule, rewrite
from errata.language.rewrite.constants import constants
from errata.language.rewrite.prune_columns import prune_columns
from errata.language.rewrite.push_predicates import sink
from errata.language.rewrite.watched import ROOT, seen_below
from errata.language.rough import rough_columns
from errata.language.strategy import choose
from errata.language.times import timing
from errata.language.tree import expressions, fingerprint, line, tree
from errata.model.interval import Interval
from fixtures.choices import pool


@dataclass(frozen=True)
class Sampled(Unary):
    """An operator that nothing but this test knows."""


SCAN = Scan(pool(timed=False)["link1"], "a")
NODE = Sampled(SCAN)
ABOVE = Project(NODE, (Output("n", NODE.ref("a.n")),))
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
    "times": timing,
    "pattern": pattern,
    "text": tree,
    "line": line,
    "fingerprint": fingerprint,
    "expressions": expressions,
    "near obstacle": obstacle,
    "rough columns": rough_columns,
    "cost": lambda plan: cost(plan, Guess()),
    "strategy": choose,
    "explanation": explain,
    "drawing": lambda plan: to_svg(explain(plan)),
    "copy": lambda plan: Copy(Again()).of(plan),
    "lineage in words": in_words,
    "axis": axis,
    "row by row": row_by_row,
    "edges": edges,
    "distances": distances,
    "wide inputs": too_wide,
    "lags": lags,
    "membership": membership,
    "constants upwards": lambda plan: up(plan, 0, {}),
    "constants downwards": lambda plan: down(plan, {}),
    "what a change touches": lambda plan: forward(plan, Change(0, Interval(0, 1))),
    "what an output is made of": lambda plan: backward(plan, Region(Axis.START, Interval(0, 1))),
    "replay": lambda plan: replay(plan, Change(0, Interval(0, 1))),
    "rewriting": rewrite,
    "needed columns": over_needed_columns,
    "pruned columns": prune_columns,
    "constant columns": constants,
    "predicates": lambda plan: sink(plan, POSITIVE),
    "what is seen": lambda plan: seen_below(plan, ROOT),
}


@pytest.mark.parametrize("asked", ASKED)
def test_an_operator_that_is_not_known_is_an_error_that_names_it(asked: str) -> None:
    with pytest.raises(PlanError, match="Sampled"):
        ASKED[asked](NODE)


def outcome(rule: Rule, plan: Plan) -> Plan | str:
    try:
        return rule.apply(plan, Guess())
    except PlanError as error:
        return str(error)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_changes_nothing_above_an_operator_that_is_not_known_or_says_so(rule: Rule) -> None:
    for plan in (ABOVE, Filter(NODE, POSITIVE)):
        found = outcome(rule, plan)
        assert found == plan or "Sampled" in str(found)
