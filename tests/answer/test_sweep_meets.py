"""Corrections that meet something else: rows and results that have been aged out, answers that wait or have gone
further, queries that read each other, other runs, replays, merged changes. What is right stays, and what can be is
corrected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from errata.answer.range_replay import ReplayRange, replay_range
from errata.answer.rounds import Rounds
from errata.answer.runs import SweepReport, run, sweep
from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import ledger, streams
from errata.catalog.result_archives import ResultArchive
from errata.errors import ErrataError
from errata.model.bucket import Role
from errata.model.commit import SweepSummary
from errata.model.results import VS
from errata.model.technique import Technique
from errata.model.time import MINUTE
from fixtures.catalog import NOW
from fixtures.runs import DEAR, FIRST, QUERIES, SECOND, STREAMS, SUMS, UNSWEPT, Answering

Begin = Callable[..., Answering]

LATER = ["13,a,4", "14,b,5"]
AGED_OUT = "the results are made of rows of quotes that have been aged out"


@pytest.fixture
def begin(tmp_path: Path, spark: SparkSession) -> Iterator[Begin]:
    """`begin(texts, …)`: these queries, answered twice; or not yet, if nothing has come."""
    begun: list[Answering] = []

    def answered(
        texts: Mapping[str, str], served: Mapping[str, str] = {}, declared: str = STREAMS, come: bool = True
    ) -> Answering:
        there = Answering.begin(tmp_path / str(len(begun)), texts, served, declared=declared)
        begun.append(there)
        for rows in (FIRST, SECOND) if come else ():
            there.take(quotes=rows["quotes"])
            there.run()
        return there

    yield answered
    for each in begun:
        each.close()


def ageing(units: int) -> str:
    """The streams, with quotes that are kept so long, each in a bucket of its own."""
    return STREAMS.replace("order: at}", f"order: at, retention: {units} units, bucket_rows: 1}}", 1)


def age_quotes(there: Answering) -> int:
    age_out(there.site, ["quotes"])
    aged_to = streams.stream_state(there.site.catalog, "quotes").aged_to
    assert aged_to is not None
    return aged_to


def corrected(report: SweepReport) -> dict[str, SweepSummary]:
    assert (report.stopped, report.held, report.busy) == ([], [], [])
    return {each.name: each.swept for each in report.swept if each.swept is not None}


def refused(swept: SweepSummary) -> list[str]:
    return [each.reason for each in swept.refused]


class TestAgedRows:
    """Rows that results are made of are no longer there."""

    def test_what_is_kept_of_them_stays(self, begin: Begin) -> None:
        there = begin({"ever": "SELECT of, count(*) AS n FROM quotes GROUP BY of"}, declared=ageing(8))
        age_quotes(there)
        there.take(quotes=["6,b,3;replace"])
        assert refused(corrected(sweep(there.site))["ever"]) == [AGED_OUT]
        assert there.buckets("ever", Role.STATE)
        there.take(quotes=LATER)
        assert there.run().stopped == []
        assert {each["of"]: each["n"] for each in there.visible("ever")} == {"a": 6, "b": 4, "c": 1}

    def test_what_is_kept_of_an_open_window_stays(self, begin: Begin) -> None:
        open_yet = "SELECT of, sum(price) AS s FROM quotes GROUP BY of, window(at, 20)"
        there = begin({"open": open_yet}, declared=ageing(3))
        assert age_quotes(there) > 3
        there.take(quotes=["12,a,3;replace", "10,c,3"])
        assert corrected(sweep(there.site)).keys() == {"open"}
        assert there.buckets("open", Role.STATE)
        there.take(quotes=["13,a,4", "24,b,5"])
        assert there.run().stopped == []
        # What is of the last instant has not been added up for good.
        found = {each["of"]: each["s"] for each in there.rows("open")}
        assert (found["a"], found["b"]) == (20, 15)

    def test_a_window_is_not_adjusted_without_what_was_kept(self, begin: Begin) -> None:
        texts = {"of_ten": "SELECT max(price) AS m, sum(price) AS s FROM quotes GROUP BY window(at, 10)"}
        there = begin(texts, declared=ageing(6), come=False)
        for rows in (["1,a,5", "2,b,2", "8,a,9", "9,b,3"], ["12,a,1", "13,b,1"]):
            there.take(quotes=rows)
            there.run()
        assert 2 < age_quotes(there) <= 8
        for correction, expected in (("8,a,4;replace", (9, 19)), ("9,b,2;replace", (9, 19))):
            there.take(quotes=[correction])
            assert refused(corrected(sweep(there.site))["of_ten"]) == [AGED_OUT]
            assert [(each["m"], each["s"]) for each in there.rows("of_ten")] == [expected]

    @pytest.mark.parametrize("technique", [Technique.AUTO, Technique.ALL])
    def test_earlier_results_stay_where_all_that_is_left_is_replayed(self, begin: Begin, technique: Technique) -> None:
        there = begin({"dear": DEAR}, declared=ageing(8))
        assert 3 < age_quotes(there) <= 6
        past = ["6,a,9;replace", "6,b,9;replace", "6,c,;delete", "7,a,6;replace", "8,b,9;replace", "12,a,5;replace"]
        there.take(quotes=past)
        assert refused(corrected(sweep(there.site, technique=technique))["dear"]) == []
        found = [(each["at"], each["of"], each["price"]) for each in there.visible("dear")]
        left = [(6, "a", 9), (6, "b", 9), (7, "a", 6), (8, "b", 9), (12, "a", 5)]
        assert sorted(found) == [(1, "a", 5), (3, "a", 4), *left]

    def test_earlier_results_stay_when_all_is_asked_for(self, begin: Begin) -> None:
        texts = {"dear": DEAR, "sums": SUMS, "closed": QUERIES["closed"]}
        there = begin(texts, declared=ageing(8))
        aged_to = age_quotes(there)
        early = {name: [each for each in there.rows(name) if each[VS] < aged_to] for name in texts}
        there.take(quotes=["12,a,9;replace", "8,b,5;replace"])
        done = corrected(sweep(there.site, technique=Technique.ALL))
        assert {name: each.technique for name, each in done.items()} == dict.fromkeys(texts, "minimal")
        for name in texts:
            assert early[name]
            assert [each for each in there.rows(name) if each[VS] < aged_to] == early[name]
        there.check("sums", since=12)
        before = there.rows("dear")
        assert replay_range(there.site, ReplayRange("dear", "8", "10", Technique.ALL)).changed == 0
        assert there.rows("dear") == before

    def test_nothing_is_published_of_before_the_first_answer(self, begin: Begin) -> None:
        there = begin({"dear": DEAR}, declared=ageing(8))
        age_quotes(there)
        there.edit({"dear": DEAR, "closed": QUERIES["closed"]})
        there.run()
        before = [each for each in there.rows("closed") if each["window_start"] == 8]
        there.take(quotes=["6,a,5;replace", "5,a,100", "4,a,1"])
        assert "closed" in corrected(sweep(there.site))
        assert min(each[VS] for each in there.rows("closed")) >= there.of("closed").last.begins
        of_a = {each["window_start"]: each["s"] for each in there.rows("closed") if each["of"] == "a"}
        assert of_a == {4: 109, 6: 8}
        assert [each for each in there.rows("closed") if each["window_start"] == 8] == before


def test_what_is_kept_of_windows_is_kept_as_long_as_their_results(begin: Begin) -> None:
    texts = {"closed": "SELECT of, window_start, sum(price) AS s FROM quotes GROUP BY of, window(at, 2)"}
    there = begin(texts, {"closed": "retention: 8 units"})
    for rows in (["13,a,1", "16,a,2", "19,b,4"], ["22,a,3", "24,b,3", "27,a,2"]):
        there.take(quotes=rows)
        there.run()
    there.take(quotes=["1,a,6;replace", "24,b,2;replace"])
    sweep(there.site)
    age_out(there.site, ["closed"])
    there.take(quotes=["28,a,1"])
    there.run()

    def of_c() -> list[int]:
        return [each["s"] for each in there.rows("closed") if (each["of"], each["window_start"]) == ("c", 6)]

    assert of_c() == [9]
    there.take(quotes=["7,c,100"])
    assert corrected(sweep(there.site)).keys() == {"closed"}
    assert of_c() == [109]


class TestChains:
    """Queries that read what other queries publish."""

    TOTAL = "SELECT of, sum(price) AS s FROM sliding(dear, 5) GROUP BY of"

    def test_a_stream_and_a_query_of_it_are_read(self, begin: Begin) -> None:
        both = "SELECT of, at FROM quotes UNION ALL SELECT of, at FROM dear"
        texts = {"dear": DEAR, "both": f"SELECT of, count(*) AS n FROM ({both}) AS u GROUP BY of, window(at, 4)"}
        there = begin(texts)
        there.take(quotes=["1,b,1;replace"])
        assert corrected(sweep(there.site)).keys() == set(texts)
        there.check()

    def test_what_was_corrected_below_is_taken_up_before_going_on(self, begin: Begin) -> None:
        texts = {"dear": DEAR, "total": self.TOTAL}
        there = begin(texts, {"total": "sweep: {when: never}"}, come=False)
        there.take(quotes=["1,a,5", "3,a,9", "5,a,4", "6,b,7"])
        there.run()
        there.take(quotes=["5,a,;delete"])
        assert there.run().deferred == []
        there.check()
        for rows in (["9,b,5", "9,a,6"], ["12,a,7", "13,b,5"]):
            there.take(quotes=rows)
            there.run()
        there.check()
        assert sweep(there.site).swept == []

    @pytest.mark.parametrize(
        "below",
        [
            lambda there: run(there.site, ["dear"], anew=True),
            lambda there: sweep(there.site, ["dear"]),
        ],
        ids=["worked out anew", "corrected"],
    )
    def test_a_replay_is_of_what_the_answer_was_made_of(
        self, begin: Begin, below: Callable[[Answering], object]
    ) -> None:
        there = begin({"dear": DEAR, "total": self.TOTAL}, declared=UNSWEPT)
        there.take(quotes=["3,a,;delete"])
        below(there)
        with pytest.raises(ErrataError, match="have been worked out anew or corrected since it was answered"):
            replay_range(there.site, ReplayRange("total", "1", "7"))
        there.run()
        there.check()
        assert replay_range(there.site, ReplayRange("total", "1", "7")).changed == 0

    def test_corrections_in_changes_that_have_been_merged(self, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("errata.archive.upkeep.result_compaction.BUCKETS_PER_MERGE", 2)
        declared = STREAMS.replace("order: at", "order: at, horizon: 0 seconds")
        texts = {"dear": DEAR, "top": "SELECT of, max(price) AS m FROM dear GROUP BY of, window(at, 4)"}
        there = begin(texts, declared=declared.replace("order: since", "order: since, horizon: 0 seconds"))
        there.take(quotes=["1,a,3;replace", "2,a,50"])
        assert corrected(sweep(there.site, ["dear"])).keys() == {"dear"}
        stood = {each.bucket_id for each in there.buckets("dear", Role.FEED)}
        for at in range(13, 17):
            there.take(quotes=[f"{at},a,4", f"{at},b,9"])
            there.run("dear")
        run_vacuum(there.site, grace=0)
        assert not stood & {each.bucket_id for each in there.buckets("dear", Role.FEED)}
        assert corrected(sweep(there.site)).keys() == {"top"}
        assert there.of("top").last.revisions == there.of("dear").last.revisions == {"quotes": 2}
        there.check()
        there.run()
        there.check()


class TestLateVersions:
    """Versions of a relation that come behind what has been answered: no revisions, and no less corrections."""

    def test_they_do_not_wait(self, begin: Begin) -> None:
        there = begin({"named": QUERIES["named"]}, declared=UNSWEPT)
        for version in ("a,alpha,6", "b,beta,8"):
            there.take(names=[version])
            report = there.run()
            assert report.deferred == []
            assert [each.name for each in report.evaluated if each.swept is not None] == ["named"]
            there.check()
        there.take(quotes=["15,a,1"])
        assert there.run().deferred == []
        there.check()
        assert sweep(there.site).swept == []

    def test_they_are_told_from_revisions(self, begin: Begin) -> None:
        there = begin({"named": QUERIES["named"]}, declared=UNSWEPT)
        there.take(names=["a,alpha,6"])
        sweep(there.site)
        there.take(names=["a,other,6;replace", "b,late,8"])
        assert corrected(sweep(there.site))["named"].revisions == {"names": (0, 1)}
        assert there.of("named").last.cause["id"] == "names 1, late versions of names"
        there.check()


def test_rows_that_come_with_a_correction_are_told_as_the_cause(begin: Begin) -> None:
    there = begin({"sums": SUMS})
    there.take(quotes=["3,a,9;replace"])
    there.take(quotes=["14,a,9", "15,b,3"])
    there.run()
    assert there.of("sums").last.correction is None
    # The correction came with one commit, and has been swept; the rows came with the next.
    ((_, commit, batch),) = ledger.appended_batches(there.site.catalog, 5, 7)
    assert commit == 7
    assert there.of("sums").last.cause == {"type": "batch", "id": batch, "feed": "whole"}


def test_a_correction_has_waited_since_it_came(begin: Begin) -> None:
    texts = {"dear": DEAR, "sums": SUMS}
    there = begin(texts, {"dear": "sweep: {when: age >= 30 minutes}"}, UNSWEPT)
    there.take(quotes=["3,a,9;replace"])
    there.at(NOW + 31 * MINUTE)
    # It becomes history only now, and is as old as it is.
    report = there.run()
    assert [each.stream for each in report.revised] == ["quotes"]
    assert [each.name for each in report.deferred] == ["sums"]
    assert there.of("dear").last.revisions == {"quotes": 1}
    there.check()


def test_a_run_of_an_earlier_state_than_a_sweep(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    there = begin({"sums": SUMS}, declared=UNSWEPT)
    there.take(quotes=["12,b,4", "15,a,2"])
    go, swept = Rounds.run, list[ResultArchive]()

    def after_a_sweep(rounds: Rounds) -> Any:
        monkeypatch.setattr(Rounds, "run", go)
        there.take(quotes=["10,a,50"])
        assert corrected(sweep(there.site)).keys() == {"sums"}
        swept.append(there.of("sums"))
        return go(rounds)

    monkeypatch.setattr(Rounds, "run", after_a_sweep)
    there.run()
    assert swept[0].last.revisions == there.of("sums").last.revisions == {"quotes": 1}
    there.run()
    assert there.of("sums").frontier == 15
    there.check()


@pytest.mark.parametrize("few", [-1, 1, 3, 100], ids=["never", "one", "some", "all"])
def test_what_is_read_in_several_tasks(begin: Begin, monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """However many results still count as few: these are laid against what is published without tasks."""
    monkeypatch.setattr("errata.answer.correction.SPARK_DIFF_ROWS", -1)
    monkeypatch.setattr("errata.answer.correction.LOCAL_DIFF_ROWS", few)
    monkeypatch.setattr("errata.answer.correction.DIFF_TASK_ROWS", 3)
    there = begin({name: QUERIES[name] for name in ("dear", "sums", "latest", "pairs", "named")}, come=False)
    for rows in (FIRST, SECOND):
        there.take(**rows)
        there.run()
    for rows in (
        {"quotes": ["3,a,9;replace", "1,b,;delete", "2,a,6", "12,a,3;replace"]},
        {"ticks": ["4,b,;delete", "5,a"], "names": ["b,gamma,8;replace", "a,early,2"]},
    ):
        there.take(**rows)
        assert corrected(sweep(there.site, technique=Technique.ALL))
        there.check()
    there.take(quotes=LATER, ticks=["15,a"])
    there.run()
    there.check()
