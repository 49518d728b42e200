"""What queries read in a run: rows of streams, versions of relations, results of other queries, each as of the state
that the run works on. Queries that need the same rows share them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from errata.archive.results import as_source, beginning, buckets_beginning, buckets_counting, counting, frame_of
from errata.archive.scan import Found, Group, Scan, candidates, place, scan_rows
from errata.catalog import ledger
from errata.catalog.published import Published
from errata.catalog.streams import Standing
from errata.engine.engines import Demand, EngineChoice
from errata.engine.near import is_near
from errata.engine.plans.rows import quoted
from errata.engine.types import ddl
from errata.engine.values import as_frame, fetch
from errata.evaluate.reads import NOTHING, Reach
from errata.flows.answering.late_session import LateSession
from errata.flows.site import Site
from errata.language.lineage import Axis
from errata.language.plan import Plan
from errata.model.bucket import Bucket
from errata.model.evaluation import Measures
from errata.model.interval import LOWEST, Interval, joined
from errata.model.stream import Stream

T = TypeVar("T")


SHARED = 1_000_000
"""Values, of rows by columns, of a corrected stream up to which the near engine reads it once for several queries. To
hand 10,000 rows to it takes some 2 ms, to put corrections into as many some 20 ms."""


@dataclass(frozen=True)
class Read:
    """Rows of a source, and what it takes to read them."""

    frame: DataFrame
    rows: int
    """About how many they are."""
    opened: tuple[Bucket, ...]


@dataclass
class Inputs:
    """The sources of a run."""

    site: Site
    commit_id: int
    """The state of the streams that the run works on."""
    standings: Mapping[str, Standing]
    published: dict[str, Published]
    """The results of queries, as far as they are."""
    plans: Mapping[str, Plan]
    spark: LateSession
    session_of: SparkSession | None = None
    """The session of the engine that a piece of work is done on; None: nothing is being worked out."""
    _shared: dict[object, Read] = field(default_factory=dict)
    _found: dict[object, Found] = field(default_factory=dict)
    _batches: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)
    _known: dict[object, object] = field(default_factory=dict)
    _expected: dict[str, Interval] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def session(self) -> SparkSession:
        """The session of the engine that works; outside of a piece of work the far engine's."""
        return self.spark.open() if self.session_of is None else self.session_of

    @property
    def near(self) -> bool:
        """Whether the near engine works. What it makes is taken into this process whole."""
        return self.session_of is not None and is_near(self.session_of)

    def choice(self, demand: Demand) -> EngineChoice:
        """The engine that would do a piece of work."""
        return self.spark.engines.choice(demand)

    def run(self, demand: Demand, work: Callable[[Inputs], T]) -> tuple[T, EngineChoice]:
        """Do a piece of work, which has no effect until it is committed, on the engine that suits its size."""
        return self.spark.engines.run(demand, lambda session: work(replace(self, session_of=session)))

    def once(self, key: object, find: Callable[[], T]) -> T:
        """What is the same for all queries of the run, found once."""
        with self._lock:
            if key not in self._known:
                self._known[key] = find()
            return cast("T", self._known[key])

    def expect(self, reads: Iterable[tuple[str, Sequence[Reach], int]]) -> None:
        """Be told what queries are going to read, with the last instant that counts: what several ask for is read once
        where that is less work."""
        asked: dict[str, list[Interval]] = {}
        for name, reaches, until in reads:
            standing = self.standings.get(name)
            if standing is None or not standing.applied or _groups_of_all(standing.stream, reaches) is not None:
                continue
            whole = standing.rows * len(standing.stream.names) <= SHARED
            some = [each for each in self._asked(standing, reaches, until) if whole or each.start > LOWEST]
            if some:
                asked.setdefault(name, []).append(_hull(some))
        self._expected.clear()
        self._expected.update({name: _hull(some) for name, some in asked.items() if len(some) > 1})

    def size(self, name: str, reach: Reach, until: int) -> int:
        """About how many rows there are to read."""
        return estimated(*self.holding(name, reach, until))

    def holding(self, name: str, reach: Reach, until: int) -> tuple[Sequence[Bucket], Interval]:
        """The buckets that can hold the rows to read, and where these begin."""
        interval = Interval(reach.interval.start, min(reach.interval.end, until + 1))
        if interval.empty:
            return (), interval
        if name in self.standings:
            if reach.axis is Axis.INSTANT:
                interval = Interval(LOWEST, interval.end)
            scan = Scan(self.standings[name], self.commit_id, interval, groups_of(self.standings[name].stream, reach))
            return self._candidates(scan).all, interval
        of = self.published[name]
        find = buckets_beginning if reach.axis is Axis.START else buckets_counting
        return find(self.site.catalog, of, of.last.commit_id, interval), interval

    def size_of_all(self, name: str, reaches: Sequence[Reach], until: int) -> int:
        """The same for what any of several reaches asks for, each row once."""
        if name not in self.standings or len(reaches) <= 1:
            return self.size(name, reduce(or_, reaches, NOTHING), until)
        standing = self.standings[name]
        groups = _groups_of_all(standing.stream, reaches)
        intervals = joined(self._asked(standing, reaches, until))
        scans = [Scan(standing, self.commit_id, each, groups) for each in intervals]
        return sum(estimated(self._candidates(each).all, each.interval) for each in scans)

    @staticmethod
    def _asked(standing: Standing, reaches: Iterable[Reach], until: int) -> list[Interval]:
        """Where the rows begin that reaches ask for."""
        from_ever = standing.stream.relation is not None
        return [
            Interval(LOWEST if from_ever or each.axis is Axis.INSTANT else each.interval.start, end)
            for each in reaches
            if (end := min(each.interval.end, until + 1)) > each.interval.start
        ]

    def read(self, name: str, reach: Reach, until: int, revision: int | None) -> Read:
        """Rows of a stream, relation or query; nothing that begins after `until` counts."""
        interval = Interval(reach.interval.start, min(reach.interval.end, until + 1))
        if name in self.standings:
            return self._of_stream(self.standings[name], reach, interval, revision)
        return self._of_query(self.published[name], reach, interval)

    def read_all(self, name: str, reaches: Sequence[Reach], until: int, revision: int | None) -> Read:
        """Rows of a source that any of several reaches asks for, each row once."""
        if name not in self.standings or len(reaches) <= 1:
            return self.read(name, reduce(or_, reaches, NOTHING), until, revision)
        standing = self.standings[name]
        intervals = joined(self._asked(standing, reaches, until))
        if len(intervals) <= 1:
            hull = intervals[0] if intervals else Interval(0, 0)
            groups = _groups_of_all(standing.stream, reaches)
            return self._shared_scan(standing, hull, groups, revision)
        return self._of_stretches(standing, reaches, intervals, revision)

    def _of_stream(self, standing: Standing, reach: Reach, interval: Interval, revision: int | None) -> Read:
        stream = standing.stream
        if not interval.empty and (reach.axis is Axis.INSTANT or stream.relation is not None):
            # What counts at an instant may have begun at any time before.
            interval = Interval(LOWEST, interval.end)
        return self._shared_scan(standing, interval, groups_of(stream, reach), revision)

    def _shared_scan(
        self, standing: Standing, interval: Interval, groups: frozenset[Group] | None, revision: int | None
    ) -> Read:
        up_to = None if revision is None or revision >= standing.applied else revision
        key = (id(self.session_of), standing.stream_id, interval, groups, up_to)
        # One at a time: the second that needs the same rows finds them.
        with self._lock:
            if key not in self._shared:
                self._shared[key] = self._scanned(Scan(standing, self.commit_id, interval, groups, up_to))
            return self._shared[key]

    def _scanned(self, scan: Scan) -> Read:
        found = self._candidates(scan)
        return Read(self._frame(scan, found), estimated(found.all, scan.interval), tuple(found.all))

    def _frame(self, scan: Scan, found: Found) -> DataFrame:
        """The rows of a scan. Of a corrected stream that several queries read the near engine is handed what has been
        read for all of them."""
        at = (self.site.catalog, self.site.warehouse)
        stream, expected = scan.standing.stream, self._expected.get(scan.standing.stream.name)
        if not self.near or not found.overlays or scan.groups is not None or expected is None:
            return scan_rows(self.session, *at, scan, found)
        wide = replace(scan, interval=_hull([expected, scan.interval]))
        there = self._candidates(wide)
        if estimated(there.all, wide.interval) * len(stream.names) > SHARED:
            return scan_rows(self.session, *at, scan, found)
        self._expected[stream.name] = wide.interval
        key = ("rows", wide.standing.stream_id, wide.interval, wide.revisions_up_to)
        rows = self.once(key, lambda: fetch(scan_rows(self.session, *at, wide, there)))
        begins = rows[stream.order].cast(pa.int64())
        inside = pc.and_(pc.greater_equal(begins, scan.interval.start), pc.less(begins, scan.interval.end))
        return as_frame(self.session, rows.filter(inside), ddl(stream))

    def _of_stretches(
        self, standing: Standing, reaches: Sequence[Reach], intervals: Sequence[Interval], revision: int | None
    ) -> Read:
        """Rows of a stream in several intervals."""
        hull = Interval(intervals[0].start, intervals[-1].end)
        groups = _groups_of_all(standing.stream, reaches)
        up_to = None if revision is None or revision >= standing.applied else revision
        scan = Scan(standing, self.commit_id, hull, groups, up_to)
        base: dict[int, Bucket] = {}
        overlays: dict[int, Bucket] = {}
        aged: dict[int, int | None] = {}
        rows = 0
        for each in intervals:
            some = self._candidates(replace(scan, interval=each))
            rows += estimated(some.all, each)
            base |= {bucket.bucket_id: bucket for bucket in some.base}
            overlays |= {bucket.bucket_id: bucket for bucket in some.overlays}
            aged |= some.aged_before
        found = Found(list(base.values()), list(overlays.values()), aged)
        return Read(self._frame(scan, found).where(_in_any(standing.stream, intervals)), rows, tuple(found.all))

    def _candidates(self, scan: Scan) -> Found:
        """What the index has for a scan: asked once, though first for its size."""
        if scan.interval.empty:
            return Found(())
        key = (scan.standing.stream_id, scan.interval, scan.groups, scan.leaves_out and scan.revisions_up_to)
        with self._lock:
            if key not in self._found:
                self._found[key] = candidates(self.site.catalog, scan, indexed=True)
            return self._found[key]

    def results_of(self, of: Published, fields: Sequence[str]) -> DataFrame:
        """All that has been published of a query, under the names of its plan."""
        site = self.site
        some = buckets_beginning(site.catalog, of, of.last.commit_id)
        rows = frame_of(self.session, site.catalog, site.warehouse, of.shape, some)
        return as_source(rows, of.shape, fields)

    def came(self, since: int) -> list[tuple[int, int, str]]:
        """Stream, commit and id of the batches that have come after a commit."""
        with self._lock:
            if since not in self._batches:
                # Most queries stand at the same commit.
                self._batches[since] = ledger.since(self.site.catalog, since, self.commit_id)
            return self._batches[since]

    def batches(self, names: Iterable[str], since: int) -> dict[str, str]:
        """Which batches have come to these streams after a commit: one by its id, several by their commits."""
        wanted = {self.standings[name].stream_id for name in names}
        found = [(commit, batch) for stream, commit, batch in self.came(since) if stream in wanted]
        if len(found) == 1:
            return {"type": "batch", "id": found[0][1]}
        return {"type": "batches", "id": f"commits {found[0][0]} to {found[-1][0]}" if found else ""}

    def _of_query(self, of: Published, reach: Reach, interval: Interval) -> Read:
        plan = self.plans[of.name]
        fields = [each.name for each in plan.fields]
        commit_id = of.last.commit_id
        find = buckets_beginning if reach.axis is Axis.START else buckets_counting
        some = find(self.site.catalog, of, commit_id, interval)
        rows = frame_of(self.session, self.site.catalog, self.site.warehouse, of.shape, some)
        narrowed = (beginning if reach.axis is Axis.START else counting)(rows, interval)
        return Read(as_source(narrowed, of.shape, fields), estimated(some, interval), tuple(some))


