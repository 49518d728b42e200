"""Corrections: pending revisions read, the rows found that they speak of, each decided, and overlays written of them.

Revisions are few beside the rows that they are found among. So they are read and decided here, in memory; where rows
have to be looked for in many buckets, Spark looks (locate.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from errata.archive.keys import NUMBER, PLACE, sought
from errata.archive.locate import locate
from errata.archive.masks import BUCKET, Overlays, read_overlays, sources
from errata.archive.match import matches
from errata.archive.overlaid import write_overlays
from errata.archive.overlay import BATCH, REVISION
from errata.archive.probe import FLOOR, UNKNOWN, Wanted
from errata.archive.resolve import Resolved, resolve
from errata.archive.warehouse import Warehouse
from errata.archive.wire import conformed, numbered_schema, old_column
from errata.archive.written import POS, BucketWriter, order_values
from errata.catalog import buckets
from errata.catalog.open import Catalog
from errata.catalog.origins import Origin, origins
from errata.catalog.revise import Decided
from errata.catalog.streams import Standing
from errata.intake.arrow_types import arrow_schema
from errata.intake.values import as_text
from errata.model.batch import BadRevision, Settled
from errata.model.bucket import INLINE_STREAM_BYTES, Bucket, NewBucket, Role
from errata.model.interval import EVERYTHING, HIGHEST, Interval
from errata.model.stream import OnRevision, Stream

CLAIM_ROWS = 1_000_000
"""Revisions that are decided at once and settled in one commit; a single batch of more is not cut below a bucket."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where corrections are worked out: a stream as it stands, its warehouse and catalog, and Spark if it is needed."""

    session: Callable[[], SparkSession]
    catalog: Catalog
    warehouse: Warehouse
    basis: Standing

    @property
    def stream(self) -> Stream:
        return self.basis.stream

    @property
    def writer(self) -> BucketWriter:
        return BucketWriter(self.stream, self.warehouse, inline=self.basis.inline_bytes < INLINE_STREAM_BYTES)


def claim(place: Place, most: int = CLAIM_ROWS) -> list[Bucket]:
    """The first of the pending buckets, in the order of their revisions, with about so many of these at most."""
    basis = place.basis
    pending = buckets.visible(place.catalog, basis.stream_id, basis.changed_in, role=Role.PENDING)
    claimed: list[Bucket] = []
    rows = 0
    for bucket in sorted(pending, key=lambda each: each.revision_first or 0):
        if claimed and rows + bucket.rows > most:
            break
        claimed.append(bucket)
        rows += bucket.rows
    return claimed


def decide(place: Place, claimed: Sequence[Bucket]) -> Decided:
    """Find out what becomes of the claimed revisions, and write the overlays."""
    revisions = read_pending(place, claimed)
    if place.stream.on_revision is OnRevision.IGNORE:
        return Decided(claimed, [], [], [], Settled(ignored=revisions.num_rows), {}, EVERYTHING)
    wanted = sought(place.stream, revisions)
    live = live_rows(place, wanted)
    resolved = resolve(place.stream, revisions, live, place.basis.stable, place.basis.aged_to)
    bad = list(_bad(place, revisions, resolved))
    settles = len(resolved.waiting) < revisions.num_rows
    waiting = _waiting(place, revisions, resolved.waiting) if settles else []
    return Decided(
        claimed,
        write_overlays(place.writer, resolved.overlay) if resolved.overlay.num_rows else [],
        waiting,
        bad,
        Settled(
            inserted=resolved.inserted,
            replaced=resolved.replaced,
            deleted=resolved.deleted,
            dropped=resolved.dropped,
            refused=len(bad),
            waiting=len(resolved.waiting),
        ),
        resolved.masked,
        _hull(wanted) if place.stream.key_has_order else None,
    )


def read_pending(place: Place, claimed: Sequence[Bucket]) -> pa.Table:
    """The revisions with their numbers, in that order, and the batch of each."""
    schema = numbered_schema(place.stream)
    tables = []
    for source in sources(place.catalog, claimed):
        rows = conformed(source.read(place.warehouse), schema)
        first = pa.scalar(source.bucket.revision_first, pa.int64())
        batch = pa.repeat(pa.scalar(source.bucket.batch_no, pa.int64()), rows.num_rows)
        tables.append(
            rows.append_column(NUMBER, pc.add(rows["_ordinal"], first)).append_column(BATCH, batch).drop(["_ordinal"])
        )
    return pa.concat_tables(tables).sort_by(NUMBER).combine_chunks()


def live_rows(place: Place, wanted: pa.Table) -> pa.Table:
    """The live rows of the keys, each with where it came from and the bucket that it lies in."""
    key = list(place.stream.key)
    over = _overlays(place, wanted)
    found = [_of_overlays(place, over, wanted), _of_base(place, over, wanted)]
    hinted = wanted.filter(pc.is_valid(wanted[PLACE]))
    if not place.stream.key_has_order and hinted.num_rows:
        # An old place that was claimed may be wrong, and the row lie elsewhere: then it is not that it is not there.
        left, _ = matches(hinted.select(key), pa.concat_tables([each.select(key) for each in found]), key)
        missing = np.ones(hinted.num_rows, dtype=bool)
        missing[left] = False
        if missing.any():
            elsewhere = hinted.filter(pa.array(missing))
            nowhere = pa.nulls(elsewhere.num_rows, pa.int64())
            elsewhere = elsewhere.set_column(elsewhere.column_names.index(PLACE), PLACE, nowhere)
            found.append(_of_base(place, over, elsewhere))
    return pa.concat_tables(found).combine_chunks()


