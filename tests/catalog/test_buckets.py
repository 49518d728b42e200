"""The bucket index against a list and a loop."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata.catalog import bucket_writes, buckets, declarations, streams
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.database import Catalog
from errata.model.bucket import Groups, Role
from errata.model.commit import Cause
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST, Interval
from fixtures.catalog import a_bucket, a_stream

CAUSE = Cause("append")
EDGES = [LOWEST, -1, 0, 1, 2**62, HIGHEST]

moments = st.one_of(st.sampled_from(EDGES), st.integers(-100, 100), st.integers(LOWEST, HIGHEST))
spans = st.tuples(moments, moments).map(lambda ends: (min(ends), max(ends)))


def test_lookups_agree_with_looking_at_all(catalog: Catalog) -> None:
    made = iter(range(10_000))

    @given(st.lists(spans, max_size=12), st.lists(spans, min_size=1, max_size=6))
    def check(written: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
        stream = a_stream(f"s{next(made)}")
        declared = declarations.apply_changes(catalog, CAUSE, write=[stream], drop=[], summary={})
        basis = streams.stream_state(catalog, stream.name)
        new = [a_bucket(low, high, path=f"{number}") for number, (low, high) in enumerate(written)]
        with catalog.writing() as connection:
            bucket_writes.add_buckets(connection, basis.stream_id, declared, BucketAddition(new))
        for start, end in asked:
            found = buckets.visible_buckets(catalog, basis.stream_id, declared, Interval(start, end))
            expected = [
                str(number) for number, (low, high) in enumerate(written) if start < end and low < end and high >= start
            ]
            assert sorted(each.path or "" for each in found) == sorted(expected)
            assert buckets.visible_buckets(catalog, basis.stream_id, declared - 1, Interval(start, end)) == []

    check()


@pytest.mark.parametrize("few", [2_000, 0])
def test_lookups_of_several_intervals_agree_with_looking_at_all(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(buckets, "MAX_JOINT_LOOKUP", few)
    made = iter(range(10_000))

    @given(st.lists(st.tuples(spans, moments), max_size=12), st.lists(spans, min_size=1, max_size=6))
    def check(written: list[tuple[tuple[int, int], int]], asked: list[tuple[int, int]]) -> None:
        stream = a_stream(f"several{next(made)}")
        declared = declarations.apply_changes(catalog, CAUSE, write=[stream], drop=[], summary={})
        at = (catalog, streams.stream_state(catalog, stream.name).stream_id, declared)
        new = [
            replace(a_bucket(low, high, path=f"{number}"), ends=(low, max(last, low)))
            for number, ((low, high), last) in enumerate(written)
        ]
        with catalog.writing() as connection:
            bucket_writes.add_buckets(connection, at[1], declared, BucketAddition(new))
        wanted = [(start, end) for start, end in asked if start < end]
        intervals = [Interval(*each) for each in asked]
        begin = {each.path for each in new if any(each.vs_min < end and each.vs_max >= start for start, end in wanted)}
        count = {
            each.path
            for each in new
            if each.ends is not None and any(each.vs_min < end and each.ends[1] > start for start, end in wanted)
        }
        for look_up, expected in ((buckets.overlapping_buckets, begin), (buckets.valid_result_buckets, count)):
            assert {each.path for each in look_up(*at, intervals, (Role.BASE,))} == expected
            assert look_up(*at, intervals, (Role.OPEN,)) == []

    check()


def test_groups_narrow_a_lookup(catalog: Catalog, ticks: Stream) -> None:
    few = a_bucket(0, 1, path="few", groups=Groups(members=frozenset({("a",), (None,)})))
    many = a_bucket(0, 1, path="many", groups=Groups("b", "m"))
    unknown = a_bucket(0, 1, path="unknown")
    with catalog.writing() as connection:
        bucket_writes.add_buckets(connection, 1, 1, BucketAddition([few, many, unknown]))

    def found(*groups: str | None) -> set[str | None]:
        wanted = frozenset((group,) for group in groups)
        return {each.path for each in buckets.visible_buckets(catalog, 1, 1, groups=wanted)}

    assert found("a") == {"few", "unknown"}
    assert found("c") == {"many", "unknown"}
    assert found(None) == {"few", "many", "unknown"}
    assert found("z") == {"unknown"}
    assert found("a", "m") == {"few", "many", "unknown"}
    assert {each.groups for each in buckets.visible_buckets(catalog, 1, 1)} == {few.groups, many.groups, unknown.groups}


def test_what_is_removed_stays_visible_before(catalog: Catalog, ticks: Stream) -> None:
    with catalog.writing() as connection:
        bucket_writes.add_buckets(connection, 1, 1, BucketAddition([a_bucket(0, 1), a_bucket(2, 3)]))
    ids = [each.bucket_id for each in buckets.visible_buckets(catalog, 1, 1)]
    with catalog.writing() as connection:
        assert bucket_writes.remove_buckets(connection, ids[:1], 2) == 1
        assert bucket_writes.remove_buckets(connection, ids[:1], 3) == 0
    assert len(buckets.visible_buckets(catalog, 1, 1)) == 2
    assert [each.bucket_id for each in buckets.visible_buckets(catalog, 1, 2)] == ids[1:]
