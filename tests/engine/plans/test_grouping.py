"""Aggregates over lifetimes read their rows once, and move them once: as the physical plans of both engines say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from errata.engine.near import is_near
from errata.engine.plans.grouping import LifetimeGroups, changing_aggregates, running_aggregates, sliding_aggregates

SPAN = 5
FORMS: dict[str, Callable[[LifetimeGroups], DataFrame]] = {
    "growing": running_aggregates,
    "sliding": lambda given: sliding_aggregates(given, SPAN, timed=True),
    "changing": changing_aggregates,
}
# Frames that end so far before a row are not used near.
CASES = [("far", name) for name in FORMS] + [("near", "growing"), ("near", "changing")]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"g": number % 3, "v": number % 7, "_vs": number, "_ve": number + SPAN} for number in range(60)]
    path = tmp_path_factory.mktemp("sequenced") / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def physical(frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    frame.explain()
    return capsys.readouterr().out


@pytest.mark.parametrize("once", [frozenset[str](), frozenset({"v"})], ids=["all", "once"])
@pytest.mark.parametrize(("engine", "name"), CASES)
def test_rows_are_read_once(
    engine: str,
    name: str,
    once: frozenset[str],
    file: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session: SparkSession = request.getfixturevalue("spark" if engine == "far" else "near")
    rows = session.read.schema("g bigint, v bigint, _vs bigint, _ve bigint").parquet(str(file))
    found = FORMS[name](LifetimeGroups(rows, ("g",), ("v",), {"total": "sum(v)", "number": "count(v)"}, once))
    plan = physical(found, capsys)
    assert plan.count("DataSourceExec" if is_near(session) else "FileScan") == 1, plan
    if not is_near(session):
        assert plan.count("Exchange hashpartitioning(g") == plan.count("Exchange") == 1, plan
    assert found.count() > 0
