"""Final windows corrected: from the partial aggregates that were published with them, without reading any row; where
these do not decide, from the windows' rows. Either way their partial aggregates stay right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from errata.archive.masked_results import spelled
from errata.archive.masks import sources
from errata.archive.match import matches
from errata.archive.result_rows import rows_schema
from errata.catalog import buckets
from errata.engine.plans.adjusted import FATE, GONE, STANDS, UNDECIDED, adjust_group
from errata.engine.plans.partials import advance_group, results_of
from errata.engine.types import arrow_ddl, ddl
from errata.engine.values import as_frame, fetch
from errata.evaluate.deposit import gathered, kept
from errata.evaluate.windows import EMPTY, as_kept, latest, vanished
from errata.flows.answering.inputs import Inputs, Read
from errata.flows.correcting.stretches import rows_behind, stretches, within
from errata.flows.correcting.sweeping import Sweeping
from errata.intake.arrow_types import arrow_schema
from errata.language.lineage import Axis, Region
from errata.language.nodes import scans
from errata.language.partial import PartialGroup
from errata.model.bucket import Role
from errata.model.interval import LOWEST, Interval
from errata.model.results import RUN, VS
from errata.revise.regions import holds

MANY = 500_000
"""Rows that are added up twice, for the results and for what is kept of them, sooner than by two jobs."""


@dataclass(frozen=True)
class Reworked:
    """Windows that have been worked out again."""

    rows: pa.Table
    """Their results as they are now."""
    parts: pa.Table
    """What is to be kept of them."""


@dataclass(frozen=True)
class Adjusted(Reworked):
    """Windows that have been corrected from what was kept of them."""

    undecided: pa.Table
    """Those for which that did not suffice."""
    touched: pa.Table
    """All that corrected rows lie in, by the group's columns and their ends."""
    known: pa.Table
    """Those of which something was kept."""


def replayed(sweeping: Sweeping, inputs: Inputs, read: Mapping[str, Read], regions: Sequence[Region]) -> Reworked:
    """The windows in the regions, from their rows. Of windows beside them only a part of the rows may be there."""
    opened, count = (
        [bucket for each in read.values() for bucket in each.opened],
        sum(each.rows for each in read.values()),
    )
    spans = stretches(opened, count, regions, sweeping.task.step.until)
    if len(spans) == 1:
        return _replayed(sweeping, inputs, read, regions)
    rows, parts = [rows_schema(sweeping.task.shape).empty_table()], pa.table({})
    for span in spans:
        if some := within(regions, span):
            behind = rows_behind(sweeping.task.rewritten, read, span, inputs)
            done = _replayed(sweeping, inputs, behind, some)
            inside = pc.and_(pc.greater_equal(done.rows[VS], span.start), pc.less(done.rows[VS], span.end))
            rows.append(done.rows.filter(inside))
            parts = together(parts, done.parts)
    return Reworked(pa.concat_tables(rows), parts)


def _replayed(sweeping: Sweeping, inputs: Inputs, read: Mapping[str, Read], regions: Sequence[Region]) -> Reworked:
    found, until = _partial(sweeping), sweeping.task.step.until
    schema = rows_schema(sweeping.task.shape)
    before = kept_of(sweeping, inputs, [each.interval for each in regions])
    before = before.filter(pa.array(_in_regions(sweeping, before, regions)))
    if not any(each.opened for each in read.values()):
        return Reworked(schema.empty_table(), _gone(before, sweeping.task.number))
    frames = {name: each.frame for name, each in read.items()}
    done = advance_group(found, frames, None, None, LOWEST, until, parts=True)
    made, beside = done.rows, done.windows
    if beside is not None and (inputs.near or sum(each.rows for each in read.values()) > MANY):
        # They are added up once, and the results made of what is kept.
        beside = fetch(beside)
        local = as_frame(inputs.session, beside, arrow_ddl(beside.schema))
        made = results_of(found, frames, local, until)
    rows, windows = _brought(sweeping, made, beside)
    windows = windows.filter(pc.less_equal(windows[VS], until))
    windows = windows.filter(pa.array(_in_regions(sweeping, windows, regions)))
    now = as_kept(windows, sweeping.task.number)
    return Reworked(rows, together(now, vanished(before, now, sweeping.task.number) if before.num_rows else None))


def adjusted(sweeping: Sweeping, inputs: Inputs) -> Adjusted:
    """The windows that revised rows lie in, from what was kept of them."""
    number = sweeping.task.number
    parts = kept_of(sweeping, inputs, [each.interval for each in sweeping.work.regions])
    plain = parts.drop_columns([name for name in (EMPTY, RUN) if name in parts.column_names])
    rows, windows = _adjusted(sweeping, inputs, plain)
    by_fate = {fate: windows.filter(pc.equal(windows[FATE], fate)).drop_columns([FATE]) for fate in (STANDS, GONE)}
    kept_now = together(as_kept(by_fate[STANDS], number), as_kept(by_fate[GONE], number, empty=True))
    undecided = windows.filter(pc.equal(windows[FATE], UNDECIDED))
    before = named(sweeping, parts) if parts.num_rows else named(sweeping, windows.slice(0, 0))
    return Adjusted(rows, kept_now, named(sweeping, undecided), named(sweeping, windows), before)


