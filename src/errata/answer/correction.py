"""Carries out a correction plan: reads rows, recomputes the results in the plan's regions, compares them with the
published ones, and writes the difference. Nothing is visible before `correction_commit` has committed it.

By technique: DIRECT adjusts final windows from their stored parts; MINIMAL and ALL replay rows, those of the regions or
all; where stored lineage tells the rows of some results, these are recomputed from just their own rows. Rows are
compared in this process where they are few, and else in Spark's tasks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from errata.answer import faults, stored_lineage, window_corrections
from errata.answer.correction_plan import CorrectionPlan
from errata.answer.diff_writer import DiffWriter, WrittenDiff
from errata.answer.inputs import RunInputs, SourceRows, measure_reads
from errata.answer.lineage_lookup import results_to_keep
from errata.answer.query_state import patch_state
from errata.answer.replay_sequence import ReplaySequence, StoredLineageMatch, sequence_for_extents
from errata.answer.result_diff import DiffContext
from errata.answer.result_sink import select_result_columns
from errata.answer.stored_lineage import recompute_results
from errata.archive.results import (
    ResultWriter,
    buckets_by_instant,
    buckets_by_start,
    match_results,
    published_starting_in,
    published_valid_in,
    results_frame,
)
from errata.archive.schemas import computed_schema, conform
from errata.engine.failures import JOB_FAILURES, is_row_error, job_advice, last_line, quiet_loggers
from errata.engine.frames import fetch_rows
from errata.engine.plans.compile import compile_plan
from errata.errors import ErrataError
from errata.language.incremental import inexact_columns
from errata.model.bucket import Bucket, Role
from errata.model.commit import EvaluationCost, RefusedRevisions
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import VE, VS
from errata.model.technique import Technique
from errata.model.time import HIGHEST, LOWEST, Interval, merge_intervals

SPARK_DIFF_ROWS = 2_000_000
"""Rows read by a correction above which its results are compared with the published ones in Spark's tasks."""

LOCAL_DIFF_ROWS = 100_000
"""Results, published and recomputed each, up to which they are compared in this process even so: starting tasks takes
longer."""

DIFF_TASK_ROWS = 500_000
"""Rows read per task, about, where results are compared in tasks."""

MAX_SINGLE_ENDS = 64
"""Different ends of windows up to which each is read apart; beyond, all windows from the first end to the last are."""


@dataclass(frozen=True)
class CorrectionResult:
    """A correction that has been computed and written, and not yet committed."""

    correction: CorrectionPlan
    diff: WrittenDiff
    """What has been written."""
    refused: Sequence[RefusedRevisions]
    measures: EvaluationCost

    @property
    def changed(self) -> int:
        """The number of results that are different."""
        return self.diff.changed


_EMPTY_DIFF = WrittenDiff([], 0, 0)

_NOT_ADJUSTED = "what was kept of the windows could not be adjusted, so their rows are read"


@dataclass
class _ReadLog:
    """What a correction has read, for its measures and to find the row of a failure."""

    inputs: RunInputs
    read: dict[str, SourceRows] = field(default_factory=dict)
    all: list[SourceRows] = field(default_factory=list)

    def of(self, correction: CorrectionPlan, work: ReplaySequence) -> dict[str, SourceRows]:
        task = correction.task
        self.read = {
            name: self.inputs.read_all(name, some, task.step.until, task.revisions.get(name))
            for name, some in work.reads.items()
        }
        self.all += self.read.values()
        return self.read


@dataclass(frozen=True)
class _CorrectionOutput:
    """The difference that was written, and what is left to write beside it."""

    diff: WrittenDiff
    parts: pa.Table | None = None
    """The parts of final windows, where the route keeps such."""
    refused: tuple[RefusedRevisions, ...] = ()
    state: pa.Table | None = None
    """The route's state, where rows in it were corrected."""


