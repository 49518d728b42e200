"""Progress: who leads, how far the merged stream is stable, and what joining, going and suspicion do to both."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from errata.merge.progress import FeedStanding, advance, attach, detach, feed_stable
from errata.model.feed import Feed, StableRule
from errata.model.time import LOWEST

A, B, C = FeedStanding("a"), FeedStanding("b"), FeedStanding("c")


def test_the_merged_stream_is_as_early_as_the_earliest() -> None:
    progress = advance([A, B, C], {0: 5, 1: 9, 2: 7}, before=LOWEST)
    assert (progress.stable, progress.leader, progress.ranked) == (9, 1, (1, 2, 0))


@pytest.mark.parametrize(("quorum", "stable"), [(1, 9), (2, 7), (3, 5)])
def test_a_quorum_waits_for_that_many_feeds(quorum: int, stable: int) -> None:
    assert advance([A, B, C], {0: 5, 1: 9, 2: 7}, before=LOWEST, quorum=quorum).stable == stable


def test_without_a_quorum_nothing_moves() -> None:
    gone = detach(C)
    assert advance([A, detach(B), gone], {0: 5}, before=3, quorum=2).stable == 3


def test_among_equals_the_one_that_is_declared_first_leads() -> None:
    assert advance([A, B], {0: 5, 1: 5}, before=LOWEST).ranked == (0, 1)


def test_the_merged_stream_never_goes_back() -> None:
    ahead = replace(A, stable=20)
    assert advance([detach(ahead), B], {1: 8}, before=20).stable == 20
    assert advance([ahead, B], {0: 3}, before=20).feeds[0].stable == 20


def test_a_suspect_feed_does_not_lead() -> None:
    progress = advance([replace(A, suspect=True), B], {0: 50, 1: 8}, before=LOWEST)
    assert (progress.stable, progress.leader, progress.ranked) == (8, 1, (1, 0))
    alone = advance([replace(A, suspect=True)], {0: 50}, before=4)
    assert (alone.stable, alone.leader) == (4, None)


def test_a_feed_has_joined_when_the_merged_stream_is_where_it_begins() -> None:
    late = attach(FeedStanding("b", attached=False), merged_stable=4, starts_at=10)
    first = advance([A, late], {0: 10, 1: 30}, before=4)
    assert (first.stable, first.leader) == (10, 0)
    second = advance([replace(A, stable=10), replace(late, stable=30)], {}, before=10)
    assert (second.stable, second.leader) == (30, 1)


def test_a_feed_that_comes_back_begins_where_the_merged_stream_is() -> None:
    back = attach(detach(replace(B, stable=40)), merged_stable=7)
    assert (back.attached, back.joins_at, back.stable) == (True, 7, LOWEST)
    assert advance([A, back], {1: 9}, before=7).leader == 1


def test_if_no_feed_has_joined_those_that_join_first_lead() -> None:
    """Nobody has what came before, so that there is nothing to wait for; but nobody knows that it does not exist."""
    soon = FeedStanding("a", joins_at=10, complete=True)
    later = FeedStanding("b", joins_at=20, complete=True)
    progress = advance([soon, later], {0: 12, 1: 25}, before=LOWEST)
    assert (progress.stable, progress.leader, progress.feeds[0].complete) == (12, 0, False)
    assert advance([replace(soon, stable=12), later], {}, before=12).feeds[0].complete
    suspect = replace(soon, joins_at=LOWEST, suspect=True)
    assert advance([suspect, later], {1: 25}, before=4).stable == 4


def test_the_stable_point_of_a_feed_follows_its_rule() -> None:
    rows, marks = Feed("a"), Feed("b", stable=StableRule.MARKS)
    assert feed_stable(rows, 3, before=LOWEST, top=20, marked=None) == 17
    assert feed_stable(rows, 3, before=18, top=20, marked=None) == 18
    assert feed_stable(rows, 3, before=4, top=None, marked=9) == 9
    assert feed_stable(rows, 3, before=4, top=None, marked=None) == 4
    assert feed_stable(rows, 3, before=LOWEST, top=LOWEST + 1, marked=None) == LOWEST
    assert feed_stable(marks, 3, before=4, top=20, marked=None) == 4
    assert feed_stable(marks, 3, before=4, top=20, marked=6) == 6


def test_progress_never_exceeds_what_leading_feeds_have_said(chance: random.Random) -> None:
    """C1, with any quorum: at least as many leading feeds have come that far."""
    for _ in range(300):
        standings = [
            FeedStanding(
                name,
                stable=chance.randrange(10),
                attached=chance.random() < 0.8,
                joins_at=chance.choice((LOWEST, chance.randrange(20))),
                suspect=chance.random() < 0.2,
            )
            for name in "abcd"[: chance.randrange(1, 5)]
        ]
        before, quorum = chance.choice((LOWEST, chance.randrange(12))), chance.randrange(1, len(standings) + 1)
        said = {number: chance.randrange(30) for number in range(len(standings)) if chance.random() < 0.7}
        progress = advance(standings, said, before=before, quorum=quorum)
        assert progress.stable >= before
        assert sorted(progress.ranked) == list(range(len(standings)))
        leading = [each for each in progress.feeds if each.leads]
        assert all(each.attached for each in leading)
        if progress.stable > before:
            assert sum(each.stable >= progress.stable for each in leading) >= quorum
        if progress.leader is not None:
            assert progress.feeds[progress.leader].stable == max(each.stable for each in leading)
        else:
            assert not leading
