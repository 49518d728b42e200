"""Compaction: overlays worked into the buckets that they touch, and small buckets merged. Nothing else is rewritten.

Each run of buckets is rewritten by one task: read, what is masked left out, what overlays bring put in, sorted, cut,
written. Runs do not know of each other, so nothing is shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from errata.archive.masks import Overlays, Source, read_overlays, sources
from errata.archive.order import in_order
from errata.archive.overlay import BATCH, LIVE, MASKS, REVISION, overlay_schema
from errata.archive.tasks import in_tasks
from errata.archive.warehouse import Warehouse
from errata.archive.wire import Said, conformed, heard_bucket, old_column, told, told_bucket, told_schema
from errata.archive.written import POS, BucketWriter, order_values
from errata.catalog.open import Catalog
from errata.catalog.streams import Standing
from errata.intake.arrow_types import arrow_schema
from errata.model.bucket import INLINE_STREAM_BYTES, Bucket, NewBucket, Role
from errata.model.compaction import Due, Why
from errata.model.interval import HIGHEST, LOWEST, Interval
from errata.model.stream import Stream

TASK_BYTES = 8 * 1024 * 1024
"""Small runs share a task until it has this much to read."""


@dataclass(frozen=True, slots=True)
class Run:
    """Buckets that become one stretch of new ones."""

    buckets: tuple[Bucket, ...]
    why: Why
    floor: int
    """What the new ones have for a floor."""
    takes: tuple[Interval, ...] = ()
    """Where rows of overlays come to lie in it."""

    @property
    def merges(self) -> bool:
        """Whether it is rewritten in any case, and not only if an overlay masks a row of it or brings one."""
        return self.why is not Why.CORRECTED


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be rewritten, and what is then no longer needed."""

    runs: tuple[Run, ...]
    overlays: tuple[Bucket, ...]
    """Overlays that are worked in, whole."""
    up_to: int
    """The last revision that is worked in; 0 for none."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What came of a run: new buckets instead of old ones."""

    replaced: tuple[Bucket, ...]
    written: tuple[NewBucket, ...]
    masked: tuple[int, ...]
    """For each new bucket how many of its rows are superseded by revisions that are still to be worked in."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What every task needs to know; it travels to all of them."""

    stream: Stream
    warehouse: Warehouse
    up_to: int
    aged_to: int | None
    inline: bool
    overlays: tuple[Source, ...]
    runs: tuple[tuple[Run, tuple[Source, ...]], ...]
    tasks: tuple[tuple[int, ...], ...]
    """The numbers of the runs of each task."""


def stored_schema(stream: Stream) -> pa.Schema:
    """Rows of a bucket that compaction has made: each tells itself where it came from."""
    origin = [pa.field(name, pa.int64()) for name in (POS, BATCH, REVISION)]
    return pa.schema([*arrow_schema(stream), *origin])


def plan(catalog: Catalog, warehouse: Warehouse, basis: Standing, due: Due) -> Plan:
    """Which buckets overlays touch, and where the rows that they bring come to lie."""
    runs = [Run(each.buckets, each.why, each.floor) for each in due.merge]
    if not due.fold:
        return Plan(tuple(runs), (), 0)
    runs += [Run((bucket,), Why.CORRECTED, due.up_to) for bucket in due.free]
    masked, brought = _places(basis, warehouse, sources(catalog, due.fold))
    if len(brought) and all(run.floor > due.up_to for run in runs):
        runs.append(Run((), Why.CORRECTED, due.up_to))
    placed = _placed(runs, due.up_to)
    found = zip(placed, _meets(placed, masked, brought), strict=True)
    return Plan(tuple(run for run, meets in found if meets or run.merges), due.fold, due.up_to)


def _places(basis: Standing, warehouse: Warehouse, overlays: Sequence[Source]) -> tuple[np.ndarray, np.ndarray]:
    """Where overlays mask rows and where they bring some, sorted."""
    new, old = basis.stream.order, old_column(basis.stream.order)
    masked, brought = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for source in overlays:
        rows = source.read(warehouse, [MASKS, LIVE, new, old])
        masked.append(order_values(rows.filter(rows[MASKS])[old]))
        brought.append(order_values(rows.filter(rows[LIVE])[new]))
    places = np.concatenate(brought)
    return np.sort(np.concatenate(masked)), np.sort(places[places >= _least(basis.aged_to)])


def _least(aged_to: int | None) -> int:
    return LOWEST if aged_to is None else aged_to


