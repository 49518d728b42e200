"""Compares recomputed results with published ones, in regions of the results.

In the regions the recomputed results are the answer, elsewhere the published ones are. Published rows are never
rewritten: a wrong one is masked by a tombstone, and the right one is added. What comes of a comparison is a
`ResultDiff`: tombstones, results to add, and change records for readers. It takes a sort of the rows of all keys that
have something in the regions. Pure, on Arrow tables; it runs in this process and in Spark's tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from errata.answer.extents import RowParts, parts_in_extents
from errata.answer.publication import (
    DELETE,
    INSERT,
    NO_ROW,
    REPLACE,
    ChangeArrays,
    ResultArrays,
    change_records,
    instant_array,
    raise_duplicate_key,
    split_by_role,
)
from errata.answer.row_comparison import BoolArray, IntArray, group_starts, same_values, sort_arrays
from errata.archive.schemas import computed_schema, conform, result_mask_schema, result_schema
from errata.model.columns import TypeKind
from errata.model.extent import Extent, ExtentAxis
from errata.model.results import EVALUATION, VE, VS, ResultShape
from errata.model.time import HIGHEST, Interval


@dataclass(frozen=True, slots=True)
class DiffContext:
    """Which evaluation corrects, and how the results are kept that it corrects."""

    run: int
    until: int
    """The last instant that is answered; results that begin at it are provisional."""
    covering: bool
    """Whether later steps replace results; otherwise these are only added, and their ends are certain."""
    axis: ExtentAxis
    """How all regions lie in time."""
    closes: tuple[str, int] | None = None
    """A column that holds a beginning, and a span after it in which its results can change; they are final then."""
    rough: frozenset[str] | None = None
    """The columns of doubles that may differ in their last bits, since they are sums; None if all may be."""


@dataclass(frozen=True, slots=True)
class ResultDiff:
    """What is added to the published results."""

    masks: pa.Table
    """Published results that no longer count."""
    base: pa.Table
    open: pa.Table
    tip: pa.Table
    """Results that count instead: final ones, ones whose end may change, and ones that begin at the last instant."""
    feed: pa.Table
    changed: int
    """Results that have come, gone or changed."""
    compared: int
    """Results that were compared: those, and the ones that are the same."""


@dataclass(frozen=True, slots=True)
class _DiffRows:
    """Published rows and after them recomputed ones, of keys that have something in the regions."""

    table: pa.Table
    names: list[str]
    """The columns of the key."""
    payload: list[str]
    rough: Collection[str]
    """Columns of doubles that may differ in their last bits, and are then the same."""
    published: int
    """How many rows are published ones."""
    vs: IntArray
    ve: IntArray
    key: IntArray
    """A number for each row's key."""
    inside: RowParts
    """What of the rows lies in the regions."""


@dataclass(frozen=True, slots=True)
class _CurrentResults:
    """The results after the correction, in the order of key and vs."""

    first: IntArray
    """The row with a result's values: the published one, if it has the same values."""
    vs: IntArray
    ve: IntArray
    old: IntArray
    """The published row of the same key and vs."""
    followed: BoolArray
    """Whether the next result of the key begins where it ends."""
    gone: IntArray
    """Published rows that are results no longer."""


def _gather_rows(
    new: pa.Table,
    before: pa.Table,
    regions: Iterable[Extent],
    context: DiffContext,
    shape: ResultShape,
) -> _DiffRows:
    """The rows that are compared: those whose keys have something in the regions. Rows that begin after the last
    instant are left out."""
    until = context.until
    new, before = (
        conform(new, computed_schema(shape), missing_as_null=False),
        conform(before, result_schema(shape), missing_as_null=False).drop_columns([EVALUATION]),
    )
    new = new.filter(pa.array((instant_array(new, VS) <= until) & (instant_array(new, VE) > instant_array(new, VS))))
    table = pa.concat_tables([before, new]).combine_chunks()
    vs, ve = instant_array(table, VS), instant_array(table, VE)
    ends = vs + 1 if context.axis is ExtentAxis.START else ve
    inside = parts_in_extents(table, vs, ends, (_extend_open_end(each, until) for each in regions))
    key = _number_keys(table, shape.key)
    concerned = np.zeros(len(key) + 1, np.bool_)
    concerned[key[inside.row]] = True
    concerns = concerned[key]
    concerns[before.num_rows :] = False
    concerns[inside.row] = True
    place = np.cumsum(concerns) - 1
    inside = RowParts(place[inside.row], inside.start, inside.end)
    return _DiffRows(
        table.select(shape.names).filter(pa.array(concerns)).combine_chunks(),
        shape.key,
        shape.payload,
        _inexact_columns(context, shape),
        int(np.count_nonzero(concerns[: before.num_rows])),
        vs[concerns],
        ve[concerns],
        key[concerns],
        inside,
    )