def _live_schema(stream: Stream) -> pa.Schema:
    return pa.schema([*arrow_schema(stream), *(pa.field(name, pa.int64()) for name in (BATCH, POS, REVISION, BUCKET))])


def _overlays(place: Place, wanted: pa.Table) -> Overlays:
    """The overlays that may speak of the keys."""
    basis = place.basis
    if not basis.applied:
        return Overlays(place.stream, read_overlays(place.stream, place.warehouse, []))
    hull = _hull(wanted) if place.stream.key_has_order else EVERYTHING
    found = buckets.visible(place.catalog, basis.stream_id, basis.changed_in, hull, role=Role.OVERLAY)
    return Overlays(place.stream, read_overlays(place.stream, place.warehouse, sources(place.catalog, found)))


def _of_overlays(place: Place, over: Overlays, wanted: pa.Table) -> pa.Table:
    key = list(place.stream.key)
    rows = _left(place, over.surviving())
    left, _ = matches(rows.select(key), wanted.select(key), key)
    return conformed(rows.take(pa.array(np.unique(left))), _live_schema(place.stream))


def _of_base(place: Place, over: Overlays, wanted: pa.Table) -> pa.Table:
    basis = place.basis
    hull = _hull(wanted)
    base = buckets.visible(place.catalog, basis.stream_id, basis.changed_in, hull)
    keys = Wanted(wanted.select(list(place.stream.key)), pc.fill_null(wanted[PLACE], UNKNOWN).to_numpy())
    rows = _left(place, locate(place.session, place.catalog, place.warehouse, place.stream, keys, base))
    return conformed(rows.filter(pa.array(~over.masked(rows, rows[FLOOR].to_numpy()))), _live_schema(place.stream))


def _left(place: Place, rows: pa.Table) -> pa.Table:
    """The rows that have not been aged out."""
    if place.basis.aged_to is None:
        return rows
    return rows.filter(pa.array(order_values(rows[place.stream.order]) >= place.basis.aged_to))


def _hull(wanted: pa.Table) -> Interval:
    """From the first place at which a key is sought to the last; everything, when that of one is not known."""
    places = wanted[PLACE]
    if places.null_count:
        return EVERYTHING
    if not len(places):
        return Interval(0, 0)
    ends = pc.min_max(places)
    return Interval(ends["min"].as_py(), min(ends["max"].as_py() + 1, HIGHEST))


def _waiting(place: Place, revisions: pa.Table, indexes: np.ndarray) -> list[tuple[int, NewBucket]]:
    """What still waits, as pending buckets, one batch after the other in the order of their numbers."""
    if not len(indexes):
        return []
    rows = revisions.take(pa.array(np.sort(indexes)))
    batch = rows[BATCH].to_numpy()
    # Numbers of different batches may be interleaved once some have waited before: runs keep the order.
    cuts = [0, *(np.flatnonzero(np.diff(batch)) + 1).tolist(), len(batch)]
    schema = numbered_schema(place.stream)
    written = []
    for low, high in pairwise(cuts):
        run = rows.slice(low, high - low)
        run = run.append_column("_ordinal", pa.array(np.arange(run.num_rows)))
        written.append((int(batch[low]), place.writer.write(run.select(schema.names).cast(schema), Role.PENDING)))
    return written


def _bad(place: Place, revisions: pa.Table, resolved: Resolved) -> Iterator[BadRevision]:
    """The revisions that were found wrong, as a person can read them, and take them in again."""
    rows, reasons = revisions.take(pa.array(resolved.refused)), resolved.reasons.to_pylist()
    texts = _texts(place.stream, rows)
    numbers, batches, places = (rows[name].to_pylist() for name in (NUMBER, BATCH, POS))
    came_from = origins(place.catalog, batches)
    for number, batch_no, pos, text, reason in zip(numbers, batches, places, texts, reasons, strict=True):
        file, line = came_from.get(batch_no, Origin("", 0)).line_of(pos)
        yield BadRevision(batch_no, number, file, line, text, reason)


def _texts(stream: Stream, rows: pa.Table) -> list[str]:
    """Revisions as objects of a JSON-lines file: what they gave, and nothing else."""
    shown: Mapping[str, list[str | None]] = {
        name: as_text(rows[name]).to_pylist() for column in stream.names for name in (column, old_column(column))
    }
    told = zip(*(rows[name].to_pylist() for name in ("_op", "_seq", "_given", "_claimed")), strict=True)
    texts = []
    for index, (op, seq, given, old_given) in enumerate(told):
        said: dict[str, object] = {"_op": op} | ({} if seq is None else {"_seq": seq})
        names = [name for name in given.split(",") if name]
        names += [old_column(name) for name in old_given.split(",") if name]
        texts.append(json.dumps(said | {name: shown[name][index] for name in names}, ensure_ascii=False))
    return texts
