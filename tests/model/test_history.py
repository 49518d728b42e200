"""The oracle: details that the examples leave out, and properties that must hold for any batches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.errors import RefusedError
from errata.model.batch import Op
from errata.model.columns import Column, ColumnType
from errata.model.stream import ARRIVAL_COLUMN, DuplicatePolicy, Stream
from errata.model.time import Interval
from fixtures.histories import LENIENT, QUOTES, change, quote
from fixtures.oracle.history import History, Record
from fixtures.oracle.revision import Row, key_of


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
        history = History(replace(orders, on_duplicate=DuplicatePolicy.REPLACE))
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
        arrival = Column(ARRIVAL_COLUMN, ColumnType.parse("timestamp"))
        history = History(Stream("s", (Column("id", ColumnType.parse("int")), arrival), ("id",), ARRIVAL_COLUMN))
        history.append([Record({"id": 1})], now=100)
        taken = history.append([Record({"id": 1}), Record({"id": 2})], now=60)
        assert (taken.counts.dropped, taken.counts.appended, taken.counts.pending) == (1, 1, 0)
        assert [row[ARRIVAL_COLUMN] for row in history.scan()] == [100, 100]

    def test_a_batch_without_an_id_is_known_by_its_content(self) -> None:
        history = History(QUOTES)
        batch = [quote(1), quote(2)]
        assert history.append(batch, now=0) == history.append(list(batch), now=5)
        assert history.append([quote(2), quote(1)], now=0).commit == 2

    def test_each_key_column_is_named_as_it_is_or_as_it_was(self, orders: Stream) -> None:
        history = History(orders)
        batch = [
            change(Op.REPLACE, {"amount": 2}, id="a"),
            change(Op.DELETE, {}, id="b"),
            change(Op.REPLACE, {"id": "c", "amount": 2}, id=None),
            change(Op.DELETE, {"id": None}, id="d"),
            change(Op.DELETE, {}, id=None),
            change(Op.REPLACE, {"amount": 2}),
        ]
        taken = history.append(batch, now=0)
        assert [revision.key for revision in history.pending()] == [("a",), ("b",), ("c",), ("d",)]
        assert [reason for _, reason in taken.quarantined] == ["NULL in key column id"] * 2

    def test_a_revision_knows_its_batch_and_what_it_claims(self) -> None:
        history = History(QUOTES)
        history.append([change(Op.DELETE, {"time": 1, "symbol": "A"}, price=4)], now=0, batch_id="monday")
        [revision] = history.pending()
        assert (revision.batch_id, revision.old) == ("monday", {"price": 4})

    def test_a_batch_is_compared_with_rows_as_they_are_corrected(self) -> None:
        history = History(QUOTES)
        history.append([quote(1), quote(2), quote(3)], now=0)
        history.append(
            [
                change(Op.REPLACE, {"time": 1, "symbol": "A", "price": 7}),
                change(Op.DELETE, {"time": 2, "symbol": "A"}),
                change(Op.REPLACE, {"time": 3, "symbol": "B"}, symbol="A"),
            ],
            now=0,
        )
        before = history.append([quote(1), quote(1, price=7), quote(2), quote(3), quote(3, "B")], now=0).counts
        assert (before.appended, before.dropped, before.quarantined) == (1, 3, 1)

        history = History(QUOTES)
        history.append([quote(1), quote(2), quote(3)], now=0)
        history.append(
            [
                change(Op.REPLACE, {"time": 1, "symbol": "A", "price": 7}),
                change(Op.DELETE, {"time": 2, "symbol": "A"}),
                change(Op.REPLACE, {"time": 3, "symbol": "B"}, symbol="A"),
            ],
            now=0,
        )
        history.revise()
        after = history.append([quote(1), quote(1, price=7), quote(2), quote(3), quote(3, "B")], now=0).counts
        assert (after.appended, after.dropped, after.quarantined) == (2, 2, 1)


class TestScanAndAgeing:
    def test_a_commit_that_is_not_there(self) -> None:
        with pytest.raises(RefusedError, match="there is no commit 1"):
            History(QUOTES).scan(commit=1)

    def test_what_is_not_stable_does_not_age(self) -> None:
        history = History(QUOTES)
        with pytest.raises(RefusedError, match="the stable point is None"):
            history.age_out(-9)
        history.append([quote(1), quote(100)], now=0)
        with pytest.raises(RefusedError, match="the stable point is 95"):
            history.age_out(96)
        assert history.commit == 1
        history.age_out(95)
        assert [row["time"] for row in history.scan()] == [100]

    def test_an_aged_key_is_free_and_its_row_is_late(self) -> None:
        history = History(QUOTES)
        history.append([quote(1), quote(100)], now=0)
        history.age_out(2)
        assert history.append([quote(1, price=5)], now=0).counts.pending == 1

    def test_rows_age_by_the_place_where_they_are_now(self) -> None:
        history = History(QUOTES)
        history.append([quote(1), quote(2), quote(3), quote(100)], now=0)
        history.append(
            [
                quote(4),
                quote(60),
                change(Op.REPLACE, {"time": 1, "symbol": "A", "price": 7}),
                change(Op.REPLACE, {"time": 70, "symbol": "A"}, time=2),
            ],
            now=0,
        )
        history.revise()
        assert history.age_out(60) == 4
        assert [row["time"] for row in history.scan()] == [60, 70, 100]
        assert [row["time"] for row in history.scan(commit=3)] == [1, 3, 4, 60, 70, 100]
        assert [row["time"] for row in history.scan(revisions_up_to=0)] == [100]

    def test_a_point_that_was_reached_before_takes_nothing_more(self) -> None:
        history = History(QUOTES)
        history.append([quote(1), quote(50), quote(100)], now=0)
        history.age_out(50)
        assert history.age_out(20) == 3
        assert [row["time"] for row in history.scan()] == [50, 100]
        assert history.states[-1].aged_to == 50

    def test_rows_are_given_out_as_copies(self) -> None:
        history = History(QUOTES)
        history.append([quote(1)], now=0)
        history.scan()[0]["price"] = 99
        assert history.scan()[0]["price"] == 1


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
    stable = history.stable()
    if stable is None or start > stable:
        return
    history.age_out(start)
    assert history.scan() == [row for row in everything if int(str(row["time"])) >= start]
    assert history.scan(commit=before) == everything
