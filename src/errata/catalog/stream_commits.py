"""The transaction that takes a batch in: index rows, ledger, quarantine and stable point, all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Row, update
from sqlalchemy.exc import IntegrityError

from errata.catalog import buckets, commits, ledger, quarantine, streams
from errata.catalog.database import Catalog
from errata.catalog.quarantine import QuarantineState
from errata.catalog.streams import StreamState
from errata.catalog.tables import streams as streams_table
from errata.model.batch import BadRevision, BadRow, BatchCounts, Op, ReadSplit, RevisionCounts, SourceFile
from errata.model.bucket import Bucket, NewBucket, Role
from errata.model.commit import Cause
from errata.model.stream import DuplicatePolicy
from errata.model.time import LOWEST, Interval


@dataclass(frozen=True, slots=True)
class AppendCommit:
    """A batch whose buckets are written and wait to become visible."""

    batch_id: str
    content_hash: str
    files: Sequence[SourceFile]
    splits: Sequence[ReadSplit]
    counts: BatchCounts
    buckets: Sequence[NewBucket]
    bad: Iterable[BadRow]
    on_time: tuple[int, int] | None
    """The least and greatest order field of what was on time; None when nothing was."""
    guarded: frozenset[str] = frozenset()
    """Contents that no batch may have brought besides those in `known`."""
    known: frozenset[int] = frozenset()
    """The batches that had brought one of these contents when it was decided what to take in."""
    again_of: int | None = None
    """The batch of which it is another take."""
    default_op: Op = Op.INSERT
    """What its rows did that did not say."""
    retried: Sequence[int] = ()
    """The rows of quarantine that are taken in again by it."""


class BasisConflict(Exception):
    """Another writer moved the stream in a way that what was decided on its old standing no longer holds."""


class BatchConflict(Exception):
    """Another writer has just taken in a batch of the same id."""


class FilesConflict(Exception):
    """Another writer has just taken in some of the files, or equal ones, in another batch."""


def commit_append(catalog: Catalog, basis: StreamState, arrived: AppendCommit, cause: Cause) -> int:
    """Commit a batch that was arranged on `basis`, and return the commit's number."""
    with catalog.writing() as connection:
        now = streams.lock_stream(connection, basis.stream_id)
        # First the ledger: a batch that is in it needs no second look at anything.
        brought = ledger.deliveries_within(connection, basis.stream_id, arrived.guarded)
        if any(each.batch_no not in arrived.known and each.batch_id != arrived.batch_id for each in brought):
            raise FilesConflict
        batch_no = _insert_batch(connection, basis, arrived)
        _recheck_append(connection, now, basis, arrived)
        quarantine.quarantine_rows(connection, basis.stream_id, batch_no, arrived.bad)
        commit_id = commits.record_commit(
            connection,
            catalog.clock.now(),
            cause,
            stream_id=basis.stream_id,
            batch_id=arrived.batch_id,
            summary=_append_summary(arrived),
        )
        ledger.set_batch_commit(connection, batch_no, commit_id)
        quarantine.settle_rows(connection, arrived.retried, QuarantineState.RETRIED, commit_id)
        _add_to_stream(connection, now, basis, arrived, batch_no, commit_id)
        return commit_id


def _recheck_append(connection: Connection, now: Row[Any], basis: StreamState, arrived: AppendCommit) -> None:
    """Whether rows judged late, on time or new still are: only what came in meanwhile can change that."""
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


def _was_compared(basis: StreamState, arrived: AppendCommit) -> bool:
    """Whether rows may have been compared with the archive that would be late, and compared with nothing, now."""
    counts = arrived.counts
    replacing = counts.pending if basis.stream.on_duplicate is DuplicatePolicy.REPLACE else 0
    return counts.dropped + counts.replaced + counts.quarantined + replacing > 0


def _insert_batch(connection: Connection, basis: StreamState, arrived: AppendCommit) -> int:
    try:
        return ledger.insert_batch(
            connection,
            basis.stream_id,
            arrived.batch_id,
            arrived.content_hash,
            arrived.files,
            arrived.splits,
            arrived.counts,
            arrived.default_op,
            arrived.again_of,
        )
    except IntegrityError:
        raise BatchConflict from None


