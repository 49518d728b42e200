"""Windows of a stream that corrections touch, estimated from less than their rows (Maskey and Cherniack 2008, section
4.3).

    sample                copies of buckets, or rows of them, sampled at a rate      95% intervals
    impact, histogram     approximations kept with a summary of the same window      certain bounds
                          and group

What is stored of base buckets knows nothing of corrections. So it is corrected by the revisions themselves, which say
both the rows that they removed from base buckets and the rows that they added: of approximations the removed values are
taken out; a sample leaves removed rows out by their key; what was added counts exactly. Buckets without approximations
are read, and only touched windows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from errata.answer.source_revisions import revisions_of_overlays
from errata.archive.approximation_parts import (
    approximation_parts,
    concat_approximations,
    number_groups,
    present_values,
    read_approximation,
    with_windows,
)
from errata.archive.approximations import BoundedValues, Estimates, KnownValues, Ranged, SampledValues, corrected
from errata.archive.bucket_frames import run_tasks
from errata.archive.overlays import BucketSource, Overlays, bucket_sources, identity_columns, read_overlays
from errata.archive.partials import ROWS, WINDOW, combined_parts, partial_aggregates
from errata.archive.sampling import rows_of_sample, sampling_hashes
from errata.archive.scan_plan import ArchiveScan, ScanBuckets, candidate_buckets
from errata.archive.schemas import conform, overlay_schema, pack_table, unpack_table
from errata.archive.summary_parts import cached_forms, parts_by_original
from errata.catalog import buckets
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.errors import UsageError
from errata.intake.types import arrow_schema
from errata.language.summaries import SketchKind, SketchMeasure, SummaryForm
from errata.model.bucket import Bucket, Role
from errata.model.columns import Column
from errata.model.reduction import uniform_rates
from errata.model.stream import Stream
from errata.model.time import Interval
from errata.reduce.summaries import meets_windows

_BLOB = "rows"
_TASK_SCHEMA = pa.schema([pa.field(_BLOB, pa.binary())])


@dataclass(frozen=True, slots=True)
class WindowQuestion:
    """Aggregates of a stream by window and group."""

    name: str
    stream: Stream
    window: int
    group: tuple[Column, ...]
    aggregates: Mapping[str, tuple[str, Column | None]]
    """By name of the result's column: the function, and the column that it is of (None for count(*))."""

    @property
    def keys(self) -> tuple[str, ...]:
        return (WINDOW, *(each.name for each in self.group))

    @property
    def columns_read(self) -> list[str]:
        """The columns of rows that the aggregates need."""
        arguments = [column.name for _, column in self.aggregates.values() if column is not None]
        return list(dict.fromkeys((self.stream.order, *self.keys[1:], *arguments)))


@dataclass(frozen=True, slots=True)
class EstimatedValue:
    """One value of a result that corrections touch."""

    query: str
    start: int
    """Of the window."""
    group: tuple[object, ...]
    column: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class TouchedWindows:
    """Some windows of a stream as of a commit."""

    question: WindowQuestion
    state: StreamState
    commit_id: int
    starts: np.ndarray
    """In order; none of the windows is aged out in part."""

    @property
    def hull(self) -> Interval:
        """From the first window to the last."""
        starts = self.starts
        return Interval(int(starts[0]), int(starts[-1]) + self.question.window) if len(starts) else Interval(0, 0)

    def candidates(self, site: Site, rate: float | None = None) -> ScanBuckets:
        """The buckets that can have rows in the windows, of a scan at a rate."""
        if not len(self.starts):
            return ScanBuckets([])
        rates = None if rate is None else uniform_rates(rate)
        scan = ArchiveScan(self.state, self.commit_id, self.hull, rates=rates)
        found = candidate_buckets(site.catalog, scan, indexed=True)
        near = [each for each in found.base if meets_windows(each, self.starts, self.question.window)]
        return ScanBuckets(near, found.overlays, prefixes=found.prefixes)

    def rows_within(self, rows: pa.Table) -> pa.Table:
        """Rows in the windows, with the start of theirs."""
        return self.of_windows(with_windows(rows, self.question.stream.order, self.question.window))

    def of_windows(self, table: pa.Table) -> pa.Table:
        """What a table with starts of windows has of these."""
        return table.filter(pa.array(np.isin(table[WINDOW].to_numpy(), self.starts)))


@dataclass(frozen=True, slots=True)
class WindowRevisions:
    """What revisions have changed in some windows."""

    removed: pa.Table
    """Rows of base buckets that they have removed, with the start of their window."""
    added: pa.Table
    """Rows that they have added."""
    overlays: Overlays

    @classmethod
    def read(cls, site: Site, touched: TouchedWindows, overlays: Sequence[Bucket]) -> WindowRevisions:
        """Read the revisions of overlays."""
        stream, state = touched.question.stream, touched.state
        rows = read_overlays(stream, site.warehouse, bucket_sources(site.catalog, overlays))
        rows = rows.select(overlay_schema(stream).names)
        # A row that a folded revision made lies in a base bucket by now.
        net = revisions_of_overlays(stream, rows, state.folded, state.applied, 0)
        empty = arrow_schema(stream).empty_table()
        removed, added = (touched.rows_within(empty if each is None else each) for each in (net.before, net.after))
        return cls(removed, added, Overlays(stream, rows))


