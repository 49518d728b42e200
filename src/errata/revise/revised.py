"""What has been revised: versions of a source's rows that have gone or come, and these gathered into few changes that
lineage can follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.masks import Overlays
from errata.archive.overlay import LIVE, MASKS, OLD_REVISION
from errata.archive.overlay import REVISION as OVERLAY_REVISION
from errata.archive.wire import old_column
from errata.evaluate.sameness import lanes
from errata.language.expr import Value
from errata.model.interval import HIGHEST, Interval
from errata.model.results import OLD_VE, OP, RUN, VE, VS, old
from errata.model.stream import Stream

REVISION, GONE = "_revision", "_gone"
"""The number of the revision, and whether the row is the version that was."""

MOST = 64
"""So many changes of one source are followed through a plan; more revisions are taken together."""

APART = 32
"""Up to so many versions are followed one by one."""

GROUPS = 16
"""Revisions of so many groups of rows are not taken together with those of others."""


@dataclass(frozen=True, slots=True)
class Revised:
    """Rows of a source as they were and as they are, where these differ."""

    source: str
    rows: pa.Table
    """The source's columns, `_vs` and `_ve`, the number of the revision, and whether it is the version that was."""
    since: int
    """Revisions up to this number were known before; of a query, its evaluations."""
    up_to: int
    came: int
    """The commit with which the first of them came."""
    group: tuple[str, ...] = ()
    """Columns by which the source's rows are found."""
    before: pa.Table | None = None
    after: pa.Table | None = None
    """Of a stream: the rows as they were known before, and as they are now, without what was so only in between."""
    came_late: bool = False
    """Whether these are no revisions, but versions of a relation that came behind what had been answered."""
    gives: Mapping[int, frozenset[str]] | None = None
    """Of revisions of which no more is known than what they say: by the numbers of replacements, the columns that they
    may change."""

    @property
    def count(self) -> int:
        """How many revisions these are."""
        return int(pc.count_distinct(self.rows[REVISION]).as_py())


@dataclass(frozen=True, slots=True)
class Cluster:
    """Versions that are followed together."""

    source: str
    interval: Interval
    until: int
    values: Mapping[str, Value]
    """Constants that columns have in all of them."""
    first: int
    last: int
    """The first of their revisions and the last."""
    count: int


def of_overlays(stream: Stream, rows: pa.Table, since: int, up_to: int, came: int) -> Revised:
    """What applied revisions after one number and up to another have changed in a stream or relation."""
    number = rows[OVERLAY_REVISION]
    rows = rows.filter(pc.and_(pc.greater(number, since), pc.less_equal(number, up_to)))
    names = stream.names
    was = (
        rows.filter(rows[MASKS]).select([*map(old_column, names), OVERLAY_REVISION]).rename_columns([*names, REVISION])
    )
    now = rows.filter(rows[LIVE]).select([*names, OVERLAY_REVISION]).rename_columns([*names, REVISION])
    both = pa.concat_tables([_versions(was, stream, gone=True), _versions(now, stream, gone=False)])
    first, last = _net(stream, rows, since)
    return Revised(stream.name, both, since, up_to, came, tuple(stream.group), first, last)


def _net(stream: Stream, rows: pa.Table, since: int) -> tuple[pa.Table, pa.Table]:
    """The rows that all revisions together take away, and those that they bring."""
    names = stream.names
    known = pc.fill_null(pc.less_equal(rows[OLD_REVISION], since), True)
    first = rows.filter(pc.and_(rows[MASKS], known)).select(list(map(old_column, names))).rename_columns(names)
    return first, Overlays(stream, rows).surviving().select(names)


def of_arrivals(stream: Stream, rows: pa.Table, known: int, came: int) -> Revised:
    """Rows that have come behind what was answered, though they are no revisions: versions of relations."""
    rows = rows.select(stream.names).append_column(REVISION, pa.repeat(pa.scalar(known, pa.int64()), rows.num_rows))
    return Revised(
        stream.name, _versions(rows, stream, gone=False), known, known, came, tuple(stream.group), came_late=True
    )


