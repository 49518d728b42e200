"""An explanation says what a plan tells, in words for those who did not write the query."""

from __future__ import annotations

import random

import pytest

from errata.language.cost import plan_cost
from errata.language.explain.explanation import Explanation, explain_plan, explanation_text, short_number
from errata.language.nodes import Negation
from errata.language.patterns import choose_operator, result_choice, update_pattern
from errata.language.plan import walk_plan
from errata.language.plan_text import operator_text
from errata.language.queries import query_source, read_query
from errata.language.rewrite import RULES, rewrite_plan
from errata.model.results import UpdatePattern
from fixtures.chance import seeds
from fixtures.plans.choices import pool
from fixtures.plans.maker import random_case


def explained(text: str, *, timed: bool = True, early: bool = False) -> Explanation:
    return explain_plan(read_query(text, "query.sql", pool(timed), early=early), name="it")


def sections(text: str) -> dict[str, str]:
    """The parts of the text by their titles."""
    head, *parts = text.split("\n\n")
    found = {"": head}
    title = ""
    for part in "\n\n".join(parts).splitlines():
        if part and not part.startswith(" "):
            title = part
            found[title] = ""
        else:
            found[title] += part.removeprefix("  ") + "\n"
    return found


def said(text: str, **how: bool) -> str:
    return "\n".join(explained(text, **how).remarks)


NEGATION = "SELECT time, src FROM negation(sliding(link1, '20 minutes'), sliding(link2, '20 minutes'), 'src')"


def test_every_operator_has_what_was_found_out_about_it() -> None:
    plan = read_query(NEGATION, "query.sql", pool(True))
    explanation = explain_plan(plan)
    estimated = plan_cost(plan)
    assert [each.node for each in explanation.before.operators] == list(walk_plan(plan))
    for operator, about in zip(explanation.before.operators, estimated.by_node, strict=True):
        choice = choose_operator(operator.node)
        assert (operator.operator, operator.state, operator.why) == (choice.operator, choice.state, choice.why)
        assert (operator.rate, operator.size, operator.cost) == (about.rate, about.size, about.cost)
        assert operator.pattern is update_pattern(operator.node)
    assert explanation.before.cost == estimated.total
    assert explanation.before.result == result_choice(plan)
    assert [each.depth for each in explanation.before.operators] == [0, 1, 2, 3, 2, 3]


def test_both_plans_and_the_rules_between_are_there() -> None:
    plan = read_query("SELECT a.time FROM link1 AS a JOIN link2 AS b ON a.n = b.n WHERE a.src = 'x'", "q", pool(True))
    explanation, rewritten = explain_plan(plan), rewrite_plan(plan)
    assert (explanation.before.plan, explanation.after.plan) == (plan, rewritten.plan)
    assert explanation.steps == rewritten.steps
    told = sections(explanation_text(explanation))
    assert told["As written"].startswith("project  time = a.time\n  filter a.src = 'x'\n    join on a.n = b.n\n")
    assert "- push predicates: conditions go down" in told["Rewritten"]


def test_every_rule_is_known_in_words() -> None:
    steps = {
        step.rule
        for seed in seeds(__name__, 150)
        for step in rewrite_plan(random_case(random.Random(seed), data_sets=0).plan).steps
    }
    assert steps <= {rule.name for rule in RULES}
    for seed in seeds(__name__, 40):
        explanation = explain_plan(random_case(random.Random(seed), data_sets=0).plan)
        for step in explanation.steps:
            assert f"- {step.rule.replace('_', ' ')}: " in explanation_text(explanation)


def test_the_text_of_a_small_query() -> None:
    explanation = explained(
        "SELECT src, window_end, sum(n) AS total FROM link1 GROUP BY src, window(time, '5 minutes')"
    )
    told = sections(explanation_text(explanation))
    assert list(told) == [
        "",
        "Answer",
        "Worth knowing",
        "As written",
        "Rewritten",
        "How it is kept answered",
        "Why so",
        "Where a result comes from",
    ]
    assert told[""] == "it reads link1"
    assert told["Answer"] == (
        "src           string     key\n"
        "window_end    timestamp\n"
        "total         bigint\n"
        "window_start  timestamp  key, hidden\n"
        "\n"
        "MON: results are only ever added.\n"
        "\n"
    )
    assert told["How it is kept answered"].startswith("edge  rows/s   held  work/s  operator\nMON ")
    assert "nothing is known yet of link1: the numbers rest on guesses" in told["How it is kept answered"]
    assert told["Where a result comes from"].startswith("link1 (link1)\n  - ")


def test_with_statistics_nothing_is_guessed() -> None:
    class Known:
        def rate(self, source: str) -> float | None:
            return {"link1": 1000.0}.get(source)

        def distinct(self, source: str, column: str) -> float | None:
            return {("link1", "src"): 7.0}.get((source, column))

        def rows(self, source: str) -> float | None:
            return {"link1": 1e6}.get(source)

    plan = read_query("SELECT src, n FROM link1", "query.sql", pool(True))
    explanation = explain_plan(plan, Known())
    assert explanation.before.operators[0].rate == 1000.0
    assert "guess" not in explanation_text(explanation)
    both = read_query("SELECT a.src FROM link1 AS a JOIN link2 AS b ON a.n = b.n", "query.sql", pool(True))
    assert explain_plan(both, Known()).unknown == ("link2",)


