"""What overlays do to rows, for those who hold both in memory: tasks that compact, and writers that compare.

The same as the joins in scan.py, on Arrow tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from errata.archive.bucket_writer import POS, BucketWriter, groups_in, order_values
from errata.archive.schemas import BATCH, LIVE, MASKS, OLD_REVISION, REVISION, conform, overlay_schema, unpack_table
from errata.archive.tables import match_rows
from errata.catalog import buckets
from errata.catalog.database import Catalog
from errata.declare.warehouse import Warehouse
from errata.model.bucket import Bounds, Bucket, NewBucket, Role
from errata.model.results import old_column
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

BUCKET = "_bucket"
"""Added to a row of an overlay that is at work: the bucket that it lies in."""


@dataclass(frozen=True, slots=True)
class BucketSource:
    """Where a bucket's rows are: its file, or its data. It crosses to Spark's workers."""

    bucket: Bucket
    data: bytes | None

    def read(self, warehouse: Warehouse, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, as they were written."""
        if self.data is not None:
            table = unpack_table(self.data)
            return table if columns is None else table.select([name for name in columns if name in table.column_names])
        content = pa.BufferReader(warehouse.read(self.bucket.path or ""))
        return pq.read_table(content, columns=None if columns is None else list(columns), use_threads=False)

    def read_where(self, warehouse: Warehouse, only: pc.Expression) -> pa.Table:
        """The rows for which something is true. Of a file only those row groups are read that can have such."""
        if self.data is not None:
            return unpack_table(self.data).filter(only)
        with warehouse.opened(self.bucket.path or "") as file:
            return pq.read_table(file, filters=only, use_threads=False)

    def read_between(self, warehouse: Warehouse, columns: Sequence[str], order: str, low: int, high: int) -> pa.Table:
        """The rows whose order field may lie from `low` to `high`, both included. Of a file only those row groups are
        read that can have such."""
        if self.data is not None:
            return self.read(warehouse, columns)
        with warehouse.opened(self.bucket.path or "") as file:
            parquet = pq.ParquetFile(file)
            place = parquet.schema_arrow.get_field_index(order)
            wanted = [
                number
                for number in range(parquet.num_row_groups)
                if _may_overlap(parquet.metadata.row_group(number).column(place).statistics, low, high)
            ]
            present = [name for name in columns if name in parquet.schema_arrow.names]
            return parquet.read_row_groups(wanted, columns=present, use_threads=False)


def _may_overlap(statistics: pq.Statistics | None, low: int, high: int) -> bool:
    """Whether a row group can have values from low to high; times are told in microseconds."""
    if statistics is None or not statistics.has_min_max:
        return True
    least, greatest = (pa.scalar(each).cast(pa.int64()).as_py() for each in (statistics.min, statistics.max))
    return bool(least <= high and greatest >= low)


def bucket_sources(catalog: Catalog, found: Iterable[Bucket]) -> list[BucketSource]:
    """The same for many: one look into the catalog for all that is inline."""
    wanted = list(found)
    data = buckets.inline_data(catalog, [bucket.bucket_id for bucket in wanted if bucket.inline])
    return [BucketSource(bucket, data.get(bucket.bucket_id)) for bucket in wanted]


