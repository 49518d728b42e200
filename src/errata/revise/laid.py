"""New results laid over published ones: in regions the answer is what is new, elsewhere what is published."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from errata.archive.result_rows import result_schema, rows_schema
from errata.evaluate.publishing import NONE, conform, instants, refuse
from errata.evaluate.sameness import Flags, Ints, alike, lanes, steps
from errata.language.lineage import Axis, Region
from errata.model.interval import HIGHEST, Interval
from errata.model.results import RUN, VE, VS, Shape
from errata.revise.regions import Stretches, within


@dataclass(frozen=True, slots=True)
class Rows:
    """Published rows and, behind them, new ones: those whose keys have something in the regions."""

    table: pa.Table
    names: list[str]
    """The columns of the key."""
    payload: list[str]
    rough: Collection[str]
    """Columns of doubles that may differ in their last bits."""
    published: int
    """How many rows are published ones."""
    vs: Ints
    ve: Ints
    key: Ints
    """A number for each row's key."""
    inside: Stretches
    """What of the rows lies in the regions."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The results that there are now, in the order of key and vs."""

    first: Ints
    """The row that has what a result says: the published one, if that says the same."""
    vs: Ints
    ve: Ints
    old: Ints
    """The published row of the same key and vs."""
    followed: Flags
    """Whether the next result of the key begins where it ends."""
    gone: Ints
    """Published rows that are no results any more."""


def gather(
    new: pa.Table,
    before: pa.Table,
    regions: Iterable[Region],
    axis: Axis,
    until: int,
    rough: Collection[str],
    shape: Shape,
) -> Rows:
    """The rows that have a say. What begins after the last instant has none."""
    new, before = conform(new, rows_schema(shape)), conform(before, result_schema(shape)).drop_columns([RUN])
    new = new.filter(pa.array((instants(new, VS) <= until) & (instants(new, VE) > instants(new, VS))))
    table = pa.concat_tables([before, new]).combine_chunks()
    vs, ve = instants(table, VS), instants(table, VE)
    reach = vs + 1 if axis is Axis.START else ve
    inside = within(table, vs, reach, (_open_ended(each, until) for each in regions))
    key = _numbered(table, shape.key)
    concerned = np.zeros(len(key) + 1, np.bool_)
    concerned[key[inside.row]] = True
    concerns = concerned[key]
    concerns[before.num_rows :] = False
    concerns[inside.row] = True
    place = np.cumsum(concerns) - 1
    inside = Stretches(place[inside.row], inside.start, inside.end)
    return Rows(
        table.select(shape.names).filter(pa.array(concerns)).combine_chunks(),
        shape.key,
        shape.payload,
        rough,
        int(np.count_nonzero(concerns[: before.num_rows])),
        vs[concerns],
        ve[concerns],
        key[concerns],
        inside,
    )


def _open_ended(region: Region, until: int) -> Region:
    """Nothing is published of later instants, but what is foreseen of them."""
    interval = region.interval
    return region if interval.end <= until else replace(region, interval=Interval(interval.start, HIGHEST))


def _numbered(table: pa.Table, names: Sequence[str]) -> Ints:
    """Numbers for the rows' keys, in the order of these."""
    told = lanes(table, names)
    numbers = np.zeros(table.num_rows, np.int64)
    if told:
        order = np.lexsort(told[::-1])
        numbers[order] = np.cumsum(steps([lane[order] for lane in told], len(order)))
    return numbers


def of_starts(rows: Rows, *, covering: bool) -> Answer:
    """Whole rows: in the regions new ones take the place of published ones."""
    size = len(rows.vs)
    inside = np.zeros(size, np.bool_)
    inside[rows.inside.row] = True
    # Published rows come first among those of the same key and vs.
    order = np.lexsort((rows.vs, rows.key))
    key, vs = rows.key[order], rows.vs[order]
    again = 1 + np.flatnonzero((key[1:] == key[:-1]) & (vs[1:] == vs[:-1]))
    now, was = order[again], order[again - 1]
    if (clash := now[(was >= rows.published) | (now < rows.published) | ~inside[was]]).size:
        refuse(rows.table, rows.names, int(clash[0]), int(rows.vs[clash[0]]))
    old = np.where(np.arange(size) < rows.published, np.arange(size), NONE)
    old[now] = was
    first = np.arange(size)
    same = alike(rows.table, rows.payload, was, now, rows.rough)
    first[now[same]] = was[same]
    taken = inside & (np.arange(size) < rows.published)
    there = order[~taken[order]]
    key, vs, ve = rows.key[there], rows.vs[there], rows.ve[there]
    together = key[1:] == key[:-1]
    if covering:
        _check_apart(rows, there, vs, ve)
    followed = np.append(together & (vs[1:] == ve[:-1]), False)[: len(there)]
    gone = np.setdiff1d(np.flatnonzero(taken), was)
    return Answer(first[there], vs, ve, old[there], followed, gone)


