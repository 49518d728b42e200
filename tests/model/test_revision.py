"""What becomes of each revision, rule by rule."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from errata.model.batch import (
    Op,
    aged_out_reason,
    duplicate_key_reason,
    key_taken_reason,
    no_such_row_reason,
    old_value_reason,
)
from errata.model.stream import ARRIVAL_COLUMN, RevisionPolicy, Stream
from fixtures.histories import LENIENT, ORDERS, QUOTES
from fixtures.oracle.revision import Outcome, Revision, Row, corrected, decide, key_of, not_yet_there

NAN = float("nan")


def insert(time: int = 1, symbol: str = "A", price: object = 2) -> Revision:
    values = {"time": time, "symbol": symbol, "price": price}
    return Revision(1, Op.INSERT, (time, symbol), values)


def revise(key: tuple[object, ...] = (1, "A"), old: Row | None = None, **values: object) -> Revision:
    return Revision(1, Op.REPLACE, key, values, old or {})


def delete(key: tuple[object, ...] = (1, "A"), **old: object) -> Revision:
    return Revision(1, Op.DELETE, key, {}, old)


class TestOneRevision:
    ROW: ClassVar[Row] = {"time": 1, "symbol": "A", "price": 1}

    def outcome(
        self,
        revision: Revision,
        *rows: Row,
        stream: Stream = QUOTES,
        stable: int | None = 50,
        aged_to: int | None = None,
    ) -> tuple[Outcome, str | None]:
        live = {key_of(stream, row): row for row in rows or (self.ROW,)}
        decision = decide(stream, live, revision, stable, aged_to)
        assert decision.changes == (decision.outcome in {Outcome.INSERTED, Outcome.REPLACED, Outcome.DELETED})
        return decision.outcome, decision.reason

    def test_an_insertion_of_a_free_key(self) -> None:
        assert self.outcome(insert(2)) == (Outcome.INSERTED, None)
        assert self.outcome(insert(2), aged_to=2) == (Outcome.INSERTED, None)
        assert self.outcome(insert(2), aged_to=3) == (Outcome.REFUSED, aged_out_reason())

    def test_an_insertion_of_a_live_key(self) -> None:
        assert self.outcome(insert(price=1)) == (Outcome.DROPPED, None)
        assert self.outcome(insert(price=2)) == (Outcome.REFUSED, duplicate_key_reason())
        assert self.outcome(insert(price=2), stream=LENIENT) == (Outcome.REPLACED, None)
        assert self.outcome(insert(price=1), stream=LENIENT) == (Outcome.DROPPED, None)

    def test_an_insertion_cannot_move_a_live_row_to_where_rows_have_aged_out(self) -> None:
        row: Row = {"id": "a", "day": 60, "amount": 1}
        back = Revision(1, Op.INSERT, ("a",), {"id": "a", "day": 10, "amount": 1})
        lenient = replace(ORDERS, on_duplicate=LENIENT.on_duplicate)
        assert self.outcome(back, row, stream=lenient, aged_to=11) == (Outcome.REFUSED, aged_out_reason())
        assert self.outcome(back, row, stream=lenient, aged_to=10) == (Outcome.REPLACED, None)

    def test_old_values_of_an_insertion_say_nothing(self) -> None:
        claiming = replace(insert(2), old={"price": 7, "time": 9})
        assert self.outcome(claiming) == (Outcome.INSERTED, None)
        assert self.outcome(replace(insert(price=5), old={"price": 7}), stream=LENIENT) == (Outcome.REPLACED, None)

    @pytest.mark.parametrize("revision", [revise((9, "A"), price=2), delete((9, "A"))])
    def test_no_row_of_the_key(self, revision: Revision) -> None:
        assert self.outcome(revision, stable=10) == (Outcome.REFUSED, no_such_row_reason())
        assert self.outcome(revision, stable=9) == (Outcome.WAITING, not_yet_there())
        assert self.outcome(revision, stable=None) == (Outcome.WAITING, not_yet_there())
        assert self.outcome(revision, stable=10, aged_to=10) == (Outcome.REFUSED, aged_out_reason())
        assert self.outcome(revision, stable=10, aged_to=9) == (Outcome.REFUSED, no_such_row_reason())

    def test_what_may_still_come_waits_though_its_place_has_aged_out(self) -> None:
        assert self.outcome(revise((9, "A"), price=2), stable=9, aged_to=20) == (Outcome.WAITING, not_yet_there())

    def test_the_place_of_a_row_whose_key_does_not_tell(self) -> None:
        row: Row = {"id": "a", "day": 1, "amount": 1}

        def outcome(revision: Revision) -> tuple[Outcome, str | None]:
            return self.outcome(revision, row, stream=ORDERS, aged_to=10)

        assert outcome(delete(("b",))) == (Outcome.REFUSED, no_such_row_reason())
        assert outcome(delete(("b",), day=None)) == (Outcome.REFUSED, no_such_row_reason())
        assert outcome(delete(("b",), day=50)) == (Outcome.WAITING, not_yet_there())
        assert outcome(delete(("b",), day=9)) == (Outcome.REFUSED, aged_out_reason())
        assert outcome(revise(("b",), amount=1)) == (Outcome.REFUSED, no_such_row_reason())
        assert outcome(revise(("b",), day=50)) == (Outcome.WAITING, not_yet_there())
        assert outcome(revise(("b",), {"day": 20}, day=50)) == (Outcome.REFUSED, no_such_row_reason())
        assert outcome(revise(("b",), {"day": None}, day=9)) == (Outcome.REFUSED, aged_out_reason())
        assert outcome(Revision(1, Op.DELETE, ("b",), {"day": 50})) == (Outcome.REFUSED, no_such_row_reason())

    def test_a_deletion_of_a_live_row(self) -> None:
        assert self.outcome(delete()) == (Outcome.DELETED, None)
        assert self.outcome(delete(), aged_to=5) == (Outcome.DELETED, None)
        assert self.outcome(delete(price=1, time=1)) == (Outcome.DELETED, None)
        assert self.outcome(delete(price=7)) == (Outcome.REFUSED, old_value_reason("price", "7", "1"))

    def test_a_replacement_says_what_changes(self) -> None:
        assert self.outcome(revise(price=2)) == (Outcome.REPLACED, None)
        assert self.outcome(revise(price=None)) == (Outcome.REPLACED, None)
        assert self.outcome(revise(price=1, symbol="A")) == (Outcome.DROPPED, None)
        assert self.outcome(revise()) == (Outcome.DROPPED, None)

    def test_every_old_value_claimed_must_be_found(self) -> None:
        assert self.outcome(revise(old={"price": 1}, price=2)) == (Outcome.REPLACED, None)
        assert self.outcome(revise(old={"price": None}, price=2)) == (
            Outcome.REFUSED,
            old_value_reason("price", "NULL", "1"),
        )
        assert self.outcome(revise(old={"time": None, "symbol": None}, price=2)) == (Outcome.REPLACED, None)
        null: Row = {**self.ROW, "price": None}
        assert self.outcome(revise(old={"price": None}, price=2), null) == (Outcome.REPLACED, None)
        assert self.outcome(revise(old={"price": 1}, price=2), null) == (
            Outcome.REFUSED,
            old_value_reason("price", "1", "NULL"),
        )
        # It would change nothing, and is wrong all the same.
        assert self.outcome(revise(old={"price": 7}))[0] is Outcome.REFUSED

    @pytest.mark.parametrize(("claimed", "found"), [(NAN, float("nan")), (-0.0, 0.0), (0.0, -0.0)])
    def test_old_and_new_values_are_compared_as_keys_are(self, claimed: float, found: float) -> None:
        row: Row = {**self.ROW, "price": found}
        assert self.outcome(revise(old={"price": claimed}, price=3.0), row) == (Outcome.REPLACED, None)
        assert self.outcome(revise(price=claimed), row) == (Outcome.DROPPED, None)

    def test_the_first_wrong_old_value_in_the_streams_order_is_named(self) -> None:
        row: Row = {"id": "a", "day": 3, "amount": 1}
        wrong = revise(("a",), {"amount": 8, "day": 4}, amount=2)
        assert self.outcome(wrong, row, stream=ORDERS)[1] == old_value_reason("day", "4", "3")

    def test_a_key_that_another_row_has(self) -> None:
        other: Row = {"time": 1, "symbol": "B", "price": 1}
        assert self.outcome(revise(symbol="B"), self.ROW, other) == (Outcome.REFUSED, key_taken_reason())
        assert self.outcome(revise(symbol="C"), self.ROW, other) == (Outcome.REPLACED, None)
        assert self.outcome(revise(symbol="B"), self.ROW, other, aged_to=2) == (Outcome.REFUSED, key_taken_reason())

    def test_a_row_cannot_be_moved_to_or_changed_where_rows_have_aged_out(self) -> None:
        late: Row = {"time": 9, "symbol": "A", "price": 1}
        assert self.outcome(revise((9, "A"), time=4), late, aged_to=5) == (Outcome.REFUSED, aged_out_reason())
        assert self.outcome(revise((9, "A"), time=5), late, aged_to=5) == (Outcome.REPLACED, None)
        assert self.outcome(revise((9, "A"), price=2), late, aged_to=10) == (Outcome.REFUSED, aged_out_reason())

    @pytest.mark.parametrize("revision", [insert(2), insert(), revise(price=2), delete(), delete((70, "A"))])
    def test_a_stream_that_ignores_revisions(self, revision: Revision) -> None:
        deaf = replace(QUOTES, on_revision=RevisionPolicy.IGNORE)
        assert self.outcome(revision, stream=deaf) == (Outcome.IGNORED, None)

    def test_arrival_is_not_said_by_an_insertion(self) -> None:
        arrival = replace(QUOTES.column("time"), name=ARRIVAL_COLUMN)
        stream = Stream("s", (QUOTES.column("symbol"), arrival), ("symbol",), ARRIVAL_COLUMN)
        again = Revision(1, Op.INSERT, ("A",), {"symbol": "A", ARRIVAL_COLUMN: 9})
        assert self.outcome(again, {"symbol": "A", ARRIVAL_COLUMN: 3}, stream=stream) == (Outcome.DROPPED, None)


def test_every_reason_is_told_apart() -> None:
    said = [
        no_such_row_reason(),
        aged_out_reason(),
        not_yet_there(),
        old_value_reason("a", "1", "2"),
        key_taken_reason(),
        duplicate_key_reason(),
    ]
    assert len({text.split(":")[0] for text in said}) == len(said)
    assert old_value_reason("price", "7", "1") == "old value does not match: price is said to have been 7, and it is 1"


class TestOneAfterTheOther:
    ROW: ClassVar[Row] = {"time": 1, "symbol": "A", "price": 1}

    def result(self, *revisions: Revision) -> tuple[list[object], list[str]]:
        done = corrected(QUOTES, [self.ROW], revisions, stable=50)
        assert [each.revision.number for each in done.outcomes] == list(range(1, len(revisions) + 1))
        return [(row["symbol"], row["price"]) for row in done.rows], [each.outcome.value for each in done.outcomes]

    def test_numbers_decide_and_not_the_order_in_which_they_are_given(self) -> None:
        first, second = revise(price=2), replace(revise(price=3), number=2)
        assert self.result(second, first) == self.result(first, second) == ([("A", 3)], ["replaced", "replaced"])

    def test_a_deleted_row_can_be_inserted_again_and_no_longer_replaced(self) -> None:
        gone = delete()
        assert self.result(gone, replace(revise(price=2), number=2)) == ([], ["deleted", "refused"])
        assert self.result(gone, replace(insert(price=2), number=2)) == ([("A", 2)], ["deleted", "inserted"])

    def test_a_change_of_key_frees_the_old_one_for_the_next(self) -> None:
        away = revise(symbol="B")
        assert self.result(away, replace(insert(price=9), number=2)) == ([("A", 9), ("B", 1)], ["replaced", "inserted"])
        assert self.result(away, replace(revise(price=9), number=2)) == ([("B", 1)], ["replaced", "refused"])
        onward = replace(revise((1, "B"), price=9), number=2)
        assert self.result(away, onward) == ([("B", 9)], ["replaced", "replaced"])

    def test_an_old_value_is_compared_with_what_earlier_revisions_left(self) -> None:
        second = replace(revise(old={"price": 2}, price=3), number=2)
        assert self.result(revise(price=2), second) == ([("A", 3)], ["replaced", "replaced"])
        assert self.result(revise(price=5), second) == ([("A", 5)], ["replaced", "refused"])

    def test_the_refused_ones(self) -> None:
        wrong = delete((2, "A"))
        assert corrected(QUOTES, [self.ROW], [wrong], stable=50).refused == (wrong,)
        assert corrected(QUOTES, [self.ROW], [wrong]).refused == ()
