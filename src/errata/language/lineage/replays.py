"""Forward and backward lineage: the outputs that a change touches, the rows that make an output, and the rows that a
replay reads; also through queries that read queries.

The minimal replay sequence of a change is all rows that take part in an output together with the changed ones
(replay-revisions, 2008, section 3). Extents describe it exactly, or as little wider as they can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from errata.language.lineage.constants import constants_down, constants_up, exact_values, merged_values
from errata.language.lineage.extents import (
    extent_axis,
    input_interval,
    intersect_extents,
    is_row_by_row,
    normalized_extent,
    output_interval,
    pair_offset,
    window_ends_of_rows,
)
from errata.language.nodes import Group, Join, RelationJoin, Scan, TimeWindow, Union, scans_of
from errata.language.plan import Plan, PlanError
from errata.model.extent import ColumnValues, Extent, ExtentAxis
from errata.model.time import EVERYTHING, Interval

ScanExtents = Mapping[int, Extent]
"""By the place of a scan in `scans_of(plan)`: the rows to be read. A scan that is missing need not be read.

Rows of a stream, and of a query whose rows happened, are those that begin in the interval (`ExtentAxis.START`).
Versions of a relation, and results of a query that says what holds, are those that count at some instant of it
(`ExtentAxis.INSTANT`); they may have begun earlier.
"""


@dataclass(frozen=True, slots=True)
class InputChange:
    """Rows of an input that come, go or differ."""

    scan: int
    """The input: its place in `scans_of(plan)`."""
    rows: Extent
    """Whole rows, by the scan's names of the columns. When the last of them ends need not be known where beginnings
    tell the ends."""


@dataclass(frozen=True, slots=True)
class ReplayScope:
    """The outputs that a change can touch, and the rows that must be read to recompute them."""

    touched: Extent
    """The outputs that may differ."""
    reads: ScanExtents
    """The rows that take part."""
    whole: bool
    """Whether the reads make all outputs of the extent. Otherwise they make those that the change touches and only a
    part of the others, because the columns that tell them apart were lost on the way up (as when SELECT drops one).
    Then the difference is found by evaluating the reads as they were and as they are."""


def forward(plan: Plan, change: InputChange) -> Extent | None:
    """The outputs that a change can touch; None if there are none."""
    touched = extent_trail(plan, change.scan, changed_extent(plan, change))[0]
    return None if touched is None else touched.without_during


def backward(plan: Plan, extent: Extent) -> dict[int, Extent]:
    """The rows that make the outputs of an extent. Over these rows alone the plan gives the same outputs there."""
    return _scan_extents(plan, normalized_extent(plan, replace(extent, values=exact_values(extent.values, plan))), 0)


def replay_scope(plan: Plan, change: InputChange, *, whole: bool = False) -> ReplayScope | None:
    """The rows to read after a change; None if it touches nothing. With `whole`, all rows that make the touched extent;
    otherwise only those that take part in outputs that the changed rows touch."""
    path = extent_trail(plan, change.scan, changed_extent(plan, change))
    if (top := path[0]) is None:
        return None
    if whole:
        return ReplayScope(top.without_during, _scan_extents(plan, top, 0), True)
    reads, node, rows = _minimal_reads(plan, change.scan, path)
    told_apart = rows is not None and _rows_are_distinguishable(node, rows)
    return ReplayScope(top.without_during, reads, told_apart or reads == _scan_extents(plan, top, 0))


def _rows_are_distinguishable(node: Plan, rows: Extent) -> bool:
    """Whether the outputs that a node's rows touch differ from all others in the key, which row-by-row operators carry
    up. Versions of a relation share their key with other versions."""
    versions = isinstance(node, Scan) and node.source.kind.is_relation
    return not versions and set(node.key) <= set(rows.values)


def changed_extent(plan: Plan, change: InputChange) -> Extent:
    """The rows of a change as those of its scan lie in time."""
    axis, interval = extent_axis(_scan_at(plan, change.scan)), change.rows.interval
    if axis is ExtentAxis.INSTANT and not interval.empty:
        interval = Interval(interval.start, change.rows.during.end)
    return Extent(axis, interval, change.rows.values)


def _scan_at(plan: Plan, scan: int) -> Scan:
    read = scans_of(plan)
    if not 0 <= scan < len(read):
        listed = ", ".join(f"{place} {each.source.name}" for place, each in enumerate(read))
        raise PlanError(f"there is no scan {scan}", where=type(plan).__name__, how=f"there are: {listed}")
    return read[scan]


def extent_trail(plan: Plan, scan: int, extent: Extent) -> list[Extent | None]:
    """The rows that rows of a scan touch, at each node from the root down to the scan."""
    node = _scan_at(plan, scan)
    moved = normalized_extent(node, replace(extent, values=exact_values(extent.values, node)))
    found = [moved]
    for above, place in reversed(path_to_scan(plan, scan)):
        moved = None if moved is None else _touched_extent(above, place, moved)
        found.append(moved)
    return found[::-1]


def path_to_scan(plan: Plan, scan: int) -> list[tuple[Plan, int]]:
    """The nodes from the root down to above a scan, each with the place of the input that leads to it."""
    path = []
    while plan.inputs:
        place, before = _input_with_scan(plan, scan)
        path.append((plan, place))
        plan, scan = plan.inputs[place], scan - before
    return path


def _input_with_scan(plan: Plan, scan: int) -> tuple[int, int]:
    """The input that holds a scan, and the number of scans before that input."""
    before = 0
    for place, child in enumerate(plan.inputs):
        count = len(scans_of(child))
        if scan < before + count:
            return place, before
        before += count
    raise PlanError(f"no input holds scan {scan}", where=type(plan).__name__)


def _touched_extent(plan: Plan, place: int, extent: Extent) -> Extent | None:
    """The rows of a node that rows of one of its inputs can touch."""
    values = constants_up(plan, place, extent.values)
    window = plan.window if isinstance(plan, Group) else None
    if values is not None and isinstance(window, TimeWindow) and extent.axis is ExtentAxis.START:
        ends = window_ends_of_rows(window, extent.interval)
        if ends.empty:
            return None
        if ends.end == ends.start + 1:
            columns = _window_columns(plan)
            values = merged_values(values, dict(zip(columns, (ends.start - window.size, ends.start), strict=True)))
    if values is None:
        return None
    interval = output_interval(plan, place, extent.interval)
    if extent_axis(plan) is ExtentAxis.INSTANT:
        return normalized_extent(plan, Extent(ExtentAxis.INSTANT, interval & extent.during, values))
    # A row made of single rows counts only while they do.
    during = extent.during if is_row_by_row(plan) else EVERYTHING
    return normalized_extent(plan, Extent(ExtentAxis.START, interval, values, during))


def _window_columns(plan: Plan) -> tuple[str, ...]:
    """The columns of a group's window, its beginning first."""
    return tuple(each.name for each in plan.window_fields) if isinstance(plan, Group) else ()


