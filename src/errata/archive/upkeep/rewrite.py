"""The rewriting of buckets for compaction: overlays folded into the buckets that they touch, and small buckets merged.

A run is some buckets that are rewritten together by one task: their rows are read, masked ones are left out, rows that
overlays add there are put in, and all is sorted, cut and written. Every place at which an overlay adds rows belongs to
exactly one run, so runs are independent and nothing is shuffled. A rewritten row keeps its batch and revision in
columns, since its bucket no longer tells them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from errata.archive.bucket_files import POS
from errata.archive.bucket_frames import run_tasks
from errata.archive.bucket_writer import BucketWriter, cut_evenly, order_values
from errata.archive.overlays import BucketSource, Overlays, bucket_sources, read_overlays
from errata.archive.schemas import BATCH, LIVE, MASKS, REVISION, conform, overlay_schema
from errata.archive.tables import sort_rows
from errata.archive.task_reports import ReportKind, bucket_from_row, bucket_report, report_row, report_schema
from errata.catalog.database import Catalog
from errata.catalog.streams import StreamState
from errata.declare.warehouse import Warehouse
from errata.intake.types import arrow_schema
from errata.model.bucket import MAX_INLINE_STREAM_BYTES, Bucket, NewBucket, Role
from errata.model.compaction import DueCompaction, RewriteReason
from errata.model.results import old_column
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST, Interval

TASK_BYTES = 8 * 1024 * 1024
"""Bytes that a task has to read before it gets no further run."""


@dataclass(frozen=True, slots=True)
class CompactionRun:
    """Buckets that are rewritten together."""

    buckets: tuple[Bucket, ...]
    why: RewriteReason
    floor: int
    """The floor of the new buckets."""
    taken_places: tuple[Interval, ...] = ()
    """Where rows that overlays add belong to this run."""

    @property
    def always_rewritten(self) -> bool:
        """Whether it is rewritten in any case, and not only if an overlay masks one of its rows or adds one."""
        return self.why is not RewriteReason.CORRECTED


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What to rewrite, and what is then no longer needed."""

    runs: tuple[CompactionRun, ...]
    overlays: tuple[Bucket, ...]
    """Overlays that are folded completely."""
    up_to: int
    """The last revision that is folded; 0 for none."""


@dataclass(frozen=True, slots=True)
class RewrittenRun:
    """New buckets in place of old ones."""

    replaced: tuple[Bucket, ...]
    written: tuple[NewBucket, ...]
    """Each with the number of its rows that are masked by revisions not yet folded."""


@dataclass(frozen=True, slots=True)
class _RewriteTask:
    """What every task needs; it travels to all of them."""

    stream: Stream
    warehouse: Warehouse
    up_to: int
    aged_to: int | None
    inline: bool
    overlays: tuple[BucketSource, ...]
    runs: tuple[tuple[CompactionRun, tuple[BucketSource, ...]], ...]
    tasks: tuple[tuple[int, ...], ...]
    """The numbers of the runs of each task."""


def compacted_schema(stream: Stream) -> pa.Schema:
    """Rows of a compacted bucket, with the origin of each."""
    origin = [pa.field(name, pa.int64()) for name in (POS, BATCH, REVISION)]
    return pa.schema([*arrow_schema(stream), *origin])


def plan_compaction(catalog: Catalog, warehouse: Warehouse, basis: StreamState, due: DueCompaction) -> CompactionPlan:
    """The buckets that overlays touch, and the runs to which the rows that they add belong."""
    runs = [CompactionRun(each.buckets, each.why, each.floor) for each in due.merge]
    if not due.fold:
        return CompactionPlan(tuple(runs), (), 0)
    runs += [CompactionRun((bucket,), RewriteReason.CORRECTED, due.up_to) for bucket in due.free]
    masked, brought = _overlay_places(basis, warehouse, bucket_sources(catalog, due.fold))
    if len(brought) and all(run.floor > due.up_to for run in runs):
        runs.append(CompactionRun((), RewriteReason.CORRECTED, due.up_to))
    placed = _assign_places(runs, due.up_to)
    found = zip(placed, _touched_runs(placed, masked, brought), strict=True)
    return CompactionPlan(tuple(run for run, meets in found if meets or run.always_rewritten), due.fold, due.up_to)


def _overlay_places(
    basis: StreamState, warehouse: Warehouse, overlays: Sequence[BucketSource]
) -> tuple[np.ndarray, np.ndarray]:
    """The places at which overlays mask rows, and those at which they add some, sorted."""
    new, old = basis.stream.order, old_column(basis.stream.order)
    masked, brought = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for source in overlays:
        rows = source.read(warehouse, [MASKS, LIVE, new, old])
        masked.append(order_values(rows.filter(rows[MASKS])[old]))
        brought.append(order_values(rows.filter(rows[LIVE])[new]))
    places = np.concatenate(brought)
    return np.sort(np.concatenate(masked)), np.sort(places[places >= _first_kept_place(basis.aged_to)])


