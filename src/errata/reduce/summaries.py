"""Reading summaries: windowed aggregates of a stream, put together from the stored parts of its buckets and, where
these do not say it, from rows (Chandrasekaran and Franklin 2004, section 4.2).

A window of a summary is *touched* if an overlay masks a row or adds a row in it, or if it was aged out in part. So

    untouched windows:  the parts of base buckets + the rows of base buckets without parts
    touched windows:    the live rows of base buckets + the rows that overlays add

Parts are facts of whole buckets and are never changed; which windows are touched is found anew on each reading, from
the overlays that are visible at its commit. So a summary equals the query that it means, as of every commit, whatever
has been corrected, compacted or aged, and whichever parts happen to exist. Its cost is that of the parts, of the rows
of touched windows, and of buckets that have no parts yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from errata.archive.bucket_frames import read_buckets, run_tasks
from errata.archive.bucket_writer import order_values
from errata.archive.overlays import BucketSource, Overlays, bucket_sources, identity_columns, read_overlays
from errata.archive.partials import (
    WINDOW,
    combined_parts,
    partial_aggregates,
    parts_schema,
    results_of,
    window_starts,
    windows_of_places,
)
from errata.archive.scan_plan import ArchiveScan, ScanBuckets, candidate_buckets
from errata.archive.schemas import LIVE, MASKS, conform, overlay_schema, pack_table, unpack_table
from errata.archive.summary_parts import parts_by_original
from errata.catalog import buckets
from errata.catalog.database import Catalog
from errata.catalog.streams import StreamState
from errata.declare.warehouse import Warehouse
from errata.errors import count_text
from errata.intake.types import arrow_schema
from errata.language.summaries import SummaryForm
from errata.model.bucket import Bucket, Role
from errata.model.results import old_column
from errata.model.time import EVERYTHING, HIGHEST, LOWEST, Interval

_BLOB = "parts"
_TASK_SCHEMA = pa.schema([pa.field(_BLOB, pa.binary())])


@dataclass(frozen=True, slots=True)
class SummaryScan:
    """What of a summary is read, as of a commit, and the buckets that can hold it."""

    form: SummaryForm
    state: StreamState
    commit_id: int
    interval: Interval
    """Of the order field; it begins and ends with a window."""
    found: ScanBuckets
    parts: dict[int, Bucket]
    """The stored parts, by the id of their base bucket."""

    @property
    def parts_size(self) -> int:
        """Bytes of stored parts."""
        return sum(each.size for each in self.parts.values())

    @property
    def without_parts(self) -> list[Bucket]:
        """Base buckets of which there are no parts."""
        return [each for each in self.found.base if each.bucket_id not in self.parts]

    @property
    def exact_size(self) -> int:
        """Bytes that would be read if there were no parts."""
        return sum(each.size for each in self.found.all)


@dataclass(frozen=True, slots=True)
class SummaryReading:
    """What was read of a summary."""

    name: str
    interval: Interval
    parts: int
    """Buckets whose stored parts were read."""
    parts_size: int
    rows: int
    """Buckets, also of overlays, whose rows were read, all of them or those of touched windows."""
    rows_size: int
    windows: np.ndarray
    """The starts of the windows that were computed from rows, because of corrections or because they have been aged out
    in part."""
    exact_size: int
    """Bytes that would have been read without parts."""

    @property
    def touched(self) -> int:
        """The number of these windows."""
        return len(self.windows)

    @property
    def words(self) -> str:
        """For a person."""
        read = f"{self.parts_size + self.rows_size:,} bytes of {self.exact_size:,}"
        again = f", {count_text(self.touched, 'window')} computed from rows" if self.touched else ""
        parts, rows = count_text(self.parts, "bucket"), count_text(self.rows, "bucket")
        return f"summary {self.name}: parts of {parts}, rows of {rows}{again}; {read}"


def whole_windows(interval: Interval, window: int) -> Interval:
    """The least interval of whole windows that has all of this one."""
    if interval.empty:
        return interval
    low, high = interval.start, interval.end
    if low > LOWEST:
        low = low - low % window if low - LOWEST >= window else LOWEST
    if high < HIGHEST:
        high = high + -high % window if HIGHEST - high >= window else HIGHEST
    return Interval(low, high)


def plan_summary(
    catalog: Catalog, form: SummaryForm, state: StreamState, commit_id: int, interval: Interval = EVERYTHING
) -> SummaryScan:
    """Find what a summary is read from. Nothing is read but the index."""
    wanted = whole_windows(interval, form.window)
    found = candidate_buckets(catalog, ArchiveScan(state, commit_id, wanted))
    stored = buckets.visible_buckets(catalog, state.stream_id, commit_id, wanted, role=Role.SUMMARY)
    base = {each.bucket_id for each in found.base}
    parts = {of: each for of, each in parts_by_original(stored, form.digest).items() if of in base}
    return SummaryScan(form, state, commit_id, wanted, found, parts)


def read_summary_rows(
    session: Callable[[], SparkSession], catalog: Catalog, warehouse: Warehouse, scan: SummaryScan
) -> tuple[pa.Table, SummaryReading]:
    """The exact columns of a summary's rows with their lifetimes, in no particular order, and what was read for them.
    `session` is asked for if rows of many buckets have to be read."""
    form, found = scan.form, scan.found
    overlays = read_known_overlays(catalog, warehouse, scan)
    touched = touched_windows(scan, overlays)
    stored = read_buckets(catalog, warehouse, parts_schema(form), scan.parts.values())
    stored = stored.filter(pa.array(_wanted_parts(scan, stored[WINDOW].to_numpy(), touched)))
    again = [each for each in found.base if each.bucket_id in scan.parts and meets_windows(each, touched, form.window)]
    known = Overlays(form.stream, overlays)
    work = _RowsWork(
        form,
        warehouse,
        scan.interval,
        scan.state.aged_to,
        known,
        touched,
        tuple(bucket_sources(catalog, scan.without_parts)),
        tuple(bucket_sources(catalog, again)),
    )
    reports = run_tasks(session, work.size, len(work.sources), partial(_compute_parts, work), _TASK_SCHEMA)
    from_rows = [unpack_table(blob) for blob in reports[_BLOB].to_pylist()]
    from_rows.append(work.parts_of(known.live_rows(scan.state.aged_to)))
    whole = combined_parts(form, [stored, *from_rows])
    reading = SummaryReading(
        form.name,
        scan.interval,
        len(scan.parts),
        scan.parts_size,
        len(work.sources) + len(found.overlays),
        work.size + sum(each.size for each in found.overlays),
        touched,
        scan.exact_size,
    )
    return results_of(form, whole), reading


def read_known_overlays(catalog: Catalog, warehouse: Warehouse, scan: SummaryScan) -> pa.Table:
    """The rows of the overlays that a summary's reading has to heed."""
    stream = scan.form.stream
    rows = read_overlays(stream, warehouse, bucket_sources(catalog, scan.found.overlays))
    return rows.select(overlay_schema(stream).names)


