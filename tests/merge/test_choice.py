"""The cheapest algorithm that is correct for what feeds guarantee, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from errata.merge.choice import choose_algorithm, declared_properties, next_algorithm
from errata.merge.step import BrokenGuarantee
from errata.model.feed import EmitPolicy, FeedOrder, FeedProperties, MergeAlgorithm, MergePolicy, what_either_guarantees
from fixtures.merges import ORDERS, POINTS, merged_stream, stream_of

STRICT = FeedProperties(FeedOrder.STRICT, ties_fixed=False, adjusts=False, complete=True)
FIXED = FeedProperties(FeedOrder.ORDERED, ties_fixed=True, adjusts=False, complete=True)
LOOSE = replace(FIXED, ties_fixed=False)


@pytest.mark.parametrize(
    ("properties", "algorithm", "reason"),
    [
        ([STRICT, STRICT], "R0", "all feeds are complete and only insert, by strictly increasing at"),
        (
            [STRICT, FIXED],
            "R1",
            "all feeds are complete and only insert, by at, feed mirror with ties in one fixed order",
        ),
        ([FIXED, LOOSE], "R2", "all feeds are complete and only insert, by at, feed mirror with ties in any order"),
        ([STRICT, replace(STRICT, adjusts=True)], "R3", "feed mirror may adjust rows"),
        ([replace(STRICT, complete=False), STRICT], "R3", "feed nyse may have gaps"),
        ([STRICT, replace(STRICT, order=FeedOrder.NONE)], "R3", "feed mirror may come in any order"),
        (
            [FeedProperties(), FeedProperties()],
            "R3",
            "feeds nyse, mirror may adjust rows; feeds nyse, mirror may have gaps;"
            " feeds nyse, mirror may come in any order",
        ),
    ],
)
def test_the_cheapest_correct_algorithm_is_chosen(
    properties: list[FeedProperties], algorithm: str, reason: str
) -> None:
    choice = choose_algorithm(merged_stream(POINTS, 2, properties=properties))
    assert (choice.algorithm, choice.reason) == (algorithm, reason)


@pytest.mark.parametrize("emit", [each for each in EmitPolicy if each is not EmitPolicy.FIRST])
def test_other_policies_than_first_need_all_feeds(emit: EmitPolicy) -> None:
    choice = choose_algorithm(merged_stream(POINTS, 2, MergePolicy(emit=emit), STRICT))
    assert (choice.algorithm, choice.reason) == ("R3", f"emit: {emit} looks at all feeds before a row is published")


def test_a_key_without_the_order_field_may_come_again() -> None:
    choice = choose_algorithm(merged_stream(ORDERS, 2, properties=STRICT))
    assert (choice.algorithm, choice.reason) == ("R3", "the key has no at, so a later row may have the same key")


def test_rows_that_repeat_need_counts() -> None:
    stream = merged_stream(stream_of(("symbol", "at", "n"), symbol="string", at="bigint", n="bigint"), 2)
    stream = replace(stream, merged=replace(stream.merged, occurrence="n"))
    assert choose_algorithm(stream).algorithm is MergeAlgorithm.R4


def test_what_follows_from_a_plan_counts_beside_what_is_declared() -> None:
    stream = merged_stream(POINTS, 2, properties=FeedProperties(complete=True))
    derived = {"nyse": FeedProperties(FeedOrder.ORDERED, adjusts=False), "mirror": STRICT}
    properties = declared_properties(stream, derived)
    assert properties == [LOOSE, STRICT]
    assert choose_algorithm(stream, properties).algorithm is MergeAlgorithm.R2
    assert what_either_guarantees(FIXED, STRICT) == replace(STRICT, ties_fixed=True)


@pytest.mark.parametrize(
    ("declared", "left", "algorithm"),
    [
        (STRICT, LOOSE, "R2"),
        (STRICT, FIXED, "R1"),
        (STRICT, replace(STRICT, complete=False), "R3"),
        (FIXED, LOOSE, "R2"),
        (LOOSE, LOOSE, "R3"),
    ],
)
def test_what_is_broken_leads_to_the_next_algorithm_without_it(
    declared: FeedProperties, left: FeedProperties, algorithm: str
) -> None:
    stream = merged_stream(POINTS, 2, properties=replace(declared, ties_fixed=declared.ties_fixed or left.ties_fixed))
    current = choose_algorithm(stream).algorithm
    choice = next_algorithm(stream, current, [BrokenGuarantee(1, "order: strict", 7, "at 4 twice", left)])
    assert (choice.algorithm, choice.reason) == (algorithm, "feed mirror broke `order: strict`: at 4 twice")
