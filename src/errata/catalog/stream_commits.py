"""The transactions that append a batch and that settle revisions, each all or nothing.

Both were decided on a state of the stream, the basis, and check under the lock on the stream's row that the decision
still holds; else they raise a `Conflict`. An append checks that rows judged late, on time or new still are; settling
checks that the rows that were found are still the live ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row
from sqlalchemy.exc import IntegrityError

from errata.catalog import buckets, ledger, quarantine, streams
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.database import Catalog
from errata.catalog.quarantine import QuarantineState
from errata.catalog.streams import StreamState
from errata.catalog.transaction import BasisConflict, BatchConflict, FilesConflict, Transaction, lock_basis
from errata.model.batch import BadRevision, Batch, RevisionCounts
from errata.model.bucket import Bucket, NewBucket, Role
from errata.model.commit import Cause
from errata.model.stream import DuplicatePolicy
from errata.model.time import LOWEST, Interval

if TYPE_CHECKING:
    from errata.catalog.feeds import FeedChange
    from errata.catalog.merge_commits import MergeCommit


def commit_append(
    catalog: Catalog,
    basis: StreamState,
    arrived: Batch,
    cause: Cause,
    merged: MergeCommit | None = None,
    settled: FeedChange | None = None,
) -> int:
    """Commit a batch that was arranged on `basis`, and return the commit's number. `merged`: what else there is of a
    batch of feeds; `settled`: what corrections by a person settle of feeds' disagreements."""
    with catalog.writing() as connection:
        now = streams.lock_stream(connection, basis.stream_id)
        # First the ledger: nothing else has to be checked for a batch that is in it.
        brought = ledger.deliveries_within(connection, basis.stream_id, arrived.guarded)
        known = {each.batch_no for each in arrived.earlier}
        if any(each.batch_no not in known and each.batch_id != arrived.batch_id for each in brought):
            raise FilesConflict
        batch_no = _insert_batch(connection, basis, arrived)
        if merged is None:
            _recheck_append(connection, now, basis, arrived)
        else:
            merged.recheck(connection, now, basis)
        quarantine.quarantine_rows(connection, basis.stream_id, batch_no, arrived.bad)
        commit_id = Transaction(
            cause=cause,
            summary=_append_summary(arrived) | ({} if merged is None else merged.summary),
            archive=now,
            batch_id=arrived.batch_id,
            batch_no=batch_no,
            deletes=() if merged is None else merged.former,
            # What earlier batches said comes before what this one says.
            adds=[*_released(arrived), BucketAddition(arrived.buckets, batch_no)],
            state=_state_after(now, basis, arrived) if merged is None else merged.state_after(now, arrived),
            feeds=settled if merged is None else merged.change,
        ).commit(connection, catalog.clock.now())
        quarantine.settle_rows(connection, arrived.retried, QuarantineState.RETRIED, commit_id)
        return commit_id


def _released(arrived: Batch) -> list[BucketAddition]:
    by_batch: dict[int, list[NewBucket]] = {}
    for batch_no, bucket in arrived.released:
        by_batch.setdefault(batch_no, []).append(bucket)
    return [BucketAddition(some, batch_no) for batch_no, some in sorted(by_batch.items())]


def _recheck_append(connection: Connection, now: Row[Any], basis: StreamState, arrived: Batch) -> None:
    """Raise if rows judged late, on time or new may not be any more: other commits can have changed that."""
    if now.removed_in is not None:
        raise BasisConflict
    if now.changed_in == basis.changed_in:
        return
    if not basis.stream.key_has_order or basis.stream.ordered_on_arrival:
        raise BasisConflict
    redeclared = streams.is_declared_since(connection, basis.stream_id, basis.changed_in)
    if redeclared:
        raise BasisConflict
    gone = buckets.is_removed_since(connection, basis.stream_id, basis.changed_in, _stable_or_lowest(basis))
    moved = gone or now.stable != basis.stable or now.applied != basis.applied
    if moved and _was_compared(basis, arrived):
        raise BasisConflict
    if arrived.on_time is None:
        return
    low, high = arrived.on_time
    late_now = now.stable is not None and low < now.stable
    if late_now or buckets.is_added_since(connection, basis.stream_id, basis.changed_in, low, high):
        raise BasisConflict


def _stable_or_lowest(basis: StreamState) -> int:
    return LOWEST if basis.stable is None else basis.stable


def _was_compared(basis: StreamState, arrived: Batch) -> bool:
    """Whether rows may have been compared with the archive that would now be late, and so be compared with nothing."""
    counts = arrived.counts
    replacing = counts.pending if basis.stream.on_duplicate is DuplicatePolicy.REPLACE else 0
    return counts.dropped + counts.replaced + counts.quarantined + replacing > 0


