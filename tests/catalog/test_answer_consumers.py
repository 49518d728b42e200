"""Named consumers hold what they have still to read, until a deadline."""

from __future__ import annotations

import pytest

from errata.catalog import commits, declarations, pins
from errata.catalog.answer_consumers import (
    DEFAULT_HOLD,
    MAX_CONSUMERS,
    acknowledge,
    answer_consumers_of,
    drop_consumers,
    open_consumer,
)
from errata.catalog.database import Catalog
from errata.errors import ErrataError, UsageError
from errata.model.access import AnswerConsumer
from errata.model.commit import Cause
from errata.model.stream import Stream
from errata.model.time import HOUR
from fixtures.catalog import NOW, a_stream
from fixtures.clock import FixedClock


def make_commits(catalog: Catalog, *names: str) -> None:
    for name in names:
        declarations.apply_changes(catalog, Cause("apply"), write=[a_stream(name)], drop=[], summary={})


def test_a_consumer_holds_what_it_has_not_acknowledged(catalog: Catalog, ticks: Stream, clock: FixedClock) -> None:
    assert open_consumer(catalog, "h", "one") == AnswerConsumer("h", "one", None, NOW + DEFAULT_HOLD)
    make_commits(catalog, "b", "c", "d")
    assert pins.oldest_needed_commit(catalog) == 1, "nothing is acknowledged: what was current when it came"
    assert acknowledge(catalog, "h", "one", 3) == AnswerConsumer("h", "one", 3, NOW + DEFAULT_HOLD)
    assert pins.oldest_needed_commit(catalog) == 3
    assert acknowledge(catalog, "h", "one", 2).acknowledged == 3, "it never goes back"
    assert pins.oldest_needed_commit(catalog) == 3
    clock.advance(HOUR)
    assert open_consumer(catalog, "h", "one") == AnswerConsumer("h", "one", 3, NOW + HOUR + DEFAULT_HOLD)
    assert pins.oldest_needed_commit(catalog) == 3


def test_after_its_deadline_it_holds_nothing_and_is_still_known(
    catalog: Catalog, ticks: Stream, clock: FixedClock
) -> None:
    open_consumer(catalog, "h", "one", hold=HOUR)
    make_commits(catalog, "b")
    acknowledge(catalog, "h", "one", 1, hold=HOUR)
    clock.advance(HOUR - 1)
    assert pins.oldest_needed_commit(catalog) == 1
    clock.advance(1)
    assert pins.oldest_needed_commit(catalog) == 2
    assert answer_consumers_of(catalog, "h") == [AnswerConsumer("h", "one", 1, NOW + HOUR)]
    assert open_consumer(catalog, "h", "one").acknowledged == 1
    assert pins.oldest_needed_commit(catalog) == 1


def test_consumers_are_apart_and_go_when_they_are_dropped(catalog: Catalog, ticks: Stream) -> None:
    make_commits(catalog, "b")
    for handle, name in (("h", "one"), ("h", "two"), ("other", "one")):
        open_consumer(catalog, handle, name)
        acknowledge(catalog, handle, name, 1 if name == "one" else 2)
    assert [(each.name, each.acknowledged) for each in answer_consumers_of(catalog, "h")] == [("one", 1), ("two", 2)]
    assert drop_consumers(catalog, "h", "one") == 1
    assert pins.oldest_needed_commit(catalog) == 1, "another query's"
    assert drop_consumers(catalog, "other") == 1
    assert pins.oldest_needed_commit(catalog) == 2
    assert [each.name for each in answer_consumers_of(catalog, "h")] == ["two"]
    assert drop_consumers(catalog, "h", "nobody") == 0


def test_wrong_commits_and_names_are_refused(catalog: Catalog, ticks: Stream) -> None:
    with pytest.raises(UsageError, match="has no consumer one"):
        acknowledge(catalog, "h", "one", 1)
    open_consumer(catalog, "h", "one")
    for commit in (0, 2, -1):
        with pytest.raises(UsageError, match=f"there is no commit {commit}"):
            acknowledge(catalog, "h", "one", commit)
    with pytest.raises(UsageError, match="cannot be the name of a consumer"):
        open_consumer(catalog, "h", "one'; DROP TABLE pins; --")
    for number in range(MAX_CONSUMERS - 1):
        open_consumer(catalog, "h", f"c{number}")
    with pytest.raises(UsageError, match="as many as a query may have"):
        open_consumer(catalog, "h", "more")


def test_what_it_holds_stays_readable_behind_the_horizon(catalog: Catalog, ticks: Stream, clock: FixedClock) -> None:
    make_commits(catalog, "b", "c")
    open_consumer(catalog, "h", "one", hold=10 * HOUR)
    acknowledge(catalog, "h", "one", 2, hold=10 * HOUR)
    make_commits(catalog, "d")
    clock.advance(2 * HOUR)
    commits.check_readable(catalog, 2, HOUR, "ticks")
    commits.check_readable(catalog, 3, HOUR, "ticks")
    with pytest.raises(ErrataError, match="commit 1 lies behind the horizon"):
        commits.check_readable(catalog, 1, HOUR, "ticks")
    with pins.hold_pin(catalog, 1, "a reader"), pytest.raises(ErrataError, match="commit 1 lies behind the horizon"):
        commits.check_readable(catalog, 1, HOUR, "ticks")
    clock.advance(8 * HOUR)
    with pytest.raises(ErrataError, match="commit 2 lies behind the horizon"):
        commits.check_readable(catalog, 2, HOUR, "ticks")
