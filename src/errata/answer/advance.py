"""One step of a query: the state and results that the evaluation before has left, the frame of results made from them,
and the window parts and the state that are left for the next one.

Window parts are the partial aggregates of windows that have closed. They are kept beside the results, with the
evaluation that wrote them, so that a correction of a window need not read its rows; the latest ones of a window count,
and a tombstone (`_empty`) says that the window has no rows any more. State can be rebuilt while the rows that it is
made of are in the archive; a state that is missing or damaged is treated as lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from errata.answer.inputs import RunInputs
from errata.answer.row_comparison import group_starts, sort_arrays
from errata.answer.task import EvaluationTask
from errata.archive.bucket_files import checksum
from errata.archive.schemas import unpack_table
from errata.archive.tables import key_numbers, latest_indexes
from errata.archive.upkeep.bucket_checks import inspect_buckets
from errata.archive.upkeep.inspection import InspectionContext
from errata.archive.upkeep.result_compaction import is_merge_due, merge_results
from errata.archive.upkeep.retention import unrecoverable_sources
from errata.catalog import buckets
from errata.catalog.result_archives import ResultArchive
from errata.declare.site import Site
from errata.engine.plans import tails
from errata.engine.plans.compile import compile_plan
from errata.engine.plans.node_rows import AdvanceResult
from errata.engine.plans.partial_groups import MovingRows, advance_group, rebuild_state
from errata.errors import ErrataError
from errata.language.plan import Plan
from errata.language.route import Route, RouteKind
from errata.language.source_reads import ARRIVING, LEAVING, STATE_SOURCE, WHOLE
from errata.model.bucket import Bucket, NewBucket, Role, relevant_masks
from errata.model.commit import EvaluationSpan
from errata.model.results import EVALUATION, VS
from errata.model.time import LOWEST

EMPTY_WINDOW = "_empty"
"""A flag: the window has no rows any more, and earlier parts of it do not count."""


def split_closed_windows(windows: pa.Table, step: EvaluationSpan, run: int) -> tuple[pa.Table, pa.Table]:
    """The parts of windows that have closed in a step, as they are kept, and those of open windows: the state. A window
    that ends at the step's last instant is in both."""
    ends = windows[VS]
    closed = pc.less_equal(ends, step.until)
    if step.since > LOWEST:
        closed = pc.and_(closed, pc.greater(ends, step.since))
    state = windows.filter(pc.greater_equal(ends, step.until)).drop_columns([VS])
    return part_rows(windows.filter(closed), run), state


def part_rows(windows: pa.Table, run: int, *, empty: bool = False) -> pa.Table:
    """The parts of windows as they are kept, with the number of the evaluation that computed them."""
    rows = windows.append_column(EMPTY_WINDOW, pa.repeat(pa.scalar(empty), windows.num_rows))
    return rows.append_column(EVALUATION, pa.repeat(pa.scalar(run, pa.int64()), rows.num_rows))


def latest_parts(parts: pa.Table) -> pa.Table:
    """The latest parts of each window, without windows that have no rows any more."""
    if not parts.num_rows:
        return parts
    names = [*group_columns(parts), VS]
    latest = latest_indexes(key_numbers(parts.select(names)), parts[EVALUATION].to_numpy())
    newest = parts.take(pa.array(latest))
    return newest.filter(pc.invert(newest[EMPTY_WINDOW]))


def window_tombstones(before: pa.Table, now: pa.Table, run: int) -> pa.Table:
    """Tombstones for windows that had rows before and have none now."""
    names = [*group_columns(before), VS]
    both = pa.concat_tables([before.select(names), now.select(names)])
    lanes = sort_arrays(both, names)
    order = np.lexsort(lanes[::-1])
    number = np.empty(both.num_rows, np.int64)
    number[order] = np.cumsum(group_starts([lane[order] for lane in lanes], both.num_rows))
    gone = ~np.isin(number[: before.num_rows], number[before.num_rows :])
    return part_rows(before.filter(pa.array(gone)).drop_columns([EMPTY_WINDOW, EVALUATION]), run, empty=True)


def group_columns(parts: pa.Table) -> list[str]:
    """The columns that tell groups apart."""
    return [name for name in parts.column_names if name.startswith("_g") and name[2:].isdigit()]


# The frame of a step's results.


@dataclass(frozen=True)
class StepInput:
    """What has been read for a step."""

    frames: Mapping[str, Mapping[str, DataFrame]]
    """For each part of the read (see `source_reads`), the frames of sources by name."""
    state: DataFrame | None = None
    """The state that the evaluation before has left."""
    known: DataFrame | None = None
    """Published results under the names of the plan, for the route that needs them."""
    scope: Sequence[str] = field(default=())
    """Columns that keep data sets apart."""
    beginning: bool = False
    """Whether no result has been published yet."""
    keeps_windows: bool = False
    """Whether the parts of windows that close are wanted, where the route has such."""


def advance(plan: Plan, route: Route, step: EvaluationSpan, given: StepInput) -> AdvanceResult:
    """The results of a step, and the state and window parts that it leaves."""
    if route.partial is None and route.tail is None:
        # Results that are only added are needed even if they have ended; at the beginning, only those valid then.
        whole = step.first or (route.kind is RouteKind.APPENDED and not given.beginning)
        since = None if whole else step.since
        return AdvanceResult(compile_plan(plan, given.frames[WHOLE], scope=given.scope, since=since), None)
    since, until, scope, arriving = step.since, step.until, given.scope, given.frames[ARRIVING]
    state = _rebuilt_state(route, step, given) if STATE_SOURCE in given.frames else given.state
    if route.partial is not None:
        leaving = given.frames.get(LEAVING)
        parts = route.keeps_parts and given.keeps_windows
        return advance_group(
            route.partial, MovingRows(arriving, leaving), state, EvaluationSpan(since, until), scope, parts=parts
        )
    if route.tail is None:
        raise AssertionError(route.kind)
    match route.kind:
        case RouteKind.ROW_WINDOWS:
            return tails.advance_row_windows(route.tail, arriving, state, since, until, scope)
        case RouteKind.LAST_ROWS:
            return tails.advance_last_rows(route.tail, arriving, state, since, until, scope)
        case RouteKind.NEW_VALUES:
            return tails.advance_new_values(route.tail, arriving, given.known, since, until, scope)
        case RouteKind.APPENDED | RouteKind.GROUPED | RouteKind.RECOMPUTED:
            raise AssertionError(f"{route.kind} has no tail")
        case _:
            assert_never(route.kind)


