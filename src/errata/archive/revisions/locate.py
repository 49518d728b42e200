"""Looking for the rows of given keys in one bucket: as little of it is read as may hold them.

Of a row whose place is known, the statistics of the order field tell the row groups; of one whose place is not known,
Bloom filters do. Of these row groups the order field or the key is read first, and the other columns only where a row
has been found.
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
from errata.archive.bucket_frames import run_spark_tasks
from errata.archive.bucket_writer import POS, order_values, row_group_rows
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
"""The place of a row of which only the key is known; no row is ever there."""

_PLACE = "_place"

DICTIONARY_DIVISOR = 8
"""Text whose dictionary is less than this part of a column is read as a dictionary."""

ReadColumns = Callable[[Sequence[str]], pa.Table]
"""Gives columns of a stretch of rows, always the same rows."""


@dataclass(frozen=True, slots=True)
class WantedKeys:
    """The keys that are sought."""

    keys: pa.Table
    """The key columns, in their declared types, without NULL."""
    places: np.ndarray | None = None
    """The order field of each key's row, or UNKNOWN; None when the key tells all of them, or none is known."""

    def with_places(self, stream: Stream) -> WantedKeys:
        """The same with all places filled in: a key that has the order field tells its row's place."""
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
    """The wanted keys, by number, that a bucket may hold."""

    bucket: Bucket
    known: np.ndarray
    """Those whose place is known, in order of it."""
    unknown: np.ndarray


def located_schema(stream: Stream) -> pa.Schema:
    """Rows as they are found: with their origin, what made them as they are, and the bucket that holds them."""
    return pa.schema([*arrow_schema(stream), *((name, pa.int64()) for name in (POS, BATCH, REVISION, BUCKET, FLOOR))])


@dataclass(frozen=True, slots=True)
class _RowGroupLookup:
    """What of the sought a stretch of rows may hold."""

    known: np.ndarray
    """Keys of known place by number, in order of it."""
    unknown: pa.Table
    """The others themselves."""

    def __bool__(self) -> bool:
        return bool(len(self.known) or self.unknown.num_rows)


@dataclass(frozen=True, slots=True)
class BucketProbe:
    """Looks for wanted keys of a stream, whose places are filled in."""

    stream: Stream
    wanted: WantedKeys

    def find_in_rows(self, sought: BucketLookup, rows: pa.Table) -> pa.Table:
        """What is sought among rows at hand."""
        found = self._found(lambda names: rows.select(list(names)), rows.column_names, self._whole_part(sought))
        return self._told(sought.bucket, [found])

    def find_in_file(self, sought: BucketLookup, path: str) -> pa.Table:
        """What is sought among the rows of a file."""
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
        """The rows of one stretch that are sought, with all that is stored of them."""
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
        """Which of the rows at wanted places have a key that is wanted there."""
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
    """The rows at one of the places, which are sorted. Most buckets are sorted too, and then only places are sought."""
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
    """The least and greatest value of a column of integers, or of times or dates, in a row group, as far as told."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == name:
            statistics = column.statistics
            told = statistics is not None and statistics.has_min_max
            return (int(statistics.min_raw), int(statistics.max_raw)) if told else (LOWEST, HIGHEST)
    return LOWEST, HIGHEST


def _is_in_statistics(group: pq.RowGroupMetaData, keys: pa.Table) -> np.ndarray:
    """Which of the keys lie between the least and the greatest of the row group, in columns of whole numbers: such
    keys are often given out in order."""
    held = np.ones(keys.num_rows, dtype=bool)
    for field in keys.schema:
        if pa.types.is_integer(field.type) or pa.types.is_temporal(field.type):
            low, high = _statistics_range(group, field.name)
            column = keys[field.name]
            values = order_values(column.cast(pa.int32()) if pa.types.is_date(field.type) else column)
            held &= (values >= low) & (values <= high)
    return held


def _dictionary_columns(metadata: pq.FileMetaData) -> list[str]:
    """The text columns of few values, as the first row group tells."""
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


# Finding the base rows of given keys: the index says in which buckets they may be, and only these are looked into.
#
# A few row groups are read by this process, since a Spark job takes longer to begin than they take to read. What is
# more is done by Spark's tasks, one bucket at a time; the same function looks into a bucket in both.

MAX_LOCAL_BYTES = 256 * 1024 * 1024
MAX_LOCAL_ROWS = 20_000_000
"""What may have to be read is left to Spark when it is more than one of these."""

MAX_PRUNED_GROUPS = 4_096
"""Keys of more groups than this are in nearly every bucket: no bucket is then ruled out by its groups."""

OPEN_COST_BYTES = 256 * 1024
"""What opening a file costs, in bytes that could be read instead."""

FILTER_BYTES_PER_ROW = 2
"""Bytes of Bloom filters for each row and key, about."""

TASKS_PER_CORE = 4
"""Tasks for each core, so that none is left alone with a large part."""

_THREADS = min(4, os.cpu_count() or 1)


def locate_rows(
    session_factory: Callable[[], SparkSession],
    catalog: Catalog,
    warehouse: Warehouse,
    stream: Stream,
    wanted: WantedKeys,
    buckets: Sequence[Bucket],
) -> pa.Table:
    """All rows of the buckets that have one of the wanted keys, and are at its place if that is known; rows that
    overlays mask are among them. The columns are those of `located_schema`, the rows in no particular order."""
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
    """Which of the wanted keys may be in which of the buckets; buckets that can hold none are left out."""
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
    """Whether so little has to be read that this process does it."""
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
    """What files hold of the sought, read here; Arrow lets several be decoded at once."""
    if len(files) == 1:
        return [probe.find_in_file(sought, path) for path, sought in files]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(lambda each: probe.find_in_file(each[1], each[0]), files))


def probe_by_spark(session: SparkSession, probe: BucketProbe, files: Sequence[tuple[str, BucketLookup]]) -> pa.Table:
    """The same, read by Spark's tasks."""

    def look(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for path, sought in (files[number] for number in numbers):
            yield from probe.find_in_file(sought, path).to_batches()

    cores = int(session.conf.get("spark.sql.shuffle.partitions") or 1)
    return run_spark_tasks(
        session, len(files), min(len(files), TASKS_PER_CORE * cores), look, located_schema(probe.stream)
    )


@dataclass(frozen=True, slots=True)
class _KeyGroups:
    """The groups of the wanted keys, where the key tells them."""

    members: Sequence[tuple[str | None, ...]] = ()
    number: np.ndarray | None = None
    """Which of them each key is of; None when buckets are not to be ruled out by it."""

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
        """Those of the keys whose group the bucket may hold."""
        if self.number is None or not 0 < len(keys) <= MAX_FILTER_VALUES:
            return keys
        numbers = self.number[keys]
        there = np.unique(numbers)
        held = np.array([bucket.groups.may_hold(self.members[number]) for number in there.tolist()])
        return keys if held.all() else keys[np.isin(numbers, there[held])]
