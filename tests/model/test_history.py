"""The oracle: details that the examples leave out, and properties that must hold for any batches."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.errors import Refused
from errata.model.columns import Column, ColumnType
from errata.model.history import History, Record
from errata.model.interval import Interval
from errata.model.revision import Op, Revision, Row, corrected, in_stream_order, key_of
from errata.model.stream import ARRIVAL, OnDuplicate, Stream

QUOTES = Stream(
    name="quotes",
    columns=(
        Column("time", ColumnType.parse("bigint")),
        Column("symbol", ColumnType.parse("string")),
        Column("price", ColumnType.parse("int")),
    ),
    key=("time", "symbol"),
    order="time",
    group=("symbol",),
    slack=5,
    max_ahead=None,
)
LENIENT = replace(QUOTES, on_duplicate=OnDuplicate.REPLACE)


def quote(time: int | None, symbol: str | None = "A", price: int | None = 1, **rest: object) -> Record:
    return Record({"time": time, "symbol": symbol, "price": price, **rest})


class TestAppend:
    def test_an_absent_column_of_an_insert_is_null(self) -> None:
        history = History(QUOTES)
        history.append([Record({"time": 1, "symbol": "A"})], now=0)
        assert history.scan() == [{"time": 1, "symbol": "A", "price": None}]

    def test_null_in_order_and_in_a_replacements_new_key(self, orders: Stream) -> None:
        history = History(orders)
        batch = [
            Record({"id": "a", "day": None}),
            Record({"id": None}, Op.REPLACE, old={"id": "a"}),
            Record({"id": "a", "day": None}, Op.REPLACE),
            Record({"id": "a", "day": None}, Op.DELETE),
        ]
        taken = history.append(batch, now=0)
        assert [reason for _, reason in taken.quarantined] == [
            "NULL in order column day",
            "NULL in key column id",
            "NULL in order column day",
        ]
        assert [revision.op for revision in history.pending()] == [Op.DELETE]

    def test_a_broken_row_holds_no_key_and_moves_no_stable_point(self) -> None:
        timed = replace(
            QUOTES, columns=(Column("time", ColumnType.parse("timestamp")), *QUOTES.columns[1:]), max_ahead=10
        )
        history = History(timed)
        taken = history.append([quote(500, price=1), quote(3, price=2)], now=100)
        assert (taken.counts.appended, taken.counts.quarantined, history.stable()) == (1, 1, -2)

    def test_the_first_of_three_stands_and_an_identical_one_is_dropped(self) -> None:
        taken = (history := History(QUOTES)).append([quote(1, price=1), quote(1, price=2), quote(1, price=1)], now=0)
        assert (taken.counts.appended, taken.counts.dropped, taken.counts.quarantined) == (1, 1, 1)
        assert [row["price"] for row in history.scan()] == [1]

    def test_the_last_of_three_wins_where_duplicates_replace(self) -> None:
        taken = (history := History(LENIENT)).append([quote(1, price=1), quote(1, price=2), quote(1, price=3)], now=0)
        assert (taken.counts.appended, taken.counts.replaced) == (1, 2)
        assert [row["price"] for row in history.scan()] == [3]

    def test_late_insertions_are_numbered_before_replacements_by_duplicates(self) -> None:
        history = History(LENIENT)
        history.append([quote(100)], now=0)
        history.append([quote(100, price=7), quote(1), quote(2)], now=0)
        assert [(each.number, each.op, each.key[0]) for each in history.pending()] == [
            (1, Op.INSERT, 1),
            (2, Op.INSERT, 2),
            (3, Op.REPLACE, 100),
        ]

    def test_a_winner_that_says_what_is_archived_is_dropped(self) -> None:
        history = History(LENIENT)
        history.append([quote(1, price=1)], now=0)
        taken = history.append([quote(1, price=2), quote(1, price=1)], now=0)
        assert (taken.counts.replaced, taken.counts.dropped, taken.counts.pending) == (1, 1, 0)

    def test_late_rows_are_judged_when_they_are_applied(self) -> None:
        history = History(QUOTES)
        history.append([quote(1), quote(100)], now=0)
        taken = history.append([quote(1), quote(1, price=7), quote(2), quote(2)], now=0)
        assert (taken.counts.pending, taken.counts.dropped, taken.counts.quarantined) == (4, 0, 0)

    def test_a_replacement_by_a_duplicate_moves_no_stable_point(self, orders: Stream) -> None:
        history = History(replace(orders, on_duplicate=OnDuplicate.REPLACE))
        history.append([Record({"id": "a", "day": 3})], now=0)
        history.append([Record({"id": "a", "day": 90})], now=0)
        assert (history.stable(), len(history.pending())) == (3, 1)

    def test_revisions_without_a_seq_come_after_those_with_one_as_they_stand(self) -> None:
        history = History(QUOTES)
        key = {"time": 1, "symbol": "A"}
        batch = [Record({**key, "price": n}, Op.REPLACE, seq) for n, seq in ((1, None), (2, 9), (3, None), (4, 0))]
        history.append(batch, now=0)
        assert [revision.values["price"] for revision in history.pending()] == [4, 2, 1, 3]

    def test_numbers_go_on_over_batches(self) -> None:
        history = History(QUOTES)
        history.append([quote(100)], now=0)
        history.append([quote(1), quote(2)], now=0)
        history.append([quote(3)], now=0)
        assert [revision.number for revision in history.pending()] == [1, 2, 3]
        assert [revision.number for revision in history.pending(commit=2)] == [1, 2]

    def test_a_stream_ordered_on_arrival_is_never_late_and_arrival_is_not_said(self) -> None:
        arrival = Column(ARRIVAL, ColumnType.parse("timestamp"))
        history = History(Stream("s", (Column("id", ColumnType.parse("int")), arrival), ("id",), ARRIVAL))
        history.append([Record({"id": 1})], now=100)
        taken = history.append([Record({"id": 1}), Record({"id": 2})], now=60)
        assert (taken.counts.dropped, taken.counts.appended, taken.counts.pending) == (1, 1, 0)
        assert [row[ARRIVAL] for row in history.scan()] == [100, 100]

    def test_a_batch_without_an_id_is_known_by_its_content(self) -> None:
        history = History(QUOTES)
        batch = [quote(1), quote(2)]
        assert history.append(batch, now=0) == history.append(list(batch), now=5)
        assert history.append([quote(2), quote(1)], now=0).commit == 2


class TestScanAndAgeing:
    def test_a_commit_that_is_not_there(self) -> None:
        with pytest.raises(Refused, match="there is no commit 1"):
            History(QUOTES).scan(commit=1)

    def test_rows_to_age_out_must_be_there(self) -> None:
        with pytest.raises(Refused, match="no rows of these keys"):
            History(QUOTES).age_out([[(1, "A")]])

    def test_an_aged_key_is_free_and_its_row_is_late(self) -> None:
        history = History(QUOTES)
        history.append([quote(1), quote(100)], now=0)
        history.age_out([[(1, "A")]])
        assert history.append([quote(1, price=5)], now=0).counts.pending == 1

    def test_rows_are_given_out_as_copies(self) -> None:
        history = History(QUOTES)
        history.append([quote(1)], now=0)
        history.scan()[0]["price"] = 99
        assert history.scan()[0]["price"] == 1


class TestCorrected:
    ROW: ClassVar[Row] = {"time": 1, "symbol": "A", "price": 1}

    def result(self, *revisions: Revision, stream: Stream = QUOTES) -> tuple[list[object], list[int]]:
        done = corrected(stream, [self.ROW], revisions)
        return [(row["symbol"], row["price"]) for row in done.rows], [revision.number for revision in done.refused]

    def test_a_replacement_keeps_what_it_does_not_say_and_takes_a_null(self) -> None:
        assert self.result(Revision(1, Op.REPLACE, (1, "A"), {})) == ([("A", 1)], [])
        assert self.result(Revision(1, Op.REPLACE, (1, "A"), {"price": None})) == ([("A", None)], [])

    def test_a_deleted_row_can_be_inserted_again_and_no_longer_replaced(self) -> None:
        gone = Revision(1, Op.DELETE, (1, "A"), {})
        assert self.result(gone, Revision(2, Op.REPLACE, (1, "A"), {"price": 2})) == ([], [2])
        again = Revision(2, Op.INSERT, (1, "A"), {**self.ROW, "price": 2})
        assert self.result(gone, again) == ([("A", 2)], [])
        assert self.result(Revision(1, Op.DELETE, (1, "B"), {})) == ([("A", 1)], [1])

    def test_an_insertion_of_a_live_key_follows_on_duplicate(self) -> None:
        other = Revision(1, Op.INSERT, (1, "A"), {**self.ROW, "price": 2})
        assert self.result(other) == ([("A", 1)], [1])
        assert self.result(other, stream=LENIENT) == ([("A", 2)], [])
        assert self.result(Revision(1, Op.INSERT, (1, "A"), self.ROW)) == ([("A", 1)], [])

    def test_a_change_of_key_frees_the_old_one_for_the_next(self) -> None:
        away = Revision(1, Op.REPLACE, (1, "A"), {"symbol": "B"})
        back = Revision(2, Op.INSERT, (1, "A"), {**self.ROW, "price": 9})
        assert self.result(away, back) == ([("A", 9), ("B", 1)], [])
        assert self.result(away, Revision(2, Op.REPLACE, (1, "A"), {"price": 9})) == ([("B", 1)], [2])
        assert self.result(away, Revision(2, Op.REPLACE, (1, "B"), {"price": 9})) == ([("B", 9)], [])


moments = st.integers(0, 30)
symbols = st.sampled_from(["A", "B", None])
records = st.builds(
    lambda op, time, symbol, price, seq: Record(
        {"time": time, "symbol": symbol, "price": price}, op, None if op is Op.INSERT else seq
    ),
    st.sampled_from([Op.INSERT, Op.INSERT, Op.INSERT, Op.REPLACE, Op.DELETE]),
    moments,
    symbols,
    st.integers(0, 2),
    st.none() | st.integers(0, 3),
)
batches = st.lists(st.lists(records, max_size=8), max_size=5)
streams = st.sampled_from([QUOTES, LENIENT])


@settings(max_examples=60, deadline=None)
@given(streams, batches)
def test_what_holds_of_any_batches(stream: Stream, many: list[list[Record]]) -> None:
    history = History(stream)
    answers: list[list[Row]] = [history.scan()]
    for number, batch in enumerate(many):
        before = history.stable()
        counts = (taken := history.append(batch, now=0, batch_id=f"batch {number}")).counts
        after = history.stable()
        answers.append(history.scan())
        assert taken.commit == history.commit == number + 1
        assert counts.read == len(batch)
        assert counts.read == (counts.appended + counts.pending + counts.dropped + counts.replaced + counts.quarantined)
        assert len(taken.quarantined) == counts.quarantined
        assert before is None or (after is not None and after >= before)
        new = [row for row in answers[-1] if row not in answers[-2]]
        assert len(new) == counts.appended
        assert before is None or all(int(str(row["time"])) >= before for row in new)
        assert history.append(batch, now=1, batch_id=f"batch {number}") == taken
    keys = [key_of(stream, row) for row in history.scan()]
    assert len(set(keys)) == len(keys)
    assert [revision.number for revision in history.pending()] == list(range(1, len(history.pending()) + 1))
    assert [history.scan(commit=commit) for commit in range(history.commit + 1)] == answers


@settings(max_examples=60, deadline=None)
@given(streams, batches, moments, moments)
def test_scans_and_ageing_of_any_batches(stream: Stream, many: list[list[Record]], start: int, end: int) -> None:
    history = History(stream)
    for batch in many:
        history.append(batch, now=0)
    everything = history.scan()
    piece = [row for row in everything if start <= int(str(row["time"])) < end]
    assert history.scan(Interval(start, end)) == piece
    assert history.scan(Interval(start, end), groups=[("A",)]) == [row for row in piece if row["symbol"] == "A"]
    before = history.commit
    history.age_out([[key_of(stream, row)] for row in piece])
    assert history.scan() == [row for row in everything if row not in piece]
    assert history.scan(commit=before) == everything


@settings(max_examples=60, deadline=None)
@given(st.lists(records, max_size=12))
def test_corrections_agree_with_masks_and_overlays(batch: list[Record]) -> None:
    """The other way to say it: per key the highest number that took effect masks the row and has the last word."""
    history = History(LENIENT)
    history.append([quote(time, symbol, 9) for time in range(0, 31, 2) for symbol in "AB"], now=0)
    history.append(batch, now=0)
    revisions = history.pending()
    expected = {key_of(LENIENT, row): row for row in history.scan()}
    done = corrected(LENIENT, history.scan(), revisions)
    last = {revision.key: revision for revision in revisions if revision not in done.refused}
    for key, revision in last.items():
        expected.pop(key, None)
        if revision.op is not Op.DELETE:
            expected[key] = dict(revision.values)
    assert done.rows == in_stream_order(LENIENT, expected.values())
    assert corrected(LENIENT, history.scan(), reversed(revisions)) == done
