"""The policies of a merge: which value counts when feeds disagree, and when a row goes out."""

from __future__ import annotations

import pytest

from errata.merge.elements import FEED, POS
from errata.merge.state import state_to_table
from errata.merge.step import BATCH, CHOSEN, OP
from errata.model.feed import DisagreementPolicy, EmitPolicy, MergePolicy
from fixtures.merge_cases import ADJUST, KEY, POINT, ROW, WITHDRAW, Merging, ends, short
from fixtures.merges import POINTS, SPANS, statement

THREE = (
    statement(0, {**ROW, "price": 1.0, "version": 3}),
    statement(1, {**ROW, "price": 2.0, "version": 1}),
    statement(2, {**ROW, "price": 1.0, "version": 3}),
    statement(3, {**ROW, "price": 4.0, "version": 5}),
)


@pytest.mark.parametrize(
    ("policy", "prices"),
    [
        (MergePolicy(disagreement=DisagreementPolicy.LEADER), (1.0, 2.0, 4.0)),
        (MergePolicy(disagreement=DisagreementPolicy.MAJORITY), (1.0, 1.0, 4.0)),
        (MergePolicy(disagreement=DisagreementPolicy.FIRST), (1.0, 1.0, 4.0)),
        (MergePolicy(disagreement=DisagreementPolicy.LATEST, version="version"), (4.0, 4.0, 4.0)),
    ],
    ids=lambda each: str(each.disagreement) if isinstance(each, MergePolicy) else "",
)
def test_the_policy_decides_which_value_counts(policy: MergePolicy, prices: tuple[float, ...]) -> None:
    merging = Merging(SPANS, 4, policy)
    first = merging.take(*THREE)
    merging.take(ranked=(1, 3, 0, 2))
    followed = published_prices(merging)
    step = merging.take(statement(0, KEY, WITHDRAW), statement(2, KEY, WITHDRAW), ranked=(3, 1, 0, 2))
    assert (first.inserts["price"].to_pylist(), followed, published_prices(merging)) == tuple([each] for each in prices)
    assert step.agreed.num_rows == 0
    chosen = [row["price"] for row in first.disagreements.to_pylist() if row[CHOSEN]]
    assert set(chosen) == {prices[0]}
    assert first.disagreements[FEED].to_pylist() != []


def published_prices(merging: Merging) -> list[float]:
    table = state_to_table(merging.state, merging.stream)
    return [row["price"] for row in table.to_pylist() if row["_published"] is not None]


def test_the_latest_version_is_not_null() -> None:
    policy = MergePolicy(disagreement=DisagreementPolicy.LATEST, version="version")
    step = Merging(POINTS, 3, policy).take(
        statement(0, {**POINT, "version": None, "price": 1.0}),
        statement(1, {**POINT, "version": 1, "price": 2.0}),
        statement(2, {**POINT, "version": 1, "price": 3.0}),
        ranked=(0, 2, 1),
    )
    assert step.inserts["price"].to_pylist() == [3.0]


def test_a_disagreement_is_told_when_something_about_it_changes_and_when_it_ends() -> None:
    merging = Merging(SPANS)
    assert merging.take(statement(0, ROW), statement(1, {**ROW, "price": 2.0})).disagreements.num_rows == 2
    assert merging.take().disagreements.num_rows == 0
    assert merging.take(statement(1, {**ROW, "price": 3.0})).disagreements["price"].to_pylist() == [1.5, 3.0]
    step = merging.take(statement(1, {**KEY, "price": 1.5}, ADJUST))
    assert (step.disagreements.num_rows, step.agreed.to_pylist()) == (0, [KEY])
    assert ends(step) == ([], [])


def test_a_disagreement_has_the_place_of_each_feeds_own_statement() -> None:
    merging = Merging(SPANS, 3)
    merging.take(statement(0, ROW))
    step = merging.take(statement(1, ROW), statement(2, {**ROW, "price": 2.0}))
    assert short(step.disagreements, FEED, BATCH, POS) == [(0, 1, 0), (1, None, 0), (2, None, 1)]


# Policies of output.


@pytest.mark.parametrize(
    ("policy", "outputs"),
    [
        (MergePolicy(emit=EmitPolicy.FIRST), [("insert", 9), ("replace", 20)]),
        (MergePolicy(emit=EmitPolicy.EVERY), [("insert", 9), ("replace", 15), ("replace", 20)]),
        (MergePolicy(emit=EmitPolicy.LEADER), [("insert", 15), ("replace", 20)]),
        (MergePolicy(emit=EmitPolicy.HALF_FROZEN), [("insert", 20)]),
        (MergePolicy(emit=EmitPolicy.FRACTION, fraction=0.6), [("insert", 9), ("replace", 20)]),
        (MergePolicy(emit=EmitPolicy.FRACTION, fraction=1.0), [("insert", 20)]),
    ],
    ids=lambda each: f"{each.emit} {each.fraction}" if isinstance(each, MergePolicy) else "",
)
def test_the_policy_decides_when_a_row_goes_out(policy: MergePolicy, outputs: list[tuple[str, int]]) -> None:
    merging = Merging(SPANS, 3, policy)
    leads = {"ranked": (1, 0, 2)}
    steps = [
        merging.take(statement(0, ROW), **leads),
        merging.take(statement(1, {**ROW, "until": 15}), **leads),
        merging.take(statement(1, {**ROW, "until": 20}), stable=10, **leads),
        merging.take(statement(0, {**ROW, "until": 20}), stable=21, **leads),
    ]
    found = [
        each
        for step in steps
        for each in [
            *(("insert", end) for end in step.inserts["until"].to_pylist()),
            *short(step.corrections, OP, "until"),
        ]
    ]
    assert found == outputs
    assert merging.state.rows.num_rows == 0
    held = [step.counts.held for step in steps]
    assert sum(held) == 0
    assert held[0] == (0 if outputs[0] == ("insert", 9) and policy.emit is not EmitPolicy.FRACTION else 1)


def test_the_leader_takes_back_what_it_lacks() -> None:
    merging = Merging(SPANS, 2, MergePolicy(emit=EmitPolicy.LEADER))
    assert ends(merging.take(statement(0, ROW))) == ([("A", 9)], [])
    assert ends(merging.take(ranked=(1, 0))) == ([], [("delete", "A", 9)])