def test_plain_numbers_are_not_seconds() -> None:
    text = explanation_text(explained("SELECT count(*) AS n FROM sliding(link1, 20)", timed=False))
    assert "rows/unit" in text
    assert "sliding 20\n" in text
    assert "second" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("seed", range(12))
def test_lines_are_no_longer_than_asked(width: int, seed: int) -> None:
    text = explanation_text(explain_plan(random_case(random.Random(seed), data_sets=0).plan), width)
    # A line without a space after its indentation cannot be broken.
    assert [each for each in text.splitlines() if len(each) > width and " " in each[width // 2 :].strip()] == []
    assert not [each for each in text.splitlines() if each != each.rstrip()]


STRICT = [
    (NEGATION, "a row on the right takes one of the left back"),
    ("SELECT l.time FROM link1 AS l JOIN people AS p ON l.src = p.name", "whenever the relation changes"),
    ("SELECT time FROM sliding_rows(link1, 7)", "depends on when the next ones will come"),
    ("SELECT src, count(*) AS n FROM link1 GROUP BY src, row_window(3)", "moves the rows of all windows"),
    (
        "SELECT src, count(*) AS n FROM link1 GROUP BY src HAVING count(*) > 1",
        "whenever the next result of a key comes",
    ),
]


@pytest.mark.parametrize(("text", "why"), STRICT)
def test_a_strict_query_says_why(text: str, why: str) -> None:
    explanation = explained(text)
    assert explanation.after.operators[0].pattern is UpdatePattern.STRICT
    [told] = [each for each in explanation.remarks if each.startswith("The answer is strict (STR) because of")]
    assert why in told


def test_only_where_strictness_begins_is_named() -> None:
    explanation = explained(
        f"SELECT s.src FROM ({NEGATION}) AS s JOIN sliding(link2, '1 minute') AS b ON s.src = b.src"
    )
    told = [each for each in explanation.remarks if each.startswith("The answer is strict")]
    [negation] = [each for each in walk_plan(explanation.after.plan) if isinstance(each, Negation)]
    assert [f"`{operator_text(negation)}`" in each for each in told] == [True]


def test_what_is_not_strict_in_the_end_says_nothing_of_it() -> None:
    assert "strict" not in said(f"SELECT src, count(*) AS n FROM ({NEGATION}) AS s GROUP BY src")


REMARKS = [
    ("SELECT count(*) AS n, window_start FROM link1 GROUP BY window(time, '5 minutes')", "published when it is closed"),
    ("SELECT src, count(*) AS n FROM link1 GROUP BY src, row_window(3)", "the last 2 rows may still wait"),
    (
        "SELECT a.time, b.time AS other FROM link1 AS a JOIN link2 AS b ON a.src = b.src",
        "every row that ever came from link1",
    ),
    ("SELECT DISTINCT src FROM link1", "keeps every value that ever came"),
    ("SELECT src, sum(n) AS n FROM link1 GROUP BY src", "is over all rows since the beginning"),
    (
        "SELECT a.time, b.time AS other FROM link1 AS a JOIN link2 AS b ON a.n < b.n",
        "has no equality between its sides",
    ),
    ("SELECT a.time, b.time AS other FROM link1 AS a, link2 AS b", "`cross join` has no equality"),
    ("SELECT count(*) AS n FROM link1", "has no row while there is nothing to group"),
    ("SELECT time, n + 1 AS more FROM link1", "`link1.n + 1` can fail"),
    ("SELECT src FROM link1", "told apart by link1.id, link1.time too"),
    ("SELECT sum(x) AS total FROM link1", "The last digits of sum(link1.x)"),
]


@pytest.mark.parametrize(("text", "remark"), REMARKS)
def test_what_is_worth_knowing_is_said(text: str, remark: str) -> None:
    assert remark in said(text)


QUIET = [
    ("SELECT time, id, src FROM sliding(link1, '5 minutes')", ""),
    ("SELECT DISTINCT src FROM sliding(link1, '5 minutes')", ""),
    ("SELECT src, sum(n) AS n FROM sliding(link1, '5 minutes') GROUP BY src", ""),
    (
        "SELECT a.src FROM (SELECT DISTINCT src FROM sliding(link1, '5 minutes')) AS a"
        " JOIN (SELECT DISTINCT src FROM sliding(link2, '5 minutes')) AS b ON a.src = b.src",
        "",
    ),
]


@pytest.mark.parametrize(("text", "nothing"), QUIET)
def test_what_is_plain_needs_no_remark(text: str, nothing: str) -> None:
    assert said(text) == nothing


def test_an_early_window_says_that_it_is_early() -> None:
    told = said("SELECT count(*) AS n FROM link1 GROUP BY window(time, '5 minutes')", early=True)
    assert "A window of 5 minutes is in the answer from its first row on" in told


def test_a_query_that_is_read_is_named() -> None:
    sources = pool(True)
    inner = read_query("SELECT time, src FROM link1", "inner.sql", sources)
    outer = read_query("SELECT src FROM inner_one", "q", {**sources, "inner_one": query_source("inner_one", inner)})
    assert explain_plan(outer).reads == ("inner_one",)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00333, "0.00333"),
        (1.5, "1.5"),
        (999.0, "999"),
        (1234.0, "1.23k"),
        (999_999.0, "1M"),
        (86_400.0, "86.4k"),
        (3.5e6, "3.5M"),
        (2e9, "2G"),
        (1e14, "100T"),
        (5e17, "5e+17"),
    ],
)
def test_amounts_have_three_digits_that_count(value: float, text: str) -> None:
    assert short_number(value) == text