def _placed(runs: Sequence[Run], up_to: int) -> list[Run]:
    """The runs with the places for whose rows each is: those that it spans, and those behind it up to the next. Of
    runs that overlap, the one that begins last. One whose floor is too high takes none: revisions that are still
    overlays would not mask there what they mask."""
    able = [run for run in runs if run.floor <= up_to]
    ordered = sorted(((*_ends(run), run) for run in able), key=lambda each: each[:2])
    takes: dict[int, list[Interval]] = {id(run): [] for run in able}
    longest = -1
    for at, (start, end, run) in enumerate(ordered):
        following = ordered[at + 1][0] if at + 1 < len(ordered) else HIGHEST
        if longest < 0 or end >= ordered[longest][1]:
            longest = at
        first, middle = start if at else LOWEST, min(end + 1, following)
        takes[id(run)].append(Interval(first, middle))
        takes[id(ordered[longest][2])].append(Interval(middle, following))
    return [replace(run, takes=tuple(each for each in takes.get(id(run), ()) if not each.empty)) for run in runs]


def _ends(run: Run) -> tuple[int, int]:
    """The first and last place of a run; an empty one lies nowhere and begins with everything."""
    low = min((bucket.vs_min for bucket in run.buckets), default=LOWEST)
    return low, max((bucket.vs_max for bucket in run.buckets), default=LOWEST)


def _meets(runs: Sequence[Run], masked: np.ndarray, brought: np.ndarray) -> list[bool]:
    """Which runs have a place at which something is masked, or take one at which something is brought."""
    spans = [(bucket.vs_min, bucket.vs_max + 1, at) for at, run in enumerate(runs) for bucket in run.buckets]
    takes = [(each.start, each.end, at) for at, run in enumerate(runs) for each in run.takes]
    met = np.zeros(len(runs), dtype=bool)
    for places, intervals in ((masked, spans), (brought, takes)):
        if intervals:
            starts, ends, of = np.array(intervals, dtype=np.int64).T
            met[of[np.searchsorted(places, starts) < np.searchsorted(places, ends)]] = True
    result: list[bool] = met.tolist()
    return result


def rewrite(
    session: Callable[[], SparkSession],
    catalog: Catalog,
    warehouse: Warehouse,
    basis: Standing,
    plan: Plan,
    overlays: Sequence[Bucket],
) -> list[Rewritten]:
    """Carry a plan out. `overlays` are all that are live: what is not worked in yet still masks."""
    found = sources(catalog, (bucket for run in plan.runs for bucket in run.buckets))
    data = {each.bucket.bucket_id: each for each in found}
    work = _Work(
        basis.stream,
        warehouse,
        plan.up_to,
        basis.aged_to,
        basis.inline_bytes < INLINE_STREAM_BYTES // 2,
        tuple(sources(catalog, overlays)),
        tuple((run, tuple(data[bucket.bucket_id] for bucket in run.buckets)) for run in plan.runs),
        tuple(_tasks(plan.runs)),
    )
    size = sum(source.bucket.size for source in (*found, *work.overlays))
    return _heard(plan, in_tasks(session, size, len(work.tasks), partial(_carried_out, work), told_schema()))


def _tasks(runs: Sequence[Run]) -> Iterator[tuple[int, ...]]:
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


def _carried_out(work: _Work, tasks: Iterable[int]) -> Iterator[pa.RecordBatch]:
    shelf = _Shelf(work)
    for task in tasks:
        for number in work.tasks[task]:
            yield from _rewrite_run(work, number, shelf)


class _Shelf:
    """The overlays that one run after the other asks for; runs side by side mostly ask for the same."""

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._read: dict[int, pa.Table] = {}

    def known(self, run: Run, found: Sequence[Source]) -> Overlays:
        """All that may mask a row of the run, or bring one to it."""
        low, high = _reach(run, found)
        wanted = [each for each in self._work.overlays if _touches(each.bucket, low, high)]
        self._read = {each.bucket.bucket_id: self._rows(each) for each in wanted}
        stream = self._work.stream
        near = [_near(rows, stream, low, high) for rows in self._read.values()]
        return Overlays(stream, pa.concat_tables([overlay_schema(stream).empty_table(), *near]))

    def _rows(self, overlay: Source) -> pa.Table:
        known = self._read.get(overlay.bucket.bucket_id)
        if known is not None:
            return known
        stream = self._work.stream
        return read_overlays(stream, self._work.warehouse, [overlay]).select(overlay_schema(stream).names)