def _rebuilt_state(route: Route, step: EvaluationSpan, given: StepInput) -> DataFrame:
    """The state at the step's beginning, rebuilt from rows."""
    frames = given.frames[STATE_SOURCE]
    if route.partial is not None:
        return rebuild_state(route.partial, frames, step.since, given.scope)
    if route.tail is None:
        raise AssertionError(route.kind)
    match route.kind:
        case RouteKind.ROW_WINDOWS:
            return tails.row_window_state(route.tail, frames, step.since, given.scope)
        case RouteKind.LAST_ROWS:
            return tails.last_rows_state(route.tail, frames, step.since, given.scope)
        case RouteKind.APPENDED | RouteKind.GROUPED | RouteKind.RECOMPUTED | RouteKind.NEW_VALUES:
            raise AssertionError(f"{route.kind} keeps no state")
        case _:
            assert_never(route.kind)


# What the evaluation before has left.


@dataclass(frozen=True)
class PriorEvaluation:
    """What the evaluation before has left, or the part before of the same evaluation."""

    results: Sequence[Bucket] = ()
    """Buckets of open and tip results, and of masks of some of them."""
    state: pa.Table | None = None
    """The state; None if it is missing or damaged, or the route keeps none."""
    merged: Sequence[Bucket] = ()
    """Buckets that `merged_into` replaces in the commit of this evaluation."""
    merged_into: Sequence[NewBucket] = ()
    rows: int = 0
    """The change in the number of final results by that; it is negative, since masked ones go."""
    written: Sequence[NewBucket] = ()
    """The results that the parts before have written."""
    is_part: bool = False
    """Whether a part of the same evaluation has left this."""

    @property
    def unsettled(self) -> list[NewBucket]:
        """Written results that are open or at the tip."""
        return [each for each in self.written if each.role in (Role.OPEN, Role.TIP)]


def load_prior_evaluation(site: Site, task: EvaluationTask) -> PriorEvaluation:
    """Look up what the evaluation before has left, and merge its buckets where that is due."""
    basis = task.basis
    if basis is None:
        return PriorEvaluation()
    roles = (Role.OPEN, Role.TIP, Role.MASK, Role.STATE)
    there = buckets.buckets_of_roles(site.catalog, basis.stream_id, basis.last.commit_id, roles)
    results = [each for each in there if each.role in (Role.OPEN, Role.TIP)]
    masks = [each for each in there if each.role is Role.MASK]
    state = (
        _read_state_bucket(site, [each for each in there if each.role is Role.STATE])
        if task.route.keeps_state
        else None
    )
    results += relevant_masks(masks, results)
    if not is_merge_due(basis, task.number, masks):
        return PriorEvaluation(results, state)
    done = merge_results(site, basis, task.number)
    return PriorEvaluation(results, state, done.gone, done.into, done.rows)


def read_state(site: Site, of: ResultArchive) -> pa.Table | None:
    """The state beside results; None if it is missing or damaged."""
    return _read_state_bucket(
        site, buckets.visible_buckets(site.catalog, of.stream_id, of.last.commit_id, role=Role.STATE)
    )


def _read_state_bucket(site: Site, found: Sequence[Bucket]) -> pa.Table | None:
    # No error: the state can be rebuilt, or else `check_state_can_be_rebuilt` refuses.
    if len(found) != 1:
        return None
    (bucket,) = found
    if bucket.inline:
        data = buckets.inline_data(site.catalog, [bucket.bucket_id]).get(bucket.bucket_id)
    else:
        data = _read_file(site, bucket.path or "")
    if data is None or checksum(data) != bucket.checksum:
        return None
    return unpack_table(data) if bucket.inline else pq.read_table(pa.BufferReader(data), use_threads=False)


def _read_file(site: Site, path: str) -> bytes | None:
    try:
        return site.warehouse.read(path)
    except FileNotFoundError:
        return None


def check_state_can_be_rebuilt(task: EvaluationTask, inputs: RunInputs) -> None:
    """Refuse a step whose state is lost and cannot be rebuilt, since rows that it was made of have been aged out."""
    if task.basis is None:
        return
    lost = unrecoverable_sources(inputs.site.catalog, task.rewritten, task.route, task.basis)
    if lost:
        raise ErrataError(
            f"query {task.name} cannot go on: what it kept of earlier rows is lost",
            why=f"rows of {', '.join(lost)} that it was made of have been aged out",
            how=f"errata run --anew {task.name} works it out from the rows that are left, and publishes the difference",
        )


def intact_buckets(inputs: RunInputs, of: ResultArchive, some: Sequence[Bucket]) -> list[Bucket]:
    """The buckets whose content is what was written. Results may be recomputed because some are damaged."""
    site = inputs.site
    seen = inspect_buckets(lambda: inputs.session, site.catalog, InspectionContext(of.shape, site.warehouse), some).seen
    return [each for each in some if seen[each.bucket_id].whole(each)]
