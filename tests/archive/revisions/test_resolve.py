from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errata.archive.revisions import resolve as module
from errata.archive.revisions.resolve import RevisionOutcome, decision_rounds, resolve_revisions
from errata.archive.schemas import overlay_schema
from errata.model.batch import Op
from errata.model.stream import DuplicatePolicy, Stream
from fixtures.claims import (
    ORDERS,
    QUOTES,
    VISITS,
    Case,
    Row,
    by_hand,
    cases,
    claim,
    identity,
    live_table,
    micros,
    moment,
    revision,
)
from fixtures.oracle.revision import Outcome, Revision, corrected

AMPLE = settings(max_examples=max(200, settings().max_examples))
"""Cases are small and many things must meet in one to matter."""


def resolved(
    stream: Stream,
    revisions: Sequence[Row],
    live: Sequence[Row] = (),
    stable: int | None = 100,
    aged_to: int | None = None,
) -> RevisionOutcome:
    return resolve_revisions(stream, claim(stream, revisions), live_table(stream, live), stable, aged_to)


def order(name: str, day: int, amount: float | None = 1.0, note: str | None = None, **origin: Any) -> Row:
    row = {"id": name, "day": day, "amount": amount, "note": note}
    return row | {"_batch": 7, "_pos": 70 + day, "_revision": None, "_bucket": 1} | origin


def reasons(result: RevisionOutcome) -> dict[int, str]:
    return dict(zip(result.refused.tolist(), result.reasons.to_pylist(), strict=True))


def short(result: RevisionOutcome) -> dict[int, str]:
    return {index: reason.partition(":")[0] for index, reason in reasons(result).items()}


def images(result: RevisionOutcome, stream: Stream = ORDERS) -> list[tuple[Any, ...]]:
    """Number, operation, old row and new row of each overlay row."""
    return [
        (
            row["_revision"],
            row["_op"],
            tuple(row[f"_old_{name}"] for name in stream.names) if row["_masks"] else None,
            tuple(row[name] for name in stream.names) if row["_live"] else None,
        )
        for row in result.overlay.to_pylist()
    ]


def check(case: Case) -> None:
    result = resolved(case.stream, case.revisions, case.live, case.stable, case.aged_to)
    expected = by_hand(case.stream, case.revisions, case.live, case.stable, case.aged_to)
    # As text, NaN is NaN, and -0.0 is not 0.0: what is written is what was given, to the sign.
    assert repr(result.overlay.to_pylist()) == repr(expected.overlay)
    assert result.overlay.schema == overlay_schema(case.stream)
    assert result.masked == expected.masked
    assert result.waiting.tolist() == expected.waiting
    said = reasons(result)
    assert list(said) == [index for index, _ in expected.refused]
    for index, reason in expected.refused:
        assert said[index].startswith(reason)
    ops = [row["_op"] for row in expected.overlay]
    assert result.dropped == expected.dropped
    assert (result.inserted, result.replaced, result.deleted) == tuple(map(ops.count, ("insert", "replace", "delete")))


def check_against_model(case: Case) -> None:
    """The model decides the same, in the same words (floating point numbers apart), and the same rows are left."""
    stream = case.stream
    result = resolved(stream, case.revisions, case.live, case.stable, case.aged_to)
    rows = [plain(row, stream.names) for row in case.live]
    expected = corrected(stream, rows, [as_model(stream, said) for said in case.revisions], case.stable, case.aged_to)
    said = {index: reason.partition(" is said")[0] for index, reason in reasons(result).items()}
    for index, decision in enumerate(expected.outcomes):
        refused = decision.outcome is Outcome.REFUSED
        assert said.get(index) == ((decision.reason or "").partition(" is said")[0] if refused else None)
    ends = Counter(decision.outcome for decision in expected.outcomes)
    assert ends == +Counter(
        {
            Outcome.INSERTED: result.inserted,
            Outcome.REPLACED: result.replaced,
            Outcome.DELETED: result.deleted,
            Outcome.DROPPED: result.dropped,
            Outcome.WAITING: len(result.waiting),
            Outcome.REFUSED: len(result.refused),
        }
    )
    changed = [(decision.old, decision.new) for decision in expected.outcomes if decision.changes]
    assert repr(changed) == repr(
        [
            (
                plain(row, stream.names, "_old_") if row["_masks"] else None,
                plain(row, stream.names) if row["_live"] else None,
            )
            for row in result.overlay.to_pylist()
        ]
    )


def plain(row: Row, names: Iterable[str], prefix: str = "") -> Row:
    """A row as the model has it: times are integers."""
    return {name: micros(row.get(prefix + name)) for name in names}


def as_model(stream: Stream, said: Row) -> Revision:
    given = [name for name in stream.names if name in said["_given"].split(",")]
    old = [name for name in stream.names if name in said["_claimed"].split(",")]
    key = tuple(map(micros, identity(stream, said)))
    return Revision(
        said["_number"], Op(said["_op"]), key, plain(said, given), plain(said, old, "_old_"), batch_id="corrections"
    )


