"""The transaction that settles revisions: overlays, what was wrong, what still waits, all or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, update

from errata.catalog import buckets, commits, quarantine, streams
from errata.catalog.append import BasisMovedError
from errata.catalog.open import Catalog
from errata.catalog.streams import Standing
from errata.catalog.tables import streams as streams_table
from errata.model.batch import BadRevision, Settled
from errata.model.bucket import Bucket, NewBucket
from errata.model.commit import Cause
from errata.model.interval import Interval


@dataclass(frozen=True, slots=True)
class Decided:
    """What is to become of the revisions that were claimed."""

    claimed: Sequence[Bucket]
    """The pending buckets that held them: a prefix of all that is pending."""
    overlays: Sequence[NewBucket]
    waiting: Sequence[tuple[int, NewBucket]]
    """What still waits, to be numbered anew, by the number of its batch."""
    bad: Sequence[BadRevision]
    settled: Settled
    masked: Mapping[int, int]
    """How many rows of which bucket are superseded now."""
    reach: Interval | None
    """Where the rows lie that were looked at; None for everywhere."""

    @property
    def settles(self) -> bool:
        """Whether anything would change: revisions that only go on waiting are left as they are."""
        return self.count > self.settled.waiting

    @property
    def count(self) -> int:
        """How many revisions were claimed."""
        return sum(bucket.rows for bucket in self.claimed)

    @property
    def last(self) -> int:
        """The number of the last revision that was claimed."""
        return max(bucket.revision_last or 0 for bucket in self.claimed)


def commit_revisions(catalog: Catalog, basis: Standing, decided: Decided, cause: Cause, batch_id: str | None) -> int:
    """Commit what was decided on `basis`, and return the commit's number."""
    with catalog.writing() as connection:
        now = streams.locked_standing(connection, basis.stream_id)
        if now is None:
            raise BasisMovedError
        _recheck(connection, now, basis, decided)
        quarantine.hold_revisions(connection, basis.stream_id, decided.bad)
        commit_id = commits.take(
            connection,
            catalog.clock.now(),
            cause,
            stream_id=basis.stream_id,
            batch_id=batch_id,
            summary=_summary(decided),
        )
        if buckets.remove(connection, [each.bucket_id for each in decided.claimed], commit_id) != len(decided.claimed):
            raise BasisMovedError
        inline = buckets.add(connection, basis.stream_id, None, commit_id, decided.overlays)
        inline -= sum(each.size for each in decided.claimed if each.inline)
        revisions = now.revisions
        for batch_no, bucket in decided.waiting:
            inline += buckets.add(connection, basis.stream_id, batch_no, commit_id, [bucket], revisions)
            revisions += bucket.rows
        buckets.mask(connection, decided.masked)
        settled = decided.settled
        connection.execute(
            update(streams_table)
            .where(streams_table.c.stream_id == basis.stream_id)
            .values(
                rows=streams_table.c.rows + settled.inserted - settled.deleted,
                inline_bytes=streams_table.c.inline_bytes + inline,
                revisions=revisions,
                applied=decided.last,
                changed_in=commit_id,
            )
        )
        streams.record_position(connection, basis.stream_id, commit_id)
        return commit_id


def _recheck(connection: Connection, now: Standing, basis: Standing, decided: Decided) -> None:
    """Whether the rows that were found are still the live ones: only who came first can have changed that."""
    if now.changed_in == basis.changed_in:
        return
    if now.applied != basis.applied or now.aged_to != basis.aged_to:
        raise BasisMovedError
    if streams.declared_since(connection, basis.stream_id, basis.changed_in):
        raise BasisMovedError
    if decided.settled.ignored:
        return  # no row was looked at
    if decided.waiting and now.revisions != basis.revisions:
        raise BasisMovedError  # what waits is numbered behind all that was there when it was decided
    if decided.reach is None:
        raise BasisMovedError
    low, high = decided.reach.start, decided.reach.end - 1
    if buckets.overlapping_since(connection, basis.stream_id, basis.changed_in, low, high):
        raise BasisMovedError
    if buckets.removed_since(connection, basis.stream_id, basis.changed_in, low):
        raise BasisMovedError


def _summary(decided: Decided) -> dict[str, object]:
    counts = {name: count for name, count in asdict(decided.settled).items() if count}
    first = min(bucket.revision_first or 0 for bucket in decided.claimed)
    return counts | {"first_revision": first, "last_revision": decided.last}
