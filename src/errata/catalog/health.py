"""What `errata doctor` reads from the catalog: the inventory of a stream or of results, and shared tables' findings.

An inventory is read in one snapshot of the database, so that concurrent writers do not look like damage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, func, select

from errata.catalog import buckets
from errata.catalog import tables as t
from errata.catalog.bucket_writes import span_class
from errata.catalog.database import Catalog, readable_errors
from errata.catalog.streams import StreamState, current_state
from errata.catalog.vacuum import oldest_whole_commit
from errata.model.bucket import REPLACED_ROLES, Bucket, Role
from errata.model.consistency import RESTORE_BACKUP, EvaluationProgress, LedgerEntry, StreamPosition
from errata.model.findings import MAX_EXAMPLES, Finding, FindingKind, Severity
from errata.model.horizon import is_forgotten, is_spent
from errata.model.results import ResultShape, shape_from_record


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveInventory:
    """Everything that the catalog records about an archive."""

    stream_id: int
    name: str
    dropped: bool
    """Whether the stream has been dropped, or the archive of results has ended."""
    changed_in: int
    inline_bytes: int
    now: StreamPosition
    positions: Sequence[StreamPosition]
    buckets: Sequence[Bucket]
    """Buckets that some readable commit sees, and overlays that are the history of rows."""
    misclassed: frozenset[int]
    """Buckets with a wrong span class, which look-ups by interval do not find."""
    newest: int
    """The newest commit."""

    @property
    def live(self) -> list[Bucket]:
        return [bucket for bucket in self.buckets if bucket.removed_in is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInventory(ArchiveInventory):
    """The inventory of a stream."""

    standing: StreamState
    vacuumed: bool
    """Whether vacuum has removed index rows."""
    withdrawn: Sequence[Bucket]
    """Pending buckets that an undo has withdrawn."""
    withdrawn_before: int
    """The number of withdrawn revisions that the index does not have any more."""
    entries: Sequence[LedgerEntry]
    rows: Mapping[int, int]
    """The number of rows of each bucket in the index, also of those that no reader needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultInventory(ArchiveInventory):
    """The inventory of a query's results."""

    query_id: int
    """The form of the query."""
    shape: ResultShape
    advances: Sequence[EvaluationProgress]
    names: frozenset[str]
    """The names of all queries."""


@contextmanager
def snapshot_connection(catalog: Catalog) -> Iterator[Connection]:
    """A connection whose queries all see one snapshot."""
    engine = catalog.engine
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with readable_errors(engine), engine.connect() as connection:
        yield connection


def oldest_checked_commit(catalog: Catalog, stream_id: int) -> int:
    """The oldest commit as of which the stream has to be complete."""
    with catalog.reading() as connection:
        row = connection.execute(select(t.streams).where(t.streams.c.stream_id == stream_id)).one()
        return oldest_whole_commit(connection, row, catalog.clock.now())


def archive_inventory(catalog: Catalog, stream_id: int, kept_from: int) -> StreamInventory | ResultInventory:
    """What the catalog records about an archive, back to a pinned commit."""
    with snapshot_connection(catalog) as connection:
        row = connection.execute(select(t.streams).where(t.streams.c.stream_id == stream_id)).one()
        ever = buckets.all_buckets(connection, stream_id)
        common: dict[str, Any] = {
            "stream_id": stream_id,
            "name": row.name,
            "dropped": row.removed_in is not None,
            "changed_in": row.changed_in,
            "inline_bytes": row.inline_bytes,
            "now": _position(row, row.changed_in),
            "positions": read_positions(connection, stream_id),
            "buckets": [each for each in ever if _is_checked(each, row, kept_from)],
            "misclassed": frozenset(misclassed_buckets(connection, stream_id)),
            "newest": connection.execute(select(t.head.c.commit_id)).scalar_one(),
        }
        if row.query_id is not None:
            shape = connection.execute(select(t.shapes.c.shape).where(t.shapes.c.stream_id == stream_id)).scalar_one()
            names = connection.execute(select(t.queries.c.name).where(t.queries.c.removed_in.is_(None))).scalars()
            return ResultInventory(
                **common,
                query_id=row.query_id,
                shape=shape_from_record(shape),
                advances=_evaluation_progress(connection, stream_id),
                names=frozenset(names),
            )
        standing = current_state(connection, row)
        undone = _withdrawals(connection, stream_id)
        withdrawn = [each for each in ever if each.role is Role.PENDING and each.removed_in in undone]
        return StreamInventory(
            **common,
            standing=standing,
            vacuumed=row.vacuumed is not None,
            withdrawn=withdrawn,
            withdrawn_before=sum(undone.values()) - sum(each.rows for each in withdrawn),
            entries=list(_ledger_entries(connection, stream_id, ever, merged=not standing.stream.merged.is_empty)),
            rows={each.bucket_id: each.rows for each in ever},
        )


