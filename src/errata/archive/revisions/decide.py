"""Decides a claim of pending revisions: reads them, finds their rows, resolves each, and writes overlays.

Revisions are few beside the rows that they are about, so they are read and decided in memory; only the search for rows
in many buckets is left to Spark (`locate`).

The last section reads the history of a key. Overlays stay as long as the rows that they correct, whatever is compacted
and vacuumed, so the history is read from them; only a row that was never corrected is read from its bucket alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import BucketWriter, order_values
from errata.archive.overlays import BUCKET, Overlays, bucket_sources, chain_heads, read_overlays, write_overlays
from errata.archive.revisions.locate import FLOOR, UNKNOWN_PLACE, WantedKeys, locate_rows
from errata.archive.revisions.pending import (
    NUMBER,
    PLACE,
    RevisionFlags,
    claim_schema,
    keys_to_find,
    new_keys,
    revision_keys,
)
from errata.archive.revisions.resolve import RevisionOutcome, resolve_revisions
from errata.archive.schemas import BATCH, LIVE, MASKS, REVISION, conform, numbered_pending_schema
from errata.archive.tables import key_numbers, match_rows
from errata.catalog import buckets
from errata.catalog.database import Catalog
from errata.catalog.ledger import BatchOrigin, batch_origins
from errata.catalog.stream_commits import RevisionCommit
from errata.catalog.streams import StreamState
from errata.declare.warehouse import Warehouse
from errata.intake.convert import canonical_text
from errata.intake.types import arrow_schema
from errata.model.batch import BadRevision, RevisionCounts
from errata.model.bucket import MAX_INLINE_STREAM_BYTES, Bucket, NewBucket, Role
from errata.model.results import old_column
from errata.model.stream import RevisionPolicy, Stream
from errata.model.time import EVERYTHING, HIGHEST, Interval

CLAIM_ROWS = 1_000_000
"""Revisions that are decided together and settled in one commit, at most; a single bucket may have more."""


@dataclass(frozen=True, slots=True)
class CorrectionContext:
    """What deciding needs: the stream's state, its warehouse and catalog, and a session if Spark is needed."""

    session: Callable[[], SparkSession]
    catalog: Catalog
    warehouse: Warehouse
    basis: StreamState

    @property
    def stream(self) -> Stream:
        return self.basis.stream

    @property
    def writer(self) -> BucketWriter:
        return BucketWriter(self.stream, self.warehouse, inline=self.basis.inline_bytes < MAX_INLINE_STREAM_BYTES)


def claim_pending(place: CorrectionContext, most: int = CLAIM_ROWS) -> list[Bucket]:
    """The first pending buckets in the order of their revisions: as many as hold at most `most` of these, or one."""
    basis = place.basis
    pending = buckets.visible_buckets(place.catalog, basis.stream_id, basis.changed_in, role=Role.PENDING)
    claimed: list[Bucket] = []
    rows = 0
    for bucket in sorted(pending, key=lambda each: each.revision_first or 0):
        if claimed and rows + bucket.rows > most:
            break
        claimed.append(bucket)
        rows += bucket.rows
    return claimed


def decide_claim(place: CorrectionContext, claimed: Sequence[Bucket]) -> RevisionCommit:
    """Decide the claimed revisions and write their overlays."""
    revisions = read_pending(place, claimed)
    if place.stream.on_revision is RevisionPolicy.IGNORE:
        return RevisionCommit(claimed, [], [], [], RevisionCounts(ignored=revisions.num_rows), {}, EVERYTHING)
    wanted = keys_to_find(place.stream, revisions)
    live = live_rows(place, wanted)
    resolved = resolve_revisions(place.stream, revisions, live, place.basis.stable, place.basis.aged_to)
    bad = list(_bad_revisions(place, revisions, resolved))
    settles = len(resolved.waiting) < revisions.num_rows
    waiting = _write_waiting(place, revisions, resolved.waiting) if settles else []
    return RevisionCommit(
        claimed,
        write_overlays(place.writer, resolved.overlay) if resolved.overlay.num_rows else [],
        waiting,
        bad,
        RevisionCounts(
            inserted=resolved.inserted,
            replaced=resolved.replaced,
            deleted=resolved.deleted,
            dropped=resolved.dropped,
            refused=len(bad),
            waiting=len(resolved.waiting),
        ),
        resolved.masked,
        _place_hull(wanted) if place.stream.key_has_order else None,
    )


