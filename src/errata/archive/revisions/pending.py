"""Pending revisions: what each gives and claims, which keys have to be looked up, and whether any can be applied now.

A revision gives new values of some columns and may claim old values of some. The key of its row is the claimed old key,
or else the given one. Everything here is computed on whole columns. No Spark is needed, so that the sensor and `status`
can ask whether revisions can be applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.overlays import Overlays, bucket_sources, read_overlays
from errata.archive.schemas import BATCH, GIVEN, OPERATION, conform, numbered_pending_schema, pending_schema
from errata.archive.tables import key_numbers, match_rows
from errata.catalog import buckets
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.intake.split_reader import OLD_GIVEN
from errata.model.batch import Op
from errata.model.bucket import Bucket, Role
from errata.model.results import old_column
from errata.model.stream import RevisionPolicy, Stream
from errata.model.time import Interval

NUMBER, PLACE = "_number", "_place"


def claim_schema(stream: Stream) -> pa.Schema:
    """Pending revisions that are being decided, by number: with their numbers and batches."""
    return pa.schema([pa.field(NUMBER, pa.int64()), pa.field(BATCH, pa.int64()), *pending_schema(stream)])


@dataclass(frozen=True, slots=True)
class RevisionFlags:
    """The operation of each revision, and its given and claimed columns, as booleans by revision and column."""

    inserts: np.ndarray
    deletes: np.ndarray
    given: np.ndarray
    """The columns that get a new value: all for an insert, none for a deletion."""
    claimed: np.ndarray
    """The columns of which an old value is claimed. A key or order field claimed to be NULL counts as not claimed, and
    inserts claim nothing."""

    @classmethod
    def by(cls, stream: Stream, revisions: pa.Table) -> RevisionFlags:
        inserts, deletes = (_flags(pc.equal(revisions[OPERATION], op.value)) for op in (Op.INSERT, Op.DELETE))
        given = _has_names(revisions[GIVEN], stream.names)
        given[inserts], given[deletes] = True, False
        claimed = _has_names(revisions[OLD_GIVEN], stream.names)
        claimed[inserts] = False
        for at, name in enumerate(stream.names):
            if name in stream.required and claimed[:, at].any():
                claimed[:, at] &= _flags(revisions[old_column(name)].is_valid())
        return cls(inserts, deletes, given, claimed)

    def moving(self, stream: Stream) -> np.ndarray:
        """The revisions that may change the key of their row, by index."""
        key = [stream.names.index(name) for name in stream.key]
        return np.flatnonzero((self.given[:, key] & self.claimed[:, key]).any(axis=1))


def revision_keys(stream: Stream, revisions: pa.Table, said: RevisionFlags | None = None) -> pa.Table:
    """The key of each revision's row, and its place if the revision tells it."""
    said = said or RevisionFlags.by(stream, revisions)
    key = {name: _old_values(stream, revisions, said, name) for name in stream.key}
    at = stream.names.index(stream.order)
    known = said.claimed[:, at] | said.given[:, at] | stream.key_has_order
    return pa.table(key | {PLACE: _known_places(_old_values(stream, revisions, said, stream.order), known)})


def new_keys(stream: Stream, revisions: pa.Table, said: RevisionFlags, index: np.ndarray) -> pa.Table:
    """The keys that rows would have after some revisions, given by index."""
    some = revisions.take(pa.array(index))
    keys = {}
    for name in stream.key:
        given = pa.array(said.given[index, stream.names.index(name)])
        keys[name] = pc.if_else(given, some[name], _old_values(stream, revisions, said, name).take(pa.array(index)))
    return pa.table(keys)


def keys_to_find(stream: Stream, revisions: pa.Table) -> pa.Table:
    """The keys that have to be looked up before revisions can be decided, each once.

    `_place` is the place of the row if all revisions of the key agree on it; NULL means anywhere. If the key does not
    tell the place, a claimed old place is used and a given one is not, since a row that is moved, or whose key is
    taken, lies elsewhere.
    """
    said = RevisionFlags.by(stream, revisions)
    mine = revision_keys(stream, revisions, said)
    moving = said.moving(stream)
    theirs = new_keys(stream, revisions, said, moving)
    if stream.key_has_order:
        places = theirs[stream.order].cast(pa.int64())
    else:
        places = pa.chunked_array([pa.nulls(len(moving), pa.int64())])
        at = stream.names.index(stream.order)
        mine = mine.set_column(len(stream.key), PLACE, _known_places(mine[PLACE], said.claimed[:, at]))
    every = pa.concat_tables([mine, theirs.append_column(PLACE, places)])
    numbers = key_numbers(every.select(list(stream.key)))
    # A key that is given unchanged is not a second key.
    counts = np.append(np.ones(mine.num_rows, dtype=bool), numbers[mine.num_rows :] != numbers[moving])
    return _distinct_keys(every.filter(pa.array(counts)), numbers[counts])


