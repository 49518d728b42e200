"""Undoing batches, and the history of single rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from errata.errors import RefusedError, UsageError
from errata.model.batch import Op
from errata.model.stream import RevisionPolicy
from fixtures.histories import ORDERS, QUOTES, change, order, quote
from fixtures.oracle.history import History, Record
from fixtures.oracle.revision import Outcome


def amounts(history: History) -> dict[object, object]:
    return {row["id"]: row["amount"] for row in history.scan()}


def amount(order_id: str, amount: int) -> Record:
    return change(Op.REPLACE, {"id": order_id, "amount": amount})


def rename(old: str, new: str) -> Record:
    return change(Op.REPLACE, {"id": new}, id=old)


def delete(order_id: str) -> Record:
    return change(Op.DELETE, {"id": order_id})


@pytest.fixture
def history() -> History:
    """Orders a, b and c."""
    history = History(ORDERS)
    history.append([order("a", 1), order("b", 2), order("c", 3)], now=0, batch_id="seed")
    return history


def taken(history: History, batch_id: str, *records: Record) -> None:
    history.append(records, now=0, batch_id=batch_id)
    history.revise()


class TestWhatIsTakenBack:
    def test_everything_that_a_batch_did(self, history: History) -> None:
        before = history.scan()
        taken(history, "x", order("d", 4), order("e", 2), amount("a", 5), amount("a", 6), rename("b", "f"), delete("c"))
        assert amounts(history) == {"a": 6, "d": 1, "e": 1, "f": 1}
        undone = history.undo("x")
        assert history.scan() == before
        assert (undone.batch_id, undone.commit, undone.later, undone.aged) == ("undo-x", history.commit, (), ())
        assert all(each.revision.batch_id == "undo-x" for each in undone.outcomes)

    def test_it_is_numbered_and_one_commit_and_old_commits_are_as_they_were(self, history: History) -> None:
        taken(history, "x", amount("a", 5))
        undone = history.undo("x")
        assert [(each.revision.number, each.outcome) for each in undone.outcomes] == [(2, Outcome.REPLACED)]
        assert (history.commit, history.states[-1].applied) == (4, 2)
        assert [history.scan(commit=commit)[0]["amount"] for commit in (2, 3, 4)] == [1, 5, 1]
        assert [history.scan(revisions_up_to=number)[0]["amount"] for number in (0, 1, 2)] == [1, 5, 1]

    def test_what_was_pending_is_applied_first(self, history: History) -> None:
        history.append([amount("a", 5)], now=0, batch_id="x")
        history.append([amount("b", 7)], now=0, batch_id="y")
        history.undo("x")
        assert (amounts(history), history.commit) == ({"a": 1, "b": 7, "c": 1}, 5)

    def test_the_same_again_changes_nothing(self, history: History) -> None:
        taken(history, "x", amount("a", 5))
        undone = history.undo("x")
        taken(history, "y", amount("a", 8))
        assert history.undo("x") == undone
        assert amounts(history)["a"] == 8

    def test_of_several_versions_the_one_before_the_first_in_a_row(self, history: History) -> None:
        taken(history, "y", amount("a", 2))
        history.append([amount("a", 3)], now=0, batch_id="x")
        history.append([amount("b", 3)], now=0, batch_id="z")
        history.revise()
        history.undo("x")
        assert amounts(history) == {"a": 2, "b": 3, "c": 1}

    def test_keys_that_went_round_in_a_circle(self, history: History) -> None:
        before = history.scan()
        taken(history, "x", rename("a", "t"), rename("b", "a"), rename("t", "b"))
        assert [row["id"] for row in history.scan()] == ["b", "a", "c"]
        history.undo("x")
        assert history.scan() == before

    def test_a_batch_that_did_nothing_that_lasts(self, history: History) -> None:
        before = history.scan()
        taken(history, "x", order("a", 1), order("d", 2), delete("d"), amount("b", 4), amount("b", 1))
        assert history.undo("x").outcomes == ()
        assert history.scan() == before

    def test_a_batch_without_rows(self, history: History) -> None:
        taken(history, "x")
        assert history.undo("x").commit == history.commit == 3

    def test_an_order_that_was_moved_goes_back(self, history: History) -> None:
        taken(history, "x", change(Op.REPLACE, {"id": "a", "day": 90}))
        history.undo("x")
        assert [row["day"] for row in history.scan()] == [1, 2, 3]


class TestWhatCameLater:
    def test_rows_that_another_batch_has_changed_are_named(self, history: History) -> None:
        taken(history, "x", order("d", 4), amount("a", 5), amount("b", 5), rename("c", "e"))
        taken(history, "y", amount("d", 9), delete("a"), rename("e", "f"))
        before = history.scan()
        with pytest.raises(RefusedError) as refused:
            history.undo("x")
        assert refused.value.where == "('a',), ('f',), ('d',)"
        assert history.scan() == before
        undone = history.undo("x", keep_later=True)
        assert undone.later == (("a",), ("f",), ("d",))
        assert amounts(history) == {"b": 1, "d": 9, "f": 1}

    @pytest.mark.parametrize("done", [delete("a"), rename("a", "g")])
    def test_a_key_that_another_batch_has_given_away(self, history: History, done: Record) -> None:
        taken(history, "x", done, amount("b", 5))
        taken(history, "y", order("a", 9, 7))
        before = amounts(history)
        with pytest.raises(RefusedError, match="changed since"):
            history.undo("x")
        history.undo("x", keep_later=True)
        assert amounts(history) == {**before, "b": 1}

    def test_a_row_that_stays_may_keep_others_from_going_back(self, history: History) -> None:
        taken(history, "x", rename("a", "t"), rename("b", "a"), rename("c", "b"))
        taken(history, "y", amount("a", 9))
        undone = history.undo("x", keep_later=True)
        assert set(undone.later) == {("a",), ("t",)}
        assert amounts(history) == {"t": 1, "a": 9, "c": 1}

    def test_batches_are_undone_one_after_the_other(self, history: History) -> None:
        seen = [history.scan()]
        for batch_id, records in {
            "x": [order("d", 4), amount("a", 5), delete("b")],
            "y": [delete("d"), rename("a", "e"), order("b", 7)],
            "z": [order("d", 9), amount("e", 6), delete("b")],
        }.items():
            taken(history, batch_id, *records)
            seen.append(history.scan())
        for batch_id in "zyx":
            assert history.scan() == seen.pop()
            history.undo(batch_id)
        assert [history.scan()] == seen

    def test_what_came_to_nothing_does_not_stand_in_the_way(self, history: History) -> None:
        taken(history, "x", amount("a", 5))
        taken(history, "y", amount("a", 7), amount("a", 5))
        assert history.undo("y").outcomes == ()
        history.undo("x")
        assert amounts(history)["a"] == 1

    def test_an_undo_can_be_undone(self, history: History) -> None:
        taken(history, "x", order("d", 4), amount("a", 5), delete("b"), rename("c", "e"))
        done = history.scan()
        history.undo("x")
        history.undo("undo-x")
        assert history.scan() == done
        with pytest.raises(RefusedError, match="changed since"):
            history.undo("seed")

    def test_what_was_undone_no_longer_stands_in_the_way(self, history: History) -> None:
        taken(history, "x", amount("a", 5))
        history.undo("x")
        assert history.undo("seed").later == ()
        assert history.scan() == []


class TestWhatIsLeftOut:
    def test_rows_that_have_been_aged_out(self, history: History) -> None:
        taken(history, "x", amount("a", 5), order("e", 1), order("f", 3), delete("b"), order("z", 80))
        history.age_out(3)
        undone = history.undo("x")
        assert set(undone.aged) == {("a",), ("e",), ("b",)}
        assert amounts(history) == {"c": 1}

    def test_a_row_that_would_go_back_to_where_rows_have_been_aged_out(self, history: History) -> None:
        taken(history, "x", change(Op.REPLACE, {"id": "a", "day": 90}))
        history.age_out(2)
        assert history.undo("x").aged == (("a",),)
        assert [row["day"] for row in history.scan()] == [2, 3, 90]

    def test_what_still_waits_of_the_batch_is_withdrawn_and_what_others_wait_for_goes_on(self) -> None:
        history = History(QUOTES)
        history.append([quote(1)], now=0, batch_id="seed")
        to_come = change(Op.REPLACE, {"time": 50, "symbol": "A", "price": 7})
        also = change(Op.REPLACE, {"time": 50, "symbol": "B", "price": 8})
        now = change(Op.REPLACE, {"time": 1, "symbol": "A", "price": 9})
        history.append([to_come, now], now=0, batch_id="x")
        history.append([also], now=0, batch_id="y")
        undone = history.undo("x")
        assert [revision.key for revision in undone.withdrawn] == [(50, "A")]
        [waiting] = history.pending()
        assert (waiting.key, waiting.batch_id, waiting.number) == ((50, "B"), "y", history.states[-1].revisions)
        assert waiting.number == history.states[-1].applied + 1
        history.append([quote(50, "A"), quote(50, "B")], now=0)
        history.revise()
        assert [row["price"] for row in history.scan()] == [1, 1, 8]


class TestWhatCannotBeUndone:
    def test_an_unknown_batch(self, history: History) -> None:
        taken(history, "monday", amount("a", 2))
        with pytest.raises(UsageError, match="unknown batch 'mondy'") as error:
            history.undo("mondy")
        assert "did you mean monday?" in str(error.value)

    def test_a_stream_that_ignores_revisions(self) -> None:
        history = History(replace(ORDERS, on_revision=RevisionPolicy.IGNORE))
        history.append([order("a", 1)], now=0, batch_id="x")
        with pytest.raises(RefusedError, match="ignores revisions"):
            history.undo("x")

    def test_the_id_of_an_undo_is_its_own(self, history: History) -> None:
        taken(history, "undo-seed", order("d", 4))
        with pytest.raises(RefusedError, match="the same id"):
            history.undo("seed")
        taken(history, "x", order("e", 4))
        history.undo("x")
        with pytest.raises(RefusedError, match="is an undo"):
            history.append([order("f", 5)], now=0, batch_id="undo-x")


class TestVersions:
    def told(self, history: History, key: str, commit: int | None = None) -> list[object]:
        return [
            (each.commit, each.revision, each.op.value, each.batch_id, each.values and each.values["amount"])
            for each in history.versions((key,), commit)
        ]

    def test_every_version_of_a_row_and_when_it_was_known(self, history: History) -> None:
        history.append([amount("a", 5), amount("b", 5), delete("a")], now=0, batch_id="x")
        history.revise(now=77)
        assert self.told(history, "a") == [
            (1, None, "insert", "seed", 1),
            (3, 1, "replace", "x", 5),
            (3, 3, "delete", "x", None),
        ]
        assert [each.known for each in history.versions(("a",))] == [0, 77, 77]
        assert self.told(history, "a", commit=2) == self.told(history, "a")[:1]
        assert self.told(history, "nobody") == []

    def test_changes_of_key_are_followed_backwards_and_forwards(self, history: History) -> None:
        taken(history, "x", rename("a", "e"), amount("e", 5))
        taken(history, "y", rename("e", "f"))
        found = [self.told(history, key) for key in "aef"]
        assert found[0] == found[1] == found[2]
        assert [each.key for each in history.versions(("a",))] == [("a",), ("e",), ("e",), ("f",)]

    def test_other_rows_that_bore_the_key(self, history: History) -> None:
        taken(history, "x", rename("a", "e"))
        taken(history, "y", order("a", 9, 3))
        assert [each[3] for each in self.told(history, "a")] == ["seed", "x", "y"]
        assert [each[3] for each in self.told(history, "e")] == ["seed", "x"]

    def test_a_row_that_an_undo_brings_back_is_the_same_row(self, history: History) -> None:
        taken(history, "x", rename("a", "e"))
        history.undo("x")
        assert [(each.op.value, each.batch_id, each.key) for each in history.versions(("e",))] == [
            ("insert", "seed", ("a",)),
            ("replace", "x", ("e",)),
            ("delete", "undo-x", ("e",)),
            ("insert", "undo-x", ("a",)),
        ]

    def test_an_insertion_that_replaces_is_told_as_what_it_did(self) -> None:
        lenient = History(replace(QUOTES, on_duplicate=type(QUOTES.on_duplicate).REPLACE))
        lenient.append([quote(1), quote(100)], now=0)
        lenient.append([quote(1, price=4)], now=0)
        lenient.revise()
        assert [each.op for each in lenient.versions((1, "A"))] == [Op.INSERT, Op.REPLACE]
