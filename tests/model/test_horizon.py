"""Which past commits can be read."""

from __future__ import annotations

import pytest

from errata.model.horizon import is_forgotten, is_readable, is_spent, oldest_kept_commit
from fixtures.oracle.horizon import readable_commits


@pytest.mark.parametrize(("superseded_at", "expected"), [(None, True), (91, True), (90, False), (89, False)])
def test_a_commit_is_readable_when_it_was_the_newest_within_the_horizon(
    superseded_at: int | None, expected: bool
) -> None:
    assert is_readable(superseded_at, now=100, horizon=10) is expected


def test_an_old_commit_that_reigned_into_the_horizon_is_readable() -> None:
    times = {1: 0, 2: 10, 3: 95}
    assert readable_commits(times, now=100, horizon=10) == [2, 3]
    assert readable_commits(times, now=1000, horizon=10) == [3]
    assert readable_commits(times, now=100, horizon=1000) == [1, 2, 3]


def test_without_a_horizon_only_the_newest_is_readable() -> None:
    assert readable_commits({1: 0, 2: 100}, now=100, horizon=0) == [2]


def test_no_commits() -> None:
    assert readable_commits({}, now=100, horizon=10) == []


@pytest.mark.parametrize(("pinned", "expected"), [(None, 5), (7, 5), (5, 5), (3, 3)])
def test_a_reader_keeps_what_the_horizon_lets_go(pinned: int | None, expected: int) -> None:
    assert oldest_kept_commit(5, pinned) == expected


def test_what_no_kept_commit_sees_is_spent() -> None:
    for removed_in in range(1, 9):
        seen = [commit for commit in range(5, 9) if commit < removed_in]
        assert is_spent(removed_in, kept_from=5) is not bool(seen)
    assert not is_spent(None, kept_from=5)


@pytest.mark.parametrize(
    ("vs_max", "aged_to", "dropped", "expected"),
    [(9, None, False, False), (9, 9, False, False), (9, 10, False, True), (9, None, True, True)],
)
def test_rows_are_forgotten_when_they_cannot_be_there(
    vs_max: int, aged_to: int | None, dropped: bool, expected: bool
) -> None:
    assert is_forgotten(vs_max, aged_to, dropped) is expected