def _extend_open_end(region: Extent, until: int) -> Extent:
    """A region up to the last instant, extended to the expected ends of results, which lie after it."""
    interval = region.interval
    return region if interval.end <= until else replace(region, interval=Interval(interval.start, HIGHEST))


def _number_keys(table: pa.Table, names: Sequence[str]) -> IntArray:
    """Numbers for the rows' keys, in the order of these."""
    lanes = sort_arrays(table, names)
    numbers = np.zeros(table.num_rows, np.int64)
    if lanes:
        order = np.lexsort(lanes[::-1])
        numbers[order] = np.cumsum(group_starts([lane[order] for lane in lanes], len(order)))
    return numbers


def _results_by_start(rows: _DiffRows, *, covering: bool) -> _CurrentResults:
    """The current results by start: in the regions recomputed rows replace published ones whole."""
    size = len(rows.vs)
    inside = np.zeros(size, np.bool_)
    inside[rows.inside.row] = True
    # Published rows come first among those of the same key and vs.
    order = np.lexsort((rows.vs, rows.key))
    key, vs = rows.key[order], rows.vs[order]
    again = 1 + np.flatnonzero((key[1:] == key[:-1]) & (vs[1:] == vs[:-1]))
    now, was = order[again], order[again - 1]
    if (clash := now[(was >= rows.published) | (now < rows.published) | ~inside[was]]).size:
        raise_duplicate_key(rows.table, rows.names, int(clash[0]), int(rows.vs[clash[0]]))
    old = np.where(np.arange(size) < rows.published, np.arange(size), NO_ROW)
    old[now] = was
    first = np.arange(size)
    same = same_values(rows.table, rows.payload, was, now, rows.rough)
    first[now[same]] = was[same]
    taken = inside & (np.arange(size) < rows.published)
    there = order[~taken[order]]
    key, vs, ve = rows.key[there], rows.vs[there], rows.ve[there]
    together = key[1:] == key[:-1]
    if covering:
        _check_disjoint(rows, there, vs, ve)
    followed = np.append(together & (vs[1:] == ve[:-1]), False)[: len(there)]
    gone = np.setdiff1d(np.flatnonzero(taken), was)
    return _CurrentResults(first[there], vs, ve, old[there], followed, gone)


def _check_disjoint(rows: _DiffRows, row: IntArray, start: IntArray, end: IntArray) -> None:
    """Refuse overlapping parts of rows of one key. They come in the order of key and time."""
    meet = (rows.key[row[1:]] == rows.key[row[:-1]]) & (start[1:] < end[:-1])
    if (clash := 1 + np.flatnonzero(meet)).size:
        raise_duplicate_key(rows.table, rows.names, int(row[clash[0]]), int(start[clash[0]]))


@dataclass(frozen=True, slots=True)
class _TimePoints:
    """The instants of each key at which a row begins or ends, in order. Values hold up to the next one."""

    time: IntArray
    published: IntArray
    """The published row that is valid."""
    taken: BoolArray
    """Whether it lies in a region."""
    recomputed: IntArray
    """The recomputed row that is valid in a region."""


