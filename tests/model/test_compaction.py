"""What compaction finds due, from the index alone."""

from __future__ import annotations

import pytest

from errata.model.bucket import MAX_INLINE_STREAM_BYTES, Bucket, Groups, Role
from errata.model.columns import Column, ColumnType
from errata.model.compaction import (
    MAX_FULL_BUCKETS,
    DueCompaction,
    RewriteReason,
    due_compaction,
    is_fold_worthwhile,
    last_whole_revision,
)
from errata.model.stream import Stream
from errata.model.time import HIGHEST

COLUMNS = (Column("at", ColumnType.parse("bigint")), Column("who", ColumnType.parse("string")))
STREAM = Stream("s", COLUMNS, ("at", "who"), "at", bucket_rows=100)
BY_WHO = Stream("s", COLUMNS, ("who",), "at", bucket_rows=100)


def base(number: int, low: int, rows: int = 100, high: int | None = None, **changes: object) -> Bucket:
    span = (low, low + 9 if high is None else high)
    values = {"path": f"{number}.parquet", "revision_first": None, "masked": 0, "floor": 0} | changes
    path, first, masked, floor = (values[name] for name in ("path", "revision_first", "masked", "floor"))
    about = (Groups(), "", "b", 1, None, first)
    return Bucket(number, Role.BASE, path, rows, 1_000, *span, *about, masked=masked, floor=floor)


def overlay(number: int, first: int, last: int, masks: tuple[int, int] | None = (0, 9), rows: int = 1) -> Bucket:
    about = (Groups(), "", "", 1, None, first, last)
    return Bucket(number, Role.OVERLAY, f"{number}.parquet", rows, 100, 0, 9, *about, masks=masks)


def found(
    buckets: list[Bucket], overlays: tuple[Bucket, ...] = (), stream: Stream = STREAM, **changes: object
) -> DueCompaction:
    how = {"aged_to": None, "inline_bytes": 0, "up_to": HIGHEST, "everything": False} | changes
    return due_compaction(buckets, overlays, stream, **how)


def merged(result: DueCompaction) -> list[list[int]]:
    return [[bucket.bucket_id for bucket in each.buckets] for each in result.merge]


def test_full_buckets_and_few_corrections_are_left_alone() -> None:
    assert found([base(at, 10 * at) for at in range(1_000)], (overlay(1, 1, 5, rows=400),)).nothing


@pytest.mark.parametrize(
    ("overlays", "rows", "worth"), [(8, 8, False), (9, 9, True), (1, 500, False), (1, 501, True), (0, 0, False)]
)
def test_many_overlays_or_many_rows_in_them_are_worth_working_in(overlays: int, rows: int, worth: bool) -> None:
    assert is_fold_worthwhile(overlays, rows, 100_000, 100) is worth


def test_of_a_small_archive_it_is_the_part_of_a_bucket_that_counts() -> None:
    assert not is_fold_worthwhile(1, 2_500, 1_000, 500_000)
    assert is_fold_worthwhile(1, 2_501, 1_000, 500_000)


def test_overlays_of_one_commit_go_together() -> None:
    overlays = [overlay(1, 1, 10), overlay(2, 11, 90), overlay(3, 12, 99), overlay(4, 95, 98)]
    assert [last_whole_revision(overlays, number) for number in (0, 5, 10, 50, 92, 98, 99)] == [
        0,
        0,
        10,
        10,
        10,
        10,
        99,
    ]


def test_what_has_still_to_be_consumed_is_held() -> None:
    first, second = overlay(1, 1, 10), overlay(2, 11, 20)
    result = found([base(1, 0)], (first, second), up_to=15, everything=True)
    assert (result.fold, result.held, result.up_to) == ((first,), (second,), 10)


def test_a_row_between_two_that_must_stay_apart_is_not_freed() -> None:
    """A bucket that came after a correction which is still to be consumed cannot be said to have come before it."""
    before, after, elsewhere = base(1, 0), base(2, 0, floor=20), base(3, 50, floor=20)
    overlays = (overlay(1, 1, 10), overlay(2, 11, 20))
    result = found([before, after, elsewhere], overlays, up_to=10, everything=True)
    assert [bucket.bucket_id for bucket in result.free] == [1, 3]
    result = found([before, after, elsewhere], overlays, BY_WHO, up_to=10, everything=True)
    assert [bucket.bucket_id for bucket in result.free] == [1], "room for its key can have been made anywhere"


