"""Each operator on a few rows, with lifetimes and lineage worked out by hand."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from errata.language.expr import BIGINT, INT, Lit
from errata.language.nodes import (
    Aggregate,
    Distinct,
    Filter,
    Output,
    Project,
    RelationJoin,
    Scan,
    Sliding,
    SlidingRows,
    TimeWindow,
)
from errata.language.plan import PlanError
from errata.model.interval import HIGHEST
from fixtures.compiled import INTERPRETED, Asked, Lived, configured, evaluate, evaluate_one, live
from fixtures.duck import same
from fixtures.operator_examples import EXAMPLES, POOL, Example, count, equal, event, group, scan


@pytest.fixture(scope="module")
def histories(spark: SparkSession) -> dict[str, list[Lived]]:
    return _evaluated(spark, [Asked(each.plan, [each.data], lineage=True) for each in EXAMPLES.values()])


@pytest.fixture(scope="module")
def moments(spark: SparkSession) -> dict[str, list[Lived]]:
    """The examples at the instants at which the last of their rows begin."""
    return _evaluated(
        spark, [Asked(each.plan, [each.data], at=_moment(each), lineage=True) for each in EXAMPLES.values()]
    )


def _evaluated(spark: SparkSession, asked: list[Asked]) -> dict[str, list[Lived]]:
    with configured(spark, INTERPRETED):
        return {name: found.get(0, []) for name, found in zip(EXAMPLES, evaluate(spark, asked), strict=True)}


def _moment(example: Example) -> int:
    return max((start for _, start, _, _ in example.rows), default=0)


@pytest.mark.parametrize("name", EXAMPLES)
def test_lifetimes_and_lineage(name: str, histories: dict[str, list[Lived]]) -> None:
    found = [(*row.values, row.start, row.end, *row.lineage) for row in histories[name]]
    wanted = [(*values, start, end, *lineage) for values, start, end, lineage in EXAMPLES[name].rows]
    assert same(found, wanted), f"{sorted(found, key=str)}\ninstead of\n{sorted(wanted, key=str)}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_answer_at_an_instant(name: str, moments: dict[str, list[Lived]]) -> None:
    at = _moment(EXAMPLES[name])
    wanted = live((Lived(values, start, end) for values, start, end, _ in EXAMPLES[name].rows), at)
    assert same([row.values for row in moments[name]], wanted)
    assert {(row.start, row.end) for row in moments[name]} <= {(at, at + 1)}


@pytest.mark.parametrize("at", [None, 3])
def test_windows_over_what_only_holds_are_refused(spark: SparkSession, at: int | None) -> None:
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
            evaluate_one(spark, plan, {}, at=at)


def test_a_sum_that_is_too_large_is_an_error(spark: SparkSession) -> None:
    a = scan("a", "time")
    plan = group(a, (), Aggregate("sum", a.ref("a.time"), BIGINT))
    with pytest.raises(Exception, match="ARITHMETIC_OVERFLOW"):
        evaluate_one(spark, plan, {"link1": [event(HIGHEST - 1, 1), event(HIGHEST - 2, 2)]})


def test_a_plan_may_keep_several_columns_whose_names_differ_in_case_only(spark: SparkSession) -> None:
    a = scan("a", "n")
    plan = Project(a, (Output("v", a.ref("a.n")), Output("V", a.ref("a.id"))))
    again = Filter(plan, equal(plan.ref("V"), Lit(1, INT)))
    assert [row.values for row in evaluate_one(spark, again, {"link1": [event(1, 1, n=7)]})] == [(7, 1, 1)]
