"""What compaction has to do: which overlays to fold into base buckets, and which small buckets to merge.

This is decided from the bucket index alone. A rewrite is worth its cost when many rows lie over or beside the full
buckets; until then they cost readers little, and every rewrite takes space until the horizon has passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from errata.model.bucket import MAX_INLINE_STREAM_BYTES, Bucket, Layout
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST, Interval

MIN_FOLD_SHARE = 200
"""Overlays are folded when they have more than 1/200 of the archive's rows."""

MAX_OVERLAYS = 8
"""Overlays are folded when there are more than this many: each is opened by every scan that it may concern."""

MIN_MERGE_BUCKETS = 8
"""Adjacent small buckets that are merged even when they do not fill one."""

MERGE_GROWTH = 4
"""A bucket is merged with smaller ones when these together have 1/4 of its rows. Otherwise every few new rows would
cause all earlier ones to be written again."""

MAX_FULL_BUCKETS = 4
"""Full buckets that one merge makes at most: a task holds them in memory."""


class RewriteReason(StrEnum):
    """Why buckets are rewritten."""

    CORRECTED = "corrected"
    """Overlays mask rows of the bucket, or bring rows to it."""
    SMALL = "small"
    """It is small and adjacent to small ones."""
    OVERLAPPING = "overlapping"
    """It is a piece of a table that is sorted as a whole, and overlaps another piece."""
    INLINE = "inline"
    """It is inline, and the catalog holds as much of the stream as it should."""


@dataclass(frozen=True, slots=True)
class BucketMerge:
    """Buckets that are rewritten together, into one sorted sequence."""

    buckets: tuple[Bucket, ...]
    floor: int
    """The floor of the new buckets."""
    why: RewriteReason


@dataclass(frozen=True, slots=True)
class DueCompaction:
    """What compaction has to do, before any bucket has been opened."""

    fold: tuple[Bucket, ...]
    """Overlays to fold: all of those with revisions up to `up_to`."""
    up_to: int
    """The last revision that is folded; 0 for none."""
    merge: tuple[BucketMerge, ...]
    free: tuple[Bucket, ...]
    """Other buckets that rows of overlays may be removed from or added to. For overlays that stay, all of their rows
    count as older than `up_to`."""
    held: tuple[Bucket, ...] = ()
    """Overlays that stay because a consumer has still to take their revisions."""

    @property
    def nothing(self) -> bool:
        return not self.fold and not self.merge


def due_compaction(
    base: Sequence[Bucket],
    overlays: Sequence[Bucket],
    stream: Stream,
    *,
    aged_to: int | None,
    inline_bytes: int,
    up_to: int,
    everything: bool = False,
) -> DueCompaction:
    """The compaction that is due for live base buckets and overlays. No revision after `up_to` is folded; `everything`
    also does what is hardly worth it."""
    bucket_rows = stream.bucket_rows
    full = inline_bytes >= MAX_INLINE_STREAM_BYTES
    number = last_whole_revision(overlays, up_to)
    ready = tuple(overlay for overlay in overlays if _last_revision(overlay) <= number)
    held = tuple(overlay for overlay in overlays if _last_revision(overlay) > number)
    rows, least = sum(bucket.rows for bucket in base), sum(overlay.rows for overlay in ready)
    pressed = full and any(overlay.inline for overlay in ready)
    folds = bool(ready) and (everything or pressed or is_fold_worthwhile(len(ready), least, rows, bucket_rows))
    number = number if folds else 0
    staying = _RemainingOverlays(
        held if folds else overlays, stream.key_has_order, LOWEST if aged_to is None else aged_to
    )
    floors = {bucket.bucket_id: staying.floors(bucket) for bucket in base}
    rules = _MergeRules(bucket_rows, full, everything, number)
    overlapping = tuple(rules.overlapping(base, floors)) if stream.layout is Layout.CLUSTERED else ()
    taken = {bucket.bucket_id for each in overlapping for bucket in each.buckets}
    merge = (*overlapping, *rules.merges([each for each in base if each.bucket_id not in taken], floors))
    merged = {bucket.bucket_id for each in merge for bucket in each.buckets}
    free = (each for each in base if each.bucket_id not in merged and floors[each.bucket_id].low <= number)
    return DueCompaction(ready if folds else (), number, merge, tuple(free) if folds else (), held)


def is_fold_worthwhile(overlays: int, rows: int, base_rows: int, bucket_rows: int) -> bool:
    """Whether folding this number of overlays with this number of rows is worth its cost."""
    return overlays > MAX_OVERLAYS or rows > max(base_rows, bucket_rows) // MIN_FOLD_SHARE


def last_whole_revision(overlays: Sequence[Bucket], up_to: int) -> int:
    """The last number up to `up_to` that divides no overlay.

    Overlays of one commit share a range of numbers, and rows of one may mask rows of another, so they are folded
    together.
    """
    for overlay in sorted(overlays, key=_last_revision, reverse=True):
        if _first_revision(overlay) <= up_to < _last_revision(overlay):
            up_to = _first_revision(overlay) - 1
    return up_to


class _FloorRange(NamedTuple):
    """Equivalent floors of a bucket: those from `low` on and below `end`."""

    low: int
    end: int

    def also(self, other: _FloorRange) -> _FloorRange:
        return _FloorRange(max(self.low, other.low), min(self.end, other.end))

    @property
    def any(self) -> bool:
        return self.low < self.end


