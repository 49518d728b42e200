"""Row versions of a source that revisions removed or added, and clusters of them that lineage can follow.

A revision is up to two versions: the row as it was, and the row as it is. Lineage follows a cluster at a time through
a plan, which takes about 0.3 ms, so that versions near each other are followed as one, with the interval and the
constants that they share. A revision is in place where both versions agree in all columns that decide to which
results the row belongs; it then changes only values of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.answer.row_comparison import BoolArray, group_starts, sort_arrays
from errata.archive.overlays import Overlays
from errata.archive.schemas import LIVE, MASKS, OLD_REVISION
from errata.archive.schemas import REVISION as OVERLAY_REVISION
from errata.language.lineage.constants import membership_columns
from errata.language.nodes import scans_of
from errata.language.plan import Plan
from errata.model.extent import Extent, Value, rows_starting_in
from errata.model.results import EVALUATION, OLD_VE, OP, VE, VS, old_column
from errata.model.stream import Stream
from errata.model.time import HIGHEST, Interval

REVISION, OLD_VERSION = "_revision", "_gone"
"""The number of the revision, and whether the row is the former version."""

MAX_CLUSTERS = 64
"""Clusters of a source's revisions that are followed through a plan, at most."""

MAX_SINGLE_VERSIONS = 32
"""Versions up to which each is a cluster of its own."""

MAX_GROUPS = 16
"""Groups of rows up to which each has clusters of its own."""


@dataclass(frozen=True, slots=True)
class SourceRevisions:
    """Rows of a source that revisions changed, as they were and as they are."""

    source: str
    rows: pa.Table
    """The source's columns, `_vs` and `_ve`, the number of the revision, and whether it is the former version."""
    since: int
    """Revisions up to this number were read before. Of a query: evaluations."""
    up_to: int
    came: int
    """The commit with which the first of them came."""
    group: tuple[str, ...] = ()
    """Columns by which the source's rows are grouped in buckets."""
    before: pa.Table | None = None
    after: pa.Table | None = None
    """Of a stream: the rows as they were read before, and as they are now, without versions in between."""
    came_late: bool = False
    """Whether these are no revisions, but versions of a relation that came behind the frontier of results."""
    gives: Mapping[int, frozenset[str]] | None = None
    """Of pending revisions, whose former versions are not known: for the numbers of replacements, the columns that
    these may change."""

    @property
    def count(self) -> int:
        """The number of distinct revisions."""
        return int(pc.count_distinct(self.rows[REVISION]).as_py())


@dataclass(frozen=True, slots=True)
class RevisionCluster:
    """Versions that lineage follows together."""

    source: str
    rows: Extent
    """The extent that holds them, by the source's names of columns."""
    first: int
    last: int
    """The numbers of their first revision and their last."""
    count: int


def revisions_of_overlays(stream: Stream, rows: pa.Table, since: int, up_to: int, came: int) -> SourceRevisions:
    """The versions that applied revisions after number `since` and up to `up_to` removed from a stream and added."""
    number = rows[OVERLAY_REVISION]
    rows = rows.filter(pc.and_(pc.greater(number, since), pc.less_equal(number, up_to)))
    names = stream.names
    was = (
        rows.filter(rows[MASKS]).select([*map(old_column, names), OVERLAY_REVISION]).rename_columns([*names, REVISION])
    )
    now = rows.filter(rows[LIVE]).select([*names, OVERLAY_REVISION]).rename_columns([*names, REVISION])
    both = pa.concat_tables([_with_lifetimes(was, stream, gone=True), _with_lifetimes(now, stream, gone=False)])
    first, last = _net_rows(stream, rows, since)
    return SourceRevisions(stream.name, both, since, up_to, came, tuple(stream.group), first, last)


def _net_rows(stream: Stream, rows: pa.Table, since: int) -> tuple[pa.Table, pa.Table]:
    """The rows that all revisions together remove, and those that they add."""
    names = stream.names
    known = pc.fill_null(pc.less_equal(rows[OLD_REVISION], since), True)
    first = rows.filter(pc.and_(rows[MASKS], known)).select(list(map(old_column, names))).rename_columns(names)
    return first, Overlays(stream, rows).live_rows().select(names)


def revisions_of_late_rows(stream: Stream, rows: pa.Table, known: int, came: int) -> SourceRevisions:
    """Versions of a relation that came behind the frontier of results; they have no revision's number."""
    rows = rows.select(stream.names).append_column(REVISION, pa.repeat(pa.scalar(known, pa.int64()), rows.num_rows))
    return SourceRevisions(
        stream.name, _with_lifetimes(rows, stream, gone=False), known, known, came, tuple(stream.group), came_late=True
    )


def revisions_of_records(
    query: str, records: pa.Table, kept: Mapping[str, str], payload: Sequence[str], came: int
) -> SourceRevisions:
    """The versions that change records of a query removed and added. `kept`: for each field, its name in results."""
    there = pc.not_equal(records[OP], "delete")
    was_there = pc.not_equal(records[OP], "insert")
    names = list(kept)
    now = records.filter(there)
    now = pa.table(
        [*(now[kept[name]] for name in names), now[VS], now[VE], now[EVALUATION]], [*names, VS, VE, REVISION]
    )
    before = records.filter(was_there)
    olds = [before[old_column(kept[name]) if kept[name] in payload else kept[name]] for name in names]
    was = pa.table([*olds, before[VS], before[OLD_VE], before[EVALUATION]], [*names, VS, VE, REVISION])
    both = pa.concat_tables([_with_version_flag(was, gone=True), _with_version_flag(now, gone=False)])
    ends = pc.min_max(records[EVALUATION])
    return SourceRevisions(query, both, ends["min"].as_py() - 1, ends["max"].as_py(), came)


