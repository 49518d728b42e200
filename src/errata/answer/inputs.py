"""The sources of a run as of one commit: rows of streams, versions of relations and results of other queries, and the
session that they are read in.

Queries of a run that need the same rows share them: bucket lookups, scans and batches are asked once, see
`RunInputs.once`. A stream with corrections that several queries read is read once for all of them where the near engine
works and the stream is small. Spark is started only when something first needs it."""

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

from errata.answer.catalog_view import CatalogView
from errata.archive.results import (
    as_plan_source,
    buckets_by_instant,
    buckets_by_start,
    results_frame,
    starting_in,
    valid_in,
)
from errata.archive.scan import scan_rows
from errata.archive.scan_filter import order_literal
from errata.archive.scan_plan import ArchiveScan, GroupKey, ScanBuckets, candidate_buckets
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive
from errata.catalog.streams import StreamState
from errata.declare.query_plans import read_plans
from errata.declare.site import ProgressCallback, Site
from errata.engine.budget import EngineChoice, EngineDemand
from errata.engine.engines import Engines
from errata.engine.frames import fetch_rows, frame_of_rows, stream_ddl
from errata.engine.near import is_near
from errata.engine.plans.node_rows import quote_name
from errata.engine.session import LazySession
from errata.language.plan import Plan
from errata.model.bucket import Bucket
from errata.model.commit import EvaluationCost
from errata.model.extent import NO_ROWS, Extent, ExtentAxis
from errata.model.stream import Stream
from errata.model.time import LOWEST, Interval, hull, merge_intervals

T = TypeVar("T")


SHARED_SCAN_VALUES = 1_000_000
"""Values (rows times columns) of a corrected stream up to which the near engine reads it once for several queries.
Handing 10,000 rows to the engine takes about 2 ms, applying corrections to them about 20 ms."""


@dataclass(frozen=True)
class SourceRows:
    """Rows of a source, and the cost of reading them."""

    frame: DataFrame
    rows: int
    """About how many they are."""
    buckets: tuple[Bucket, ...]