def _first_kept_place(aged_to: int | None) -> int:
    return LOWEST if aged_to is None else aged_to


def _assign_places(runs: Sequence[CompactionRun], up_to: int) -> list[CompactionRun]:
    """The runs with the places whose added rows each takes: its own range, and the gap up to the next run. Where runs
    overlap, the one that begins last takes them. A run whose floor is above `up_to` takes none: revisions that stay in
    overlays could not mask rows there."""
    able = [run for run in runs if run.floor <= up_to]
    ordered = sorted(((*_run_ends(run), run) for run in able), key=lambda each: each[:2])
    takes: dict[int, list[Interval]] = {id(run): [] for run in able}
    longest = -1
    for at, (start, end, run) in enumerate(ordered):
        following = ordered[at + 1][0] if at + 1 < len(ordered) else HIGHEST
        if longest < 0 or end >= ordered[longest][1]:
            longest = at
        first, middle = start if at else LOWEST, min(end + 1, following)
        takes[id(run)].append(Interval(first, middle))
        takes[id(ordered[longest][2])].append(Interval(middle, following))
    return [replace(run, taken_places=tuple(each for each in takes.get(id(run), ()) if not each.empty)) for run in runs]


def _run_ends(run: CompactionRun) -> tuple[int, int]:
    """The first and last place of a run; LOWEST for a run without buckets."""
    low = min((bucket.vs_min for bucket in run.buckets), default=LOWEST)
    return low, max((bucket.vs_max for bucket in run.buckets), default=LOWEST)


def _touched_runs(runs: Sequence[CompactionRun], masked: np.ndarray, brought: np.ndarray) -> list[bool]:
    """Which runs have a place at which a row is masked, or take one at which a row is added."""
    spans = [(bucket.vs_min, bucket.vs_max + 1, at) for at, run in enumerate(runs) for bucket in run.buckets]
    takes = [(each.start, each.end, at) for at, run in enumerate(runs) for each in run.taken_places]
    met = np.zeros(len(runs), dtype=bool)
    for places, intervals in ((masked, spans), (brought, takes)):
        if intervals:
            starts, ends, of = np.array(intervals, dtype=np.int64).T
            met[of[np.searchsorted(places, starts) < np.searchsorted(places, ends)]] = True
    result: list[bool] = met.tolist()
    return result


def rewrite_runs(
    session: Callable[[], SparkSession],
    catalog: Catalog,
    warehouse: Warehouse,
    basis: StreamState,
    plan: CompactionPlan,
    overlays: Sequence[Bucket],
) -> list[RewrittenRun]:
    """Carry out a plan. `overlays` are all live ones, since those that are not folded still mask rows."""
    found = bucket_sources(catalog, (bucket for run in plan.runs for bucket in run.buckets))
    data = {each.bucket.bucket_id: each for each in found}
    work = _RewriteTask(
        basis.stream,
        warehouse,
        plan.up_to,
        basis.aged_to,
        basis.inline_bytes < MAX_INLINE_STREAM_BYTES // 2,
        tuple(bucket_sources(catalog, overlays)),
        tuple((run, tuple(data[bucket.bucket_id] for bucket in run.buckets)) for run in plan.runs),
        tuple(_batch_runs(plan.runs)),
    )
    size = sum(source.bucket.size for source in (*found, *work.overlays))
    return _collect_rewritten(
        plan, run_tasks(session, size, len(work.tasks), partial(_rewrite_tasks, work), report_schema())
    )


def _batch_runs(runs: Sequence[CompactionRun]) -> Iterator[tuple[int, ...]]:
    task: list[int] = []
    size = 0
    for number, run in enumerate(runs):
        more = sum(bucket.size for bucket in run.buckets)
        if task and size + more > TASK_BYTES:
            yield tuple(task)
            task, size = [], 0
        task.append(number)
        size += more
    if task:
        yield tuple(task)


def _rewrite_tasks(work: _RewriteTask, tasks: Iterable[int]) -> Iterator[pa.RecordBatch]:
    cache = _OverlayCache(work)
    for task in tasks:
        for number in work.tasks[task]:
            yield from _rewrite_run(work, number, cache)