def _time_points(rows: _DiffRows) -> _TimePoints:
    inside = rows.inside
    old = inside.row < rows.published
    everything = np.arange(rows.published)
    layers = [
        (everything, rows.vs[: rows.published], rows.ve[: rows.published]),
        (inside.row[old], inside.start[old], inside.end[old]),
        (inside.row[~old], inside.start[~old], inside.end[~old]),
    ]
    for row, start, end in layers[::2]:
        order = np.lexsort((start, rows.key[row]))
        _check_disjoint(rows, row[order], start[order], end[order])
    key = rows.key[np.concatenate([row for row, _, _ in layers for _ in ("start", "end")])]
    time = np.concatenate([each for _, start, end in layers for each in (start, end)])
    order = np.lexsort((time, key))
    fresh = group_starts([key[order], time[order]], len(order))
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(fresh) - 1
    counting, at = [], 0
    for row, _, _ in layers:
        begins, ends = place[at : at + len(row)], place[at + len(row) : at + 2 * len(row)]
        counting.append(_row_at_points(row, begins, ends, int(np.count_nonzero(fresh))))
        at += 2 * len(row)
    return _TimePoints(time[order[fresh]], counting[0], counting[1] != NO_ROW, counting[2])


def _row_at_points(row: IntArray, begins: IntArray, ends: IntArray, size: int) -> IntArray:
    """For each point the row that is valid from there on, of rows that begin and end at some points and do not
    overlap."""
    is_point = np.zeros(size, np.bool_)
    is_point[ends] = is_point[begins] = True
    found = np.full(size, NO_ROW)
    found[begins] = row
    last: IntArray = np.maximum.accumulate(np.where(is_point, np.arange(size), 0))
    return found[last]


def _results_by_instant(rows: _DiffRows) -> _CurrentResults:
    """The current results by instant: recomputed rows in the regions, published ones elsewhere; pieces with the same
    values that meet become one result."""
    points = _time_points(rows)
    stays = (points.published != NO_ROW) & ~points.taken
    if (clash := np.flatnonzero(stays & (points.recomputed != NO_ROW))).size:
        raise_duplicate_key(rows.table, rows.names, int(points.recomputed[clash[0]]), int(points.time[clash[0]]))
    # A published row stays wherever the recomputed one has the same values, so that it is not masked and added again.
    both = np.flatnonzero(points.taken & (points.recomputed != NO_ROW))
    same = both[same_values(rows.table, rows.payload, points.published[both], points.recomputed[both], rows.rough)]
    says = np.where(stays, points.published, points.recomputed)
    says[same] = points.published[same]

    there = np.flatnonzero(says != NO_ROW)
    row = says[there]
    touching = np.zeros(len(there) + 1, np.bool_)
    # The row that is valid at a point ends at the next point of its key.
    touching[1:-1] = there[1:] == there[:-1] + 1
    at = np.flatnonzero(touching)
    goes_on = touching.copy()
    goes_on[at] = _continues(rows, row[at - 1], row[at])
    heads = np.flatnonzero(~goes_on[:-1])
    ends = np.append(heads[1:], len(there))[: len(heads)]
    vs, ve = points.time[there[heads]], points.time[there[ends - 1] + 1]
    old = points.published[there[heads]]
    old[rows.vs[old] != vs] = NO_ROW
    gone = np.setdiff1d(np.arange(rows.published), old)
    return _CurrentResults(row[heads], vs, ve, old, touching[ends], gone)


def _continues(rows: _DiffRows, one: IntArray, other: IntArray) -> BoolArray:
    """Whether a row continues another one with the same values. Published rows that were apart stay apart."""
    goes_on: BoolArray = one == other
    published = [each < rows.published for each in (one, other)]
    for which, rough in ((published[0] ^ published[1], rows.rough), (~published[0] & ~published[1], ())):
        at = np.flatnonzero(which)
        goes_on[at] = same_values(rows.table, rows.payload, one[at], other[at], rough)
    return goes_on