def touched_windows(scan: SummaryScan, overlays: pa.Table) -> np.ndarray:
    """The starts of the windows that have to be computed from rows, in order."""
    form, order = scan.form, scan.form.stream.order
    masked = overlays.filter(overlays[MASKS])[old_column(order)]
    brought = overlays.filter(overlays[LIVE])[order]
    places: list[pa.ChunkedArray | pa.Array] = [masked, brought]
    aged_to = scan.state.aged_to
    if aged_to is not None and aged_to % form.window:
        places.append(pa.array([aged_to], pa.int64()))
    starts = windows_of_places(places, form.window)
    within: np.ndarray = starts[(starts >= scan.interval.start) & (starts < scan.interval.end)]
    return within


def _wanted_parts(scan: SummaryScan, starts: np.ndarray, touched: np.ndarray) -> np.ndarray:
    """Which stored parts, by the starts of their windows, are part of the answer."""
    wanted = (starts >= scan.interval.start) & (starts < scan.interval.end) & ~np.isin(starts, touched)
    if scan.state.aged_to is not None:
        wanted &= starts >= scan.state.aged_to
    result: np.ndarray = wanted
    return result


def meets_windows(bucket: Bucket, windows: np.ndarray, size: int) -> bool:
    """Whether a bucket can have rows in some windows, whose starts are in order."""
    first = int(np.searchsorted(windows, bucket.vs_min - size, side="right")) if bucket.vs_min - size > LOWEST else 0
    return first < len(windows) and int(windows[first]) <= bucket.vs_max


