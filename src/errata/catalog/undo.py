"""Undo in the ledger: finding the batch that a user names, and the transaction that enters an undo.

An undo is a batch of its own, whose id is that of the undone one with a prefix. Its commit enters it and makes its
revisions pending; they are applied like all others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Row, func, select

from errata.catalog import buckets, ledger, streams
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.database import Catalog
from errata.catalog.streams import StreamState
from errata.catalog.tables import batch_files, batches, quarantine
from errata.catalog.tables import buckets as buckets_table
from errata.catalog.tables import commits as commits_table
from errata.catalog.transaction import BasisConflict, BatchConflict, Transaction, lock_basis
from errata.errors import RefusedError, UsageError, candidates_text
from errata.model.batch import MAX_BATCH_ID, Batch, BatchCounts
from errata.model.bucket import Bucket, NewBucket, Role
from errata.model.commit import Cause
from errata.model.time import EVERYTHING, LOWEST, Interval

if TYPE_CHECKING:
    from errata.catalog.feeds import FeedChange

SHOWN_CANDIDATES = 20
"""The newest batches that an error message names as candidates, at most."""

_UNDO_PREFIX = "undo-"


@dataclass(frozen=True, slots=True)
class UndoCandidate:
    """A batch that may be undone."""

    batch_no: int
    batch_id: str
    commit_id: int
    undone_in: int | None
    """The commit in which it has been undone."""
    on_time: Interval | None
    """The interval of the rows that it brought into the archive; None when there are none."""
    quarantined: int
    """Its rows that are in quarantine."""

    @property
    def undo_id(self) -> str:
        """The id of the batch that undoes it."""
        whole = _UNDO_PREFIX + self.batch_id
        return (
            whole if len(whole) <= MAX_BATCH_ID else _UNDO_PREFIX + hashlib.sha256(self.batch_id.encode()).hexdigest()
        )


def find_undo_candidate(catalog: Catalog, stream_id: int, said: str) -> UndoCandidate:
    """The batch with this id, or the only one whose id begins with it. For a batch that was undone and taken in again
    this is the last take."""
    of_stream = select(batches).where(batches.c.stream_id == stream_id)
    with catalog.reading() as connection:
        found = list(connection.execute(of_stream.where(batches.c.batch_id == said)))
        if not found and said:
            beginning = batches.c.batch_id.startswith(said, autoescape=True)
            found = list(
                connection.execute(of_stream.where(beginning).order_by(batches.c.batch_no).limit(SHOWN_CANDIDATES))
            )
        first = found[0].batch_no if found else None
        if any(first not in (row.batch_no, row.again_of) for row in found):
            raise _no_single_batch(connection, stream_id, said, [row.batch_id for row in found])
        if not found:
            raise _no_single_batch(connection, stream_id, said, [])
        row = _last_take(connection, stream_id, found[0])
        undo = select(batches.c.commit_id).where(batches.c.stream_id == stream_id, batches.c.undoes == row.batch_no)
        summary = connection.execute(
            select(commits_table.c.summary).where(commits_table.c.commit_id == row.commit_id)
        ).scalar_one()
        bad = select(func.count()).where(quarantine.c.batch_no == row.batch_no, quarantine.c.state == "held")
        return UndoCandidate(
            row.batch_no,
            row.batch_id,
            row.commit_id,
            connection.execute(undo).scalar(),
            EVERYTHING if _is_merged(connection, row.batch_no) else _on_time_span(row.counts, summary),
            int(connection.execute(bad).scalar_one()),
        )


def _last_take(connection: Connection, stream_id: int, first: Row[Any]) -> Row[Any]:
    """The first take of a batch, unless it is undone: then the last one."""
    takes = select(batches).where(batches.c.stream_id == stream_id, batches.c.again_of == first.batch_no)
    later = connection.execute(takes.order_by(batches.c.batch_no)).all()
    if not later or not ledger.undo_commits(connection, stream_id, [first.batch_no]):
        return first
    return later[-1]


def _is_merged(connection: Connection, batch_no: int) -> bool:
    """Whether a batch is of feeds: the merge may have brought its rows into the archive with a later one."""
    said = select(batch_files.c.feed).where(batch_files.c.batch_no == batch_no, batch_files.c.feed.is_not(None))
    return connection.execute(said.limit(1)).first() is not None


def _on_time_span(counts: Mapping[str, int], summary: Mapping[str, int]) -> Interval | None:
    if not counts.get("appended"):
        return None
    if "from" not in summary or "to" not in summary:
        return EVERYTHING
    return Interval(summary["from"], summary["to"] + 1)


def _no_single_batch(connection: Connection, stream_id: int, said: str, found: Sequence[str]) -> UsageError:
    if found:
        return UsageError(f"more than one batch begins with {said!r}", how="one of " + ", ".join(found))
    newest = select(batches.c.batch_id).where(batches.c.stream_id == stream_id)
    there = list(connection.execute(newest.order_by(batches.c.batch_no.desc()).limit(SHOWN_CANDIDATES)).scalars())
    return UsageError(
        f"unknown batch {said!r}", how=candidates_text(said, there) + ("; `errata log` lists them" if there else "")
    )


def undo_batches(catalog: Catalog, stream_id: int) -> dict[int, int]:
    """The batches of a stream that undid others: the number of the undo and of the undone batch."""
    query = select(batches.c.batch_no, batches.c.undoes)
    query = query.where(batches.c.stream_id == stream_id, batches.c.undoes.is_not(None))
    with catalog.reading() as connection:
        return {row.batch_no: row.undoes for row in connection.execute(query)}


@dataclass(frozen=True, slots=True)
class UndoCommit:
    """An undo whose revisions are written and wait to become visible."""

    undoable: UndoCandidate
    buckets: Sequence[NewBucket]
    withdrawn: Sequence[Bucket]
    """Pending revisions of the undone batch, which will never be applied."""
    summary: Mapping[str, object]


def commit_undo(catalog: Catalog, basis: StreamState, undoing: UndoCommit, cause: Cause) -> int:
    """Commit the revisions of an undo that was worked out on `basis`, and return the commit's number."""
    undoable = undoing.undoable
    with catalog.writing() as connection:
        now = lock_basis(connection, basis.stream_id)
        if is_in_ledger(connection, basis.stream_id, undoable.undo_id):
            raise BatchConflict
        _recheck_undo(connection, now, basis)
        count = sum(bucket.rows for bucket in undoing.buckets)
        content = hashlib.sha256(undoable.undo_id.encode()).hexdigest()
        counts = BatchCounts(read=count, pending=count)
        entry = Batch(undoable.undo_id, content, counts=counts, undoes=undoable.batch_no)
        batch_no = ledger.insert_batch(connection, basis.stream_id, entry)
        # When nothing is left pending, all revisions that were ever numbered are settled.
        withdrawn = sum(bucket.rows for bucket in undoing.withdrawn)
        settled = not count and _count_pending(connection, basis.stream_id) == withdrawn
        merge = MergeRestart.after(connection, basis, undoable.batch_no)
        return Transaction(
            cause=cause,
            summary=undoing.summary,
            archive=now,
            batch_id=undoable.undo_id,
            batch_no=batch_no,
            removes=undoing.withdrawn,
            deletes=merge.former,
            adds=[BucketAddition(undoing.buckets, batch_no)],
            state={"applied": now.revisions if settled else now.applied},
            feeds=merge.change,
        ).commit(connection, catalog.clock.now())


