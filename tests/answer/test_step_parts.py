"""Steps over very much history, done in parts: what is published is the same, and what is killed goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from errata.answer import evaluation as evaluate_flow
from errata.answer.runs import run
from errata.answer.step_parts import find_cut
from errata.answer.task import EvaluationTask
from errata.catalog import leases
from errata.catalog.result_archives import EvaluationCommit, commit_evaluation, evaluations_of
from errata.model.bucket import Role
from errata.model.commit import Evaluation
from errata.read.provenance import BatchCause
from errata.read.status import QueryProgress, query_statuses
from errata.read.why import explain_result
from fixtures.runs import DEAR, FIRST, MOST, QUERIES, SECOND, SUMS, UNSWEPT, Answering

COMMIT = "errata.catalog.result_archives.commit_evaluation"
STEP_ROWS = "errata.answer.step_parts.STEP_PART_ROWS"
CHAIN = {"dear": DEAR, "sums": SUMS, "most": MOST}
WHOLE = {"alone"}
"""Reads all there is each time, so that parts would read it again and again."""
LONGER = ["13,b,4", "15,a,9", "15,b,1", "16,c,5", "18,a,2", "21,b,7", "21,c,3", "26,a,6"]


class KilledError(BaseException):
    """Nothing that the product would catch."""


def evaluations(there: Answering, name: str) -> list[Evaluation]:
    return evaluations_of(there.site.catalog, there.of(name).stream_id)


def agrees(there: Answering, whole: Answering, names: Mapping[str, str]) -> None:
    """Both publish the same, and who holds what has been told holds the same."""
    for name in names:
        assert there.rows(name) == whole.rows(name), name
        frontier = there.of(name).frontier
        assert frontier == whole.of(name).frontier
        for at in range(frontier + 1):
            assert there.held(name).at(at) == whole.held(name).at(at), f"{name} at {at}"


def check_parts(told: list[Evaluation], *, many: bool) -> None:
    """Each goes on where the one before it ended, all have one cause, and only the last is no part."""
    assert [each.step.since for each in told[1:]] == [each.step.until for each in told[:-1]]
    assert all(one.step.until < other.step.until for one, other in pairwise(told))
    assert {each.cause["id"] for each in told} == {told[0].cause["id"]}
    assert [each.is_part for each in told] == [True] * (len(told) - 1) + [False]
    assert (len(told) > 1) == many


def test_every_route_in_parts_is_what_it_is_at_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, whole = (Answering.begin(tmp_path / name) for name in ("parts", "whole"))
    for each in (there, whole):
        each.take(**FIRST, names=SECOND["names"])
        each.take(**SECOND | {"names": ["c,gamma,9"]})
    assert len(whole.run().evaluated) == len(QUERIES)
    monkeypatch.setattr(STEP_ROWS, 4)
    there.run()
    there.check()
    agrees(there, whole, QUERIES)
    for name in QUERIES:
        check_parts(evaluations(there, name), many=name not in WHOLE)
        (all_at_once,) = evaluations(whole, name)
        assert evaluations(there, name)[0].cause["id"] == all_at_once.cause["id"]
    assert there.run().evaluated == []
    whole.close()

    # What is far behind goes on in parts, too.
    known = {name: len(evaluations(there, name)) for name in QUERIES}
    there.take(quotes=LONGER, ticks=["20,a", "28,b"])
    report = there.run()
    there.check()
    for name in QUERIES:
        later = evaluations(there, name)[known[name] :]
        check_parts(later, many=name not in WHOLE)
        assert [each.step for each in report.evaluated if each.name == name] == [each.step for each in later]
    # Of a row that came with a later part the batch is told that brought it.
    (value,) = explain_result(there.site, "dear", {"of": "c", "at": 16}, 16).values
    (cause,) = value.causes.shown
    assert isinstance(cause, BatchCause)
    assert (cause.stream, cause.brings) == ("quotes", True)
    assert there.run().evaluated == []
    there.close()


@pytest.fixture
def there(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """Nothing has been answered yet, and all of it is too much for one step."""
    there = Answering.begin(tmp_path / "there", CHAIN, declared=UNSWEPT)
    there.take(quotes=[*FIRST["quotes"], *SECOND["quotes"]])
    monkeypatch.setattr(STEP_ROWS, 3)
    yield there
    there.close()


def killed_after(there: Answering, name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed when a query's evaluation has been committed."""

    def dying(catalog: Any, done: EvaluationCommit, cause: Any) -> Any:
        committed = commit_evaluation(catalog, done, cause)
        if (done.query, done.number) == (name, number):
            raise KilledError
        return committed

    with monkeypatch.context() as patched:
        patched.setattr(COMMIT, dying)
        with pytest.raises(KilledError):
            there.run()


