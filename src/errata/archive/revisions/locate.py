"""Finds the base rows of given keys, reading as little as may hold them.

The index names the buckets: by place, for keys whose place is known, and by groups. In a bucket, statistics of the
order field choose the row groups for keys whose place is known, Bloom filters those for the others. Of these row groups
the order field or the key is read first, and the other columns only if a row was found.

This process reads a few row groups sooner than a Spark job would start; larger searches are Spark's, one bucket a task.
The same function looks into a bucket in both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from upath import UPath

from errata.archive.bloom import MAX_FILTER_VALUES, TYPICAL_FALSE_POSITIVE_RATE, SeekableReader, key_hashes, may_contain
from errata.archive.bucket_files import POS, row_group_rows
from errata.archive.bucket_frames import run_spark_tasks
from errata.archive.bucket_writer import order_values
from errata.archive.schemas import conform, unpack_table
from errata.archive.tables import is_in_sorted, match_rows
from errata.catalog import buckets as index
from errata.catalog.database import Catalog
from errata.declare.warehouse import Warehouse
from errata.intake.convert import canonical_text
from errata.intake.types import arrow_schema
from errata.model.bucket import Bucket
from errata.model.stream import Stream
from errata.model.time import HIGHEST, LOWEST

BATCH, REVISION, BUCKET, FLOOR = "_batch", "_revision", "_bucket", "_floor"

UNKNOWN_PLACE = LOWEST
"""The place of a key whose place is not known; no row is ever there."""

_PLACE = "_place"

DICTIONARY_DIVISOR = 8
"""Text columns whose dictionary takes less than this part of their bytes are read as dictionaries."""

ReadColumns = Callable[[Sequence[str]], pa.Table]
"""Reads the named columns of always the same rows."""


@dataclass(frozen=True, slots=True)
class WantedKeys:
    """The keys to find."""

    keys: pa.Table
    """The key columns, in their declared types, without NULL."""
    places: np.ndarray | None = None
    """The order field of each key's row, or UNKNOWN_PLACE; None if the key tells it, or no place is known."""

    def with_places(self, stream: Stream) -> WantedKeys:
        """The same with all places filled in, from the key if it has the order field."""
        if stream.key_has_order:
            return WantedKeys(self.keys, order_values(self.keys[stream.order]))
        if self.places is None:
            return WantedKeys(self.keys, np.full(self.keys.num_rows, UNKNOWN_PLACE, dtype=np.int64))
        return self

    @property
    def all_places(self) -> np.ndarray:
        if self.places is None:
            raise ValueError("places are filled in before they are asked for")
        return self.places


@dataclass(frozen=True, slots=True)
class BucketLookup:
    """The wanted keys, by index, that a bucket may hold."""

    bucket: Bucket
    known: np.ndarray
    """Those whose place is known, sorted by place."""
    unknown: np.ndarray


def located_schema(stream: Stream) -> pa.Schema:
    """Found rows: with their origin, the revision that made them, and their bucket with its floor."""
    return pa.schema([*arrow_schema(stream), *((name, pa.int64()) for name in (POS, BATCH, REVISION, BUCKET, FLOOR))])


@dataclass(frozen=True, slots=True)
class _RowGroupLookup:
    """The wanted keys that some rows, a row group or all of a bucket, may hold."""

    known: np.ndarray
    """Keys of known place by index, sorted by place."""
    unknown: pa.Table
    """The keys of unknown place themselves."""

    def __bool__(self) -> bool:
        return bool(len(self.known) or self.unknown.num_rows)