def diff_results(
    new: pa.Table, before: pa.Table, regions: Iterable[Extent], context: DiffContext, shape: ResultShape
) -> ResultDiff:
    """Compare recomputed results with the published ones in some regions, which may overlap.

    Rows of `new` outside of the regions are ignored; those inside are all that there are. `before` has at least the
    published results with the constants of a region's key columns that begin in its interval; where the axis is
    instants, those that are valid in it, or at the instant before it or after it.
    """
    rows = _gather_rows(new, before, regions, context, shape)
    answer = (
        _results_by_instant(rows)
        if context.axis is ExtentAxis.INSTANT
        else _results_by_start(rows, covering=context.covering)
    )
    answer = _drop_later_results(answer, context.until)
    published = answer.old != NO_ROW
    ended = rows.ve[answer.old]
    same_end = answer.ve == ended
    if context.covering:
        # Ends after the last instant are decided by the next evaluation.
        same_end |= (answer.ve > context.until) & (ended > context.until)
    replaced = published & ((answer.first != answer.old) | ~same_end)
    masked = np.concatenate([answer.old[replaced], answer.gone])
    now = np.flatnonzero(replaced | ~published)
    results = ResultArrays(answer.first[now], answer.vs[now], answer.ve[now], np.full(len(now), context.run))
    came = int(np.count_nonzero(~published))
    looked_at = np.union1d(rows.inside.row[rows.inside.row < rows.published], masked)
    return ResultDiff(
        _mask_rows(rows, masked, context, shape),
        *split_by_role(rows.table, results, context, shape),
        _change_records(rows, answer, replaced, context, shape),
        len(masked) + came,
        len(looked_at) + came,
    )


def _inexact_columns(context: DiffContext, shape: ResultShape) -> frozenset[str]:
    doubles = frozenset(each.name for each in shape.columns if each.type.kind is TypeKind.DOUBLE)
    return doubles if context.rough is None else doubles & context.rough


def _drop_later_results(answer: _CurrentResults, until: int) -> _CurrentResults:
    """The results that begin up to the last instant."""
    if (counts := answer.vs <= until).all():
        return answer
    first, old, followed = answer.first[counts], answer.old[counts], answer.followed[counts]
    return _CurrentResults(first, answer.vs[counts], answer.ve[counts], old, followed, answer.gone)


def _mask_rows(rows: _DiffRows, masked: IntArray, context: DiffContext, shape: ResultShape) -> pa.Table:
    at = masked[np.lexsort((rows.key[masked], rows.vs[masked]))]
    columns = [rows.table[name].take(pa.array(at)) for name in shape.key]
    times = [pa.array(rows.vs[at]), pa.array(rows.ve[at]), pa.repeat(context.run, len(at))]
    return pa.Table.from_arrays([*columns, *times], schema=result_mask_schema(shape))


def _change_records(
    rows: _DiffRows, answer: _CurrentResults, replaced: BoolArray, context: DiffContext, shape: ResultShape
) -> pa.Table:
    published = answer.old != NO_ROW
    said_again = replaced.copy()
    if context.covering:
        # A reader takes a result's end from the next result of its key. Where that is gone, a record must tell it.
        said_again |= published & _was_followed(rows)[answer.old] & ~answer.followed
    said, gone = np.flatnonzero(said_again | ~published), answer.gone
    row, past = np.concatenate([answer.first[said], gone]), np.concatenate([answer.old[said], gone])
    op = np.concatenate([np.where(published[said], REPLACE, INSERT), np.full(len(gone), DELETE)])
    vs = np.concatenate([answer.vs[said], rows.vs[gone]])
    ve = np.concatenate([answer.ve[said], rows.vs[gone]])
    return change_records(
        rows.table, ChangeArrays(op, row, past, vs, ve, rows.ve[past], rows.key[row]), context.run, shape
    )


def _was_followed(rows: _DiffRows) -> BoolArray:
    """Which published rows end where the next published one of their key begins."""
    order = np.lexsort((rows.vs[: rows.published], rows.key[: rows.published]))
    key, vs, ve = rows.key[order], rows.vs[order], rows.ve[order]
    followed = np.zeros(len(rows.vs), np.bool_)
    followed[order[:-1]] = (key[1:] == key[:-1]) & (vs[1:] == ve[:-1])
    return followed