@dataclass
class RunInputs:
    """The sources of a run."""

    view: CatalogView
    plans: Mapping[str, Plan]
    spark: LazySession
    engines: Engines
    session_of: SparkSession | None = None
    """The session of the engine that a piece of work runs on; None outside of such."""
    _shared: dict[object, SourceRows] = field(default_factory=dict)
    _found: dict[object, ScanBuckets] = field(default_factory=dict)
    _known: dict[object, object] = field(default_factory=dict)
    _expected: dict[str, Interval] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def open(
        cls, view: CatalogView, known: Iterable[RecordedQuery], on_step: ProgressCallback = lambda _: None
    ) -> RunInputs:
        """The sources of these queries, which include those that they read."""
        declared = {name: each.stream for name, each in view.standings.items()}
        wanted = {each.checked.name: each.checked.query for each in known}
        spark = LazySession(view.site.session, lambda: on_step("starting Spark"))
        return cls(view, read_plans(declared, wanted, list(wanted)), spark, view.site.engines_with(spark.open))

    @property
    def site(self) -> Site:
        return self.view.site

    @property
    def commit_id(self) -> int:
        """The state of the streams that the run reads."""
        return self.view.commit_id

    @property
    def standings(self) -> Mapping[str, StreamState]:
        return self.view.standings

    @property
    def published(self) -> dict[str, ResultArchive]:
        """The results of queries that have any; brought up to date as the run commits."""
        return self.view.published

    @property
    def session(self) -> SparkSession:
        """The session of the working engine; outside of a piece of work the far engine's."""
        return self.spark.open() if self.session_of is None else self.session_of

    @property
    def near(self) -> bool:
        """Whether the near engine works. What it computes is fetched into this process whole."""
        return self.session_of is not None and is_near(self.session_of)

    def choice(self, demand: EngineDemand) -> EngineChoice:
        """The engine that would do a piece of work."""
        return self.engines.choice(demand)

    def run(self, demand: EngineDemand, work: Callable[[RunInputs], T]) -> tuple[T, EngineChoice]:
        """Do a piece of work on the engine that suits its size. It must have no effect until it is committed, since it
        is done again on the far engine where the near one fails."""
        return self.engines.run(demand, lambda session: work(replace(self, session_of=session)))

    def once(self, key: object, find: Callable[[], T]) -> T:
        """Something that is the same for all queries of the run, computed once."""
        with self._lock:
            if key not in self._known:
                self._known[key] = find()
            return cast("T", self._known[key])

    def expect(self, reads: Iterable[tuple[str, Sequence[Extent], int]]) -> None:
        """Announce what queries are going to read, with the last instant of each step. What several ask for is read
        once where that is less work."""
        asked: dict[str, list[Interval]] = {}
        for name, extents, until in reads:
            standing = self.standings.get(name)
            if standing is None or not standing.applied or _groups_of_extents(standing.stream, extents) is not None:
                continue
            whole = standing.rows * len(standing.stream.names) <= SHARED_SCAN_VALUES
            some = [each for each in self._start_intervals(standing, extents, until) if whole or each.start > LOWEST]
            if some:
                asked.setdefault(name, []).append(hull(some))
        self._expected.clear()
        self._expected.update({name: hull(some) for name, some in asked.items() if len(some) > 1})

    def size(self, name: str, extent: Extent, until: int) -> int:
        """About how many rows an extent has."""
        return estimate_rows(*self.buckets_for(name, extent, until))

    def buckets_for(self, name: str, extent: Extent, until: int) -> tuple[Sequence[Bucket], Interval]:
        """The buckets that can hold the rows of an extent, and the interval in which these begin."""
        interval = Interval(extent.interval.start, min(extent.interval.end, until + 1))
        if interval.empty:
            return (), interval
        if name in self.standings:
            if extent.axis is ExtentAxis.INSTANT:
                interval = Interval(LOWEST, interval.end)
            scan = ArchiveScan(
                self.standings[name], self.commit_id, interval, groups_of_extent(self.standings[name].stream, extent)
            )
            return self._candidates(scan).all, interval
        of = self.published[name]
        find = buckets_by_start if extent.axis is ExtentAxis.START else buckets_by_instant
        return find(self.site.catalog, of, of.last.commit_id, interval), interval

    def size_of_all(self, name: str, extents: Sequence[Extent], until: int) -> int:
        """About how many rows are in any of several extents."""
        if name not in self.standings or len(extents) <= 1:
            return self.size(name, reduce(or_, extents, NO_ROWS), until)
        standing = self.standings[name]
        groups = _groups_of_extents(standing.stream, extents)
        intervals = merge_intervals(self._start_intervals(standing, extents, until))
        scans = [ArchiveScan(standing, self.commit_id, each, groups) for each in intervals]
        return sum(estimate_rows(self._candidates(each).all, each.interval) for each in scans)

    @staticmethod
    def _start_intervals(standing: StreamState, extents: Iterable[Extent], until: int) -> list[Interval]:
        """The intervals in which the rows of extents begin."""
        from_ever = standing.stream.relation is not None
        return [
            Interval(LOWEST if from_ever or each.axis is ExtentAxis.INSTANT else each.interval.start, end)
            for each in extents
            if (end := min(each.interval.end, until + 1)) > each.interval.start
        ]

    def read(self, name: str, extent: Extent, until: int, revision: int | None) -> SourceRows:
        """Rows of a stream, relation or query that begin up to `until`."""
        interval = Interval(extent.interval.start, min(extent.interval.end, until + 1))
        if name in self.standings:
            return self._of_stream(self.standings[name], extent, interval, revision)
        return self._of_query(self.published[name], extent, interval)

    def read_all(self, name: str, extents: Sequence[Extent], until: int, revision: int | None) -> SourceRows:
        """Rows of a source that are in any of several extents, each once."""
        if name not in self.standings or len(extents) <= 1:
            return self.read(name, reduce(or_, extents, NO_ROWS), until, revision)
        standing = self.standings[name]
        intervals = merge_intervals(self._start_intervals(standing, extents, until))
        if len(intervals) <= 1:
            whole = intervals[0] if intervals else Interval(0, 0)
            groups = _groups_of_extents(standing.stream, extents)
            return self._shared_scan(standing, whole, groups, revision)
        return self._of_stretches(standing, extents, intervals, revision)

    def _of_stream(self, standing: StreamState, extent: Extent, interval: Interval, revision: int | None) -> SourceRows:
        stream = standing.stream
        if not interval.empty and (extent.axis is ExtentAxis.INSTANT or stream.relation is not None):
            # A row that is valid at an instant may have begun at any time before.
            interval = Interval(LOWEST, interval.end)
        return self._shared_scan(standing, interval, groups_of_extent(stream, extent), revision)

    def _shared_scan(
        self, standing: StreamState, interval: Interval, groups: frozenset[GroupKey] | None, revision: int | None
    ) -> SourceRows:
        up_to = None if revision is None or revision >= standing.applied else revision
        key = (id(self.session_of), standing.stream_id, interval, groups, up_to)
        # Under the lock, so that a second query that needs the same rows finds them.
        with self._lock:
            if key not in self._shared:
                self._shared[key] = self._scanned(ArchiveScan(standing, self.commit_id, interval, groups, up_to))
            return self._shared[key]

    def _scanned(self, scan: ArchiveScan) -> SourceRows:
        found = self._candidates(scan)
        return SourceRows(self._frame(scan, found), estimate_rows(found.all, scan.interval), tuple(found.all))

    def _frame(self, scan: ArchiveScan, found: ScanBuckets) -> DataFrame:
        """The rows of a scan. Where possible the near engine is handed rows that were read once for several queries."""
        at = (self.site.catalog, self.site.warehouse)
        stream, expected = scan.state.stream, self._expected.get(scan.state.stream.name)
        if not self.near or not found.overlays or scan.groups is not None or expected is None:
            return scan_rows(self.session, *at, scan, found)
        wide = replace(scan, interval=hull([expected, scan.interval]))
        there = self._candidates(wide)
        if estimate_rows(there.all, wide.interval) * len(stream.names) > SHARED_SCAN_VALUES:
            return scan_rows(self.session, *at, scan, found)
        self._expected[stream.name] = wide.interval
        key = ("rows", wide.state.stream_id, wide.interval, wide.revisions_up_to)
        rows = self.once(key, lambda: fetch_rows(scan_rows(self.session, *at, wide, there)))
        begins = rows[stream.order].cast(pa.int64())
        inside = pc.and_(pc.greater_equal(begins, scan.interval.start), pc.less(begins, scan.interval.end))
        return frame_of_rows(self.session, rows.filter(inside), stream_ddl(stream))

    def _of_stretches(
        self,
        standing: StreamState,
        extents: Sequence[Extent],
        intervals: Sequence[Interval],
        revision: int | None,
    ) -> SourceRows:
        """Rows of a stream in several intervals."""
        whole = Interval(intervals[0].start, intervals[-1].end)
        groups = _groups_of_extents(standing.stream, extents)
        up_to = None if revision is None or revision >= standing.applied else revision
        scan = ArchiveScan(standing, self.commit_id, whole, groups, up_to)
        base: dict[int, Bucket] = {}
        overlays: dict[int, Bucket] = {}
        aged: dict[int, int | None] = {}
        rows = 0
        for each in intervals:
            some = self._candidates(replace(scan, interval=each))
            rows += estimate_rows(some.all, each)
            base |= {bucket.bucket_id: bucket for bucket in some.base}
            overlays |= {bucket.bucket_id: bucket for bucket in some.overlays}
            aged |= some.aged_before
        found = ScanBuckets(list(base.values()), list(overlays.values()), aged)
        return SourceRows(
            self._frame(scan, found).where(_in_intervals(standing.stream, intervals)), rows, tuple(found.all)
        )

    def _candidates(self, scan: ArchiveScan) -> ScanBuckets:
        """The buckets for a scan, looked up once for its size and its rows."""
        if scan.interval.empty:
            return ScanBuckets(())
        key = (scan.state.stream_id, scan.interval, scan.groups, scan.omits_revisions and scan.revisions_up_to)
        with self._lock:
            if key not in self._found:
                self._found[key] = candidate_buckets(self.site.catalog, scan, indexed=True)
            return self._found[key]

    def results_of(self, of: ResultArchive, fields: Sequence[str]) -> DataFrame:
        """All published results of a query, with the names of its plan."""
        site = self.site
        some = buckets_by_start(site.catalog, of, of.last.commit_id)
        rows = results_frame(self.session, site.catalog, site.warehouse, of.shape, some)
        return as_plan_source(rows, of.shape, fields)

    def batches(self, names: Iterable[str], since: int) -> dict[str, str]:
        """The batches that have come to these streams after a commit, as a cause: one by its id, several by commits."""
        wanted = {self.standings[name].stream_id for name in names}
        found = [(commit, batch) for stream, commit, batch in self.view.batches_since(since) if stream in wanted]
        if len(found) == 1:
            return {"type": "batch", "id": found[0][1]}
        return {"type": "batches", "id": f"commits {found[0][0]} to {found[-1][0]}" if found else ""}

    def _of_query(self, of: ResultArchive, extent: Extent, interval: Interval) -> SourceRows:
        plan = self.plans[of.name]
        fields = [each.name for each in plan.fields]
        commit_id = of.last.commit_id
        find = buckets_by_start if extent.axis is ExtentAxis.START else buckets_by_instant
        some = find(self.site.catalog, of, commit_id, interval)
        rows = results_frame(self.session, self.site.catalog, self.site.warehouse, of.shape, some)
        narrowed = (starting_in if extent.axis is ExtentAxis.START else valid_in)(rows, interval)
        return SourceRows(as_plan_source(narrowed, of.shape, fields), estimate_rows(some, interval), tuple(some))