def _insert_batch(connection: Connection, basis: StreamState, arrived: Batch) -> int:
    try:
        return ledger.insert_batch(connection, basis.stream_id, arrived)
    except IntegrityError:
        raise BatchConflict from None


def _state_after(now: Row[Any], basis: StreamState, arrived: Batch) -> dict[str, int | None]:
    """Rows that came late move neither the newest instant nor the stable point."""
    rows = now.rows + arrived.counts.appended
    if arrived.on_time is None:
        return {"rows": rows}
    newest = arrived.on_time[1]
    vs_max = max(newest, newest if now.vs_max is None else now.vs_max)
    stable = max(vs_max - basis.stream.slack, LOWEST if now.stable is None else now.stable)
    return {"rows": rows, "vs_max": vs_max, "stable": stable}


def _append_summary(arrived: Batch) -> dict[str, object]:
    counts = {name: count for name, count in asdict(arrived.counts).items() if count or name == "appended"}
    made = [bucket for bucket in arrived.all_buckets if bucket.role is Role.BASE]
    inline = sum(bucket.data is not None for bucket in made)
    span = {"from": arrived.on_time[0], "to": arrived.on_time[1]} if arrived.on_time else {}
    return counts | {"files": len(arrived.files), "buckets": len(made), "inline": inline} | span


@dataclass(frozen=True, slots=True)
class RevisionCommit:
    """The outcome of the revisions that were claimed."""

    claimed: Sequence[Bucket]
    """The pending buckets that hold them: a prefix of all that is pending."""
    overlays: Sequence[NewBucket]
    waiting: Sequence[tuple[int, NewBucket]]
    """Revisions that go on waiting, with the number of their batch. They are numbered anew."""
    bad: Sequence[BadRevision]
    counts: RevisionCounts
    masked: Mapping[int, int]
    """How many more rows of which bucket are superseded."""
    reach: Interval | None
    """The interval of the rows that were read; None for everything."""

    @property
    def settles(self) -> bool:
        """Whether anything would change. Revisions that only go on waiting are left as they are."""
        return self.count > self.counts.waiting

    @property
    def count(self) -> int:
        """How many revisions were claimed."""
        return sum(bucket.rows for bucket in self.claimed)

    @property
    def last(self) -> int:
        """The number of the last revision that was claimed."""
        return max(bucket.revision_last or 0 for bucket in self.claimed)


def commit_revisions(
    catalog: Catalog, basis: StreamState, decided: RevisionCommit, cause: Cause, batch_id: str | None
) -> int:
    """Commit what was decided on `basis`, and return the commit's number."""
    with catalog.writing() as connection:
        now = lock_basis(connection, basis.stream_id)
        _recheck_revisions(connection, now, basis, decided)
        quarantine.quarantine_revisions(connection, basis.stream_id, decided.bad)
        settled = decided.counts
        waiting = [BucketAddition([bucket], batch_no) for batch_no, bucket in decided.waiting]
        return Transaction(
            cause=cause,
            summary=_revision_summary(decided),
            archive=now,
            batch_id=batch_id,
            removes=decided.claimed,
            adds=[BucketAddition(decided.overlays), *waiting],
            masks=decided.masked,
            state={"rows": now.rows + settled.inserted - settled.deleted, "applied": decided.last},
        ).commit(connection, catalog.clock.now())


def _recheck_revisions(connection: Connection, now: Row[Any], basis: StreamState, decided: RevisionCommit) -> None:
    """Raise if the rows that were found may not be the live ones any more: other commits can have changed that."""
    if now.changed_in == basis.changed_in:
        return
    if now.applied != basis.applied or now.aged_to != basis.aged_to:
        raise BasisConflict
    if streams.is_declared_since(connection, basis.stream_id, basis.changed_in):
        raise BasisConflict
    if decided.counts.ignored:
        return  # no row was read
    if decided.waiting and now.revisions != basis.revisions:
        raise BasisConflict  # waiting revisions are numbered after all that there were when this was decided
    if decided.reach is None:
        raise BasisConflict
    low, high = decided.reach.start, decided.reach.end - 1
    if buckets.is_added_since(connection, basis.stream_id, basis.changed_in, low, high):
        raise BasisConflict
    if buckets.is_removed_since(connection, basis.stream_id, basis.changed_in, low):
        raise BasisConflict


def _revision_summary(decided: RevisionCommit) -> dict[str, object]:
    counts = {name: count for name, count in asdict(decided.counts).items() if count}
    first = min(bucket.revision_first or 0 for bucket in decided.claimed)
    return counts | {"first_revision": first, "last_revision": decided.last}