class _OverlayCache:
    """The overlays read for the last run; neighbouring runs mostly need the same."""

    def __init__(self, work: _RewriteTask) -> None:
        self._work = work
        self._read: dict[int, pa.Table] = {}

    def known(self, run: CompactionRun, found: Sequence[BucketSource]) -> Overlays:
        """The overlays that may mask a row of the run or add one to it."""
        low, high = _run_range(run, found)
        wanted = [each for each in self._work.overlays if _overlay_touches(each.bucket, low, high)]
        self._read = {each.bucket.bucket_id: self._rows(each) for each in wanted}
        stream = self._work.stream
        near = [_rows_near(rows, stream, low, high) for rows in self._read.values()]
        return Overlays(stream, pa.concat_tables([overlay_schema(stream).empty_table(), *near]))

    def _rows(self, overlay: BucketSource) -> pa.Table:
        known = self._read.get(overlay.bucket.bucket_id)
        if known is not None:
            return known
        stream = self._work.stream
        return read_overlays(stream, self._work.warehouse, [overlay]).select(overlay_schema(stream).names)


def _run_range(run: CompactionRun, found: Sequence[BucketSource]) -> tuple[int, int]:
    """The range of places of its rows, both ends included."""
    starts = [each.bucket.vs_min for each in found] + [each.start for each in run.taken_places]
    ends = [each.bucket.vs_max for each in found] + [each.end - 1 for each in run.taken_places]
    return min(starts), max(ends)


def _overlay_touches(overlay: Bucket, low: int, high: int) -> bool:
    return any(ends is not None and ends[0] <= high and ends[1] >= low for ends in (overlay.masks, overlay.content))


def _rows_near(rows: pa.Table, stream: Stream, low: int, high: int) -> pa.Table:
    """The rows of an overlay that mask or add a row between two places, both included."""
    near = np.zeros(rows.num_rows, dtype=bool)
    for name, flag in ((stream.order, LIVE), (old_column(stream.order), MASKS)):
        places = pc.fill_null(rows[name].cast(pa.int64()), LOWEST).to_numpy()
        near |= (places >= low) & (places <= high) & rows[flag].to_numpy()
    return rows if near.all() else rows.filter(pa.array(near))


def _rewrite_run(work: _RewriteTask, number: int, cache: _OverlayCache) -> Iterator[pa.RecordBatch]:
    run, found = work.runs[number]
    stream, schema = work.stream, compacted_schema(work.stream)
    known = cache.known(run, found)
    within = known.up_to(work.up_to)
    brings = _rows_brought(within, run, work)
    tables, left_out = [brings], 0
    for source in found:
        rows = _with_origin(source, source.read(work.warehouse), schema)
        aged = order_values(rows[stream.order]) < _first_kept_place(work.aged_to)
        masked = within.masked(rows, source.bucket.floor)
        gone = masked | aged
        left_out += int((masked & ~aged).sum())
        tables.append(rows.filter(pa.array(~gone)) if gone.any() else rows)
    if not (run.always_rewritten or left_out or brings.num_rows):
        return
    yield report_row(ReportKind.COUNT, slot=number)
    rows = sort_rows(pa.concat_tables(tables), stream)
    writer = BucketWriter(stream, work.warehouse, inline=work.inline)
    worked_in = left_out or brings.num_rows
    folded = work.up_to if worked_in else max(each.bucket.folded for each in found)
    for bucket in cut_evenly(rows, stream.bucket_rows):
        superseded = int(known.masked(bucket, run.floor).sum())
        written = writer.write(bucket, Role.BASE)
        yield bucket_report(number, replace(written, floor=run.floor, folded=folded, masked=superseded))


def _rows_brought(within: Overlays, run: CompactionRun, work: _RewriteTask) -> pa.Table:
    """The rows that overlays add to this run."""
    if not run.taken_places:
        return compacted_schema(work.stream).empty_table()
    rows = within.live_rows(work.aged_to)
    places = order_values(rows[work.stream.order])
    here = np.zeros(rows.num_rows, dtype=bool)
    for each in run.taken_places:
        here |= (places >= each.start) & (places < each.end)
    return conform(rows.filter(pa.array(here)), compacted_schema(work.stream))


def _with_origin(source: BucketSource, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    if BATCH not in rows.column_names:
        batch = pa.repeat(pa.scalar(source.bucket.batch_no, pa.int64()), rows.num_rows)
        rows = rows.append_column(BATCH, batch)
    return conform(rows, schema)


def _collect_rewritten(plan: CompactionPlan, reports: pa.Table) -> list[RewrittenRun]:
    """For each run that was rewritten, its buckets. A run that was left as it is has no report."""
    written: dict[int, list[NewBucket]] = {}
    for row in reports.to_pylist():
        of_run = written.setdefault(row["slot"], [])
        if row["said"] == ReportKind.BASE.value:
            of_run.append(bucket_from_row(row))
    return [RewrittenRun(plan.runs[number].buckets, tuple(made)) for number, made in written.items()]
