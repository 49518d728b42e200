"""Match segments as bytes, the store that finds a bucket's matches in them, and what they cost each query.

    count ┃ number of each conjunction ┃ its matching rows ┃ where its bytes end ┃ row sets, one behind the other
    int64 ┃ int64 …                    ┃ int64 …           ┃ int64 …             ┃ bytes

A conjunction that no row of the bucket satisfies is not in the segment at all. One that was not matched, since only
queries that keep nothing have it, has -1 rows, and is matched on the spot when it is asked for. Reading one
conjunction's rows is a bisection among the numbers and the decoding of its own bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.catalog import commits, match_segments, streams
from errata.catalog.match_segments import BucketKey, MatchSegment, bucket_key
from errata.declare.site import Site
from errata.model.bucket import Bucket
from errata.model.registered import RegisteredQuery
from errata.psoup.byte_cache import ByteCache
from errata.psoup.row_sets import RowSet

SEGMENT_CACHE_BYTES = 64 * 1024 * 1024
"""Bytes of match segments that a reader keeps in memory."""

ENTRY_BYTES = 24
"""Bytes of a conjunction in a segment besides its row set."""

UNMATCHED: tuple[int, bytes] = (-1, b"")
"""What a segment has for a conjunction that has not been matched."""


@dataclass(frozen=True, slots=True)
class SegmentContent:
    """The content of a match segment: arrays over its bytes."""

    conjunctions: np.ndarray
    counts: np.ndarray
    ends: np.ndarray
    payload: bytes

    def is_matched(self, conjunction: int) -> bool:
        """Whether it is known which rows satisfy a conjunction that the segment covers."""
        place = int(np.searchsorted(self.conjunctions, conjunction))
        at_place = self.conjunctions[place : place + 1] == conjunction
        return not at_place.any() or bool(self.counts[place] >= 0)

    def rows_of(self, conjunction: int) -> RowSet | None:
        """The rows that satisfy a conjunction; None if there are none."""
        place = int(np.searchsorted(self.conjunctions, conjunction))
        if place == len(self.conjunctions) or self.conjunctions[place] != conjunction:
            return None
        return RowSet.decode(self.bytes_at(place))

    def bytes_at(self, place: int) -> bytes:
        """The bytes of the row set at a place."""
        begin = int(self.ends[place - 1]) if place else 0
        return self.payload[begin : int(self.ends[place])]

    @property
    def sizes(self) -> np.ndarray:
        """The bytes of each conjunction's row set."""
        return np.diff(self.ends, prepend=0)

    @property
    def nbytes(self) -> int:
        return 24 * len(self.conjunctions) + len(self.payload)


def encode_segment(matches: Mapping[int, tuple[int, bytes]]) -> bytes:
    """The bytes of a segment: for each conjunction how many rows satisfy it, and its row set encoded."""
    numbers = sorted(matches)
    counts = [matches[each][0] for each in numbers]
    sets = [matches[each][1] for each in numbers]
    head = np.array([len(numbers), *numbers, *counts, *np.cumsum([len(each) for each in sets])], dtype="<i8")
    return head.tobytes() + b"".join(sets)


def decode_segment(data: bytes) -> SegmentContent:
    """The content of a segment."""
    count = int(np.frombuffer(data, "<i8", 1)[0])
    numbers, counts, ends = np.frombuffer(data, "<i8", 3 * count, 8).reshape(3, count)
    return SegmentContent(numbers, counts, ends, data[8 + 24 * count :])


def read_segment(site: Site, segment: MatchSegment) -> SegmentContent | None:
    """The content of a segment; None if its file has been removed since it was looked up."""
    try:
        data = segment.data if segment.data is not None else site.warehouse.read(segment.path or "")
    except FileNotFoundError:
        return None  # it was merged into another one, or forgotten
    return decode_segment(data)


class MatchStore:
    """The stored matches of buckets, with the segments that were read last kept in memory."""

    def __init__(self, site: Site, max_bytes: int = SEGMENT_CACHE_BYTES) -> None:
        self._site = site
        self._cache: ByteCache[tuple[BucketKey, int, int], SegmentContent] = ByteCache(max_bytes)
        self._ranges: ByteCache[BucketKey, tuple[tuple[int, int], ...]] = ByteCache(max_bytes // 8)

    def find(self, buckets: Iterable[Bucket], conjunction: int) -> dict[BucketKey, RowSet | None]:
        """For the buckets that have been matched with a conjunction, the rows that satisfy it; None for no row."""
        found: dict[BucketKey, RowSet | None] = {}
        unknown: list[BucketKey] = []
        for key in map(bucket_key, buckets):
            content = self._cached(key, conjunction)
            if content is None:
                unknown.append(key)
            elif content.is_matched(conjunction):
                found[key] = content.rows_of(conjunction)
        for key, segments in match_segments.find_segments(self._site.catalog, unknown, conjunction).items():
            for segment in segments:
                content = read_segment(self._site, segment)
                if content is None:
                    continue
                self._keep(key, segment, content)
                if content.is_matched(conjunction):
                    found[key] = content.rows_of(conjunction)
        return found

    def _cached(self, key: BucketKey, conjunction: int) -> SegmentContent | None:
        for first, last in self._ranges.get(key) or ():
            if first <= conjunction <= last:
                return self._cache.get((key, first, last))
        return None

    def _keep(self, key: BucketKey, segment: MatchSegment, content: SegmentContent) -> None:
        span = (segment.first, segment.last)
        known = [each for each in self._ranges.get(key) or () if each != span]
        self._ranges.put(key, (*known, span), 64 * (len(known) + 1))
        self._cache.put((key, *span), content, content.nbytes)


def with_costs(site: Site, queries: Sequence[RegisteredQuery]) -> list[RegisteredQuery]:
    """The queries with what the match segments of the present buckets hold for them. What several queries share counts
    for each of them; the time that a segment took counts for its conjunctions in equal parts."""
    amounts = _conjunction_amounts(site, {source.stream for each in queries for source in each.plan.sources})
    found = []
    for each in queries:
        rows, size, micros = sum((amounts[number] for number in set(each.conjunctions)), np.zeros(3)).astype(int)
        cost = replace(each.cost, rows=int(rows), size=int(size), matching_micros=int(micros))
        found.append(replace(each, cost=cost))
    return found


def _conjunction_amounts(site: Site, names: Collection[str]) -> defaultdict[int, np.ndarray]:
    """Of each conjunction the rows, bytes and microseconds in the segments of the streams' present buckets."""
    amounts: defaultdict[int, np.ndarray] = defaultdict(lambda: np.zeros(3))
    commit_id = commits.newest_commit(site.catalog)
    for state in streams.stream_states(site.catalog, commit_id):
        if state.stream.name not in names:
            continue
        keys = list(map(bucket_key, candidate_buckets(site.catalog, ArchiveScan(state, commit_id)).all))
        for segments in match_segments.find_segments(site.catalog, keys).values():
            for segment in segments:
                content = read_segment(site, segment)
                if content is None or not len(content.conjunctions):
                    continue
                share = segment.micros / len(content.conjunctions)
                sizes, counts = content.sizes + ENTRY_BYTES, np.maximum(content.counts, 0)
                for number, rows, size in zip(content.conjunctions.tolist(), counts, sizes, strict=True):
                    amounts[number] = amounts[number] + (rows, size, share)
    return amounts
