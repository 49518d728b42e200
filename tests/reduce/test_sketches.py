"""Sketches of summaries: estimates of small windows are those of their live rows, whether they were merged from stored
sketches or sketched again; corrections rebuild the sketches of their windows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from errata.catalog import streams
from errata.language.nodes import scans_of
from errata.language.queries import query_source, read_query
from errata.language.summaries import summary_forms
from errata.model.batch import Op
from errata.model.bucket import Role
from errata.model.reduction import ReducedArchives, SummaryDeclaration
from errata.model.time import EVERYTHING, Interval
from errata.reduce.sketches import rebuilt_intervals
from errata.reduce.summary_builds import build_summaries, plan_summaries
from errata.reduce.summary_sources import read_summaries
from fixtures.catalog import a_bucket
from fixtures.chance import random_for
from fixtures.flows import Builder
from fixtures.layers import Layers, a_row, compacted, key, layers, plain

WINDOW = 10
SKETCHED = {
    "n": "count(*)",
    "notes": "approx_count_distinct(note)",
    "places": "approx_count_distinct_theta(at)",
    "median": "approx_percentile(price, 0.5)",
}


@pytest.fixture
def done(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Layers]:
    builder = Builder(tmp_path_factory.mktemp("sketches"))
    summary = SummaryDeclaration("sketched", WINDOW, ("who",), SKETCHED)
    yield layers(builder(), replace(plain("feed", bucket_rows=40), reduced=ReducedArchives(summaries=(summary,))))
    builder.close()


def read(done: Layers, spark: SparkSession, columns: str = "*") -> tuple[list[dict[str, Any]], Any]:
    catalog, (form,) = done.house.catalog, summary_forms(done.stream)
    state = streams.stream_state(catalog, done.name)
    plan = read_query(f"SELECT {columns} FROM sketched", "test", {"sketched": query_source("sketched", form.plan)})
    assert [each.source.name for each in scans_of(plan)] == ["sketched"]
    reads = {done.name: (state, state.changed_in, EVERYTHING)}
    found = read_summaries(lambda: spark, catalog, done.house.site.warehouse, plan, {"sketched": form}, reads)
    rows: pa.Table = found.tables["sketched"].drop_columns(["_vs", "_ve"])
    return sorted(rows.to_pylist(), key=repr), found.readings[0]


def expected(done: Layers) -> list[dict[str, Any]]:
    of: defaultdict[tuple[int, Any], list[Any]] = defaultdict(list)
    for row in done.seen():
        of[row["at"] // WINDOW * WINDOW, row["who"]].append(row)
    found = []
    for (start, who), rows in of.items():
        prices = sorted(row["price"] for row in rows if row["price"] is not None)
        found.append(
            {
                "at": start,
                "who": who,
                "n": len(rows),
                "notes": len({row["note"] for row in rows} - {None}),
                "places": len({row["at"] for row in rows}),
                "median": prices[math.ceil(len(prices) / 2) - 1] if prices else None,
            }
        )
    return sorted(found, key=repr)


def test_estimates_are_those_of_the_live_rows(done: Layers, spark: SparkSession) -> None:
    draw = random_for(__name__)

    def row(at: int, who: str) -> dict[str, Any]:
        return a_row(at, who, draw.choice([None, float(draw.randrange(50))]), draw.choice([None, "a", "b", "c"]))

    done.bring(*([row(at, who) for at in range(start, start + 15) for who in ("a", "b")] for start in (0, 15, 30)))
    assert read(done, spark)[0] == expected(done), "no sketches yet"
    build_summaries(done.house.site, done.name)
    assert plan_summaries(done.house.site, done.name).is_empty
    (form,) = summary_forms(done.stream)
    sketched = [each for each in done.stored(Role.SUMMARY) if each.groups.low == form.sketch_digest]
    assert len(sketched) == len(done.stored())
    assert read(done, spark)[0] == expected(done), "merged"
    replaced, inserted = a_row(17, "a", 99.0, "z"), row(44, "z")
    done.correct((Op.REPLACE, replaced, {}), (Op.DELETE, key(3, "b"), {}), (Op.INSERT, inserted, {}))
    rows, reading = read(done, spark)
    assert rows == expected(done)
    assert reading.touched == 3, "the windows of the corrections are sketched again"
    compacted(done, everything=True)
    done.bring([row(60, "a")])
    assert read(done, spark)[0] == expected(done), "some buckets have sketches"
    exact, _ = read(done, spark, "at, n")
    assert {each["median"] for each in exact} == {None}, "what nobody asked for is not estimated"


@pytest.mark.parametrize(
    ("touched", "most", "found"),
    [
        ([], 9, [(20, 40)]),
        ([0, 10], 9, [(0, 40)]),
        ([0, 60, 80], 9, [(0, 10), (20, 40), (60, 70), (80, 90)]),
        ([0, 60, 80], 2, [(0, 40), (60, 90)]),
        ([0, 60, 80], 1, [(0, 90)]),
    ],
)
def test_near_stretches_become_one_where_there_are_many(
    touched: list[int], most: int, found: list[tuple[int, int]]
) -> None:
    lacking = [a_bucket(25, 33)]
    assert rebuilt_intervals(WINDOW, np.array(touched, dtype=np.int64), lacking, EVERYTHING, most) == [
        Interval(*each) for each in found
    ]
