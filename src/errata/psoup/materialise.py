"""Matching in the background: every bucket with every conjunction over its stream, kept as match segments.

    conjunctions  1 ────────── 400 401 ── 430        buckets that came before conjunction 401 have a segment for those
    bucket 7      [   segment    ][ segment ]        behind it (new queries over old data); a new bucket gets one
    bucket 8      [         segment         ]        segment for all (new data over old queries)

A bucket is read once, and matched with all conjunctions that it lacks in one pass of the predicate index. When a bucket
has many segments they become one. Each group of buckets is a transaction of its own, and what is recorded is right
whatever else happens, so the work may be killed, repeated, and done by several at once: it goes on where it stopped.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from errata.catalog import commits, match_segments, pins, registered, streams
from errata.catalog.match_segments import NewMatchSegment, bucket_key
from errata.catalog.transaction import give_up, optimistic
from errata.declare.site import Site
from errata.model.bucket import Bucket
from errata.model.registered import Conjunction
from errata.psoup.index.predicate_index import PredicateIndex
from errata.psoup.segments import UNMATCHED, encode_segment, read_segment
from errata.psoup.selection import factor_columns
from errata.psoup.snapshot import SnapshotCache, SnapshotConflict, StreamSnapshot, stream_snapshot

INLINE_BYTES = 32 * 1024
"""Bytes of a segment up to which it lies in the catalog; larger ones are files of the warehouse."""

GROUP_ROWS = 1_000_000
"""Rows of the buckets that one transaction covers, about: as much is lost by a kill."""

MAX_SEGMENTS = 8
"""Segments of a bucket that are left beside each other; one more makes them one."""

READ_CACHE_BYTES = 0
"""Bytes of columns that are kept: none, since each bucket is read once."""

KIND = "matches"


@dataclass(frozen=True, slots=True)
class MaterialiseReport:
    """What a run has matched of one stream."""

    stream: str
    buckets: int = 0
    conjunctions: int = 0
    """Conjunctions that at least one bucket lacked."""
    rows: int = 0
    """Rows of these buckets."""
    matches: int = 0
    micros: int = 0


def materialise(
    site: Site, names: Sequence[str] = (), on_step: Callable[[str], None] = lambda _: None
) -> list[MaterialiseReport]:
    """Match what has not been matched of these streams, or of all that registered queries read."""
    if names:
        site.named(names)
    return optimistic(
        lambda _: _materialise(site, names, on_step),
        give_up("run has removed old buckets before they were read", "run it again"),
        on=SnapshotConflict,
    )


def _materialise(site: Site, names: Sequence[str], on_step: Callable[[str], None]) -> list[MaterialiseReport]:
    wanted = registered.conjunction_streams(site.catalog)
    reports = []
    with pins.hold_pin(site.catalog, commits.newest_commit(site.catalog), "materialise") as pin:
        for state in streams.stream_states(site.catalog, pin.commit_id):
            name = state.stream.name
            if state.stream_id in wanted and (not names or name in names):
                reports.append(_Matching(site, name, pin.commit_id).run(on_step))
    return reports


@dataclass(frozen=True, slots=True)
class _BucketTask:
    """A bucket, and the last conjunction that it has been matched with."""

    bucket: Bucket
    covered_to: int
    segments: int


class _Matching:
    """The matching of one stream's buckets as of a commit."""

    def __init__(self, site: Site, name: str, commit_id: int) -> None:
        self._site = site
        cache = SnapshotCache(site, READ_CACHE_BYTES)
        self._snapshot: StreamSnapshot = stream_snapshot(cache, name, commit_id)
        stream_id = self._snapshot.state.stream_id
        self._conjunctions = registered.stream_conjunctions(site.catalog, stream_id)
        self._unkept = registered.unkept_conjunctions(site.catalog)

    def run(self, on_step: Callable[[str], None]) -> MaterialiseReport:
        name = self._snapshot.state.stream.name
        report = MaterialiseReport(name)
        for covered, tasks in self._tasks().items():
            wanted = {number: each for number, each in self._conjunctions.items() if number > covered}
            matched = {number: each for number, each in wanted.items() if number not in self._unkept}
            index = PredicateIndex(self._snapshot.state.stream, matched)
            for some in _groups(tasks):
                begun = time.perf_counter()
                names = dict.fromkeys(name for each in matched.values() for name in factor_columns(each))
                tables = self._snapshot.rows(
                    [each.bucket for each in some], list(names) or [self._snapshot.state.stream.order]
                )
                written = [self._write(*each, index, wanted) for each in zip(some, tables, strict=True)]
                self._record(written)
                rows = sum(each.bucket.rows for each in some)
                on_step(f"{name}: matched {rows:,} rows with {len(wanted):,} conjunctions")
                report = replace(
                    report,
                    buckets=report.buckets + len(some),
                    conjunctions=max(report.conjunctions, len(wanted)),
                    rows=report.rows + rows,
                    matches=report.matches + sum(each.rows for each in written),
                    micros=report.micros + int((time.perf_counter() - begun) * 1_000_000),
                )
        return report

    def _tasks(self) -> Mapping[int, list[_BucketTask]]:
        """The buckets that have not been matched with every conjunction, by the last one that they have."""
        last = max(self._conjunctions, default=0)  # vacuum may have forgotten all of them
        found = [each for each in (*self._snapshot.base, *self._snapshot.overlays) if each.rows]
        covered = match_segments.covered_to(self._site.catalog, list(map(bucket_key, found)))
        tasks: defaultdict[int, list[_BucketTask]] = defaultdict(list)
        for bucket in found:
            up_to, segments = covered.get(bucket_key(bucket), (0, 0))
            if up_to < last:
                tasks[up_to].append(_BucketTask(bucket, up_to, segments))
        return tasks

    def _write(
        self, task: _BucketTask, rows: pa.Table, index: PredicateIndex, wanted: Mapping[int, Conjunction]
    ) -> NewMatchSegment:
        """Match a bucket; the segment's file, if it is one, has been written then."""
        begun = time.perf_counter()
        matches = {number: UNMATCHED for number in wanted if number in self._unkept}
        matches |= index.match(rows).encoded()
        micros = int((time.perf_counter() - begun) * 1_000_000)
        segment = NewMatchSegment(
            bucket_key(task.bucket),
            min(wanted),
            max(wanted),
            None,
            None,
            sum(count for count, _ in matches.values() if count > 0),
            0,
            micros,
            task.covered_to,
        )
        if task.segments >= MAX_SEGMENTS:
            segment, matches = self._merged(segment, matches)
        return self._stored(task.bucket, segment, encode_segment(matches))

    def _merged(
        self, segment: NewMatchSegment, matches: dict[int, tuple[int, bytes]]
    ) -> tuple[NewMatchSegment, dict[int, tuple[int, bytes]]]:
        """The segment together with those that the bucket has; as it is if one of them has been removed meanwhile."""
        (known,) = match_segments.find_segments(self._site.catalog, [segment.bucket]).values()
        together = dict(matches)
        for each in known:
            content = read_segment(self._site, each)
            if content is None:
                return segment, matches
            for place, number in enumerate(content.conjunctions.tolist()):
                together[number] = int(content.counts[place]), content.bytes_at(place)
        whole = replace(
            segment,
            first=min(segment.first, *(each.first for each in known)),
            rows=segment.rows + sum(each.rows for each in known),
            micros=segment.micros + sum(each.micros for each in known),
            replaces=known,
        )
        return whole, together

    def _stored(self, bucket: Bucket, segment: NewMatchSegment, data: bytes) -> NewMatchSegment:
        if len(data) <= INLINE_BYTES:
            return replace(segment, data=data, size=len(data))
        path = self._site.warehouse.new_name(self._snapshot.state.stream, bucket.vs_min, KIND, "arrow")
        self._site.warehouse.write(path, data)
        return replace(segment, path=path, size=len(data))

    def _record(self, written: Sequence[NewMatchSegment]) -> None:
        for each in match_segments.record_segments(self._site.catalog, written):
            if each.path is not None:
                self._site.warehouse.remove(each.path)


def _groups(tasks: Sequence[_BucketTask]) -> Iterator[list[_BucketTask]]:
    """The buckets in groups of about so many rows."""
    group: list[_BucketTask] = []
    for each in tasks:
        group.append(each)
        if sum(one.bucket.rows for one in group) >= GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group
