"""Which past commits can be read."""

from __future__ import annotations

import pytest

from errata.model.horizon import readable, readable_commits


@pytest.mark.parametrize(("superseded_at", "expected"), [(None, True), (91, True), (90, False), (89, False)])
def test_a_commit_is_readable_when_it_was_the_newest_within_the_horizon(
    superseded_at: int | None, expected: bool
) -> None:
    assert readable(superseded_at, now=100, horizon=10) is expected


def test_an_old_commit_that_reigned_into_the_horizon_is_readable() -> None:
    times = {1: 0, 2: 10, 3: 95}
    assert readable_commits(times, now=100, horizon=10) == [2, 3]
    assert readable_commits(times, now=1000, horizon=10) == [3]
    assert readable_commits(times, now=100, horizon=1000) == [1, 2, 3]


def test_without_a_horizon_only_the_newest_is_readable() -> None:
    assert readable_commits({1: 0, 2: 100}, now=100, horizon=0) == [2]


def test_no_commits() -> None:
    assert readable_commits({}, now=100, horizon=10) == []
