"""The transaction that takes a batch in: index rows, ledger, quarantine and stable point, all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Row, update
from sqlalchemy.exc import IntegrityError

from errata.catalog import buckets, commits, ledger, quarantine, streams
from errata.catalog.open import Catalog
from errata.catalog.quarantine import State
from errata.catalog.streams import Standing
from errata.catalog.tables import streams as streams_table
from errata.model.batch import BadRow, Counts, ReadSplit, SourceFile
from errata.model.bucket import NewBucket, Role
from errata.model.commit import Cause
from errata.model.interval import LOWEST
from errata.model.revision import Op
from errata.model.stream import OnDuplicate


@dataclass(frozen=True, slots=True)
class Arrived:
    """A batch whose buckets are written and wait to become visible."""

    batch_id: str
    content_hash: str
    files: Sequence[SourceFile]
    splits: Sequence[ReadSplit]
    counts: Counts
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


class BasisMovedError(Exception):
    """Another writer moved the stream in a way that what was decided on its old standing no longer holds."""


class AlreadyTakenError(Exception):
    """Another writer has just taken in a batch of the same id."""


class FilesTakenError(Exception):
    """Another writer has just taken in some of the files, or equal ones, in another batch."""


def commit_append(catalog: Catalog, basis: Standing, arrived: Arrived, cause: Cause) -> int:
    """Commit a batch that was arranged on `basis`, and return the commit's number."""
    with catalog.writing() as connection:
        now = streams.lock(connection, basis.stream_id)
        # First the ledger: a batch that is in it needs no second look at anything.
        brought = ledger.deliveries_now(connection, basis.stream_id, arrived.guarded)
        if any(each.batch_no not in arrived.known and each.batch_id != arrived.batch_id for each in brought):
            raise FilesTakenError
        batch_no = _enter(connection, basis, arrived)
        _recheck(connection, now, basis, arrived)
        quarantine.hold(connection, basis.stream_id, batch_no, arrived.bad)
        commit_id = commits.take(
            connection,
            catalog.clock.now(),
            cause,
            stream_id=basis.stream_id,
            batch_id=arrived.batch_id,
            summary=_summary(arrived),
        )
        ledger.settle(connection, batch_no, commit_id)
        quarantine.settle(connection, arrived.retried, State.RETRIED, commit_id)
        _make_visible(connection, now, basis, arrived, batch_no, commit_id)
        return commit_id


def _recheck(connection: Connection, now: Row[Any], basis: Standing, arrived: Arrived) -> None:
    """Whether rows judged late, on time or new still are: only what came in meanwhile can change that."""
    if now.removed_in is not None:
        raise BasisMovedError
    if now.changed_in == basis.changed_in:
        return
    if not basis.stream.key_has_order or basis.stream.ordered_on_arrival:
        raise BasisMovedError
    redeclared = streams.declared_since(connection, basis.stream_id, basis.changed_in)
    if redeclared:
        raise BasisMovedError
    gone = buckets.removed_since(connection, basis.stream_id, basis.changed_in, _low(basis))
    moved = gone or now.stable != basis.stable or now.applied != basis.applied
    if moved and _compared(basis, arrived):
        raise BasisMovedError
    if arrived.on_time is None:
        return
    low, high = arrived.on_time
    late_now = now.stable is not None and low < now.stable
    if late_now or buckets.overlapping_since(connection, basis.stream_id, basis.changed_in, low, high):
        raise BasisMovedError


def _low(basis: Standing) -> int:
    return LOWEST if basis.stable is None else basis.stable


def _compared(basis: Standing, arrived: Arrived) -> bool:
    """Whether rows may have been compared with the archive that would be late, and compared with nothing, now."""
    counts = arrived.counts
    replacing = counts.pending if basis.stream.on_duplicate is OnDuplicate.REPLACE else 0
    return counts.dropped + counts.replaced + counts.quarantined + replacing > 0


def _enter(connection: Connection, basis: Standing, arrived: Arrived) -> int:
    try:
        return ledger.enter(
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
        raise AlreadyTakenError from None


def _make_visible(
    connection: Connection, now: Row[Any], basis: Standing, arrived: Arrived, batch_no: int, commit_id: int
) -> None:
    inline = buckets.add(connection, basis.stream_id, batch_no, commit_id, arrived.buckets, now.revisions, now.applied)
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


def _summary(arrived: Arrived) -> dict[str, object]:
    counts = {name: count for name, count in asdict(arrived.counts).items() if count or name == "appended"}
    made = [bucket for bucket in arrived.buckets if bucket.role is Role.BASE]
    inline = sum(bucket.data is not None for bucket in made)
    span = {"from": arrived.on_time[0], "to": arrived.on_time[1]} if arrived.on_time else {}
    return counts | {"files": len(arrived.files), "buckets": len(made), "inline": inline} | span