def read_pending(place: CorrectionContext, claimed: Sequence[Bucket]) -> pa.Table:
    """The revisions by number, with number and batch of each."""
    schema = numbered_pending_schema(place.stream)
    tables = []
    for source in bucket_sources(place.catalog, claimed):
        rows = conform(source.read(place.warehouse), schema)
        first = pa.scalar(source.bucket.revision_first, pa.int64())
        batch = pa.repeat(pa.scalar(source.bucket.batch_no, pa.int64()), rows.num_rows)
        tables.append(
            rows.append_column(NUMBER, pc.add(rows["_ordinal"], first)).append_column(BATCH, batch).drop(["_ordinal"])
        )
    return pa.concat_tables(tables).sort_by(NUMBER).combine_chunks()


def live_rows(place: CorrectionContext, wanted: pa.Table) -> pa.Table:
    """The live rows of the keys, each with its origin and its bucket."""
    key = list(place.stream.key)
    over = _overlays_of_keys(place, wanted)
    found = [_live_overlay_rows(place, over, wanted), _live_base_rows(place, over, wanted)]
    hinted = wanted.filter(pc.is_valid(wanted[PLACE]))
    if not place.stream.key_has_order and hinted.num_rows:
        # A claimed old place may be wrong and the row lie elsewhere: then its old value differs, but it is not missing.
        left, _ = match_rows(hinted.select(key), pa.concat_tables([each.select(key) for each in found]), key)
        missing = np.ones(hinted.num_rows, dtype=bool)
        missing[left] = False
        if missing.any():
            elsewhere = hinted.filter(pa.array(missing))
            nowhere = pa.nulls(elsewhere.num_rows, pa.int64())
            elsewhere = elsewhere.set_column(elsewhere.column_names.index(PLACE), PLACE, nowhere)
            found.append(_live_base_rows(place, over, elsewhere))
    return pa.concat_tables(found).combine_chunks()


def _live_row_schema(stream: Stream) -> pa.Schema:
    return pa.schema([*arrow_schema(stream), *(pa.field(name, pa.int64()) for name in (BATCH, POS, REVISION, BUCKET))])


def _overlays_of_keys(place: CorrectionContext, wanted: pa.Table) -> Overlays:
    """The overlays that may have rows of the keys."""
    basis = place.basis
    if not basis.applied:
        return Overlays(place.stream, read_overlays(place.stream, place.warehouse, []))
    hull = _place_hull(wanted) if place.stream.key_has_order else EVERYTHING
    found = buckets.visible_buckets(place.catalog, basis.stream_id, basis.changed_in, hull, role=Role.OVERLAY)
    return Overlays(place.stream, read_overlays(place.stream, place.warehouse, bucket_sources(place.catalog, found)))


def _live_overlay_rows(place: CorrectionContext, over: Overlays, wanted: pa.Table) -> pa.Table:
    key = list(place.stream.key)
    rows = _drop_aged(place, over.live_rows())
    left, _ = match_rows(rows.select(key), wanted.select(key), key)
    return conform(rows.take(pa.array(np.unique(left))), _live_row_schema(place.stream))


def _live_base_rows(place: CorrectionContext, over: Overlays, wanted: pa.Table) -> pa.Table:
    basis = place.basis
    hull = _place_hull(wanted)
    base = buckets.visible_buckets(place.catalog, basis.stream_id, basis.changed_in, hull)
    keys = WantedKeys(wanted.select(list(place.stream.key)), pc.fill_null(wanted[PLACE], UNKNOWN_PLACE).to_numpy())
    rows = _drop_aged(place, locate_rows(place.session, place.catalog, place.warehouse, place.stream, keys, base))
    return conform(rows.filter(pa.array(~over.masked(rows, rows[FLOOR].to_numpy()))), _live_row_schema(place.stream))


