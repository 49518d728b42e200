"""Random plans over random data: what Spark makes of them is what DuckDB says at every instant."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import islice

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from errata.language.plan_text import plan_tree
from fixtures.chance import seeds
from fixtures.duck import Rows, answers, same
from fixtures.evaluation import INTERPRETED, Asked, Lived, configured, evaluate, live
from fixtures.plans.maker import Trial, has_answer, instants, random_case

BATCH, FIRST_BATCH, DATA_SETS = 12, 3, 15
BATCHES = max(3, settings.default.max_examples // BATCH)
BOTH = 2
"""Batches that Spark runs, too, which takes many times as long as near; with --long it runs all."""

Wanted = dict[tuple[int, int], Rows]


def drawn(batch: int) -> list[int]:
    """The first batch runs as in production, where most of the time goes into compiling Java: it is small. Of so few
    plans it may well be that none has an answer, so that it has only such as have one."""
    if batch:
        return seeds(f"{__name__} {batch}", BATCH)
    some = seeds(f"{__name__} first", 20 * FIRST_BATCH)
    return list(islice((each for each in some if has_answer(case(each))), FIRST_BATCH))


def case(seed: int) -> Trial:
    return random_case(random.Random(seed), data_sets=DATA_SETS)


def difference(trial: Trial, found: dict[int, list[Lived]], ats: Sequence[int], wanted: Wanted) -> str:
    """The first instant at which a result is not what it should be, in words; nothing if there is none."""
    for case, data in enumerate(trial.cases):
        for at in ats:
            got, want = live(found.get(case, []), at), wanted.get((case, at), [])
            if not same(got, want):
                told = [f"at {at} the plan", plan_tree(trial.plan), "over"]
                told += [f"  {name}: {row}" for name, rows in data.items() for row in rows]
                return "\n".join([*told, "gave", *_listed(got, want), "instead of", *_listed(want, got)])
    return ""


def _listed(rows: Rows, other: Rows) -> list[str]:
    return [f"  {row}{'' if any(same([row], [each]) for each in other) else '   <-- only here'}" for row in rows]


def fullest(wanted: Wanted, ats: Iterable[int]) -> int:
    """The instant at which there is most to see."""
    seen = dict.fromkeys(ats, 0)
    for (_, at), rows in wanted.items():
        seen[at] += len(rows)
    return max(seen, key=lambda at: (seen[at], at))


def check(spark: SparkSession, seeds: Sequence[int]) -> None:
    """All in one job, in both forms: the whole history, and the answer at an instant."""
    trials = [case(each) for each in seeds]
    ats = [instants(trial.plan) for trial in trials]
    wanted = [answers(trial.plan, trial.cases, at) for trial, at in zip(trials, ats, strict=True)]
    chosen = [fullest(want, at) for want, at in zip(wanted, ats, strict=True)]
    histories = [Asked(trial.plan, trial.cases) for trial in trials]
    at_once = [Asked(trial.plan, trial.cases, at) for trial, at in zip(trials, chosen, strict=True)]
    found = evaluate(spark, [*histories, *at_once])
    assert any(wanted), "nothing was compared"
    for number, (seed, trial) in enumerate(zip(seeds, trials, strict=True)):
        wrong = difference(trial, found[number], ats[number], wanted[number])
        assert not wrong, f"seed {seed}: {wrong}"
        wrong = difference(trial, found[len(trials) + number], [chosen[number]], wanted[number])
        assert not wrong, f"seed {seed}, asked at the instant: {wrong}"


@pytest.mark.parametrize("batch", range(BATCHES if BATCHES > 3 else BOTH))
def test_random_plans_give_what_duckdb_gives(either: SparkSession, batch: int) -> None:
    with configured(either, {} if batch == 0 else INTERPRETED):
        check(either, drawn(batch))


@pytest.mark.parametrize("batch", range(BOTH, 2 * BATCHES))
def test_random_plans_near_give_what_duckdb_gives(near: SparkSession, batch: int) -> None:
    check(near, seeds(f"{__name__} near {batch}", BATCH))