def compute_correction(correction: CorrectionPlan, inputs: RunInputs) -> CorrectionResult:
    """Recompute the results in the plan's regions, and write how they differ from the published ones."""
    began = time.perf_counter()
    task, readings = correction.task, [_ReadLog(inputs)]

    def work(inputs: RunInputs) -> _CorrectionOutput:
        readings.append(_ReadLog(inputs))
        found = _correct_regions(correction, readings[-1])
        if not correction.patches_state:
            return found
        return replace(found, state=patch_state(task, correction.basis, inputs, correction.revisions))

    try:
        with quiet_loggers():
            found, choice = inputs.run(correction.demand(inputs), work)
    except JOB_FAILURES as error:
        if correction.technique is Technique.DIRECT and is_row_error(error):
            # An intermediate value of the adjustment may fail, where neither the old result nor the new one does.
            return compute_correction(replace(correction, technique=Technique.MINIMAL, why=_NOT_ADJUSTED), inputs)
        frames = {name: each.frame for name, each in readings[-1].read.items()}
        if correction.technique is Technique.DIRECT:
            frames = window_corrections.revised_rows(correction, readings[-1].inputs, "came") | frames
        fault = faults.find_fault(task.rewritten, frames, error, until=task.step.until)
        if fault.expression or is_row_error(error):
            raise faults.QueryStoppedError(fault) from error
        raise ErrataError(
            f"the results of query {task.name} could not be corrected",
            why=last_line(error),
            how=f"{job_advice(error)} and run it again: what was published stands, and what was revised still waits",
        ) from error
    micros, reading = round((time.perf_counter() - began) * 1e6), readings[-1]
    measures = replace(
        measure_reads(reading.all),
        rows_asked=sum(each.rows for each in reading.all),
        rows=found.diff.changed,
        micros=micros,
        route=correction.technique.value,
        engine=choice.engine.value,
        engine_why=choice.why,
    )
    diff = found.diff
    if found.parts is not None:
        diff.buckets.extend(_result_writer(correction, inputs).write(Role.PARTS, found.parts))
    if found.state is not None:
        diff.buckets.extend(_result_writer(correction, inputs).write_state(found.state, task.step.until))
    return CorrectionResult(correction, diff, (*correction.sequence.refused, *found.refused), measures)


def _correct_regions(correction: CorrectionPlan, reading: _ReadLog) -> _CorrectionOutput:
    """Correct the published results in the plan's regions."""
    task, route = correction.task, correction.task.route
    regions = [_region_by_kept_names(correction, each) for each in correction.sequence.regions]
    diff_writer = DiffWriter(_result_writer(correction, reading.inputs), task.shape, _diff_context(correction), regions)
    if not regions:
        return _CorrectionOutput(WrittenDiff([], 0, 0))
    if correction.technique is Technique.DIRECT:
        return _correct_final_windows(correction, reading, diff_writer)
    if (stored := correction.sequence.stored) is not None:
        return _replay_stored_lineage(correction, stored, reading, diff_writer)
    if not route.keeps_parts:
        return _CorrectionOutput(_replay_regions(correction, reading, diff_writer))
    if (least := correction.sequence.least) is not None:
        # The parts of windows change only where revised rows lie.
        diff = _replay_regions(correction, reading, diff_writer)
        some = [_region_by_kept_names(correction, each) for each in least.regions]
        return _CorrectionOutput(
            diff,
            window_corrections.replay_windows(correction, reading.inputs, reading.of(correction, least), some).parts,
        )
    done = window_corrections.replay_windows(
        correction, reading.inputs, reading.of(correction, correction.sequence), regions
    )
    return _CorrectionOutput(
        diff_writer.write_local(done.rows, _published_rows(correction, reading.inputs, regions)), done.parts
    )


