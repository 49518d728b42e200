"""The transactions of compaction, and of ageing out rows and results.

Compaction replaces buckets by rewritten ones with the same live rows. Ageing drops whole buckets past the retention;
what is due is planned before, and planned again under the lock, so that another commit in between is a conflict.
Purging is ageing that leaves a sample: its remains are copies without an original, which reduced scans read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, func, select

from errata.catalog import buckets, streams
from errata.catalog.bucket_writes import IDS_PER_STATEMENT, BucketAddition
from errata.catalog.database import Catalog
from errata.catalog.result_archives import ResultArchive
from errata.catalog.streams import StreamState
from errata.catalog.tables import buckets as buckets_table
from errata.catalog.tables import streams as streams_table
from errata.catalog.transaction import BasisConflict, Transaction, lock_basis
from errata.model import horizon
from errata.model.bucket import Bucket, Layout, NewBucket, Role, relevant_masks
from errata.model.commit import Cause
from errata.model.stream import Retention
from errata.model.time import LOWEST


@dataclass(frozen=True, slots=True)
class CompactionCommit:
    """The buckets that compaction has made, and those that they replace."""

    replaced: Sequence[Bucket]
    """Base buckets that are replaced."""
    folded: Sequence[Bucket]
    """Overlays that are folded."""
    written: Sequence[NewBucket]
    masked: Sequence[int]
    """For each new bucket the number of its rows that overlays which stay supersede."""
    up_to: int
    """The last revision that was folded; 0 for none."""

    @property
    def removed(self) -> list[Bucket]:
        return [*self.replaced, *self.folded]


def last_foldable_revision(catalog: Catalog, basis: StreamState) -> int:
    """The last revision that may be folded: none that a consumer has still to take."""
    with catalog.reading() as connection:
        consumed = streams.consumed_revision(connection, basis.stream_id)
    return basis.applied if consumed is None else min(basis.applied, consumed)


def commit_compaction(catalog: Catalog, basis: StreamState, made: CompactionCommit, cause: Cause) -> int:
    """Commit a compaction that was made on `basis`, if what it replaces has not changed."""
    with catalog.writing() as connection:
        now = lock_basis(connection, basis.stream_id)
        _recheck_compaction(connection, now, basis, made)
        return Transaction(
            cause=cause,
            summary=_compaction_summary(made),
            archive=now,
            removes=made.removed,
            adds=[BucketAddition(made.written, masked=made.masked)],
            state={"folded": max(basis.folded, made.up_to)},
        ).commit(connection, catalog.clock.now())


def _recheck_compaction(connection: Connection, now: Row[Any], basis: StreamState, made: CompactionCommit) -> None:
    """Raise if the rewritten rows may not be the live ones any more. Batches and corrections of other rows do not
    matter: they are read over the new buckets as over the old ones."""
    if now.aged_to != basis.aged_to or now.folded != basis.folded:
        raise BasisConflict
    if streams.is_declared_since(connection, basis.stream_id, basis.changed_in):
        raise BasisConflict
    consumed = streams.consumed_revision(connection, basis.stream_id)
    if consumed is not None and consumed < made.up_to:
        raise BasisConflict  # a new consumer has still to take revisions that were folded
    if _count_masked(connection, made.removed) != sum(bucket.masked for bucket in made.removed):
        raise BasisConflict  # rows in the replaced buckets have been corrected since


def _count_masked(connection: Connection, found: Iterable[Bucket]) -> int:
    wanted = [bucket.bucket_id for bucket in found]
    total = 0
    for start in range(0, len(wanted), IDS_PER_STATEMENT):
        some = buckets_table.c.bucket_id.in_(wanted[start : start + IDS_PER_STATEMENT])
        total += int(
            connection.execute(select(func.coalesce(func.sum(buckets_table.c.masked), 0)).where(some)).scalar_one()
        )
    return total


def _compaction_summary(made: CompactionCommit) -> dict[str, object]:
    return {
        "rewritten": len(made.replaced),
        "into": len(made.written),
        "folded": len(made.folded),
        "revisions": sum(bucket.rows for bucket in made.folded),
        "rows": sum(bucket.rows for bucket in made.written),
        "bytes_before": sum(bucket.size for bucket in made.removed),
        "bytes": sum(bucket.size for bucket in made.written),
    }


BUCKETS_PER_FETCH = 1_000
"""Buckets that one fetch reads from the index when rows are counted: most often few are needed."""


Archive = StreamState | ResultArchive
"""An archive of a stream's rows or of a query's results, as ageing finds it."""


@dataclass(frozen=True, slots=True)
class AgeOutPlan:
    """The rows of an archive that are past the retention: whole buckets, and places in buckets that stay."""

    buckets: Sequence[Bucket]
    """Buckets that are dropped: base buckets, and what purging left of some; of results also those with their change
    records, partial aggregates, lineage and masks. A reader of changes from the beginning gets the current results
    instead."""
    aged_to: int | None
    """Rows before this place no longer count, and all rows from it on do. Of results: answers for earlier instants are
    no longer complete; None: all are."""
    former: int | None
    """The same before."""
    partly_aged: Sequence[Bucket] = ()
    """Base buckets that begin before `aged_to` and end after it, and stay."""
    overlays: Sequence[Bucket] = ()
    """Overlays that mask or bring rows which no longer count."""
    dropped_overlays: Sequence[Bucket] = ()
    """Overlays whose rows all no longer count, and which are dropped."""
    retention: Retention | None = field(default=None, compare=False)
    held: int | None = field(default=None, compare=False)
    """The place from which on queries have still to read rows, as far as the plan goes by it."""
    purged_to: int | None = field(default=None, compare=False)
    """Of purging: the place before which it was planned, instead of by a retention."""
    remains: Sequence[NewBucket] = field(default=(), compare=False)
    """Of purging: the sample that stays."""

    def rows(self, hidden: Mapping[int, int]) -> int:
        """The number of live rows that no longer count, including those `hidden` in buckets that stay."""
        return sum(each.rows - each.masked for each in self.buckets if each.role is Role.BASE) + sum(hidden.values())


def plan_age_out(
    catalog: Catalog, basis: Archive, retention: Retention | None = None, held: int | None = None
) -> AgeOutPlan | None:
    """The rows that are due in this state of the archive; None when there are none. A stream declares its own
    retention. `held`: the place from which on queries have still to read rows."""
    with catalog.reading() as connection:
        return _plan_age_out(connection, basis, retention, held)


def plan_purge(catalog: Catalog, basis: StreamState, before: int) -> AgeOutPlan | None:
    """The rows before a place, of which only a sample is to stay; None when there are none."""
    with catalog.reading() as connection:
        return _plan_purge(connection, basis, before)


def commit_age_out(
    catalog: Catalog,
    basis: Archive,
    aged: AgeOutPlan,
    hidden: Mapping[int, int],
    cause: Cause,
    *,
    seen: int | None = None,
) -> int:
    """Drop what was found due on `basis`. `hidden` is the number of rows that no longer count in each bucket that stays
    and in each overlay. `seen`: the commit as of which it was determined what queries have still to read."""
    with catalog.writing() as connection:
        row = lock_basis(connection, basis.stream_id)
        # Planned again under the lock: a correction, an evaluation, another ageing or a declaration may have come.
        now = streams.current_state(connection, row) if isinstance(basis, StreamState) else basis
        if _plan_again(connection, now, aged) != aged:
            raise BasisConflict
        check_no_new_readers(connection, seen)
        rows, gone = aged.rows(hidden), [*aged.buckets, *aged.dropped_overlays]
        summary: dict[str, object] = {} if isinstance(basis, StreamState) else {"query": basis.name}
        summary |= {
            "dropped_buckets": len(aged.buckets),
            "dropped_rows": rows,
            "dropped_bytes": sum(bucket.size for bucket in gone),
        }
        if aged.aged_to is not None:
            summary["to"] = aged.aged_to - 1
        if aged.purged_to is not None:
            summary["remaining_rows"] = sum(bucket.rows for bucket in aged.remains)
            summary["remaining_bytes"] = sum(bucket.size for bucket in aged.remains)
        return Transaction(
            cause=cause,
            summary=summary,
            archive=row,
            removes=gone,
            adds=[BucketAddition(aged.remains)] if aged.remains else [],
            masks=hidden,
            state={"rows": row.rows - rows, "aged_to": aged.aged_to},
        ).commit(connection, catalog.clock.now())


def check_no_new_readers(connection: Connection, seen: int | None) -> None:
    """A conflict if a query has been answered for the first time after a commit. Older ones can only need less."""
    if seen is None:
        return
    new = select(streams_table.c.stream_id).where(
        streams_table.c.query_id.is_not(None), streams_table.c.added_in > seen
    )
    if connection.execute(new.limit(1)).first() is not None:
        raise BasisConflict


def results_aged_to(catalog: Catalog, of: ResultArchive, commit_id: int) -> int | None:
    """The first instant whose answer was complete as of a commit; None: no result had been aged out."""
    with catalog.reading() as connection:
        return streams.aged_to_as_of(connection, of.stream_id, commit_id)


def _plan_age_out(
    connection: Connection, basis: Archive, retention: Retention | None, held: int | None
) -> AgeOutPlan | None:
    if isinstance(basis, StreamState):
        retention = basis.stream.retention
        aged = None if retention is None else _due_rows(connection, basis, retention, held)
    else:
        aged = None if retention is None else _due_results(connection, basis.stream_id, retention, held)
    return None if aged is None else replace(aged, retention=retention, held=held)


def _plan_again(connection: Connection, basis: Archive, aged: AgeOutPlan) -> AgeOutPlan | None:
    """What would be due now, planned as the plan was."""
    if aged.purged_to is not None and isinstance(basis, StreamState):
        return _plan_purge(connection, basis, aged.purged_to)
    return _plan_age_out(connection, basis, aged.retention, aged.held)


def _plan_purge(connection: Connection, standing: StreamState, before: int) -> AgeOutPlan | None:
    due = _rows_before(connection, standing, before)
    return None if due is None else replace(due, purged_to=before)


def _due_rows(
    connection: Connection, standing: StreamState, retention: Retention, held: int | None
) -> AgeOutPlan | None:
    if standing.stable is None:
        return None
    with closing(_base_youngest_first(connection, standing.stream_id)) as youngest_first:
        kept_from = horizon.retention_start(retention, standing.stable, youngest_first)
    if kept_from is None:
        return None
    kept_from = kept_from if held is None else min(kept_from, held)
    due = _rows_before(connection, standing, kept_from)
    copies = buckets.live_buckets(connection, standing.stream_id, Role.COPY, before=kept_from)
    remains = [each for each in copies if each.original is None and each.vs_max < kept_from]
    if not remains:
        return due
    due = AgeOutPlan((), standing.aged_to, standing.aged_to) if due is None else due
    return replace(due, buckets=[*due.buckets, *remains])


def _rows_before(connection: Connection, standing: StreamState, kept_from: int) -> AgeOutPlan | None:
    """The rows before a place, as far as whole buckets of them can be dropped."""
    stream, stream_id = standing.stream, standing.stream_id
    base = buckets.live_buckets(connection, stream_id, Role.BASE, before=None if stream.one_table else kept_from)
    found = horizon.aged_buckets(base, kept_from)
    aged_to = horizon.new_aged_to(found, standing.aged_to, kept_from if stream.one_table else None)
    if aged_to is None or not any(bucket.vs_min < aged_to for bucket in base):
        return None
    # In a table without an index any bucket may hold aged rows, so all of them are read.
    beside = [bucket for bucket in base if bucket.vs_max >= kept_from]
    if stream.layout is not Layout.PLAIN:
        beside = [bucket for bucket in beside if bucket.vs_min < aged_to]
    overlays = []
    if standing.applied:
        former = LOWEST if standing.aged_to is None else standing.aged_to
        all_before = buckets.live_buckets(connection, stream_id, Role.OVERLAY, before=aged_to)
        overlays = [overlay for overlay in all_before if overlay.vs_max >= former]
    # Where the key does not contain the place, a row that has aged out may have freed its key for a row elsewhere,
    # which may still be read without that revision. Only compaction can fold such an overlay.
    gone = [overlay for overlay in overlays if overlay.vs_max < aged_to] if stream.key_has_order else []
    return AgeOutPlan(found, aged_to, standing.aged_to, beside, overlays, gone)


def _base_youngest_first(connection: Connection, stream_id: int) -> Generator[tuple[int, int], None, None]:
    """The beginning and the number of live rows of each live base bucket, the last beginning first."""
    columns = buckets_table.c
    query = (
        select(columns.vs_min, columns.rows - columns.masked)
        .where(columns.stream_id == stream_id, columns.role == Role.BASE.value, columns.removed_in.is_(None))
        .order_by(columns.vs_min.desc())
    )
    with connection.execute(query, execution_options={"yield_per": BUCKETS_PER_FETCH}) as found:
        yield from found


def _due_results(connection: Connection, stream_id: int, retention: Retention, held: int | None) -> AgeOutPlan | None:
    live = buckets.live_buckets(connection, stream_id, *Role)
    base, masks = ([each for each in live if each.role is role] for role in (Role.BASE, Role.MASK))
    standing = [each for each in live if each.role in (Role.OPEN, Role.TIP)]
    youngest_first = sorted(((each.vs_min, each.rows) for each in (*base, *standing)), reverse=True)
    columns = streams_table.c
    query = select(columns.stable, columns.aged_to).where(columns.stream_id == stream_id)
    frontier, former = connection.execute(query).one()
    kept_from = horizon.retention_start(_sparing_masked(retention, masks), frontier, youngest_first)
    if kept_from is None:
        return None
    kept_from = kept_from if held is None else min(kept_from, held)
    found = horizon.aged_result_buckets(base, kept_from)
    aged_to = horizon.new_results_aged_to(found, former)
    feed = [each for each in live if each.role is Role.FEED and each.vs_max < kept_from]
    # Partial aggregates and lineage stay as long as their results.
    kept = [each for each in live if each.role in (Role.PARTS, Role.LINEAGE)]
    parts = [each for each in kept if aged_to is not None and each.vs_max < aged_to]
    if not found and not feed and not parts:
        return None
    staying = relevant_masks(masks, [*(each for each in base if each not in found), *standing])
    idle = [each for each in masks if each not in staying]
    return AgeOutPlan([*found, *feed, *parts, *idle], aged_to, former)


def _sparing_masked(retention: Retention, masks: Sequence[Bucket]) -> Retention:
    """A retention in rows that still keeps the declared number if every mask concerns a kept result."""
    masked = sum(each.rows for each in masks)
    return retention if retention.rows is None else replace(retention, rows=retention.rows + masked)
