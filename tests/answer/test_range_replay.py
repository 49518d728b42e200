"""Ranges of results worked out again: they are verified, or corrected where they were wrong, and never twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from sqlalchemy import update

from errata.answer import range_replay as replay_flow
from errata.answer.range_replay import ReplayRange, ReplayReport, replay_range
from errata.answer.result_sink import select_result_columns
from errata.answer.runs import sweep
from errata.archive.upkeep.ageing import age_out
from errata.catalog import activity, commits, leases
from errata.catalog.result_archives import EvaluationCommit, commit_evaluation
from errata.catalog.tables import buckets
from errata.errors import ErrataError, UsageError
from errata.model.bucket import Role
from errata.model.results import VS
from errata.model.technique import Technique
from errata.model.time import Interval
from fixtures.lease_cases import no_lease
from fixtures.runs import FIRST, QUERIES, SECOND, STREAMS, UNSWEPT, Answering

TEXTS = {name: QUERIES[name] for name in ("dear", "sums", "most", "closed", "twos", "latest", "named")}
TELLING = {name: TEXTS[name] for name in ("dear", "sums", "closed")}
PAST = ["3,a,9;replace", "1,b,;delete", "7,a,8;replace", "2,a,6;insert"]


@pytest.fixture
def there(tmp_path: Path, spark: SparkSession) -> Iterator[Answering]:
    there = Answering.begin(tmp_path, TEXTS, declared=UNSWEPT)
    there.take(quotes=FIRST["quotes"])
    there.run()
    there.take(quotes=SECOND["quotes"], names=SECOND["names"])
    there.run()
    yield there
    there.close()


def of_range(there: Answering, query: str, since: int = 0, until: int = 13, **more: Any) -> ReplayReport:
    return replay_range(
        there.site, ReplayRange(query, str(since), str(until), more.pop("technique", Technique.AUTO)), **more
    )


def recorded(there: Answering, query: str) -> list[activity.ReplayProgress]:
    return activity.replays_of(there.site.catalog, there.of(query).stream_id)


class TestVerifying:
    """Where nothing is wrong nothing is published."""

    @pytest.mark.parametrize("technique", [Technique.AUTO, Technique.ALL])
    def test_every_route(self, there: Answering, technique: Technique) -> None:
        newest, files = commits.newest_commit(there.site.catalog), there.files()
        for name in TEXTS:
            report = of_range(there, name, technique=technique)
            assert (report.changed, report.done, report.resumed, report.fault) == (0, [], False, None), name
            assert report.results > 0, name
            (told,) = recorded(there, name)
            assert (told.left.empty, told.changed, told.results) == (True, 0, report.results)
            assert told.ended is not None
        assert (commits.newest_commit(there.site.catalog), there.files()) == (newest, files)

    def test_what_waits_stays_out(self, there: Answering) -> None:
        there.revise(quotes=PAST)
        for name in TELLING:
            assert of_range(there, name).changed == 0
        sweep(there.site)
        for name in TELLING:
            assert of_range(there, name).changed == 0
        there.check()

    def test_rows_that_have_come_since_stay_out(self, there: Answering) -> None:
        there.take(quotes=["12,c,6", "13,a,4"])
        for name in TELLING:
            assert of_range(there, name).changed == 0

    def test_files_of_what_is_not_published_are_removed(
        self, there: Answering, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("errata.archive.results.MAX_INLINE_BYTES", -1)
        stood = there.files()
        assert of_range(there, "closed").changed == 0
        assert there.files() == stood

    def test_a_dry_run(self, there: Answering) -> None:
        report = of_range(there, "sums", 3, 8, dry=True)
        assert (report.interval, report.timed, report.results, report.changed) == (Interval(3, 8), False, 0, 0)
        assert 0 < report.rows < of_range(there, "sums", dry=True).rows
        assert recorded(there, "sums") == []


@pytest.fixture
def wrong(tmp_path: Path, spark: SparkSession) -> Iterator[Answering]:
    """Published, and told, without what is of b; and with other sums of what is of c."""
    there = Answering.begin(tmp_path, TELLING)

    def faulty(rows: DataFrame, *given: Any) -> DataFrame:
        found = select_result_columns(rows, *given).where("of <> 'b'")
        if "s" not in found.columns:
            return found
        return found.withColumn("s", sf.when(sf.col("of") == "c", sf.col("s") + 1).otherwise(sf.col("s")))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("errata.answer.evaluation.select_result_columns", faulty)
        there.take(quotes=[*FIRST["quotes"], *SECOND["quotes"]])
        there.run()
    assert all(each["of"] != "b" for name in TELLING for each in there.rows(name))
    yield there
    there.close()


class TestCorrecting:
    """Where something is wrong just that is published anew."""

    @pytest.mark.parametrize("name", TELLING)
    def test_just_what_was_wrong(self, wrong: Answering, name: str) -> None:
        before, told = wrong.rows(name), wrong.feed(name)
        report = of_range(wrong, name)
        (done,) = report.done
        assert done.swept is not None
        assert done.published.last.cause == {"type": "replay", "id": name, "feed": "whole"}
        wrong.check(name)
        after = wrong.rows(name)
        assert [each for each in after if each["of"] == "a"] == [each for each in before if each["of"] == "a"]
        news = [each for each in wrong.feed(name) if each not in told]
        assert len(news) == report.changed == done.swept.changed
        assert all(each["key"].get("of", "b") != "a" for each in news)
        assert {each["op"] for each in news} == ({"insert"} if name == "dear" else {"insert", "replace"})
        again = of_range(wrong, name)
        assert (again.changed, again.done) == (0, [])
        wrong.take(quotes=["13,b,4", "16,c,5"])
        wrong.run()
        wrong.check(name)

    def test_only_in_the_range(self, wrong: Answering) -> None:
        before = wrong.rows("sums")
        report = of_range(wrong, "sums", 5, 8)
        assert report.changed
        after = wrong.rows("sums")
        for at in (*range(5), *range(8, 13)):
            old, new = ([each for each in rows if each[VS] <= at < each["_ve"]] for rows in (before, after))
            assert {each["of"] for each in old} == {each["of"] for each in new}, at
        for at in range(5, 8):
            assert "b" in {each["of"] for each in after if each[VS] <= at < each["_ve"]}
        of_range(wrong, "sums")
        wrong.check("sums")

    def test_results_that_have_been_lost(self, there: Answering) -> None:
        rows = {name: there.rows(name) for name in TELLING}
        for name in TELLING:
            some = [each.bucket_id for each in there.buckets(name, Role.BASE)]
            assert some
            with there.site.catalog.writing() as connection:
                connection.execute(update(buckets).where(buckets.c.bucket_id.in_(some)).values(removed_in=1))
            lost = len(rows[name]) - len(there.rows(name))
            assert lost > 0
            assert of_range(there, name).changed == lost
            assert there.rows(name) == rows[name]

    def test_others_that_come_between(self, wrong: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
        def with_more() -> None:
            wrong.take(quotes=["13,b,4"])
            wrong.run("sums")

        with monkeypatch.context() as patched:
            patched.setattr(leases, "hold_lease", no_lease)
            meanwhile(patched, with_more)
            with pytest.raises(ErrataError, match="from rows that came after the replay began"):
                of_range(wrong, "sums")
        assert of_range(wrong, "sums", 0, 14).changed
        wrong.check("sums")

    def test_a_sweep_that_comes_between(self, wrong: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
        wrong.revise(quotes=PAST)
        with monkeypatch.context() as patched:
            patched.setattr(leases, "hold_lease", no_lease)
            meanwhile(patched, lambda: sweep(wrong.site, ["sums"]))
            report = of_range(wrong, "sums")
        assert report.changed
        wrong.check("sums")


def meanwhile(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Do something when a replay is about to commit, once."""
    left = [do]

    def later(catalog: Any, done: EvaluationCommit, cause: Any) -> Any:
        if left:
            left.pop()()
        return commit_evaluation(catalog, done, cause)

    monkeypatch.setattr("errata.catalog.result_archives.commit_evaluation", later)


