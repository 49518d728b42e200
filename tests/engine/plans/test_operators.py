"""Each operator on a few rows, with lifetimes and lineage worked out by hand."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from errata.engine.failures import JOB_FAILURES
from errata.engine.near import is_near
from errata.language.expr import BIGINT, INT, Lit
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Output,
    Projection,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
)
from errata.language.plan import PlanError
from errata.model.time import HIGHEST
from fixtures.duck import same
from fixtures.evaluation import INTERPRETED, Asked, Lived, configured, evaluate, evaluate_one, live
from fixtures.plans.examples import EXAMPLES, POOL, Example, count, equal, event, group, scan

REFUSED = {"a condition that could fail is asked of pairs only"}
"""Examples whose answer at an instant is left to the far engine: the near one asks conditions of rows that do not count
then, and fails."""


@pytest.fixture(scope="module", params=["far", "near"])
def engine(request: pytest.FixtureRequest) -> SparkSession:
    session: SparkSession = request.getfixturevalue("spark" if request.param == "far" else "near")
    return session


@pytest.fixture(scope="module")
def histories(engine: SparkSession) -> dict[str, list[Lived]]:
    return _evaluated(engine, {name: Asked(each.plan, [each.data], lineage=True) for name, each in EXAMPLES.items()})


@pytest.fixture(scope="module")
def moments(engine: SparkSession) -> dict[str, list[Lived]]:
    """The examples at the instants at which the last of their rows begin."""
    asked = {
        name: Asked(each.plan, [each.data], at=_moment(each), lineage=True)
        for name, each in EXAMPLES.items()
        if not (is_near(engine) and name in REFUSED)
    }
    return _evaluated(engine, asked)


def _evaluated(spark: SparkSession, asked: dict[str, Asked]) -> dict[str, list[Lived]]:
    with configured(spark, INTERPRETED):
        found = evaluate(spark, list(asked.values()))
        return {name: each.get(0, []) for name, each in zip(asked, found, strict=True)}


def _moment(example: Example) -> int:
    return max((start for _, start, _, _ in example.rows), default=0)


@pytest.mark.parametrize("name", EXAMPLES)
def test_lifetimes_and_lineage(name: str, histories: dict[str, list[Lived]]) -> None:
    found = [(*row.values, row.start, row.end, *row.lineage) for row in histories[name]]
    wanted = [(*values, start, end, *lineage) for values, start, end, lineage in EXAMPLES[name].rows]
    assert same(found, wanted), f"{sorted(found, key=str)}\ninstead of\n{sorted(wanted, key=str)}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_answer_at_an_instant(name: str, engine: SparkSession, moments: dict[str, list[Lived]]) -> None:
    at = _moment(EXAMPLES[name])
    if name not in moments:
        with pytest.raises(JOB_FAILURES, match="Division by zero"):
            evaluate_one(engine, EXAMPLES[name].plan, EXAMPLES[name].data, at=at)
        return
    wanted = live((Lived(values, start, end) for values, start, end, _ in EXAMPLES[name].rows), at)
    assert same([row.values for row in moments[name]], wanted)
    assert {(row.start, row.end) for row in moments[name]} <= {(at, at + 1)}


@pytest.mark.parametrize("at", [None, 3])
def test_windows_over_what_only_holds_are_refused(either: SparkSession, at: int | None) -> None:
    held = Distinct(scan("a", "src"))
    refused = [
        Sliding(held, 3),
        SlidingRows(held, 3),
        group(held, (), count(), window=TimeWindow(5, 5)),
        group(held, (), Aggregate("first", held.ref("a.src"), held.types["a.src"])),
        RelationJoin(held, Scan(POOL["places"], "r")),
    ]
    for plan in refused:
        with pytest.raises(PlanError):
            evaluate_one(either, plan, {}, at=at)


def test_a_sum_that_is_too_large_is_an_error(either: SparkSession) -> None:
    a = scan("a", "time")
    plan = group(a, (), Aggregate("sum", a.ref("a.time"), BIGINT))
    with pytest.raises(Exception, match=r"ARITHMETIC_OVERFLOW|Int64"):
        evaluate_one(either, plan, {"link1": [event(HIGHEST - 1, 1), event(HIGHEST - 2, 2)]})


def test_a_plan_may_keep_several_columns_whose_names_differ_in_case_only(either: SparkSession) -> None:
    a = scan("a", "n")
    plan = Projection(a, (Output("v", a.ref("a.n")), Output("V", a.ref("a.id"))))
    again = Filter(plan, equal(plan.ref("V"), Lit(1, INT)))
    assert [row.values for row in evaluate_one(either, again, {"link1": [event(1, 1, n=7)]})] == [(7, 1, 1)]
