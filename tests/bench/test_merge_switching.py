"""The benchmark of plan switching: its plans keep the same rows, and at a tiny scale every figure comes out."""

from __future__ import annotations

from pathlib import Path

from bench.merge_switching import HALF, WAYS, SwitchingAmounts, condition, made_batches, switching_figures
from pyspark.sql import SparkSession

TINY = SwitchingAmounts(stretches=2, batches=2, rows=20, cost=1)


def test_stretches_have_small_values_or_large_ones() -> None:
    batches = made_batches(SwitchingAmounts(stretches=4, batches=10, rows=50, cost=1))
    small = [all(x < HALF for x in each["x"].to_pylist()) for each in batches]
    large = [all(x >= HALF for x in each["x"].to_pylist()) for each in batches]
    assert all(one != other for one, other in zip(small, large, strict=True))
    assert sum(one != other for one, other in zip(small[1:], small, strict=False)) == 3
    at = [place for each in batches for place in each["at"].to_pylist()]
    assert at == list(range(len(at)))


def test_plans_are_expensive_for_other_rows(spark: SparkSession) -> None:
    rows = spark.sql("SELECT CAST(id AS int) AS x, CAST(id AS string) AS text FROM range(100)")
    kept = [{row.x for row in rows.where(condition(1, small=each)).collect()} for each in (True, False)]
    assert kept[0] == kept[1] == {x for x in range(100) if x % 10 < 9}
    assert f"x < {HALF}" in condition(1, small=True)
    assert f"x >= {HALF}" in condition(1, small=False)


def test_every_figure_comes_out(tmp_path: Path, spark: SparkSession) -> None:
    found = switching_figures(TINY, tmp_path)
    assert [each.metric for each in found.metrics[:-1]] == [f"plan switching, {way}" for way in WAYS]
    assert all(each.value > 0 for each in found.metrics)
    assert found.metrics[-1].goal == ">= 5"
    assert [each.name for each in found.pictures] == ["figure10"]