class TestLikeOneAfterAnother:
    @AMPLE
    @given(cases())
    def test_any_claim(self, case: Case) -> None:
        check(case)

    @AMPLE
    @given(cases())
    def test_like_the_model(self, case: Case) -> None:
        check_against_model(case)

    @AMPLE
    @given(cases())
    def test_in_small_pieces(self, case: Case) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "MAX_ROUND_ROWS", 1)
            check(case)


class TestInserts:
    def test_a_key_that_is_not_live_is_inserted(self) -> None:
        result = resolved(ORDERS, [revision(5, "insert", {"id": "a", "day": 3, "amount": 2.0, "note": None})])
        assert images(result) == [(5, "insert", None, ("a", 3, 2.0, None))]
        assert (result.inserted, result.masked) == (1, {})

    def test_the_place_may_have_been_aged_out(self) -> None:
        late = revision(5, "insert", {"id": "a", "day": 3})
        assert short(resolved(ORDERS, [late], aged_to=4)) == {0: "aged out"}
        assert resolved(ORDERS, [late], aged_to=3).inserted == 1

    def test_the_same_again_is_dropped(self) -> None:
        row = order("a", 3, float("nan"))
        result = resolved(ORDERS, [revision(5, "insert", {"id": "a", "day": 3, "amount": float("nan")})], [row])
        assert (result.dropped, result.overlay.num_rows) == (1, 0)

    def test_another_row_of_a_live_key_is_refused_or_replaces_all_of_it(self) -> None:
        said = revision(5, "insert", {"id": "a", "day": 4, "amount": None}) | {"_given": "id,day"}
        row = order("a", 3, note="kept?")
        assert short(resolved(ORDERS, [said], [row])) == {0: "duplicate key"}
        result = resolved(replace(ORDERS, on_duplicate=DuplicatePolicy.REPLACE), [said], [row])
        assert images(result) == [(5, "replace", ("a", 3, 1.0, "kept?"), ("a", 4, None, None))]
        assert result.overlay["_given"].to_pylist() == ["id,day,amount,note"]
        assert result.masked == {1: 1}

    def test_when_it_arrived_is_not_something_that_a_row_says(self) -> None:
        row = {"id": 1, "size": 0.0, "arrived": moment(5), "_batch": 1, "_pos": 1}
        again = revision(5, "insert", {"id": 1, "size": -0.0, "arrived": moment(9)})
        assert resolved(VISITS, [again], [row]).dropped == 1
        corrected = revision(5, "replace", {"id": 1, "arrived": moment(9)})
        assert resolved(VISITS, [corrected], [row]).replaced == 1

    def test_what_it_claims_of_the_old_says_nothing(self) -> None:
        said = revision(5, "insert", {"id": "a", "day": 3}, old={"id": "b", "amount": 9.0})
        assert images(resolved(ORDERS, [said], [order("b", 1)])) == [(5, "insert", None, ("a", 3, None, None))]


class TestRowsThatAreNotThere:
    @pytest.mark.parametrize(
        ("given_day", "old_day", "becomes"),
        [
            (None, 8, "waiting"),
            (None, 7, "waiting"),
            (None, 6, "no such row"),
            (None, 2, "no such row"),
            (None, 1, "aged out"),
            (9, None, "waiting"),
            (9, 1, "aged out"),
            (1, 9, "waiting"),
            (None, None, "no such row"),
        ],
    )
    def test_the_place_decides(self, given_day: int | None, old_day: int | None, becomes: str) -> None:
        new = {"id": "a"} | ({"day": given_day} if given_day is not None else {})
        old = {"day": old_day} if old_day is not None else {}
        result = resolved(ORDERS, [revision(5, "replace", new, old)], stable=7, aged_to=2)
        assert ("waiting" if len(result.waiting) else short(result)[0]) == becomes

    def test_before_there_is_a_stable_point_everything_that_has_a_place_waits(self) -> None:
        revisions = [revision(5, "delete", {"time": 1, "symbol": "a"}), revision(6, "delete", {"id": "a"})]
        assert resolved(QUOTES, revisions[:1], stable=None).waiting.tolist() == [0]
        assert short(resolved(ORDERS, revisions[1:], stable=None)) == {0: "no such row"}

    def test_a_deletion_does_not_place_its_row_by_a_new_value(self) -> None:
        assert short(resolved(ORDERS, [revision(5, "delete", {"id": "a", "day": 9})], stable=7)) == {0: "no such row"}

    def test_the_old_time_is_the_place_of_a_row_that_is_known_by_it(self) -> None:
        moved = revision(5, "replace", {"time": 1, "symbol": "a"}, {"time": 9})
        assert resolved(QUOTES, [moved], stable=7).waiting.tolist() == [0]


