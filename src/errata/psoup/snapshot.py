"""A stream's live rows at a commit, bucket by bucket, without Spark.

    stored rows of a bucket ─ masked by an overlay ─ aged out = live rows

Buckets never change, so their columns are kept in memory under their own keys, and so is which rows are live, under the
overlays that can mask them: a later commit works out only what its own overlays and buckets touch. All queries share
both. Rows of a bucket are numbered by their place in it; nothing here knows of queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from errata.archive.bucket_writer import order_values
from errata.archive.overlays import Overlays, bucket_sources, identity_columns
from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.archive.schemas import LIVE, MASKS, REVISION, conform, overlay_schema
from errata.catalog import commits, pins, streams
from errata.catalog.match_segments import BucketKey, bucket_key
from errata.catalog.streams import StreamState
from errata.catalog.transaction import Conflict
from errata.declare.site import Site
from errata.intake.types import arrow_schema
from errata.model.bucket import Bucket, Role
from errata.model.results import old_column
from errata.model.time import Interval
from errata.psoup.byte_cache import ByteCache

COLUMN_CACHE_BYTES = 512 * 1024 * 1024
"""Bytes of columns of buckets that a reader keeps in memory."""

LIVE_CACHE_BYTES = 64 * 1024 * 1024
"""Bytes of marks of live rows that a reader keeps in memory, one for each row of a bucket that an overlay touches."""

Pinning = Callable[[], AbstractContextManager[None]]
"""Keeps a commit readable during a block."""

LiveKey = tuple[BucketKey, tuple[BucketKey, ...], int | None]
"""A bucket, the overlays that can mask its rows, and up to where rows are aged out, if it has such rows."""


class BucketColumns:
    """Columns of buckets, read from the archive once and kept while there is room."""

    def __init__(self, site: Site, max_bytes: int = COLUMN_CACHE_BYTES) -> None:
        self._site = site
        self._cache: ByteCache[tuple[BucketKey, str, str], pa.ChunkedArray] = ByteCache(max_bytes)

    def tables(self, found: Sequence[Bucket], schema: pa.Schema, pinned: Pinning) -> list[pa.Table]:
        """These columns of each bucket; NULL where a column was added after the bucket was written. What has to be read
        is read in a block of `pinned`."""
        tables: dict[BucketKey, pa.Table] = {}
        missing: list[Bucket] = []
        for bucket in found:
            columns = [self._cache.get(self._key(bucket, field)) for field in schema]
            if any(column is None for column in columns):
                missing.append(bucket)
            else:
                tables[bucket_key(bucket)] = pa.table(columns, schema=schema)
        if missing:
            with pinned():
                tables |= {bucket_key(each): table for each, table in self._read(missing, schema)}
        return [tables[bucket_key(bucket)] for bucket in found]

    def _read(self, missing: Sequence[Bucket], schema: pa.Schema) -> Iterator[tuple[Bucket, pa.Table]]:
        for source in bucket_sources(self._site.catalog, missing):
            table = conform(source.read(self._site.warehouse, schema.names), schema).combine_chunks()
            for field in schema:
                column = table[field.name]
                self._cache.put(self._key(source.bucket, field), column, column.nbytes)
            yield source.bucket, table

    @staticmethod
    def _key(bucket: Bucket, field: pa.Field) -> tuple[BucketKey, str, str]:
        return bucket_key(bucket), field.name, str(field.type)


class SnapshotCache:
    """What the snapshots of a project share: columns of buckets, and which of their rows are live."""

    def __init__(self, site: Site, max_bytes: int = COLUMN_CACHE_BYTES) -> None:
        self.site = site
        self.columns = BucketColumns(site, max_bytes)
        self.live: ByteCache[LiveKey, np.ndarray] = ByteCache(LIVE_CACHE_BYTES)


@dataclass(frozen=True)
class StreamSnapshot:
    """A stream as of a commit."""

    cache: SnapshotCache
    state: StreamState
    commit_id: int
    base: Sequence[Bucket]
    overlays: Sequence[Bucket]

    @cached_property
    def schema(self) -> pa.Schema:
        """The stream's columns as Arrow types."""
        return arrow_schema(self.state.stream)

    @cached_property
    def order_schema(self) -> pa.Schema:
        return self.schema_of([self.state.stream.order])

    @cached_property
    def _ends(self) -> list[tuple[Bucket, int, int]]:
        """The buckets with rows, and the least and the greatest order field of each's rows."""
        rows = [(each, each.vs_min, each.vs_max) for each in self.base if each.rows]
        return rows + [(each, *each.content) for each in self.overlays if each.content is not None]

    def buckets_meeting(self, interval: Interval) -> list[Bucket]:
        """The buckets that can have live rows in an interval of the order field, base and overlays."""
        if interval.empty:
            return []
        return [bucket for bucket, low, high in self._ends if interval.meets(low, high)]

    def ends_of(self, interval: Interval) -> list[tuple[Bucket, int, int]]:
        """The same, with the least and the greatest order field of each."""
        return [each for each in self._ends if interval.meets(each[1], each[2])]

    def schema_of(self, names: Sequence[str]) -> pa.Schema:
        """The Arrow schema of some columns."""
        return pa.schema([self.schema.field(name) for name in names])

    def rows(self, found: Sequence[Bucket], names: Sequence[str]) -> list[pa.Table]:
        """All stored rows of these buckets, in their order; some columns only. A row that an overlay does not add has
        NULL, or anything, in them; it is not live."""
        return self._tables(found, self.schema_of(names))

    def _tables(self, found: Sequence[Bucket], schema: pa.Schema) -> list[pa.Table]:
        return self.cache.columns.tables(found, schema, self._pinned)

    def _pinned(self) -> AbstractContextManager[None]:
        return pinned_for_reading(self.cache.site, self.commit_id, self.state.stream.name)

    def order(self, bucket: Bucket) -> np.ndarray:
        """The order field of all stored rows of a bucket; 0 where an overlay adds no row."""
        (table,) = self._tables([bucket], self.order_schema)
        column = table.column(0)
        return order_values(column if not column.null_count else column.cast(pa.int64()).fill_null(0))

    def live_key(self, bucket: Bucket) -> LiveKey:
        """What decides which rows of the bucket are live."""
        keys = self._live_keys
        if (known := keys.get(bucket.bucket_id)) is None:
            known = keys[bucket.bucket_id] = self._live_key(bucket)
        return known

    @cached_property
    def _live_keys(self) -> dict[int, LiveKey]:
        return {}

    def _live_key(self, bucket: Bucket) -> LiveKey:
        reach = Interval(bucket.vs_min, bucket.vs_max + 1)
        touching = [each for each in self.overlays if each.masks is not None and reach.meets(*each.masks)]
        aged_to = self.state.aged_to
        cut = aged_to if aged_to is not None and bucket.vs_min < aged_to else None
        return bucket_key(bucket), tuple(sorted(map(bucket_key, touching))), cut

    def live(self, bucket: Bucket) -> np.ndarray | None:
        """Which stored rows of a bucket are live; None: all are."""
        key = self.live_key(bucket)
        _, touching, cut = key
        if bucket.role is Role.BASE and not touching and cut is None:
            return None
        if (known := self.cache.live.get(key)) is not None:
            return known
        if bucket.role is Role.BASE:
            marks = self._unmasked_base_rows(bucket) if touching else np.ones(bucket.rows, dtype=bool)
        else:
            (rows,) = self._tables([bucket], self._overlay_columns)
            marks = self._overlaid(key).unmasked(rows)
        if cut is not None:
            marks &= self.order(bucket) >= cut
        self.cache.live.put(key, marks, marks.nbytes)
        return marks

    def _unmasked_base_rows(self, bucket: Bucket) -> np.ndarray:
        names = identity_columns(self.state.stream)
        (rows,) = self._tables([bucket], self.schema_of(names))
        masked: np.ndarray = self._overlaid(self.live_key(bucket)).masked(rows, bucket.floor)
        return ~masked

    def _overlaid(self, key: LiveKey) -> Overlays:
        """The overlays that can mask rows of a bucket, with what tells which rows they mask."""
        wanted = set(key[1])
        touching = [each for each in self.overlays if bucket_key(each) in wanted]
        tables = self._tables(touching, self._overlay_columns)
        return Overlays(self.state.stream, pa.concat_tables([self._overlay_columns.empty_table(), *tables]))

    @cached_property
    def _overlay_columns(self) -> pa.Schema:
        stream = self.state.stream
        identity = identity_columns(stream)
        names = {REVISION, MASKS, LIVE, stream.order, *identity, *map(old_column, identity)}
        return pa.schema([field for field in overlay_schema(stream) if field.name in names])


def stream_snapshot(cache: SnapshotCache, name: str, commit_id: int) -> StreamSnapshot:
    """A stream as of a commit."""
    catalog = cache.site.catalog
    state = streams.stream_state(catalog, name, commit_id)
    found = candidate_buckets(catalog, ArchiveScan(state, commit_id))
    return StreamSnapshot(cache, state, commit_id, tuple(found.base), tuple(found.overlays))


class SnapshotConflict(Conflict):
    """Vacuum has removed buckets of a snapshot before they were read."""


@contextmanager
def pinned_for_reading(site: Site, commit_id: int, name: str) -> Iterator[None]:
    """Keep what a snapshot of a stream names readable. It was looked up before the pin was there, so there is a
    conflict if vacuum has removed some of it meanwhile."""
    with pins.hold_pin(site.catalog, commit_id, f"invocation over {name}"):
        if commit_id < commits.whole_since(site.catalog, name):
            raise SnapshotConflict
        yield
