"""Merges by R3 in cases that have names: what comes out, what is remembered, what is refused and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from errata.merge.elements import FEED, GIVEN, POS
from errata.merge.general import merge_general
from errata.merge.outcome import (
    agreed_schema,
    behind_schema,
    correction_schema,
    disagreement_schema,
    insert_schema,
    refused_schema,
)
from errata.merge.state import empty_state, state_from_rows
from errata.merge.step import BATCH, CHOSEN, OP, REASON
from errata.model.feed import EmitPolicy, MergePolicy
from fixtures.merge_cases import ADJUST, KEY, NAN, POINT, ROW, WITHDRAW, Merging, ends, short
from fixtures.merges import POINTS, SPANS, element_table, merged_stream, merging_at, statement
from fixtures.oracle.merging import Said


def test_a_batch_without_elements_has_no_outcome() -> None:
    step = Merging(SPANS).take()
    stream = merged_stream(SPANS, 2)
    for table, schema in (
        (step.inserts, insert_schema(stream)),
        (step.corrections, correction_schema(stream)),
        (step.behind, behind_schema(stream)),
        (step.refused, refused_schema()),
        (step.disagreements, disagreement_schema(stream)),
        (step.agreed, agreed_schema(stream)),
    ):
        assert (table.num_rows, table.schema) == (0, schema)
    assert step.state.rows.num_rows == 0


def test_all_tables_have_their_columns_when_they_have_rows() -> None:
    merging = Merging(SPANS)
    first = merging.take(statement(0, ROW), statement(1, {**ROW, "price": 2.0}), statement(0, {**ROW, "at": 1}))
    step = merging.take(
        statement(0, {"until": 12, **KEY, "at": 2}, ADJUST),
        statement(0, {**ROW, "until": 20}),
        statement(1, {**ROW, "at": 0}),
        stable=6,
        before=1,
    )
    assert first.disagreements.schema == disagreement_schema(merging.stream)
    assert first.inserts.schema == insert_schema(merging.stream)
    assert (step.behind.schema, step.behind.num_rows) == (behind_schema(merging.stream), 1)
    assert (step.refused.schema, step.refused.num_rows) == (refused_schema(), 1)
    last = merging.take(statement(1, ROW, WITHDRAW), stable=10)
    assert (last.corrections.schema, last.corrections.num_rows) == (correction_schema(merging.stream), 1)
    assert (last.agreed.schema, last.agreed.to_pylist()) == (agreed_schema(merging.stream), [KEY])


def test_values_that_are_the_same_are_no_disagreement() -> None:
    step = Merging(POINTS).take(
        statement(0, {**POINT, "price": -0.0, "version": None}),
        statement(1, {**POINT, "price": 0.0, "version": None}),
        statement(0, {**POINT, "symbol": "B", "price": NAN}),
        statement(1, {**POINT, "symbol": "B", "price": -NAN}),
        statement(0, {**POINT, "symbol": "C", "price": None}),
        statement(1, {**POINT, "symbol": "C", "price": None}),
    )
    assert step.inserts["symbol"].to_pylist() == ["A", "B", "C"]
    assert step.disagreements.num_rows == 0
    assert step.counts.repeats == {1: 3}


@pytest.mark.parametrize("other", [None, NAN, 1.5000000000000002, -1.5])
def test_values_that_differ_in_the_least_are_a_disagreement(other: float | None) -> None:
    step = Merging(POINTS).take(statement(0, POINT), statement(1, {**POINT, "price": other}))
    assert short(step.disagreements, FEED, CHOSEN, POS) == [(0, True, 0), (1, False, 1)]
    assert step.inserts["price"].to_pylist() == [1.5]


def test_a_chain_of_adjustments_in_one_batch_comes_to_its_last_values() -> None:
    step = Merging(SPANS).take(
        statement(0, ROW),
        statement(0, {**KEY, "until": 20}, ADJUST),
        statement(0, {**KEY, "price": 3.0}, ADJUST),
        statement(0, {**KEY, "until": None, "version": 4}, ADJUST),
    )
    assert step.inserts.drop_columns([BATCH, POS]).to_pylist() == [{**KEY, "price": 3.0, "version": 4, "until": None}]
    assert step.corrections.num_rows == 0


def test_an_adjustment_is_filled_from_what_its_own_feed_had_said() -> None:
    merging = Merging(SPANS)
    merging.take(statement(0, ROW), statement(1, {**ROW, "price": 7.0}))
    step = merging.take(statement(1, {**KEY, "version": 2}, ADJUST))
    assert short(step.disagreements, FEED, "price", "version", "until") == [(0, 1.5, 1, 9), (1, 7.0, 2, 9)]


def test_an_adjustment_after_a_withdrawal_is_refused() -> None:
    step = Merging(SPANS).take(
        statement(0, ROW), statement(0, KEY, WITHDRAW), statement(0, {**KEY, "until": 20}, ADJUST)
    )
    assert short(step.refused, FEED, POS) == [(0, 2)]
    assert "has not inserted" in step.refused[REASON][0].as_py()
    assert step.inserts.num_rows == 0


def test_an_adjustment_that_empties_a_lifetime_withdraws_the_row() -> None:
    merging = Merging(SPANS)
    merging.take(statement(0, ROW))
    step = merging.take(statement(0, {**KEY, "until": 5}, ADJUST), statement(0, {**KEY, "price": 2.0}, ADJUST))
    assert short(step.corrections, OP, "price", "until") == [("delete", 1.5, 9)]
    assert short(step.refused, FEED, POS) == [(0, 1)]


def test_an_adjustment_of_a_whole_row_inserts_it() -> None:
    step = Merging(SPANS).take(statement(0, ROW, ADJUST))
    assert ends(step) == ([("A", 9)], [])


def test_a_row_may_come_again_after_it_was_withdrawn() -> None:
    merging = Merging(SPANS)
    step = merging.take(statement(0, ROW), statement(0, KEY, WITHDRAW), statement(0, {**ROW, "until": 30}))
    assert ends(step) == ([("A", 30)], [])
    assert ends(merging.take(statement(0, KEY, WITHDRAW))) == ([], [("delete", "A", 30)])
    assert merging.state.rows.num_rows == 0
    assert ends(merging.take(statement(0, ROW))) == ([("A", 9)], [])


def test_a_row_stays_while_one_feed_still_has_it() -> None:
    merging = Merging(SPANS)
    merging.take(statement(0, ROW), statement(1, ROW))
    assert ends(merging.take(statement(0, KEY, WITHDRAW))) == ([], [])
    step = merging.take(statement(1, KEY, WITHDRAW), statement(1, KEY, WITHDRAW))
    assert ends(step) == ([], [("delete", "A", 9)])
    assert step.counts.repeats == {1: 1}


def test_an_adjustment_waits_until_the_stable_point_reaches_it() -> None:
    merging = Merging(SPANS)
    merging.take(statement(0, ROW), statement(1, ROW))
    assert ends(merging.take(statement(0, {**KEY, "until": 20}, ADJUST))) == ([], [])
    assert ends(merging.take(stable=7)) == ([], [])
    step = merging.take(stable=10)
    assert ends(step) == ([], [("replace", "A", 20)])
    assert short(step.corrections, BATCH, POS) == [(1, 0)]
    assert merging.state.rows.num_rows == 1
    merging.take(statement(1, {**KEY, "until": 20}, ADJUST))
    merging.take(stable=21)
    assert merging.state.rows.num_rows == 0


def test_a_row_has_the_place_of_the_first_statement_that_says_it() -> None:
    merging = Merging(SPANS)
    step = merging.take(
        statement(0, ROW, WITHDRAW),
        statement(0, {**ROW, "symbol": "B"}, own_stable=6),
        statement(0, ROW),
        statement(1, {**ROW, "symbol": "B", "until": 12}),
        statement(1, ROW),
    )
    assert sorted(short(step.inserts, "symbol", BATCH, POS)) == [("A", None, 2), ("B", None, 3)]


def test_a_correction_has_the_place_of_the_statement_that_made_it() -> None:
    merging = Merging(SPANS, policy=MergePolicy(emit=EmitPolicy.EVERY))
    merging.take(statement(0, ROW))
    step = merging.take(statement(1, {**ROW, "symbol": "B"}), statement(0, {**KEY, "until": 20}, ADJUST))
    assert short(step.corrections, OP, "until", BATCH, POS) == [("replace", 20, None, 1)]
    assert short(step.inserts, "symbol", BATCH, POS) == [("B", None, 0)]


def test_a_feed_that_lags_repeats_what_is_known_and_opens_nothing_that_is_frozen() -> None:
    merging = Merging(SPANS)
    merging.take(statement(0, ROW), statement(0, {**ROW, "at": 6, "until": 30}), stable=12)
    step = merging.take(statement(1, ROW), statement(1, {**ROW, "at": 6, "until": 30}))
    assert short(step.behind, FEED, "at", "until") == [(1, 5, 9)]
    assert step.counts.repeats == {1: 1}
    assert ends(step) == ([], [])


def test_what_can_only_repeat_is_dropped_when_nobody_who_leads_has_gaps() -> None:
    merging = Merging(SPANS)
    merging.take(statement(0, ROW), stable=12)
    said = (statement(0, ROW), statement(1, ROW), statement(1, KEY, WITHDRAW))
    step = merging.take(*said, complete=True, lagging=[1])
    assert short(step.behind, FEED, POS) == [(0, 0), (1, 2)]  # feed 0 has been there: its row is late
    assert step.counts.repeats == {1: 1}


def test_a_partial_adjustment_behind_goes_to_the_archive_as_it_came() -> None:
    merging = Merging(SPANS)
    merging.take(stable=12)
    step = merging.take(statement(1, {**KEY, "price": 4.0}, ADJUST))
    assert short(step.behind, GIVEN, "price", "version") == [("at,price,symbol", 4.0, None)]


def test_gaps_of_the_leader_are_filled_once_and_complete_leaders_have_none() -> None:
    filling, lacking = Merging(SPANS), Merging(SPANS)
    for each in (filling, lacking):
        each.take(statement(1, {**ROW, "until": 30}))
    step = filling.take(stable=7)
    assert (step.counts.filled, ends(step)) == ({0: 1}, ([], []))
    assert filling.take(stable=8).counts.filled == {}
    step = lacking.take(stable=7, complete=True, lagging=[1])
    assert (step.counts.filled, ends(step)) == ({}, ([], [("delete", "A", 30)]))
    assert ends(lacking.take(stable=7, complete=True, ranked=(1, 0))) == ([("A", 30)], [])


def test_what_a_complete_leader_lacks_is_there_once_another_feed_has_it_for_certain() -> None:
    merging = Merging(SPANS)
    step = merging.take(statement(1, {**ROW, "until": 30}), stable=7, complete=True, lagging=[1])
    assert (ends(step), list(step.broken)) == (([], []), [])
    assert merging.take(stable=40, complete=True, lagging=[1]).state.rows.num_rows == 1, "feed 1 may be right"
    step = merging.take(stable=40, complete=True)
    assert ends(step) == ([("A", 30)], [])
    assert merging.take(stable=41, complete=True).state.rows.num_rows == 0


def test_a_gap_of_a_complete_leader_is_a_broken_guarantee() -> None:
    step = Merging(SPANS).take(statement(1, {**ROW, "until": 30}), stable=7, complete=True)
    [broken] = step.broken
    assert (broken.feed, broken.guarantee, broken.left.complete) == (0, "complete: yes", False)
    assert (ends(step), step.counts.filled) == (([("A", 30)], []), {0: 1})


# What contradicts the feed itself.


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        pytest.param([], statement(0, ROW, own_stable=6), "inserts", id="an insert"),
        pytest.param([], statement(0, ROW, own_stable=5), None, id="an insert at the stable point"),
        pytest.param([ROW], statement(0, ROW, own_stable=6), None, id="a repeat"),
        pytest.param([ROW], statement(0, {**ROW, "until": 8}, own_stable=6), None, id="an end before it"),
        pytest.param([ROW], statement(0, {**ROW, "until": 8}, own_stable=9), "changes", id="the new end behind"),
        pytest.param([ROW], statement(0, {**ROW, "until": 30}, own_stable=10), "changes", id="the old end behind"),
        pytest.param([ROW], statement(0, {**ROW, "price": 2.0}, own_stable=6), "changes", id="another payload"),
        pytest.param([ROW], statement(0, KEY, WITHDRAW, own_stable=6), "withdraws", id="a withdrawal"),
        pytest.param([], statement(0, KEY, WITHDRAW, own_stable=6), None, id="a withdrawal of nothing"),
        pytest.param([ROW], statement(0, {**KEY, "price": 1.5}, ADJUST, own_stable=20), None, id="a partial repeat"),
        pytest.param(
            [ROW], statement(0, {**KEY, "price": 9.0}, ADJUST, own_stable=6), "changes", id="a partial change"
        ),
    ],
)
def test_a_feed_changes_nothing_behind_its_own_stable_point(
    before: Sequence[dict[str, Any]], after: Said, refused: str | None
) -> None:
    for together in (True, False):
        merging = Merging(SPANS)
        merging.take(statement(1, {**ROW, "at": 100}), *([] if together else [statement(0, each) for each in before]))
        step = merging.take(*([statement(0, each) for each in before] if together else []), after)
        reasons = step.refused[REASON].to_pylist()
        assert [refused in reason for reason in reasons] == [True] if refused else reasons == []


def test_what_is_refused_changes_nothing_and_fills_nothing() -> None:
    merging = Merging(SPANS)
    step = merging.take(
        statement(0, ROW),
        statement(0, {**ROW, "price": 8.0, "until": 30}, own_stable=6),
        statement(0, {**KEY, "until": 20}, ADJUST, own_stable=6),
        statement(0, {**KEY, "until": 7}, ADJUST, own_stable=8),
        statement(0, {**KEY, "until": 15}, ADJUST, own_stable=12),
    )
    assert short(step.refused, POS) == [(1,), (3,)]
    assert short(step.inserts, "price", "until", POS) == [(1.5, 15, 0)]


# Rows that no feed is known to have said.


def rebuilt(*rows: dict[str, Any]) -> Merging:
    merging = Merging(SPANS)
    table = pa.Table.from_pylist(
        [{**row, BATCH: 1, POS: at} for at, row in enumerate(rows)], schema=insert_schema(merging.stream)
    )
    merging.state = state_from_rows(merging.stream, table)
    return merging


def test_archived_rows_stay_until_a_feed_says_something_else() -> None:
    merging = rebuilt(ROW, {**ROW, "symbol": "B"})
    assert ends(merging.take(stable=6, complete=True)) == ([], [])
    step = merging.take(statement(0, {**KEY, "until": 30}, ADJUST), stable=10)
    assert ends(step) == ([], [("replace", "A", 30)])
    assert merging.state.rows["symbol"].to_pylist() == ["A"]


def test_a_feed_may_repeat_and_withdraw_archived_rows() -> None:
    merging = rebuilt(ROW)
    step = merging.take(statement(0, ROW, own_stable=100))
    assert (ends(step), step.refused.num_rows, step.counts.repeats) == (([], []), 0, {0: 1})
    step = rebuilt(ROW).take(statement(0, KEY, WITHDRAW))
    assert (ends(step), step.counts.repeats) == (([], [("delete", "A", 9)]), {})


def test_elements_are_taken_by_their_sequence_whatever_their_place() -> None:
    stream = merged_stream(SPANS, 2)
    said = [statement(0, ROW), statement(0, {**ROW, "until": 20}), statement(1, {**ROW, "until": 30})]
    elements = element_table(stream, said)
    turned = elements.take([2, 1, 0])
    steps = [merge_general(stream, empty_state(stream), each, merging_at(stream)) for each in (elements, turned)]
    assert steps[0].inserts == steps[1].inserts
    assert steps[0].inserts["until"].to_pylist() == [20]