def _replay_regions(correction: CorrectionPlan, reading: _ReadLog, diff_writer: DiffWriter) -> WrittenDiff:
    """Recompute the regions from all rows that make them."""
    read, regions = reading.of(correction, correction.sequence), diff_writer.regions
    schema = computed_schema(correction.task.shape)
    new: pa.Table | None = schema.empty_table()
    if any(each.buckets for each in read.values()):
        frame = _results_frame(correction, read, regions)
        rows = sum(each.rows for each in read.values())
        if reading.inputs.near or rows <= SPARK_DIFF_ROWS or correction.task.route.keeps_parts:
            new = conform(fetch_rows(frame), schema)
        elif (new := _fetch_if_few(correction, reading.inputs, frame, regions)) is None:
            tasks = max(2, rows // DIFF_TASK_ROWS)
            diff = diff_writer.write_in_tasks(frame, _published_frame(correction, reading.inputs, regions), tasks)
            return _add_lineage(correction, read, diff_writer, diff, tasks)
    return _add_lineage(
        correction,
        read,
        diff_writer,
        diff_writer.write_local(new, _published_rows(correction, reading.inputs, regions)),
        0,
    )


def _fetch_if_few(
    correction: CorrectionPlan, inputs: RunInputs, frame: DataFrame, regions: Sequence[Extent]
) -> pa.Table | None:
    """The recomputed results; None where these, or the published ones, are many."""
    if sum(each.rows for each in _published_buckets(correction, inputs, regions)) > LOCAL_DIFF_ROWS:
        return None
    # Few results may become many: a company whose name comes late is joined with all of its quotes.
    found = fetch_rows(frame.limit(LOCAL_DIFF_ROWS + 1))
    return None if found.num_rows > LOCAL_DIFF_ROWS else conform(found, computed_schema(correction.task.shape))


def _add_lineage(
    correction: CorrectionPlan, read: Mapping[str, SourceRows], diff_writer: DiffWriter, diff: WrittenDiff, tasks: int
) -> WrittenDiff:
    """Write stored lineage of the recomputed results, too, where the query has such: results that are the same may be
    made of other rows now."""
    if stored_lineage.stores_lineage(correction.task) and any(each.buckets for each in read.values()):
        frames = {name: each.frame for name, each in read.items()}
        diff.buckets.extend(
            stored_lineage.write_region_lineage(correction.task, frames, diff_writer.regions, diff_writer.writer, tasks)
        )
    return diff


def _replay_stored_lineage(
    correction: CorrectionPlan, stored: StoredLineageMatch, reading: _ReadLog, diff_writer: DiffWriter
) -> _CorrectionOutput:
    """Recompute results whose rows stored lineage tells from just these rows, and the others by derived lineage. The
    lineage of the former stays as it is."""
    rest = replace(correction, sequence=stored.rest)
    diff = _correct_regions(rest, reading).diff
    if not stored.regions:
        return _CorrectionOutput(diff)
    task = correction.task
    read = reading.of(correction, replace(correction.sequence, reads=stored.reads))
    frames = {name: each.frame for name, each in read.items()}
    rows = recompute_results(
        task.rewritten, task.route, frames, stored.rows, [task.kept_names[name] for name in task.plan.key]
    )
    regions = [_region_by_kept_names(correction, each) for each in stored.regions]
    found = _rows_in_hull(
        correction, select_result_columns(rows, task.shape, [each.name for each in task.plan.fields]), regions
    )
    new = conform(fetch_rows(found), computed_schema(task.shape))
    there, _ = match_results(stored.rows, new, task.shape)
    lost = np.ones(stored.rows.num_rows, np.bool_)
    lost[there] = False
    keep, refused = results_to_keep(stored, lost)
    mine = [each for each, keeps in zip(regions, keep, strict=True) if keeps]
    more = (
        replace(diff_writer, regions=mine).write_local(new, _published_rows(correction, reading.inputs, mine))
        if mine
        else _EMPTY_DIFF
    )
    changed, compared = diff.changed + more.changed, diff.compared + more.compared
    return _CorrectionOutput(WrittenDiff([*diff.buckets, *more.buckets], changed, compared), refused=tuple(refused))


def _result_writer(correction: CorrectionPlan, inputs: RunInputs) -> ResultWriter:
    return ResultWriter(inputs.site.warehouse, correction.name, correction.task.shape.timed)


def _correct_final_windows(correction: CorrectionPlan, reading: _ReadLog, diff_writer: DiffWriter) -> _CorrectionOutput:
    """Adjust final windows by their stored parts. Windows that the parts do not decide are replayed."""
    inputs = reading.inputs
    done = window_corrections.adjust_final_windows(correction, inputs)
    rows, parts, touched = done.rows, done.parts, done.touched
    refused: tuple[RefusedRevisions, ...] = ()
    spans = merge_intervals(each.interval for each in diff_writer.regions)
    published = published_starting_in(inputs.site.catalog, inputs.site.warehouse, correction.basis, spans)
    # The rows of a window that has a result and no parts are unknown.
    unknown = window_corrections.select_windows(
        correction, window_corrections.select_windows(correction, published, touched), done.known, inside=False
    )
    undecided = pa.concat_tables([done.undecided, unknown.select(done.undecided.column_names)])
    if undecided.num_rows:
        rows = window_corrections.select_windows(correction, rows, undecided, inside=False)
        needed = sequence_for_extents(correction.scope, _window_end_regions(undecided), correction.aged)
        refused = needed.refused
        if refused:
            touched = window_corrections.select_windows(correction, touched, undecided, inside=False)
        else:
            again = window_corrections.replay_windows(
                correction, inputs, reading.of(correction, needed), needed.regions
            )
            rows = pa.concat_tables([rows, window_corrections.select_windows(correction, again.rows, undecided)])
            parts = window_corrections.merge_parts(
                parts, window_corrections.select_parts(correction, again.parts, undecided)
            )
    before = window_corrections.select_windows(correction, published, touched)
    whole = replace(diff_writer, regions=[window_corrections.hull_region(spans)])
    return _CorrectionOutput(whole.write_local(rows, before), parts, refused)


def _window_end_regions(undecided: pa.Table) -> list[Extent]:
    """The regions of all windows that end when the undecided ones do."""
    ends = [each for each in pc.unique(undecided[VS]).to_pylist() if each is not None]
    if len(ends) > MAX_SINGLE_ENDS:
        return [Extent(ExtentAxis.START, Interval(min(ends), max(ends) + 1))]
    return [Extent(ExtentAxis.START, Interval(each, each + 1)) for each in sorted(ends)]


def _diff_context(correction: CorrectionPlan) -> DiffContext:
    task, names = correction.task, correction.task.kept_names
    rough = frozenset(names[name] for name in inexact_columns(task.plan))
    return DiffContext(task.number, task.step.until, task.route.covering, correction.scope.axis, task.closes, rough)


def _published_rows(correction: CorrectionPlan, inputs: RunInputs, regions: Iterable[Extent]) -> pa.Table:
    """The published results in the regions, and those that touch them."""
    at = (inputs.site.catalog, inputs.site.warehouse, correction.basis)
    if correction.scope.axis is ExtentAxis.START:
        return published_starting_in(*at, merge_intervals(each.interval for each in regions))
    beside = (Interval(_shift(each.interval.start, -1), _shift(each.interval.end, 1)) for each in regions)
    return published_valid_in(*at, merge_intervals(beside))


def _shift(place: int, by: int) -> int:
    return place if place in (LOWEST, HIGHEST) else place + by


def _published_frame(correction: CorrectionPlan, inputs: RunInputs, regions: Sequence[Extent]) -> DataFrame:
    """The same as a frame."""
    site, of = inputs.site, correction.basis
    return results_frame(
        inputs.session, site.catalog, site.warehouse, of.shape, _published_buckets(correction, inputs, regions)
    )


def _published_buckets(correction: CorrectionPlan, inputs: RunInputs, regions: Sequence[Extent]) -> Sequence[Bucket]:
    """The buckets of published results from the first region to the last."""
    site, of = inputs.site, correction.basis
    start, end = min(each.interval.start for each in regions), max(each.interval.end for each in regions)
    is_start = correction.scope.axis is ExtentAxis.START
    span = Interval(start, end) if is_start else Interval(_shift(start, -1), _shift(end, 1))
    find = buckets_by_start if is_start else buckets_by_instant
    return find(site.catalog, of, of.last.commit_id, span)


def _results_frame(correction: CorrectionPlan, read: Mapping[str, SourceRows], regions: Sequence[Extent]) -> DataFrame:
    """The recomputed results in the regions, and perhaps others."""
    task = correction.task
    frames = {name: each.frame for name, each in read.items()}
    start = min(each.interval.start for each in regions)
    since = start if correction.scope.axis is ExtentAxis.INSTANT and start > LOWEST else None
    rows = compile_plan(task.rewritten, frames, since=since)
    return _rows_in_hull(
        correction, select_result_columns(rows, task.shape, [each.name for each in task.plan.fields]), regions
    )


def _rows_in_hull(correction: CorrectionPlan, rows: DataFrame, regions: Sequence[Extent]) -> DataFrame:
    """Rows without those before the first region and after the last."""
    start = min(each.interval.start for each in regions)
    end = min(max(each.interval.end for each in regions), correction.task.step.until + 1)
    rows = rows.where(f"{VS} < {end}L")
    if correction.scope.axis is ExtentAxis.INSTANT:
        return rows.where(f"{VE} > {start}L") if start > LOWEST else rows
    if correction.scope.from_its_beginning and correction.scope.begins > LOWEST:
        rows = rows.where(f"{VE} > {correction.scope.begins}L")
    return rows.where(f"{VS} >= {start}L") if start > LOWEST else rows


def _region_by_kept_names(correction: CorrectionPlan, region: Extent) -> Extent:
    """A region with the names of columns in the results."""
    names = correction.task.kept_names
    return replace(region, values={names[name]: value for name, value in region.values.items()})
