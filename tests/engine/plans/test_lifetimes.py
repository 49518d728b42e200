"""The normal form of a result."""

from __future__ import annotations

from itertools import pairwise

from pyspark.sql import SparkSession

from errata.engine.plans.lifetimes import normal_form
from errata.model.interval import HIGHEST
from fixtures.chance import random_for

NAN = float("nan")


def normal(spark: SparkSession, rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    frame = spark.createDataFrame(rows, "_case int, `a.key` string, `sum(x)` double, _vs bigint, _ve bigint")
    found = normal_form(frame, ["a.key"], ["a.key", "sum(x)"], ["_case"])
    assert found.columns == ["_case", "a.key", "sum(x)", "_vs", "_ve"]
    return sorted((tuple(row) for row in found.collect()), key=str)


def test_equal_values_that_touch_are_one(either: SparkSession) -> None:
    rows: list[tuple[object, ...]] = [
        (0, "a", 1.0, 5, 9),
        (0, "a", 1.0, 1, 5),
        (0, "a", 1.0, 10, 12),  # there is a gap
        (0, "a", 2.0, 12, 20),  # another value
        (0, "a", 1.0, 20, HIGHEST),  # the value again, and between them the other
        (0, None, None, 1, 2),
        (0, None, None, 2, 3),
        (0, "b", 0.0, 1, 2),
        (0, "b", -0.0, 2, 3),
        (0, "c", 1.0, 1, 2),
        (1, "c", 1.0, 2, 3),  # another data set
    ]
    assert normal(either, rows) == sorted(
        [
            (0, "a", 1.0, 1, 9),
            (0, "a", 1.0, 10, 12),
            (0, "a", 2.0, 12, 20),
            (0, "a", 1.0, 20, HIGHEST),
            (0, None, None, 1, 3),
            (0, "b", 0.0, 1, 3),
            (0, "c", 1.0, 1, 2),
            (1, "c", 1.0, 2, 3),
        ],
        key=str,
    )


def test_it_is_the_same_however_the_lifetimes_were_cut(either: SparkSession) -> None:
    rng = random_for(__name__)
    whole, cut = [], []
    for number in range(40):
        key, start = str(number), rng.randrange(-20, 20)
        for _ in range(rng.randrange(1, 4)):
            end = start + rng.randrange(1, 9)
            whole.append((0, key, NAN, start, end))
            marks = sorted({start, end, *(rng.randrange(start, end + 1) for _ in range(3))})
            cut += [(0, key, NAN, low, high) for low, high in pairwise(marks)]
            start = end + rng.randrange(1, 4)
    rng.shuffle(cut)
    assert str(normal(either, cut)) == str(sorted(whole, key=str))
