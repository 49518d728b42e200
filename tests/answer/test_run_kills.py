"""Runs that are killed at any step, and runs that meet each other: what is published is that of one run that was left
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

from errata.answer import catalog_view
from errata.answer.runs import RunReport, run
from errata.catalog import commits
from errata.catalog.result_archives import (
    EvaluationCommit,
    ResultTableUpdate,
    commit_evaluation,
    evaluations_of,
    read_archives,
)
from errata.catalog.tables import leases
from errata.catalog.transaction import BasisConflict
from errata.model.commit import Cause
from fixtures.kills import Listed, committers, kill_while_running
from fixtures.lease_cases import no_lease
from fixtures.postgres import FreshDatabase
from fixtures.runs import FIRST, QUERIES, SECOND, Answering, same_as

TEXTS = {name: QUERIES[name] for name in ("dear", "sums", "most")}
COMMIT = "errata.catalog.result_archives.commit_evaluation"


@dataclass(frozen=True)
class Course:
    """A project in which a run is due, and the same after it has been done."""

    before: Path
    made: Answering
    after: Answering

    def again(self, folder: Path) -> Answering:
        """The first once more."""
        return self.made.copied(folder, self.before)


def come_so_far(there: Answering) -> None:
    """Answered once, and more has come."""
    there.take(quotes=FIRST["quotes"])
    there.run()
    there.take(quotes=SECOND["quotes"])


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Course]:
    folder = tmp_path_factory.mktemp("course")
    there = Answering.begin(folder / "before", TEXTS)
    come_so_far(there)
    after = there.copied(folder / "after")
    assert len(after.run().evaluated) == len(TEXTS)
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
    "all has been read": ("errata.answer.evaluation.advance", False),
    "Spark has worked it out": ("errata.answer.evaluation.collect_results", True),
    "files have been written": (COMMIT, False),
    "it has been committed": (COMMIT, True),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_is_killed(course: Course, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = course.again(tmp_path / "killed")
    monkeypatch.setattr("errata.archive.results.MAX_INLINE_BYTES", -1)  # so that there are files
    stood, rows, newest = (
        there.files(),
        {name: there.rows(name) for name in TEXTS},
        commits.newest_commit(there.site.catalog),
    )
    place, afterwards = MOMENTS[moment]
    with monkeypatch.context() as patched:
        module, _, name = place.rpartition(".")
        patched.setattr(place, dying(getattr(_found(module), name), afterwards=afterwards))
        with pytest.raises(KilledError):
            there.run()
    committed = ["dear", "sums"] if moment == "it has been committed" else []
    assert commits.newest_commit(there.site.catalog) == newest + len(committed)
    for name in TEXTS:
        expected = course.after.rows(name) if name in committed else rows[name]
        assert there.rows(name) == expected
        there.check_table(name)
    left_behind = there.files() - stood
    assert bool(left_behind) == (moment in ("files have been written", "it has been committed"))
    report = there.run()
    assert {each.name for each in report.evaluated} == set(TEXTS) - set(committed)
    same_as(there, course.after, *TEXTS)
    assert committed or not left_behind & there.named_files()
    assert there.run().evaluated == []
    there.close()


def _found(path: str) -> Any:
    """A module or what is in one."""
    module, _, name = path.rpartition(".")
    return __import__(path, fromlist=["_"]) if not path.endswith("published") else getattr(_found(module), name)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
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
            there.run()
    newest, rows, table = commits.newest_commit(there.site.catalog), there.rows("sums"), there.table("sums")
    assert table != course.after.table("sums")
    with committers() as server:
        there.site.catalog.engine.dispose()
        whole = server.commit(fresh_database(kind, like=url), prepared, 0)
        assert whole["sound"]
        # Before and after each statement, the commit, and when all is done. Death before a statement is death after the
        # one before it.
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
        commit_evaluation(there.site.catalog, done, Cause("run"))
    assert there.run().evaluated == []
    there.close()


def test_a_process_that_is_killed_and_its_lease(course: Course, tmp_path: Path) -> None:
    there = course.again(tmp_path / "killed")
    newest = commits.newest_commit(there.site.catalog)
    there.close()
    kill_while_running(there.written.folder, 2)
    assert commits.newest_commit(there.site.catalog) == newest + 1
    with there.site.catalog.reading() as connection:
        left = {row.name.removeprefix("query ") for row in connection.execute(select(leases.c.name))}
    known = read_archives(there.site.catalog)
    (killed,) = {name for name in left if known[name].last.commit_id <= newest}
    first = ({"dear", "sums"} - {killed}).pop()
    there.check(first)
    for name in TEXTS:
        there.check_table(name)
    # Its holder is known to be dead, so whoever comes next has it at once.
    report = there.run()
    assert (report.busy, report.held) == ([], [])
    assert killed in {each.name for each in report.evaluated}
    same_as(there, course.after, *TEXTS)
    assert there.run().evaluated == []
    there.close()


def test_two_runners_and_one_lease(course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = course.again(tmp_path / "two")
    reached, go_on = threading.Event(), threading.Event()

    def slowly(catalog: Any, done: EvaluationCommit, cause: Any) -> Any:
        if done.query == "sums":
            reached.set()
            assert go_on.wait(60)
        return commit_evaluation(catalog, done, cause)

    monkeypatch.setattr(COMMIT, slowly)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(there.run)
        assert reached.wait(60)
        second = there.run()
        go_on.set()
        report = first.result()
    assert "sums" in second.busy
    assert second.held == [("most", "sums")]
    done = sorted(each.name for each in (*report.evaluated, *second.evaluated))
    assert done == sorted(TEXTS)
    same_as(there, course.after, *TEXTS)
    there.close()


@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.long), "postgresql"])
def test_two_runners_without_leases(
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
            both.wait(60)
        return commit_evaluation(catalog, done, cause)

    monkeypatch.setattr("errata.answer.rounds.leases.hold_lease", no_lease)
    monkeypatch.setattr(COMMIT, together)
    with ThreadPoolExecutor(2) as pool:
        reports: list[RunReport] = list(pool.map(lambda _: run(there.site), range(2)))
    done = [each.name for report in reports for each in report.evaluated]
    assert sorted(done) == sorted(TEXTS), "who comes second has nothing left to do"
    assert there.run().evaluated == []
    same_as(there, course.after, *TEXTS)
    for name in TEXTS:
        numbers = [each.number for each in evaluations_of(there.site.catalog, there.of(name).stream_id)]
        assert numbers == [1, 2]
    there.close()


def test_a_runner_that_another_one_has_overtaken(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Answering.begin(tmp_path, TEXTS)
    there.take(quotes=FIRST["quotes"])
    there.run()
    there.take(quotes=["7,a,3", "8,b,6"])
    look, overtaken = catalog_view.read_archives, []

    def late(catalog: Any) -> Any:
        if not overtaken:
            overtaken.append("sums")
            there.take(quotes=["8,a,3"])
            assert [each.name for each in there.run("sums").evaluated] == overtaken
        return look(catalog)

    monkeypatch.setattr(catalog_view, "read_archives", late)
    report = there.run()
    assert (report.busy, report.held) == (["sums"], [("most", "sums")])
    there.check()
    assert {each.name for each in there.run().evaluated} == {"dear", "most"}
    there.check()
    there.close()