def misclassed_buckets(connection: Connection, stream_id: int) -> Iterator[int]:
    """Buckets whose span class is wrong."""
    query = select(t.buckets.c.bucket_id, t.buckets.c.span_class, t.buckets.c.vs_min, t.buckets.c.vs_max)
    for row in connection.execute(query.where(t.buckets.c.stream_id == stream_id)):
        if row.span_class != span_class(row.vs_min, row.vs_max):
            yield row.bucket_id


def _is_checked(bucket: Bucket, stream: Row[tuple[object, ...]], kept_from: int) -> bool:
    """Whether a reader may need it: a bucket that vacuum would remove is not checked, nor is a state that has been
    replaced, which is read at no commit."""
    if not is_spent(bucket.removed_in, kept_from):
        return bucket.role not in REPLACED_ROLES or bucket.removed_in is None
    return bucket.role is Role.OVERLAY and not is_forgotten(
        bucket.vs_max, stream.aged_to, stream.removed_in is not None
    )


def _withdrawals(connection: Connection, stream_id: int) -> dict[int, int]:
    """The number of pending revisions that each undo withdrew, by its commit."""
    query = select(t.commits.c.commit_id, t.commits.c.summary)
    query = query.where(t.commits.c.stream_id == stream_id, t.commits.c.flow == "undo")
    return {row.commit_id: count for row in connection.execute(query) if (count := row.summary.get("withdrawn", 0))}


def read_positions(connection: Connection, stream_id: int) -> list[StreamPosition]:
    """The state of a stream after each of its commits."""
    query = select(t.positions).where(t.positions.c.stream_id == stream_id).order_by(t.positions.c.commit_id)
    return [_position(row, row.commit_id) for row in connection.execute(query)]


def _position(row: Row[Any], commit_id: int) -> StreamPosition:
    return StreamPosition(commit_id, row.stable, row.vs_max, row.rows, row.applied, row.aged_to, row.folded)


def _ledger_entries(
    connection: Connection, stream_id: int, ever: Sequence[Bucket], *, merged: bool
) -> Iterator[LedgerEntry]:
    base: defaultdict[int | None, list[int]] = defaultdict(list)
    pending: defaultdict[tuple[int | None, int], list[int]] = defaultdict(list)
    for each in ever:
        if merged and each.batch_no is None:
            continue
        # A merge brings rows of earlier batches, too: what came with a batch is then known by the commit alone.
        known_by = each.added_in if merged else each.batch_no
        if each.role is Role.BASE:
            base[known_by].append(each.bucket_id)
        elif each.role is Role.PENDING:  # revisions that had to wait were numbered and stored anew by later commits
            pending[known_by, each.added_in].append(each.bucket_id)
    splits = _batch_splits(connection, stream_id)
    query = select(t.batches, t.commits.c.batch_id.label("named"), t.commits.c.summary)
    mine = (t.commits.c.commit_id == t.batches.c.commit_id) & (t.commits.c.stream_id == t.batches.c.stream_id)
    query = query.join(t.commits, mine, isouter=True).where(t.batches.c.stream_id == stream_id)
    for row in connection.execute(query.order_by(t.batches.c.batch_no)):
        yield LedgerEntry(
            row.batch_no,
            row.batch_id,
            row.commit_id,
            row.named,
            row.counts,
            (row.summary or {}).get("buckets"),
            base[row.commit_id if merged else row.batch_no],
            pending[row.commit_id if merged else row.batch_no, row.commit_id],
            splits[row.batch_no],
        )


def _batch_splits(connection: Connection, stream_id: int) -> defaultdict[int, list[tuple[int, int | None, int, int]]]:
    one, other = t.batch_splits.c, t.batch_files.c
    files = (other.batch_no == one.batch_no) & (other.number == one.file_number)
    query = select(one.batch_no, one.split, other.number, one.first_line, one.lines)
    query = query.select_from(t.batch_splits).join(t.batches, t.batches.c.batch_no == one.batch_no)
    query = query.join(t.batch_files, files, isouter=True).where(t.batches.c.stream_id == stream_id)
    found: defaultdict[int, list[tuple[int, int | None, int, int]]] = defaultdict(list)
    for batch_no, *split in connection.execute(query):
        found[batch_no].append((split[0], split[1], split[2], split[3]))
    return found


