"""The horizon: which past commits can still be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from errata.model.bucket import Bucket
from errata.model.stream import Retention
from errata.model.time import HIGHEST, LOWEST


def is_readable(superseded_at: int | None, now: int, horizon: int) -> bool:
    """Whether a commit was still the newest at some moment of the horizon, which reaches from `now - horizon` to now.

    `superseded_at` is the wall-clock time of the commit after it; None is for the newest, which is always readable.
    """
    return superseded_at is None or superseded_at > now - horizon


def oldest_kept_commit(oldest_readable: int, oldest_pinned: int | None) -> int:
    """The first commit whose state must stay whole: the horizon keeps it readable, or a reader has pinned it."""
    return oldest_readable if oldest_pinned is None else min(oldest_readable, oldest_pinned)


def is_spent(removed_in: int | None, kept_from: int) -> bool:
    """Whether no commit from `kept_from` on sees what became invisible in `removed_in`; None: it has not."""
    return removed_in is not None and removed_in <= kept_from


def is_forgotten(vs_max: int, aged_to: int | None, dropped: bool) -> bool:
    """Whether none of the rows can be in the archive any more: their stream has been dropped, or they have aged out."""
    return dropped or (aged_to is not None and vs_max < aged_to)


# Ageing: which buckets a stream's retention lets go. Only whole buckets are dropped (replay-revisions-2008, 4.1).


def retention_start(retention: Retention, stable: int, youngest_first: Iterable[tuple[int, int]]) -> int | None:
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


def aged_buckets(base: Iterable[Bucket], before: int) -> list[Bucket]:
    """The base buckets that lie wholly before a place, oldest first.

    A bucket that only partly does stays until all of it does.
    """
    return sorted((bucket for bucket in base if bucket.vs_max < before), key=lambda each: (each.vs_max, each.bucket_id))


def new_aged_to(dropped: Sequence[Bucket], former: int | None, row_by_row: int | None = None) -> int | None:
    """Where an archive begins once these buckets are dropped: rows before it no longer count, wherever they lie.

    `row_by_row` is the very place before which nothing is kept, for what ages row by row. None when nothing goes.
    """
    end = max((bucket.vs_max + 1 for bucket in dropped), default=None) if row_by_row is None else row_by_row
    if end is None or (not dropped and former is not None and end <= former):
        return None
    return end if former is None else max(end, former)


def aged_result_buckets(base: Iterable[Bucket], before: int) -> list[Bucket]:
    """The base buckets of results of which none is left behind a place, oldest first.

    A result is past once it has ended; one that never ends is as old as its beginning, like a row of a stream. Of those
    that never end none goes that is younger than one that stays, so that what is left is whole from some place on.
    """
    found = list(base)
    ended = [each for each in found if _latest_end(each) <= before]
    lasting = [each for each in found if _latest_end(each) == HIGHEST]
    cut = before
    while beyond := [each.vs_min for each in lasting if each.vs_min < cut and not _never_ending_before(each, cut)]:
        cut = min(beyond)
    due = [*ended, *(each for each in lasting if _never_ending_before(each, cut))]
    return sorted(due, key=lambda each: (each.vs_max, each.bucket_id))


def new_results_aged_to(dropped: Iterable[Bucket], former: int | None) -> int | None:
    """The first instant whose answer is whole once these buckets are dropped; None: every instant's still is."""
    ends = (each.vs_max + 1 if _latest_end(each) == HIGHEST else _latest_end(each) for each in dropped)
    last = max(ends, default=None)
    return former if last is None else last if former is None else max(last, former)


def _latest_end(bucket: Bucket) -> int:
    return HIGHEST if bucket.ends is None else bucket.ends[1]


def _never_ending_before(bucket: Bucket, before: int) -> bool:
    """Whether all results of a bucket never end, and began before a place. Of a bucket with others among them, the
    index does not say when those end."""
    return bucket.ends is not None and bucket.ends[0] == HIGHEST and bucket.vs_max < before


# Which records of the past an archive still needs: of its evaluations, and of where it stood after each commit.
#
#     commits  ──1────────────K──────────▶
#                   ▲         │ horizon, pins
#                   F         everything from F on is kept
#
# F is the last evaluation behind the horizon K that took the answer on, all the way: what came after it is told from
# there. Of what lies before F only single records stay.


@dataclass(frozen=True, slots=True)
class PastEvaluation:
    """An evaluation that was committed behind the horizon."""

    number: int
    commit_id: int
    data_commit: int
    goes_on: bool
    """Whether it took the answer on, all the way: it is no correction, and no part."""
    refused: bool
    """Whether it left revisions out for good, which `errata status` tells."""


@dataclass(frozen=True, slots=True)
class PastPosition:
    """Where a stream stood after a commit behind the horizon."""

    commit_id: int
    applied: int
    aged_to: int | None


def first_kept_evaluation(past: Sequence[PastEvaluation], data_commit: int) -> PastEvaluation | None:
    """Of evaluations behind the horizon, oldest first, the last from which others can be told: it took the answer on,
    and had read no later state of the streams than other queries stand at. None: all have to stay."""
    told = [each for each in past if each.goes_on and each.data_commit <= data_commit]
    return told[-1] if told else None


def forgettable_evaluations(past: Iterable[PastEvaluation], first: PastEvaluation) -> list[int]:
    """The numbers of those before the first that is kept. Not of the very first: it tells since when the results stand;
    and not of those whose refusals are still shown."""
    return [each.number for each in past if 1 < each.number < first.number and not each.refused]


def forgettable_positions(past: Sequence[PastPosition], needed_at: Collection[int]) -> list[int]:
    """The commits of positions behind the horizon, oldest first, that nobody needs. The last of them is what was so at
    its edge. The first with each number of revisions, and with each beginning of what is kept, is what the history of a
    row is told from. `needed_at` are commits at which somebody looks, however old they are."""
    kept = {past[-1].commit_id} if past else set()
    applied, aged = set[int](), set[int | None]()
    for each in past:
        if each.applied not in applied or each.aged_to not in aged:
            kept.add(each.commit_id)
        applied.add(each.applied)
        aged.add(each.aged_to)
    for commit_id in needed_at:
        kept.add(max((each.commit_id for each in past if each.commit_id <= commit_id), default=0))
    return [each.commit_id for each in past if each.commit_id not in kept]