@dataclass
class WindowEstimate:
    """Estimates of some windows, and what is read for them."""

    site: Site
    touched: TouchedWindows
    revisions: WindowRevisions
    found: ScanBuckets
    size: int = field(default=0)
    """Bytes of buckets that were read."""

    @classmethod
    def begin(
        cls, site: Site, question: WindowQuestion, state: StreamState, commit_id: int, windows: np.ndarray
    ) -> WindowEstimate:
        """Find the buckets, and read the revisions."""
        touched = TouchedWindows(question, state, commit_id, windows)
        found = touched.candidates(site)
        revisions = WindowRevisions.read(site, touched, found.overlays)
        return cls(site, touched, revisions, found, sum(each.size for each in found.overlays))

    @property
    def question(self) -> WindowQuestion:
        return self.touched.question

    @property
    def exact_size(self) -> int:
        """Bytes of the buckets that a replay of these windows opens."""
        return sum(each.size for each in self.found.all)

    def by_sample(self, rate: float) -> list[EstimatedValue]:
        """Estimates from a sample of the rows, with 95% intervals. Rows that revisions added all count."""
        question = self.question
        found = self.touched.candidates(self.site, rate)
        names = [*question.columns_read, *identity_columns(question.stream)]
        read = self._read_rows(found.base, names, _RowSelection(self.revisions.overlays, rate, found.prefixes))
        schema = pa.schema([arrow_schema(question.stream).field(name) for name in dict.fromkeys(names)])
        rows = self.touched.rows_within(pa.concat_tables([schema.empty_table(), *read]))
        keys, (drawn, come, gone) = _number_together(question, rows, self.revisions.added, self.revisions.removed)

        def estimate(function: str, column: Column | None) -> Estimates:
            sampled, known = _values_of(rows, drawn, column), _values_of(self.revisions.added, come, column)
            return SampledValues(keys.num_rows, rate, sampled, known).estimate(function)

        return list(self._estimated(keys, np.union1d(come, gone), estimate))

    def by_parts(self, kind: SketchKind) -> list[EstimatedValue]:
        """Estimates from approximations that are kept with a summary, with certain bounds."""
        question, form = self.question, self._summary(kind)
        stored = buckets.visible_buckets(
            self.site.catalog, self.touched.state.stream_id, self.touched.commit_id, role=Role.SUMMARY
        )
        approximated = {each: parts_by_original(stored, each) for each in (form.digest, form.approximation_digest)}
        complete = set.intersection(*({*each} for each in approximated.values()))
        missing = [each for each in self.found.base if each.bucket_id not in complete]
        raw = self._read_rows(missing, form.columns_read, _RowSelection())
        there = [each.bucket_id for each in self.found.base if each.bucket_id in complete]
        exact, approximate = (self._read_parts([of[number] for number in there]) for of in approximated.values())
        counts = combined_parts(form, [*exact, *(partial_aggregates(form, each) for each in raw)])
        whole = concat_approximations(form, [*approximate, *(approximation_parts(form, each) for each in raw)])
        counts, whole = (self.touched.of_windows(each) for each in (counts, whole))
        keys, (of_counts, of_parts, come, gone) = _number_together(
            question, counts, whole, self.revisions.added, self.revisions.removed
        )

        def estimate(function: str, column: Column | None) -> Estimates:
            if column is None:
                rows = counts[ROWS].to_numpy()
                found = BoundedValues(keys.num_rows, KnownValues(), _unread(of_counts, rows))
            else:
                found = read_approximation(form, _measure(form, kind, column), whole, of_parts, keys.num_rows)
            taken, brought = (
                _values_of(self.revisions.removed, gone, column),
                _values_of(self.revisions.added, come, column),
            )
            return corrected(found, taken, brought).estimate(function)

        return list(self._estimated(keys, np.union1d(come, gone), estimate))

    def _summary(self, kind: SketchKind) -> SummaryForm:
        """A declared summary with approximations of all columns that are asked for."""
        question = self.question
        wanted = {column.name for _, column in question.aggregates.values() if column is not None}
        for form in cached_forms(question.stream):
            kept = {each.column.name for each in form.approximations if each.kind is kind}
            same = form.window == question.window and {*form.declaration.group} == {*question.keys[1:]}
            if same and wanted <= kept:
                return form
        example = "20" if kind is SketchKind.IMPACT else "0, 1000, 20"
        columns = ", ".join(f"{kind.value}({name}, {example})" for name in sorted(wanted)) or "an approximation"
        names = ", ".join(sorted(wanted)) or "anything"
        raise UsageError(
            f"there is no {kind.value} approximation of its windows",
            why=f"no summary of {question.stream.name} with this window and group keeps one of {names}",
            how=f"declare a summary with {columns}, or take the method sample",
        )

    def _read_parts(self, some: Sequence[Bucket]) -> list[pa.Table]:
        self.size += sum(each.size for each in some)
        return [each.read(self.site.warehouse) for each in bucket_sources(self.site.catalog, some)]

    def _read_rows(self, some: Sequence[Bucket], names: Iterable[str], selection: _RowSelection) -> list[pa.Table]:
        """Rows of base buckets in the touched windows, a table for each bucket."""
        if not some:
            return []
        stream = self.question.stream
        schema = pa.schema([arrow_schema(stream).field(name) for name in dict.fromkeys((*names, *stream.key))])
        size = round(sum(each.size * selection.share(each) for each in some))
        self.size += size
        sources = tuple(bucket_sources(self.site.catalog, some))
        work = _ReadWork(self.touched, self.site.warehouse, schema, selection, sources)
        reports = run_tasks(self.site.session, size, len(sources), partial(_read_tasks, work), _TASK_SCHEMA)
        kept = list(dict.fromkeys(names))
        return [unpack_table(blob).select(kept) for blob in reports[_BLOB].to_pylist()]

    def _estimated(
        self, keys: pa.Table, touched: np.ndarray, estimate: Callable[[str, Column | None], Estimates]
    ) -> Iterator[EstimatedValue]:
        """The estimates of all aggregates in the touched windows and groups."""
        rows = keys.take(pa.array(touched, pa.int64())).to_pylist()
        for name, (function, column) in self.question.aggregates.items():
            found = estimate(function, column)
            for row, at in zip(rows, touched.tolist(), strict=True):
                start, *group = (row[each] for each in self.question.keys)
                numbers = (float(each[at]) for each in (found.value, found.low, found.high))
                yield EstimatedValue(self.question.name, start, tuple(group), name, *numbers)


