"""Looking for the rows of given keys in one bucket: as little of it is read as may hold them.

Of a row whose place is known, the statistics of the order field tell the row groups; of one whose place is not known,
Bloom filters do. Of these row groups the order field or the key is read first, and the other columns only where a row
has been found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from errata.archive.bloom import MOST_VALUES, Readable, hashes_of, may_hold
from errata.archive.match import matches, of_order
from errata.archive.wire import conformed
from errata.archive.written import POS, order_values
from errata.intake.arrow_types import arrow_schema
from errata.model.bucket import Bucket
from errata.model.interval import HIGHEST, LOWEST
from errata.model.stream import Stream

BATCH, REVISION, BUCKET, FLOOR = "_batch", "_revision", "_bucket", "_floor"

UNKNOWN = LOWEST
"""The place of a row of which only the key is known; no row is ever there."""

_PLACE = "_place"

DICTIONARY = 8
"""Text whose dictionary is less than this part of a column is read as a dictionary."""

Read = Callable[[Sequence[str]], pa.Table]
"""Gives columns of a stretch of rows, always the same rows."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The keys that are sought."""

    keys: pa.Table
    """The key columns, in their declared types, without NULL."""
    places: np.ndarray | None = None
    """The order field of each key's row, or UNKNOWN; None when the key tells all of them, or none is known."""

    def placed(self, stream: Stream) -> Wanted:
        """The same with all places filled in: a key that has the order field tells its row's place."""
        if stream.key_has_order:
            return Wanted(self.keys, order_values(self.keys[stream.order]))
        if self.places is None:
            return Wanted(self.keys, np.full(self.keys.num_rows, UNKNOWN, dtype=np.int64))
        return self

    @property
    def at(self) -> np.ndarray:
        if self.places is None:
            raise ValueError("places are filled in before they are asked for")
        return self.places


@dataclass(frozen=True, slots=True)
class Sought:
    """The wanted keys, by number, that a bucket may hold."""

    bucket: Bucket
    known: np.ndarray
    """Those whose place is known, in order of it."""
    unknown: np.ndarray


def located_schema(stream: Stream) -> pa.Schema:
    """Rows as they are found: with their origin, what made them as they are, and the bucket that holds them."""
    return pa.schema([*arrow_schema(stream), *((name, pa.int64()) for name in (POS, BATCH, REVISION, BUCKET, FLOOR))])


@dataclass(frozen=True, slots=True)
class _Part:
    """What of the sought a stretch of rows may hold."""

    known: np.ndarray
    """Keys of known place by number, in order of it."""
    unknown: pa.Table
    """The others themselves."""

    def __bool__(self) -> bool:
        return bool(len(self.known) or self.unknown.num_rows)