def read_overlays(
    stream: Stream, warehouse: Warehouse, found: Iterable[BucketSource], columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of overlays, with the bucket that each lies in; only some of their columns, if told."""
    whole = overlay_schema(stream)
    schema = whole if columns is None else pa.schema([field for field in whole if field.name in set(columns)])
    tables = [schema.append(pa.field(BUCKET, pa.int64())).empty_table()]
    for source in found:
        rows = conform(source.read(warehouse, columns), schema)
        tables.append(rows.append_column(BUCKET, pa.repeat(pa.scalar(source.bucket.bucket_id), rows.num_rows)))
    return pa.concat_tables(tables)


class Overlays:
    """Overlays in memory, read with the revisions up to a number."""

    def __init__(self, stream: Stream, rows: pa.Table, up_to: int = HIGHEST) -> None:
        self._stream = stream
        self._rows = rows.filter(pc.less_equal(rows[REVISION], up_to)) if up_to < HIGHEST else rows
        masks = self._rows.filter(self._rows[MASKS])
        columns = {name: masks[old_column(name)] for name in self._places}
        self._masks = pa.table(columns)
        self._numbers = masks[REVISION].to_numpy()

    def up_to(self, number: int) -> Overlays:
        """Only what revisions up to a number say."""
        return Overlays(self._stream, self._rows, number)

    def from_place(self, start: int) -> Overlays:
        """Only what they say of places from `start` on."""
        order = self._stream.order
        ends = [pc.fill_null(self._rows[name].cast(pa.int64()), LOWEST) for name in (order, old_column(order))]
        reach = np.maximum(*(each.to_numpy() for each in ends))
        return Overlays(self._stream, self._rows.filter(pa.array(reach >= start)))

    @property
    def _places(self) -> list[str]:
        return list(dict.fromkeys([*self._stream.key, self._stream.order]))

    def masked(self, rows: pa.Table, above: int | np.ndarray) -> np.ndarray:
        """Which of the rows a revision masks whose number is above theirs: a floor, or one for each row."""
        result = np.zeros(rows.num_rows, dtype=bool)
        if self._masks.num_rows and rows.num_rows:
            left, right = match_rows(rows.select(self._places), self._masks, self._places)
            floors = above if isinstance(above, int) else above[left]
            result[left[self._numbers[right] > floors]] = True
        return result

    def unmasked(self, rows: pa.Table) -> np.ndarray:
        """Which rows of overlays bring something that no later one masks."""
        live = np.flatnonzero(rows[LIVE].to_numpy())
        some = rows.take(pa.array(live))
        result = np.zeros(rows.num_rows, dtype=bool)
        result[live] = ~self.masked(some, some[REVISION].to_numpy())
        return result

    def live_rows(self, aged_to: int | None = None) -> pa.Table:
        """The rows of the overlays, as they are kept, that no later one masks and that have not been aged out."""
        live = self._rows.filter(self._rows[LIVE])
        if aged_to is not None and live.num_rows:
            live = live.filter(pa.array(order_values(live[self._stream.order]) >= aged_to))
        return live.filter(pa.array(~self.masked(live, live[REVISION].to_numpy())))


# Overlays being written: corrections cut into buckets by the places that they mask or bring, and described.

_PLACE_COLUMN = "_place"


def write_overlays(writer: BucketWriter, rows: pa.Table) -> list[NewBucket]:
    """Overlays of these rows, as few as hold them, each of at most a bucket's rows."""
    stream = writer.stream
    place = pc.coalesce(rows[old_column(stream.order)], rows[stream.order])
    keys = pa.table({_PLACE_COLUMN: place, REVISION: rows[REVISION]})
    ordered = rows.take(pc.sort_indices(keys, sort_keys=[(_PLACE_COLUMN, "ascending"), (REVISION, "ascending")]))
    pieces = -(-ordered.num_rows // stream.bucket_rows)
    cuts = np.linspace(0, ordered.num_rows, pieces + 1).astype(int).tolist()
    # A row may be corrected more than once by corrections that are applied together.
    over = Overlays(stream, ordered)
    stands = over.unmasked(ordered)
    return [
        replace(
            _write_overlay(writer, ordered.slice(low, high - low)), masked=_superseded_count(ordered, stands, low, high)
        )
        for low, high in pairwise(cuts)
    ]


def _superseded_count(rows: pa.Table, stands: np.ndarray, low: int, high: int) -> int:
    live = rows[LIVE].to_numpy()[low:high]
    return int((live & ~stands[low:high]).sum())


def _write_overlay(writer: BucketWriter, rows: pa.Table) -> NewBucket:
    stream = writer.stream
    masked, brought = rows.filter(rows[MASKS]), rows.filter(rows[LIVE])
    masks, content = _place_range(masked[old_column(stream.order)]), _place_range(brought[stream.order])
    both = [ends for ends in (masks, content) if ends is not None]
    low, high = min((low for low, _ in both), default=LOWEST), max((high for _, high in both), default=HIGHEST)
    # A reader of a group has to see what is taken from it as well as what is brought to it.
    taken_from = masked.select(list(map(old_column, stream.group))).rename_columns(list(stream.group))
    groups = groups_in(pa.concat_tables([taken_from, brought.select(list(stream.group))]), stream.group)
    written = writer.store(rows, Role.OVERLAY, low, high, groups)
    numbers = pc.min_max(rows[REVISION])
    return replace(written, revisions=(numbers["min"].as_py(), numbers["max"].as_py()), masks=masks, content=content)


def _place_range(column: pa.ChunkedArray) -> Bounds | None:
    if not len(column):
        return None
    ends = pc.min_max(column.cast(pa.int64()))
    return ends["min"].as_py(), ends["max"].as_py()


# Versions of rows, chained: which rows of overlays tell of one and the same row, whatever its key was at the time.
#
# A version that supersedes another names it. A row that an undo brings back supersedes nothing that is live; it names
# the version that had ended the row, in the place where a correction from a file would name its line.

NO_VERSION = -1


def chain_heads(rows: pa.Table, undoing: Collection[int]) -> np.ndarray:
    """For each row of overlays, sorted by revision, the index of the first one that tells of the same row.

    `undoing` are the batches that undid others.
    """
    numbers = rows[REVISION].to_numpy()
    brought_back = pc.and_(
        pc.invert(rows[MASKS]), pc.is_in(rows[BATCH], value_set=pa.array(sorted(undoing), pa.int64()))
    )
    before = pc.if_else(brought_back, rows[POS], rows[OLD_REVISION]).fill_null(NO_VERSION).to_numpy()
    if not len(numbers):
        return np.zeros(0, dtype=np.int64)
    at = np.minimum(np.searchsorted(numbers, before), len(numbers) - 1)
    # Of a version that is not among the rows, the first that names it tells; others may when an undo brings a row back.
    _, first, same = np.unique(before, return_index=True, return_inverse=True)
    named = np.where(before == NO_VERSION, np.arange(len(numbers)), first[same])
    parent = np.where(numbers[at] == before, at, named)
    while True:
        further = parent[parent]
        if np.array_equal(further, parent):
            return further
        parent = further


def undone_batches(batches: np.ndarray, undoes: Mapping[int, int], own: int) -> np.ndarray:
    """For each version's batch the batch that it undid, if it did; `own` counts for what it is, and nothing else."""
    distinct, at = np.unique(batches, return_inverse=True)
    told = [NO_VERSION if batch == own else undoes.get(batch, NO_VERSION) for batch in distinct.tolist()]
    of_each: np.ndarray = np.array(told, dtype=np.int64)[at]
    return of_each


def effective_versions(
    row: np.ndarray, batch: np.ndarray, undone: np.ndarray, content: np.ndarray, own: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row of which batch `own` has made something that still counts: its number, the last run of its versions
    that counts, and the one before that (or NONE).

    A run is what one batch made of a row in a go, told by the index of its last version. What was undone, and what
    undid it, does not count: so batches can be undone one after the other. What came to nothing does not count, either:
    a run after which the row says what it said before. Versions come row by row, oldest first; `content` is a number
    for what each says, equal for equal values, and NONE where the row is not there.
    """
    last = np.flatnonzero(_is_run_end(row, batch))
    while True:
        of, by, takes, says = row[last], batch[last], undone[last], content[last]
        follows = np.append(False, of[1:] == of[:-1]) if len(of) else np.zeros(0, dtype=bool)
        takes_back = follows & (takes == np.roll(by, 1))
        event = np.flatnonzero(takes_back | (says == np.where(follows, np.roll(says, 1), NO_VERSION)))
        if not len(event):
            break
        # Of each row the first, and then again: what stands behind may undo what is left, or go on with it.
        event = event[np.unique(of[event], return_index=True)[1]]
        kept = np.ones(len(last), dtype=bool)
        kept[event] = False
        kept[event[takes_back[event]] - 1] = False
        last = last[kept]
        last = last[_is_run_end(row[last], batch[last])]
    ends = np.flatnonzero(_is_run_end(of, of) & np.isin(of, of[by == own]))
    before = np.where((ends > 0) & (of[ends - 1] == of[ends]), last[ends - 1], NO_VERSION)
    return of[ends], last[ends], before


def _is_run_end(row: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Which is the last of a run."""
    if not len(row):
        return np.zeros(0, dtype=bool)
    return np.append((row[1:] != row[:-1]) | (batch[1:] != batch[:-1]), True)
