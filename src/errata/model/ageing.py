"""Ageing: which buckets a stream's retention lets go. Only whole buckets are dropped (replay-revisions-2008, 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from errata.model.bucket import Bucket
from errata.model.interval import HIGHEST, LOWEST
from errata.model.stream import Retention


def kept_from(retention: Retention, stable: int, youngest_first: Iterable[tuple[int, int]]) -> int | None:
    """The place from which on nothing may go; None when nothing may go at all.

    Where rows are counted, `youngest_first` tells of each base bucket where it begins and how many live rows it has,
    the last beginning first. Only rows of whole buckets count, so that all of them stay; and only so many buckets are
    looked at as will stay. What is not stable yet stays in any case: its neighbours may still come.
    """
    if retention.rows is None:
        return max(stable - (retention.span or 0), LOWEST)
    rows = 0
    for start, live in youngest_first:
        rows += live
        if rows >= retention.rows:
            return min(start, stable)
    return None


def due(base: Iterable[Bucket], before: int) -> list[Bucket]:
    """The base buckets that lie wholly before a place, oldest first.

    A bucket that only partly does stays until all of it does.
    """
    return sorted((bucket for bucket in base if bucket.vs_max < before), key=lambda each: (each.vs_max, each.bucket_id))


def aged_to(dropped: Sequence[Bucket], former: int | None, row_by_row: int | None = None) -> int | None:
    """Where an archive begins once these buckets are dropped: rows before it no longer count, wherever they lie.

    `row_by_row` is the very place before which nothing is kept, for what ages row by row. None when nothing goes.
    """
    end = max((bucket.vs_max + 1 for bucket in dropped), default=None) if row_by_row is None else row_by_row
    if end is None or (not dropped and former is not None and end <= former):
        return None
    return end if former is None else max(end, former)


def results_due(base: Iterable[Bucket], before: int) -> list[Bucket]:
    """The base buckets of results of which none is left behind a place, oldest first.

    A result is past once it has ended; one that never ends is as old as its beginning, like a row of a stream. Of those
    that never end none goes that is younger than one that stays, so that what is left is whole from some place on.
    """
    found = list(base)
    ended = [each for each in found if _end(each) <= before]
    lasting = [each for each in found if _end(each) == HIGHEST]
    cut = before
    while beyond := [each.vs_min for each in lasting if each.vs_min < cut and not _past(each, cut)]:
        cut = min(beyond)
    due = [*ended, *(each for each in lasting if _past(each, cut))]
    return sorted(due, key=lambda each: (each.vs_max, each.bucket_id))


def results_aged_to(dropped: Iterable[Bucket], former: int | None) -> int | None:
    """The first instant whose answer is whole once these buckets are dropped; None: every instant's still is."""
    ends = (each.vs_max + 1 if _end(each) == HIGHEST else _end(each) for each in dropped)
    last = max(ends, default=None)
    return former if last is None else last if former is None else max(last, former)


def _end(bucket: Bucket) -> int:
    return HIGHEST if bucket.ends is None else bucket.ends[1]


def _past(bucket: Bucket, before: int) -> bool:
    """Whether all results of a bucket never end, and began before a place. Of a bucket with others among them, the
    index does not say when those end."""
    return bucket.ends is not None and bucket.ends[0] == HIGHEST and bucket.vs_max < before