def _with_lifetimes(rows: pa.Table, stream: Stream, *, gone: bool) -> pa.Table:
    begins = rows[stream.order].cast(pa.int64())
    rows = rows.append_column(VS, begins)
    rows = rows.append_column(VE, pa.repeat(pa.scalar(HIGHEST, pa.int64()), rows.num_rows))
    return _with_version_flag(rows, gone=gone)


def _with_version_flag(rows: pa.Table, *, gone: bool) -> pa.Table:
    return rows.append_column(OLD_VERSION, pa.repeat(pa.scalar(gone), rows.num_rows))


def cluster_revisions(revised: SourceRevisions, most: int = MAX_CLUSTERS) -> list[RevisionCluster]:
    """The versions in about `most` clusters: apart by group, and cut where the gaps between them are widest."""
    rows = revised.rows
    if rows.num_rows <= MAX_SINGLE_VERSIONS:
        return [_cluster_of(revised, rows.slice(place, 1)) for place in range(rows.num_rows)]
    parts = list(_rows_by_group(revised))
    room = max(1, most // len(parts))
    return [_cluster_of(revised, piece) for part in parts for piece in _split_at_gaps(part, room)]


def _rows_by_group(revised: SourceRevisions) -> Iterator[pa.Table]:
    """The rows of each group, or all at once where there are many groups."""
    rows = revised.rows
    names = [name for name in revised.group if name in rows.column_names]
    if not names:
        yield rows
        return
    codes = np.zeros(rows.num_rows, np.int64)
    for lane in sort_arrays(rows, names):
        _, places = np.unique(lane, return_inverse=True)
        codes = codes * (int(places.max()) + 1) + places
        _, codes = np.unique(codes, return_inverse=True)
    if codes.max() >= MAX_GROUPS:
        yield rows
        return
    for code in range(int(codes.max()) + 1):
        yield rows.filter(pa.array(codes == code))


def _split_at_gaps(rows: pa.Table, most: int) -> Iterator[pa.Table]:
    """The rows in the order of time, cut at the widest gaps."""
    rows = rows.take(pc.sort_indices(rows[VS]))
    gaps = np.diff(rows[VS].to_numpy())
    widest = np.sort(np.argsort(gaps)[::-1][: most - 1])
    cuts = [0, *(int(each) + 1 for each in widest if gaps[each] > 0), rows.num_rows]
    for low, high in pairwise(cuts):
        yield rows.slice(low, high - low)


def _cluster_of(revised: SourceRevisions, rows: pa.Table) -> RevisionCluster:
    begins, numbers = pc.min_max(rows[VS]), pc.min_max(rows[REVISION])
    return RevisionCluster(
        revised.source,
        rows_starting_in(
            Interval(begins["min"].as_py(), begins["max"].as_py() + 1),
            dict(_constant_columns(rows)),
            last_end=pc.max(rows[VE]).as_py(),
        ),
        numbers["min"].as_py(),
        numbers["max"].as_py(),
        int(pc.count_distinct(rows[REVISION]).as_py()),
    )


def _constant_columns(rows: pa.Table) -> Iterator[tuple[str, Value]]:
    """Columns that have one value in all rows."""
    for name in rows.column_names:
        if name in (VS, VE, REVISION, OLD_VERSION) or pa.types.is_floating(rows[name].type):
            continue
        column = rows[name]
        if column.null_count == rows.num_rows:
            yield name, None
        elif not column.null_count and pc.count_distinct(column).as_py() == 1:
            value = column.cast(pa.int64())[0] if pa.types.is_timestamp(column.type) else column[0]
            yield name, value.as_py()


# Revisions in place.


def split_in_place(plan: Plan, revised: SourceRevisions) -> tuple[SourceRevisions | None, SourceRevisions | None]:
    """The versions of a source that are in place for a plan, and the others."""
    same = _is_in_place(plan, revised)
    if same.all():
        return revised, None
    if not same.any():
        return None, revised
    return _select_versions(revised, same), _select_versions(revised, ~same)


def _select_versions(revised: SourceRevisions, which: BoolArray) -> SourceRevisions:
    return replace(revised, rows=revised.rows.filter(pa.array(which)))


def _is_in_place(plan: Plan, revised: SourceRevisions) -> BoolArray:
    """Which versions are one of two, a former and a current one, that agree in the columns that decide membership."""
    rows = revised.rows
    if revised.came_late:
        return np.zeros(rows.num_rows, np.bool_)
    read = zip(scans_of(plan), membership_columns(plan), strict=True)
    names = {name for scan, some in read if scan.source.name == revised.source for name in some}
    if revised.gives is not None:
        # The row stays as it was in all columns that the revision does not give.
        stays = {number for number, given in revised.gives.items() if not given & names}
        return np.isin(rows[REVISION].to_numpy(), sorted(stays))
    lanes = sort_arrays(rows, [REVISION, VS, VE, *sorted(names)])
    order = np.lexsort(lanes[::-1])
    number = np.empty(rows.num_rows, np.int64)
    number[order] = np.cumsum(group_starts([lane[order] for lane in lanes], rows.num_rows)) - 1
    gone = rows[OLD_VERSION].to_numpy()
    pairs = np.bincount(number, gone) == 1
    pairs &= np.bincount(number, ~gone) == 1
    same: BoolArray = pairs[number]
    return same
