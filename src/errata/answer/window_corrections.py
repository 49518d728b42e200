"""Corrects final windows from their stored parts, without reading rows, or replays them from their rows.

Parts are the partial aggregates of a window (see `answer.advance`). A revision is subtracted and added there; where
that does not decide a window, as when a maximum goes, the window is replayed. Replays of very much history go in time
slices of about as many rows as a step reads. Either way the parts are written again with the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from errata.answer import step_parts
from errata.answer.advance import EMPTY_WINDOW, latest_parts, part_rows, window_tombstones
from errata.answer.correction_plan import CorrectionPlan
from errata.answer.extents import rows_with_constants
from errata.answer.inputs import RunInputs, SourceRows
from errata.answer.result_sink import collect_results, select_result_columns
from errata.archive.overlays import bucket_sources
from errata.archive.results import normalize_floats, starting_in
from errata.archive.scan_filter import order_literal
from errata.archive.schemas import computed_schema, conform
from errata.archive.tables import match_rows
from errata.catalog import buckets
from errata.engine.frames import arrow_ddl, fetch_rows, frame_of_rows, stream_ddl
from errata.engine.plans.adjustment import REMOVED, UNCHANGED, UNDECIDED, VERDICT, CorrectedRows, adjust_windows
from errata.engine.plans.node_rows import quote_name
from errata.engine.plans.partial_groups import MovingRows, advance_group, final_results
from errata.intake.types import arrow_schema
from errata.language.incremental import PartialGroup
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.language.source_reads import source_extents
from errata.model.bucket import Bucket, Role
from errata.model.commit import EvaluationSpan
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import EVALUATION, VS
from errata.model.time import HIGHEST, LOWEST, Interval, hull


def time_slices(opened: Sequence[Bucket], rows: int, regions: Sequence[Extent], until: int) -> list[Interval]:
    """The ends of the regions' windows, cut into intervals that each read about STEP_PART_ROWS rows."""
    start = min((each.interval.start for each in regions), default=LOWEST)
    end = max((each.interval.end for each in regions), default=HIGHEST)
    if rows <= step_parts.STEP_PART_ROWS:
        return [Interval(start, end)]
    held = step_parts.RowDensity.of(opened)
    last = min(end - 1, until)
    found, low = [], max(start, held.lowest)

    def so_far(at: int) -> int:
        return round(held.within(Interval(low, at + 1)))

    while (cut := step_parts.find_cut(so_far, low, last, step_parts.STEP_PART_ROWS)) is not None:
        found.append(cut)
        low = cut
    return [Interval(one, other) for one, other in zip([start, *found], [*found, end], strict=True)]


def regions_in_slice(regions: Sequence[Extent], stretch: Interval) -> list[Extent]:
    """Regions clipped to a slice."""
    some = (each.clipped(stretch) for each in regions)
    return [each for each in some if not each.interval.empty]


def reads_for_slice(
    plan: Plan, read: Mapping[str, SourceRows], stretch: Interval, inputs: RunInputs
) -> dict[str, SourceRows]:
    """The rows of a read that make results which begin in a slice."""
    asked = source_extents(plan, ExtentAxis.START, stretch)
    return {name: _narrow_read(name, each, asked[name], inputs) for name, each in read.items()}


def _narrow_read(name: str, read: SourceRows, extent: Extent, inputs: RunInputs) -> SourceRows:
    interval = extent.interval
    if extent.axis is ExtentAxis.INSTANT or interval.empty:
        return read  # rows beyond those that are needed change nothing
    if name not in inputs.standings:
        return replace(read, frame=starting_in(read.frame, interval))
    stream = inputs.standings[name].stream
    if stream.relation is not None:
        return read
    order, frame = quote_name(stream.order), read.frame
    if interval.end < HIGHEST:
        frame = frame.where(f"{order} < {order_literal(stream, interval.end)}")
    if interval.start > LOWEST:
        frame = frame.where(f"{order} >= {order_literal(stream, interval.start)}")
    return replace(read, frame=frame)


# Replay and adjustment.

REUSE_PARTS_ROWS = 500_000
"""Rows up to which results and parts are computed from the rows twice, in one job. Above, the parts are computed first,
and the results from them in a second job."""


@dataclass(frozen=True)
class ReplayedWindows:
    """Windows that have been recomputed."""

    rows: pa.Table
    """Their results."""
    parts: pa.Table
    """Their parts."""


@dataclass(frozen=True)
class AdjustedWindows(ReplayedWindows):
    """Windows that have been corrected from their stored parts."""

    undecided: pa.Table
    """Windows that the parts do not decide, by the group's columns and the window's end."""
    touched: pa.Table
    """All windows that revised rows lie in."""
    known: pa.Table
    """Windows that had parts."""


