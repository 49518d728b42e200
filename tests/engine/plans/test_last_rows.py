"""Rows that count until so many have come after them, found in many of Spark's tasks: the same as in one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from errata.engine.plans import compile as scans
from errata.engine.plans.compile import compile_plan
from errata.language.nodes import SlidingRows
from fixtures.chance import random_for
from fixtures.duck import Data, answers, same
from fixtures.evaluation import INTERPRETED, Asked, configured, evaluate, frames, live
from fixtures.plans.examples import event, scan

MANY = {**INTERPRETED, "spark.sql.shuffle.partitions": str(scans.ROW_WINDOW_TASKS)}
ROWS = 2_000


def _data(times: Callable[[int], int], count: int) -> Data:
    return {"link1": [event(times(number), number, str(number % 3)) for number in range(count)]}


@pytest.mark.parametrize("last", [1, 4, 90])
def test_in_stretches_they_are_what_duckdb_says(last: int, spark: SparkSession) -> None:
    rng = random_for(f"{__name__} {last}")
    cases = [
        _data(lambda number: number, 60),
        _data(lambda number: number // 20, 60),  # stretches of equal times, longer than what is looked at
        _data(lambda _: 7, 60),
        _data(lambda _: rng.randrange(40), 60),
        _data(lambda number: 0 if number < 50 else number, 60),
        _data(lambda number: number, 3),
        _data(lambda number: number, 0),
    ]
    plan, ats = SlidingRows(scan("a", "src", "n"), last), range(0, 62, 3)
    wanted = answers(plan, cases, list(ats))
    with configured(spark, MANY):
        found = evaluate(spark, [Asked(plan, cases)])[0]
    for number in range(len(cases)):
        for at in ats:
            got, want = live(found.get(number, []), at), wanted.get((number, at), [])
            assert same(got, want), f"data set {number} at {at}: {got} instead of {want}"


@pytest.mark.parametrize(("conf", "most"), [(INTERPRETED, ROWS), (MANY, ROWS // 2)], ids=["one", "many"])
def test_no_task_has_all_rows(conf: dict[str, str], most: int, spark: SparkSession) -> None:
    plan = SlidingRows(scan("a", "src", "n"), 5)
    with configured(spark, conf):
        found = compile_plan(plan, _frames(spark, plan))
        sizes = [row["count"] for row in _by_task(found).collect()]
    assert sum(sizes) == ROWS
    assert most == max(sizes) if conf is INTERPRETED else max(sizes) <= most


def _frames(spark: SparkSession, plan: SlidingRows) -> dict[str, DataFrame]:
    return frames(spark, plan, [_data(lambda number: number, ROWS)])


def _by_task(found: DataFrame) -> DataFrame:
    return found.selectExpr("spark_partition_id() AS task").groupBy("task").count()
