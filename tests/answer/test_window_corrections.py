"""Windows of very much history are replayed stretch by stretch, and come out as they would at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from errata.answer import window_corrections
from errata.answer.runs import sweep
from errata.answer.window_corrections import regions_in_slice, time_slices
from errata.model.bucket import Bucket, Groups, Role
from errata.model.extent import Extent, ExtentAxis
from errata.model.technique import Technique
from errata.model.time import HIGHEST, LOWEST, Interval
from fixtures.runs import DEAR, FIRST, QUERIES, SECOND, UNSWEPT, Answering

TEXTS = {
    "closed": QUERIES["closed"],
    "dear": DEAR,
    "above": "SELECT of, window_start, count(*) AS n FROM dear GROUP BY of, window(at, 6, 3)",
}
SPREAD = ["3,a,9;replace", "1,b,;delete", "7,a,8;replace", "2,a,6;insert", "10,c,5;insert", "12,a,2;replace"]
AGAIN = ["6,b,1;replace", "8,b,;delete", "4,a,7;insert"]


@pytest.mark.parametrize("technique", [Technique.MINIMAL, Technique.ALL])
def test_what_is_replayed_in_stretches_is_what_it_is_at_once(
    tmp_path: Path, spark: SparkSession, technique: Technique, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Answering.begin(tmp_path / "there", TEXTS, {}, declared=UNSWEPT)
    there.take(quotes=[*FIRST["quotes"], *SECOND["quotes"], "18,a,2", "19,b,7"])
    there.run()
    there.take(quotes=SPREAD)
    whole = there.copied(tmp_path / "whole")
    done: list[list[Extent]] = []
    replayed = window_corrections._replay_slice

    def seen(correction: Any, inputs: Any, read: Any, regions: list[Extent]) -> Any:
        done.append(regions)
        return replayed(correction, inputs, read, regions)

    sweep(whole.site, technique=technique)
    with monkeypatch.context() as patched:
        patched.setattr("errata.answer.step_parts.STEP_PART_ROWS", 3)
        patched.setattr(window_corrections, "_replay_slice", seen)
        report = sweep(there.site, technique=technique)
    assert len(done) > len(TEXTS), "there were several stretches"
    assert {each.name for each in report.swept} == set(TEXTS)
    there.check()
    for name in TEXTS:
        assert (there.rows(name), there.feed(name)) == (whole.rows(name), whole.feed(name))
        assert [each.rows for each in there.buckets(name, Role.PARTS)] == [
            each.rows for each in whole.buckets(name, Role.PARTS)
        ]
    # What is kept of the windows is right, too: later corrections start from it.
    there.take(quotes=AGAIN)
    report = sweep(there.site)
    assert "direct" in {each.measures.route for each in report.swept}
    there.check()
    there.close()
    whole.close()


def bucket(low: int, high: int, rows: int) -> Bucket:
    return Bucket(low, Role.BASE, None, rows, 0, low, high, Groups(), "", "", 1, None, None)


class TestWhereStretchesEnd:
    """Each has about so many rows, and together they are what they were."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("errata.answer.step_parts.STEP_PART_ROWS", 100)

    def test_of_few_rows(self) -> None:
        regions = [Extent(ExtentAxis.START, Interval(5, 9)), Extent(ExtentAxis.START, Interval(20, 25))]
        assert time_slices([bucket(0, 50, 100)], 100, regions, 60) == [Interval(5, 25)]

    def test_of_many(self) -> None:
        everything = [Extent(ExtentAxis.START, Interval(LOWEST, HIGHEST))]
        found = time_slices([bucket(0, 99, 100), bucket(100, 199, 300)], 400, everything, 250)
        assert [found[0].start, found[-1].end] == [LOWEST, HIGHEST]
        assert [one.end for one in found[:-1]] == [other.start for other in found[1:]]
        assert 3 <= len(found) <= 5
        assert all(0 < each.end <= 250 for each in found[:-1])

    def test_regions_in_one(self) -> None:
        regions = [Extent(ExtentAxis.START, Interval(5, 9), {"of": "a"}), Extent(ExtentAxis.START, Interval(20, 25))]
        assert regions_in_slice(regions, Interval(7, 20)) == [Extent(ExtentAxis.START, Interval(7, 9), {"of": "a"})]