def _drop_aged(place: CorrectionContext, rows: pa.Table) -> pa.Table:
    """The rows that have not been aged out."""
    if place.basis.aged_to is None:
        return rows
    return rows.filter(pa.array(order_values(rows[place.stream.order]) >= place.basis.aged_to))


def _place_hull(wanted: pa.Table) -> Interval:
    """The interval from the first place of a wanted key to the last; everything, if the place of one is unknown."""
    places = wanted[PLACE]
    if places.null_count:
        return EVERYTHING
    if not len(places):
        return Interval(0, 0)
    ends = pc.min_max(places)
    return Interval(ends["min"].as_py(), min(ends["max"].as_py() + 1, HIGHEST))


def _write_waiting(place: CorrectionContext, revisions: pa.Table, indexes: np.ndarray) -> list[tuple[int, NewBucket]]:
    """Write the revisions that still wait as pending buckets, each of one batch, in the order of their numbers."""
    if not len(indexes):
        return []
    rows = revisions.take(pa.array(np.sort(indexes)))
    batch = rows[BATCH].to_numpy()
    # Numbers of different batches may be interleaved if some have waited before: each run becomes a bucket.
    cuts = [0, *(np.flatnonzero(np.diff(batch)) + 1).tolist(), len(batch)]
    schema = numbered_pending_schema(place.stream)
    written = []
    for low, high in pairwise(cuts):
        run = rows.slice(low, high - low)
        run = run.append_column("_ordinal", pa.array(np.arange(run.num_rows)))
        written.append((int(batch[low]), place.writer.write(run.select(schema.names).cast(schema), Role.PENDING)))
    return written


def _bad_revisions(place: CorrectionContext, revisions: pa.Table, resolved: RevisionOutcome) -> Iterator[BadRevision]:
    """The refused revisions, with texts that can be read and ingested again."""
    rows, reasons = revisions.take(pa.array(resolved.refused)), resolved.reasons.to_pylist()
    texts = _revision_texts(place.stream, rows)
    numbers, batches, places = (rows[name].to_pylist() for name in (NUMBER, BATCH, POS))
    came_from = batch_origins(place.catalog, batches)
    for number, batch_no, pos, text, reason in zip(numbers, batches, places, texts, reasons, strict=True):
        file, line = came_from.get(batch_no, BatchOrigin("", 0)).line_of(pos)
        yield BadRevision(batch_no, number, file, line, text, reason)


def _revision_texts(stream: Stream, rows: pa.Table) -> list[str]:
    """Revisions as JSON objects with the members that they gave, and no others."""
    shown: Mapping[str, list[str | None]] = {
        name: canonical_text(rows[name]).to_pylist() for column in stream.names for name in (column, old_column(column))
    }
    told = zip(*(rows[name].to_pylist() for name in ("_op", "_seq", "_given", "_claimed")), strict=True)
    texts = []
    for index, (op, seq, given, old_given) in enumerate(told):
        said: dict[str, object] = {"_op": op} | ({} if seq is None else {"_seq": seq})
        names = [name for name in given.split(",") if name]
        names += [old_column(name) for name in old_given.split(",") if name]
        texts.append(json.dumps(said | {name: shown[name][index] for name in names}, ensure_ascii=False))
    return texts


# The history of a key: all versions in overlays of the rows that have had it, and the live rows.


@dataclass(frozen=True, slots=True)
class KeyVersions:
    """The history of a key."""

    overlays: pa.Table
    """Rows of overlays (`overlay_schema`) about rows that have had the key, by revision."""
    row: np.ndarray
    """For each of these, the number of the row that it is a version of."""
    live: pa.Table
    """The live rows of all keys that these rows have had, with their origins."""