def _hull(some: Sequence[Interval]) -> Interval:
    return Interval(min(each.start for each in some), max(each.end for each in some))


def _in_any(stream: Stream, intervals: Iterable[Interval]) -> str:
    """That a row's order field lies in one of the intervals, in SQL."""
    order = quoted(stream.order)
    return " OR ".join(
        f"({order} >= {place(stream, each.start)} AND {order} < {place(stream, each.end)})" for each in intervals
    )


def groups_of(stream: Stream, reach: Reach) -> frozenset[Group] | None:
    """The group that all the rows are of, if that is known."""
    if not stream.group or any(not isinstance(reach.values.get(name), str) for name in stream.group):
        return None
    return frozenset([tuple(str(reach.values[name]) for name in stream.group)])


def _groups_of_all(stream: Stream, reaches: Iterable[Reach]) -> frozenset[Group] | None:
    """The groups that the rows are of, if those of all reaches are known."""
    found = [groups_of(stream, each) for each in reaches if not each.interval.empty]
    return None if any(each is None for each in found) else frozenset(group for each in found for group in each or ())


def estimated(found: Iterable[Bucket], interval: Interval) -> int:
    """About how many rows of some buckets lie in an interval."""
    return round(sum(each.rows * each.share(interval) for each in found))


def measured(some: Iterable[Read]) -> Measures:
    """What it takes to read all of them, each bucket once."""
    opened = {(each.bucket_id): each for read in some for each in read.opened}
    return Measures(len(opened), sum(each.rows for each in opened.values()), sum(each.size for each in opened.values()))