@dataclass(frozen=True, slots=True)
class BucketProbe:
    """Finds wanted keys, whose places are filled in, in one bucket at a time."""

    stream: Stream
    wanted: WantedKeys

    def find_in_rows(self, sought: BucketLookup, rows: pa.Table) -> pa.Table:
        """The wanted rows among rows in memory."""
        found = self._found(lambda names: rows.select(list(names)), rows.column_names, self._whole_part(sought))
        return self._told(sought.bucket, [found])

    def find_in_file(self, sought: BucketLookup, path: str) -> pa.Table:
        """The wanted rows in a file."""
        whole = self._whole_part(sought)
        hashed = key_hashes(whole.unknown) if 0 < whole.unknown.num_rows <= MAX_FILTER_VALUES else {}
        tables = []
        with UPath(path).open("rb") as file:
            metadata = pq.read_metadata(file)
            with pq.ParquetFile(file, metadata=metadata, read_dictionary=_dictionary_columns(metadata)) as parquet:
                for number in range(metadata.num_row_groups):
                    part = self._part(file, metadata.row_group(number), whole, hashed)
                    if part:
                        read = partial(_read_group, parquet, number)
                        tables.append(self._found(read, parquet.schema_arrow.names, part))
        return self._told(sought.bucket, tables)

    def _whole_part(self, sought: BucketLookup) -> _RowGroupLookup:
        return _RowGroupLookup(sought.known, self.wanted.keys.take(pa.array(sought.unknown)))

    def _part(
        self, file: SeekableReader, group: pq.RowGroupMetaData, whole: _RowGroupLookup, hashed: Mapping[str, np.ndarray]
    ) -> _RowGroupLookup:
        known, unknown = whole.known, whole.unknown
        if len(known):
            low, high = _statistics_range(group, self.stream.order)
            places = self.wanted.all_places[known]
            known = known[np.searchsorted(places, low) : np.searchsorted(places, high, side="right")]
        if unknown.num_rows:
            held = _is_in_statistics(group, unknown)
            if hashed and held.any():
                maybe = may_contain(file, group, hashed)
                held = held if maybe is None else held & maybe
            unknown = unknown if held.all() else unknown.filter(pa.array(held))
        return _RowGroupLookup(known, unknown)

    def _found(self, read: ReadColumns, stored: Sequence[str], part: _RowGroupLookup) -> pa.Table:
        """The wanted rows of a row group or table, with all their stored columns."""
        stream = self.stream
        schema = located_schema(stream)
        others = [name for name in stream.key if name != stream.order]
        seen = read([stream.order]) if len(part.known) or stream.key_has_order else pa.table({})
        rows, order = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        if len(part.known):
            order = order_values(seen[stream.order])
            rows = _rows_at_places(order, self.wanted.all_places[part.known])
        if part.unknown.num_rows or (len(rows) and others):
            seen = _join_columns(seen, read(others))
        if len(rows) and others:
            rows = rows[self._agreeing(seen.take(pa.array(rows)), order[rows], part.known)]
        if part.unknown.num_rows:
            rows = np.union1d(rows, match_rows(seen, part.unknown, stream.key)[0])
        if not len(rows):
            return schema.empty_table()
        chosen = pa.array(np.unique(rows))
        rest = [name for name in stored if name in schema.names and name not in seen.column_names]
        return _join_columns(seen.take(chosen), read(rest).take(chosen))

    def _agreeing(self, here: pa.Table, order: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Which of the rows at wanted places have the key that is wanted there."""
        others = [name for name in self.stream.key if name != self.stream.order]
        sought = self.wanted.keys.take(pa.array(known)).append_column(_PLACE, pa.array(self.wanted.all_places[known]))
        return match_rows(here.append_column(_PLACE, pa.array(order)), sought, [_PLACE, *others])[0]

    def _told(self, bucket: Bucket, tables: Sequence[pa.Table]) -> pa.Table:
        schema = located_schema(self.stream)
        found = [self._whole(bucket, table) for table in tables if table.num_rows]
        return pa.concat_tables([schema.empty_table(), *found])

    def _whole(self, bucket: Bucket, rows: pa.Table) -> pa.Table:
        count = rows.num_rows
        added: dict[str, int | None] = {BUCKET: bucket.bucket_id, FLOOR: bucket.floor}
        if BATCH not in rows.column_names:
            added |= {BATCH: bucket.batch_no}
        for name, value in added.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), count))
        return conform(rows, located_schema(self.stream))


def _rows_at_places(order: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The rows at one of the sorted places. If the rows are sorted, too, as in most buckets, this is a binary
    search."""
    if not len(places):
        return np.zeros(0, dtype=np.int64)
    if np.all(order[1:] >= order[:-1]):
        moments = np.unique(places)
        first, last = np.searchsorted(order, moments, side="left"), np.searchsorted(order, moments, side="right")
        counts = last - first
        before = np.cumsum(counts) - counts
        rows: np.ndarray = np.arange(counts.sum()) + np.repeat(first - before, counts)
        return rows
    return np.flatnonzero(is_in_sorted(order, places))


def _join_columns(left: pa.Table, right: pa.Table) -> pa.Table:
    return pa.table([*left.columns, *right.columns], names=[*left.column_names, *right.column_names])


def _statistics_range(group: pq.RowGroupMetaData, name: str) -> tuple[int, int]:
    """The range of a column of integers, times or dates in a row group by its statistics; everything if it has none."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == name:
            statistics = column.statistics
            told = statistics is not None and statistics.has_min_max
            return (int(statistics.min_raw), int(statistics.max_raw)) if told else (LOWEST, HIGHEST)
    return LOWEST, HIGHEST


def _is_in_statistics(group: pq.RowGroupMetaData, keys: pa.Table) -> np.ndarray:
    """Which of the keys lie in the row group's ranges of integer and time columns. Such keys are often assigned in
    order, so that few row groups remain."""
    held = np.ones(keys.num_rows, dtype=bool)
    for field in keys.schema:
        if pa.types.is_integer(field.type) or pa.types.is_temporal(field.type):
            low, high = _statistics_range(group, field.name)
            column = keys[field.name]
            values = order_values(column.cast(pa.int32()) if pa.types.is_date(field.type) else column)
            held &= (values >= low) & (values <= high)
    return held


def _dictionary_columns(metadata: pq.FileMetaData) -> list[str]:
    """The text columns with few distinct values, judged by the first row group."""
    if not metadata.num_row_groups:
        return []
    group = metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return [
        column.path_in_schema
        for column in columns
        if column.physical_type == "BYTE_ARRAY"
        and column.dictionary_page_offset is not None
        and (column.data_page_offset - column.dictionary_page_offset) * DICTIONARY_DIVISOR
        < column.total_compressed_size
    ]


def _read_group(parquet: pq.ParquetFile, number: int, names: Sequence[str]) -> pa.Table:
    return parquet.read_row_group(number, columns=list(names), use_threads=False)


# Which buckets may hold the keys, and where they are read.

MAX_LOCAL_BYTES = 256 * 1024 * 1024
MAX_LOCAL_ROWS = 20_000_000
"""Bytes and rows that may have to be read, above which Spark reads them."""

MAX_PRUNED_GROUPS = 4_096
"""Groups of the wanted keys above which buckets are not ruled out by groups: nearly all would have one of them."""

OPEN_COST_BYTES = 256 * 1024
"""Bytes that could be read in the time in which a file is opened."""

FILTER_BYTES_PER_ROW = 2
"""Bytes of Bloom filters for each row and key column, about."""

TASKS_PER_CORE = 4
"""Tasks of a job for each core, so that large buckets are spread evenly."""

_THREADS = min(4, os.cpu_count() or 1)


def locate_rows(
    session_factory: Callable[[], SparkSession],
    catalog: Catalog,
    warehouse: Warehouse,
    stream: Stream,
    wanted: WantedKeys,
    buckets: Sequence[Bucket],
) -> pa.Table:
    """All rows of the buckets with one of the wanted keys, at its place if that is known, in no particular order and
    with the columns of `located_schema`. Rows that overlays mask are included."""
    sought = plan_lookups(stream, wanted, buckets)
    inline = [each for each in sought if each.bucket.inline]
    files = [(warehouse.path(each.bucket.path), each) for each in sought if each.bucket.path is not None]
    probe = BucketProbe(stream, wanted.with_places(stream))
    data = index.inline_data(catalog, [each.bucket.bucket_id for each in inline])
    found = [probe.find_in_rows(each, unpack_table(data[each.bucket.bucket_id])) for each in inline]
    if not files:
        return pa.concat_tables([located_schema(stream).empty_table(), *found])
    if is_local_lookup(each for _, each in files):
        return pa.concat_tables([*found, *probe_locally(probe, files)])
    return pa.concat_tables([*found, probe_by_spark(session_factory(), probe, files)])


def plan_lookups(stream: Stream, wanted: WantedKeys, buckets: Sequence[Bucket]) -> list[BucketLookup]:
    """The wanted keys that each bucket may hold; buckets that can hold none are left out."""
    places = wanted.with_places(stream).all_places
    by_place = np.argsort(places, kind="stable")
    ordered = places[by_place]
    unknown = by_place[: np.searchsorted(ordered, UNKNOWN_PLACE, side="right")]
    first = np.searchsorted(ordered, [bucket.vs_min for bucket in buckets], side="left")
    last = np.searchsorted(ordered, [bucket.vs_max for bucket in buckets], side="right")
    groups = _KeyGroups.of(stream, wanted)
    sought = []
    for bucket, start, end in zip(buckets, first.tolist(), last.tolist(), strict=True):
        known = by_place[max(start, len(unknown)) : end]
        each = BucketLookup(bucket, groups.within(bucket, known), groups.within(bucket, unknown))
        if len(each.known) or len(each.unknown):
            sought.append(each)
    return sought


def is_local_lookup(sought: Iterable[BucketLookup]) -> bool:
    """Whether so little may have to be read that this process reads it."""
    read, rows = 0, 0
    for each in sought:
        share = _read_share(each)
        rows += int(each.bucket.rows * share)
        read += OPEN_COST_BYTES + int(each.bucket.size * share)
        if len(each.unknown):
            read += FILTER_BYTES_PER_ROW * each.bucket.rows
    return read <= MAX_LOCAL_BYTES and rows <= MAX_LOCAL_ROWS


def _read_share(sought: BucketLookup) -> float:
    """About how much of a bucket is read: a row group for each key whose place is known, and for each other what its
    filter lets through."""
    if len(sought.unknown) > MAX_FILTER_VALUES:
        return 1.0
    groups = -(-sought.bucket.rows // row_group_rows(sought.bucket.rows))
    return min(1.0, len(sought.known) / groups + len(sought.unknown) * TYPICAL_FALSE_POSITIVE_RATE)


def probe_locally(probe: BucketProbe, files: Sequence[tuple[str, BucketLookup]]) -> list[pa.Table]:
    """The wanted rows in files, read by a few threads of this process."""
    if len(files) == 1:
        return [probe.find_in_file(sought, path) for path, sought in files]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda each: probe.find_in_file(each[1], each[0]), files))


def probe_by_spark(session: SparkSession, probe: BucketProbe, files: Sequence[tuple[str, BucketLookup]]) -> pa.Table:
    """The wanted rows in files, read by Spark's tasks."""

    def look(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for path, sought in (files[number] for number in numbers):
            yield from probe.find_in_file(sought, path).to_batches()

    cores = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    return run_spark_tasks(
        session, len(files), min(len(files), TASKS_PER_CORE * cores), look, located_schema(probe.stream)
    )


@dataclass(frozen=True, slots=True)
class _KeyGroups:
    """The groups of the wanted keys, if the key has all group columns."""

    members: Sequence[tuple[str | None, ...]] = ()
    number: np.ndarray | None = None
    """The index of each key's group; None if buckets are not ruled out by groups."""

    @classmethod
    def of(cls, stream: Stream, wanted: WantedKeys) -> _KeyGroups:
        if not stream.group or not set(stream.group) <= set(stream.key):
            return cls()
        texts = pa.table({name: canonical_text(wanted.keys[name]) for name in stream.group})
        members = texts.group_by(texts.column_names).aggregate([])
        if members.num_rows > MAX_PRUNED_GROUPS:
            return cls()
        listed = [members[name].to_pylist() for name in stream.group]
        return cls(list(zip(*listed, strict=True)), match_rows(texts, members, stream.group)[1])

    def within(self, bucket: Bucket, keys: np.ndarray) -> np.ndarray:
        """The keys whose group the bucket may hold."""
        if self.number is None or not 0 < len(keys) <= MAX_FILTER_VALUES:
            return keys
        numbers = self.number[keys]
        there = np.unique(numbers)
        held = np.array([bucket.groups.may_hold(self.members[number]) for number in there.tolist()])
        return keys if held.all() else keys[np.isin(numbers, there[held])]