def _add_to_stream(
    connection: Connection, now: Row[Any], basis: StreamState, arrived: AppendCommit, batch_no: int, commit_id: int
) -> None:
    inline = buckets.add_buckets(
        connection, basis.stream_id, batch_no, commit_id, arrived.buckets, now.revisions, now.applied
    )
    pending = sum(bucket.rows for bucket in arrived.buckets if bucket.role is Role.PENDING)
    vs_max, stable = now.vs_max, now.stable
    if arrived.on_time is not None:
        vs_max = max(arrived.on_time[1], vs_max if vs_max is not None else arrived.on_time[1])
        stable = max(vs_max - basis.stream.slack, LOWEST if stable is None else stable)
    connection.execute(
        update(streams_table)
        .where(streams_table.c.stream_id == basis.stream_id)
        .values(
            stable=stable,
            vs_max=vs_max,
            rows=streams_table.c.rows + arrived.counts.appended,
            inline_bytes=streams_table.c.inline_bytes + inline,
            revisions=streams_table.c.revisions + pending,
            changed_in=commit_id,
        )
    )
    streams.record_position(connection, basis.stream_id, commit_id)


def _append_summary(arrived: AppendCommit) -> dict[str, object]:
    counts = {name: count for name, count in asdict(arrived.counts).items() if count or name == "appended"}
    made = [bucket for bucket in arrived.buckets if bucket.role is Role.BASE]
    inline = sum(bucket.data is not None for bucket in made)
    span = {"from": arrived.on_time[0], "to": arrived.on_time[1]} if arrived.on_time else {}
    return counts | {"files": len(arrived.files), "buckets": len(made), "inline": inline} | span


# The transaction that settles revisions: overlays, what was wrong, what still waits, all or nothing.


@dataclass(frozen=True, slots=True)
class RevisionCommit:
    """What is to become of the revisions that were claimed."""

    claimed: Sequence[Bucket]
    """The pending buckets that held them: a prefix of all that is pending."""
    overlays: Sequence[NewBucket]
    waiting: Sequence[tuple[int, NewBucket]]
    """What still waits, to be numbered anew, by the number of its batch."""
    bad: Sequence[BadRevision]
    settled: RevisionCounts
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


def commit_revisions(
    catalog: Catalog, basis: StreamState, decided: RevisionCommit, cause: Cause, batch_id: str | None
) -> int:
    """Commit what was decided on `basis`, and return the commit's number."""
    with catalog.writing() as connection:
        now = streams.lock_stream_state(connection, basis.stream_id)
        if now is None:
            raise BasisConflict
        _recheck_revisions(connection, now, basis, decided)
        quarantine.quarantine_revisions(connection, basis.stream_id, decided.bad)
        commit_id = commits.record_commit(
            connection,
            catalog.clock.now(),
            cause,
            stream_id=basis.stream_id,
            batch_id=batch_id,
            summary=_revision_summary(decided),
        )
        if buckets.remove_buckets(connection, [each.bucket_id for each in decided.claimed], commit_id) != len(
            decided.claimed
        ):
            raise BasisConflict
        inline = buckets.add_buckets(connection, basis.stream_id, None, commit_id, decided.overlays)
        inline -= sum(each.size for each in decided.claimed if each.inline)
        revisions = now.revisions
        for batch_no, bucket in decided.waiting:
            inline += buckets.add_buckets(connection, basis.stream_id, batch_no, commit_id, [bucket], revisions)
            revisions += bucket.rows
        buckets.count_masked(connection, decided.masked)
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


def _recheck_revisions(connection: Connection, now: StreamState, basis: StreamState, decided: RevisionCommit) -> None:
    """Whether the rows that were found are still the live ones: only who came first can have changed that."""
    if now.changed_in == basis.changed_in:
        return
    if now.applied != basis.applied or now.aged_to != basis.aged_to:
        raise BasisConflict
    if streams.is_declared_since(connection, basis.stream_id, basis.changed_in):
        raise BasisConflict
    if decided.settled.ignored:
        return  # no row was looked at
    if decided.waiting and now.revisions != basis.revisions:
        raise BasisConflict  # what waits is numbered behind all that was there when it was decided
    if decided.reach is None:
        raise BasisConflict
    low, high = decided.reach.start, decided.reach.end - 1
    if buckets.is_added_since(connection, basis.stream_id, basis.changed_in, low, high):
        raise BasisConflict
    if buckets.is_removed_since(connection, basis.stream_id, basis.changed_in, low):
        raise BasisConflict


def _revision_summary(decided: RevisionCommit) -> dict[str, object]:
    counts = {name: count for name, count in asdict(decided.settled).items() if count}
    first = min(bucket.revision_first or 0 for bucket in decided.claimed)
    return counts | {"first_revision": first, "last_revision": decided.last}