def _check_apart(rows: Rows, row: Ints, start: Ints, end: Ints) -> None:
    """Refuse parts of rows of one key that meet. They come in the order of key and time."""
    meet = (rows.key[row[1:]] == rows.key[row[:-1]]) & (start[1:] < end[:-1])
    if (clash := 1 + np.flatnonzero(meet)).size:
        refuse(rows.table, rows.names, int(row[clash[0]]), int(start[clash[0]]))


@dataclass(frozen=True, slots=True)
class _Points:
    """The instants of each key at which something begins or ends, in order; what is so holds up to the next one."""

    time: Ints
    published: Ints
    """The published row that counts."""
    taken: Flags
    """Whether this lies in a region."""
    said: Ints
    """The new row that counts in a region."""


def _points(rows: Rows) -> _Points:
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
        _check_apart(rows, row[order], start[order], end[order])
    key = rows.key[np.concatenate([row for row, _, _ in layers for _ in ("start", "end")])]
    time = np.concatenate([each for _, start, end in layers for each in (start, end)])
    order = np.lexsort((time, key))
    fresh = steps([key[order], time[order]], len(order))
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(fresh) - 1
    counting, at = [], 0
    for row, _, _ in layers:
        begins, ends = place[at : at + len(row)], place[at + len(row) : at + 2 * len(row)]
        counting.append(_counting(row, begins, ends, int(np.count_nonzero(fresh))))
        at += 2 * len(row)
    return _Points(time[order[fresh]], counting[0], counting[1] != NONE, counting[2])


def _counting(row: Ints, begins: Ints, ends: Ints, size: int) -> Ints:
    """For each point the row that counts from there on, of rows that begin and end at some points and do not meet."""
    told = np.zeros(size, np.bool_)
    told[ends] = told[begins] = True
    found = np.full(size, NONE)
    found[begins] = row
    last: Ints = np.maximum.accumulate(np.where(told, np.arange(size), 0))
    return found[last]


def of_instants(rows: Rows) -> Answer:
    """What is said at instants: in the regions the new, elsewhere the published; and made one where it goes on."""
    points = _points(rows)
    stays = (points.published != NONE) & ~points.taken
    if (clash := np.flatnonzero(stays & (points.said != NONE))).size:
        refuse(rows.table, rows.names, int(points.said[clash[0]]), int(points.time[clash[0]]))
    # A published row stands wherever the new one says the same, so that what comes out the same is left as it is.
    both = np.flatnonzero(points.taken & (points.said != NONE))
    same = both[alike(rows.table, rows.payload, points.published[both], points.said[both], rows.rough)]
    says = np.where(stays, points.published, points.said)
    says[same] = points.published[same]

    there = np.flatnonzero(says != NONE)
    row = says[there]
    touching = np.zeros(len(there) + 1, np.bool_)
    # What counts at a point ends at another point of its key, and that is the next one.
    touching[1:-1] = there[1:] == there[:-1] + 1
    at = np.flatnonzero(touching)
    goes_on = touching.copy()
    goes_on[at] = _goes_on(rows, row[at - 1], row[at])
    heads = np.flatnonzero(~goes_on[:-1])
    ends = np.append(heads[1:], len(there))[: len(heads)]
    vs, ve = points.time[there[heads]], points.time[there[ends - 1] + 1]
    old = points.published[there[heads]]
    old[rows.vs[old] != vs] = NONE
    gone = np.setdiff1d(np.arange(rows.published), old)
    return Answer(row[heads], vs, ve, old, touching[ends], gone)


def _goes_on(rows: Rows, one: Ints, other: Ints) -> Flags:
    """Whether what a row says goes on in another one. Published rows were told apart, and stay so."""
    goes_on: Flags = one == other
    published = [each < rows.published for each in (one, other)]
    for which, rough in ((published[0] ^ published[1], rows.rough), (~published[0] & ~published[1], ())):
        at = np.flatnonzero(which)
        goes_on[at] = alike(rows.table, rows.payload, one[at], other[at], rough)
    return goes_on