@dataclass(frozen=True, slots=True)
class Probe:
    """Looks for wanted keys of a stream, whose places are filled in."""

    stream: Stream
    wanted: Wanted

    def inline(self, sought: Sought, rows: pa.Table) -> pa.Table:
        """What is sought among rows at hand."""
        found = self._found(lambda names: rows.select(list(names)), rows.column_names, self._whole_part(sought))
        return self._told(sought.bucket, [found])

    def file(self, sought: Sought, path: str) -> pa.Table:
        """What is sought among the rows of a file."""
        whole = self._whole_part(sought)
        hashed = hashes_of(whole.unknown) if 0 < whole.unknown.num_rows <= MOST_VALUES else {}
        tables = []
        with UPath(path).open("rb") as file:
            metadata = pq.read_metadata(file)
            with pq.ParquetFile(file, metadata=metadata, read_dictionary=_dictionaries(metadata)) as parquet:
                for number in range(metadata.num_row_groups):
                    part = self._part(file, metadata.row_group(number), whole, hashed)
                    if part:
                        read = partial(_read_group, parquet, number)
                        tables.append(self._found(read, parquet.schema_arrow.names, part))
        return self._told(sought.bucket, tables)

    def _whole_part(self, sought: Sought) -> _Part:
        return _Part(sought.known, self.wanted.keys.take(pa.array(sought.unknown)))

    def _part(
        self, file: Readable, group: pq.RowGroupMetaData, whole: _Part, hashed: Mapping[str, np.ndarray]
    ) -> _Part:
        known, unknown = whole.known, whole.unknown
        if len(known):
            low, high = _ends(group, self.stream.order)
            places = self.wanted.at[known]
            known = known[np.searchsorted(places, low) : np.searchsorted(places, high, side="right")]
        if unknown.num_rows:
            held = _in_range(group, unknown)
            if hashed and held.any():
                maybe = may_hold(file, group, hashed)
                held = held if maybe is None else held & maybe
            unknown = unknown if held.all() else unknown.filter(pa.array(held))
        return _Part(known, unknown)

    def _found(self, read: Read, stored: Sequence[str], part: _Part) -> pa.Table:
        """The rows of one stretch that are sought, with all that is stored of them."""
        stream = self.stream
        schema = located_schema(stream)
        others = [name for name in stream.key if name != stream.order]
        seen = read([stream.order]) if len(part.known) or stream.key_has_order else pa.table({})
        rows, order = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        if len(part.known):
            order = order_values(seen[stream.order])
            rows = _at(order, self.wanted.at[part.known])
        if part.unknown.num_rows or (len(rows) and others):
            seen = _beside(seen, read(others))
        if len(rows) and others:
            rows = rows[self._agreeing(seen.take(pa.array(rows)), order[rows], part.known)]
        if part.unknown.num_rows:
            rows = np.union1d(rows, matches(seen, part.unknown, stream.key)[0])
        if not len(rows):
            return schema.empty_table()
        chosen = pa.array(np.unique(rows))
        rest = [name for name in stored if name in schema.names and name not in seen.column_names]
        return _beside(seen.take(chosen), read(rest).take(chosen))

    def _agreeing(self, here: pa.Table, order: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Which of the rows at wanted places have a key that is wanted there."""
        others = [name for name in self.stream.key if name != self.stream.order]
        sought = self.wanted.keys.take(pa.array(known)).append_column(_PLACE, pa.array(self.wanted.at[known]))
        return matches(here.append_column(_PLACE, pa.array(order)), sought, [_PLACE, *others])[0]

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
        return conformed(rows, located_schema(self.stream))


def _at(order: np.ndarray, places: np.ndarray) -> np.ndarray:
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
    return np.flatnonzero(of_order(order, places))


def _beside(left: pa.Table, right: pa.Table) -> pa.Table:
    return pa.table([*left.columns, *right.columns], names=[*left.column_names, *right.column_names])


def _ends(group: pq.RowGroupMetaData, name: str) -> tuple[int, int]:
    """The least and greatest value of a column of integers, or of times or dates, in a row group, as far as told."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == name:
            statistics = column.statistics
            told = statistics is not None and statistics.has_min_max
            return (int(statistics.min_raw), int(statistics.max_raw)) if told else (LOWEST, HIGHEST)
    return LOWEST, HIGHEST


def _in_range(group: pq.RowGroupMetaData, keys: pa.Table) -> np.ndarray:
    """Which of the keys lie between the least and the greatest of the row group, in columns of whole numbers: such
    keys are often given out in order."""
    held = np.ones(keys.num_rows, dtype=bool)
    for field in keys.schema:
        if pa.types.is_integer(field.type) or pa.types.is_temporal(field.type):
            low, high = _ends(group, field.name)
            column = keys[field.name]
            values = order_values(column.cast(pa.int32()) if pa.types.is_date(field.type) else column)
            held &= (values >= low) & (values <= high)
    return held


def _dictionaries(metadata: pq.FileMetaData) -> list[str]:
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
        and (column.data_page_offset - column.dictionary_page_offset) * DICTIONARY < column.total_compressed_size
    ]


def _read_group(parquet: pq.ParquetFile, number: int, names: Sequence[str]) -> pa.Table:
    return parquet.read_row_group(number, columns=list(names), use_threads=False)
