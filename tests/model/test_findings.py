"""What is to be thought of values: figures, numbers, overlaps, positions and ledger entries."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from errata.model.bucket import Bounds, Bucket, Groups, Layout, Role
from errata.model.consistency import (
    LedgerEntry,
    StreamPosition,
    ledger_findings,
    number_findings,
    overlap_findings,
    overlapping_pairs,
    position_findings,
)
from errata.model.findings import (
    BucketFigures,
    BucketInspection,
    Finding,
    FindingKind,
    InspectedArchive,
    Severity,
    bucket_findings,
    by_severity,
    counter_findings,
    differing_figures,
    impact_text,
    restore_text,
)
from errata.model.time import DAY, HIGHEST, LOWEST

PATIENT = InspectedArchive("feed", timed=False, whole=3)


def a_bucket(low: int = 0, high: int = 9, number: int = 1, **changes: Any) -> Bucket:
    values: dict[str, Any] = {
        "role": Role.BASE,
        "path": f"feed/{number}",
        "rows": 10,
        "size": 100,
        "groups": Groups(),
        "checksum": "sha256:00",
        "batch_id": "b",
        "added_in": 2,
        "removed_in": None,
        "revision_first": None,
        "batch_no": 1,
    }
    return Bucket(bucket_id=number, vs_min=low, vs_max=high, **(values | changes))


def pending(first: int, last: int, number: int = 1, **changes: Any) -> Bucket:
    revisions = {"revision_first": first, "revision_last": last, "rows": last - first + 1}
    return a_bucket(0, 9, number, role=Role.PENDING, **(revisions | changes))


def seen(bucket: Bucket, **changes: Any) -> BucketInspection:
    known = BucketInspection(
        bucket.size,
        bucket.checksum,
        figures=BucketFigures.from_bucket(bucket),
        counting=bucket.rows,
        masked=bucket.masked,
    )
    return replace(known, **changes)


def kinds(bucket: Bucket, what: BucketInspection) -> list[FindingKind]:
    return [each.kind for each in bucket_findings(PATIENT, bucket, what)]


BUCKET = a_bucket()


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (seen(BUCKET), []),
        (BucketInspection(100), []),
        (BucketInspection(), [FindingKind.MISSING]),
        (BucketInspection(99), [FindingKind.SIZE]),
        (seen(BUCKET, size=99), [FindingKind.FIGURES]),
        (BucketInspection(100, "sha256:01"), [FindingKind.CHECKSUM]),
        (seen(BUCKET, fault="it cannot be opened"), [FindingKind.UNREADABLE]),
        (seen(BUCKET, nulls=("at",)), [FindingKind.NULLS]),
        (seen(BUCKET, disordered=True), [FindingKind.DISORDER]),
        (seen(BUCKET, unfiltered=("who",)), [FindingKind.FILTERS]),
        (seen(BUCKET, masked=1), [FindingKind.MASKED]),
        (seen(BUCKET, masked=None), []),
        (seen(BUCKET, figures=BucketFigures(9, 0, 9)), [FindingKind.FIGURES]),
        (seen(BUCKET, figures=BucketFigures(9, 0, 9), checksum="sha256:01", masked=3), [FindingKind.CHECKSUM]),
    ],
)
def test_of_a_bucket_the_worst_is_told_or_all_that_is_known(
    what: BucketInspection, expected: list[FindingKind]
) -> None:
    assert kinds(BUCKET, what) == expected


def test_a_bucket_is_whole_when_it_is_what_was_written_and_can_be_read() -> None:
    assert seen(BUCKET).whole(BUCKET)
    assert BucketInspection(100).whole(BUCKET)
    for each in (
        BucketInspection(),
        BucketInspection(99),
        BucketInspection(100, "sha256:01"),
        seen(BUCKET, fault="it cannot be opened"),
    ):
        assert not each.whole(BUCKET)


def test_of_what_only_old_commits_see_counts_and_filters_do_not_matter() -> None:
    old = replace(BUCKET, removed_in=5)
    assert kinds(old, seen(old, masked=1, unfiltered=("who",))) == []
    assert kinds(old, BucketInspection()) == [FindingKind.MISSING]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"rows": 9}, ["rows"]),
        ({"vs_min": 1}, ["vs_min"]),
        ({"vs_max": 1}, ["vs_max"]),
        ({"groups": Groups("a", "b")}, ["groups"]),
        ({"role": Role.OVERLAY, "revision_first": 1, "revision_last": 2}, ["revisions"]),
        ({"revision_first": 1, "revision_last": 2}, []),
        ({"masks": (1, 2)}, ["masks"]),
        ({"content": (1, 2)}, ["content"]),
        ({"size": 3}, ["bytes"]),
    ],
)
def test_figures_that_differ_are_named(changes: dict[str, Any], wrong: list[str]) -> None:
    told = replace(BUCKET, **changes)
    assert differing_figures(told, seen(BUCKET)) == wrong
    assert differing_figures(told, seen(BUCKET, checksum="sha256:01")) == []
    found = list(bucket_findings(PATIENT, told, seen(BUCKET)))
    assert [(each.kind, each.mendable) for each in found] == [(FindingKind.FIGURES, True)] * bool(wrong)
    assert all(wrong[0] in each.what for each in found)


@pytest.mark.parametrize(
    ("masks", "content", "hull"),
    [
        ((3, 5), (4, 9), (3, 9)),
        ((3, 5), None, (3, 5)),
        (None, (4, 9), (4, 9)),
        (None, None, (LOWEST, HIGHEST)),
    ],
)
def test_an_overlay_spans_what_it_masks_and_brings(masks: Bounds | None, content: Bounds | None, hull: Bounds) -> None:
    figures = BucketFigures.of_overlay(2, Groups(), (1, 2), masks, content)
    assert (figures.vs_min, figures.vs_max) == hull


def test_who_is_concerned_is_told() -> None:
    assert impact_text(PATIENT, BUCKET) == (
        "commits 2 on need its 10 rows of batch b from 0 to 9; 3 live buckets of the stream are whole"
    )
    old = replace(BUCKET, removed_in=5, batch_id="", role=Role.PENDING, vs_min=LOWEST)
    assert impact_text(InspectedArchive("feed", timed=False, whole=1), old) == (
        "commits 2 to 4 need its 10 pending revisions from anywhere to 9; 1 live bucket of the stream is whole"
    )
    timed = InspectedArchive("feed", timed=True)
    assert timed.span(DAY, HIGHEST - 1) == f"from 1970-01-02T00:00:00.000000 to {HIGHEST - 1}"


def test_what_to_restore_is_told() -> None:
    assert restore_text(BUCKET) == (
        "restore feed/1 (100 bytes, sha256:00) from a backup of the warehouse; without one go back to a backup from "
        "before commit 2 and take batch b's files in again"
    )
    inline = restore_text(replace(BUCKET, path=None, batch_id=""))
    assert inline.startswith("restore the catalog from a backup that has these 100 bytes, sha256:00; ")
    assert inline.endswith("before commit 2 and take in again what came since")


def test_counts_are_mendable_when_the_rows_have_been_looked_at() -> None:
    assert list(counter_findings(PATIENT, "rows", 3, 3)) == []
    (sure,) = counter_findings(PATIENT, "rows", 3, 4)
    (unsure,) = counter_findings(PATIENT, "rows", 3, 4, sure=False)
    assert sure.what == unsure.what == "rows is 3 and should be 4"
    assert (sure.mendable, unsure.mendable) == (True, False)
    assert unsure.how.startswith("errata doctor feed --deep")


def test_the_worst_comes_first() -> None:
    found = [Finding("a", FindingKind.PIN, "", "", "", "", severity=each) for each in reversed(Severity)]
    assert [each.severity for each in by_severity(found)] == list(Severity)


@pytest.mark.parametrize(
    ("spans", "pairs"),
    [
        ([(0, 3), (4, 7)], []),
        ([(0, 3), (3, 7)], []),
        ([(3, 3), (0, 3), (3, 3), (3, 9)], []),
        ([(0, 4), (3, 7)], [(1, 2)]),
        ([(0, 9), (1, 2), (3, 4)], [(1, 2), (1, 3)]),
        ([(0, 9), (9, 9), (8, 8)], [(1, 3)]),
    ],
)
def test_buckets_overlap_when_one_begins_before_another_ends(spans: list[Bounds], pairs: list[tuple[int, int]]) -> None:
    found = overlapping_pairs(a_bucket(low, high, number) for number, (low, high) in enumerate(spans, start=1))
    assert [(one.bucket_id, other.bucket_id) for one, other in found] == pairs


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 1),
        ({"batch_no": 2}, 0),
        ({"batch_no": None}, 0),
        ({"layout": Layout.PLAIN}, 0),
        ({"layout": Layout.CLUSTERED}, 1),
        ({"layout": Layout.CLUSTERED, "batch_no": 2}, 1),
        ({"layout": Layout.CLUSTERED, "batch_no": 2, "removed_in": 3}, 0),
    ],
)
def test_overlaps_matter_within_a_batch_and_in_a_clustered_table(changes: dict[str, Any], count: int) -> None:
    layout = changes.get("layout", Layout.BUCKETS)
    both = [a_bucket(0, 5, 1, layout=layout), a_bucket(3, 9, 2, **changes)]
    assert len(list(overlap_findings(PATIENT, both))) == count


NOW = StreamPosition(9, 5, 8, 20, 4, None, 2)


def numbers(revisions: int, *live: Bucket, withdrawn: tuple[Bucket, ...] = (), lost: int = 0, applied: int = 4) -> int:
    return len(list(number_findings(PATIENT, replace(NOW, applied=applied), revisions, live, withdrawn, lost)))


def overlay(first: int, last: int) -> Bucket:
    return a_bucket(0, 9, 7, role=Role.OVERLAY, revision_first=first, revision_last=last)


def test_settled_and_pending_numbers_are_all_there_are() -> None:
    assert numbers(4) == 0
    assert numbers(7, pending(5, 6), pending(7, 7, 2), overlay(1, 4)) == 0
    assert numbers(7, pending(7, 7, 2), pending(5, 6)) == 0


@pytest.mark.parametrize(
    ("revisions", "live"),
    [
        (3, []),
        (6, []),
        (6, [pending(5, 5)]),
        (6, [pending(6, 6)]),
        (6, [pending(4, 6)]),
        (6, [pending(5, 7)]),
        (6, [pending(5, 6, rows=3)]),
        (6, [pending(5, 6), pending(6, 6, 2)]),
        (4, [overlay(4, 5)]),
        (4, [overlay(0, 2)]),
        (4, [overlay(3, 2)]),
    ],
)
def test_numbers_with_gaps_or_twice_are_found(revisions: int, live: list[Bucket]) -> None:
    assert numbers(revisions, *live) == 1


def test_what_was_withdrawn_need_not_be_settled() -> None:
    assert numbers(8, pending(7, 8), withdrawn=(pending(5, 6, 2),)) == 0
    assert numbers(8, pending(7, 8), lost=2) == 0
    assert numbers(8, pending(7, 8), lost=1) == 1
    assert numbers(8, pending(5, 6), withdrawn=(pending(7, 8, 2),)) == 0


def positions(*before: StreamPosition, newest: int = 9, rows: bool = False, now: StreamPosition = NOW) -> list[str]:
    return [each.what for each in position_findings(PATIENT, now, before, newest=newest, rows=rows)]


def test_a_stream_stands_where_its_last_position_says() -> None:
    assert positions() == []
    assert positions(replace(NOW, commit_id=3, applied=1), NOW) == []
    assert positions(replace(NOW, rows=3)) == []
    assert positions(replace(NOW, rows=3), rows=True) == ["the stream stands at rows 20 instead of 3"]
    assert positions(replace(NOW, aged_to=3), rows=True) == ["the stream stands at aged_to None instead of 3"]
    assert positions(replace(NOW, commit_id=10), newest=10) == [
        "commit 9 is said to have moved it last, and commit 10 has"
    ]
    assert positions(NOW, newest=8) == ["commit 9 is said to have moved it last, and the newest is 8"]


@pytest.mark.parametrize("name", ["stable", "vs_max", "applied", "aged_to", "folded"])
def test_positions_never_go_back(name: str) -> None:
    before = replace(NOW, commit_id=3, **{name: 9})
    (what,) = positions(before, NOW)
    assert what == f"{name} went back from commit 3 to commit 9"


ENTRY = LedgerEntry(
    1, "b", 2, "b", {"read": 7, "appended": 5, "pending": 2}, 2, [1, 2], [3], [(0, 0, 2, 4), (1, 0, 6, 3)]
)
ROWS = {1: 3, 2: 2, 3: 2}


def ledger(vacuumed: bool = False, rows: dict[int, int] = ROWS, **changes: Any) -> int:
    return len(list(ledger_findings(PATIENT, replace(ENTRY, **changes), rows, vacuumed=vacuumed)))


@pytest.mark.parametrize(
    ("changes", "count", "vacuumed"),
    [
        ({}, 0, 0),
        ({"named": "c"}, 1, 1),
        ({"named": None}, 1, 1),
        ({"counts": {"read": 8, "appended": 5, "pending": 2}}, 1, 1),
        ({"counts": {"read": 8, "appended": 6, "pending": 2}}, 1, 1),
        ({"counts": {"read": 8, "appended": 5, "pending": 3}}, 1, 0),
        ({"counts": {"read": 6, "appended": 5, "pending": 1}}, 1, 1),
        ({"base": [1]}, 1, 0),
        ({"pending": []}, 1, 0),
        ({"splits": [(1, 0, 2, 4)]}, 1, 1),
        ({"splits": [(0, None, 2, 4)]}, 1, 1),
        ({"splits": [(0, 0, 2, 4), (1, 0, 7, 3)]}, 1, 1),
        ({"splits": [(1, 1, 2, 3), (0, 0, 2, 4)]}, 0, 0),
        ({"base": [], "buckets": None, "counts": {"read": 2, "pending": 2}}, 0, 0),
    ],
)
def test_the_ledger_adds_up(changes: dict[str, Any], count: int, vacuumed: int) -> None:
    assert ledger(**changes) == count
    assert ledger(vacuumed=True, **changes) == vacuumed


def test_the_ledger_is_compared_with_rows() -> None:
    assert ledger(rows=ROWS | {1: 4}) == 1
