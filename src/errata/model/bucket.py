"""Buckets: what the index knows of each piece of an archive without opening it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from errata.model.time import EVERYTHING, Interval

MAX_LISTED_GROUPS = 32
"""A bucket with at most this many groups lists them; one with more keeps only their range."""

MAX_INLINE_BYTES = 64 * 1024
"""A bucket of at most this size lives in the catalog itself."""

MAX_INLINE_STREAM_BYTES = 8 * 1024 * 1024
"""A stream with more than this inline is due for compaction; what comes next goes to files."""


class Role(StrEnum):
    """What a bucket's rows are to the archive."""

    BASE = "base"
    PENDING = "pending"
    OVERLAY = "overlay"
    """Revisions that have been applied: what they mask and what stands there instead."""
    OPEN = "open"
    """Of a query: results that count and whose end is not certain. The next evaluation replaces them all."""
    TIP = "tip"
    """Of a query: results that begin at the last instant that is answered, of which more may still be said."""
    STATE = "state"
    """Of a query: what its evaluation keeps for the next time; a cache."""
    FEED = "feed"
    """Of a query: changes of results that the results themselves do not tell."""
    MASK = "mask"
    """Of a query: which results, in the buckets there are, a correction has taken back."""
    PARTS = "parts"
    """Of a query: partial aggregates of its final results."""
    LINEAGE = "lineage"
    """Of a query: of each result from which to which time the rows lie that it was made of. A bucket of these reaches,
    in the index, from the first such row to the last result."""


class Layout(StrEnum):
    """How a base bucket's rows lie, and what is known of them without opening it (the paper's 4.1.1)."""

    BUCKETS = "buckets"
    """In stream order, found through the index."""
    GROUPED = "grouped"
    """The same, but by group and order inside."""
    CLUSTERED = "clustered"
    """Pieces of one sorted table that never overlap, found through Parquet's own statistics."""
    PLAIN = "plain"
    """Pieces of one growing table, as they came; nothing is known of them."""


Bounds = tuple[int, int]
"""The least and the greatest of some order fields, both included."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Which groups a bucket may hold: the members when few, else the range of the first group column's text."""

    low: str | None = None
    high: str | None = None
    members: frozenset[tuple[str | None, ...]] | None = None

    def may_hold(self, group: tuple[str | None, ...]) -> bool:
        """False only when no row of the bucket can be of the group (its values as text)."""
        if self.members is not None:
            return group in self.members
        if self.low is None or self.high is None or group[0] is None:
            return True
        return self.low <= group[0] <= self.high

    def members_json(self) -> str | None:
        if self.members is None:
            return None
        return json.dumps(sorted(map(list, self.members), key=json.dumps), separators=(",", ":"))

    @classmethod
    def of(cls, low: str | None, high: str | None, members_json: str | None) -> Groups:
        members = None
        if members_json is not None:
            members = frozenset(tuple(member) for member in json.loads(members_json))
        return cls(low, high, members)


@dataclass(frozen=True, slots=True)
class NewBucket:
    """A bucket that has been written and is not yet visible."""

    role: Role
    rows: int
    size: int
    """Bytes of the file, or of the inline data."""
    vs_min: int
    vs_max: int
    groups: Groups
    checksum: str
    path: str | None = None
    """Relative to the warehouse; None for an inline bucket."""
    data: bytes | None = None
    """The rows themselves, an Arrow stream, for an inline bucket."""
    layout: Layout = Layout.BUCKETS
    revisions: Bounds | None = None
    """The numbers of an overlay's revisions, or of the evaluations that masks are of; those of pending revisions are
    given at the commit, if not told here."""
    masks: Bounds | None = None
    """An overlay: where the rows that it masks lie."""
    content: Bounds | None = None
    """An overlay: where the rows lie that it brings."""
    floor: int | None = None
    """No revision up to this number concerns the rows; None: none that has been applied at the commit. Of results: no
    mask of an evaluation up to it does."""
    folded: int = 0
    """Revisions up to this number may be worked into the rows."""
    masked: int = 0
    """How many of its rows are superseded from the beginning."""
    ends: Bounds | None = None
    """Of results: the least and the greatest end of a lifetime."""

    def __post_init__(self) -> None:
        if (self.path is None) == (self.data is None):
            raise ValueError("a bucket is a file or inline, not both and not neither")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A row of the bucket index."""

    bucket_id: int
    role: Role
    path: str | None
    rows: int
    size: int
    """Bytes of the file, or of the inline data."""
    vs_min: int
    vs_max: int
    groups: Groups
    checksum: str
    batch_id: str
    added_in: int
    removed_in: int | None
    revision_first: int | None
    """The number of the first of a pending bucket's or an overlay's revisions, or of masks the first evaluation's."""
    revision_last: int | None = None
    batch_no: int | None = None
    """The batch that brought all of its rows; None when they are of several."""
    layout: Layout = Layout.BUCKETS
    masks: Bounds | None = None
    content: Bounds | None = None
    floor: int = 0
    folded: int = 0
    masked: int = 0
    """How many of its rows have been superseded, as things are now."""
    ends: Bounds | None = None

    @property
    def inline(self) -> bool:
        return self.path is None

    def share(self, interval: Interval) -> float:
        """About which part of the rows begins in an interval, as if they lay evenly."""
        low, high = max(self.vs_min, interval.start), min(self.vs_max, interval.end - 1)
        return max(0, high - low + 1) / (self.vs_max - self.vs_min + 1)

    def may_mask(self, results: Bucket) -> bool:
        """Of a bucket of masks: whether some can be of results in the other. What has been added later had no masked
        ones left, or was masked by what came later still."""
        later = results.added_in <= self.added_in and (self.revision_last is None or self.revision_last > results.floor)
        return later and self.vs_min <= results.vs_max and results.vs_min <= self.vs_max


def relevant_masks(masks: Iterable[Bucket], results: Iterable[Bucket]) -> list[Bucket]:
    """The buckets of masks that can concern results in some of the others."""
    some = list(results)
    return [mask for mask in masks if any(mask.may_mask(each) for each in some)]


def prune_buckets(
    buckets: Iterable[Bucket], interval: Interval, groups: frozenset[tuple[str | None, ...]] | None
) -> list[Bucket]:
    """The buckets that can hold a row of the interval and of one of the groups (None: any group)."""
    return [
        bucket
        for bucket in buckets
        # Everything is meant to the very end, which no half-open interval holds.
        if (interval == EVERYTHING or interval.meets(bucket.vs_min, bucket.vs_max))
        and (groups is None or any(bucket.groups.may_hold(group) for group in groups))
    ]
