"""The story of a key: everything that overlays tell of the rows that have borne it, and what is there now.

Overlays stay for as long as the rows that they corrected, whatever was compacted and vacuumed since. So the story is
told from them, and only a row that nothing ever corrected is told from its bucket alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from errata.archive.chains import row_numbers
from errata.archive.correct import Place, live_rows, read_pending
from errata.archive.keys import PLACE, Said, claim_schema, identities, key_numbers, new_keys
from errata.archive.masks import read_overlays, sources
from errata.archive.match import matches
from errata.archive.overlay import LIVE, MASKS, REVISION
from errata.archive.wire import old_column
from errata.catalog import buckets
from errata.model.bucket import Role
from errata.model.interval import Interval
from errata.model.stream import Stream


@dataclass(frozen=True, slots=True)
class Story:
    """What is known of a key."""

    overlays: pa.Table
    """Of the rows that have borne it, by revision, as `overlay_schema` has them."""
    row: np.ndarray
    """For each of these the number of the row that it tells of."""
    live: pa.Table
    """The live rows of the keys that these rows have had, with where each came from."""


def story(place: Place, key: pa.Table, undoing: Collection[int]) -> Story:
    """The story of a key, a table of one row; `undoing` are the batches that undid others."""
    keys = key
    while True:
        rows = _speaking_of(place, keys)
        row = row_numbers(rows, undoing)
        borne = np.isin(row, row[_bearing(place.stream, rows, key)])
        rows, row = rows.filter(pa.array(borne)), row[borne]
        more = _keys(place.stream, rows, key)
        if more.num_rows == keys.num_rows:
            return Story(rows, row, live_rows(place, _wanted(place.stream, keys)))
        # The rows have had other keys, before or since: what is told of these belongs to the story.
        keys = more


def waiting(place: Place, key: pa.Table) -> pa.Table:
    """The pending revisions that speak of a key or would make it, by number."""
    stream = place.stream
    pending = buckets.visible(place.catalog, place.basis.stream_id, place.basis.changed_in, role=Role.PENDING)
    if not pending:
        return claim_schema(stream).empty_table()
    # Where the row is that a pending revision speaks of, the index does not tell: only what it would be.
    revisions = read_pending(place, pending)
    said = Said.by(stream, revisions)
    names = list(stream.key)
    every = np.arange(revisions.num_rows)
    spoken = matches(identities(stream, revisions, said).select(names), key, names)[0]
    made = matches(new_keys(stream, revisions, said, every).select(names), key, names)[0]
    made = made[~said.deletes[made]]
    return revisions.take(pa.array(np.union1d(spoken, made)))


def _speaking_of(place: Place, keys: pa.Table) -> pa.Table:
    """The rows of overlays, folded or not, that mask or make a row of one of the keys, by revision."""
    stream, stream_id = place.stream, place.basis.stream_id
    if stream.key_has_order:
        moments = np.sort(keys[stream.order].cast(pa.int64()).to_numpy())
        hull = Interval(int(moments[0]), int(moments[-1]) + 1)
        ever = buckets.overlays_ever(place.catalog, stream_id, hull)
        found = [
            each
            for each in ever
            if np.searchsorted(moments, each.vs_min) < np.searchsorted(moments, each.vs_max, side="right")
        ]
    else:
        found = buckets.overlays_ever(place.catalog, stream_id)
    parts = [read_overlays(stream, place.warehouse, [])]
    for source in sources(place.catalog, found):
        rows = read_overlays(stream, place.warehouse, [source])
        parts.append(rows.filter(pa.array(_bearing(stream, rows, keys))))
    return pa.concat_tables(parts).sort_by(REVISION).combine_chunks()


def _bearing(stream: Stream, rows: pa.Table, keys: pa.Table) -> np.ndarray:
    """Which rows of overlays mask or make a row of one of the keys."""
    names, bearing = list(stream.key), np.zeros(rows.num_rows, dtype=bool)
    for flag, columns in ((LIVE, names), (MASKS, list(map(old_column, names)))):
        there = np.flatnonzero(rows[flag].to_numpy())
        some = rows.select(columns).take(pa.array(there)).rename_columns(names)
        bearing[there[matches(some, keys, names)[0]]] = True
    return bearing


def _keys(stream: Stream, rows: pa.Table, key: pa.Table) -> pa.Table:
    """The key, and all others that the rows have had, each once."""
    names = list(stream.key)
    every = [key.select(names)]
    for flag, columns in ((LIVE, names), (MASKS, list(map(old_column, names)))):
        every.append(rows.filter(rows[flag]).select(columns).rename_columns(names))
    keys = pa.concat_tables(every)
    return keys.take(pa.array(np.unique(key_numbers(keys), return_index=True)[1]))


def _wanted(stream: Stream, keys: pa.Table) -> pa.Table:
    """The keys, and their places as far as they tell them."""
    if stream.key_has_order:
        return keys.append_column(PLACE, pc.cast(keys[stream.order], pa.int64()))
    return keys.append_column(PLACE, pa.nulls(keys.num_rows, pa.int64()))
