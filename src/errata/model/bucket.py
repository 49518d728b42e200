"""Buckets: pieces of an archive, and what the index knows of each without opening it.

A bucket holds rows that lie near each other in event time, in one file or inline in the catalog. Its role says what the
rows are to the archive; bounds of times and of groups let a reader skip it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from errata.model.time import EVERYTHING, Interval

MAX_LISTED_GROUPS = 32
"""Groups that a bucket lists at most; one with more keeps only their range."""

MAX_INLINE_BYTES = 64 * 1024
"""Bytes up to which a bucket is stored inline, in the catalog: small batches cost no file."""

MAX_INLINE_STREAM_BYTES = 8 * 1024 * 1024
"""Inline bytes of a stream above which it is due for compaction, and new buckets go to files: bounds the catalog."""


class Role(StrEnum):
    """What a bucket's rows are to the archive."""

    BASE = "base"
    PENDING = "pending"
    OVERLAY = "overlay"
    """Applied revisions: what they mask, and the rows that replace it."""
    OPEN = "open"
    """Of a query: results whose end is not known yet. The next evaluation replaces them all."""
    TIP = "tip"
    """Of a query: results that begin at the last instant that is answered, which later rows may still change."""
    STATE = "state"
    """Of a query: the state that an evaluation keeps for the next one; a cache."""
    FEED = "feed"
    """Of a query: change records that do not follow from the results themselves."""
    MASK = "mask"
    """Of a query: results in other buckets that a correction has retracted."""
    PARTS = "parts"
    """Of a query: partial aggregates of its final results."""
    COPY = "copy"
    """Of a stream: the rows of a base bucket whose sampling hash lies in the copy's span. It names its original."""
    SUMMARY = "summary"
    """Of a stream: partial aggregates of the rows of a base bucket. It names its original."""
    MERGE = "merge"
    """Of a stream with feeds: what the merge remembers between batches. Each batch replaces it."""
    LINEAGE = "lineage"
    """Of a query: for each result the first and the last time of the rows that it was computed from. In the index such
    a bucket reaches from the first of these rows to the last result."""


REPLACED_ROLES = (Role.STATE, Role.MERGE)
"""What each step replaces: only the next step reads it, and no reader of an older commit."""


class Layout(StrEnum):
    """How the rows of base buckets lie, and how they are found (replay-revisions-2008, 4.1.1)."""

    BUCKETS = "buckets"
    """In stream order, found through the index."""
    GROUPED = "grouped"
    """The same, but sorted by group and then by order inside."""
    CLUSTERED = "clustered"
    """Pieces of one sorted table that do not overlap, found through Parquet's own statistics."""
    RANDOMIZED = "randomized"
    """In blocks by the sampling hash, and in stream order within a block: a sample is read block by block
    (oscar-archives-2004, 4.1.3)."""
    PLAIN = "plain"
    """Pieces of one growing table, in the order of arrival; all of them are read."""


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
class Resolution:
    """Which part of an archive's rows a bucket has: those whose sampling hash lies in a span (Chandrasekaran and
    Franklin 2004). All but copies have all."""

    rate: float = 1.0
    """The expected share of the rows, above 0."""
    hashes: Interval = EVERYTHING
    """The span of the hash; HIGHEST as its end means no end."""


FULL_RESOLUTION = Resolution()


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
    """The first and last number of an overlay's revisions, or of the evaluations whose results are masked. Pending
    revisions are numbered by the commit."""
    masks: Bounds | None = None
    """Of an overlay: the least and greatest order field of the rows that it masks."""
    content: Bounds | None = None
    """Of an overlay: the least and greatest order field of the rows that it brings."""
    floor: int | None = None
    """No revision up to this number concerns the rows; None: none of those that have been applied at the commit. Of
    results: no mask of an evaluation up to this number."""
    folded: int = 0
    """Revisions up to this number may be worked into the rows."""
    masked: int = 0
    """The number of its rows that are superseded from the beginning."""
    ends: Bounds | None = None
    """Of results: the least and the greatest end of a lifetime."""
    resolution: Resolution = FULL_RESOLUTION
    reduced: Sequence[NewBucket] = ()
    """Copies and summaries of the bucket, which become visible with it."""

    def __post_init__(self) -> None:
        if (self.path is None) == (self.data is None):
            raise ValueError("a bucket is a file or inline, not both and not neither")

    @property
    def files(self) -> list[str]:
        """Its file and those of its copies and summaries."""
        return [*([] if self.path is None else [self.path]), *(path for each in self.reduced for path in each.files)]

    @property
    def inline_size(self) -> int:
        """The bytes of it, its copies and its summaries that are stored inline."""
        return (self.size if self.path is None else 0) + sum(each.inline_size for each in self.reduced)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket as it is in the index."""

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
    """The first number of a pending bucket's or an overlay's revisions, or of the evaluations that masks concern."""
    revision_last: int | None = None
    batch_no: int | None = None
    """The batch that brought all of its rows; None when they are of several."""
    layout: Layout = Layout.BUCKETS
    masks: Bounds | None = None
    content: Bounds | None = None
    floor: int = 0
    folded: int = 0
    masked: int = 0
    """The number of its rows that are superseded now."""
    ends: Bounds | None = None
    resolution: Resolution = FULL_RESOLUTION
    original: int | None = None
    """Of a copy or summary: the id of the base bucket that it was made from."""

    @property
    def inline(self) -> bool:
        return self.path is None

    @property
    def derived(self) -> bool:
        """Whether all of it follows from another bucket: a copy or summary whose original is there."""
        return self.role in (Role.COPY, Role.SUMMARY) and self.original is not None

    def share(self, interval: Interval) -> float:
        """The estimated part of the rows that begin in an interval, as if they lay evenly."""
        low, high = max(self.vs_min, interval.start), min(self.vs_max, interval.end - 1)
        return max(0, high - low + 1) / (self.vs_max - self.vs_min + 1)

    def may_mask(self, results: Bucket) -> bool:
        """Of a bucket of masks: whether some can concern results in the other. Results that were added later contain no
        masked ones, or have later masks of their own."""
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
