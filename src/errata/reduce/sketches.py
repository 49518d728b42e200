"""Sketches of summaries: distinct counts and quantiles of windows, by Spark's own functions.

    approx_count_distinct(x)          HyperLogLog   hll_sketch_agg, hll_union_agg, hll_sketch_estimate
    approx_count_distinct_theta(x)    theta         theta_sketch_agg, theta_union_agg, theta_sketch_estimate
    approx_percentile(x, p)           KLL           kll_sketch_agg_double, kll_merge_agg_double, …_get_quantile_double

Vacuum stores the sketches of each base bucket; on reading they are merged. Nothing can be subtracted from a sketch, so
a correction rebuilds those of its window: windows are either merged from stored sketches, or sketched again from their
live rows. The second are those that corrections touch, and all in which some bucket has no sketches yet.

Sketches of quantiles draw lots as they fill, so that estimates of large windows differ from one building to the next,
within KLL's error. Only the far engine has these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from errata.archive.approximation_parts import number_groups
from errata.archive.bucket_frames import bucket_frame, read_buckets
from errata.archive.partials import WINDOW
from errata.archive.scan import scan_rows
from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.archive.summary_parts import parts_by_original, store_parts
from errata.catalog import buckets
from errata.catalog.database import Catalog
from errata.declare.site import Site
from errata.declare.warehouse import Warehouse
from errata.engine.frames import arrow_ddl, fetch_rows, frame_of_rows, group_sql, select_sql, union_by_name
from errata.engine.plans.node_rows import quote_name
from errata.intake.types import arrow_schema, arrow_type
from errata.language.summaries import SketchKind, SketchMeasure, SummaryForm
from errata.model.bucket import Bucket, NewBucket, Role
from errata.model.results import VE, VS
from errata.model.time import Interval, merge_intervals
from errata.reduce.summaries import SummaryScan, merged_windows, whole_windows

MAX_INTERVALS = 100
"""Stretches of windows that one reading sketches again, at most; beyond, the windows between near ones are, too."""

_FAMILIES = {
    SketchKind.DISTINCT: ("hll_sketch_agg", "hll_union_agg"),
    SketchKind.THETA: ("theta_sketch_agg", "theta_union_agg"),
    SketchKind.QUANTILE: ("kll_sketch_agg_double", "kll_merge_agg_double"),
}


def sketch_schema(form: SummaryForm) -> pa.Schema:
    """The columns of stored sketches."""
    group = [pa.field(each.name, arrow_type(each.type)) for each in form.group]
    sketches = [pa.field(_column(number), pa.binary()) for number in range(len(form.sketches))]
    return pa.schema([pa.field(WINDOW, pa.int64()), *group, *sketches])


def build_sketches(
    site: Site, form: SummaryForm, some: Sequence[Bucket], *, inline: bool
) -> list[tuple[NewBucket, int]]:
    """The sketches of base buckets, written, each with the id of its bucket."""
    session, written = site.session(), []
    schema = pa.schema([arrow_schema(form.stream).field(name) for name in form.columns_read])
    for bucket in some:
        rows = bucket_frame(session, site.catalog, site.warehouse, [bucket], schema)
        parts = fetch_rows(_sketched(form, rows)).cast(sketch_schema(form))
        stored = store_parts(form.stream, site.warehouse, parts, form.sketch_digest, bucket, inline=inline)
        written.append((stored, bucket.bucket_id))
    return written


@dataclass(frozen=True, slots=True)
class SketchReader:
    """Reads sketches on the far engine, whose session it opens when it has to."""

    session: Callable[[], SparkSession]
    catalog: Catalog
    warehouse: Warehouse

    def with_estimates(self, scan: SummaryScan, touched: np.ndarray, rows: pa.Table, names: Iterable[str]) -> pa.Table:
        """The exact rows of a summary with the columns of its sketches: estimates of those that are named, NULL in the
        others, in the order of the query. `touched`: the windows that corrections concern."""
        form, wanted = scan.form, {*names}
        asked = [each for each in form.sketches if each.name in wanted]
        columns: dict[str, pa.ChunkedArray | pa.Array] = {name: rows[name] for name in rows.column_names}
        columns |= {each.name: pa.nulls(rows.num_rows, arrow_type(each.type)) for each in form.sketches}
        if asked:
            columns |= _aligned(form, rows, self._estimates(scan, touched, asked), asked)
        return pa.table({name: columns[name] for name in (*(each.name for each in form.plan.fields), VS, VE)})

    def _estimates(self, scan: SummaryScan, touched: np.ndarray, asked: Sequence[SketchMeasure]) -> pa.Table:
        """The estimates by window and group."""
        form, state, session = scan.form, scan.state, self.session()
        at = (self.catalog, state.stream_id, scan.commit_id, scan.interval)
        of = parts_by_original(buckets.visible_buckets(*at, role=Role.SUMMARY), form.sketch_digest)
        lacking = [each for each in scan.found.base if each.bucket_id not in of]
        again = rebuilt_intervals(form.window, touched, lacking, scan.interval)
        there = [of[each.bucket_id] for each in scan.found.base if each.bucket_id in of]
        parts = read_buckets(self.catalog, self.warehouse, sketch_schema(form), there)
        starts = parts[WINDOW].to_numpy()
        low = scan.interval.start if state.aged_to is None else max(scan.interval.start, state.aged_to)
        merged = (starts >= low) & (starts < scan.interval.end) & ~_within(starts, again)
        frames = [frame_of_rows(session, parts.filter(pa.array(merged)), arrow_ddl(sketch_schema(form)))]
        if again:
            read = ArchiveScan(state, scan.commit_id, Interval(again[0].start, again[-1].end))
            live = scan_rows(session, self.catalog, self.warehouse, read, candidate_buckets(self.catalog, read))
            frames.append(_sketched(form, live).where(_condition(again)))
        keys = [WINDOW, *form.declaration.group]
        columns = {_column(form.sketches.index(each)): each for each in asked}
        unions = [f"{_FAMILIES[each.kind][1]}({column}) AS {column}" for column, each in columns.items()]
        whole = group_sql(union_by_name(frames), [*map(quote_name, keys)], unions)
        results = [f"{_estimate_sql(each, column)} AS {column}" for column, each in columns.items()]
        return fetch_rows(select_sql(whole, *map(quote_name, keys), *results))


def rebuilt_intervals(
    window: int, touched: np.ndarray, lacking: Iterable[Bucket | NewBucket], within: Interval, most: int = MAX_INTERVALS
) -> list[Interval]:
    """The windows that are sketched again, as at most so many intervals: touched ones, and all in which a bucket has no
    sketches."""
    whole = [whole_windows(Interval(each.vs_min, each.vs_max + 1), window) & within for each in lacking]
    found = merge_intervals([*merged_windows(touched, window), *(each for each in whole if not each.empty)])
    while len(found) > most:
        gaps = np.array([right.start - left.end for left, right in pairwise(found)])
        closed = {*np.argsort(gaps, kind="stable")[: len(found) - most].tolist()}
        joined: list[Interval] = []
        for at, each in enumerate(found):
            joined = [*joined[:-1], joined[-1] | each] if at - 1 in closed else [*joined, each]
        found = joined
    return found


def _within(starts: np.ndarray, intervals: Sequence[Interval]) -> np.ndarray:
    inside = np.zeros(len(starts), dtype=bool)
    for each in intervals:
        inside |= (starts >= each.start) & (starts < each.end)
    return inside


def _condition(intervals: Sequence[Interval]) -> str:
    return " OR ".join(f"({WINDOW} >= {each.start}L AND {WINDOW} < {each.end}L)" for each in intervals)


def _sketched(form: SummaryForm, rows: DataFrame) -> DataFrame:
    """The sketches of rows by window and group."""
    order = quote_name(form.stream.order)
    place = f"unix_micros({order})" if form.stream.timed else f"CAST({order} AS BIGINT)"
    start = f"try_subtract({place}, pmod({place}, {form.window}L))"
    group = [quote_name(name) for name in form.declaration.group]
    values = [f"{_value_sql(each)} AS _value_{number}" for number, each in enumerate(form.sketches)]
    placed = select_sql(rows, f"{start} AS {WINDOW}", *group, *values)
    placed = placed.where(f"try_add({WINDOW}, {form.window}L) IS NOT NULL")
    sketches = [
        f"{_FAMILIES[each.kind][0]}(_value_{number}) AS {_column(number)}" for number, each in enumerate(form.sketches)
    ]
    return group_sql(placed, [WINDOW, *group], sketches)


def _value_sql(measure: SketchMeasure) -> str:
    column = quote_name(measure.column.name)
    return f"CAST({column} AS DOUBLE)" if measure.kind is SketchKind.QUANTILE else column


def _estimate_sql(measure: SketchMeasure, sketch: str) -> str:
    match measure.kind:
        case SketchKind.DISTINCT:
            return f"hll_sketch_estimate({sketch})"
        case SketchKind.THETA:
            return f"theta_sketch_estimate({sketch})"
        case _:
            (rank,) = measure.arguments
            quantile = f"kll_sketch_get_quantile_double({sketch}, {rank!r}D)"
            return f"CASE WHEN kll_sketch_get_n_double({sketch}) > 0 THEN {quantile} END"


def _column(number: int) -> str:
    return f"_sketch_{number}"


def _aligned(
    form: SummaryForm, rows: pa.Table, found: pa.Table, asked: Sequence[SketchMeasure]
) -> dict[str, pa.ChunkedArray]:
    """The estimates in the order of the exact rows, which have the same windows and groups."""
    keys = [WINDOW, *form.declaration.group]
    starts = pc.subtract(rows[VS], form.window)
    mine = pa.table([starts, *(rows[name] for name in keys[1:])], names=keys)
    both = pa.concat_tables([mine, found.select(keys).cast(mine.schema)])
    distinct, codes = number_groups(both, keys)
    place = np.full(distinct.num_rows, -1, dtype=np.int64)
    place[codes[rows.num_rows :]] = np.arange(found.num_rows)
    at = place[codes[: rows.num_rows]]
    taken = pa.array(at, mask=at < 0)
    return {
        each.name: found[_column(form.sketches.index(each))].take(taken).cast(arrow_type(each.type)) for each in asked
    }
