"""Merges by R4 in cases that have names: rows that repeat, and their occurrences."""

from __future__ import annotations

from typing import Any

import pytest

from errata.merge.elements import ElementKind
from errata.merge.general import merge_general
from errata.merge.state import empty_state, state_from_table, state_to_table
from errata.merge.step import OP, REASON, MergeState, MergeStep
from errata.model.feed import EmitPolicy, MergeAlgorithm, MergePolicy
from errata.model.stream import Stream
from errata.model.time import LOWEST
from fixtures.merges import COPIES, POINTS, element_table, merged_stream, merging_at, statement, stream_of
from fixtures.oracle.merging import Said

ADJUST, WITHDRAW = ElementKind.ADJUST, ElementKind.WITHDRAW
PRICED = stream_of(("symbol", "at", "n"), symbol="string", at="bigint", n="bigint", price="double", until="bigint")
"""The key without occurrence does not say which row is meant."""


def row(until: int | None, at: int = 5, **more: Any) -> dict[str, Any]:
    return {"symbol": "A", "at": at, "until": until, **more}


class Multisets:
    """A stream of rows that repeat, merged batch after batch."""

    def __init__(self, stream: Stream = COPIES, feeds: int = 2, policy: MergePolicy | None = None) -> None:
        self.stream = merged_stream(stream, feeds, policy)
        self.state: MergeState = empty_state(self.stream)
        self.stable = LOWEST

    def take(self, *said: Said, stable: int | None = None, **progress: Any) -> MergeStep:
        after = self.stable if stable is None else stable
        told = merging_at(self.stream, before=self.stable, stable=after, **progress)
        step = merge_general(self.stream, self.state, element_table(self.stream, said), told)
        self.state = state_from_table(state_to_table(step.state, self.stream), self.stream, 1)
        self.stable = after
        assert step.algorithm is MergeAlgorithm.R4
        return step


def inserted(step: MergeStep) -> list[tuple[int, int | None]]:
    return [(each["n"], each["until"]) for each in step.inserts.to_pylist()]


def corrected(step: MergeStep) -> list[tuple[str, int, int | None]]:
    return sorted((each[OP], each["n"], each["until"]) for each in step.corrections.to_pylist())


def test_equal_rows_of_one_feed_are_numbered_by_their_ends() -> None:
    step = Multisets().take(statement(0, row(9)), statement(0, row(7)), statement(0, row(None)), statement(0, row(7)))
    assert inserted(step) == [(0, 7), (1, 7), (2, 9), (3, None)]
    assert step.counts.repeats == {}


def test_rows_are_as_many_as_the_feed_with_the_most_of_them_has() -> None:
    merging = Multisets()
    step = merging.take(statement(0, row(9)), statement(1, row(9)), statement(1, row(9)))
    assert (inserted(step), step.counts.repeats) == ([(0, 9), (1, 9)], {1: 1})
    step = merging.take(statement(0, row(9)), statement(0, row(9)))
    assert (inserted(step), corrected(step), step.counts.repeats) == ([(2, 9)], [], {0: 1})


def test_points_may_repeat() -> None:
    points = stream_of(("symbol", "at", "n"), symbol="string", at="bigint", n="bigint")
    merging = Multisets(points)
    said = [statement(feed, {"symbol": "A", "at": 5}) for feed in (0, 0, 1)]
    assert merging.take(*said).inserts["n"].to_pylist() == [0, 1]
    assert merging.take(stable=6).corrections.num_rows == 0
    assert merging.state.rows.num_rows == 0


def test_behind_the_stable_point_one_feed_has_the_say_of_how_many() -> None:
    merging = Multisets()
    merging.take(statement(0, row(10)), statement(1, row(6)), statement(1, row(10)))
    assert sorted(merging.state.published.tolist()) == [10, 10]
    step = merging.take(stable=12)
    assert corrected(step) == [("delete", 1, 10)]
    follows = Multisets()
    follows.take(statement(0, row(10)), statement(1, row(6)), statement(1, row(10)))
    assert corrected(follows.take(stable=12, ranked=(1, 0))) == [("replace", 0, 6)]


def test_a_leader_that_lacks_the_row_is_filled_unless_it_is_complete() -> None:
    for complete, expected in ((False, []), (True, [("delete", 0, 30), ("delete", 1, 40)])):
        merging = Multisets()
        merging.take(statement(1, row(30)), statement(1, row(40)))
        step = merging.take(stable=7, complete=complete, lagging=[1])
        assert corrected(step) == expected
        assert step.counts.filled == ({} if complete else {0: 2})


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(statement(0, row(20), ADJUST, old_end=7), [9, 20], id="the end that it claims"),
        pytest.param(statement(0, row(20), ADJUST), [7, 20], id="no claim: the greatest end"),
        pytest.param(statement(0, row(7), ADJUST, old_end=3), [7, 9], id="a claim of an end that is gone: a repeat"),
        pytest.param(statement(0, row(20), ADJUST, old_end=3), [7, 20], id="a claim of nothing: the greatest end"),
        pytest.param(statement(0, row(5), ADJUST, old_end=7), [5, 9], id="an empty lifetime"),
        pytest.param(statement(0, row(None), WITHDRAW, old_end=9), [7], id="a withdrawal of an end"),
        pytest.param(statement(0, row(7), WITHDRAW), [9], id="a withdrawal of its own end"),
        pytest.param(statement(0, row(None), WITHDRAW), [7], id="a withdrawal of any"),
        pytest.param(statement(1, row(20), ADJUST), [7, 9], id="an adjustment of nothing inserts"),
        pytest.param(statement(1, row(7), WITHDRAW), [7, 9], id="a withdrawal of nothing"),
    ],
)
def test_adjustments_and_withdrawals_are_of_one_row(said: Said, expected: list[int]) -> None:
    for together in (True, False):
        merging = Multisets(policy=MergePolicy(emit=EmitPolicy.EVERY))
        first = (statement(0, row(7)), statement(0, row(9)))
        if together:
            merging.take(*first, said)
        else:
            merging.take(*first)
            merging.take(said)
        own = merging.state.ends[:, 0]
        assert sorted(own[own != LOWEST].tolist()) == expected