def _adjusted(sweeping: Sweeping, inputs: Inputs, parts: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Results and windows, from what was kept of them and the rows that revisions take away and bring."""
    gone, came = (revised_rows(sweeping, inputs, which) for which in ("gone", "came"))
    known = _known(sweeping, inputs, parts)
    done = adjust_group(_partial(sweeping), gone, came, known, sweeping.task.step.until)
    return _brought(sweeping, done.rows, done.windows)


def _known(sweeping: Sweeping, inputs: Inputs, parts: pa.Table) -> DataFrame:
    """What was kept, as a frame; where nothing was, as many columns as there would be."""
    if parts.column_names:
        return as_frame(inputs.session, parts, arrow_ddl(parts.schema))
    found, empty = _partial(sweeping), revised_rows(sweeping, inputs, None)
    windows = advance_group(found, empty, None, None, LOWEST, sweeping.task.step.until, parts=True).windows
    if windows is None:
        raise AssertionError("the parts of final windows were asked for")
    return windows


def only(sweeping: Sweeping, rows: pa.Table, windows: pa.Table, *, inside: bool = True) -> pa.Table:
    """Results, or windows, that are of some windows; or that are of none of them."""
    names = [VS, *_kept_names(sweeping)]
    left, _ = matches(spelled(rows, names), spelled(windows, names), names)
    chosen = np.zeros(rows.num_rows, np.bool_)
    chosen[left] = True
    return rows.filter(pa.array(chosen if inside else ~chosen))


def named(sweeping: Sweeping, windows: pa.Table) -> pa.Table:
    """Windows by the names that the group's columns have in the results."""
    schema = rows_schema(sweeping.task.shape)
    names = _kept_names(sweeping)
    columns = [windows[f"_g{place}"].cast(schema.field(name).type) for place, name in enumerate(names)]
    return pa.table([*columns, windows[VS]], [*names, VS])


def kept_of(sweeping: Sweeping, inputs: Inputs, spans: Iterable[Interval]) -> pa.Table:
    """What is kept of the windows that end in some intervals; a table without columns where there is nothing."""
    catalog, basis = inputs.site.catalog, sweeping.basis
    wanted = list(spans)
    found = buckets.meeting(catalog, basis.stream_id, basis.last.commit_id, wanted, (Role.PARTS,))
    read = [each.read(inputs.site.warehouse) for each in sources(catalog, found)]
    if not read:
        return pa.table({})
    schema = read[0].schema
    whole = pa.concat_tables([each.select(schema.names).cast(schema) for each in read])
    ends = whole[VS].to_numpy()
    inside = np.zeros(len(ends), np.bool_)
    for span in wanted:
        inside |= (ends >= span.start) & (ends < span.end)
    return latest(whole.filter(pa.array(inside)))


def _partial(sweeping: Sweeping) -> PartialGroup:
    if sweeping.task.route.partial is None:
        raise AssertionError("only groups keep partial aggregates")
    return sweeping.task.route.partial


def _kept_names(sweeping: Sweeping) -> list[str]:
    """The group's columns as the results keep them."""
    names = sweeping.task.kept_names
    return [names[name] for name in _partial(sweeping).group_names]


def _in_regions(sweeping: Sweeping, windows: pa.Table, regions: Iterable[Region]) -> np.ndarray:
    """Which windows lie in regions: by their ends, and by the group's constants."""
    inside = np.zeros(windows.num_rows, np.bool_)
    if not windows.num_rows:
        return inside
    rows, ends = named(sweeping, windows), windows[VS].to_numpy()
    for each in regions:
        values = {name: value for name, value in each.values.items() if name in rows.column_names}
        same = holds(rows, replace(each, values=values))
        inside |= same & (ends >= each.interval.start) & (ends < each.interval.end)
    return inside


def _brought(sweeping: Sweeping, rows: DataFrame, windows: DataFrame | pa.Table | None) -> tuple[pa.Table, pa.Table]:
    """Results and windows, by one job."""
    task = sweeping.task
    if windows is None:
        raise AssertionError("the parts of final windows were asked for")
    results = kept(rows, task.shape, [each.name for each in task.plan.fields])
    table, found = gathered(results, windows, rows_schema(task.shape))
    if found is None:
        raise AssertionError("both were asked for")
    return table, found


def revised_rows(sweeping: Sweeping, inputs: Inputs, which: str | None) -> dict[str, DataFrame]:
    """The rows of each stream that revisions take away, or bring; or none."""
    return {
        name: as_frame(inputs.session, table, ddl(inputs.standings[name].stream))
        for name, table in _revised_tables(sweeping, inputs, which).items()
    }


def _revised_tables(sweeping: Sweeping, inputs: Inputs, which: str | None) -> dict[str, pa.Table]:
    known = {each.source: each for each in sweeping.revised}
    found = {}
    for scan in scans(_partial(sweeping).node.input):
        schema = arrow_schema(inputs.standings[scan.source.name].stream)
        rows = None
        if which is not None and scan.source.name in known:
            revised = known[scan.source.name]
            rows = revised.before if which == "gone" else revised.after
        found[scan.source.name] = schema.empty_table() if rows is None else rows.select(schema.names).cast(schema)
    return found


def _gone(before: pa.Table, number: int) -> pa.Table:
    if not before.num_rows:
        return before
    return as_kept(before.drop_columns([EMPTY, RUN]), number, empty=True)


def only_parts(sweeping: Sweeping, parts: pa.Table, windows: pa.Table) -> pa.Table:
    """What is to be kept of some windows."""
    if not parts.num_rows:
        return parts
    names = [VS, *_kept_names(sweeping)]
    left, _ = matches(spelled(named(sweeping, parts), names), spelled(windows, names), names)
    return parts.take(pa.array(np.unique(left)))


def together(one: pa.Table, other: pa.Table | None) -> pa.Table:
    """What is to be kept of the one and of the other."""
    if other is None or not other.num_rows:
        return one
    if not one.num_rows:
        return other
    return pa.concat_tables([one, other.select(one.column_names).cast(one.schema)])


def hull(spans: Iterable[Interval]) -> Region:
    """All of a stretch of time."""
    known = list(spans)
    return Region(Axis.START, Interval(min(each.start for each in known), max(each.end for each in known)))
