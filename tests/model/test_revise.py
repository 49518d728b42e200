"""Applying what is pending, and reading at commits and revisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from errata.errors import RefusedError
from errata.model.batch import Op
from errata.model.stream import RevisionPolicy
from fixtures.histories import ORDERS, QUOTES, change, order, quote
from fixtures.oracle.history import History, Record
from fixtures.oracle.revision import Outcome

KEY = {"time": 1, "symbol": "A"}


def priced(price: int, before: int | None = None) -> Record:
    return change(Op.REPLACE, {**KEY, "price": price}, **({} if before is None else {"price": before}))


def prices(history: History, **where: int) -> list[object]:
    return [row["price"] for row in history.scan(**where)]


@pytest.fixture
def history() -> History:
    """One row, and two replacements of it that are pending."""
    history = History(QUOTES)
    history.append([quote(1)], now=0, batch_id="first")
    history.append([priced(2), priced(3)], now=0, batch_id="second")
    return history


class TestRevise:
    def test_everything_pending_is_one_commit(self, history: History) -> None:
        assert prices(history) == [1]
        revised = history.revise(now=9)
        assert (revised.commit, history.commit, history.pending()) == (3, 3, [])
        assert [each.outcome for each in revised.outcomes] == [Outcome.REPLACED, Outcome.REPLACED]
        assert (history.states[-1].applied, history.states[-1].revisions) == (2, 2)
        assert prices(history) == [3]
        assert prices(history, commit=2) == [1]

    def test_with_nothing_pending_nothing_is_done(self, history: History) -> None:
        history.revise()
        assert history.revise().commit is None
        assert history.commit == 3

    def test_a_refused_revision_is_settled(self, history: History) -> None:
        history.append([priced(4, before=99)], now=0)
        [*_, last] = history.revise().outcomes
        assert (last.outcome, last.reason) == (
            Outcome.REFUSED,
            "old value does not match: price is said to have been 99, and it is 3",
        )
        assert (prices(history), history.pending(), history.states[-1].applied) == ([3], [], 3)

    def test_what_was_ignored_is_settled(self) -> None:
        history = History(replace(QUOTES, on_revision=RevisionPolicy.IGNORE))
        history.append([quote(1), quote(100)], now=0)
        history.append([priced(2), quote(3)], now=0)
        assert [each.outcome for each in history.revise().outcomes] == [Outcome.IGNORED] * 2
        assert (prices(history), history.pending(), history.states[-1].applied) == ([1, 1], [], 2)
        assert (history.revise().commit, history.commit) == (None, 3)

    def test_numbers_go_on_after_what_was_applied(self, history: History) -> None:
        history.revise()
        history.append([priced(4)], now=0)
        assert [each.number for each in history.pending()] == [3]
        assert history.pending(commit=2) != history.pending(commit=3) == []


class TestWaiting:
    EARLY = change(Op.REPLACE, {"time": 50, "symbol": "A", "price": 7})

    def test_where_all_has_to_wait_nothing_is_done(self, history: History) -> None:
        history.revise()
        history.append([self.EARLY], now=0)
        revised = history.revise()
        assert [each.outcome for each in revised.outcomes] == [Outcome.WAITING]
        assert (revised.commit, history.commit) == (None, 4)
        assert [each.number for each in history.pending()] == [3]

    def test_what_waits_is_numbered_behind_all_others(self, history: History) -> None:
        history.append([self.EARLY, priced(4)], now=0, batch_id="third")
        assert [each.number for each in history.pending()] == [1, 2, 3, 4]
        revised = history.revise()
        assert [(each.revision.number, each.outcome.value) for each in revised.outcomes] == [
            (1, "replaced"),
            (2, "replaced"),
            (3, "waiting"),
            (4, "replaced"),
        ]
        [waiting] = history.pending()
        assert (waiting.number, waiting.batch_id, waiting.key) == (5, "third", (50, "A"))
        assert (history.states[-1].applied, history.states[-1].revisions) == (4, 5)

    def test_it_is_applied_when_its_row_has_come(self, history: History) -> None:
        history.append([self.EARLY], now=0)
        history.revise()
        history.append([quote(50)], now=0)
        assert prices(history) == [3, 1]
        assert [each.outcome for each in history.revise().outcomes] == [Outcome.REPLACED]
        assert prices(history) == [3, 7]

    def test_it_is_refused_when_stable_has_passed_its_place(self, history: History) -> None:
        history.append([self.EARLY], now=0)
        history.revise()
        history.append([quote(55, "B")], now=0)
        assert history.revise().commit is None
        history.append([quote(56, "B")], now=0)
        [refused] = history.revise().outcomes
        assert (refused.outcome, refused.reason) == (
            Outcome.REFUSED,
            "no such row: no row of this key is there to correct",
        )
        assert history.pending() == []

    def test_a_row_that_a_later_revision_brings_is_met_next_time(self, history: History) -> None:
        to_come = change(Op.REPLACE, {"time": 50, "symbol": "A", "price": 7})
        moved = change(Op.REPLACE, {**KEY, "time": 50}, time=1)
        history.append([to_come, moved], now=0)
        history.revise()
        assert [(row["time"], row["price"]) for row in history.scan()] == [(50, 3)]
        history.revise()
        assert prices(history) == [7]


class TestPositions:
    def test_a_scan_with_the_revisions_up_to_a_number(self, history: History) -> None:
        history.revise()
        assert [prices(history, revisions_up_to=number) for number in (0, 1, 2)] == [[1], [2], [3]]

    def test_only_what_is_settled_can_be_read(self, history: History) -> None:
        for number in (1, -1):
            with pytest.raises(RefusedError, match=f"revisions up to {number}"):
                history.scan(revisions_up_to=number)
        history.revise()
        with pytest.raises(RefusedError, match="revisions up to 1"):
            history.scan(commit=2, revisions_up_to=1)
        with pytest.raises(RefusedError, match="revisions up to 3"):
            history.scan(revisions_up_to=3)

    def test_a_row_brought_again_is_left_out_where_it_was_not_deleted(self) -> None:
        history = History(ORDERS)
        history.append([order("a", 10)], now=0)
        history.append([change(Op.DELETE, {"id": "a"})], now=0)
        history.revise()
        history.append([order("a", 20)], now=0)
        assert [row["day"] for row in history.scan()] == [20]
        assert [row["day"] for row in history.scan(revisions_up_to=0)] == [10]

    def test_a_row_brought_where_a_later_revision_had_been_is_there_without_it(self) -> None:
        history = History(QUOTES)
        history.append([quote(20, "B")], now=0)
        history.append([change(Op.REPLACE, {"time": 20, "symbol": "A"}, symbol="B")], now=0)
        history.append([change(Op.DELETE, {"time": 20, "symbol": "A"})], now=0)
        history.revise()
        history.append([quote(20, "A", 5)], now=0)
        found = [[(row["symbol"], row["price"]) for row in history.scan(revisions_up_to=number)] for number in range(3)]
        assert found == [[("A", 5), ("B", 1)], [("A", 1)], [("A", 5)]]
