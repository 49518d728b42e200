"""What compaction has to do: which overlays are to be worked into the buckets, and which small buckets merged.

Decided from the bucket index alone. It is worth a rewrite when what lies over or beside the full buckets has become
much; until then it costs little, and every rewrite costs space until the horizon has passed.
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
"""Overlays that have more than this part of the archive's rows are worth working in."""

MAX_OVERLAYS = 8
"""So are more overlays than this: each is opened by every scan that it may concern."""

MIN_MERGE_BUCKETS = 8
"""So many small buckets side by side are merged even when they do not fill one."""

MERGE_GROWTH = 4
"""A bucket is merged with smaller ones when these together have this part of its rows. Else each few that come would
have all before them written again."""

MAX_FULL_BUCKETS = 4
"""Buckets that overlap are merged, as far as they go, into this many full ones: a task holds them in memory."""


class RewriteReason(StrEnum):
    """Why something is rewritten."""

    CORRECTED = "corrected"
    """Overlays mask rows of it, or bring rows to it."""
    SMALL = "small"
    """It is small and lies beside small ones."""
    OVERLAPPING = "overlapping"
    """It is a piece of a table that is to be sorted as a whole, and reaches into another one."""
    INLINE = "inline"
    """It lives in the catalog, which holds as much of the stream as it should."""


@dataclass(frozen=True, slots=True)
class BucketMerge:
    """Buckets that become one stretch of new ones."""

    buckets: tuple[Bucket, ...]
    floor: int
    """What the new ones have for a floor."""
    why: RewriteReason


@dataclass(frozen=True, slots=True)
class DueCompaction:
    """What is to be done, before anything has been opened."""

    fold: tuple[Bucket, ...]
    """Overlays to be worked in: those of the first so many revisions, whole."""
    up_to: int
    """The last revision that is worked in; 0 for none."""
    merge: tuple[BucketMerge, ...]
    free: tuple[Bucket, ...]
    """Other buckets that rows of overlays may be taken from or put into: all of their rows are older than `up_to`, as
    far as what stays an overlay can tell."""
    held: tuple[Bucket, ...] = ()
    """Overlays that have to stay because somebody has still to consume their revisions."""

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
    """What is due of live base buckets and overlays. No revision after `up_to` may be worked in; `everything` makes
    little enough."""
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
    """Whether so many overlays with so many rows are worth working in."""
    return overlays > MAX_OVERLAYS or rows > max(base_rows, bucket_rows) // MIN_FOLD_SHARE


def last_whole_revision(overlays: Sequence[Bucket], up_to: int) -> int:
    """The last number up to `up_to` that cuts through no overlay.

    Overlays of one commit share a range of numbers, and rows of one may mask rows of another: they go together.
    """
    for overlay in sorted(overlays, key=_last_revision, reverse=True):
        if _first_revision(overlay) <= up_to < _last_revision(overlay):
            up_to = _first_revision(overlay) - 1
    return up_to


class _FloorRange(NamedTuple):
    """Floors that all say the same of a bucket's rows: from `low` on, and below `end`."""

    low: int
    end: int

    def also(self, other: _FloorRange) -> _FloorRange:
        return _FloorRange(max(self.low, other.low), min(self.end, other.end))

    @property
    def any(self) -> bool:
        return self.low < self.end


@dataclass(frozen=True, slots=True)
class _RemainingOverlays:
    """Overlays that stay: what is rewritten beside them has to be to them what it was."""

    overlays: Sequence[Bucket]
    key_has_order: bool
    aged_to: int

    def floors(self, bucket: Bucket) -> _FloorRange:
        """No overlay may change sides that may mask a row of the bucket, or have made room for one: some came before
        the rows, and the others after. Where the key does not tell the place, room can be made anywhere."""
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
                # What made room has been aged out since, and when the rows came tells whether before that.
                return _NO_FLOORS
        return _FloorRange(low, end)


_NO_FLOORS = _FloorRange(HIGHEST, HIGHEST)


@dataclass(frozen=True, slots=True)
class _MergeRules:
    """What is merged, and when."""

    bucket_rows: int
    full: bool
    """No more of the stream is to live in the catalog."""
    everything: bool
    up_to: int

    def overlapping(self, base: Sequence[Bucket], floors: dict[int, _FloorRange]) -> Iterator[BucketMerge]:
        """Buckets that reach into each other, whatever their size: each with those that begin before it ends."""
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
        """How many rows it will have. What masks others stays with them unless it is worked in."""
        return bucket.rows - bucket.masked if self.up_to else bucket.rows

    def _fits(self, bucket: Bucket) -> bool:
        return 2 * self._left(bucket) < self.bucket_rows or (self.full and bucket.inline)

    def _runs(self, base: Sequence[Bucket], floors: dict[int, _FloorRange]) -> Iterator[tuple[Bucket, ...]]:
        """Stretches of buckets that may be merged and that no other bucket parts, none too much for a task."""
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
        """The run, if it is worth merging, or what is to the left and right of its largest bucket."""
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
