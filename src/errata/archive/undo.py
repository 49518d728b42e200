"""Undoing a batch: what became of the rows that it made or changed, and the revisions that give them back.

`tests/fixtures/oracle/undoing.py` says what is right, row by row. Rows that stand as the batch brought them are deleted
where they are (brought.py). Of all others overlays tell, and these are few enough to be held in memory, as when they
were applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from errata.archive.brought import deletions, inverse
from errata.archive.chains import NONE, row_numbers, standing, undone
from errata.archive.correct import Place, live_rows
from errata.archive.keys import PLACE, joined, key_numbers
from errata.archive.masks import read_overlays, sources
from errata.archive.overlay import BATCH, LIVE, MASKS, OLD_BATCH, REVISION
from errata.archive.wire import old_column
from errata.archive.written import BucketWriter, order_values
from errata.catalog import buckets
from errata.model.bucket import NewBucket, Role
from errata.model.interval import LOWEST
from errata.model.revision import Op
from errata.model.stream import Stream

SHOWN = 5
"""Keys of rows changed since that are named."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """What is to become of the corrected rows that a batch made or changed."""

    revisions: tuple[pa.Table, ...]
    """Pending: deletions, then replacements, then insertions, so that keys are given free before they are taken."""
    deleted: int
    restored: int
    """Rows that are as they were before; some have their former key again."""
    put_back: int
    """Rows that had been deleted."""
    aged: int
    """Rows that have been aged out, or would go back to where rows have been."""
    later: pa.Table
    """Keys of the first few rows that others have changed since, or whose former key is taken."""
    kept: int
    """How many of these there are."""
    since: tuple[int, ...]
    """The batches that did so."""

    def write(self, writer: BucketWriter) -> list[NewBucket]:
        """The revisions as pending buckets."""
        rows = writer.stream.bucket_rows
        written = []
        for table in self.revisions:
            cuts = [*range(0, table.num_rows, rows), table.num_rows]
            for low, high in pairwise(cuts):
                ordinal = pa.array(np.arange(high - low))
                written.append(
                    writer.write(table.slice(low, high - low).set_column(0, "_ordinal", ordinal), Role.PENDING)
                )
        return written


@dataclass(frozen=True, slots=True)
class _Versions:
    """Versions of rows, row by row and oldest first. `image` is the index of what each says in `values`, or NONE."""

    row: np.ndarray
    batch: np.ndarray
    image: np.ndarray
    revision: np.ndarray
    values: pa.Table

    def of(self, chosen: np.ndarray) -> _Versions:
        return _Versions(self.row[chosen], self.batch[chosen], self.image[chosen], self.revision[chosen], self.values)

    @property
    def content(self) -> np.ndarray:
        """A number for what each says, equal where the values are, or NONE."""
        numbers = key_numbers(self.values)
        content: np.ndarray = np.where(self.image == NONE, NONE, numbers[self.image])
        return content

    def says(self, chosen: np.ndarray) -> pa.Table:
        """The values of some of the versions, all of which say something."""
        return self.values.take(pa.array(self.image[chosen]))


@dataclass(frozen=True, slots=True)
class _Returns:
    """Rows of the batch, by their newest version and the one before the batch, as indexes of versions, or NONE."""

    newest: np.ndarray
    former: np.ndarray

    def of(self, chosen: np.ndarray) -> _Returns:
        return _Returns(self.newest[chosen], self.former[chosen])


def take_back_corrected(place: Place, batch_no: int, commit_id: int, undoes: Mapping[int, int]) -> Corrected:
    """What is to be done about the rows of a batch of that commit of which overlays tell."""
    stream = place.stream
    found = buckets.overlays_ever(place.catalog, place.basis.stream_id, since=commit_id) if place.basis.applied else []
    overlays = read_overlays(stream, place.warehouse, sources(place.catalog, found)).sort_by(REVISION).combine_chunks()
    versions = _versions(stream, overlays, batch_no, undoes)
    if not len(versions.row):
        return Corrected((), 0, 0, 0, 0, versions.values.select(list(stream.key)).slice(0, 0), 0, ())
    taken = undone(versions.batch, undoes, batch_no)
    row, top, before = standing(versions.row, versions.batch, taken, versions.content, batch_no)
    newest = np.searchsorted(versions.row, row, side="right") - 1
    former = np.where((before != NONE) & (versions.image[before] != NONE), before, NONE)
    rows = _Returns(newest, former)
    live = _live(place, versions, rows)
    there = np.isin(versions.revision[newest], live[REVISION].fill_null(NONE).to_numpy())
    gone = (versions.image[newest] != NONE) & ~there
    later = ~gone & (versions.batch[top] != batch_no)
    behind = ~gone & ~later & _behind(place, versions, former)
    never = (versions.image[newest] == NONE) & (former == NONE)
    going = ~gone & ~later & ~behind & ~never
    blocked, by = _blocked(stream, versions, rows, live, going)
    going[blocked] = False
    late = np.flatnonzero(later)
    return Corrected(
        *_revisions(stream, versions, rows.of(going)),
        int(gone.sum() + behind.sum()),
        _keys(stream, versions, rows.of(np.union1d(late, blocked)[:SHOWN])),
        len(late) + len(blocked),
        tuple(np.unique([*versions.batch[top[late]].tolist(), *by]).astype(int).tolist()),
    )


def _versions(stream: Stream, overlays: pa.Table, batch_no: int, undoes: Mapping[int, int]) -> _Versions:
    """All versions that overlays know of the rows that the batch made or changed."""
    count = overlays.num_rows
    number = row_numbers(overlays, undoes)
    first = np.flatnonzero((number == np.arange(count)) & overlays[MASKS].to_numpy())
    indexes = np.arange(count)
    row = np.concatenate([number, number[first]])
    batch = np.concatenate([overlays[BATCH].to_numpy(), overlays[OLD_BATCH].to_numpy()[first].astype(np.int64)])
    image = np.concatenate([np.where(overlays[LIVE].to_numpy(), indexes, NONE), first + count])
    revision = np.concatenate([overlays[REVISION].to_numpy(), np.full(len(first), NONE)])
    own = np.flatnonzero(np.isin(row, row[batch == batch_no]))
    chosen = own[np.lexsort((revision[own], row[own]))]
    values = {name: joined(overlays[name], overlays[old_column(name)]) for name in stream.names}
    return _Versions(row[chosen], batch[chosen], image[chosen], revision[chosen], pa.table(values))


def _live(place: Place, versions: _Versions, rows: _Returns) -> pa.Table:
    """The live rows of the keys that rows of the batch have now, or had before it."""
    stream = place.stream
    now = versions.says(rows.newest[versions.image[rows.newest] != NONE])
    before = versions.says(rows.former[rows.former != NONE])
    keys = pa.concat_tables([now.select(list(stream.key)), before.select(list(stream.key))])
    # Where a row is now, is known; who may have its former key by now, may be anywhere.
    elsewhere = before[stream.order].cast(pa.int64())
    if not stream.key_has_order:
        elsewhere = pa.chunked_array([pa.nulls(before.num_rows, pa.int64())])
    keys = keys.append_column(PLACE, joined(now[stream.order].cast(pa.int64()), elsewhere))
    once = np.unique(key_numbers(keys.select(list(stream.key))), return_index=True)[1]
    return live_rows(place, keys.take(pa.array(once)))


def _behind(place: Place, versions: _Versions, former: np.ndarray) -> np.ndarray:
    """Which rows would go back to where rows have been aged out."""
    aged_to = LOWEST if place.basis.aged_to is None else place.basis.aged_to
    behind = np.zeros(len(former), dtype=bool)
    there = np.flatnonzero(former != NONE)
    behind[there] = order_values(versions.says(former[there])[place.stream.order]) < aged_to
    return behind


def _blocked(
    stream: Stream, versions: _Versions, rows: _Returns, live: pa.Table, going: np.ndarray
) -> tuple[np.ndarray, list[int]]:
    """Which rows cannot go back because their former key is taken by now, and the batches of those that have it."""
    returning = np.flatnonzero(going & (rows.former != NONE))
    wanted_keys = versions.says(rows.former[returning]).select(list(stream.key))
    numbers = key_numbers(pa.concat_tables([live.select(list(stream.key)), wanted_keys]))
    there, wanted = np.split(numbers, [live.num_rows])
    made, holder = live[REVISION].fill_null(NONE).to_numpy(), live[BATCH].to_numpy()
    leaving, free, by = going.copy(), np.ones(len(returning), dtype=bool), set[int]()
    while True:
        staying = ~np.isin(made, versions.revision[rows.newest[leaving]])
        times = np.bincount(wanted[free], minlength=len(numbers))
        stuck = free & (np.isin(wanted, there[staying]) | (times[wanted] > 1))
        if not stuck.any():
            return returning[~free], sorted(by)
        by |= set(holder[staying & np.isin(there, wanted[stuck])].tolist())
        # Who stays where it is keeps its own key from others.
        leaving[returning[stuck]] = False
        free &= ~stuck


def _revisions(stream: Stream, versions: _Versions, rows: _Returns) -> tuple[tuple[pa.Table, ...], int, int, int]:
    """What gives rows back, and how many are deleted, restored and put back by it."""
    alive, had = versions.image[rows.newest] != NONE, rows.former != NONE
    both = np.flatnonzero(alive & had)
    keys = [versions.says(each[both]).select(list(stream.key)) for each in (rows.newest, rows.former)]
    now, then = np.split(key_numbers(pa.concat_tables(keys)), 2)
    replaced = np.zeros(len(alive), dtype=bool)
    replaced[both[now == then]] = True
    deleted, inserted = rows.of(alive & ~replaced), rows.of(had & ~replaced)
    stays = rows.of(replaced)
    tables = (
        deletions(stream, versions.says(deleted.newest)),
        inverse(stream, Op.REPLACE, stream.names, versions.says(stays.former), versions.says(stays.newest)),
        inverse(
            stream,
            Op.INSERT,
            stream.names,
            versions.says(inserted.former),
            None,
            pa.array(versions.revision[inserted.newest]),
        ),
    )
    counts = int((alive & ~had).sum()), len(both), int((~alive & had).sum())
    return tuple(table for table in tables if table.num_rows), *counts


def _keys(stream: Stream, versions: _Versions, rows: _Returns) -> pa.Table:
    """The keys that rows have now, or had when they were deleted."""
    last = np.where(versions.image[rows.newest] == NONE, rows.newest - 1, rows.newest)
    return versions.says(last).select(list(stream.key))
