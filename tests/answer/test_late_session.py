"""Spark is opened when something needs it: once, and set up as if it had been open all the time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.answer.runs import sweep
from errata.declare.project import NearMode, NearSettings
from errata.declare.site import Site
from errata.engine.session import LazySession
from fixtures.runs import Answering

OF_TEN = {"of_ten": "SELECT max(price) AS m, sum(price) AS s FROM quotes GROUP BY window(at, 10)"}
SETTING = "spark.sql.shuffle.partitions"


@pytest.fixture
def answered(tmp_path: Path, spark: SparkSession) -> Iterator[Answering]:
    there = Answering.begin(tmp_path, OF_TEN)
    for rows in (["1,a,5", "2,b,2", "8,a,9", "9,b,3"], ["12,a,1", "13,b,1"]):
        there.take(quotes=rows)
        there.run()
    yield there
    there.close()


@pytest.mark.parametrize(
    ("correction", "result"),
    [
        ("2,b,3;replace", {"m": 9, "s": 20}),
        ("8,a,9;delete", {"m": 5, "s": 10}),  # who is the greatest now, only the rows tell
    ],
)
@pytest.mark.parametrize(("near", "told"), [(NearMode.AUTO, []), (NearMode.OFF, ["starting Spark"])])
def test_a_small_correction_is_without_spark_unless_it_does_everything(
    answered: Answering,
    monkeypatch: pytest.MonkeyPatch,
    correction: str,
    result: dict[str, float],
    near: NearMode,
    told: list[str],
) -> None:
    opening, opened = Site.session, []
    monkeypatch.setattr(Site, "session", lambda site: opened.append(site) or opening(site))
    answered.take(quotes=[correction])
    steps: list[str] = []
    spark = replace(answered.site.project.spark, near=NearSettings(near))
    site = replace(answered.site, project=replace(answered.site.project, spark=spark))
    (done,) = sweep(site, on_step=steps.append).swept
    assert done.swept is not None
    assert (done.swept.technique, done.swept.changed) == ("direct", 1)
    assert done.measures.engine == ("far" if told else "near")
    assert ([each for each in steps if "Spark" in each], len(opened)) == (told, len(told))
    assert "of_ten is corrected" in steps
    (row,) = answered.rows("of_ten")
    assert {name: row[name] for name in result} == result


@pytest.fixture
def late(spark: SparkSession) -> tuple[LazySession, list[str]]:
    told: list[str] = []
    return LazySession(lambda: spark, lambda: told.append("opening")), told


def test_it_is_opened_once_whoever_asks(late: tuple[LazySession, list[str]]) -> None:
    session, told = late
    assert session.opened is None
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: session.open(), range(8)))
    assert (len(set(map(id, found))), told) == (1, ["opening"])


@pytest.mark.parametrize("before", [True, False])
def test_settings_hold_for_a_while_whenever_it_is_opened(
    late: tuple[LazySession, list[str]], spark: SparkSession, before: bool
) -> None:
    session, _ = late
    usual = spark.conf.get(SETTING)
    if before:
        session.open()
    with session.configured({SETTING: "7"}):
        assert session.open().conf.get(SETTING) == "7"
    assert spark.conf.get(SETTING) == usual
    with session.configured({SETTING: "8"}):
        assert spark.conf.get(SETTING) == "8"
    assert spark.conf.get(SETTING) == usual