def inline_sizes(catalog: Catalog, stream_id: int) -> dict[int, int]:
    """The bytes of each inline bucket of a stream, as they are stored."""
    query = select(t.bucket_data.c.bucket_id, func.length(t.bucket_data.c.data))
    query = query.join(t.buckets, t.buckets.c.bucket_id == t.bucket_data.c.bucket_id)
    with catalog.reading() as connection:
        return {row[0]: row[1] for row in connection.execute(query.where(t.buckets.c.stream_id == stream_id))}


def catalog_findings(catalog: Catalog) -> list[Finding]:
    """Findings about the tables that all streams share."""
    with snapshot_connection(catalog) as connection:
        found = [
            *_commit_findings(connection),
            *_pin_findings(connection, catalog.clock.now()),
            *_consumer_findings(connection),
        ]
        return [*found, *_doomed_findings(connection)]


def _commit_findings(connection: Connection) -> Iterator[Finding]:
    """Commits are numbered from 1 to the head, and their times never go back."""
    number, at = t.commits.c.commit_id, t.commits.c.at
    before = func.lag(number).over(order_by=number).label("before")
    steps = select(number, at, before, func.lag(at).over(order_by=number).label("before_at")).subquery()
    gaps = select(steps).where(steps.c.commit_id > func.coalesce(steps.c.before, 0) + 1).order_by(steps.c.commit_id)
    for row in connection.execute(gaps.limit(MAX_EXAMPLES)):
        missing = f"{(row.before or 0) + 1} to {row.commit_id - 1}"
        yield _numbering_finding(f"commits {missing} are missing", f"before commit {row.commit_id}")
    back = select(steps).where(steps.c.at < steps.c.before_at).order_by(steps.c.commit_id)
    for row in connection.execute(back.limit(MAX_EXAMPLES)):
        yield _numbering_finding(f"its time is before that of commit {row.before}", f"commit {row.commit_id}")
    head = connection.execute(select(t.head)).one()
    last = connection.execute(select(t.commits).order_by(number.desc()).limit(1)).first()
    if last is None or (head.commit_id, head.at) != (last.commit_id, last.at):
        newest = 0 if last is None else last.commit_id
        if head.commit_id or newest:
            yield _numbering_finding(
                f"the head is at commit {head.commit_id}, and the newest is {newest}, or their times differ", "head"
            )


def _numbering_finding(what: str, where: str) -> Finding:
    why = "what was known when is told by the numbers and times of commits"
    return Finding(None, FindingKind.COMMITS, what, where, why, RESTORE_BACKUP, severity=Severity.DAMAGE)


def _pin_findings(connection: Connection, now: int) -> Iterator[Finding]:
    query = select(t.pins).where(t.pins.c.expires_at <= now).order_by(t.pins.c.pin_id)
    for row in connection.execute(query):
        what, why = "it has expired, and nobody has dropped it", "it holds nothing; its reader was killed"
        where = f"pin of {row.holder} on commit {row.commit_id}"
        yield Finding(
            None, FindingKind.PIN, what, where, why, "errata doctor --fix, or the next vacuum", True, Severity.LITTER
        )


def _consumer_findings(connection: Connection) -> Iterator[Finding]:
    """Consumers of streams that have been dropped."""
    query = select(t.consumers.c.name, t.streams.c.name.label("stream"))
    query = query.join(t.streams, t.streams.c.stream_id == t.consumers.c.stream_id)
    for row in connection.execute(query.where(t.streams.c.removed_in.is_not(None))):
        what, why = "it consumes revisions of a stream that has been dropped", "nothing will ever come to it"
        where, how = f"consumer {row.name} of {row.stream}", "errata doctor --fix"
        yield Finding(None, FindingKind.CONSUMER, what, where, why, how, True, Severity.LITTER)


def _doomed_findings(connection: Connection) -> Iterator[Finding]:
    """Doomed files that a bucket needs."""
    query = select(t.doomed.c.path).join(t.buckets, t.buckets.c.path == t.doomed.c.path).distinct()
    for path in connection.execute(query).scalars():
        what, why = "it is listed to be removed, and a bucket needs it", "the next vacuum would remove it"
        yield Finding(None, FindingKind.DOOMED, what, path, why, "errata doctor --fix", True, Severity.DAMAGE)


def _evaluation_progress(connection: Connection, stream_id: int) -> list[EvaluationProgress]:
    columns = t.evaluations.c
    query = select(columns.number, columns.commit_id, columns.until).where(columns.stream_id == stream_id)
    return [EvaluationProgress(*row) for row in connection.execute(query.order_by(columns.number))]
