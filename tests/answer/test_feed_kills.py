"""Runs that are killed while results are delivered to a merged stream, or while a query skips: another run mends it,
and nothing is delivered twice."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from errata.answer.run_plan import plan_run
from errata.catalog import commits, streams
from fixtures.merged_queries import FEEDBACK, FIRST, SECOND, begin, check_skips, merged, results, skips, stable
from fixtures.runs import Answering

MOMENTS = {
    "nothing is written": ("errata.answer.feed_deliveries._write_file", False),
    "the file is written": ("errata.answer.feed_deliveries.ingest_batch", False),
    "the batch is written": ("errata.archive.ingest.batch.commit_append", False),
    "the batch is committed": ("errata.archive.ingest.batch.commit_append", True),
    "it is delivered": ("errata.answer.feed_deliveries.ingest_batch", True),
    "corrections of the stream are pending": ("errata.answer.runs.apply_pending", True),
}


class KilledError(BaseException):
    """Nothing that the product would catch."""


def killed(
    there: Answering, place: str, monkeypatch: pytest.MonkeyPatch, *names: str, afterwards: bool, calls: int = 1
) -> None:
    """A run of these queries that ends where a function is called for the last of some times, or has been."""
    name, _, function = place.rpartition(".")
    module, called = import_module(name), 0
    work = getattr(module, function)

    def dies(*given: Any, **named: Any) -> Any:
        nonlocal called
        called += 1
        if called < calls:
            return work(*given, **named)
        if afterwards:
            work(*given, **named)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(module, function, dies)
        with pytest.raises(KilledError):
            there.run(*names)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Answering]:
    """Two queries feed a stream, and more and corrections have come."""
    there = begin(tmp_path_factory.mktemp("course") / "before")
    there.take(quotes=FIRST)
    there.run()
    there.take(quotes=SECOND)
    there.revise(quotes=["2,a,9", "3,a,;delete", "6,b,8;replace"])
    yield there
    there.close()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("calls", [1, 2])
def test_a_delivery_that_is_killed(
    course: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, calls: int
) -> None:
    there = course.copied(tmp_path / "killed", course.written.folder)
    place, afterwards = MOMENTS[moment]
    killed(there, place, monkeypatch, afterwards=afterwards, calls=calls)
    there.run()
    assert merged(there) == results(there, "v1") == results(there, "v2")
    assert stable(there) == 12
    assert plan_run(there.site).is_empty
    said = commits.list_commits(there.site.catalog, stream="merged")
    ranges = [each.batch_id for each in said if each.cause.flow == "append" and each.batch_id is not None]
    assert len(ranges) == len(set(ranges)), "each delivery once"
    for feed in ("old/v1", "new/v2"):
        ends = sorted(tuple(map(int, each.partition(":")[2].split("-"))) for each in ranges if each.startswith(feed))
        assert [after for after, _ in ends] == [0, *(to for _, to in ends[:-1])], "without gaps or overlaps"
    state = streams.stream_state(there.site.catalog, "merged")
    assert state.rows == len(merged(there))
    there.take(quotes=["13,a,8"])
    there.run()
    assert not [name for name in there.files() if "/delivered/" in name], "the next delivery removes what is left"


@pytest.mark.parametrize("afterwards", [False, True])
def test_a_skip_that_is_killed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *, afterwards: bool
) -> None:
    there = begin(tmp_path, feeds=FEEDBACK)
    there.take(quotes=FIRST)
    there.run()
    there.take(quotes=SECOND)
    there.run("v1")
    there.take(quotes=[f"{at},a,{at % 7}" for at in range(13, 30)])
    there.run("v1")
    there.take(quotes=["30,b,4", "31,c,9"])
    killed(there, "errata.catalog.result_archives.commit_evaluation", monkeypatch, "v2", afterwards=afterwards)
    there.run("v2")
    assert stable(there) == 31
    there.run()
    assert skips(there) == [(6, 29)]
    check_skips(there, "appended")
    assert merged(there) == results(there, "v1")
