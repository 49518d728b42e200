"""Undoing in the ledger: the batch that is meant, which batches undid others, and the transaction of a new undo."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from errata.catalog import buckets, commits, ledger, streams
from errata.catalog.append import AlreadyTakenError, BasisMovedError
from errata.catalog.open import Catalog
from errata.catalog.streams import Standing
from errata.catalog.tables import batches, quarantine
from errata.catalog.tables import buckets as buckets_table
from errata.catalog.tables import commits as commits_table
from errata.catalog.tables import streams as streams_table
from errata.errors import Refused, UsageError, candidates
from errata.model.batch import MAX_BATCH_ID, Counts
from errata.model.bucket import Bucket, NewBucket, Role
from errata.model.commit import Cause
from errata.model.interval import EVERYTHING, LOWEST, Interval

SHOWN = 20
"""Batches that are named as candidates: the newest."""

_UNDO = "undo-"


@dataclass(frozen=True, slots=True)
class Undoable:
    """A batch that may be undone."""

    batch_no: int
    batch_id: str
    commit_id: int
    undone_in: int | None
    """The commit in which it has been undone."""
    on_time: Interval | None
    """Where the rows lie that it brought into the archive; None when there are none."""
    quarantined: int
    """Its rows that are in quarantine."""

    @property
    def undo_id(self) -> str:
        """The id of the batch that undoes it."""
        whole = _UNDO + self.batch_id
        return whole if len(whole) <= MAX_BATCH_ID else _UNDO + hashlib.sha256(self.batch_id.encode()).hexdigest()


def find(catalog: Catalog, stream_id: int, said: str) -> Undoable:
    """The batch of this id, or the only one whose id begins so. Of one that was undone and taken in again, the last
    take is meant."""
    of_stream = select(batches).where(batches.c.stream_id == stream_id)
    with catalog.reading() as connection:
        found = list(connection.execute(of_stream.where(batches.c.batch_id == said)))
        if not found and said:
            beginning = batches.c.batch_id.startswith(said, autoescape=True)
            found = list(connection.execute(of_stream.where(beginning).order_by(batches.c.batch_no).limit(SHOWN)))
        first = found[0].batch_no if found else None
        if any(first not in (row.batch_no, row.again_of) for row in found):
            raise _not_one(connection, stream_id, said, [row.batch_id for row in found])
        if not found:
            raise _not_one(connection, stream_id, said, [])
        row = _last_standing(connection, stream_id, found[0])
        undo = select(batches.c.commit_id).where(batches.c.stream_id == stream_id, batches.c.undoes == row.batch_no)
        summary = connection.execute(
            select(commits_table.c.summary).where(commits_table.c.commit_id == row.commit_id)
        ).scalar_one()
        bad = select(func.count()).where(quarantine.c.batch_no == row.batch_no, quarantine.c.state == "held")
        return Undoable(
            row.batch_no,
            row.batch_id,
            row.commit_id,
            connection.execute(undo).scalar(),
            _on_time(row.counts, summary),
            int(connection.execute(bad).scalar_one()),
        )


def _last_standing(connection: Connection, stream_id: int, first: Row[Any]) -> Row[Any]:
    """Of the takes of a batch the first one, unless that is undone: then the last one."""
    takes = select(batches).where(batches.c.stream_id == stream_id, batches.c.again_of == first.batch_no)
    later = connection.execute(takes.order_by(batches.c.batch_no)).all()
    if not later or not ledger.undone_in(connection, stream_id, [first.batch_no]):
        return first
    return later[-1]


def _on_time(counts: Mapping[str, int], summary: Mapping[str, int]) -> Interval | None:
    if not counts.get("appended"):
        return None
    if "from" not in summary or "to" not in summary:
        return EVERYTHING
    return Interval(summary["from"], summary["to"] + 1)


def _not_one(connection: Connection, stream_id: int, said: str, found: Sequence[str]) -> UsageError:
    if found:
        return UsageError(f"more than one batch begins with {said!r}", how="one of " + ", ".join(found))
    newest = select(batches.c.batch_id).where(batches.c.stream_id == stream_id)
    there = list(connection.execute(newest.order_by(batches.c.batch_no.desc()).limit(SHOWN)).scalars())
    return UsageError(
        f"unknown batch {said!r}", how=candidates(said, there) + ("; `errata log` lists them" if there else "")
    )


def undoings(catalog: Catalog, stream_id: int) -> dict[int, int]:
    """The batches of a stream that undid others, by their numbers, and which."""
    query = select(batches.c.batch_no, batches.c.undoes)
    query = query.where(batches.c.stream_id == stream_id, batches.c.undoes.is_not(None))
    with catalog.reading() as connection:
        return {row.batch_no: row.undoes for row in connection.execute(query)}


@dataclass(frozen=True, slots=True)
class Undoing:
    """An undo whose revisions are written and wait to become visible."""

    undoable: Undoable
    buckets: Sequence[NewBucket]
    withdrawn: Sequence[Bucket]
    """Pending revisions of the batch, which will never be applied."""
    summary: Mapping[str, object]


def commit_undo(catalog: Catalog, basis: Standing, undoing: Undoing, cause: Cause) -> int:
    """Commit the revisions of an undo that was worked out on `basis`, and return the commit's number."""
    undoable = undoing.undoable
    with catalog.writing() as connection:
        now = streams.locked_standing(connection, basis.stream_id)
        if now is None:
            raise BasisMovedError
        if ledger_has(connection, basis.stream_id, undoable.undo_id):
            raise AlreadyTakenError
        _recheck(connection, now, basis)
        count = sum(bucket.rows for bucket in undoing.buckets)
        content = hashlib.sha256(undoable.undo_id.encode()).hexdigest()
        counts = Counts(read=count, pending=count)
        batch_no = ledger.enter(connection, basis.stream_id, undoable.undo_id, content, [], [], counts)
        undoes = update(batches).where(batches.c.batch_no == batch_no).values(undoes=undoable.batch_no)
        connection.execute(undoes)
        commit_id = commits.take(
            connection,
            catalog.clock.now(),
            cause,
            stream_id=basis.stream_id,
            batch_id=undoable.undo_id,
            summary=undoing.summary,
        )
        ledger.settle(connection, batch_no, commit_id)
        gone = undoing.withdrawn
        if buckets.remove(connection, [each.bucket_id for each in gone], commit_id) != len(gone):
            raise BasisMovedError
        inline = buckets.add(connection, basis.stream_id, batch_no, commit_id, undoing.buckets, now.revisions)
        inline -= sum(each.size for each in gone if each.inline)
        # With nothing left that is pending, all that was ever numbered is settled.
        settled = not count and not _pending_now(connection, basis.stream_id)
        connection.execute(
            update(streams_table)
            .where(streams_table.c.stream_id == basis.stream_id)
            .values(
                applied=now.revisions if settled else now.applied,
                inline_bytes=streams_table.c.inline_bytes + inline,
                revisions=now.revisions + count,
                changed_in=commit_id,
            )
        )
        streams.record_position(connection, basis.stream_id, commit_id)
        return commit_id