def _distinct_keys(keys: pa.Table, numbers: np.ndarray) -> pa.Table:
    """Each key once, with its place if all its rows have the same one."""
    if not len(numbers):
        return keys
    by_key = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[by_key], prepend=-1))
    ordered = keys[PLACE].take(pa.array(by_key))
    places, unknown = ordered.fill_null(0).to_numpy(), _flags(ordered.is_null())
    low, high = np.minimum.reduceat(places, starts), np.maximum.reduceat(places, starts)
    doubtful = np.logical_or.reduceat(unknown, starts) | (low != high)
    distinct = keys.take(pa.array(by_key[starts]))
    return distinct.set_column(keys.num_columns - 1, PLACE, pa.array(low, mask=doubtful))


def _has_names(texts: pa.ChunkedArray, names: Sequence[str]) -> np.ndarray:
    """Which of the names each text (names joined by commas) has. There are few distinct texts, however many rows."""
    patterns = pc.unique(texts)
    table = np.zeros((len(patterns), len(names)), dtype=bool)
    for row, pattern in enumerate(patterns.to_pylist()):
        held = set((pattern or "").split(","))
        table[row] = [name in held for name in names]
    named: np.ndarray = table[np.asarray(pc.index_in(texts, value_set=patterns))]
    return named


def _old_values(stream: Stream, revisions: pa.Table, said: RevisionFlags, name: str) -> pa.ChunkedArray:
    """A column of the revisions' rows: as claimed, or else as given, since identifying columns are then unchanged."""
    claimed = said.claimed[:, stream.names.index(name)]
    if not claimed.any():
        return revisions[name]
    return pc.if_else(pa.array(claimed), revisions[old_column(name)], revisions[name])


def _known_places(values: pa.ChunkedArray, known: np.ndarray) -> pa.ChunkedArray:
    places = values.cast(pa.int64())
    return places if known.all() else pc.if_else(pa.array(known), places, pa.scalar(None, pa.int64()))


def _flags(values: pa.ChunkedArray) -> np.ndarray:
    """Booleans as a NumPy array that may be changed."""
    flags: np.ndarray = np.array(values.to_numpy(), dtype=bool)
    return flags


# Whether pending revisions can be applied now, or only wait for rows that may still come. Looked up without Spark; if
# that cannot be told for certain, they count as waiting.


def can_settle_any(site: Site, of: StreamState) -> bool:
    """Whether applying the pending revisions of a stream would settle any of them, and not leave all waiting."""
    found = buckets.visible_buckets(site.catalog, of.stream_id, of.changed_in, role=Role.PENDING)
    if of.stream.on_revision is RevisionPolicy.IGNORE:
        return bool(found)
    return any(_can_settle(site, of, each) for each in sorted(found, key=lambda each: each.revision_first or 0))


def _can_settle(site: Site, of: StreamState, pending: Bucket) -> bool:
    (source,) = bucket_sources(site.catalog, [pending])
    rows = conform(source.read(site.warehouse), numbered_pending_schema(of.stream))
    spoken = revision_keys(of.stream, rows, RevisionFlags.by(of.stream, rows))
    places = spoken[PLACE]
    # A revision that does not tell its place does not wait.
    early = pc.and_(pc.not_equal(rows[OPERATION], Op.INSERT.value), places.is_valid())
    if of.stable is not None:
        early = pc.and_(early, pc.fill_null(pc.greater_equal(places, of.stable), False))
    flags = early.combine_chunks().to_numpy(zero_copy_only=False)
    return not flags.all() or _any_row_exists(site, of, spoken)


def _any_row_exists(site: Site, of: StreamState, spoken: pa.Table) -> bool:
    """Whether any of these rows, all of which may still come, exists already."""
    stream = of.stream
    if not stream.key_has_order or not spoken.num_rows:
        return False
    ends = pc.min_max(spoken[PLACE])
    low, high = ends["min"].as_py(), ends["max"].as_py()
    at = (site.catalog, of.stream_id, of.changed_in, Interval(low, high + 1))
    overlays = buckets.visible_buckets(*at, role=Role.OVERLAY) if of.applied else []
    over = Overlays(stream, read_overlays(stream, site.warehouse, bucket_sources(site.catalog, overlays)))
    if _rows_with_keys(stream, over.live_rows(), spoken).num_rows:
        return True
    for each in bucket_sources(site.catalog, buckets.visible_buckets(*at)):
        read = each.read_between(site.warehouse, list(stream.key), stream.order, low, high)
        rows = _rows_with_keys(stream, read, spoken)
        if not over.masked(rows, each.bucket.floor).all():
            return True
    return False


def _rows_with_keys(stream: Stream, rows: pa.Table, spoken: pa.Table) -> pa.Table:
    """The rows whose keys are among those of the revisions."""
    key = list(stream.key)
    left, _ = match_rows(rows.select(key), spoken.select(key), key)
    return rows.take(pa.array(np.unique(left)))
