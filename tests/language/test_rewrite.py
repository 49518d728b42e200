"""Rewritten plans answer as the plans they come from, at every instant; and each rule does what it is for, and no more.

Plans before and after stand in `rewrites/<rule>/<name>.plan`; `ERRATA_GOLDEN=write pytest` writes them anew.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from errata.language.expr import BOOLEAN, Lit
from errata.language.nodes import Filter, Scan
from errata.language.plan import Plan, PlanError, rebuild_plan
from errata.language.plan_text import plan_tree
from errata.language.queries import read_query
from errata.language.rewrite import RULES, RewriteRule, rewrite_plan
from errata.language.rewrite.lift_negation import negation_after_join
from fixtures.chance import random_for
from fixtures.paper_sources import paper_sources
from fixtures.plans.choices import pool
from fixtures.plans.maker import Trial, plans_with_data, random_case
from fixtures.plans.rewrite_shapes import SHAPES, assert_same, random_shape, shapes_with_data

HERE = Path(__file__).parent / "rewrites"
GOLDEN = sorted(HERE.glob("*/*.sql"))
BY_NAME = {rule.name: rule for rule in RULES}
EAGER = RewriteRule("pull_up_negation", lambda plan, _statistics: rebuild_plan(plan, negation_after_join))
"""Wherever it can be, not only where it is cheaper: it must be right either way."""
ALL = tuple(EAGER if rule.name == EAGER.name else rule for rule in RULES)
SLOW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


# What is rewritten, and how


def read(path: Path) -> Plan:
    return read_query(path.read_text(), path.name, paper_sources())


def shown(rule: str, plan: Plan) -> str:
    after = rewrite_plan(plan, rules=[BY_NAME[rule]]).plan
    return f"{plan_tree(plan)}\n{'stays' if after == plan else plan_tree(after)}".rstrip() + "\n"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_plans_before_and_after(path: Path) -> None:
    told = shown(path.parent.name, read(path))
    golden = path.with_suffix(".plan")
    if os.environ.get("ERRATA_GOLDEN") == "write":
        golden.write_text(told)
    assert told == golden.read_text()


def test_every_rule_has_plans_that_it_changes_and_plans_that_it_leaves() -> None:
    told = {rule.name: [shown(rule.name, read(path)) for path in HERE.glob(f"{rule.name}/*.sql")] for rule in RULES}
    assert all(any("stays" not in each for each in of_rule) for of_rule in told.values())
    assert {name for name, of_rule in told.items() if not any(each.endswith("stays\n") for each in of_rule)} <= {
        "prune_columns"
    }


# The same answers


@pytest.mark.parametrize("shape", SHAPES)
def test_rewritten_plans_give_the_same_answers(shape: str) -> None:
    @SLOW
    @given(shapes_with_data(shape, data_sets=3))
    def check(trial: Trial) -> None:
        assert_same(trial.plan, rewrite_plan(trial.plan, rules=ALL).plan, trial.cases)

    check()


@SLOW
@given(plans_with_data(data_sets=3))
def test_rewritten_plans_of_any_kind_give_the_same_answers(trial: Trial) -> None:
    assert_same(trial.plan, rewrite_plan(trial.plan, rules=ALL).plan, trial.cases)


MADE_FOR = {
    "push_predicates": "joins",
    "relation_joins": "relations",
    "simplify_patterns": "joins",
    "pull_up_negation": "negation_join",
    "place_distinct": "distinct",
    "prune_columns": "union",
}


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)
def test_each_rule_alone_gives_the_same_answers(rule: RewriteRule) -> None:
    rng, changed = random_for(f"{__name__} {rule.name}"), 0
    while changed < 8:
        trial = random_shape(rng, MADE_FOR[rule.name], data_sets=3)
        after = None if trial is None else rewrite_plan(trial.plan, rules=[rule])
        if trial is not None and after is not None and after.steps:
            assert_same(trial.plan, after.plan, trial.cases)
            changed += 1


def test_rewriting_comes_to_an_end_and_then_changes_nothing() -> None:
    rng = random_for(__name__)
    plans = [random_case(rng).plan for _ in range(100)]
    plans += [each.plan for each in (random_shape(rng) for _ in range(100)) if each is not None]
    for plan in plans:
        done = rewrite_plan(plan, rules=ALL)
        again = rewrite_plan(done.plan, rules=ALL)
        assert again.steps == ()
        assert again.plan is done.plan


def test_steps_tell_what_changed_the_plan() -> None:
    plan = read(HERE / "push_predicates/into_a_union.sql")
    done = rewrite_plan(plan)
    assert [step.rule for step in done.steps] == ["push_predicates", "prune_columns"]
    assert done.steps[-1].plan is done.plan


def test_rules_that_undo_each_other_are_found_out() -> None:
    plan = Filter(Scan(pool(timed=False)["link1"], "a"), Lit(True, BOOLEAN))
    off = RewriteRule("off", lambda given, _: given.input if isinstance(given, Filter) else given)
    on = RewriteRule("on", lambda given, _: Filter(given, Lit(True, BOOLEAN)))
    with pytest.raises(PlanError, match="off, on undo each other"):
        rewrite_plan(plan, rules=[off, on])


def test_a_query_over_twenty_inputs_is_rewritten_quickly() -> None:
    joined = " ".join(f"JOIN sliding(link2, '1 hour') AS t{at} ON t0.src = t{at}.src" for at in range(1, 20))
    plan = read_query(f"SELECT t0.src AS src FROM link1 AS t0 {joined} WHERE t7.src = 'x'", "q", paper_sources())
    best = min(_seconds(plan) for _ in range(3))
    assert best < 0.5


def _seconds(plan: Plan) -> float:
    begin = time.perf_counter()
    rewrite_plan(plan)
    return time.perf_counter() - begin
