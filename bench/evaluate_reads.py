"""How much an evaluation reads, beside what lineage asks for.

Of a bucket's file a reader needs the row groups whose statistics meet what is asked for; those are counted as read, and
of a bucket that lies in the catalog all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from errata.answer.evaluation_commit import EvaluationOutcome
from errata.archive.results import buckets_by_instant, buckets_by_start
from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.archive.schemas import unpack_table
from errata.catalog import buckets, commits, queries, streams
from errata.catalog.result_archives import read_archives
from errata.declare.query_plans import read_plans
from errata.declare.site import Site
from errata.generate.feed import IntArray
from errata.language.plan import Plan
from errata.language.rewrite import rewrite_plan
from errata.language.route import choose_route
from errata.language.source_reads import reads_of_step
from errata.model.bucket import Bucket
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import VE, VS
from errata.model.time import LOWEST, Interval


@dataclass(frozen=True, slots=True)
class Amount:
    """Rows and their bytes."""

    rows: float = 0
    size: float = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.rows + other.rows, self.size + other.size)


@dataclass(frozen=True, slots=True)
class Amounts:
    """What an evaluation reads of its sources."""

    asked: Amount = field(default_factory=Amount)
    """Rows within the intervals that lineage asks for, and their share of the bytes."""
    read: Amount = field(default_factory=Amount)
    """Row groups that meet them."""

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.asked + other.asked, self.read + other.read)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Rows that begin in an interval, or that count at an instant of it."""

    begins: str
    """The column with the time from which a row counts."""
    interval: Interval
    ends: str | None = None
    """The column with the time at which it ceases to, where that matters."""

    def among(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Which of the rows are wanted."""
        begins = _numbers(rows, self.begins)
        if self.ends is None:
            return (begins >= self.interval.start) & (begins < self.interval.end)
        return (begins < self.interval.end) & (_numbers(rows, self.ends) > self.interval.start)

    @property
    def columns(self) -> list[str]:
        return [self.begins] if self.ends is None else [self.begins, self.ends]

    def can_meet(self, group: pq.RowGroupMetaData) -> bool:
        """Whether the statistics leave room for wanted rows."""
        low, high = _range(group, self.begins)
        if self.ends is None:
            return high >= self.interval.start and low < self.interval.end
        return low < self.interval.end and _range(group, self.ends)[1] > self.interval.start


class Reading:
    """What the evaluations of a run read: to be asked before anything else comes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._commit = commits.newest_commit(site.catalog)
        self._standings = {each.stream.name: each for each in streams.stream_states(site.catalog)}
        self._published = read_archives(site.catalog)
        known = queries.recorded_queries(site.catalog)
        declared = {name: each.stream for name, each in self._standings.items()}
        self._plans = read_plans(declared, {name: each.checked.query for name, each in known.items()}, list(known))

    def of(self, done: EvaluationOutcome) -> Amounts:
        """What one evaluation reads: of each bucket, what any part of it asks for, once."""
        plan = self._plans[done.name]
        found = Amounts()
        for name, wanted in self._wanted(plan, done).items():
            some = {each.bucket_id: each for one in wanted for each in self._opened(name, one)}
            for bucket in some.values():
                found += self._amounts(bucket, wanted)
        return found

    def _wanted(self, plan: Plan, done: EvaluationOutcome) -> Mapping[str, list[_Wanted]]:
        rewritten = rewrite_plan(plan).plan
        found: dict[str, list[_Wanted]] = {}
        for part in reads_of_step(rewritten, choose_route(rewritten), done.step).values():
            for name, reach in part.items():
                wanted = self._place(name, reach, done.step.until)
                if not wanted.interval.empty:
                    found.setdefault(name, []).append(wanted)
        return found

    def _place(self, name: str, reach: Extent, until: int) -> _Wanted:
        interval = Interval(reach.interval.start, min(reach.interval.end, until + 1))
        if name not in self._standings:
            return _Wanted(VS, interval, None if reach.axis is ExtentAxis.START else VE)
        stream = self._standings[name].stream
        if not interval.empty and (reach.axis is ExtentAxis.INSTANT or stream.relation is not None):
            # A row of a stream counts for ever, and a version until the next one comes.
            interval = Interval(LOWEST, interval.end)
        return _Wanted(stream.order, interval)

    def _opened(self, name: str, wanted: _Wanted) -> Iterable[Bucket]:
        catalog = self._site.catalog
        if name in self._standings:
            return candidate_buckets(
                catalog, ArchiveScan(self._standings[name], self._commit, wanted.interval), indexed=True
            ).all
        of = self._published[name]
        find = buckets_by_start if wanted.ends is None else buckets_by_instant
        return find(catalog, of, of.last.commit_id, wanted.interval)

    def _amounts(self, bucket: Bucket, wanted: list[_Wanted]) -> Amounts:
        if bucket.path is None:
            rows = unpack_table(buckets.inline_data(self._site.catalog, [bucket.bucket_id])[bucket.bucket_id])
            return _shared(_hits(rows, wanted), Amount(rows.num_rows, bucket.size))
        file = pq.ParquetFile(pa.BufferReader(self._site.warehouse.read(bucket.path)))
        found = Amounts()
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            meeting = [each for each in wanted if each.can_meet(group)]
            if meeting:
                columns = sorted({name for each in meeting for name in each.columns})
                rows = file.read_row_group(number, columns=columns)
                size = sum(group.column(place).total_compressed_size for place in range(group.num_columns))
                found += _shared(_hits(rows, meeting), Amount(group.num_rows, size))
        return found


def _hits(rows: pa.Table, wanted: list[_Wanted]) -> int:
    """Rows that at least one part wants: intervals may overlap."""
    return int(np.count_nonzero(np.logical_or.reduce([each.among(rows) for each in wanted])))


def _shared(hits: int, read: Amount) -> Amounts:
    return Amounts(Amount(hits, read.size * hits / read.rows if read.rows else 0), read)


def _numbers(rows: pa.Table, name: str) -> IntArray:
    numbers: IntArray = rows[name].cast(pa.int64()).combine_chunks().to_numpy(zero_copy_only=False)
    return numbers


def _range(group: pq.RowGroupMetaData, name: str) -> tuple[int, int]:
    place = next(place for place in range(group.num_columns) if group.column(place).path_in_schema == name)
    statistics = group.column(place).statistics
    if statistics is None or not statistics.has_min_max:
        raise AssertionError(f"a bucket tells nothing of its column {name}, and readers cannot skip any of it")
    return int(statistics.min_raw), int(statistics.max_raw)
