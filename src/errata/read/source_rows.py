"""Source rows of a result: the changed rows whose forward lineage contains it, and the rows behind it when it was
published and now, with the difference.

Backward lineage gives the extents to read of each source. Few rows are compared in memory, many by an engine, of which
only the latest are fetched. Rows that lineage cannot rule out from their constants alone are followed through the plan
one by one, up to MAX_TRACED_ROWS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from errata.answer.inputs import estimate_rows
from errata.answer.progress import result_horizon
from errata.archive.bucket_frames import LOCAL_ROWS
from errata.archive.results import buckets_by_instant, buckets_by_start, results_frame
from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.archive.tables import match_rows
from errata.catalog import commits, streams
from errata.catalog.result_archives import ResultArchive, evaluations_of, read_archive
from errata.declare.site import Site
from errata.engine.budget import EngineDemand
from errata.engine.frames import arrow_ddl, fetch_rows, frame_of_rows, sql_column
from errata.engine.plans.node_rows import quote_name
from errata.errors import ErrataError
from errata.intake.encoding import JsonRow, json_rows
from errata.language.lineage import InputChange
from errata.model.bucket import Bucket
from errata.model.commit import Evaluation
from errata.model.extent import Extent, ExtentAxis, rows_starting_in
from errata.model.results import VE, VS
from errata.model.stream import Stream
from errata.model.time import LOWEST, Interval, merge_intervals
from errata.read.lineage_rows import filter_frame, frame_with_lifetimes, rows_in_reach, valid_versions, with_lifetimes
from errata.read.output import FrameOrTable
from errata.read.provenance import ProvenanceRow, ProvenanceState, RowFate, SourceProvenance
from errata.read.query_forms import QueryForm, QueryForms
from errata.read.stream_scan import current_horizon

MAX_TRACED_ROWS = 1_000
"""Rows that are followed through the plan one by one to see whether they lead to a result. If there are more, all of
them are taken to lead to it."""


@dataclass(frozen=True, slots=True)
class VersionTable:
    """Versions of rows under the names of their source, and which of them exist."""

    rows: pa.Table
    there: pa.ChunkedArray | pa.Array


def contributing_places(
    form: QueryForm,
    region: Extent,
    reads: Sequence[Extent],
    source: str,
    sides: Sequence[VersionTable],
    stream: Stream | None,
) -> pa.Array:
    """The places of the rows that have a version which leads to a region."""
    if not sides[0].rows.num_rows:
        return pa.array([], pa.int64())
    timed = [with_lifetimes(each.rows, stream) for each in sides]
    near = [
        np.logical_or.reduce([rows_in_reach(rows, each) for each in reads])
        if reads
        else np.zeros(rows.num_rows, np.bool_)
        for rows in timed
    ]
    there = [np.asarray(each.there.to_numpy(zero_copy_only=False), np.bool_) for each in sides]
    maybe = np.flatnonzero(np.logical_or.reduce([one & other for one, other in zip(near, there, strict=True)]))
    if len(maybe) > MAX_TRACED_ROWS:
        return pa.array(maybe)
    plain = [lineage_constants(rows.take(pa.array(maybe))).to_pylist() for rows in timed]
    found = [
        place
        for number, place in enumerate(maybe.tolist())
        if any(
            flags[place] and _leads_to_region(form, region, source, some[number])
            for flags, some in zip(there, plain, strict=True)
        )
    ]
    return pa.array(found, pa.int64())


def _leads_to_region(form: QueryForm, region: Extent, source: str, row: Mapping[str, Any]) -> bool:
    """Whether one version of a row leads to a region."""
    for place, scan in enumerate(form.scans):
        if scan.source.name == source:
            values = {scan.column(name): value for name, value in row.items() if name not in (VS, VE)}
            rows = rows_starting_in(Interval(row[VS], row[VS] + 1), values, last_end=row[VE])
            if form.touches(InputChange(place, rows), region):
                return True
    return False


def lineage_constants(rows: pa.Table) -> pa.Table:
    """The rows, with times as lineage represents them."""
    columns = [each.cast(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in rows.columns]
    return pa.table(columns, rows.column_names)


# The rows behind a result when it was published and now.

SHOWN_ROWS = 20
"""Rows of a source that are returned."""

MAX_DIFFERING_ROWS = 1_000
"""Differing rows, in a comparison by an engine, that are paired by key into changed rows."""


@dataclass(frozen=True, slots=True)
class ResultState:
    """A result as of one evaluation."""

    form: QueryForm
    evaluation: Evaluation
    region: Extent

    @property
    def commit_id(self) -> int:
        """The commit whose state of the streams it was made from. A correction reads what had been applied when it was
        committed."""
        evaluation = self.evaluation
        return evaluation.data_commit if evaluation.correction is None else evaluation.commit_id


@dataclass(frozen=True, slots=True)
class _SourceRows:
    """The rows of a source that made a result."""

    commit_id: int
    rows: FrameOrTable
    """Rows with `_vs`; a table if they are few."""
    count: int
    key: Sequence[str]
    """The columns that identify a row."""
    shown: Mapping[str, str]
    """Visible columns and their display names."""
    aged_to: int | None


@dataclass
class ProvenanceReader:
    """Reads the rows behind results."""

    site: Site
    forms: QueryForms

    def sources(self, moments: Sequence[ResultState], now: ResultState) -> list[SourceProvenance]:
        """The rows of each source at the earliest of the states that is still readable, and now."""
        return [self._of_source(name, moments, now) for name in now.form.sources]

    def _of_source(self, name: str, moments: Sequence[ResultState], now: ResultState) -> SourceProvenance:
        noun = next(str(scan.source.kind) for scan in now.form.scans if scan.source.name == name)
        there = self._rows(name, now, past=False)
        lost = ""
        for each in moments:
            if name not in each.form.sources:
                lost = lost or f"the query did not read {name} then"
                continue
            try:
                was = self._rows(name, each, past=True)
            except ErrataError as error:
                lost = lost or f"{error.what}: {error.why}" if error.why else error.what
                continue
            return self._compared(name, noun, was, there, lost)
        state = ProvenanceState(moments[0].commit_id if moments else there.commit_id, None, lost)
        rows = [ProvenanceRow(RowFate.SAME, None, said) for said in _display_rows(there, _last_rows(there.rows))]
        return SourceProvenance(name, noun, state, ProvenanceState(there.commit_id, there.count), rows, 0)

    def _rows(self, name: str, moment: ResultState, *, past: bool) -> _SourceRows:
        """The rows behind a result; with `past`, only if that state can still be read exactly."""
        until = moment.evaluation.frontier + 1
        reads = moment.form.reads(moment.region).get(name, [])
        reads = [replace(each, interval=Interval(each.interval.start, min(each.interval.end, until))) for each in reads]
        reads = [each for each in reads if not each.interval.empty]
        of = read_archive(self.site.catalog, name, moment.evaluation.commit_id)
        if of is not None:
            return self._of_query(of, moment, reads, past=past)
        return self._of_stream(name, moment, reads, past=past)

    def _of_stream(self, name: str, moment: ResultState, reads: Sequence[Extent], *, past: bool) -> _SourceRows:
        site = self.site
        # The present rows are read as of the newest commit, without revisions that the evaluation did not take up.
        commit_id = moment.commit_id if past else commits.newest_commit(site.catalog)
        standing = streams.stream_state(site.catalog, name, commit_id)
        if past:
            commits.check_readable(site.catalog, commit_id, current_horizon(site.catalog, standing), name)
        stream, revision = standing.stream, moment.evaluation.revisions.get(name)
        up_to = None if revision is None or revision >= standing.applied else revision
        from_ever = stream.relation is not None
        spans = merge_intervals(
            Interval(LOWEST if from_ever or each.axis is ExtentAxis.INSTANT else each.interval.start, each.interval.end)
            for each in reads
        )
        hull = Interval(spans[0].start, spans[-1].end) if spans else Interval(0, 0)
        scan = ArchiveScan(standing, commit_id, hull, None, up_to)
        found = candidate_buckets(site.catalog, scan, indexed=True)
        shown = {each: each for each in stream.names}
        kinds = {each.name: each.type for each in stream.columns}

        def made(session: SparkSession) -> DataFrame:
            rows = scan_rows(session, site.catalog, site.warehouse, scan, found)
            return filter_frame(frame_with_lifetimes(rows, stream), reads, kinds)

        demand = EngineDemand(estimate_rows(found.all, hull), sum(each.size for each in found.all))
        rows, _ = site.engines().read(demand, made)
        if not isinstance(rows, pa.Table):
            if (count := rows.count()) > LOCAL_ROWS:
                return _SourceRows(commit_id, rows.drop(VE), count, stream.key, shown, standing.aged_to)
            rows = fetch_rows(rows)
        if stream.relation is not None:
            rows = valid_versions(rows, stream, reads)
        return _SourceRows(commit_id, rows.drop_columns([VE]), rows.num_rows, stream.key, shown, standing.aged_to)

    def _of_query(self, of: ResultArchive, moment: ResultState, reads: Sequence[Extent], *, past: bool) -> _SourceRows:
        site, shape = self.site, of.shape
        number = moment.evaluation.inputs.get(of.name, of.last.number)
        told = {each.number: each for each in evaluations_of(site.catalog, of.stream_id)}
        commit_id = told[number].commit_id
        if number == max(told):
            commit_id = commits.newest_commit(site.catalog) if read_archive(site.catalog, of.name) else commit_id
        elif past:
            commits.check_readable(site.catalog, commit_id, result_horizon(site.catalog), of.name, "query")
        names = self.forms.of(of).fields
        kept = [replace(each, values={names[name]: value for name, value in each.values.items()}) for each in reads]
        found: dict[int, Bucket] = {}
        for each in kept:
            find = buckets_by_start if each.axis is ExtentAxis.START else buckets_by_instant
            found |= {bucket.bucket_id: bucket for bucket in find(site.catalog, of, commit_id, each.interval)}
        shown = {each.name: each.shown for each in shape.columns if each.key or not each.hidden}
        columns, key = [*shape.names, VS], [*shape.key, VS]
        kinds = {each.name: each.type for each in shape.columns}

        def made(session: SparkSession) -> DataFrame:
            rows = results_frame(session, site.catalog, site.warehouse, shape, list(found.values()))
            return filter_frame(rows, kept, kinds).select(*map(quote_name, columns))

        rows, _ = site.engines().read(EngineDemand.of(found.values()), made)
        count = rows.num_rows if isinstance(rows, pa.Table) else rows.count()
        return _SourceRows(commit_id, rows, count, key, shown, None)

    def _compared(self, name: str, noun: str, was: _SourceRows, now: _SourceRows, lost: str) -> SourceProvenance:
        aged_to = LOWEST if now.aged_to is None else now.aged_to
        left, count = _rows_since(was, aged_to)
        both = isinstance(left, pa.Table) and isinstance(now.rows, pa.Table)
        gone, came, same = diff_rows(left, now.rows) if both else self._by_spark(left, now.rows)
        fates = _pair_by_key(was, gone, now, came)
        # Differing rows come first; of each kind the latest, in order of time.
        told = fates[-SHOWN_ROWS:]
        room = _last_rows(same, SHOWN_ROWS - len(told))
        told += [
            (vs, ProvenanceRow(RowFate.SAME, said, said))
            for vs, said in zip(room[VS].to_pylist(), _display_rows(now, room), strict=True)
        ]
        rows = [row for _, row in sorted(told, key=lambda each: each[0])]
        then = ProvenanceState(was.commit_id, was.count, lost)
        return SourceProvenance(
            name, noun, then, ProvenanceState(now.commit_id, now.count), rows, len(fates), was.count - count
        )

    def _by_spark(self, left: FrameOrTable, right: FrameOrTable) -> tuple[pa.Table, pa.Table, pa.Table]:
        """The same as `differing` for many rows: only the latest of each kind are fetched."""
        session = self.site.session()
        was, now = (
            each if isinstance(each, DataFrame) else frame_of_rows(session, each, arrow_ddl(each.schema))
            for each in (left, right)
        )
        now = now.select(*map(quote_name, was.columns))
        gone, came, same = (
            _fetch_last(each, most)
            for each, most in (
                (was.subtract(now), MAX_DIFFERING_ROWS),
                (now.subtract(was), MAX_DIFFERING_ROWS),
                (now, SHOWN_ROWS),
            )
        )
        return gone, came, diff_rows(came, same)[1]


def diff_rows(left: pa.Table, right: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
    """The rows in the left table only, in the right only, and in both."""
    names = [each for each in right.column_names if each in left.column_names]
    one, other = match_rows(left.select(names), right.select(names), names)
    return _unmatched_rows(left, one), _unmatched_rows(right, other), right.take(pa.array(np.unique(other)))


def _rows_since(of: _SourceRows, place: int) -> tuple[FrameOrTable, int]:
    """The rows that begin at a place or later, and their number."""
    if place == LOWEST:
        return of.rows, of.count
    if isinstance(of.rows, pa.Table):
        rows = of.rows.filter(pc.greater_equal(of.rows[VS], place))
        return rows, rows.num_rows
    frame = of.rows.where(f"{VS} >= {place}L")
    return frame, frame.count()


def _unmatched_rows(rows: pa.Table, places: np.ndarray) -> pa.Table:
    stays = np.ones(rows.num_rows, np.bool_)
    stays[places] = False
    return rows.filter(pa.array(stays))


def _pair_by_key(was: _SourceRows, gone: pa.Table, now: _SourceRows, came: pa.Table) -> list[tuple[int, ProvenanceRow]]:
    """The differing rows in order of time, those of one key paired."""
    one, other = match_rows(gone.select(now.key), came.select(now.key), list(now.key))
    before, after = _display_rows(was, gone), _display_rows(now, came)
    begins = (gone[VS].to_pylist(), came[VS].to_pylist())
    found = [
        (begins[1][new], ProvenanceRow(RowFate.CHANGED, before[old], after[new]))
        for old, new in zip(one.tolist(), other.tolist(), strict=True)
    ]
    found += [
        (begins[0][at], ProvenanceRow(RowFate.GONE, before[at], None)) for at in _places_without(len(before), one)
    ]
    found += [
        (begins[1][at], ProvenanceRow(RowFate.CAME, None, after[at])) for at in _places_without(len(after), other)
    ]
    return sorted(found, key=lambda each: each[0])


def _places_without(count: int, places: np.ndarray) -> list[int]:
    left: list[int] = np.setdiff1d(np.arange(count), places).tolist()
    return left


def _last_rows(rows: FrameOrTable, most: int = SHOWN_ROWS) -> pa.Table:
    """The latest rows, in order of time."""
    if not isinstance(rows, pa.Table):
        rows = _fetch_last(rows, most)
    rows = rows.sort_by(VS)
    return rows.slice(max(0, rows.num_rows - most))


def _fetch_last(rows: DataFrame, most: int) -> pa.Table:
    return fetch_rows(rows.orderBy(sql_column(rows, VS).desc()).limit(most))


def _display_rows(of: _SourceRows, rows: pa.Table) -> list[JsonRow]:
    names = [name for name in of.shown if name in rows.column_names]
    found: list[JsonRow] = [*json_rows(rows.select(names).rename_columns([of.shown[name] for name in names]))]
    return found