@dataclass(frozen=True, slots=True)
class _RowSelection:
    """Which stored rows of base buckets are read."""

    overlays: Overlays | None = None
    """Rows that these mask are left out; None: what is stored is read."""
    rate: float | None = None
    prefixes: Mapping[int, float] = field(default_factory=dict)
    """By id: the rate up to which a bucket in blocks is read."""

    def share(self, bucket: Bucket) -> float:
        return self.prefixes.get(bucket.bucket_id, 1.0)


@dataclass(frozen=True, slots=True)
class _ReadWork:
    """Buckets whose rows are read; it travels to tasks."""

    touched: TouchedWindows
    warehouse: Warehouse
    schema: pa.Schema
    selection: _RowSelection
    sources: tuple[BucketSource, ...]

    def read(self, number: int) -> pa.Table:
        source, selection, stream = self.sources[number], self.selection, self.touched.question.stream
        bucket, places = source.bucket, self.touched.hull
        prefix = selection.prefixes.get(bucket.bucket_id)
        if prefix is None:
            rows = source.read_between(self.warehouse, self.schema.names, stream.order, places.start, places.end - 1)
        else:
            rows = source.read_sample(self.warehouse, self.schema.names, prefix)
        rows = conform(rows, self.schema)
        if selection.rate is not None:
            rows = rows_of_sample(rows, sampling_hashes(rows, stream.key), selection.rate)
        if selection.overlays is not None:
            rows = rows.filter(pa.array(~selection.overlays.masked(rows, bucket.floor)))
        return self.touched.rows_within(rows).drop_columns(WINDOW)


def _read_tasks(work: _ReadWork, tasks: Iterable[int]) -> Iterator[pa.RecordBatch]:
    for number in tasks:
        yield pa.record_batch([pa.array([pack_table(work.read(number))], pa.binary())], schema=_TASK_SCHEMA)


def _number_together(question: WindowQuestion, *tables: pa.Table) -> tuple[pa.Table, list[np.ndarray]]:
    """The windows and groups of several tables, numbered alike."""
    keys = pa.concat_tables([each.select(list(question.keys)) for each in tables])
    found, codes = number_groups(keys, question.keys)
    cuts = np.cumsum([each.num_rows for each in tables])[:-1]
    return found, np.split(codes, cuts)


def _values_of(rows: pa.Table, codes: np.ndarray, column: Column | None) -> KnownValues:
    """The values of a column that are not NULL; zeros for count(*)."""
    if column is None:
        return KnownValues(codes, np.zeros(len(codes)))
    return KnownValues(*present_values(rows[column.name], codes))


def _unread(codes: np.ndarray, counts: np.ndarray) -> Ranged:
    """Rows that are only counted."""
    zeros = np.zeros(len(codes))
    return Ranged(codes, counts, zeros, zeros)


def _measure(form: SummaryForm, kind: SketchKind, column: Column) -> SketchMeasure:
    return next(each for each in form.approximations if each.kind is kind and each.column == column)