def key_versions(place: CorrectionContext, key: pa.Table, undoing: Collection[int]) -> KeyVersions:
    """The history of a key, given as a table of one row; `undoing` are the batches that undid others."""
    keys = key
    while True:
        rows = _overlay_rows_of(place, keys)
        row = chain_heads(rows, undoing)
        borne = np.isin(row, row[_has_keys(place.stream, rows, key)])
        rows, row = rows.filter(pa.array(borne)), row[borne]
        more = _keys_borne(place.stream, rows, key)
        if more.num_rows == keys.num_rows:
            return KeyVersions(rows, row, live_rows(place, _lookup_keys(place.stream, keys)))
        # The rows have had other keys before or since, whose versions belong to the history.
        keys = more


def pending_for_key(place: CorrectionContext, key: pa.Table) -> pa.Table:
    """The pending revisions of the row of a key, and those that would give a row the key, by number."""
    stream = place.stream
    pending = buckets.visible_buckets(place.catalog, place.basis.stream_id, place.basis.changed_in, role=Role.PENDING)
    if not pending:
        return claim_schema(stream).empty_table()
    # All are read: the index knows only the places that pending revisions give, not those of their rows.
    revisions = read_pending(place, pending)
    said = RevisionFlags.by(stream, revisions)
    names = list(stream.key)
    every = np.arange(revisions.num_rows)
    spoken = match_rows(revision_keys(stream, revisions, said).select(names), key, names)[0]
    made = match_rows(new_keys(stream, revisions, said, every).select(names), key, names)[0]
    made = made[~said.deletes[made]]
    return revisions.take(pa.array(np.union1d(spoken, made)))


def _overlay_rows_of(place: CorrectionContext, keys: pa.Table) -> pa.Table:
    """The rows of overlays, folded or not, that mask or add a row of one of the keys, by revision."""
    stream, stream_id = place.stream, place.basis.stream_id
    if stream.key_has_order:
        moments = np.sort(keys[stream.order].cast(pa.int64()).to_numpy())
        hull = Interval(int(moments[0]), int(moments[-1]) + 1)
        ever = buckets.all_overlays(place.catalog, stream_id, hull)
        found = [
            each
            for each in ever
            if np.searchsorted(moments, each.vs_min) < np.searchsorted(moments, each.vs_max, side="right")
        ]
    else:
        found = buckets.all_overlays(place.catalog, stream_id)
    parts = [read_overlays(stream, place.warehouse, [])]
    for source in bucket_sources(place.catalog, found):
        rows = read_overlays(stream, place.warehouse, [source])
        parts.append(rows.filter(pa.array(_has_keys(stream, rows, keys))))
    return pa.concat_tables(parts).sort_by(REVISION).combine_chunks()


def _has_keys(stream: Stream, rows: pa.Table, keys: pa.Table) -> np.ndarray:
    """Which rows of overlays mask or add a row of one of the keys."""
    names, bearing = list(stream.key), np.zeros(rows.num_rows, dtype=bool)
    for flag, columns in ((LIVE, names), (MASKS, list(map(old_column, names)))):
        there = np.flatnonzero(rows[flag].to_numpy())
        some = rows.select(columns).take(pa.array(there)).rename_columns(names)
        bearing[there[match_rows(some, keys, names)[0]]] = True
    return bearing


def _keys_borne(stream: Stream, rows: pa.Table, key: pa.Table) -> pa.Table:
    """The key and all other keys that the rows have had, each once."""
    names = list(stream.key)
    every = [key.select(names)]
    for flag, columns in ((LIVE, names), (MASKS, list(map(old_column, names)))):
        every.append(rows.filter(rows[flag]).select(columns).rename_columns(names))
    keys = pa.concat_tables(every)
    return keys.take(pa.array(np.unique(key_numbers(keys), return_index=True)[1]))


def _lookup_keys(stream: Stream, keys: pa.Table) -> pa.Table:
    """The keys with their places, NULL if the key does not tell it."""
    if stream.key_has_order:
        return keys.append_column(PLACE, pc.cast(keys[stream.order], pa.int64()))
    return keys.append_column(PLACE, pa.nulls(keys.num_rows, pa.int64()))
