"""Physical feeds: put together again element by element, each is the table of events, and stable elements hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from errata.errors import UsageError
from errata.generate.feed_files import event_texts, feed_rows, write_feeds
from errata.generate.feeds import (
    DEFAULT_START,
    OPEN,
    VALUES,
    EventSpec,
    EventTable,
    FeedElement,
    FeedFaults,
    PhysicalFeed,
    event_table,
    physical_feed,
)
from errata.model.time import SECOND, Interval
from fixtures.chance import seeds

Event = tuple[int, int, int]
ALL_FAULTS = FeedFaults(
    disorder=0.4, adjusted=0.2, speculative=True, withdrawn=0.1, repeated=0.1, lag=3 * SECOND, shuffled=True, stable=0.2
)
SPEC = EventSpec(600, ties=3, lifetime=SECOND // 50)
CASES = {
    "in order": (SPEC, FeedFaults()),
    "disorder": (SPEC, FeedFaults(disorder=0.5, stable=0.5)),
    "ends come later": (SPEC, FeedFaults(adjusted=0.5, stable=0.5)),
    "speculation": (SPEC, FeedFaults(disorder=0.5, speculative=True, stable=0.5)),
    "withdrawals": (SPEC, FeedFaults(withdrawn=0.5, stable=0.5)),
    "all at once": (SPEC, ALL_FAULTS),
    "events that are there twice": (replace(SPEC, twice=0.3), replace(ALL_FAULTS, repeated=0.0)),
}


def reconstituted(feed: PhysicalFeed) -> Counter[Event]:
    """The table that the elements amount to (III-A), with the checks that stable elements ask for."""
    events: Counter[Event] = Counter()
    stable = -1
    for _, kind, at, value, end, old_end in zip(*(column.tolist() for column in feed.columns), strict=True):
        match FeedElement(kind):
            case FeedElement.STABLE:
                assert at > stable
                stable = at
            case FeedElement.INSERT:
                assert at >= stable or events[at, value, end], "a repetition alone may come behind a stable element"
                events[at, value, end] += 1
            case FeedElement.ADJUST:
                assert events[at, value, old_end] > 0
                assert min(end, old_end) >= stable
                events[at, value, old_end] -= 1
                events[at, value, end] += 1
            case FeedElement.WITHDRAW:
                assert events[at, value, old_end] > 0
                assert at >= stable
                events[at, value, old_end] -= 1
    return +events


def content(table: EventTable) -> Counter[Event]:
    return Counter(zip(table.at.tolist(), table.value.tolist(), table.end.tolist(), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_feed_amounts_to_its_table(case: str) -> None:
    spec, faults = CASES[case]
    for seed in seeds(case, 5):
        table = event_table(replace(spec, seed=seed))
        found = reconstituted(physical_feed(table, faults, seed + 1))
        if faults.repeated:
            assert found.keys() == content(table).keys()
        else:
            assert found == content(table)


def test_feeds_of_one_table_differ_and_are_the_same_each_time() -> None:
    (seed,) = seeds("differ", 1)
    table = event_table(replace(SPEC, seed=seed))
    one, same, other = (physical_feed(table, ALL_FAULTS, each) for each in (1, 1, 2))
    assert all(np.array_equal(*both) for both in zip(one.columns, same.columns, strict=True))
    assert len(one) != len(other) or not np.array_equal(one.at, other.at)


def test_faults_are_as_frequent_as_asked() -> None:
    (seed,) = seeds("frequent", 1)
    table = event_table(EventSpec(20_000, seed=seed))
    faults = FeedFaults(disorder=0.3, adjusted=0.2, withdrawn=0.1, missing=0.15, stable=0.05)
    feed = physical_feed(table, faults, seed)
    kinds = Counter(feed.kind.tolist())
    assert kinds[FeedElement.INSERT] == pytest.approx(0.85 * 20_000 + 0.1 * 20_000, rel=0.05)
    assert kinds[FeedElement.ADJUST] == pytest.approx(0.2 * 0.85 * 20_000, rel=0.1)
    assert kinds[FeedElement.WITHDRAW] == pytest.approx(0.1 * 20_000, rel=0.15)
    inserts = feed[(feed.kind == FeedElement.INSERT) & (feed.value < VALUES)]
    assert (inserts.arrival > inserts.at).mean() == pytest.approx(0.3, abs=0.03)
    assert (inserts.end == OPEN).mean() == pytest.approx(0.2, abs=0.03)


def test_gaps_and_lag() -> None:
    table = event_table(EventSpec(1_000))
    middle = Interval(int(table.at[300]), int(table.at[600]))
    feed = physical_feed(table, FeedFaults(gaps=(middle,), lag=5 * SECOND), 1)
    inserts = feed[feed.kind == FeedElement.INSERT]
    assert len(inserts) == 700
    assert not ((inserts.at >= middle.start) & (inserts.at < middle.end)).any()
    assert np.array_equal(inserts.arrival, inserts.at + 5 * SECOND)
    cut = feed.arriving(Interval(int(inserts.arrival[100]), int(inserts.arrival[200])))
    assert np.array_equal(cut.at[cut.kind == FeedElement.INSERT], inserts.at[100:200])


def test_without_disorder_times_rise_and_ties_come_by_value_or_shuffled() -> None:
    table = event_table(EventSpec(3_000, ties=3))
    fixed, shuffled = (physical_feed(table, FeedFaults(shuffled=each, stable=0), 7) for each in (False, True))
    assert np.array_equal(fixed.value[:-1], table.value)
    assert np.array_equal(shuffled.at, fixed.at)
    assert not np.array_equal(shuffled.value, fixed.value)
    assert len(set(zip(table.at.tolist(), table.value.tolist(), strict=True))) == 3_000
    strict = event_table(EventSpec(3_000))
    assert all(low < high for low, high in pairwise(strict.at.tolist()))


def test_stable_elements_are_as_frequent_as_asked_and_the_last_one_ends_the_feed() -> None:
    table = event_table(EventSpec(20_000))
    often = physical_feed(table, FeedFaults(stable=0.1), 3)
    assert (often.kind == FeedElement.STABLE).mean() == pytest.approx(0.09, abs=0.01)
    assert often.at[-1] == table.last
    never = physical_feed(table, FeedFaults(stable=0.0, closed=False), 3)
    assert (never.kind == FeedElement.INSERT).all()


def test_rows_of_a_file_say_the_same() -> None:
    table = event_table(EventSpec(200))
    feed = physical_feed(table, replace(ALL_FAULTS, lag=0), 5)
    rows = feed_rows(feed, text_bytes=40)
    assert rows["_op"].cast(pa.string()).to_pylist()[-1] == "stable"
    assert rows["at"].cast(pa.int64()).to_pylist() == feed.at.tolist()
    assert rows["until"].null_count == int(((feed.end == OPEN) | (feed.kind >= FeedElement.WITHDRAW)).sum())
    assert set(pa.compute.utf8_length(rows["text"]).to_pylist()) == {40}
    texts = event_texts(table.at, table.value, 40)
    assert len(texts.unique()) == len(table)
    assert texts.equals(event_texts(table.at, table.value, 40))


def test_a_table_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="an event or more"):
        EventSpec(0)
    with pytest.raises(UsageError, match="have the same time"):
        EventSpec(10, ties=VALUES + 1)
    assert event_table(EventSpec(5)).at[0] > DEFAULT_START


def test_shares_are_checked() -> None:
    with pytest.raises(UsageError, match="shares from 0 to 1"):
        FeedFaults(missing=1.5)
    with pytest.raises(UsageError, match="a lag is 0 or more"):
        FeedFaults(lag=-1)


def test_files_have_all_elements_in_the_order_of_arrival(tmp_path: Path) -> None:
    feeds = [physical_feed(event_table(EventSpec(300)), faults, 1) for faults in (ALL_FAULTS, FeedFaults())]
    files = write_feeds(tmp_path, feeds, 4)
    assert [[file.parent.name for file in each] for each in files] == [["feed_1", "feed_2"]] * 4
    for number, feed in enumerate(feeds):
        written = pa.concat_tables(pq.read_table(each[number]) for each in files)
        assert written["at"].cast(pa.int64()).to_pylist() == feed.at.tolist()
        assert written["value"].to_pylist() == feed.value.tolist()
