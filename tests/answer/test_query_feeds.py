"""Queries that feed a merged stream: the stream says what they say, whichever of them is ahead, stops, or is edited. A
query that is nothing but a feed skips what the stream has from another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from errata.answer.run_plan import plan_run
from errata.answer.runs import exit_code
from errata.answer.steps import StepKind
from errata.catalog import commits, streams
from errata.errors import UsageError
from errata.read.results import ResultsRequest, open_results
from errata.read.wording import commit_summary
from fixtures.merged_queries import (
    DEAR,
    FEEDBACK,
    FEEDS,
    FIRST,
    MERGED,
    QUOTES,
    SECOND,
    SHIFTS,
    begin,
    check_skips,
    merged,
    results,
    skips,
    stable,
)
from fixtures.runs import Answering


def test_the_stream_says_what_its_queries_say(tmp_path: Path, spark: SparkSession) -> None:
    there = begin(tmp_path, over="SELECT of, sum(price) AS s FROM sliding(merged, 5) GROUP BY of")
    there.take(quotes=FIRST)
    steps = plan_run(there.site).steps
    assert [each.feed for each in steps if each.kind is StepKind.DELIVER] == ["old", "new"]
    report = there.run()
    assert exit_code(report) == 0
    assert merged(there) == results(there, "v1") == results(there, "v2")
    assert stable(there) == there.of("v1").frontier == 6
    assert there.of("over").frontier == 6, "queries over the stream come in the same run"
    there.check()
    assert plan_run(there.site).is_empty
    assert there.run().evaluated == []
    there.take(quotes=SECOND)
    there.run()
    assert merged(there) == results(there, "v1")
    assert stable(there) == 12
    there.revise(quotes=["2,a,9", "3,a,;delete", "7,a,8;replace"])
    assert exit_code(there.run()) == 0, "what the second query says of a correction repeats the first"
    assert merged(there) == results(there, "v1") == results(there, "v2")
    there.check()


def test_one_query_stops_and_the_stream_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    there = begin(tmp_path)
    text = MERGED["appended"][1]
    there.edit({"v1": f"{text} AND 10 / (price - 9) < 100", "v2": text})
    there.take(quotes=FIRST)
    there.run()
    there.take(quotes=SECOND)  # a row of them stops v1
    report = there.run()
    assert [name for name, _ in report.stopped] == ["v1"]
    assert stable(there) == 12
    assert merged(there) == results(there, "v2")


def test_the_reader_does_not_notice_that_the_plan_is_another_one(tmp_path: Path, spark: SparkSession) -> None:
    there = begin(tmp_path, feeds="{old: {query: v1}}")
    there.take(quotes=FIRST)
    there.run()
    before = commits.newest_commit(there.site.catalog)
    # The new plan runs beside the old one, which is then taken away.
    for feeds, rows in ((FEEDS, SECOND[:2]), ("{new: {query: v2}}", SECOND[2:])):
        there.declared = QUOTES + DEAR.replace("FEEDS", feeds)
        there.edit({"v1": MERGED["appended"][1], "v2": "SELECT at, of, price FROM quotes WHERE NOT price <= 3"})
        there.take(quotes=rows)
        there.run()
        assert merged(there) == results(there, "v2")
    assert stable(there) == 12
    said = commits.list_commits(there.site.catalog, stream="merged", since=before)
    assert len(said) > 2
    assert all(each.summary.get("pending", 0) == 0 for each in said), "nothing was taken back or said in another way"


# Feedback.


def key(there: Answering, row: Mapping[str, Any]) -> tuple[Any, ...]:
    stream = streams.stream_state(there.site.catalog, "merged").stream
    return tuple(row[name] for name in stream.names if name != stream.merged.end)


@pytest.mark.parametrize("of", list(MERGED))
def test_a_slower_query_begins_where_the_stream_is_stable(tmp_path: Path, spark: SparkSession, of: str) -> None:
    there = begin(tmp_path, of, FEEDBACK)
    there.take(quotes=FIRST)
    there.run()
    for rows in (SECOND, [f"{at},a,{at % 7}" for at in range(13, 30)], [f"{at},b,{at % 5}" for at in range(30, 60)]):
        there.take(quotes=rows)
        there.run("v1")
    assert there.run("v2").current == ["v2"], "the stream has all that it could say"
    assert there.run().evaluated == []
    assert plan_run(there.site).is_empty
    assert there.of("v2").frontier == 6
    # Now it is alone.
    there.take(quotes=["59,a,9", *(f"{at},b,{at % 5}" for at in range(60, 70))])
    there.run("v2")
    assert skips(there) == [(6, 59)]
    assert there.of("v2").frontier == 69
    assert stable(there) == 69 - SHIFTS.get(of, 0)
    there.run()
    check_skips(there, of)
    # A correction of what was skipped is none of its business; one behind it is.
    there.revise(quotes=["20,a,9;replace", "8,b,;delete", "65,b,9;replace", "66,c,8"])
    there.run()
    check_skips(there, of)
    assert {key(there, row) for row in merged(there)} == {key(there, row) for row in results(there, "v1", of)}


def test_the_quickest_goes_first_and_leaves_nothing_to_do(tmp_path: Path, spark: SparkSession) -> None:
    there = begin(tmp_path, feeds="{old: {query: v1, feedback: yes}, new: {query: v2, feedback: yes}}")
    there.take(quotes=FIRST)
    assert len(there.run().evaluated) == 2, "both have results to begin with"
    for rows in (SECOND, ["13,a,6"], ["14,b,8", "15,a,1"]):
        there.take(quotes=rows)
        report = there.run()
        assert len({each.name for each in report.evaluated}) == 1
        assert stable(there) == max(there.of(each.name).frontier for each in report.evaluated)
    said = {tuple(row.items()): row for name in ("v1", "v2") for row in results(there, name)}
    assert merged(there) == sorted(said.values(), key=repr)
    assert len(merged(there)) == 8


@pytest.mark.parametrize("of", list(MERGED))
def test_random_runners_of_a_feed_that_skips(tmp_path: Path, spark: SparkSession, of: str, chance: Random) -> None:
    there, known, at = begin(tmp_path, of, FEEDBACK), set[tuple[int, str]](), 0
    for _ in range(7):
        rows = []
        for _ in range(chance.randint(1, 12)):
            at += chance.choice((0, 1, 1, 4))
            place = (at, chance.choice("abc"))
            if place not in known:
                known.add(place)
                rows.append(f"{place[0]},{place[1]},{chance.randint(1, 9)}")
        if rows:
            there.take(quotes=rows)
        fixes = []
        for place in chance.sample(sorted(known), min(len(known), chance.choice((0, 0, 1, 3)))):
            gone, (when, who) = chance.random() < 0.3, place
            fixes.append(f"{when},{who},;delete" if gone else f"{when},{who},{chance.randint(1, 9)};replace")
            known -= {place} if gone else set()
        if fixes:
            there.revise(quotes=fixes)
        there.run(*chance.choice((("v1",), ("v1",), ("v2",), ())))
    there.run("v1")
    there.run("v2")
    check_skips(there, of)
    assert {key(there, row) for row in merged(there)} == {key(there, row) for row in results(there, "v1", of)}


def test_the_log_tells_what_was_skipped(tmp_path: Path, spark: SparkSession) -> None:
    there = begin(tmp_path, feeds=FEEDBACK)
    there.take(quotes=FIRST)
    there.run()
    there.take(quotes=[f"{at},a,{at % 7}" for at in range(7, 30)])
    there.run("v1")
    there.take(quotes=["30,a,9"])
    there.run("v2")
    (skip,) = [each for each in commits.list_commits(there.site.catalog) if "skipped_to" in each.summary]
    assert "those after 6 and before 29 skipped" in commit_summary(skip)
    with (
        pytest.raises(UsageError, match="is earlier than what query v2 has answers for"),
        open_results(there.site, ResultsRequest("v2", at=20)),
    ):
        pass
