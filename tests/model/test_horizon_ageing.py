"""What retention lets go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from errata.model.bucket import Bucket, Groups, Role
from errata.model.horizon import aged_buckets, aged_result_buckets, new_aged_to, new_results_aged_to, retention_start
from errata.model.stream import Retention
from errata.model.time import HIGHEST, LOWEST


def bucket(bucket_id: int, vs_min: int, vs_max: int, rows: int = 10, masked: int = 0) -> Bucket:
    return Bucket(bucket_id, Role.BASE, "p", rows, 1, vs_min, vs_max, Groups(), "", "b", 1, None, None, masked=masked)


def youngest_first(buckets: Sequence[Bucket]) -> list[tuple[int, int]]:
    return sorted(((each.vs_min, each.rows - each.masked) for each in buckets), reverse=True)


def dropped(buckets: Sequence[Bucket], retention: Retention, stable: int = 1_000) -> list[Bucket]:
    before = retention_start(retention, stable, youngest_first(buckets))
    return [] if before is None else aged_buckets(buckets, before)


def ids(buckets: Sequence[Bucket]) -> list[int]:
    return [bucket.bucket_id for bucket in buckets]


def test_a_span_drops_buckets_wholly_behind_it_and_no_others() -> None:
    buckets = [bucket(3, 95, 100), bucket(2, 10, 40), bucket(1, 0, 39)]
    assert ids(dropped(buckets, Retention(span=60), 100)) == [1]
    assert ids(dropped(buckets, Retention(span=60), 101)) == [1, 2]


def test_a_span_that_reaches_further_back_than_there_is_time() -> None:
    assert retention_start(Retention(span=60), LOWEST + 1, []) == LOWEST
    assert aged_buckets([bucket(1, LOWEST, LOWEST)], LOWEST) == []


def test_rows_drop_the_oldest_while_enough_remain() -> None:
    buckets = [bucket(2, 20, 29), bucket(1, 10, 19), bucket(3, 30, 39)]
    assert ids(dropped(buckets, Retention(rows=20))) == [1]
    assert ids(dropped(buckets, Retention(rows=21))) == []
    assert ids(dropped(buckets, Retention(rows=1))) == [1, 2]


def test_rows_that_are_not_stable_count_and_stay() -> None:
    buckets = [bucket(1, 0, 9), bucket(2, 10, 19), bucket(3, 20, 29), bucket(4, 30, 39)]
    assert ids(dropped(buckets, Retention(rows=10), 20)) == [1, 2]
    assert ids(dropped(buckets, Retention(rows=10), 19)) == [1]
    assert ids(dropped(buckets, Retention(rows=30), 20)) == [1]


def test_rows_that_count_no_more_are_not_counted() -> None:
    buckets = [bucket(1, 0, 9), bucket(2, 10, 19, masked=9), bucket(3, 20, 29)]
    assert ids(dropped(buckets, Retention(rows=11))) == [1]
    assert ids(dropped(buckets, Retention(rows=12))) == []


def test_rows_of_a_bucket_that_reaches_behind_the_last_dropped_may_go_and_do_not_count() -> None:
    buckets = [bucket(1, 0, 9), bucket(2, 5, 30), bucket(3, 10, 19)]
    assert ids(dropped(buckets, Retention(rows=10))) == [1]
    assert ids(dropped(buckets, Retention(rows=11))) == []


def test_a_large_old_bucket_is_not_passed_over_for_a_small_younger_one() -> None:
    buckets = [bucket(1, 0, 9, rows=50), bucket(2, 10, 19, rows=5), bucket(3, 20, 29, rows=5)]
    assert dropped(buckets, Retention(rows=11)) == []


def test_only_as_many_buckets_are_looked_at_as_will_stay() -> None:
    looked = iter([(30, 5), (20, 5), (10, 5), (0, 5)])
    assert retention_start(Retention(rows=8), 100, looked) == 20
    assert list(looked) == [(10, 5), (0, 5)]


def test_an_archive_begins_behind_the_last_bucket_dropped_and_never_earlier_than_before() -> None:
    gone = [bucket(1, 0, 9), bucket(2, 0, 19)]
    assert new_aged_to(gone, None) == new_aged_to(gone, 19) == 20
    assert new_aged_to(gone, 21) == 21


pieces = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12), st.integers(1, 9), st.integers(0, 9)), max_size=8)


def made(parts: Sequence[tuple[int, int, int, int]]) -> list[Bucket]:
    return [
        bucket(number, start, start + span, rows, min(rows, masked))
        for number, (start, span, rows, masked) in enumerate(parts)
    ]


@given(pieces, st.integers(1, 30), st.integers(0, 40))
@example([(0, 9, 5, 0), (9, 9, 5, 0)], 5, 40)
@example([(0, 9, 5, 0), (10, 9, 5, 0)], 5, 40)
def test_rows_as_one_would_find_them_bucket_by_bucket(
    parts: list[tuple[int, int, int, int]], keep: int, stable: int
) -> None:
    """The longest run of the oldest buckets such that those that begin behind the last one have enough rows."""
    buckets = made(parts)
    oldest_first = sorted(buckets, key=lambda each: (each.vs_max, each.bucket_id))
    expected: list[Bucket] = []
    for each in oldest_first:
        remaining = sum(other.rows - other.masked for other in buckets if other.vs_min > each.vs_max)
        if each.vs_max >= stable or remaining < keep:
            break
        expected.append(each)
    assert dropped(buckets, Retention(rows=keep), stable) == expected


@given(pieces, st.integers(1, 30), st.integers(0, 60))
def test_a_span_is_kept_and_nothing_lies_wholly_behind_it(
    parts: list[tuple[int, int, int, int]], span: int, stable: int
) -> None:
    buckets = made(parts)
    gone = dropped(buckets, Retention(span=span), stable)
    assert ids(gone) == ids(sorted(gone, key=lambda each: (each.vs_max, each.bucket_id)))
    assert {each.bucket_id for each in gone} == {each.bucket_id for each in buckets if each.vs_max < stable - span}
    assert not gone or new_aged_to(gone, None) <= stable - span


def results(*spans: tuple[int, int, int, int]) -> list[Bucket]:
    """Buckets of results: first and last beginning, first and last end."""
    return [
        replace(bucket(number, low, high, 5), ends=ends)
        for number, (low, high, *rest) in enumerate(spans)
        for ends in [(rest[0], rest[1])]
    ]


def test_results_are_past_once_they_have_ended() -> None:
    found = results((0, 5, 6, 10), (0, 9, 6, 21), (3, 4, 8, 20))
    assert ids(aged_result_buckets(found, 20)) == [2, 0]
    assert new_results_aged_to(aged_result_buckets(found, 20), None) == 20
    assert aged_result_buckets(found, 9) == []
    assert new_results_aged_to([], 7) == 7
    assert new_results_aged_to([], None) is None


def test_results_that_never_end_are_as_old_as_their_beginning() -> None:
    found = results((0, 9, HIGHEST, HIGHEST), (10, 19, HIGHEST, HIGHEST), (20, 29, HIGHEST, HIGHEST))
    assert ids(aged_result_buckets(found, 20)) == [0, 1]
    assert new_results_aged_to(aged_result_buckets(found, 20), 5) == 20
    assert new_results_aged_to(aged_result_buckets(found, 20), 25) == 25
    assert ids(aged_result_buckets(found, 19)) == [0]


def test_of_results_that_never_end_none_goes_that_is_younger_than_one_that_stays() -> None:
    found = results((0, 9, HIGHEST, HIGHEST), (8, 40, HIGHEST, HIGHEST), (10, 19, HIGHEST, HIGHEST), (0, 7, 8, 9))
    assert ids(aged_result_buckets(found, 30)) == [3]
    assert ids(aged_result_buckets(found[:1] + found[2:], 30)) == [3, 0, 2]


def test_where_the_index_does_not_say_when_all_end_they_stay() -> None:
    found = results((0, 9, 12, HIGHEST), (10, 19, HIGHEST, HIGHEST))
    assert aged_result_buckets(found, 100) == []
