"""What retention lets go."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from errata.model.ageing import due
from errata.model.bucket import Bucket, Groups, Role
from errata.model.columns import Column, ColumnType
from errata.model.stream import Retention, Stream

ENDLESS = Stream("s", (Column("at", ColumnType.parse("bigint")),), ("at",), "at", max_ahead=None)


def keeping(retention: Retention) -> Stream:
    return replace(ENDLESS, retention=retention)


def bucket(bucket_id: int, vs_min: int, vs_max: int, rows: int = 10, role: Role = Role.BASE) -> Bucket:
    return Bucket(bucket_id, role, "p", rows, 1, vs_min, vs_max, Groups(), "", "b", 1, None, None)


def ids(buckets: list[Bucket]) -> list[int]:
    return [bucket.bucket_id for bucket in buckets]


def test_without_a_retention_nothing_is_due() -> None:
    assert due([bucket(1, 0, 1)], ENDLESS, 10**9) == []


def test_a_span_drops_buckets_wholly_behind_it_and_no_others() -> None:
    buckets = [bucket(3, 95, 100), bucket(2, 10, 40), bucket(1, 0, 39)]
    assert ids(due(buckets, keeping(Retention(span=60)), 100)) == [1]
    assert ids(due(buckets, keeping(Retention(span=60)), 101)) == [1, 2]


def test_a_span_waits_for_a_stable_point() -> None:
    assert due([bucket(1, 0, 1)], keeping(Retention(span=1)), None) == []


def test_rows_drop_the_oldest_while_enough_remain() -> None:
    buckets = [bucket(2, 20, 29), bucket(1, 10, 19), bucket(3, 30, 39)]
    assert ids(due(buckets, keeping(Retention(rows=20)), None)) == [1]
    assert ids(due(buckets, keeping(Retention(rows=21)), None)) == []
    assert ids(due(buckets, keeping(Retention(rows=1)), None)) == [1, 2]


def test_the_first_written_of_equally_old_buckets_goes_first() -> None:
    assert ids(due([bucket(8, 0, 9), bucket(7, 5, 9)], keeping(Retention(rows=10)), None)) == [7]


def test_a_large_old_bucket_is_not_passed_over_for_a_small_younger_one() -> None:
    buckets = [bucket(1, 0, 9, rows=50), bucket(2, 10, 19, rows=5), bucket(3, 20, 29, rows=5)]
    assert due(buckets, keeping(Retention(rows=11)), None) == []


def test_pending_revisions_do_not_age_and_do_not_count() -> None:
    buckets = [bucket(1, 0, 9), bucket(2, 10, 19), bucket(3, 0, 1, role=Role.PENDING)]
    assert ids(due(buckets, keeping(Retention(span=1)), 100)) == [1, 2]
    assert ids(due(buckets, keeping(Retention(rows=11)), None)) == []


pieces = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=8)


@given(pieces, st.integers(1, 40))
def test_rows_keep_at_least_as_many_as_declared_and_no_bucket_more_than_needed(
    parts: list[tuple[int, int]], keep: int
) -> None:
    buckets = [bucket(number, end, end, rows) for number, (end, rows) in enumerate(parts)]
    dropped = due(buckets, keeping(Retention(rows=keep)), None)
    left = sorted((b for b in buckets if b not in dropped), key=lambda b: (b.vs_max, b.bucket_id))
    remaining = sum(b.rows for b in left)
    assert not dropped or remaining >= keep
    assert not left or remaining - left[0].rows < keep
    assert all(gone.vs_max <= kept.vs_max for gone in dropped for kept in left)
