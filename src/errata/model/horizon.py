"""What is kept of the past: readable commits, rows and results within their retention, and records of the past.

Ageing drops whole buckets only (replay-revisions-2008, 4.1). Records are dropped behind the horizon:

    commits  ──1────────────K──────────▶
                  ▲         │ horizon, pins
                  F         everything from F on is kept

F is the last evaluation behind the horizon K that took the answer on completely: what came after it can be told from
there. Of the records before F only single ones stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from errata.model.bucket import Bucket
from errata.model.stream import Retention
from errata.model.time import HIGHEST, LOWEST


def is_readable(superseded_at: int | None, now: int, horizon: int) -> bool:
    """Whether a commit was the newest one at some time from `now - horizon` to now.

    `superseded_at` is the wall-clock time of the next commit; None for the newest, which is always readable.
    """
    return superseded_at is None or superseded_at > now - horizon


def oldest_kept_commit(oldest_readable: int, oldest_pinned: int | None) -> int:
    """The first commit whose state must stay complete, since the horizon or a pin keeps it readable."""
    return oldest_readable if oldest_pinned is None else min(oldest_readable, oldest_pinned)


def is_spent(removed_in: int | None, kept_from: int) -> bool:
    """Whether no commit from `kept_from` on sees a bucket that was removed in `removed_in`; None: it was not."""
    return removed_in is not None and removed_in <= kept_from


def is_forgotten(vs_max: int, aged_to: int | None, dropped: bool) -> bool:
    """Whether none of a bucket's rows is in the archive any more: the stream was dropped, or they have aged out."""
    return dropped or (aged_to is not None and vs_max < aged_to)


def retention_start(retention: Retention, stable: int, youngest_first: Iterable[tuple[int, int]]) -> int | None:
    """The place from which on everything is kept; None when everything is.

    For a retention in rows, `youngest_first` gives the beginning and the number of live rows of each base bucket, the
    last beginning first. Rows are counted by whole buckets, and only as many buckets are read as stay. Rows behind the
    stable point stay in any case, since their neighbours may still come.
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
    """The base buckets that lie completely before a place, oldest first; others stay until they do."""
    return sorted((bucket for bucket in base if bucket.vs_max < before), key=lambda each: (each.vs_max, each.bucket_id))


def new_aged_to(dropped: Sequence[Bucket], former: int | None, row_by_row: int | None = None) -> int | None:
    """The place before which rows no longer count once these buckets are dropped, whatever bucket they are in.

    `row_by_row` is the place itself, for layouts that age row by row. None when nothing is dropped.
    """
    end = max((bucket.vs_max + 1 for bucket in dropped), default=None) if row_by_row is None else row_by_row
    if end is None or (not dropped and former is not None and end <= former):
        return None
    return end if former is None else max(end, former)


def aged_result_buckets(base: Iterable[Bucket], before: int) -> list[Bucket]:
    """The base buckets whose results are all past at a place, oldest first.

    A result is past once it has ended; one that never ends is as old as its beginning, like a row of a stream. None of
    the latter is dropped that is younger than one that stays, so that the rest is complete from some place on.
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
    """The first instant whose answer is complete once these buckets are dropped; None: all answers are."""
    ends = (each.vs_max + 1 if _latest_end(each) == HIGHEST else _latest_end(each) for each in dropped)
    last = max(ends, default=None)
    return former if last is None else last if former is None else max(last, former)


def _latest_end(bucket: Bucket) -> int:
    return HIGHEST if bucket.ends is None else bucket.ends[1]


def _never_ending_before(bucket: Bucket, before: int) -> bool:
    """Whether all results of a bucket never end, and began before a place. For a bucket with both kinds the index does
    not say when the others end."""
    return bucket.ends is not None and bucket.ends[0] == HIGHEST and bucket.vs_max < before


@dataclass(frozen=True, slots=True)
class PastEvaluation:
    """An evaluation that was committed behind the horizon."""

    number: int
    commit_id: int
    data_commit: int
    goes_on: bool
    """Whether it took the answer on completely: it is neither a correction nor a part."""
    refused: bool
    """Whether it refused revisions, which `errata status` reports."""


@dataclass(frozen=True, slots=True)
class PastPosition:
    """The state of a stream after a commit behind the horizon."""

    commit_id: int
    applied: int
    aged_to: int | None


def first_kept_evaluation(past: Sequence[PastEvaluation], data_commit: int) -> PastEvaluation | None:
    """The last of the evaluations behind the horizon, oldest first, that took the answer on and had read no later state
    of the streams than `data_commit`. None: all have to stay."""
    told = [each for each in past if each.goes_on and each.data_commit <= data_commit]
    return told[-1] if told else None


def forgettable_evaluations(past: Iterable[PastEvaluation], first: PastEvaluation) -> list[int]:
    """The numbers of those before the first that is kept, without the very first, which says since when there are
    results, and without those whose refusals are still shown."""
    return [each.number for each in past if 1 < each.number < first.number and not each.refused]


def forgettable_positions(past: Sequence[PastPosition], needed_at: Collection[int]) -> list[int]:
    """The commits of positions behind the horizon, oldest first, that can be deleted. These stay: the last one, the
    state at the edge of the horizon; the first with each number of applied revisions and with each `aged_to`, which
    the history of a row needs; and the last one up to each commit in `needed_at`."""
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
