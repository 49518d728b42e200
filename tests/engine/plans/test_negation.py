"""Negation whose left side is in any order: what stands, and how many rows are looked at to tell."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import DataFrame, SparkSession

from errata.engine.plans import negation
from errata.language.nodes import Filter, Negation, Scan, Sliding, SlidingRows
from errata.language.plan import Plan
from fixtures.chance import random_for
from fixtures.duck import Data, answers, same
from fixtures.evaluation import INTERPRETED, Asked, configured, evaluate, live
from fixtures.plans.examples import equal, event, scan

PAIRS = (("a.src", "b.src"),)
RANK = ("a.n", "a.time", "a.id")
TIMES = range(40)


def _right() -> Scan:
    return scan("b", "src", "n", source="link2")


def plans() -> dict[str, Plan]:
    left = Sliding(scan("a", "src", "n"), 9)
    by_count = SlidingRows(scan("a", "src", "n"), 5)
    apart = Filter(_right(), equal(_right().ref("b.src"), _right().ref("b.src")))
    return {
        "by rank": Negation(left, Sliding(_right(), 4), PAIRS, rank=RANK),
        "by rank, against what never ends": Negation(left, apart, PAIRS, rank=RANK),
        "by rank, and nothing ends": Negation(left.input, Sliding(_right(), 7), PAIRS, rank=RANK),
        "of lifetimes of any length": Negation(by_count, Sliding(_right(), 4), PAIRS),
        "of lifetimes of any length, by rank": Negation(by_count, SlidingRows(_right(), 3), PAIRS, rank=RANK),
        "of what stands": Negation(
            Negation(left, Sliding(_right(), 3), PAIRS),
            Sliding(scan("c", "src", source="link2"), 5),
            (("a.src", "c.src"),),
        ),
    }


def _data(rng: random.Random) -> Data:
    def rows(count: int) -> list[dict[str, object]]:
        # Many at one instant, and NULL among the values and the ranks.
        return [
            event(rng.choice(TIMES) // 2, number, rng.choice(["x", "x", "y", None]), n=rng.choice([None, 1, 2, 3, 300]))
            for number in range(count)
        ]

    return {"link1": rows(rng.randrange(60)), "link2": rows(rng.randrange(40))}


@pytest.mark.parametrize("name", plans())
def test_at_every_instant_the_youngest_stand(name: str, either: SparkSession) -> None:
    plan, rng = plans()[name], random_for(f"{__name__} {name}")
    cases = [_data(rng) for _ in range(20)]
    wanted = answers(plan, cases, list(TIMES))
    with configured(either, INTERPRETED):
        found = evaluate(either, [Asked(plan, cases)])[0]
    assert any(wanted.values())
    for number in range(len(cases)):
        for at in TIMES:
            got, want = live(found.get(number, []), at), wanted.get((number, at), [])
            assert same(got, want), f"data set {number} at {at}: {got} instead of {want}"
        ends = [(row.values, row.start) for row in found.get(number, [])]
        assert not {(row.values, row.end) for row in found.get(number, [])} & set(ends), "a lifetime is in pieces"


ROWS = 150


@pytest.mark.parametrize("lineage", [False, True])
def test_rows_are_not_met_with_all_that_count_beside_them(
    lineage: bool, either: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[DataFrame] = []
    original = negation.join_sql

    def noted(left: DataFrame, right: DataFrame, condition: str) -> DataFrame:
        met.append(original(left, right, condition))
        return met[-1]

    monkeypatch.setattr(negation, "join_sql", noted)
    plan = Negation(Sliding(scan("a", "src", "n"), ROWS), Sliding(_right(), ROWS), PAIRS, rank=RANK)
    data = {
        "link1": [event(at, at, n=at * 7 % ROWS) for at in range(ROWS)],
        "link2": [event(at, at) for at in range(0, ROWS, 3)],
    }
    with configured(either, INTERPRETED):
        found = evaluate(either, [Asked(plan, [data], lineage=lineage)])[0][0]
        rows = sum(frame.count() for frame in met)
    assert len(found) >= ROWS
    # Lineage is of all rows that count at the same time, and shows what the other way saves.
    assert rows > ROWS * ROWS // 4 if lineage else rows == len(found)