def _needed_extents(plan: Plan, extent: Extent) -> tuple[Extent | None, ...]:
    """For each input of a node: the rows that make the node's rows in an extent; None where none are needed."""
    found: list[Extent | None] = []
    for place, (below, values) in enumerate(zip(plan.inputs, constants_down(plan, extent.values), strict=True)):
        interval = input_interval(plan, place, extent.interval)
        window = plan.window if isinstance(plan, Group) else None
        begins = next((extent.values.get(name) for name in _window_columns(plan)), None)
        if isinstance(window, TimeWindow) and isinstance(begins, int) and extent_axis(below) is ExtentAxis.START:
            interval = interval & Interval(begins, begins + window.size)
        found.append(
            None if values is None else normalized_extent(below, _live_rows(plan, extent, below, interval, values))
        )
    return tuple(found)


def _live_rows(plan: Plan, extent: Extent, below: Plan, interval: Interval, values: ColumnValues) -> Extent:
    """Rows of an input, in an interval, that count while rows of the node's extent do."""
    if extent_axis(below) is ExtentAxis.INSTANT:
        return Extent(ExtentAxis.INSTANT, interval, values)
    if extent_axis(plan) is ExtentAxis.INSTANT:
        return Extent(ExtentAxis.START, interval, values, extent.interval)
    return Extent(ExtentAxis.START, interval, values, extent.during if is_row_by_row(plan) else EVERYTHING)