@dataclass(frozen=True, slots=True)
class MergeRestart:
    """What an undo changes of a merge. The state that it goes on from has been decided with the rows that are undone,
    so the next batch makes it anew from the archive. The feeds of the undone batch may say again what they said."""

    former: Sequence[Bucket] = ()
    change: FeedChange | None = None

    @classmethod
    def after(cls, connection: Connection, basis: StreamState, batch_no: int) -> MergeRestart:
        if basis.stream.merged.is_empty:
            return cls()
        from errata.catalog.feeds import FeedChange, feeds_within  # noqa: PLC0415 - most streams have no feeds

        files = select(batch_files.c.feed).where(batch_files.c.batch_no == batch_no)
        said = set(connection.execute(files).scalars())
        anew = [
            replace(each, top_order=LOWEST, top_rows=0, stable=LOWEST if each.name in said else each.stable)
            for each in feeds_within(connection, basis.stream_id)
        ]
        return cls(buckets.live_buckets(connection, basis.stream_id, Role.MERGE), FeedChange(anew))


def check_undo_id_free(catalog: Catalog, stream_id: int, undoable: UndoCandidate) -> None:
    """Refuse an undo whose id is that of a batch that is no undo."""
    with catalog.reading() as connection:
        if not is_in_ledger(connection, stream_id, undoable.undo_id):
            return
    raise RefusedError(
        f"batch {undoable.batch_id} cannot be undone",
        why=f"a batch {undoable.undo_id} was taken in, and the undo would bear the same id",
        how="correct its rows with a file of revisions",
    )


def is_in_ledger(connection: Connection, stream_id: int, batch_id: str) -> bool:
    """Whether the transaction sees a batch with this id."""
    query = select(batches.c.batch_no).where(batches.c.stream_id == stream_id, batches.c.batch_id == batch_id)
    return connection.execute(query).first() is not None


def _recheck_undo(connection: Connection, now: Row[Any], basis: StreamState) -> None:
    """Raise if rows may not be as they were found any more. Commits that only bring new ones do not matter."""
    if now.changed_in == basis.changed_in:
        return
    there = (basis.applied, basis.revisions, basis.aged_to)
    if (now.applied, now.revisions, now.aged_to) != there:
        raise BasisConflict
    if streams.is_declared_since(connection, basis.stream_id, basis.changed_in):
        raise BasisConflict
    if buckets.is_removed_since(connection, basis.stream_id, basis.changed_in, LOWEST):
        raise BasisConflict


def pending_buckets(catalog: Catalog, basis: StreamState, batch_no: int) -> list[Bucket]:
    """The pending buckets of a batch."""
    pending = buckets.visible_buckets(catalog, basis.stream_id, basis.changed_in, role=Role.PENDING)
    return [bucket for bucket in pending if bucket.batch_no == batch_no]


def batch_ids(catalog: Catalog, numbers: Sequence[int]) -> list[str]:
    """The ids of batches, in the order in which they were taken in."""
    query = select(batches.c.batch_id).where(batches.c.batch_no.in_(numbers)).order_by(batches.c.batch_no)
    with catalog.reading() as connection:
        return list(connection.execute(query).scalars())


def pending_revisions(catalog: Catalog, stream_id: int) -> int:
    """The number of revisions of a stream that are pending now."""
    with catalog.reading() as connection:
        return _count_pending(connection, stream_id)


def _count_pending(connection: Connection, stream_id: int) -> int:
    query = select(func.sum(buckets_table.c.rows)).where(
        buckets_table.c.stream_id == stream_id,
        buckets_table.c.role == Role.PENDING.value,
        buckets_table.c.removed_in.is_(None),
    )
    return int(connection.execute(query).scalar() or 0)
