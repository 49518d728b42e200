"""Sweeps that are killed at any step, and sweeps that meet others: what is published is that of one sweep that was left
alone, once."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import select

from errata.answer.runs import SweepReport, sweep
from errata.archive.revisions.apply import apply_revisions
from errata.archive.upkeep.ageing import age_out
from errata.archive.upkeep.compaction import compact_streams
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import commits, streams
from errata.catalog.result_archives import (
    EvaluationCommit,
    ResultTableUpdate,
    commit_evaluation,
    evaluations_of,
    read_archives,
)
from errata.catalog.tables import leases
from errata.catalog.transaction import BasisConflict
from errata.declare.warehouse import Warehouse
from errata.model.commit import Cause
from fixtures.kills import Listed, committers, kill_while_running
from fixtures.lease_cases import no_lease
from fixtures.postgres import FreshDatabase
from fixtures.runs import FIRST, QUERIES, SECOND, STREAMS, UNSWEPT, Answering, same_as

TEXTS = {name: QUERIES[name] for name in ("dear", "sums", "most", "closed")}
READ_THEMSELVES = {"dear", "sums", "closed"}
CORRECTIONS = {"quotes": ["3,a,9;replace", "1,b,;delete", "7,a,8;replace", "2,a,6;insert", "12,a,2;replace"]}
COMMIT = "errata.catalog.result_archives.commit_evaluation"


@dataclass(frozen=True)
class Course:
    """A project in which corrections are pending, and the same after they have been swept."""

    before: Path
    made: Answering
    after: Answering

    def again(self, folder: Path) -> Answering:
        """The first once more."""
        return self.made.copied(folder, self.before)


def come_so_far(there: Answering) -> None:
    """Answered twice, and then corrected."""
    for rows in (FIRST["quotes"], SECOND["quotes"]):
        there.take(quotes=rows)
        there.run()
    there.take(**CORRECTIONS)


def corrected(report: SweepReport) -> set[str]:
    assert not report.stopped
    return {each.name for each in report.swept}


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Course]:
    folder = tmp_path_factory.mktemp("course")
    there = Answering.begin(folder / "before", TEXTS)
    come_so_far(there)
    after = there.copied(folder / "after")
    report = sweep(after.site)
    assert corrected(report) == set(TEXTS)
    assert all(each.swept is not None and each.swept.changed for each in report.swept)
    after.check()
    yield Course(folder / "before", there, after)
    after.close()


class KilledError(BaseException):
    """Nothing that the product would catch."""


def dying(work: Callable[..., Any], *, afterwards: bool) -> Callable[..., Any]:
    def dies(*given: Any, **named: Any) -> Any:
        if afterwards:
            work(*given, **named)
        raise KilledError

    return dies


MOMENTS: Mapping[str, tuple[str, bool]] = {
    "nothing has been done": ("errata.answer.runs.apply_stream_revisions", False),
    "history is corrected": ("errata.answer.runs.apply_stream_revisions", True),
    "all has been read": ("errata.answer.diff_writer.diff_results", False),
    "files have been written": (COMMIT, False),
    "it has been committed": (COMMIT, True),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_sweep_that_is_killed(course: Course, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = course.again(tmp_path / "killed")
    monkeypatch.setattr("errata.archive.results.MAX_INLINE_BYTES", -1)  # so that there are files
    stood, rows = there.files(), {name: there.rows(name) for name in TEXTS}
    place, afterwards = MOMENTS[moment]
    module, _, name = place.rpartition(".")
    with monkeypatch.context() as patched:
        found = getattr(__import__(module, fromlist=["_"]), name)
        patched.setattr(place, dying(found, afterwards=afterwards))
        with pytest.raises(KilledError):
            sweep(there.site)
    committed = READ_THEMSELVES if moment == "it has been committed" else set()
    for name in TEXTS:
        expected = course.after.rows(name) if name in committed else rows[name]
        assert there.rows(name) == expected
        there.check_table(name)
    left_behind = {each for each in there.files() - stood if each.partition("/")[0] in TEXTS}
    assert bool(left_behind) == (moment in ("files have been written", "it has been committed"))
    assert corrected(sweep(there.site)) == set(TEXTS) - committed
    same_as(there, course.after, *TEXTS)
    assert committed or not left_behind & there.named_files()
    assert sweep(there.site).swept == []
    there.close()


def test_a_sweep_that_is_killed_at_each_file(course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = course.again(tmp_path / "killed")
    monkeypatch.setattr("errata.archive.results.MAX_INLINE_BYTES", -1)
    apply_revisions(there.site)
    write, written, dies_at = Warehouse.write, list[str](), [0]
    rows = there.rows("closed")

    def counted(warehouse: Warehouse, path: str, data: bytes) -> None:
        write(warehouse, path, data)
        written.append(path)
        if len(written) == dies_at[0]:
            raise KilledError

    monkeypatch.setattr(Warehouse, "write", counted)
    # Corrected rows are added, superseded ones masked, changes told, and what is kept of windows is made anew.
    for dies_at[0] in range(1, 5):
        written.clear()
        with pytest.raises(KilledError):
            sweep(there.site, ["closed"])
        assert there.rows("closed") == rows
    written.clear()
    dies_at[0] = 0
    assert corrected(sweep(there.site, ["closed"])) == {"closed"}
    assert len(written) == 4
    same_as(there, course.after, "closed")
    there.close()


@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.long), "postgresql"])
def test_a_transaction_that_is_killed_at_every_statement(
    kind: str, course: Course, fresh_database: FreshDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh_database(kind)
    there = Answering.begin(tmp_path / "there", {"sums": TEXTS["sums"]}, url=url)
    come_so_far(there)
    prepared = tmp_path / "done.pickle"

    def keep(_catalog: object, done: EvaluationCommit, _cause: object) -> int:
        serves = done.table_update
        assert serves is not None
        told = ResultTableUpdate(serves.table, Listed(list(serves.changes())), Listed(list(serves.current())))
        prepared.write_bytes(pickle.dumps((None, replace(done, table_update=told))))
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(COMMIT, keep)
        with pytest.raises(KilledError):
            sweep(there.site)
    newest, rows, table = commits.newest_commit(there.site.catalog), there.rows("sums"), there.table("sums")
    assert table != course.after.table("sums")
    with committers() as server:
        there.site.catalog.engine.dispose()
        whole = server.commit(fresh_database(kind, like=url), prepared, 0)
        assert whole["sound"]
        assert whole["steps"] > 2 * 12
        assert whole["steps"] % 2 == 0
        for step in range(1, whole["steps"], 2):
            assert server.commit(url, prepared, step) == {"killed": True, "sound": False, "steps": step}
            assert commits.newest_commit(there.site.catalog) == newest
            assert (there.rows("sums"), there.table("sums")) == (rows, table)
            there.site.catalog.engine.dispose()
        assert server.commit(url, prepared, whole["steps"])["killed"]
    same_as(there, course.after, "sums")
    # What has been committed is not committed again, and nothing is left to do.
    _, done = pickle.loads(prepared.read_bytes())
    with pytest.raises(BasisConflict):
        commit_evaluation(there.site.catalog, done, Cause("sweep"))
    assert sweep(there.site).swept == []
    there.close()


def test_a_process_that_is_killed_and_its_lease(course: Course, tmp_path: Path) -> None:
    there = course.again(tmp_path / "killed")
    newest = commits.newest_commit(there.site.catalog)
    there.close()
    # History is corrected in the first transaction, two queries have been by the third, and the third dies.
    kill_while_running(there.written.folder, 4, "sweep")
    assert commits.newest_commit(there.site.catalog) == newest + 3
    with there.site.catalog.reading() as connection:
        left = {row.name.removeprefix("query ") for row in connection.execute(select(leases.c.name))}
    known = read_archives(there.site.catalog)
    (killed,) = {name for name in left if known[name].last.commit_id <= newest}
    for name in READ_THEMSELVES - {killed}:
        there.check(name)
    # Its holder is known to be dead, so whoever comes next has it at once.
    report = sweep(there.site)
    assert (report.busy, report.held) == ([], [])
    assert killed in corrected(report)
    same_as(there, course.after, *TEXTS)
    assert sweep(there.site).swept == []
    there.close()


def test_two_sweepers_and_one_lease(course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = course.again(tmp_path / "two")
    reached, go_on = threading.Event(), threading.Event()

    def slowly(catalog: Any, done: EvaluationCommit, cause: Any) -> Any:
        if done.query == "sums":
            reached.set()
            assert go_on.wait(200)
        return commit_evaluation(catalog, done, cause)

    monkeypatch.setattr(COMMIT, slowly)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(sweep, there.site)
        assert reached.wait(200)
        second = sweep(there.site)
        go_on.set()
        report = first.result()
    assert "sums" in second.busy
    assert second.held == [("most", "sums")]
    done = sorted(each.name for each in (*report.swept, *second.swept))
    assert done == sorted(TEXTS)
    same_as(there, course.after, *TEXTS)
    there.close()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def test_two_sweepers_without_leases(
    kind: str, course: Course, fresh_database: FreshDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Answering.begin(tmp_path / "there", TEXTS, url=fresh_database(kind))
    come_so_far(there)
    both = threading.Barrier(2)
    met: set[tuple[int, str]] = set()

    def together(catalog: Any, done: EvaluationCommit, cause: Any) -> Any:
        me = (threading.get_ident(), done.query)
        if done.query == "sums" and me not in met:
            met.add(me)
            both.wait(200)
        return commit_evaluation(catalog, done, cause)

    monkeypatch.setattr("errata.answer.rounds.leases.hold_lease", no_lease)
    monkeypatch.setattr(COMMIT, together)
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda _: sweep(there.site), range(2)))
    done = [each.name for report in reports for each in report.swept]
    assert sorted(done) == sorted(TEXTS), "who comes second has nothing left to do"
    assert sweep(there.site).swept == []
    same_as(there, course.after, *TEXTS)
    for name in TEXTS:
        told = evaluations_of(there.site.catalog, there.of(name).stream_id)
        assert [(each.number, each.correction is not None) for each in told] == [(1, False), (2, False), (3, True)]
    there.close()


def meanwhile(monkeypatch: pytest.MonkeyPatch, query: str, do: Callable[[], object]) -> None:
    """Do something when a query's corrections are about to be committed, once."""
    left = [do]

    def later(catalog: Any, done: EvaluationCommit, cause: Any) -> Any:
        if done.query == query and done.correction is not None and left:
            left.pop()()
        return commit_evaluation(catalog, done, cause)

    monkeypatch.setattr(COMMIT, later)