class TestOldValues:
    def test_the_reason_names_column_claimed_and_found(self) -> None:
        revisions = [
            revision(5, "replace", {"id": "a", "amount": 3.0}, {"amount": 2.5, "note": "x"}),
            revision(6, "delete", {"id": "a"}, {"note": "x"}),
            revision(7, "delete", {"id": "a"}, {"day": 4}),
        ]
        assert reasons(resolved(ORDERS, revisions, [order("a", 3)])) == {
            0: "old value does not match: amount is said to have been 2.5, and it is 1",
            1: "old value does not match: note is said to have been x, and it is NULL",
            2: "old value does not match: day is said to have been 4, and it is 3",
        }

    def test_null_is_a_value_but_not_of_a_key_or_an_order(self) -> None:
        said = revision(5, "replace", {"id": "a", "amount": 3.0}, {"id": None, "day": None, "note": None})
        assert resolved(ORDERS, [said], [order("a", 3)]).replaced == 1
        assert reasons(resolved(ORDERS, [said], [order("a", 3, note="x")])) == {
            0: "old value does not match: note is said to have been NULL, and it is x"
        }

    def test_they_are_those_of_the_moment(self) -> None:
        revisions = [
            revision(5, "replace", {"id": "a", "amount": 2.0}, {"amount": 1.0}),
            revision(6, "replace", {"id": "a", "amount": 3.0}, {"amount": 1.0}),
            revision(7, "replace", {"id": "a", "amount": 4.0}, {"amount": 2.0}),
        ]
        result = resolved(ORDERS, revisions, [order("a", 3)])
        assert reasons(result) == {1: "old value does not match: amount is said to have been 1, and it is 2"}
        assert images(result)[-1] == (7, "replace", ("a", 3, 2.0, None), ("a", 3, 4.0, None))


class TestChains:
    def test_each_version_follows_the_one_before(self) -> None:
        revisions = [
            revision(5, "replace", {"id": "a", "amount": 2.0}),
            revision(8, "replace", {"id": "a", "note": "x"}),
            revision(9, "delete", {"id": "a"}),
            revision(11, "insert", {"id": "a", "day": 4}),
        ]
        result = resolved(ORDERS, revisions, [order("a", 3, _revision=2, _bucket=6)])
        assert images(result) == [
            (5, "replace", ("a", 3, 1.0, None), ("a", 3, 2.0, None)),
            (8, "replace", ("a", 3, 2.0, None), ("a", 3, 2.0, "x")),
            (9, "delete", ("a", 3, 2.0, "x"), None),
            (11, "insert", None, ("a", 4, None, None)),
        ]
        origin = [result.overlay[name].to_pylist() for name in ("_from_batch", "_from_pos", "_from_revision")]
        assert origin == [[7, 50, 50, None], [73, 1005, 1008, None], [2, 5, 8, None]]
        assert result.masked == {6: 1}

    def test_two_rows_swap_their_keys_by_way_of_a_third(self) -> None:
        revisions = [
            revision(number, "replace", {"id": new}, {"id": old})
            for number, (old, new) in enumerate([("a", "b"), ("a", "c"), ("b", "a"), ("c", "b")])
        ]
        result = resolved(ORDERS, revisions, [order("a", 1), order("b", 2, _bucket=4)])
        assert short(result) == {0: "key belongs to another row"}
        assert [(old and old[0], new and new[0]) for _, _, old, new in images(result)] == [
            ("a", "c"),
            ("b", "a"),
            ("c", "b"),
        ]
        assert result.masked == {1: 1, 4: 1}

    def test_a_move_in_time_under_a_key_of_time(self) -> None:
        row = {"price": 1.0, "time": 4, "symbol": "a", "_batch": 1, "_pos": 2}
        moved = revision(5, "replace", {"time": 6}, {"time": 4, "symbol": "a"})
        back = revision(6, "replace", {"time": 2}, {"time": 6, "symbol": "a"})
        result = resolved(QUOTES, [moved, back], [row], aged_to=3)
        assert images(result, QUOTES) == [(5, "replace", (1.0, 4, "a"), (1.0, 6, "a"))]
        assert short(result) == {1: "aged out"}

    def test_a_key_with_thousands_of_revisions(self) -> None:
        revisions = [revision(number, "replace", {"id": "a", "amount": float(number)}) for number in range(2, 3_002)]
        result = resolved(ORDERS, revisions, [order("a", 3)])
        assert result.replaced == 3_000
        assert result.overlay["_old_amount"].to_pylist()[1:] == result.overlay["amount"].to_pylist()[:-1]


def test_nothing_to_decide() -> None:
    result = resolved(ORDERS, [])
    assert (result.overlay.num_rows, len(result.waiting), len(result.refused)) == (0, 0, 0)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
def test_rounds_are_the_first_in_which_nothing_that_matters_is_still_to_come(pairs: list[tuple[int, int]]) -> None:
    own, new = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    level = decision_rounds(own, new).tolist()
    for at, pair in enumerate(pairs):
        before = [level[other] for other in range(at) if set(pairs[other]) & set(pair)]
        assert level[at] == max(before, default=-1) + 1
