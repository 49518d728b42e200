"""Overlays as Arrow tables: which rows they mask, which rows they add, and how they are written.

`archive.scan` does the same with joins in an engine; this is for tasks and commits that hold both sides in memory. A
row is masked by a mask with its key, its place (the order field) and a greater revision number: the bucket's floor for
rows of base buckets, the row's own revision for rows that an overlay added. The last section follows the chain of
versions that overlays know of a row, across changes of its key, and finds what a batch made of it that still counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import BucketWriter, cut_evenly, groups_in, order_values, value_range
from errata.archive.schemas import BATCH, LIVE, MASKS, OLD_REVISION, REVISION, conform, overlay_schema, unpack_table
from errata.archive.tables import masked_rows
from errata.catalog import buckets
from errata.catalog.database import Catalog
from errata.declare.warehouse import Warehouse
from errata.model.bucket import Bucket, NewBucket, Role
from errata.model.results import old_column
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

BUCKET = "_bucket"
"""The column with the id of the bucket that a row of an overlay is stored in."""


@dataclass(frozen=True, slots=True)
class BucketSource:
    """A bucket and, if it is inline, its data; what a task needs to read it. It travels to Spark's workers."""

    bucket: Bucket
    data: bytes | None

    def read(self, warehouse: Warehouse, columns: Sequence[str] | None = None) -> pa.Table:
        """All stored rows; some columns only, if given."""
        if self.data is not None:
            table = unpack_table(self.data)
            return table if columns is None else table.select([name for name in columns if name in table.column_names])
        content = pa.BufferReader(warehouse.read(self.bucket.path or ""))
        return pq.read_table(content, columns=None if columns is None else list(columns), use_threads=False)

    def read_where(self, warehouse: Warehouse, only: pc.Expression) -> pa.Table:
        """The rows for which the expression is true. Row groups of a file that can have none are not read."""
        if self.data is not None:
            return unpack_table(self.data).filter(only)
        with warehouse.opened(self.bucket.path or "") as file:
            return pq.read_table(file, filters=only, use_threads=False)

    def read_between(self, warehouse: Warehouse, columns: Sequence[str], order: str, low: int, high: int) -> pa.Table:
        """At least the rows whose order field lies from `low` to `high`, both included: row groups of a file that can
        have none are not read."""
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

    def read_sample(self, warehouse: Warehouse, columns: Sequence[str], rate: float) -> pa.Table:
        """At least the rows of a sample: of a file in blocks, the first."""
        from errata.archive.blocks import wanted_row_groups  # noqa: PLC0415 - most archives have no blocks

        if self.data is not None:
            return self.read(warehouse, columns)
        with warehouse.opened(self.bucket.path or "") as file:
            parquet = pq.ParquetFile(file)
            present = [name for name in columns if name in parquet.schema_arrow.names]
            wanted = wanted_row_groups(parquet.metadata, rate)
            return parquet.read_row_groups(wanted, columns=present, use_threads=False)


def _may_overlap(statistics: pq.Statistics | None, low: int, high: int) -> bool:
    """Whether a row group can have values from low to high; times are in microseconds."""
    if statistics is None or not statistics.has_min_max:
        return True
    least, greatest = (pa.scalar(each).cast(pa.int64()).as_py() for each in (statistics.min, statistics.max))
    return bool(least <= high and greatest >= low)


def bucket_sources(catalog: Catalog, found: Iterable[Bucket]) -> list[BucketSource]:
    """The sources of some buckets. The data of all that are inline is fetched by one query of the catalog."""
    wanted = list(found)
    data = buckets.inline_data(catalog, [bucket.bucket_id for bucket in wanted if bucket.inline])
    return [BucketSource(bucket, data.get(bucket.bucket_id)) for bucket in wanted]