def _reach(run: Run, found: Sequence[Source]) -> tuple[int, int]:
    """From where to where its rows can lie, both included."""
    starts = [each.bucket.vs_min for each in found] + [each.start for each in run.takes]
    ends = [each.bucket.vs_max for each in found] + [each.end - 1 for each in run.takes]
    return min(starts), max(ends)


def _touches(overlay: Bucket, low: int, high: int) -> bool:
    return any(ends is not None and ends[0] <= high and ends[1] >= low for ends in (overlay.masks, overlay.content))


def _near(rows: pa.Table, stream: Stream, low: int, high: int) -> pa.Table:
    """The rows of an overlay that mask or bring something between two places, both included."""
    near = np.zeros(rows.num_rows, dtype=bool)
    for name, flag in ((stream.order, LIVE), (old_column(stream.order), MASKS)):
        places = pc.fill_null(rows[name].cast(pa.int64()), LOWEST).to_numpy()
        near |= (places >= low) & (places <= high) & rows[flag].to_numpy()
    return rows if near.all() else rows.filter(pa.array(near))


def _rewrite_run(work: _Work, number: int, shelf: _Shelf) -> Iterator[pa.RecordBatch]:
    run, found = work.runs[number]
    stream, schema = work.stream, stored_schema(work.stream)
    known = shelf.known(run, found)
    within = known.up_to(work.up_to)
    brings = _brought(within, run, work)
    tables, left_out = [brings], 0
    for source in found:
        rows = _with_origin(source, source.read(work.warehouse), schema)
        aged = order_values(rows[stream.order]) < _least(work.aged_to)
        masked = within.masked(rows, source.bucket.floor)
        gone = masked | aged
        left_out += int((masked & ~aged).sum())
        tables.append(rows.filter(pa.array(~gone)) if gone.any() else rows)
    if not (run.merges or left_out or brings.num_rows):
        return
    yield told(Said.COUNT, slot=number)
    rows = in_order(pa.concat_tables(tables), stream)
    writer = BucketWriter(stream, work.warehouse, inline=work.inline)
    worked_in = left_out or brings.num_rows
    folded = work.up_to if worked_in else max(each.bucket.folded for each in found)
    for bucket in _cut(rows, stream.bucket_rows):
        yield told_bucket(number, writer.write(bucket, Role.BASE))
        yield told(Said.COUNT, slot=number, rows=int(known.masked(bucket, run.floor).sum()), size=folded)


def _cut(rows: pa.Table, bucket_rows: int) -> Iterator[pa.Table]:
    """The rows in buckets as even as can be: none is a splinter that would be small again."""
    pieces = -(-rows.num_rows // bucket_rows)
    cuts = np.linspace(0, rows.num_rows, pieces + 1).astype(int).tolist()
    for low, high in pairwise(cuts):
        yield rows.slice(low, high - low)


def _brought(within: Overlays, run: Run, work: _Work) -> pa.Table:
    """The rows of overlays that are worked in here."""
    if not run.takes:
        return stored_schema(work.stream).empty_table()
    rows = within.surviving(work.aged_to)
    places = order_values(rows[work.stream.order])
    here = np.zeros(rows.num_rows, dtype=bool)
    for each in run.takes:
        here |= (places >= each.start) & (places < each.end)
    return conformed(rows.filter(pa.array(here)), stored_schema(work.stream))


def _with_origin(source: Source, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    if BATCH not in rows.column_names:
        batch = pa.repeat(pa.scalar(source.bucket.batch_no, pa.int64()), rows.num_rows)
        rows = rows.append_column(BATCH, batch)
    return conformed(rows, schema)


def _heard(plan: Plan, said: pa.Table) -> list[Rewritten]:
    """What the tasks told: for each run that was rewritten a mark, then its buckets, each before what is said of it."""
    heard: dict[int, tuple[list[NewBucket], list[int]]] = {}
    for row in said.to_pylist():
        written, masked = heard.setdefault(row["slot"], ([], []))
        if row["said"] == Said.BASE.value:
            written.append(replace(heard_bucket(row), floor=plan.runs[row["slot"]].floor))
        elif row["rows"] is not None:
            written[-1] = replace(written[-1], folded=row["size"])
            masked.append(row["rows"])
    return [
        Rewritten(plan.runs[number].buckets, tuple(made), tuple(masked)) for number, (made, masked) in heard.items()
    ]
