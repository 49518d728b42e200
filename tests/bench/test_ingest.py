"""The parts of the ingest benchmark that decide what its figures mean."""

from pathlib import Path

import pytest
from bench.bucket_index import BUCKET_SPAN, SYMBOL, commit_one, load_bucket_rows, look_up_buckets, newest_commit
from bench.bucket_index import quotes_stream as declared_stream
from bench.ingest import AMOUNTS, RATE, append_metrics, memory_metrics, ten_minutes
from bench.measure import USUAL, Scale, Timings

from errata.catalog import streams
from errata.generate.quotes import DEFAULT_START
from errata.model.batch import FileFormat
from errata.model.time import MINUTE, SECOND, Interval


def test_the_loaded_index_answers_as_one_that_was_filled_batch_by_batch(tmp_path: Path) -> None:
    loaded = load_bucket_rows(f"sqlite:///{tmp_path}/index.db", declared_stream(), 1_000)
    everything = look_up_buckets(loaded.catalog, loaded.stream_id, Interval(), SYMBOL, loaded.newest)
    assert len(everything) == 1_000 - 20  # one in fifty has been removed
    assert max(bucket.vs_max for bucket in everything) >= loaded.end - 1
    start = 430 * BUCKET_SPAN + 17
    found = look_up_buckets(
        loaded.catalog, loaded.stream_id, Interval(start, start + 10 * MINUTE), SYMBOL, loaded.newest
    )
    assert [bucket.vs_min // BUCKET_SPAN for bucket in found] == [430]
    first = look_up_buckets(loaded.catalog, loaded.stream_id, Interval(), SYMBOL, 2)
    assert [bucket.vs_min // BUCKET_SPAN for bucket in first] == list(range(35))
    loaded.catalog.close()


def test_commits_beside_the_loaded_index_are_real_ones(tmp_path: Path) -> None:
    loaded = load_bucket_rows(f"sqlite:///{tmp_path}/index.db", declared_stream(), 100)
    for number in range(3):
        commit_one(loaded, number)
    assert newest_commit(loaded.catalog) == loaded.newest + 3
    now = streams.stream_state(loaded.catalog, "quotes")
    assert now.rows == 100 * 500_000 + 3 * 1_000_000
    assert now.vs_max is not None
    assert now.vs_max > loaded.end
    interval = Interval(loaded.end + declared_stream().slack)
    added = look_up_buckets(loaded.catalog, loaded.stream_id, interval, SYMBOL, loaded.newest + 3)
    assert len([bucket for bucket in added if bucket.added_in > loaded.newest]) == 6
    loaded.catalog.close()


@pytest.mark.parametrize("scale", USUAL)
def test_ten_minutes_lie_in_the_day_and_fit_into_two_buckets(scale: Scale) -> None:
    amounts = AMOUNTS[scale]
    assert amounts.bucket_rows > 10 * 60 * RATE
    intervals = [ten_minutes(amounts, number) for number in range(100)]
    assert len(set(intervals)) == 100
    for interval in intervals:
        assert interval.end - interval.start == 10 * MINUTE
        assert interval.start >= DEFAULT_START
        assert interval.end <= DEFAULT_START + amounts.day // RATE * SECOND


def test_figures_are_held_against_their_goals() -> None:
    slow = append_metrics(FileFormat.CSV, Timings({"errata": [2.0, 2.8], "spark": [1.0, 2.0]}))
    assert [(metric.value, metric.holds) for metric in slow] == [(1.7, False), (2.4, None), (1.5, None)]
    growing = memory_metrics((100, 130), AMOUNTS[Scale.SMALL])[0]
    steady = memory_metrics((100, 110), AMOUNTS[Scale.SMALL])[0]
    assert (growing.holds, steady.holds) == (False, True)
