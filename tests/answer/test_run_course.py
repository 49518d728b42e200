"""Queries of every route over a course of batches, late rows and corrections: right after each run, at each instant."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from errata.read.status import query_statuses
from fixtures.runs import FIRST, QUERIES, ROUTES, SECOND, UNSWEPT, Answering


def test_every_route_is_right_after_every_run(tmp_path: Path, spark: SparkSession) -> None:
    there = Answering.begin(tmp_path)
    there.take(quotes=FIRST["quotes"])
    report = there.run()
    # Two streams: nothing is due before both have a stable point.
    assert {each.name for each in report.evaluated} == set(QUERIES) - {"pairs", "alone"}
    there.take(ticks=FIRST["ticks"])
    there.run()
    # More of the last instant alone, in two batches.
    there.take(quotes=["6,c,9"])
    there.take(quotes=["6,d,4"])
    there.run()
    there.check()
    there.take(**SECOND)
    report = there.run()
    there.check()
    assert {each.name: each.measures.route for each in report.evaluated} == ROUTES
    assert there.run().evaluated == []


def test_corrections_of_what_is_answered_are_left_out(tmp_path: Path, spark: SparkSession) -> None:
    texts = {name: QUERIES[name] for name in ("dear", "sums", "latest", "twos")}
    there = Answering.begin(tmp_path, texts, declared=UNSWEPT)
    there.take(quotes=FIRST["quotes"])
    there.run()
    # Of the last instant, and of rows that come with the same run.
    there.revise(quotes=["6,b,9;replace"])
    there.take(quotes=SECOND["quotes"])
    there.revise(quotes=["8,b,;delete", "7,a,8;replace"])
    there.run()
    there.check()
    assert there.of("sums").last.revisions == {"quotes": 3}
    assert left_out(there) == {name: {} for name in texts}

    before = {name: there.rows(name) for name in texts}
    there.take(quotes=["2,z,9", "3,a,;delete"])
    there.run()
    assert {name: there.rows(name) for name in texts} == before, "what is pending is in no answer"
    there.revise(quotes=["12,a,1;replace"])
    # What waits holds up what comes after it, also where that speaks of what is not answered yet.
    there.take(quotes=["15,a,2", "15,z,4"])
    there.revise(quotes=["15,a,3;replace"])
    over = {"over": "SELECT max(n) AS top FROM sums", "fresh": "SELECT of, price FROM quotes WHERE price < 9"}
    both = "SELECT s.n, q.price FROM sums AS s JOIN sliding(quotes, 5) AS q ON s.of = q.of"
    there.edit({**texts, **over, "both": both})
    there.run()
    there.check()
    assert left_out(there) == {**{name: {"quotes": 4} for name in (*texts, "over", "both")}, "fresh": {}}


def left_out(there: Answering) -> dict[str, dict[str, int]]:
    """Of each query the corrections that its answers do not contain."""
    return {each.name: dict(each.missing_revisions) for each in query_statuses(there.site)}
