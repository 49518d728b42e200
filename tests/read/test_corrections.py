"""What a scheduler's task has moved, as its asset events tell it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from errata.answer.runs import run, sweep
from errata.model.commit import Cause
from errata.read.corrections import task_asset_changes
from fixtures.runs import Answering

DEAR = {"dear": "SELECT of, price, at FROM quotes WHERE price > 3"}
TRY = ("append", "run-1", "append[0]", 1)


def test_each_commit_of_a_try_is_told_with_its_rows_and_event_times(tmp_path: Path, spark: SparkSession) -> None:
    there = Answering.begin(tmp_path, DEAR)
    there.site = replace(there.site, cause=Cause("", "", "", *TRY))
    there.take(quotes=["1,a,2", "4,b,7", "6,a,9"])
    there.site = replace(there.site, cause=Cause("", "", "", "append", "run-1", "answer", 1))
    run(there.site, take=False)

    (came,) = task_asset_changes(there.site, *TRY)
    assert (came.kind, came.name, dict(came.to_json)) == (
        "streams",
        "quotes",
        {"commit": came.commit_id, "rows": 3, "from": 1, "to": 7},
    )
    (answered,) = task_asset_changes(there.site, "append", "run-1", "answer", 1)
    assert (answered.kind, answered.name, answered.rows) == ("queries", "dear", 2)
    assert (answered.to_json["from"], answered.to_json["to"]) == (4, 7)
    assert answered.commit_id > came.commit_id
    assert (came.reads, answered.reads) == ((), ("streams/quotes",))


def test_a_sweep_tells_what_it_corrected(tmp_path: Path, spark: SparkSession) -> None:
    there = Answering.begin(tmp_path, DEAR)
    there.take(quotes=["1,a,2", "4,b,7", "6,a,9"])
    run(there.site, take=False)
    there.take(quotes=["4,b,8;replace"])
    there.site = replace(there.site, cause=Cause("", "", "", "revisions", "run-2", "sweep", 2))
    sweep(there.site)
    moved = task_asset_changes(there.site, "revisions", "run-2", "sweep", 2)
    told = {(each.kind, each.name): each.to_json for each in moved}
    assert set(told) == {("streams", "quotes"), ("queries", "dear")}
    assert told["queries", "dear"] == {"commit": told["queries", "dear"]["commit"], "rows": 1, "from": 4, "to": 5}


def test_other_tries_and_tasks_are_not_told(tmp_path: Path, spark: SparkSession) -> None:
    there = Answering.begin(tmp_path, DEAR)
    there.site = replace(there.site, cause=Cause("", "", "", *TRY))
    there.take(quotes=["1,a,2"])
    others = [("append", "run-1", "append[0]", 2), ("append", "run-1", "append[1]", 1), ("append", "run-2", *TRY[2:])]
    for other in others:
        assert task_asset_changes(there.site, *other) == []