def replay_windows(
    correction: CorrectionPlan, inputs: RunInputs, read: Mapping[str, SourceRows], regions: Sequence[Extent]
) -> ReplayedWindows:
    """Replay the windows in the regions. Of windows beside them only some rows may have been read."""
    opened, count = (
        [bucket for each in read.values() for bucket in each.buckets],
        sum(each.rows for each in read.values()),
    )
    spans = time_slices(opened, count, regions, correction.task.step.until)
    if len(spans) == 1:
        return _replay_slice(correction, inputs, read, regions)
    rows, parts = [computed_schema(correction.task.shape).empty_table()], pa.table({})
    for span in spans:
        if some := regions_in_slice(regions, span):
            behind = reads_for_slice(correction.task.rewritten, read, span, inputs)
            done = _replay_slice(correction, inputs, behind, some)
            inside = pc.and_(pc.greater_equal(done.rows[VS], span.start), pc.less(done.rows[VS], span.end))
            rows.append(done.rows.filter(inside))
            parts = merge_parts(parts, done.parts)
    return ReplayedWindows(pa.concat_tables(rows), parts)


def _replay_slice(
    correction: CorrectionPlan, inputs: RunInputs, read: Mapping[str, SourceRows], regions: Sequence[Extent]
) -> ReplayedWindows:
    found, until = _partial_group(correction), correction.task.step.until
    schema = computed_schema(correction.task.shape)
    before = parts_in_spans(correction, inputs, [each.interval for each in regions])
    before = before.filter(pa.array(_windows_in_regions(correction, before, regions)))
    if not any(each.buckets for each in read.values()):
        return ReplayedWindows(schema.empty_table(), _vanished_parts(before, correction.task.number))
    frames = {name: each.frame for name, each in read.items()}
    done = advance_group(found, MovingRows(frames), None, EvaluationSpan(LOWEST, until), parts=True)
    made, beside = done.rows, done.windows
    if beside is not None and (inputs.near or sum(each.rows for each in read.values()) > REUSE_PARTS_ROWS):
        # Rows are aggregated once, and the results computed from the parts.
        beside = fetch_rows(beside)
        local = frame_of_rows(inputs.session, beside, arrow_ddl(beside.schema))
        made = final_results(found, frames, local, until)
    rows, windows = _fetch_windows(correction, made, beside)
    windows = windows.filter(pc.less_equal(windows[VS], until))
    windows = windows.filter(pa.array(_windows_in_regions(correction, windows, regions)))
    now = part_rows(windows, correction.task.number)
    return ReplayedWindows(
        rows, merge_parts(now, window_tombstones(before, now, correction.task.number) if before.num_rows else None)
    )


def adjust_final_windows(correction: CorrectionPlan, inputs: RunInputs) -> AdjustedWindows:
    """Correct the windows that revised rows lie in, from their stored parts."""
    number = correction.task.number
    parts = parts_in_spans(correction, inputs, [each.interval for each in correction.sequence.regions])
    plain = parts.drop_columns([name for name in (EMPTY_WINDOW, EVALUATION) if name in parts.column_names])
    rows, windows = _adjust_parts(correction, inputs, plain)
    by_fate = {
        fate: windows.filter(pc.equal(windows[VERDICT], fate)).drop_columns([VERDICT]) for fate in (UNCHANGED, REMOVED)
    }
    kept_now = merge_parts(part_rows(by_fate[UNCHANGED], number), part_rows(by_fate[REMOVED], number, empty=True))
    undecided = windows.filter(pc.equal(windows[VERDICT], UNDECIDED))
    before = windows_by_key(correction, parts) if parts.num_rows else windows_by_key(correction, windows.slice(0, 0))
    return AdjustedWindows(
        rows, kept_now, windows_by_key(correction, undecided), windows_by_key(correction, windows), before
    )


