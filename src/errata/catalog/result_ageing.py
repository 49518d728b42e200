"""The transaction that drops aged results of a query from the index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, update

from errata.catalog import buckets, commits, streams
from errata.catalog.ageing import check_no_new_readers
from errata.catalog.append import BasisMovedError
from errata.catalog.open import Catalog
from errata.catalog.published import Published
from errata.catalog.tables import streams as streams_table
from errata.model import ageing
from errata.model.bucket import Bucket, Role, masking
from errata.model.commit import Cause
from errata.model.stream import Retention


@dataclass(frozen=True, slots=True)
class AgedResults:
    """What is due to go."""

    buckets: Sequence[Bucket]
    """Base buckets whose results are all past."""
    feed: Sequence[Bucket]
    """Buckets of change records about such results. Who reads changes from the beginning is told what stands."""
    parts: Sequence[Bucket]
    """Buckets of partial aggregates of such results, and of their lineage."""
    masks: Sequence[Bucket]
    """Buckets of masks of which none can be of a result that stays."""
    aged_to: int | None
    """Of earlier instants the answers are no longer whole."""

    @property
    def rows(self) -> int:
        """How many results go."""
        return sum(each.rows for each in self.buckets)

    @property
    def gone(self) -> list[Bucket]:
        """All buckets that go."""
        return [*self.buckets, *self.feed, *self.parts, *self.masks]


def aged_to(catalog: Catalog, of: Published, commit_id: int) -> int | None:
    """The first instant whose answer was still whole as of a commit; None: no result had been aged out."""
    with catalog.reading() as connection:
        return streams.aged_to_at(connection, of.stream_id, commit_id)


def due(catalog: Catalog, of: Published, retention: Retention, held: int | None = None) -> AgedResults | None:
    """What is due; None when nothing is. `held`: where that begins which other queries have still to read."""
    with catalog.reading() as connection:
        return _due(connection, of.stream_id, of.frontier, retention, held)


def commit_ageing(
    catalog: Catalog,
    of: Published,
    retention: Retention,
    aged: AgedResults,
    cause: Cause,
    *,
    held: int | None = None,
    seen: int | None = None,
) -> int:
    """Drop what was found due. `seen`: the commit as of which it was looked up what others have still to read."""
    with catalog.writing() as connection:
        row = streams.lock(connection, of.stream_id)
        # Looked at again under the lock: an evaluation may have merged buckets, and the archive may have ended.
        if row.removed_in is not None or _due(connection, of.stream_id, row.stable, retention, held) != aged:
            raise BasisMovedError
        check_no_new_readers(connection, seen)
        gone = aged.gone
        summary: dict[str, object] = {
            "query": of.name,
            "dropped_buckets": len(gone),
            "dropped_rows": aged.rows,
            "dropped_bytes": sum(each.size for each in gone),
        }
        if aged.aged_to is not None:
            summary["to"] = aged.aged_to - 1
        commit_id = commits.take(connection, catalog.clock.now(), cause, stream_id=of.stream_id, summary=summary)
        buckets.remove(connection, [each.bucket_id for each in gone], commit_id)
        connection.execute(
            update(streams_table)
            .where(streams_table.c.stream_id == of.stream_id)
            .values(
                rows=streams_table.c.rows - aged.rows,
                aged_to=aged.aged_to,
                inline_bytes=streams_table.c.inline_bytes - sum(each.size for each in gone if each.inline),
                changed_in=commit_id,
            )
        )
        streams.record_position(connection, of.stream_id, commit_id)
        return commit_id


def _due(
    connection: Connection, stream_id: int, frontier: int, retention: Retention, held: int | None
) -> AgedResults | None:
    base = buckets.live(connection, stream_id, Role.BASE)
    standing = buckets.live(connection, stream_id, Role.OPEN, Role.TIP)
    masks = buckets.live(connection, stream_id, Role.MASK)
    youngest_first = sorted(((each.vs_min, each.rows) for each in (*base, *standing)), reverse=True)
    kept_from = ageing.kept_from(_sparing(retention, masks), frontier, youngest_first)
    if kept_from is None:
        return None
    kept_from = kept_from if held is None else min(kept_from, held)
    found = ageing.results_due(base, kept_from)
    former = streams.aged_to_now(connection, stream_id)
    aged_to = ageing.results_aged_to(found, former)
    feed = [each for each in buckets.live(connection, stream_id, Role.FEED) if each.vs_max < kept_from]
    # What is kept of windows, and of what results were made of, stays as long as the results do.
    kept = buckets.live(connection, stream_id, Role.PARTS, Role.LINEAGE)
    parts = [each for each in kept if aged_to is not None and each.vs_max < aged_to]
    if not found and not feed and not parts:
        return None
    staying = masking(masks, [*(each for each in base if each not in found), *standing])
    idle = [each for each in masks if each not in staying]
    return AgedResults(found, feed, parts, idle, aged_to)


def _sparing(retention: Retention, masks: Sequence[Bucket]) -> Retention:
    """A retention by which so many rows stay that are not masked, whichever the masks are of."""
    masked = sum(each.rows for each in masks)
    return retention if retention.rows is None else replace(retention, rows=retention.rows + masked)