def _scan_extents(plan: Plan, extent: Extent | None, first: int) -> dict[int, Extent]:
    """The rows that make an extent, by the places of scans counted from `first`."""
    if extent is None:
        return {}
    if isinstance(plan, Scan):
        return {first: extent.without_during}
    return _extents_below(plan, _needed_extents(plan, extent), first)


def _extents_below(plan: Plan, needs: tuple[Extent | None, ...], first: int) -> dict[int, Extent]:
    found: dict[int, Extent] = {}
    for child, extent in zip(plan.inputs, needs, strict=True):
        found |= _scan_extents(child, extent, first)
        first += len(scans_of(child))
    return found


def _minimal_reads(plan: Plan, scan: int, path: list[Extent | None]) -> tuple[dict[int, Extent], Plan, Extent | None]:
    """The rows that take part in touched outputs; also the lowest node down to which the changed rows could be
    followed, and its rows.

    As long as each row of an operator is made of one row of its input, touched rows are made of touched rows alone. An
    operator that looks at many rows together needs them all.
    """
    found: dict[int, Extent] = {}
    node, wanted, first = plan, path[0], 0
    for (above, place), below in zip(path_to_scan(plan, scan), path[1:], strict=True):
        if wanted is None or not is_row_by_row(above):
            break
        needs = _partner_extents(above, place, below, _needed_extents(above, wanted))
        found |= _extents_below(above, tuple(None if at == place else each for at, each in enumerate(needs)), first)
        first += _input_with_scan(above, scan - first)[1]
        node, wanted = above.inputs[place], needs[place]
    return found | _scan_extents(node, wanted, first), node, wanted


def _partner_extents(
    node: Plan, place: int, moved: Extent | None, needs: tuple[Extent | None, ...]
) -> tuple[Extent | None, ...]:
    """The part of the rows a node needs that takes part in an output together with touched rows of one of its
    inputs."""
    if isinstance(node, RelationJoin) and place == 1 and extent_axis(node) is ExtentAxis.INSTANT:
        # Other rows count beside those that saw the changed version. Without their own versions they would see it, too.
        return needs
    kept = [intersect_extents(each, moved) if at == place else each for at, each in enumerate(needs)]
    if isinstance(node, Union):
        return tuple(each if at == place else None for at, each in enumerate(kept))
    if isinstance(node, Join) and extent_axis(node) is ExtentAxis.START and moved is not None:
        later = pair_offset(node) if place == 0 else -pair_offset(node)
        partners = Extent(ExtentAxis.START, later.after(moved.interval), during=moved.during)
        kept[1 - place] = intersect_extents(kept[1 - place], partners)
    return tuple(normalized_extent(below, each) for below, each in zip(node.inputs, kept, strict=True))


# Lineage through queries that read queries, down to streams and relations.

QueryPath = tuple[int, ...]
"""The place of a scan; if it reads a query, then the place of a scan in that query's plan, and so on."""


def reads_through_queries(plan: Plan, reads: ScanExtents) -> dict[QueryPath, Extent]:
    """Reads followed down to streams and relations: a query's rows are made of the rows that the query reads."""
    found: dict[QueryPath, Extent] = {}
    for place, scan in enumerate(scans_of(plan)):
        if place not in reads:
            continue
        extent, inner = reads[place], scan.source.plan
        if inner is None:
            found[place,] = extent
            continue
        below = backward(inner, extent.renamed(scan.of_source))
        found |= {(place, *path): each for path, each in reads_through_queries(inner, below).items()}
    return found


def forward_through_queries(plan: Plan, path: QueryPath, change: InputChange) -> Extent | None:
    """The outputs that a change can touch through all queries on a path that ends at the changed rows."""
    place, *rest = path
    if not rest:
        return forward(plan, replace(change, scan=place))
    scan = scans_of(plan)[place]
    if scan.source.plan is None:
        raise PlanError(f"{scan.source.name} is not a query", how="a path ends at a stream or a relation")
    extent = forward_through_queries(scan.source.plan, tuple(rest), change)
    if extent is None:
        return None
    return extent_trail(plan, place, extent.renamed(scan.column))[0]
