"""The transaction that drops aged buckets from the index."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from errata.catalog import buckets, commits, streams
from errata.catalog.append import BasisMovedError
from errata.catalog.open import Catalog
from errata.catalog.streams import Standing
from errata.catalog.tables import buckets as buckets_table
from errata.catalog.tables import streams as streams_table
from errata.model import ageing
from errata.model.bucket import Bucket, Layout, Role
from errata.model.commit import Cause
from errata.model.interval import LOWEST

AT_ONCE = 1_000
"""Buckets whose rows are counted are read from the index in portions of this many."""


@dataclass(frozen=True, slots=True)
class Aged:
    """What is due to go."""

    buckets: Sequence[Bucket]
    """Base buckets of which nothing is left."""
    aged_to: int
    """Before this place no row counts any more, from it on every one does."""
    beside: Sequence[Bucket]
    """Base buckets that begin before it and stay, since they reach beyond."""
    overlays: Sequence[Bucket]
    """Overlays that mask or bring rows which have counted and no longer will."""
    gone: Sequence[Bucket]
    """Those of the overlays that have nothing left to say."""

    def rows(self, hidden: Mapping[int, int]) -> int:
        """How many live rows go, with those that are hidden where they lie."""
        return sum(bucket.rows - bucket.masked for bucket in self.buckets) + sum(hidden.values())


def due(catalog: Catalog, basis: Standing, held: int | None = None) -> Aged | None:
    """What is due as the stream stands; None when nothing is. `held`: where that begins which queries have still to
    read."""
    with catalog.reading() as connection:
        return _due(connection, basis, held)


def commit_ageing(
    catalog: Catalog,
    basis: Standing,
    aged: Aged,
    hidden: Mapping[int, int],
    cause: Cause,
    *,
    held: int | None = None,
    seen: int | None = None,
) -> int:
    """Drop what was found due on `basis`. `hidden` tells how many rows have counted and no longer do, of each of the
    buckets beside and of the overlays. `seen`: the commit as of which it was looked up what queries have still to
    read."""
    with catalog.writing() as connection:
        # Looked at again under the lock: a correction, another ageing or a declaration may have come between.
        now = streams.locked_standing(connection, basis.stream_id)
        if now is None or now.aged_to != basis.aged_to or _due(connection, now, held) != aged:
            raise BasisMovedError
        check_no_new_readers(connection, seen)
        rows, gone = aged.rows(hidden), [*aged.buckets, *aged.gone]
        summary = {
            "dropped_buckets": len(aged.buckets),
            "dropped_rows": rows,
            "dropped_bytes": sum(bucket.size for bucket in gone),
            "to": aged.aged_to - 1,
        }
        commit_id = commits.take(connection, catalog.clock.now(), cause, stream_id=basis.stream_id, summary=summary)
        buckets.remove(connection, [bucket.bucket_id for bucket in gone], commit_id)
        buckets.mask(connection, hidden)
        connection.execute(
            update(streams_table)
            .where(streams_table.c.stream_id == basis.stream_id)
            .values(
                rows=streams_table.c.rows - rows,
                aged_to=aged.aged_to,
                inline_bytes=streams_table.c.inline_bytes - sum(bucket.size for bucket in gone if bucket.inline),
                changed_in=commit_id,
            )
        )
        streams.record_position(connection, basis.stream_id, commit_id)
        return commit_id


def check_no_new_readers(connection: Connection, seen: int | None) -> None:
    """Whether no query has been answered for the first time since a commit. Those that were can only need less."""
    if seen is None:
        return
    new = select(streams_table.c.stream_id).where(
        streams_table.c.query_id.is_not(None), streams_table.c.added_in > seen
    )
    if connection.execute(new.limit(1)).first() is not None:
        raise BasisMovedError


def _due(connection: Connection, standing: Standing, held: int | None) -> Aged | None:
    stream, stream_id = standing.stream, standing.stream_id
    if stream.retention is None or standing.stable is None:
        return None
    with closing(_youngest_first(connection, stream_id)) as youngest_first:
        kept_from = ageing.kept_from(stream.retention, standing.stable, youngest_first)
    if kept_from is None:
        return None
    kept_from = kept_from if held is None else min(kept_from, held)
    base = buckets.live(connection, stream_id, Role.BASE, before=None if stream.one_table else kept_from)
    found = ageing.due(base, kept_from)
    aged_to = ageing.aged_to(found, standing.aged_to, kept_from if stream.one_table else None)
    if aged_to is None or not any(bucket.vs_min < aged_to for bucket in base):
        return None
    # Of one table without an index nobody knows where its rows lie: all of it is looked through.
    beside = [bucket for bucket in base if bucket.vs_max >= kept_from]
    if stream.layout is not Layout.PLAIN:
        beside = [bucket for bucket in beside if bucket.vs_min < aged_to]
    overlays = []
    if standing.applied:
        former = LOWEST if standing.aged_to is None else standing.aged_to
        all_before = buckets.live(connection, stream_id, Role.OVERLAY, before=aged_to)
        overlays = [overlay for overlay in all_before if overlay.vs_max >= former]
    # Where the key does not tell the place, a row that has aged out may have made its key free for another, which
    # lies elsewhere and may still be read without that revision: compaction is what works such an overlay in.
    gone = [overlay for overlay in overlays if overlay.vs_max < aged_to] if stream.key_has_order else []
    return Aged(found, aged_to, beside, overlays, gone)


def _youngest_first(connection: Connection, stream_id: int) -> Generator[tuple[int, int], None, None]:
    """Where each live base bucket begins and how many live rows it has, the last beginning first."""
    columns = buckets_table.c
    query = (
        select(columns.vs_min, columns.rows - columns.masked)
        .where(columns.stream_id == stream_id, columns.role == Role.BASE.value, columns.removed_in.is_(None))
        .order_by(columns.vs_min.desc())
    )
    with connection.execute(query, execution_options={"yield_per": AT_ONCE}) as found:
        yield from found
