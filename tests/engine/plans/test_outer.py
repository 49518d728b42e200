"""Outer joins on either engine: what DuckDB's own outer joins say at every instant."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from errata.language.queries import read_query
from fixtures.chance import random_for
from fixtures.duck import answers, same
from fixtures.evaluation import INTERPRETED, Asked, configured, evaluate, live
from fixtures.native_joins import native
from fixtures.plans.choices import FromRandom, pool
from fixtures.plans.maker import Maker, instants
from fixtures.plans.outer_joins import TEXTS

DATA_SETS = 6
HALVES = (sorted(TEXTS)[::2], sorted(TEXTS)[1::2])


@pytest.mark.parametrize("names", HALVES, ids=("one half", "other half"))
def test_outer_joins_give_what_duckdb_gives(either: SparkSession, names: list[str]) -> None:
    plans = [read_query(TEXTS[name], name, pool(timed=False)) for name in names]
    maker = Maker(FromRandom(random_for(f"{__name__} {names}")), timed=False)
    cases = [[maker.data(plan) for _ in range(DATA_SETS)] for plan in plans]
    with configured(either, INTERPRETED):
        found = evaluate(either, [Asked(plan, data) for plan, data in zip(plans, cases, strict=True)])
    for name, plan, data, lived in zip(names, plans, cases, found, strict=True):
        wanted = answers(native(plan), data, instants(plan))
        for at in instants(plan):
            for number, rows in enumerate(data):
                got, want = live(lived.get(number, []), at), wanted.get((number, at), [])
                assert same(got, want), f"{name} at {at} over {rows}: {got} and not {want}"