@dataclass(frozen=True, slots=True)
class _RemainingOverlays:
    """Overlays that stay. Each must mask the same rows after the rewrite as before it."""

    overlays: Sequence[Bucket]
    key_has_order: bool
    aged_to: int

    def floors(self, bucket: Bucket) -> _FloorRange:
        """The floors that keep each overlay on its side: before the rows of the bucket, or after them. This concerns
        overlays that may mask a row of the bucket, or may have freed the key of one; where the key does not contain
        the place, the freed key may be anywhere."""
        low, end = 0, HIGHEST
        reach = Interval(bucket.vs_min, bucket.vs_max + 1)
        for overlay in self.overlays:
            masks = overlay.masks
            if masks is None or (self.key_has_order and not reach.meets(*masks)):
                continue
            if _last_revision(overlay) > bucket.floor:
                end = min(end, _first_revision(overlay))
            elif self.key_has_order or masks[0] >= self.aged_to:
                low = max(low, _last_revision(overlay))
            else:
                # The freed row has been aged out since, so only the time of arrival tells which came first.
                return _NO_FLOORS
        return _FloorRange(low, end)


_NO_FLOORS = _FloorRange(HIGHEST, HIGHEST)


@dataclass(frozen=True, slots=True)
class _MergeRules:
    """Which buckets are merged, and when."""

    bucket_rows: int
    full: bool
    """Whether no more of the stream should be inline."""
    everything: bool
    up_to: int

    def overlapping(self, base: Sequence[Bucket], floors: dict[int, _FloorRange]) -> Iterator[BucketMerge]:
        """Buckets that overlap, of any size: each with those that begin before it ends."""
        run: list[Bucket] = []
        both = _FloorRange(0, HIGHEST)
        for bucket in sorted(base, key=lambda each: (each.vs_min, each.vs_max, each.bucket_id)):
            own = floors[bucket.bucket_id]
            reaches = bool(run) and bucket.vs_min <= max(each.vs_max for each in run)
            if not reaches or not both.also(own).any:
                if len(run) > 1:
                    yield BucketMerge(tuple(run), self._floor(run, both), RewriteReason.OVERLAPPING)
                run, both = [], _FloorRange(0, HIGHEST)
            run.append(bucket)
            both = both.also(own)
        if len(run) > 1:
            yield BucketMerge(tuple(run), self._floor(run, both), RewriteReason.OVERLAPPING)

    def merges(self, base: Sequence[Bucket], floors: dict[int, _FloorRange]) -> Iterator[BucketMerge]:
        for run in self._runs(base, floors):
            for some in self._worth(run):
                both = _FloorRange(0, HIGHEST)
                for bucket in some:
                    both = both.also(floors[bucket.bucket_id])
                inline = self.full and any(bucket.inline for bucket in some)
                yield BucketMerge(
                    some, self._floor(some, both), RewriteReason.INLINE if inline else RewriteReason.SMALL
                )

    def _floor(self, run: Sequence[Bucket], floors: _FloorRange) -> int:
        if self.up_to and floors.low <= self.up_to:
            return self.up_to
        return min(max(bucket.floor for bucket in run), floors.end - 1)

    def _left(self, bucket: Bucket) -> int:
        """The number of rows after the rewrite. Masked rows stay unless the overlays are folded."""
        return bucket.rows - bucket.masked if self.up_to else bucket.rows

    def _fits(self, bucket: Bucket) -> bool:
        return 2 * self._left(bucket) < self.bucket_rows or (self.full and bucket.inline)

    def _runs(self, base: Sequence[Bucket], floors: dict[int, _FloorRange]) -> Iterator[tuple[Bucket, ...]]:
        """Sequences of adjacent buckets that may be merged, none with more rows than a task can hold."""
        run: list[Bucket] = []
        rows, held, end, both = 0, 0, 0, _FloorRange(0, HIGHEST)
        for bucket in sorted(base, key=lambda each: (each.vs_min, each.vs_max, each.bucket_id)):
            own = floors[bucket.bucket_id]
            enough = (rows >= self.bucket_rows and bucket.vs_min > end) or held >= MAX_FULL_BUCKETS * self.bucket_rows
            fits = own.any and self._fits(bucket)
            if run and (enough or not fits or not both.also(own).any):
                yield tuple(run)
                run, rows, held, both = [], 0, 0, _FloorRange(0, HIGHEST)
            if fits:
                end = max(end, bucket.vs_max) if run else bucket.vs_max
                run.append(bucket)
                rows, held, both = rows + self._left(bucket), held + bucket.rows, both.also(own)
        if run:
            yield tuple(run)

    def _worth(self, run: tuple[Bucket, ...]) -> Iterator[tuple[Bucket, ...]]:
        """The run if it is worth merging, else the parts of it before and after its largest bucket that are."""
        if self.everything or (self.full and any(bucket.inline for bucket in run)):
            if len(run) > 1 or (self.full and run[0].inline):
                yield run
            return
        if len(run) < 2:
            return
        rows = sum(map(self._left, run))
        largest = max(range(len(run)), key=lambda at: self._left(run[at]))
        most = self._left(run[largest])
        alike = MERGE_GROWTH * (rows - most) >= most
        if rows >= self.bucket_rows or (len(run) >= MIN_MERGE_BUCKETS and alike):
            yield run
        elif len(run) > MIN_MERGE_BUCKETS:
            yield from self._worth(run[:largest])
            yield from self._worth(run[largest + 1 :])


def _first_revision(overlay: Bucket) -> int:
    return overlay.revision_first or 0


def _last_revision(overlay: Bucket) -> int:
    return overlay.revision_last or 0
