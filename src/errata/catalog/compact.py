"""The transaction that puts rewritten buckets in the place of those that they were made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select, update

from errata.catalog import buckets, commits, consumers, streams
from errata.catalog.append import BasisMovedError
from errata.catalog.open import Catalog
from errata.catalog.streams import Standing
from errata.catalog.tables import buckets as buckets_table
from errata.catalog.tables import streams as streams_table
from errata.model.bucket import Bucket, NewBucket
from errata.model.commit import Cause

AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Compacted:
    """What compaction has made, and of what."""

    replaced: Sequence[Bucket]
    """Base buckets that the new ones stand for."""
    folded: Sequence[Bucket]
    """Overlays that are worked in, whole."""
    written: Sequence[NewBucket]
    masked: Sequence[int]
    """For each new bucket how many of its rows are superseded by revisions that are still to be worked in."""
    up_to: int
    """The last revision that was worked in; 0 for none."""

    @property
    def gone(self) -> list[Bucket]:
        return [*self.replaced, *self.folded]


def foldable(catalog: Catalog, basis: Standing) -> int:
    """The last revision that may be worked in: none that a live query has still to consume."""
    with catalog.reading() as connection:
        consumed = consumers.consumed(connection, basis.stream_id)
    return basis.applied if consumed is None else min(basis.applied, consumed)


def commit_compaction(catalog: Catalog, basis: Standing, made: Compacted, cause: Cause) -> int:
    """Commit a compaction that was made on `basis`, if all that it stands for is still there."""
    with catalog.writing() as connection:
        _recheck(connection, basis, made)
        gone = [bucket.bucket_id for bucket in made.gone]
        commit_id = commits.take(
            connection, catalog.clock.now(), cause, stream_id=basis.stream_id, summary=_summary(made)
        )
        if buckets.remove(connection, gone, commit_id) != len(gone):
            raise BasisMovedError
        inline = buckets.add(connection, basis.stream_id, None, commit_id, made.written, masked=made.masked)
        inline -= sum(bucket.size for bucket in made.gone if bucket.inline)
        connection.execute(
            update(streams_table)
            .where(streams_table.c.stream_id == basis.stream_id)
            .values(
                inline_bytes=streams_table.c.inline_bytes + inline,
                folded=max(basis.folded, made.up_to),
                changed_in=commit_id,
            )
        )
        streams.record_position(connection, basis.stream_id, commit_id)
        return commit_id


def _recheck(connection: Connection, basis: Standing, made: Compacted) -> None:
    """Whether what was rewritten is what would be rewritten now. Batches and corrections of other rows may have come:
    they are laid over the new buckets as they would be over the old."""
    now = streams.locked_standing(connection, basis.stream_id)
    if now is None or now.aged_to != basis.aged_to or now.folded != basis.folded:
        raise BasisMovedError
    if streams.declared_since(connection, basis.stream_id, basis.changed_in):
        raise BasisMovedError
    consumed = consumers.consumed(connection, basis.stream_id)
    if consumed is not None and consumed < made.up_to:
        raise BasisMovedError  # who came meanwhile still has to consume what was worked in
    if _masked(connection, made.gone) != sum(bucket.masked for bucket in made.gone):
        raise BasisMovedError  # rows of them have been corrected, and were counted where they no longer are


def _masked(connection: Connection, found: Iterable[Bucket]) -> int:
    wanted = [bucket.bucket_id for bucket in found]
    total = 0
    for start in range(0, len(wanted), AT_ONCE):
        some = buckets_table.c.bucket_id.in_(wanted[start : start + AT_ONCE])
        total += int(
            connection.execute(select(func.coalesce(func.sum(buckets_table.c.masked), 0)).where(some)).scalar_one()
        )
    return total


def _summary(made: Compacted) -> dict[str, object]:
    return {
        "rewritten": len(made.replaced),
        "into": len(made.written),
        "folded": len(made.folded),
        "revisions": sum(bucket.rows for bucket in made.folded),
        "rows": sum(bucket.rows for bucket in made.written),
        "bytes_before": sum(bucket.size for bucket in made.gone),
        "bytes": sum(bucket.size for bucket in made.written),
    }