def check_free(catalog: Catalog, stream_id: int, undoable: Undoable) -> None:
    """Refuse an undo whose id a batch bears that is none."""
    with catalog.reading() as connection:
        if not ledger_has(connection, stream_id, undoable.undo_id):
            return
    raise Refused(
        f"batch {undoable.batch_id} cannot be undone",
        why=f"a batch {undoable.undo_id} was taken in, and the undo would bear the same id",
        how="correct its rows with a file of revisions",
    )


def ledger_has(connection: Connection, stream_id: int, batch_id: str) -> bool:
    """Whether a batch of this id has been taken in, as the transaction sees it."""
    query = select(batches.c.batch_no).where(batches.c.stream_id == stream_id, batches.c.batch_id == batch_id)
    return connection.execute(query).first() is not None


def _recheck(connection: Connection, now: Standing, basis: Standing) -> None:
    """Whether rows are still as they were found: what only brings new ones does not matter."""
    if now.changed_in == basis.changed_in:
        return
    there = (basis.applied, basis.revisions, basis.aged_to)
    if (now.applied, now.revisions, now.aged_to) != there:
        raise BasisMovedError
    if streams.declared_since(connection, basis.stream_id, basis.changed_in):
        raise BasisMovedError
    if buckets.removed_since(connection, basis.stream_id, basis.changed_in, LOWEST):
        raise BasisMovedError


def pending_of(catalog: Catalog, basis: Standing, batch_no: int) -> list[Bucket]:
    """The pending buckets of a batch."""
    pending = buckets.visible(catalog, basis.stream_id, basis.changed_in, role=Role.PENDING)
    return [bucket for bucket in pending if bucket.batch_no == batch_no]


def batch_ids(catalog: Catalog, numbers: Sequence[int]) -> list[str]:
    """The ids of batches, in the order in which they were taken in."""
    query = select(batches.c.batch_id).where(batches.c.batch_no.in_(numbers)).order_by(batches.c.batch_no)
    with catalog.reading() as connection:
        return list(connection.execute(query).scalars())


def waiting_rows(catalog: Catalog, stream_id: int) -> int:
    """How many revisions of a stream are pending now."""
    with catalog.reading() as connection:
        return _pending_now(connection, stream_id)


def _pending_now(connection: Connection, stream_id: int) -> int:
    query = select(func.sum(buckets_table.c.rows)).where(
        buckets_table.c.stream_id == stream_id,
        buckets_table.c.role == Role.PENDING.value,
        buckets_table.c.removed_in.is_(None),
    )
    return int(connection.execute(query).scalar() or 0)
