"""The rows of a window that satisfy a conjunction: matches, less the rows that are not live, cut by the window.

    stored matches of a bucket, or the predicate index on the spot ─► live ones ─► in order ─► slice of the window

What is selected from a bucket is kept in memory in the order of event time and key, so that the next window of the same
bucket costs two bisections. It is kept under what it depends on (the bucket, the overlays that mask it, the conjunction
and the columns), and so serves later commits, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.catalog.match_segments import BucketKey, bucket_key
from errata.model.bucket import Bucket
from errata.model.registered import ColumnFactor, Conjunction
from errata.model.time import EVERYTHING, LOWEST, Interval
from errata.psoup.byte_cache import ByteCache
from errata.psoup.index.predicate_index import PredicateIndex
from errata.psoup.segments import MatchStore
from errata.psoup.snapshot import LiveKey, StreamSnapshot

PART_CACHE_BYTES = 256 * 1024 * 1024
"""Bytes of selected rows that a reader keeps in memory."""

_ORDER = "_order"


@dataclass(frozen=True, slots=True)
class SourceWindow:
    """The rows of a source that an answer is made of."""

    interval: Interval
    """Of the order field."""
    excluded: Mapping[int, np.ndarray] = field(default_factory=dict)
    """Of a window that counts rows: by bucket, the rows at the first place of the interval that are too many."""


@dataclass(frozen=True, slots=True)
class Selected:
    """A conjunction over the rows of a stream, and the columns that are wanted of those that satisfy it."""

    number: int
    conjunction: Conjunction
    columns: tuple[str, ...]
    """The key and the order field are among them."""


@dataclass(frozen=True, slots=True)
class SelectedPart:
    """The live rows of one bucket that satisfy a conjunction, in the order of event time and key."""

    order: np.ndarray
    positions: np.ndarray
    rows: pa.Table

    @property
    def nbytes(self) -> int:
        return int(self.order.nbytes + self.positions.nbytes + self.rows.nbytes)


@dataclass(frozen=True, slots=True)
class PartRange:
    """The rows of a part that lie in a window."""

    live: LiveKey
    part: SelectedPart
    low: int
    high: int
    excluded: np.ndarray | None = None
    """Positions that a window which counts rows leaves out."""

    @property
    def bucket(self) -> BucketKey:
        return self.live[0]

    def places(self) -> np.ndarray:
        """The places of its rows in the part."""
        places = np.arange(self.low, self.high)
        if self.excluded is None:
            return places
        return places[~np.isin(self.part.positions[self.low : self.high], self.excluded)]

    def cut(self) -> SelectedRows:
        """Its rows."""
        if self.excluded is None:
            rows = self.part.rows.slice(self.low, self.high - self.low)
            return SelectedRows(self.part.order[self.low : self.high], rows)
        places = self.places()
        return SelectedRows(self.part.order[places], self.part.rows.take(pa.array(places)))


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """The selected rows of a window, in the order of event time and key."""

    order: np.ndarray
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class SourceRead:
    """What an invocation reads of one source."""

    snapshot: StreamSnapshot
    wanted: Selected
    window: SourceWindow


def factor_columns(conjunction: Conjunction) -> list[str]:
    """The columns that a conjunction reads."""
    read: dict[str, None] = {}
    for each in conjunction:
        if isinstance(each, ColumnFactor):
            read |= {each.left: None, each.right: None}
        else:
            read[each.column] = None
    return list(read)


def _read_columns(wanted: Selected) -> list[str]:
    return list(dict.fromkeys((*wanted.columns, *factor_columns(wanted.conjunction))))


class Selector:
    """Selects rows of snapshots, and keeps what was selected."""

    def __init__(self, store: MatchStore | None, max_bytes: int = PART_CACHE_BYTES) -> None:
        """Without a store every row is matched on the spot."""
        self._store = store
        self._parts: ByteCache[tuple[LiveKey, int, tuple[str, ...]], SelectedPart] = ByteCache(max_bytes)

    def select(self, snapshot: StreamSnapshot, wanted: Selected, window: SourceWindow) -> SelectedRows:
        """The rows of the window that satisfy the conjunction."""
        return _merge(snapshot, wanted, [each.cut() for each in self.ranges(snapshot, wanted, window)])

    def ranges(self, snapshot: StreamSnapshot, wanted: Selected, window: SourceWindow) -> list[PartRange]:
        """The same rows, bucket by bucket; those without any are left out."""
        found = snapshot.buckets_meeting(window.interval)
        ranges = []
        for bucket, part in zip(found, self._select_parts(snapshot, wanted, found), strict=True):
            low, high = map(int, np.searchsorted(part.order, (window.interval.start, window.interval.end)))
            if window.interval == EVERYTHING:
                high = len(part.order)
            if low < high:
                excluded = window.excluded.get(bucket.bucket_id)
                ranges.append(PartRange(snapshot.live_key(bucket), part, low, high, excluded))
        return ranges

    def _select_parts(
        self, snapshot: StreamSnapshot, wanted: Selected, found: Sequence[Bucket]
    ) -> Iterable[SelectedPart]:
        keys = [(snapshot.live_key(bucket), wanted.number, wanted.columns) for bucket in found]
        parts = [self._parts.get(key) for key in keys]
        missing = [place for place, part in enumerate(parts) if part is None]
        if missing:
            fresh = [found[place] for place in missing]
            snapshot.rows(fresh, _read_columns(wanted))  # all at once, since each reading pins the commit
            positions = self._matching(fresh, snapshot, wanted)
            for place in missing:
                bucket = found[place]
                part = _select_part(snapshot, wanted, bucket, positions[bucket.bucket_id])
                self._parts.put(keys[place], part, part.nbytes + 256)
                parts[place] = part
        return [part for part in parts if part is not None]

    def _matching(
        self, found: Sequence[Bucket], snapshot: StreamSnapshot, wanted: Selected
    ) -> dict[int, np.ndarray | None]:
        """The positions of the stored rows that satisfy the conjunction, by bucket; None: all of them."""
        if not wanted.conjunction:
            return {bucket.bucket_id: None for bucket in found}
        known = {} if self._store is None else self._store.find(found, wanted.number)
        fresh = [bucket for bucket in found if bucket_key(bucket) not in known]
        index = PredicateIndex(snapshot.state.stream, {wanted.number: wanted.conjunction})
        for bucket, rows in zip(fresh, snapshot.rows(fresh, factor_columns(wanted.conjunction)), strict=True):
            known[bucket_key(bucket)] = index.match(rows).get(wanted.number)
        none = np.zeros(0, dtype=np.int64)
        sets = {bucket.bucket_id: known[bucket_key(bucket)] for bucket in found}
        return {bucket_id: none if each is None else each.positions for bucket_id, each in sets.items()}


def _select_part(
    snapshot: StreamSnapshot, wanted: Selected, bucket: Bucket, positions: np.ndarray | None
) -> SelectedPart:
    live = snapshot.live(bucket)
    if positions is None:
        positions = np.arange(bucket.rows) if live is None else np.flatnonzero(live)
    elif live is not None:
        positions = positions[live[positions]]
    order = snapshot.order(bucket)[positions]
    (stored,) = snapshot.rows([bucket], wanted.columns)
    rows = stored.take(pa.array(positions))
    index = event_order(order, rows, snapshot.state.stream.key)
    if index is None:
        return SelectedPart(order, positions, rows)
    return SelectedPart(order[index], positions[index], rows.take(pa.array(index)))


def _merge(snapshot: StreamSnapshot, wanted: Selected, slices: Sequence[SelectedRows]) -> SelectedRows:
    if not any(len(each.order) for each in slices):
        return SelectedRows(np.zeros(0, dtype=np.int64), snapshot.schema_of(wanted.columns).empty_table())
    if len(slices) == 1:
        return slices[0]
    ordered = sorted((each for each in slices if len(each.order)), key=lambda each: int(each.order[0]))
    order = np.concatenate([each.order for each in ordered])
    rows = pa.concat_tables([each.rows for each in ordered])
    if all(before.order[-1] < after.order[0] for before, after in pairwise(ordered)):
        return SelectedRows(order, rows)
    index = event_order(order, rows, snapshot.state.stream.key)
    return SelectedRows(order, rows) if index is None else SelectedRows(order[index], rows.take(pa.array(index)))


def event_order(order: np.ndarray, rows: pa.Table, key: Sequence[str]) -> np.ndarray | None:
    """The places of the rows in the order of event time and key; None if they stand so, since no two are equal."""
    if len(order) < 2 or bool((order[1:] > order[:-1]).all()):
        return None
    keyed = pa.table([pa.array(order), *(rows[name] for name in key)], names=[_ORDER, *key])
    index: np.ndarray = pc.sort_indices(
        keyed, sort_keys=[(name, "ascending") for name in keyed.column_names]
    ).to_numpy()
    return index


def youngest_rows(snapshot: StreamSnapshot, count: int, end: int) -> tuple[SourceWindow, bool]:
    """The window of the last live rows before an end, in the order of event time and key, and whether there are so
    many."""
    kept = np.zeros(0, dtype=np.int64)
    for bucket, _, high in sorted(snapshot.ends_of(Interval(LOWEST, end)), key=lambda each: each[2], reverse=True):
        if len(kept) == count and kept.min() > high:
            break
        order, live = snapshot.order(bucket), snapshot.live(bucket)
        kept = np.concatenate([kept, order[order < end] if live is None else order[live & (order < end)]])
        if len(kept) > count:
            kept = np.partition(kept, len(kept) - count)[len(kept) - count :]
    if len(kept) < count:
        return SourceWindow(Interval(LOWEST, end)), False
    first = int(kept.min())
    return SourceWindow(Interval(first, end), _too_many(snapshot, first, int((kept == first).sum()))), True


def _too_many(snapshot: StreamSnapshot, place: int, wanted: int) -> dict[int, np.ndarray]:
    """Of the live rows at a place all but the wanted last ones in the order of the key, by bucket."""
    found = snapshot.buckets_meeting(Interval(place, place + 1))
    key = snapshot.state.stream.key
    tables, places, owners = [], [], []
    for bucket, rows in zip(found, snapshot.rows(found, key), strict=True):
        live, here = snapshot.live(bucket), snapshot.order(bucket) == place
        positions = np.flatnonzero(here if live is None else here & live)
        tables.append(rows.take(pa.array(positions)))
        places.append(positions)
        owners.append(np.full(len(positions), bucket.bucket_id))
    together = pa.concat_tables(tables)
    surplus = together.num_rows - wanted
    if surplus <= 0:
        return {}
    index = pc.sort_indices(together, sort_keys=[(name, "ascending") for name in key]).to_numpy()[:surplus]
    at, of = np.concatenate(places)[index], np.concatenate(owners)[index]
    return {int(owner): at[of == owner] for owner in np.unique(of)}