@dataclass(frozen=True, slots=True)
class _RowsWork:
    """The base buckets whose rows are read: of some all, of others those in touched windows. It travels to tasks."""

    form: SummaryForm
    warehouse: Warehouse
    interval: Interval
    aged_to: int | None
    overlays: Overlays
    touched: np.ndarray
    whole: tuple[BucketSource, ...]
    """Buckets without parts."""
    partly: tuple[BucketSource, ...]
    """Buckets with parts that have rows in touched windows."""

    @property
    def sources(self) -> tuple[BucketSource, ...]:
        return (*self.whole, *self.partly)

    @property
    def size(self) -> int:
        """Bytes that are read, about."""
        ends = [self._reach(each.bucket, touched_only=True) for each in self.partly]
        reaches = [Interval(low, min(high, HIGHEST - 1) + 1) for low, high in ends]
        some = sum(
            each.bucket.size * each.bucket.share(reach) for each, reach in zip(self.partly, reaches, strict=True)
        )
        return sum(each.bucket.size for each in self.whole) + round(some)

    def read(self, number: int) -> pa.Table:
        """The parts that a bucket's live rows add."""
        source, stream = self.sources[number], self.form.stream
        names = list(dict.fromkeys((*self.form.columns_read, *identity_columns(stream))))
        schema = pa.schema([arrow_schema(stream).field(name) for name in names])
        touched_only = number >= len(self.whole)
        low, high = self._reach(source.bucket, touched_only=touched_only)
        rows = conform(source.read_between(self.warehouse, names, stream.order, low, high), schema)
        rows = rows.filter(pa.array(~self.overlays.masked(rows, source.bucket.floor)))
        if touched_only:
            starts, _ = window_starts(order_values(rows[stream.order]), self.form.window)
            rows = rows.filter(pa.array(np.isin(starts, self.touched)))
        return self.parts_of(rows)

    def _reach(self, bucket: Bucket, *, touched_only: bool) -> tuple[int, int]:
        """The first and the last place of the rows that are needed of a bucket, at least."""
        low, high = bucket.vs_min, bucket.vs_max
        if touched_only:
            near = self.touched[self.touched <= high]
            near = near[near > max(low - self.form.window, LOWEST)]
            low, high = max(low, int(near[0])), min(high, int(near[-1]) + self.form.window - 1)
        return max(low, self.interval.start), min(high, self.interval.end)

    def parts_of(self, rows: pa.Table) -> pa.Table:
        """The parts of live rows, without those outside of the interval or aged out."""
        places = order_values(rows[self.form.stream.order])
        wanted = places >= max(self.interval.start, LOWEST if self.aged_to is None else self.aged_to)
        if self.interval.end < HIGHEST:
            wanted &= places < self.interval.end
        return partial_aggregates(self.form, rows.filter(pa.array(wanted)))


def _compute_parts(work: _RowsWork, tasks: Iterable[int]) -> Iterator[pa.RecordBatch]:
    for number in tasks:
        yield pa.record_batch([pa.array([pack_table(work.read(number))], pa.binary())], schema=_TASK_SCHEMA)


def merged_windows(starts: Sequence[int] | np.ndarray, size: int) -> list[Interval]:
    """Windows as few intervals: neighbours are one."""
    found: list[Interval] = []
    for start in map(int, starts):
        if found and found[-1].end == start:
            found[-1] = Interval(found[-1].start, start + size)
        else:
            found.append(Interval(start, start + size))
    return found