def test_eight_small_ones_side_by_side_are_merged() -> None:
    few = [base(at, 10 * at, rows=5) for at in range(8)]
    assert merged(found(few)) == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert found(few[:7]).nothing
    assert merged(found(few[:7], everything=True)) == [[0, 1, 2, 3, 4, 5, 6]]


def test_a_full_one_parts_them() -> None:
    few = [base(at, 10 * at, rows=100 if at == 4 else 5) for at in range(9)]
    assert found(few).nothing


def test_as_many_as_fill_one_are_merged_even_when_few() -> None:
    assert merged(found([base(1, 0, rows=49), base(2, 10, rows=49), base(3, 20, rows=2)])) == [[1, 2, 3]]


def test_what_was_merged_is_not_written_again_for_each_few_that_come() -> None:
    grown = base(0, 0, rows=48)
    few = [base(at, 10 * at, rows=1) for at in range(1, 9)]
    assert merged(found([grown, *few])) == [[1, 2, 3, 4, 5, 6, 7, 8]]
    more = [base(at, 10 * at, rows=1) for at in range(1, 13)]
    assert merged(found([grown, *more])) == [list(range(13))]


def test_masked_rows_make_a_bucket_small() -> None:
    emptied = [base(at, 10 * at, masked=60) for at in range(3)]
    corrected = (overlay(9, 1, 180, rows=180),)
    assert merged(found(emptied, corrected, up_to=180)) == [[0, 1, 2]]
    assert merged(found([base(at, 10 * at, masked=50) for at in range(3)], corrected, up_to=180)) == []
    assert merged(found(emptied, corrected, up_to=0, everything=True)) == [], "not while the masks stay"


def test_a_run_is_never_more_than_a_task_holds() -> None:
    alike = [base(at, 0, rows=40, high=1_000) for at in range(50)]
    runs = merged(found(alike))
    assert sorted(number for run in runs for number in run) == list(range(50))
    assert max(len(run) for run in runs) * 40 < (MAX_FULL_BUCKETS + 1) * 100
    apart = [base(at, 10 * at, rows=40) for at in range(50)]
    assert max(len(run) for run in merged(found(apart))) == 3


def test_buckets_to_which_a_correction_is_not_the_same_are_not_merged() -> None:
    early = [base(at, 10 * at, rows=30) for at in range(4)]
    late = [base(at, 10 * at, rows=30, floor=5) for at in range(4, 8)]
    assert [each.floor for each in found([*early[:2], *late[:2]], (overlay(9, 1, 5, (0, 75)),), up_to=0).merge] == []
    result = found([*early, *late], (overlay(9, 1, 5, (0, 9)),), up_to=0)
    assert [[len(each.buckets), each.floor] for each in result.merge] == [[4, 0], [4, 5]]
    result = found([*early[:2], *late[:2]], (overlay(9, 1, 5, (0, 75), rows=3),), up_to=7)
    assert [each.floor for each in result.merge] == [7], "once it is worked in it is all the same"


def test_where_keys_move_what_aged_out_since_keeps_them_as_they_are() -> None:
    late = [base(at, 10 * at, rows=30, floor=5) for at in range(4, 8)]
    corrected = (overlay(9, 1, 5, (0, 9)),)
    for stream, aged_to, expected in (
        (BY_WHO, None, [[4, 5, 6, 7]]),
        (BY_WHO, 0, [[4, 5, 6, 7]]),
        (BY_WHO, 5, []),
        (STREAM, 5, [[4, 5, 6, 7]]),
    ):
        assert merged(found(late, corrected, stream, aged_to=aged_to, up_to=0)) == expected


def test_a_full_catalog_is_relieved_of_all_that_is_inline() -> None:
    inline = base(2, 10, path=None)
    buckets = [base(1, 0), inline, base(3, 20), base(4, 30, rows=1)]
    assert found(buckets, everything=True).nothing
    result = found(buckets, inline_bytes=MAX_INLINE_STREAM_BYTES)
    assert [(each.why, each.buckets) for each in result.merge] == [(RewriteReason.INLINE, (inline,))]