def test_a_chain_of_adjustments_is_followed_end_by_end() -> None:
    merging = Multisets()
    step = merging.take(
        statement(0, row(7)),
        statement(0, row(7)),
        statement(0, row(9), ADJUST, old_end=7),
        statement(0, row(8), ADJUST, old_end=7),
        statement(0, row(30), ADJUST, old_end=9),
        statement(0, row(8), WITHDRAW),
    )
    assert inserted(step) == [(0, 30)]


def test_an_adjustment_without_the_payload_is_of_the_row_that_its_feed_said_last() -> None:
    merging = Multisets(PRICED)
    step = merging.take(
        statement(0, row(7, price=1.0)),
        statement(0, row(9, price=1.0)),
        statement(0, row(None, price=1.0), WITHDRAW, old_end=9),
        statement(0, row(20), ADJUST, pos=4),
        statement(1, row(20), ADJUST, pos=5),
    )
    assert [(each["price"], each["until"]) for each in step.inserts.to_pylist()] == [(1.0, 20)]
    assert step.refused["_pos"].to_pylist() == [5]
    step = merging.take(statement(0, row(30), ADJUST), stable=25)
    assert corrected(step) == [("replace", 0, 30)]


def test_a_feed_changes_nothing_behind_its_own_stable_point() -> None:
    merging = Multisets()
    merging.take(statement(0, row(7)), statement(1, row(9, at=100)))
    step = merging.take(
        statement(0, row(7), own_stable=6, pos=1),
        statement(0, row(8), own_stable=6, pos=2),
        statement(0, row(20), ADJUST, old_end=7, own_stable=7, pos=3),
        statement(0, row(6), ADJUST, old_end=20, own_stable=7, pos=4),
        statement(0, row(None), WITHDRAW, own_stable=7, pos=5),
        statement(0, row(None, at=6), WITHDRAW, own_stable=7, pos=6),
    )
    assert step.refused["_pos"].to_pylist() == [2, 4, 5]
    assert [
        next(word for word in ("inserts", "changes", "withdraws") if word in reason)
        for reason in step.refused[REASON].to_pylist()
    ] == ["inserts", "changes", "withdraws"]
    assert step.counts.repeats == {0: 2}


def test_payloads_of_one_key_share_its_numbers() -> None:
    merging = Multisets(PRICED)
    said = [statement(0, row(9, price=price)) for price in (1.0, 2.0, 1.0)]
    step = merging.take(*said, statement(1, row(9, price=2.0)))
    numbers = {(each["price"], each["n"]) for each in step.inserts.to_pylist()}
    assert {number for _, number in numbers} == {0, 1, 2}
    assert step.disagreements.num_rows == 0
    step = merging.take(statement(1, row(9, price=3.0)), statement(1, row(9, price=1.0)))
    assert [(each["price"], each["n"]) for each in step.inserts.to_pylist()] == [(3.0, 3)]


def test_rows_of_one_key_are_forgotten_together_so_that_no_number_comes_twice() -> None:
    merging = Multisets(PRICED)
    merging.take(statement(0, row(7, price=1.0)), statement(0, row(30, price=2.0)), stable=10)
    assert merging.state.rows["n"].to_pylist() == [0, 1]
    step = merging.take(statement(1, row(30, price=3.0)))
    assert (step.behind.num_rows, step.inserts["n"].to_pylist()) == (0, [2])
    merging.take(stable=31)
    assert merging.state.rows.num_rows == 0


def test_what_is_behind_has_no_occurrence() -> None:
    merging = Multisets()
    merging.take(stable=12)
    step = merging.take(statement(1, row(7)), statement(1, row(9), ADJUST, old_end=7))
    assert [(each["n"], each["until"], each["_old_end"]) for each in step.behind.to_pylist()] == [
        (None, 7, None),
        (None, 9, 7),
    ]
    step = merging.take(statement(1, row(7)), complete=True, lagging=[1])
    assert (step.behind.num_rows, step.counts.repeats) == (0, {1: 1})


def test_a_stream_without_occurrence_is_merged_by_r3() -> None:
    stream = merged_stream(POINTS, 2)
    step = merge_general(stream, empty_state(stream), element_table(stream, []), merging_at(stream))
    assert step.algorithm is MergeAlgorithm.R3