def _adjust_parts(correction: CorrectionPlan, inputs: RunInputs, parts: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Results and windows, from stored parts and the rows that revisions remove and add."""
    gone, came = (revised_rows(correction, inputs, which) for which in ("gone", "came"))
    known = _parts_frame(correction, inputs, parts)
    done = adjust_windows(_partial_group(correction), CorrectedRows(gone, came), known, correction.task.step.until)
    return _fetch_windows(correction, done.rows, done.windows)


def _parts_frame(correction: CorrectionPlan, inputs: RunInputs, parts: pa.Table) -> DataFrame:
    """Stored parts as a frame; an empty one with the same columns where there are none."""
    if parts.column_names:
        return frame_of_rows(inputs.session, parts, arrow_ddl(parts.schema))
    found, empty = _partial_group(correction), revised_rows(correction, inputs, None)
    windows = advance_group(
        found, MovingRows(empty), None, EvaluationSpan(LOWEST, correction.task.step.until), parts=True
    ).windows
    if windows is None:
        raise AssertionError("the parts of final windows were asked for")
    return windows


def select_windows(correction: CorrectionPlan, rows: pa.Table, windows: pa.Table, *, inside: bool = True) -> pa.Table:
    """The results that belong to some windows, or (`inside=False`) to none of them."""
    names = [VS, *_group_names(correction)]
    left, _ = match_rows(normalize_floats(rows, names), normalize_floats(windows, names), names)
    chosen = np.zeros(rows.num_rows, np.bool_)
    chosen[left] = True
    return rows.filter(pa.array(chosen if inside else ~chosen))


def windows_by_key(correction: CorrectionPlan, windows: pa.Table) -> pa.Table:
    """The keys of windows, with the names of the group's columns in the results."""
    schema = computed_schema(correction.task.shape)
    names = _group_names(correction)
    columns = [windows[f"_g{place}"].cast(schema.field(name).type) for place, name in enumerate(names)]
    return pa.table([*columns, windows[VS]], [*names, VS])


def parts_in_spans(correction: CorrectionPlan, inputs: RunInputs, spans: Iterable[Interval]) -> pa.Table:
    """The stored parts of windows that end in some intervals; a table without columns where there are none."""
    catalog, basis = inputs.site.catalog, correction.basis
    wanted = list(spans)
    found = buckets.overlapping_buckets(catalog, basis.stream_id, basis.last.commit_id, wanted, (Role.PARTS,))
    read = [each.read(inputs.site.warehouse) for each in bucket_sources(catalog, found)]
    if not read:
        return pa.table({})
    schema = read[0].schema
    whole = pa.concat_tables([conform(each, schema, missing_as_null=False) for each in read])
    ends = whole[VS].to_numpy()
    inside = np.zeros(len(ends), np.bool_)
    for span in wanted:
        inside |= (ends >= span.start) & (ends < span.end)
    return latest_parts(whole.filter(pa.array(inside)))


def _partial_group(correction: CorrectionPlan) -> PartialGroup:
    if correction.task.route.partial is None:
        raise AssertionError("only groups keep partial aggregates")
    return correction.task.route.partial


def _group_names(correction: CorrectionPlan) -> list[str]:
    """The group's columns by their names in the results."""
    names = correction.task.kept_names
    return [names[name] for name in _partial_group(correction).group_names]


def _windows_in_regions(correction: CorrectionPlan, windows: pa.Table, regions: Iterable[Extent]) -> np.ndarray:
    """Which windows lie in regions, by their ends and by the constants of the group's columns."""
    inside = np.zeros(windows.num_rows, np.bool_)
    if not windows.num_rows:
        return inside
    rows, ends = windows_by_key(correction, windows), windows[VS].to_numpy()
    for each in regions:
        values = {name: value for name, value in each.values.items() if name in rows.column_names}
        same = rows_with_constants(rows, replace(each, values=values))
        inside |= same & (ends >= each.interval.start) & (ends < each.interval.end)
    return inside


def _fetch_windows(
    correction: CorrectionPlan, rows: DataFrame, windows: DataFrame | pa.Table | None
) -> tuple[pa.Table, pa.Table]:
    """Fetch results and windows in one job."""
    task = correction.task
    if windows is None:
        raise AssertionError("the parts of final windows were asked for")
    results = select_result_columns(rows, task.shape, [each.name for each in task.plan.fields])
    table, found = collect_results(results, windows, computed_schema(task.shape))
    if found is None:
        raise AssertionError("both were asked for")
    return table, found


def revised_rows(correction: CorrectionPlan, inputs: RunInputs, which: str | None) -> dict[str, DataFrame]:
    """For each stream the rows that revisions remove ("gone") or add ("came"), or no rows."""
    return {
        name: frame_of_rows(inputs.session, table, stream_ddl(inputs.standings[name].stream))
        for name, table in _revised_tables(correction, inputs, which).items()
    }


def _revised_tables(correction: CorrectionPlan, inputs: RunInputs, which: str | None) -> dict[str, pa.Table]:
    known = {each.source: each for each in correction.revisions}
    found = {}
    for scan in scans_of(_partial_group(correction).node.input):
        schema = arrow_schema(inputs.standings[scan.source.name].stream)
        rows = None
        if which is not None and scan.source.name in known:
            revised = known[scan.source.name]
            rows = revised.before if which == "gone" else revised.after
        found[scan.source.name] = schema.empty_table() if rows is None else conform(rows, schema, missing_as_null=False)
    return found


def _vanished_parts(before: pa.Table, number: int) -> pa.Table:
    if not before.num_rows:
        return before
    return part_rows(before.drop_columns([EMPTY_WINDOW, EVALUATION]), number, empty=True)


def select_parts(correction: CorrectionPlan, parts: pa.Table, windows: pa.Table) -> pa.Table:
    """The parts of some windows."""
    if not parts.num_rows:
        return parts
    names = [VS, *_group_names(correction)]
    left, _ = match_rows(
        normalize_floats(windows_by_key(correction, parts), names), normalize_floats(windows, names), names
    )
    return parts.take(pa.array(np.unique(left)))


def merge_parts(one: pa.Table, other: pa.Table | None) -> pa.Table:
    """Both tables of parts as one."""
    if other is None or not other.num_rows:
        return one
    if not one.num_rows:
        return other
    return pa.concat_tables([one, conform(other, one.schema, missing_as_null=False)])


def hull_region(spans: Iterable[Interval]) -> Extent:
    """The region from the first interval to the last."""
    return Extent(ExtentAxis.START, hull(spans))
