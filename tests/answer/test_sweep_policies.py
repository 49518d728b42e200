"""What is declared of corrections, and what keeps them from a query's results: policies, deferral, rows that have been
aged out, expressions that fail, edits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.answer.runs import SweepReport, sweep
from errata.answer.sweep_plan import PlannedCorrection, plan_sweep
from errata.archive.revisions.undo import undo_batch
from errata.archive.upkeep.ageing import age_out
from errata.catalog import commits, streams
from errata.catalog.result_archives import evaluations_of
from errata.model.bucket import Role
from errata.model.results import VE, VS
from errata.model.technique import Technique
from errata.model.time import MINUTE
from errata.read.status import QueryProgress, query_statuses
from fixtures.catalog import NOW
from fixtures.read_counts import count_reads
from fixtures.runs import DEAR, FIRMS, FIRST, MOST, QUERIES, SECOND, SERVED, STREAMS, SUMS, UNSWEPT, Answering, Row

PAST = ["3,a,9;replace", "1,b,;delete", "7,a,8;replace", "2,a,6;insert"]
TEXTS = {"dear": DEAR, "sums": SUMS, "most": MOST}


@contextmanager
def answering(
    folder: Path, texts: Mapping[str, str] = TEXTS, served: Mapping[str, str] = SERVED, declared: str = STREAMS
) -> Iterator[Answering]:
    """Answered twice."""
    there = Answering.begin(folder, texts, served, declared=declared)
    for rows in (FIRST, SECOND):
        there.take(quotes=rows["quotes"])
        there.run()
    yield there
    there.close()


def corrected(report: SweepReport) -> set[str]:
    assert not report.stopped
    assert report.held == []
    assert report.busy == []
    return {each.name for each in report.swept}


def applied(there: Answering) -> int:
    return streams.stream_state(there.site.catalog, "quotes").applied


def of_query(there: Answering, name: str) -> PlannedCorrection:
    return next(each for each in plan_sweep(there.site).queries if each.query == name)


@pytest.mark.usefixtures("spark")
class TestPolicies:
    """What was published stays; what is answered from then on is of the corrected rows."""

    def test_of_queries(self, tmp_path: Path) -> None:
        texts = {name: QUERIES[name] for name in ("dear", "sums", "most", "closed", "latest")}
        stays = {"sums": "on_revision: history", "closed": "on_revision: ignore", "latest": "on_revision: history"}
        with answering(tmp_path, texts, stays) as there:
            before = {name: (there.rows(name), there.feed(name)) for name in texts}
            there.take(quotes=[*PAST, "10,a,5"])
            assert corrected(sweep(there.site)) == {"dear", "sums", "closed", "latest"}
            there.check("dear")
            for name in ("sums", "most", "closed", "latest"):
                assert (there.rows(name), there.feed(name)) == before[name]
            for name in stays:
                last = there.of(name).last
                assert last.correction is not None
                assert (last.revisions, last.correction.technique, last.correction.changed) == (
                    {"quotes": 5},
                    "none",
                    0,
                )
                # What is kept is of rows that have been revised: it is made anew when it is needed.
                assert there.buckets(name, Role.STATE) == []
            there.take(quotes=["13,a,4", "14,b,5", "17,a,1"])
            there.run()
            there.check("dear")
            there.check("sums", "most", "latest", since=13)
            later = [each for each in there.rows("closed") if each[VS] > 12]
            with answering(tmp_path / "right", {"closed": texts["closed"]}, {}) as right:
                right.take(quotes=[*PAST, "10,a,5", "13,a,4", "14,b,5", "17,a,1"])
                right.run()
                right.check()
                assert later == [each for each in right.rows("closed") if each[VS] > 12]

    def test_of_a_stream(self, tmp_path: Path) -> None:
        declared = STREAMS.replace("order: at}", "order: at, on_revision: history}", 1)
        with answering(tmp_path, declared=declared) as there:
            before = {name: there.rows(name) for name in TEXTS}
            there.take(quotes=PAST)
            there.run()
            assert applied(there) == 4
            assert {name: there.rows(name) for name in TEXTS} == before
            assert there.of("dear").last.revisions == {"quotes": 4}
            there.take(quotes=["13,a,4"])
            there.run()
            there.check("sums", "most", since=13)

    def test_of_a_stream_that_ignores_corrections(self, tmp_path: Path) -> None:
        declared = STREAMS.replace("order: at}", "order: at, on_revision: ignore}", 1)
        with answering(tmp_path, declared=declared) as there:
            there.take(quotes=PAST)
            assert sweep(there.site).swept == []
            there.check()


@pytest.mark.usefixtures("spark")
class TestDeferral:
    """Corrections that wait, and are not lost."""

    def test_each_query_by_itself(self, tmp_path: Path) -> None:
        texts = {**TEXTS, "closed": QUERIES["closed"]}
        options = {"sums": "sweep: {when: never}", "closed": "sweep: {when: age >= 30 minutes}"}
        declared = UNSWEPT.replace("never", "queue >= 3")
        with answering(tmp_path, texts, options, declared) as there:
            there.take(quotes=PAST[:1])
            report = there.run()
            assert (report.revised, applied(there)) == ([], 0)
            words = {each.query: each.waits for each in plan_sweep(there.site).queries}
            assert words["dear"] == "waits until 3 revisions have come; 1 has"
            assert words["sums"] == "waits for `errata sweep`"
            assert words["closed"] == "waits until one has waited 30 minutes; the oldest has waited 0 seconds"

            # Three have come: they become history, and reach the query for which they are due.
            there.take(quotes=PAST[1:3])
            report = there.run()
            assert applied(there) == 3
            assert {each.name for each in report.deferred} == {"sums", "closed"}
            assert "dear" in {each.name for each in report.evaluated if each.swept is not None}
            there.check()
            assert {each: there.of(each).last.revisions["quotes"] for each in texts} == {
                "dear": 3,
                "sums": 0,
                "most": 0,
                "closed": 0,
            }
            assert of_query(there, "closed").revisions == 3

            # Answers go on meanwhile, of what they knew.
            there.at(NOW + 29 * MINUTE)
            there.take(quotes=["14,a,4", "15,b,6"])
            report = there.run()
            assert {each.name for each in report.deferred} == {"sums", "closed"}
            there.check()
            there.at(NOW + 30 * MINUTE)
            report = there.run()
            assert {each.name for each in report.deferred} == {"sums"}
            assert there.of("closed").last.revisions == {"quotes": 3}
            there.check()

            assert corrected(sweep(there.site, due=True)) == set()
            there.take(quotes=PAST[3:])
            assert corrected(sweep(there.site)) == set(texts)
            assert {there.of(each).last.revisions["quotes"] for each in texts} == {4}
            there.check()
            there.run()
            there.check()

    def test_never_but_when_it_is_asked_for(self, tmp_path: Path) -> None:
        with answering(tmp_path, declared=UNSWEPT) as there:
            there.take(quotes=PAST)
            there.run()
            assert applied(there) == 0
            there.take(quotes=["13,a,4", "14,b,5"])
            there.run()
            there.check()
            assert corrected(sweep(there.site, ["dear"])) == {"dear"}
            report = there.run()
            assert {each.name for each in report.deferred} == {"sums"}
            there.check()
            assert corrected(sweep(there.site)) == {"sums", "most"}
            there.check()

    def test_what_is_read_may_be_corrected_before(self, tmp_path: Path) -> None:
        with answering(tmp_path, served={"most": "sweep: {when: queue >= 2}"}) as there:
            there.take(quotes=PAST[:1])
            report = there.run()
            # What has been corrected below cannot be left out by who reads it, so it does not wait.
            assert report.deferred == []
            assert there.of("most").last.revisions == {"quotes": 1}
            there.check()


@pytest.mark.usefixtures("spark")
class TestTooOld:
    """Corrections of results whose rows are no longer there."""

    AGEING = STREAMS.replace("order: at}", "order: at, retention: 8 units, bucket_rows: 1}", 1)

    def test_they_are_refused_with_the_reason(self, tmp_path: Path) -> None:
        texts = {**TEXTS, "closed": QUERIES["closed"]}
        with answering(tmp_path, texts, declared=self.AGEING) as there:
            age_out(there.site, ["quotes"])
            aged_to = streams.stream_state(there.site.catalog, "quotes").aged_to
            assert aged_to is not None
            assert 3 < aged_to <= 6
            before = {name: (there.rows(name), there.feed(name)) for name in texts}
            there.take(quotes=["6,b,3;replace"])
            plan = {each.query: each for each in plan_sweep(there.site).queries}
            assert [each.count for each in plan["sums"].refused] == [1]
            assert corrected(sweep(there.site)) == {"dear", "sums", "closed"}
            # Of one row by itself, and of windows that are adjusted, no others are needed.
            for name in ("dear", "closed"):
                assert there.of(name).last.correction is not None
                assert there.of(name).last.correction.refused == ()
                assert there.rows(name) != before[name][0]
            swept = there.of("sums").last.correction
            assert swept is not None
            (refused,) = swept.refused
            assert (refused.source, refused.first, refused.last, refused.count) == ("quotes", 1, 1, 1)
            assert refused.reason == "the results are made of rows of quotes that have been aged out"
            for name in ("sums", "most"):
                assert (there.rows(name), there.feed(name)) == before[name]
            # It has been said once; and what is not too old goes through.
            assert sweep(there.site).swept == []
            there.take(quotes=["13,a,4", "12,b,1"])
            there.run()
            there.take(quotes=["12,a,2;replace"])
            assert corrected(sweep(there.site)) == set(texts)
            assert there.of("sums").last.correction is not None
            assert there.of("sums").last.correction.refused == ()
            there.check("sums", "most", since=12)

    def test_some_are_and_others_go_through(self, tmp_path: Path) -> None:
        with answering(tmp_path, {"sums": SUMS}, declared=self.AGEING) as there:
            age_out(there.site, ["quotes"])
            before = there.rows("sums")
            there.take(quotes=["6,b,3;replace", "12,a,2;replace"])
            assert corrected(sweep(there.site)) == {"sums"}
            swept = there.of("sums").last.correction
            assert swept is not None
            assert [(each.first, each.last, each.count) for each in swept.refused] == [(1, 1, 1)]
            assert swept.changed > 0
            there.check(since=12)
            early = [each for each in before if each[VE] <= 12]
            assert [each for each in there.rows("sums") if each[VE] <= 12] == early


@pytest.mark.usefixtures("spark")
class TestFailure:
    """Corrections by which an expression cannot be computed."""

    TEXTS: Mapping[str, str] = {
        "dear": DEAR,
        "inverse": "SELECT of, 12 / price AS r, at FROM quotes",
        "top": "SELECT of, max(r) AS top FROM inverse GROUP BY of",
    }

    def test_the_next_correction_lets_it_go_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with answering(tmp_path, self.TEXTS, {}) as there:
            before = {name: there.rows(name) for name in ("inverse", "top")}
            there.take(quotes=["3,a,0;replace", "1,b,6;replace"])
            report = sweep(there.site)
            ((name, fault),) = report.stopped
            assert (name, dict(fault.row), fault.source) == ("inverse", {"at": "3", "of": "a"}, "quotes")
            assert "12 / " in fault.expression
            assert report.held == [("top", "inverse")]
            assert [each.name for each in report.swept] == ["dear"]
            there.check("dear")
            states = {each.name: each.state for each in query_statuses(there.site)}
            assert states == {
                "dear": QueryProgress.CURRENT,
                "inverse": QueryProgress.STOPPED,
                "top": QueryProgress.HELD,
            }
            with monkeypatch.context() as patched:
                patched.setattr("errata.answer.rounds.correct_query", None)
                patched.setattr("errata.answer.rounds.evaluate", None)
                assert [name for name, _ in sweep(there.site).stopped] == ["inverse"]
                assert [name for name, _ in there.run().stopped] == ["inverse"]
            # Others go on; what was published stands.
            there.take(quotes=["13,b,6"])
            ran = there.run()
            assert [name for name, _ in ran.stopped] == ["inverse"]
            there.check("dear")
            assert {name: there.rows(name) for name in before} == before
            there.take(quotes=["3,a,6;replace"])
            ran = there.run()
            assert (ran.stopped, ran.held) == ([], [])
            there.check()
            assert {there.of(name).last.revisions["quotes"] for name in self.TEXTS} == {3}
            assert {there.of(name).frontier for name in self.TEXTS} == {13}

    def test_of_the_direct_technique(self, tmp_path: Path) -> None:
        inverse = "SELECT of, window_start, sum(12 / price) AS s FROM quotes GROUP BY of, window(at, 4, 2)"
        with answering(tmp_path, {"inverse": inverse}, {}) as there:
            before = there.rows("inverse")
            there.take(quotes=["3,a,0;replace"])
            ((name, fault),) = sweep(there.site).stopped
            assert (name, dict(fault.row)) == ("inverse", {"at": "3", "of": "a"})
            assert there.rows("inverse") == before
            there.take(quotes=["3,a,6;replace"])
            assert corrected(sweep(there.site)) == {"inverse"}
            there.check()


def test_late_versions_of_relations(tmp_path: Path, spark: SparkSession) -> None:
    known = QUERIES["named"].replace("names", "firms")
    texts = {"named": QUERIES["named"], "known": known}
    with answering(tmp_path, texts, {}, STREAMS + FIRMS) as there:
        there.take(names=["a,alpha,6"], firms=["a,alpha,6"])
        there.run()
        there.check()
        before = {name: there.rows(name) for name in texts}
        assert before["named"] != before["known"]
        there.take(names=["a,early,2", "b,late,8"], firms=["a,early,2", "b,late,8"])
        there.run()
        there.check()
        assert all(there.rows(name) != before[name] for name in texts)
        assert sweep(there.site).swept == []
        there.take(names=["b,late,8;delete"], firms=["a,first,2;replace"])
        assert corrected(sweep(there.site)) == set(texts)
        there.check()


def test_what_is_undone_is_undone_in_the_answers(tmp_path: Path, spark: SparkSession) -> None:
    texts = {**TEXTS, "closed": QUERIES["closed"]}
    there = Answering.begin(tmp_path, texts)
    there.take(quotes=FIRST["quotes"])
    there.run()
    (second,) = there.take(quotes=SECOND["quotes"])
    there.run()
    before = {name: there.rows(name) for name in texts}
    (correction,) = there.take(quotes=PAST)
    there.run()
    assert all(there.rows(name) != rows for name, rows in before.items())
    undo_batch(there.site, "quotes", correction)
    assert corrected(sweep(there.site)) == set(texts)
    there.check()
    assert {name: there.rows(name) for name in texts} == before
    undo_batch(there.site, "quotes", second)
    there.run()
    there.check()
    assert max(each["at"] for each in there.rows("dear")) == 6
    assert there.of("sums").frontier == 12
    there.close()


def test_queries_that_are_edited_or_added_between(tmp_path: Path, spark: SparkSession) -> None:
    with answering(tmp_path, {**TEXTS, "latest": QUERIES["latest"]}) as there:
        there.take(quotes=PAST)
        edited = {**TEXTS, "sums": SUMS.replace("5", "3"), "latest": QUERIES["latest"], "kinds": QUERIES["kinds"]}
        before = {name: there.rows(name) for name in ("sums", "most")}
        there.edit(edited)
        assert corrected(sweep(there.site)) == {"dear", "latest"}
        there.check("dear", "latest")
        assert {name: there.rows(name) for name in before} == before, "they are worked out anew, not corrected"
        report = there.run()
        assert {each.name for each in report.evaluated} == {"sums", "most", "kinds"}
        there.check()
        there.take(quotes=["3,b,9", "6,c,;delete"])
        assert corrected(sweep(there.site)) == set(edited)
        there.check()


@pytest.mark.usefixtures("spark")
class TestPlan:
    """What is told of a sweep before it is done."""

    NAMES = ("dear", "sums", "closed", "latest", "twos")

    @pytest.mark.parametrize("technique", [Technique.AUTO, Technique.MINIMAL, Technique.ALL, Technique.DIRECT])
    def test_it_is_what_the_sweep_does(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, technique: Technique
    ) -> None:
        count_reads(monkeypatch)
        texts = {name: QUERIES[name] for name in (*self.NAMES, "most")}
        with answering(tmp_path, texts, declared=UNSWEPT) as there:
            there.take(quotes=PAST)
            newest, rows = commits.newest_commit(there.site.catalog), {name: there.rows(name) for name in texts}
            plan = plan_sweep(there.site, technique=technique)
            assert (commits.newest_commit(there.site.catalog), applied(there)) == (newest, 0)
            assert {name: there.rows(name) for name in texts} == rows
            assert (plan.pending, plan.unplaced) == ({"quotes": 4}, {})
            planned = {each.query: each for each in plan.queries}
            report = sweep(there.site, technique=technique)
            assert corrected(report) == set(planned) == set(texts)
            there.check()
            done = {each.name: each for each in report.swept}
            for name in self.NAMES:
                told, swept = planned[name], done[name].swept
                assert swept is not None
                asked = done[name].measures.rows_asked or 0
                assert (told.technique.value, told.revisions) == (swept.technique, 4), name
                # Of what is not history yet the plan knows where it lies, and nothing else.
                assert told.regions <= swept.regions <= 2 * told.revisions, name
                # What is kept of final windows is read once more for where it changes.
                twice = told.rows if name == "closed" and technique is Technique.ALL else 0
                assert told.rows - 3 <= asked <= told.rows + 3 + twice, name
                assert told.rows <= told.all_rows
            assert planned["most"].technique is Technique.MINIMAL or technique is Technique.ALL
            assert plan_sweep(there.site).queries == []

    def test_of_nothing_and_of_some(self, tmp_path: Path) -> None:
        with answering(tmp_path) as there:
            plan = plan_sweep(there.site)
            assert (plan.pending, plan.queries) == ({}, [])
            there.take(quotes=PAST[:1])
            assert [each.query for each in plan_sweep(there.site, ["dear"]).queries] == ["dear"]
            assert [each.query for each in plan_sweep(there.site, ["most"]).queries] == ["sums", "most"]
            assert of_query(there, "dear").waits is None


def test_every_correction_is_one_commit_of_a_query(tmp_path: Path, spark: SparkSession) -> None:
    with answering(tmp_path) as there:
        there.take(quotes=PAST)
        there.take(quotes=["6,a,8;replace", "6,b,;delete"])
        newest = commits.newest_commit(there.site.catalog)
        report = sweep(there.site)
        assert [each.stream for each in report.revised] == ["quotes"]
        history = sum(len(each.commits) for each in report.revised)
        assert commits.newest_commit(there.site.catalog) == newest + history + len(TEXTS)
        for name in TEXTS:
            last = evaluations_of(there.site.catalog, there.of(name).stream_id)[-1]
            assert last.correction is not None
            if name != "most":
                assert last.correction.revisions == {"quotes": (0, 6)}
                assert last.cause == {"type": "revisions", "id": "quotes 1 to 6", "feed": "whole"}
        told: list[Row] = there.feed("dear")
        assert {each["op"] for each in told} == {"insert", "delete", "replace"}