def _in_intervals(stream: Stream, intervals: Iterable[Interval]) -> str:
    """That a row's order field lies in one of the intervals, in SQL."""
    order = quote_name(stream.order)
    return " OR ".join(
        f"({order} >= {order_literal(stream, each.start)} AND {order} < {order_literal(stream, each.end)})"
        for each in intervals
    )


def groups_of_extent(stream: Stream, extent: Extent) -> frozenset[GroupKey] | None:
    """The group that all rows of an extent belong to, if its constants tell it."""
    if not stream.group or any(not isinstance(extent.values.get(name), str) for name in stream.group):
        return None
    return frozenset([tuple(str(extent.values[name]) for name in stream.group)])


def _groups_of_extents(stream: Stream, extents: Iterable[Extent]) -> frozenset[GroupKey] | None:
    """The groups that the rows of extents belong to, if the constants of each tell one."""
    found = [groups_of_extent(stream, each) for each in extents if not each.interval.empty]
    return None if any(each is None for each in found) else frozenset(group for each in found for group in each or ())


def estimate_rows(found: Iterable[Bucket], interval: Interval) -> int:
    """About how many rows of some buckets lie in an interval."""
    return round(sum(each.rows * each.share(interval) for each in found))


def measure_reads(some: Iterable[SourceRows]) -> EvaluationCost:
    """The cost of reading all of them, each bucket counted once."""
    opened = {(each.bucket_id): each for read in some for each in read.buckets}
    return EvaluationCost(
        len(opened), sum(each.rows for each in opened.values()), sum(each.size for each in opened.values())
    )