def of_records(query: str, records: pa.Table, kept: Mapping[str, str], payload: Sequence[str], came: int) -> Revised:
    """What change records of a query say that has come and gone. `kept`: the name by which each field is kept."""
    there = pc.not_equal(records[OP], "delete")
    was_there = pc.not_equal(records[OP], "insert")
    names = list(kept)
    now = records.filter(there)
    now = pa.table([*(now[kept[name]] for name in names), now[VS], now[VE], now[RUN]], [*names, VS, VE, REVISION])
    before = records.filter(was_there)
    olds = [before[old(kept[name]) if kept[name] in payload else kept[name]] for name in names]
    was = pa.table([*olds, before[VS], before[OLD_VE], before[RUN]], [*names, VS, VE, REVISION])
    both = pa.concat_tables([_flagged(was, gone=True), _flagged(now, gone=False)])
    ends = pc.min_max(records[RUN])
    return Revised(query, both, ends["min"].as_py() - 1, ends["max"].as_py(), came)


def _versions(rows: pa.Table, stream: Stream, *, gone: bool) -> pa.Table:
    begins = rows[stream.order].cast(pa.int64())
    rows = rows.append_column(VS, begins)
    rows = rows.append_column(VE, pa.repeat(pa.scalar(HIGHEST, pa.int64()), rows.num_rows))
    return _flagged(rows, gone=gone)


def _flagged(rows: pa.Table, *, gone: bool) -> pa.Table:
    return rows.append_column(GONE, pa.repeat(pa.scalar(gone), rows.num_rows))


def clusters(revised: Revised, most: int = MOST) -> list[Cluster]:
    """The versions gathered into at most about so many changes: by group, and then where there are the widest gaps
    between them."""
    rows = revised.rows
    if rows.num_rows <= APART:
        return [_cluster(revised, rows.slice(place, 1)) for place in range(rows.num_rows)]
    parts = list(_groups(revised))
    room = max(1, most // len(parts))
    return [_cluster(revised, piece) for part in parts for piece in _pieces(part, room)]


def _groups(revised: Revised) -> Iterator[pa.Table]:
    """The rows by the group that they are of, unless there are many groups."""
    rows = revised.rows
    names = [name for name in revised.group if name in rows.column_names]
    if not names:
        yield rows
        return
    codes = np.zeros(rows.num_rows, np.int64)
    for lane in lanes(rows, names):
        _, places = np.unique(lane, return_inverse=True)
        codes = codes * (int(places.max()) + 1) + places
        _, codes = np.unique(codes, return_inverse=True)
    if codes.max() >= GROUPS:
        yield rows
        return
    for code in range(int(codes.max()) + 1):
        yield rows.filter(pa.array(codes == code))


def _pieces(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """The rows by time, cut at the widest gaps."""
    rows = rows.take(pc.sort_indices(rows[VS]))
    gaps = np.diff(rows[VS].to_numpy())
    widest = np.sort(np.argsort(gaps)[::-1][: most - 1])
    cuts = [0, *(int(each) + 1 for each in widest if gaps[each] > 0), rows.num_rows]
    for low, high in pairwise(cuts):
        yield rows.slice(low, high - low)


def _cluster(revised: Revised, rows: pa.Table) -> Cluster:
    begins, numbers = pc.min_max(rows[VS]), pc.min_max(rows[REVISION])
    return Cluster(
        revised.source,
        Interval(begins["min"].as_py(), begins["max"].as_py() + 1),
        pc.max(rows[VE]).as_py(),
        dict(_constants(rows)),
        numbers["min"].as_py(),
        numbers["max"].as_py(),
        int(pc.count_distinct(rows[REVISION]).as_py()),
    )


def _constants(rows: pa.Table) -> Iterator[tuple[str, Value]]:
    """Columns that say the same in all rows."""
    for name in rows.column_names:
        if name in (VS, VE, REVISION, GONE) or pa.types.is_floating(rows[name].type):
            continue
        column = rows[name]
        if column.null_count == rows.num_rows:
            yield name, None
        elif not column.null_count and pc.count_distinct(column).as_py() == 1:
            value = column.cast(pa.int64())[0] if pa.types.is_timestamp(column.type) else column[0]
            yield name, value.as_py()