def test_a_sweep_beside_batches(course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = course.again(tmp_path / "beside")

    def more() -> None:
        there.take(quotes=["12,b,7", "13,a,4", "14,b,2"])
        there.revise(quotes=["1,a,9;replace", "8,b,;delete"])

    meanwhile(monkeypatch, "sums", more)
    assert corrected(sweep(there.site)) == set(TEXTS)
    # What has come meanwhile is in none of the answers, and is in all of them afterwards.
    same_as(there, course.after, "dear", "closed")
    assert {name: there.rows(name) for name in TEXTS} == {name: course.after.rows(name) for name in TEXTS}
    assert corrected(sweep(there.site)) == set(TEXTS)
    # More rows of the last instant are not behind what is answered: the next run brings them.
    there.run()
    there.check()
    there.close()


def test_a_sweep_that_a_run_has_overtaken(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Answering.begin(tmp_path, TEXTS, declared=UNSWEPT)
    come_so_far(there)
    there.take(quotes=["13,a,4"])

    def further() -> None:
        there.take(quotes=["16,a,4", "16,b,2"])
        assert [each.name for each in there.run("sums").evaluated] == ["sums"]

    with monkeypatch.context() as patched:
        patched.setattr("errata.answer.rounds.leases.hold_lease", no_lease)
        meanwhile(patched, "sums", further)
        report = sweep(there.site)
    assert (report.busy, report.held) == (["sums"], [("most", "sums")]), "the other one has read rows that this has not"
    assert corrected(report) == {"dear", "closed"}
    there.check()
    assert corrected(sweep(there.site)) == {"sums", "most"}
    there.check()
    there.run()
    there.check()
    there.close()


def test_a_sweep_that_a_run_of_the_same_state_has_overtaken(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {name: TEXTS[name] for name in ("sums", "most")}
    there = Answering.begin(tmp_path, texts, declared=UNSWEPT)
    come_so_far(there)
    there.revise(quotes=["13,a,4", "13,b,2", "13,b,1;replace"])
    with monkeypatch.context() as patched:
        patched.setattr("errata.answer.rounds.leases.hold_lease", no_lease)
        meanwhile(patched, "sums", lambda: there.run("sums"))
        report = sweep(there.site)
    assert corrected(report) == set(texts), "what has been worked out is put aside, and worked out again"
    assert there.of("sums").frontier == 13
    there.check()
    there.run()
    there.check()
    there.close()


def test_no_correction_is_folded_that_a_query_has_still_to_take_up(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgetful = UNSWEPT.replace("order: at", "order: at, horizon: 0 seconds")
    forgetful = forgetful.replace("order: since", "order: since, horizon: 0 seconds")
    there = Answering.begin(tmp_path, TEXTS, declared=forgetful)
    come_so_far(there)
    there.revise()
    there.run()
    assert there.of("sums").last.revisions == {"quotes": 0}
    (held,) = compact_streams(there.site, ["quotes"], everything=True)
    assert held.held
    assert not held.folded
    folded: list[int] = []

    def upkeep() -> None:
        compact_streams(there.site, ["quotes"], everything=True)
        run_vacuum(there.site, grace=0)
        folded.append(streams.stream_state(there.site.catalog, "quotes").folded)

    meanwhile(monkeypatch, "sums", upkeep)
    assert corrected(sweep(there.site)) == set(TEXTS)
    there.check()
    upkeep()
    assert folded == [0, 5]
    assert sweep(there.site).swept == []
    there.take(quotes=["6,b,1;replace", "14,a,3"])
    there.run()
    assert corrected(sweep(there.site)) == set(TEXTS)
    there.check()
    there.close()


def test_a_sweep_beside_ageing(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = STREAMS.replace("order: at}", "order: at, retention: 8 units, bucket_rows: 1}", 1)
    there = Answering.begin(tmp_path, {name: TEXTS[name] for name in ("dear", "sums")}, declared=declared)
    come_so_far(there)
    meanwhile(monkeypatch, "sums", lambda: age_out(there.site, ["quotes"]))
    # What the sweep reads it goes on seeing.
    assert corrected(sweep(there.site)) == {"dear", "sums"}
    assert (streams.stream_state(there.site.catalog, "quotes").aged_to or 0) > 3
    assert sweep(there.site).swept == []
    right = Answering.begin(tmp_path / "right", there.texts)
    come_so_far(right)
    assert corrected(sweep(right.site)) == {"dear", "sums"}
    same_as(there, right, "dear", "sums")
    right.close()
    there.close()