class KilledError(BaseException):
    """Nothing that the product would catch."""


class TestParts:
    """What takes long is done in parts, and gone on with."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(replay_flow, "REPLAY_PART_ROWS", 3)

    def test_each_by_itself(self, wrong: Answering) -> None:
        parts: list[str] = []
        report = of_range(wrong, "sums", on_step=parts.append)
        assert len(parts) >= 3
        assert parts[0] == "replaying 0 and on"
        assert len(report.done) > 1
        assert sum(each.swept.changed for each in report.done if each.swept is not None) == report.changed
        wrong.check("sums")

    @pytest.mark.parametrize("afterwards", [False, True])
    def test_one_that_was_killed_is_gone_on_with(
        self, wrong: Answering, monkeypatch: pytest.MonkeyPatch, afterwards: bool
    ) -> None:
        progress, noted = activity.advance_replay, list[int]()

        def dying(catalog: Any, of: Any, done_to: int, *given: int) -> Any:
            noted.append(done_to)
            found = progress(catalog, of, done_to, *given) if len(noted) < 2 or afterwards else None
            if len(noted) == 2:
                raise KilledError
            return found

        with monkeypatch.context() as patched:
            patched.setattr(activity, "advance_replay", dying)
            with pytest.raises(KilledError):
                of_range(wrong, "sums")
        (told,) = recorded(wrong, "sums")
        assert (told.done_to, told.ended) == (noted[1 if afterwards else 0], None)
        parts: list[str] = []
        report = of_range(wrong, "sums", on_step=parts.append)
        assert report.resumed
        assert parts[0] == f"replaying {told.done_to} and on"
        (told,) = recorded(wrong, "sums")
        assert (told.left.empty, told.results) == (True, report.results)
        wrong.check("sums")
        # Another one begins from the beginning.
        report = of_range(wrong, "sums")
        assert (report.changed, report.resumed) == (0, False)
        assert len(recorded(wrong, "sums")) == 2


@pytest.mark.usefixtures("spark")
class TestBadInput:
    """What cannot be replayed, and why."""

    @pytest.mark.parametrize(
        ("query", "since", "until", "said"),
        [
            ("summs", "0", "5", "unknown query 'summs'"),
            ("sums", "5", "5", "there is nothing from 5 to before 5"),
            ("sums", "6", "5", "there is nothing from 6 to before 5"),
            ("sums", "20", "30", "has no answers from 20 to before 30"),
            ("sums", "noon", "30", "'noon' is not a whole number"),
        ],
    )
    def test_of_a_range(self, there: Answering, query: str, since: str, until: str, said: str) -> None:
        with pytest.raises(UsageError, match=said):
            replay_range(there.site, ReplayRange(query, since, until))

    def test_it_ends_where_the_answers_end(self, there: Answering) -> None:
        assert of_range(there, "sums", 10, 99, dry=True).interval == Interval(10, 13)

    def test_before_the_beginning(self, tmp_path: Path) -> None:
        there = Answering.begin(tmp_path / "late", {"sums": TEXTS["sums"]}, {"sums": "since: 7"})
        there.take(quotes=[*FIRST["quotes"], *SECOND["quotes"]])
        there.run()
        with pytest.raises(UsageError, match="has no answers from 2 to before 5") as caught:
            of_range(there, "sums", 2, 5)
        assert "from 7 to 12" in str(caught.value)
        assert of_range(there, "sums", 2, 9).interval == Interval(7, 9)
        there.check()
        there.close()

    def test_of_what_is_not_answered(self, there: Answering) -> None:
        there.edit({**TEXTS, "sums": QUERIES["sums"].replace("5", "3"), "kinds": QUERIES["kinds"]})
        with pytest.raises(ErrataError, match="query kinds has not been evaluated yet"):
            of_range(there, "kinds")
        with pytest.raises(ErrataError, match="was edited and is still answered in its former form"):
            of_range(there, "sums")

    def test_of_what_another_one_is_at_work_on(self, there: Answering) -> None:
        with leases.hold_lease(there.site.catalog, "query sums", "replay/r/t/1") as lease:
            assert lease.is_held
            with pytest.raises(ErrataError, match="by another runner") as caught:
                of_range(there, "sums")
        assert "it is replay/r/t/1 (process " in str(caught.value)

    def test_of_rows_that_have_been_aged_out(self, tmp_path: Path) -> None:
        declared = STREAMS.replace("order: at}", "order: at, retention: 8 units, bucket_rows: 1}", 1)
        there = Answering.begin(tmp_path / "ageing", {"sums": TEXTS["sums"]}, declared=declared)
        there.take(quotes=[*FIRST["quotes"], *SECOND["quotes"]])
        there.run()
        age_out(there.site)
        with pytest.raises(ErrataError, match="cannot be worked out again") as caught:
            of_range(there, "sums", 3, 13)
        assert "rows of quotes that have been aged out" in str(caught.value)
        assert of_range(there, "sums", 12, 13).changed == 0
        there.close()
