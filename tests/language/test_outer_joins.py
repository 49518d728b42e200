"""Outer joins, rewritten to operators that there are, against DuckDB's own outer joins at every instant."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from errata.language.explain.explanation import explain_plan, explanation_text
from errata.language.lineage import InputChange, replay_scope
from errata.language.nodes import scans_of
from errata.language.patterns import update_pattern
from errata.language.plan import Plan
from errata.language.plan_text import plan_tree
from errata.language.queries import read_query
from errata.language.reading.mistakes import LanguageError
from errata.language.rewrite import rewrite_plan
from errata.model.extent import rows_starting_in
from errata.model.results import UpdatePattern
from errata.model.time import Interval
from fixtures.chance import random_for
from fixtures.duck import answers, same, visible_at
from fixtures.native_joins import native
from fixtures.plans.choices import FromHypothesis, FromRandom, pool
from fixtures.plans.maker import Maker, Trial, instants
from fixtures.plans.outer_joins import TEXTS
from fixtures.printing.printing import to_sql

THOROUGH = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
DATA_SETS = 12
SOURCES = pool(timed=False)


def read(text: str) -> Plan:
    return read_query(text, "query.sql", SOURCES)


def assert_alike(plan: Plan, other: Plan, trial: Trial) -> None:
    ats = instants(plan)
    found, wanted = answers(plan, trial.cases, ats), answers(other, trial.cases, ats)
    for at in ats:
        for number, data in enumerate(trial.cases):
            told = (
                f"at {at} over {data}\n{plan_tree(plan)}\n{found.get((number, at))} and not {wanted.get((number, at))}"
            )
            assert same(found.get((number, at), []), wanted.get((number, at), [])), told


@pytest.mark.parametrize("name", TEXTS)
def test_the_answer_at_every_instant_is_that_of_an_outer_join(name: str) -> None:
    plan, maker = read(TEXTS[name]), Maker(FromRandom(random_for(f"{__name__} {name}")), timed=False)
    trial = Trial(plan, [maker.data(plan) for _ in range(DATA_SETS)])
    # All columns: those that are hidden tell which branch a row is of, and the keys of both sides.
    assert_alike(plan, native(plan), trial)
    assert_alike(rewrite_plan(plan).plan, plan, trial)


@st.composite
def outer_joins(draw: Any) -> Trial:
    maker = Maker(FromHypothesis(draw), timed=False, depth=2)
    plan: Plan = maker.outer(maker.item(1, maker.alias()))
    plan = maker.outer(plan) if maker.often(3) else plan
    return Trial(plan, [maker.data(plan) for _ in range(3)])


@THOROUGH
@given(outer_joins())
def test_any_outer_join_is_rewritten_to_the_same(trial: Trial) -> None:
    assert_alike(trial.plan, native(trial.plan), trial)
    rows = answers(trial.plan, trial.cases, instants(trial.plan))
    places = [[each.name for each in trial.plan.fields].index(name) for name in trial.plan.key]
    for found in rows.values():
        keys = [tuple(map(repr, (row[place] for place in places))) for row in found]
        assert len(set(keys)) == len(keys), f"a key is there twice in {found}\n{plan_tree(trial.plan)}"


@pytest.mark.parametrize("name", TEXTS)
def test_what_was_written_is_printed_and_read_as_the_same_plan(name: str) -> None:
    plan = read(TEXTS[name])
    printed = to_sql(plan)
    assert read(printed) == plan
    assert printed.count("JOIN ") == TEXTS[name].count("JOIN ")


def test_a_column_under_using_is_that_of_the_side_that_is_there() -> None:
    data = {
        "link1": [row(1, 1, "x"), row(2, 2, "y"), row(2, 3, None)],
        "link2": [row(3, 4, "x"), row(3, 5, "z")],
    }
    text = "SELECT src, a.id, b.id AS other FROM link1 AS a {0} JOIN link2 AS b USING (src)"
    pair, of_left, of_right = [("x", 1, 4)], [("y", 2, None), (None, 3, None)], [("z", None, 5)]
    for word, wanted in (
        ("LEFT", [*pair, *of_left]),
        ("RIGHT OUTER", [*pair, *of_right]),
        ("FULL OUTER", [*pair, *of_left, *of_right]),
    ):
        plan = read(text.format(word))
        assert same(visible_at(plan, data, 3), wanted)
        assert read(to_sql(plan)) == plan
        assert [each.name for each in plan.visible] == ["src", "id", "other"]


def test_a_column_under_using_of_several_full_joins_is_of_a_type_that_holds_all() -> None:
    plan = read(
        "SELECT n, a.id, b.id AS other, c.id AS third FROM link1 AS a "
        "FULL JOIN (SELECT id, CAST(n AS bigint) AS n FROM link2) AS b USING (n) FULL JOIN items AS c USING (n)"
    )
    assert str(plan.types["n"]) == "bigint"
    data = {"link1": [row(1, 1, "x", 7)], "link2": [row(1, 2, "x", 8)], "items": [row(1, 3, "x", 8), row(1, 4, "x", 9)]}
    assert same(visible_at(plan, data, 1), [(7, 1, None, None), (8, None, 2, 3), (9, None, None, 4)])


def test_a_star_has_a_column_under_using_once_and_first() -> None:
    text = "SELECT * FROM (SELECT id, src FROM link1) AS a {0} JOIN (SELECT src, n FROM link2) AS b USING (src)"
    for word in ("LEFT", "RIGHT", "FULL"):
        assert [each.name for each in read(text.format(word)).visible] == ["src", "id", "n"]


DISTINCT_BELOW = {
    "the keys of the sides are not read": (
        "SELECT count(*) AS c FROM (SELECT DISTINCT src, time, n, id FROM link1) AS d "
        "LEFT JOIN link2 AS b ON d.src = b.src"
    ),
    "another outer join reads them": (
        "SELECT count(*) AS c FROM (SELECT e.src AS src FROM (SELECT DISTINCT src, time, n, id FROM link1) AS e "
        "LEFT JOIN link2 AS f ON e.n = f.n) AS d LEFT JOIN link2 AS b ON d.src = b.src"
    ),
}


@pytest.mark.parametrize("name", DISTINCT_BELOW)
def test_a_needless_distinct_below_an_outer_join_is_dropped(name: str) -> None:
    plan, maker = read(DISTINCT_BELOW[name]), Maker(FromRandom(random_for(f"{__name__} {name}")), timed=False)
    rewritten = rewrite_plan(plan)
    assert "place_distinct" in [step.rule for step in rewritten.steps]
    assert_alike(rewritten.plan, plan, Trial(plan, [maker.data(plan) for _ in range(DATA_SETS)]))


def row(time: int, number: int, src: str | None, n: int = 0) -> dict[str, object]:
    return {"time": time, "id": number, "src": src, "n": n, "x": 0.0, "price": None, "ok": None}


def test_a_row_stands_padded_until_its_partner_comes_and_again_when_it_goes() -> None:
    plan = read("SELECT a.id, b.id AS other FROM link1 AS a LEFT JOIN sliding(link2, 3) AS b ON a.src = b.src")
    assert update_pattern(plan) is UpdatePattern.STRICT
    data = {"link1": [row(1, 1, "x")], "link2": [row(4, 2, "x"), row(5, 3, "x")]}
    told = [sorted(visible_at(plan, data, at), key=repr) for at in (0, 1, 4, 5, 7, 8)]
    assert told == [[], [(1, None)], [(1, 2)], [(1, 2), (1, 3)], [(1, 3)], [(1, None)]]


def test_the_key_is_that_of_both_sides_and_the_branch() -> None:
    plan = read("SELECT a.src, b.n FROM link1 AS a FULL JOIN link2 AS b ON a.src = b.src")
    assert plan.key == ("_branch", "a.time", "a.id", "b.time", "b.id")


def test_where_the_key_is_compared_the_side_is_read_twice_and_not_three_times() -> None:
    counts = [len(scans_of(read(TEXTS[name]))) for name in ("equality", "on the key", "groups", "of the left alone")]
    assert counts == [5, 4, 4, 5]


def test_a_change_touches_rows_of_its_value_alone() -> None:
    plan = read(TEXTS["equality"])
    places = [number for number, each in enumerate(scans_of(plan)) if each.source.name == "link2"]
    for place in places:
        found = replay_scope(
            plan,
            InputChange(
                place, rows_starting_in(Interval(7, 8), {scans_of(plan)[place].column("src"): "x"}, last_end=10)
            ),
        )
        assert found is not None
        of_first = [region for number, region in found.reads.items() if scans_of(plan)[number].source.name == "link1"]
        assert of_first
        for region in of_first:
            assert "x" in region.values.values()
            assert region.interval.start > 7 - 5 - 1


REFUSED = {
    "SELECT q.src FROM link1 AS q RIGHT JOIN people AS p ON q.src = p.name": (
        "1:41",
        "the relation p would stand alone in a RIGHT JOIN",
    ),
    "SELECT q.src FROM link1 AS q FULL JOIN places AS p ON q.src = p.name": ("1:40", "would stand alone"),
    "SELECT p.name FROM people AS p RIGHT JOIN link1 AS q ON q.src = p.name": ("1:20", "alone or on the left"),
    "SELECT s.src FROM (SELECT DISTINCT src FROM link1) AS s LEFT JOIN places AS p ON s.src = p.name": (
        "1:67",
        "rows without a time of their own",
    ),
    "SELECT a.src FROM link1 AS a LEFT JOIN link2 AS b USING (source)": ("1:58", "unknown column 'source'"),
    "SELECT a.src FROM link1 AS a LEFT JOIN link2 AS b ON a.n": ("1:54", "a condition is a boolean"),
    "SELECT src FROM link1 AS a LEFT JOIN link2 AS b ON a.src = b.src": ("1:8", "src can mean a.src or b.src"),
    "SELECT event_time() AS t FROM link1 AS a LEFT JOIN link2 AS b ON a.src = b.src": ("1:8", "no event_time() here"),
    "SELECT count(*) AS c FROM link1 AS a LEFT JOIN link2 AS b ON a.src = b.src GROUP BY window(a.time, 5)": (
        "1:85",
        "a window is over what happened",
    ),
    "SELECT a.src FROM link1 AS a NATURAL LEFT JOIN link2 AS b": ("1:48", "NATURAL JOIN is not part"),
    "SELECT a.src FROM link1 AS a LEFT ANTI JOIN link2 AS b ON a.src = b.src": ("1:45", "ANTI JOIN is not part"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text: str) -> None:
    place, what = REFUSED[text]
    with pytest.raises(LanguageError, match=re.escape(what)) as error:
        read(text)
    assert (error.value.where or "").endswith(place)


def test_a_chain_that_would_read_too_much_is_refused() -> None:
    chain = " ".join(f"LEFT JOIN link1 AS a{n} ON a.n = a{n}.n" for n in range(6))
    with pytest.raises(LanguageError, match="more than 300 inputs"):
        read(f"SELECT a.src FROM link1 AS a {chain}")


@pytest.mark.parametrize("name", ["equality", "chain", "relations", "groups"])
def test_explain_tells_what_was_written_and_the_pattern(name: str) -> None:
    told = explanation_text(explain_plan(read(TEXTS[name])))
    assert "left outer join: union all" in told
    assert "STR" in told


def test_what_is_worth_knowing_is_said_of_what_was_written() -> None:
    said = explain_plan(read("SELECT a.id, b.n FROM link1 AS a LEFT JOIN link2 AS b ON a.src = b.src")).remarks
    assert [each.partition("`")[2].partition("`")[0] for each in said[:3]] == [
        "left outer join: union all",
        *["join on a.src = b.src"] * 2,
    ]
    assert "_partners" not in " ".join(said)
    assert "only until one comes" in said[0]
    said = explain_plan(read("SELECT a.id, p.label FROM link1 AS a LEFT JOIN places AS p ON a.src = p.name")).remarks
    assert "rows without a version" in said[0]