@pytest.mark.parametrize(("name", "number"), [("sums", 1), ("sums", 2), ("most", 1)])
def test_a_run_that_is_killed_between_parts(
    there: Answering, name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_after(there, name, number, monkeypatch)
    there.check(name)
    assert evaluations(there, name)[-1].is_part
    frontier = there.of(name).frontier
    assert frontier < 12
    states = {each.name: (each.state, each.lag) for each in query_statuses(there.site)}
    assert states[name] == (QueryProgress.BEHIND, 12 - frontier)
    before = evaluations(there, name)

    said: list[str] = []
    run(there.site, on_step=said.append)
    assert any(each.startswith(f"{name} is answered up to {frontier}, and reads about ") for each in said)
    assert evaluations(there, name)[: len(before)] == before, "what had been committed stands"
    for each in CHAIN:
        check_parts(evaluations(there, each), many=True)
    there.check()
    assert there.run().evaluated == []
    whole = there.copied(tmp_path / "whole")
    monkeypatch.undo()
    run(whole.site, list(CHAIN), anew=True)
    agrees(there, whole, {name: CHAIN[name] for name in ("dear", "sums")})
    whole.close()


def test_what_has_come_and_was_corrected_between_parts(there: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_after(there, "sums", 2, monkeypatch)
    frontier = there.of("sums").frontier
    # Of what has been answered, of what has not, and more.
    there.revise(quotes=["3,a,9;replace", "1,b,;delete", "12,a,2;replace", "2,z,4;insert"])
    there.take(quotes=LONGER)
    assert frontier > 3
    there.run()
    there.check()
    assert all(each.correction is None for each in evaluations(there, "sums"))
    there.edit({**CHAIN, "top": "SELECT max(s) AS top FROM sums"})
    there.run()
    there.check()


def test_corrections_are_swept_before_a_query_goes_on(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Answering.begin(tmp_path, CHAIN)
    there.take(quotes=[*FIRST["quotes"], *SECOND["quotes"]])
    monkeypatch.setattr(STEP_ROWS, 3)
    killed_after(there, "sums", 2, monkeypatch)
    there.revise(quotes=["3,a,9;replace", "1,b,;delete", "12,a,2;replace"])
    there.take(quotes=LONGER)
    there.run()
    there.check()
    swept = [each.correction is not None for each in evaluations(there, "sums")]
    assert swept[2], "it is swept where it stands"
    assert not any(swept[3:])
    # What came before the kill, and what came after it, is the cause of what follows.
    (cause,) = {each.cause["id"] for each in evaluations(there, "sums")[3:]}
    assert cause.startswith("commits 2 to ")
    assert there.run().evaluated == []
    there.close()


def test_another_runner_between_parts(there: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    held = leases.hold_lease

    def once(*given: Any) -> Any:
        taken.append(given[1])
        return held(*given)

    monkeypatch.setattr("errata.answer.rounds.leases.hold_lease", once)
    there.run("sums")
    # The first one is taken together with those of the other queries.
    assert 1 + len(taken) == len(evaluations(there, "sums")) > 2, "between parts others may come first"


def test_a_query_that_stops_in_a_later_part(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"inverse": "SELECT of, 12 / price AS r, at FROM quotes", "top": "SELECT max(r) AS top FROM inverse"}
    there = Answering.begin(tmp_path, texts, {})
    there.take(quotes=[*FIRST["quotes"], *SECOND["quotes"], "13,z,0"])
    monkeypatch.setattr(STEP_ROWS, 3)
    report = there.run()
    ((name, fault),) = report.stopped
    assert (name, dict(fault.row), report.held) == ("inverse", {"at": "13", "of": "z"}, [("top", "inverse")])
    assert {each.name for each in report.evaluated} == {"inverse"}
    assert 0 < there.of("inverse").frontier < 13
    there.check("inverse")
    there.revise(quotes=["13,z,2;replace"])
    there.run()
    there.check()
    assert [there.of(each).frontier for each in texts] == [13, 13]
    there.close()


VARIED = {name: QUERIES[name] for name in ("dear", "sums", "closed", "kinds", "latest")}
"""By routes that each keep something else."""


def test_what_takes_the_place_of_other_results_is_worked_out_in_parts_and_committed_at_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Answering.begin(tmp_path / "there", VARIED, declared=UNSWEPT)
    there.take(quotes=[*FIRST["quotes"], *SECOND["quotes"]])
    there.run()
    # One is edited, all are worked out anew, and no result of the former forms is withdrawn and comes again.
    edited = {**VARIED, "dear": DEAR.replace("3", "2")}
    there.edit(edited)
    there.revise(quotes=["3,a,9;replace", "1,b,;delete"])
    whole = there.copied(tmp_path / "whole")
    run(whole.site, list(edited), anew=True)
    steps: list[tuple[str, int]] = []
    monkeypatch.setattr(STEP_ROWS, 3)
    monkeypatch.setattr(evaluate_flow, "LOCAL_STEP_ROWS", 0)  # as if each of the parts were large
    written = evaluate_flow._write_step

    def seen(task: EvaluationTask, *given: Any) -> Any:
        steps.append((task.name, task.step.until))
        return written(task, *given)

    monkeypatch.setattr(evaluate_flow, "_write_step", seen)
    run(there.site, list(edited), anew=True)
    there.check()
    for name in edited:
        assert len([each for each, _ in steps if each == name]) > 1
        (only,) = evaluations(there, name)
        assert (only.step.until, only.is_part) == (12, False)
        assert (there.rows(name), there.feed(name)) == (whole.rows(name), whole.feed(name))
        kept = [[each.rows for each in some.buckets(name, Role.STATE)] for some in (there, whole)]
        assert kept[0] == kept[1]
    # They go on from what the last part has left.
    there.take(quotes=LONGER)
    there.run()
    there.check()
    there.close()
    whole.close()


class TestWhereToCut:
    """Parts are about alike, and each brings something new."""

    @given(
        st.lists(st.integers(0, 40), min_size=1, max_size=60),
        st.integers(1, 50),
        st.integers(0, 120),
        st.integers(-1000, 1000),
    )
    @example([2, 1, 6, 10], 4, 5, -3)
    @example([3, 6], 2, 5, 0)  # the last instant alone brings more than half
    def test_parts_lead_to_the_end(self, each: list[int], most: int, known: int, begins: int) -> None:
        so_far = list(accumulate(each, initial=known))
        low, until = begins, begins + len(each)
        parts = 0
        # A cut at 0 is one.
        while (
            cut := find_cut(lambda at, low=low: so_far[at - begins] - so_far[low - begins] + known, low, until, most)
        ) is not None:
            assert low < cut < until
            fresh = so_far[cut - begins] - so_far[low - begins]
            size = max(most, known)
            assert fresh >= size * 2 / 3, "no splinters"
            assert fresh - each[cut - begins - 1] <= size * 3 / 2, "no more than about so many, but for one instant"
            low, parts = cut, parts + 1
        assert so_far[-2] - so_far[low - begins] <= 1.5 * max(most, known), "nor at the end, but for its last instant"
        assert parts <= sum(each) / most * 1.5

    def test_what_is_at_one_instant_cannot_be_cut(self) -> None:
        assert find_cut(lambda at: 100 if at >= 7 else 0, 0, 7, 10) is None
        assert find_cut(lambda at: 100 if at >= 7 else 0, 0, 9, 10) == 7

    def test_little_is_done_at_once(self) -> None:
        assert find_cut(lambda at: at, 0, 14, 10) is None
        assert find_cut(lambda at: at, 0, 16, 10) == 8
        assert find_cut(lambda at: at + 1000, 0, 16, 10) is None, "what is read again each time is more than that"