def read_overlays(
    stream: Stream, warehouse: Warehouse, found: Iterable[BucketSource], columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of overlays, with the bucket that each is stored in; some columns only, if given."""
    whole = overlay_schema(stream)
    schema = whole if columns is None else pa.schema([field for field in whole if field.name in set(columns)])
    tables = [schema.append(pa.field(BUCKET, pa.int64())).empty_table()]
    for source in found:
        rows = conform(source.read(warehouse, columns), schema)
        tables.append(rows.append_column(BUCKET, pa.repeat(pa.scalar(source.bucket.bucket_id), rows.num_rows)))
    return pa.concat_tables(tables)


def identity_columns(stream: Stream) -> list[str]:
    """The columns that identify a row at one revision: its key and its place."""
    return [*stream.key] if stream.key_has_order else [*stream.key, stream.order]


class Overlays:
    """Overlays in memory, with the revisions up to a number."""

    def __init__(self, stream: Stream, rows: pa.Table, up_to: int = HIGHEST) -> None:
        self._stream = stream
        self._columns = identity_columns(stream)
        self._rows = rows.filter(pc.less_equal(rows[REVISION], up_to)) if up_to < HIGHEST else rows
        masks = self._rows.filter(self._rows[MASKS])
        columns = {name: masks[old_column(name)] for name in self._columns}
        self._masks = pa.table(columns)
        self._numbers = masks[REVISION].to_numpy()

    def up_to(self, number: int) -> Overlays:
        """These overlays with the revisions up to a number only."""
        return Overlays(self._stream, self._rows, number)

    def from_place(self, start: int) -> Overlays:
        """These overlays without the revisions whose old and new places both lie before `start`."""
        order = self._stream.order
        ends = [pc.fill_null(self._rows[name].cast(pa.int64()), LOWEST) for name in (order, old_column(order))]
        reach = np.maximum(*(each.to_numpy() for each in ends))
        return Overlays(self._stream, self._rows.filter(pa.array(reach >= start)))

    def masked(self, rows: pa.Table, above: int | np.ndarray) -> np.ndarray:
        """Which of the rows are masked by a revision with a number above `above`, which is one floor or one for each
        row."""
        return masked_rows(rows, self._masks, self._columns, self._numbers, above)

    def unmasked(self, rows: pa.Table) -> np.ndarray:
        """Which of these rows of overlays add a row that no later revision masks."""
        live = np.flatnonzero(rows[LIVE].to_numpy())
        some = rows.take(pa.array(live))
        result = np.zeros(rows.num_rows, dtype=bool)
        result[live] = ~self.masked(some, some[REVISION].to_numpy())
        return result

    def live_rows(self, aged_to: int | None = None) -> pa.Table:
        """The rows that overlays add, as they are stored, without those that are masked or have been aged out."""
        live = self._rows.filter(self._rows[LIVE])
        if aged_to is not None and live.num_rows:
            live = live.filter(pa.array(order_values(live[self._stream.order]) >= aged_to))
        return live.filter(pa.array(~self.masked(live, live[REVISION].to_numpy())))


# Writing overlays: corrections sorted by place, cut into buckets, and described.

_PLACE_COLUMN = "_place"


def write_overlays(writer: BucketWriter, rows: pa.Table) -> list[NewBucket]:
    """These rows as overlays: as few buckets as hold them, each with at most the stream's bucket rows."""
    stream = writer.stream
    place = pc.coalesce(rows[old_column(stream.order)], rows[stream.order])
    keys = pa.table({_PLACE_COLUMN: place, REVISION: rows[REVISION]})
    ordered = rows.take(pc.sort_indices(keys, sort_keys=[(_PLACE_COLUMN, "ascending"), (REVISION, "ascending")]))
    # Corrections that are applied together may correct a row more than once.
    superseded = ordered[LIVE].to_numpy() & ~Overlays(stream, ordered).unmasked(ordered)
    made, start = [], 0
    for each in cut_evenly(ordered, stream.bucket_rows):
        masked = int(superseded[start : start + each.num_rows].sum())
        made.append(replace(_write_overlay(writer, each), masked=masked))
        start += each.num_rows
    return made


def _write_overlay(writer: BucketWriter, rows: pa.Table) -> NewBucket:
    stream = writer.stream
    masked, brought = rows.filter(rows[MASKS]), rows.filter(rows[LIVE])
    masks, content = value_range(masked[old_column(stream.order)]), value_range(brought[stream.order])
    both = [ends for ends in (masks, content) if ends is not None]
    low, high = min((low for low, _ in both), default=LOWEST), max((high for _, high in both), default=HIGHEST)
    # A reader of a group needs both the rows that leave it and the rows that come to it.
    taken_from = masked.select(list(map(old_column, stream.group))).rename_columns(list(stream.group))
    groups = groups_in(pa.concat_tables([taken_from, brought.select(list(stream.group))]), stream.group)
    written = writer.store(rows, Role.OVERLAY, low, high, groups)
    numbers = pc.min_max(rows[REVISION])
    return replace(written, revisions=(numbers["min"].as_py(), numbers["max"].as_py()), masks=masks, content=content)


# Chains of versions: which rows of overlays are versions of the same row, whatever its key was at the time.
#
# A version names the version that it supersedes. A row that an undo restores supersedes no live version; it names the
# version that ended the row, in the column where a correction from a file has its line.

NO_VERSION = -1


def chain_heads(rows: pa.Table, undoing: Collection[int]) -> np.ndarray:
    """For each row of overlays, sorted by revision, the index of the first version of the same row.

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
    # A version that is not among the rows is stood for by the first row that names it; an undo may name it again.
    _, first, same = np.unique(before, return_index=True, return_inverse=True)
    named = np.where(before == NO_VERSION, np.arange(len(numbers)), first[same])
    parent = np.where(numbers[at] == before, at, named)
    while True:
        further = parent[parent]
        if np.array_equal(further, parent):
            return further
        parent = further


def undone_batches(batches: np.ndarray, undoes: Mapping[int, int], own: int) -> np.ndarray:
    """For each version's batch the batch that it undid, or NO_VERSION; `own` counts as a batch that undid none."""
    distinct, at = np.unique(batches, return_inverse=True)
    told = [NO_VERSION if batch == own else undoes.get(batch, NO_VERSION) for batch in distinct.tolist()]
    of_each: np.ndarray = np.array(told, dtype=np.int64)[at]
    return of_each


def effective_versions(
    row: np.ndarray, batch: np.ndarray, undone: np.ndarray, content: np.ndarray, own: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each row with a version of batch `own` that still counts: the row's number, its last run of versions that
    counts, and the run before that (or NO_VERSION).

    A run is the consecutive versions that one batch made of a row, named by the index of the last. A run that was
    undone and the run that undid it do not count, so that batches can be undone one after the other. Nor does a run
    that leaves the row's values as they were. Versions come row by row, oldest first; `content` is a number for the
    values of each, equal for equal values, and NO_VERSION where the row is deleted.
    """
    last = np.flatnonzero(_is_run_end(row, batch))
    while True:
        of, by, takes, says = row[last], batch[last], undone[last], content[last]
        follows = np.append(False, of[1:] == of[:-1]) if len(of) else np.zeros(0, dtype=bool)
        takes_back = follows & (takes == np.roll(by, 1))
        event = np.flatnonzero(takes_back | (says == np.where(follows, np.roll(says, 1), NO_VERSION)))
        if not len(event):
            break
        # One at a time for each row: what follows may undo, or continue, what is left.
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
    """Which versions are the last of a run."""
    if not len(row):
        return np.zeros(0, dtype=bool)
    return np.append((row[1:] != row[:-1]) | (batch[1:] != batch[:-1]), True)
