"""The state of each stream and query: rows, pending revisions, quarantine, and what is due. Only the catalog is
read, and landing folders are listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from errata.answer.due_corrections import Deferrals
from errata.answer.progress import deferred_overlays, input_watermark, is_behind, revision_to_read, transitive_inputs
from errata.archive.ingest.landing import inspect_landing, new_files
from errata.catalog import activity, commits, leases, ledger, quarantine, queries, streams
from errata.catalog.activity import ArchiveSize
from errata.catalog.buckets import all_overlays
from errata.catalog.leases import LeaseHolder
from errata.catalog.processes import Liveness
from errata.catalog.queries import RecordedQuery, StoppedQuery, stopped_queries
from errata.catalog.result_archives import ResultArchive, read_archives, refused_revisions
from errata.catalog.streams import StreamState
from errata.declare.changes import drifted_queries
from errata.declare.site import Site
from errata.errors import ErrataError, unknown_name_error
from errata.model.bucket import MAX_INLINE_STREAM_BYTES, Bucket, Role
from errata.model.commit import RefusedRevisions, merge_refusals
from errata.model.compaction import is_fold_worthwhile
from errata.model.query import CheckedQuery
from errata.model.stream import Stream
from errata.model.time import MINUTE

MAX_COMPARED_QUERIES = 1_000
"""Queries up to which their files are read to tell which have changed; with more, the status would take too long."""

LONG_LEASE_MICROS = 10 * MINUTE
"""Microseconds after which a lease on a query that has work due is reported as blocking it."""


class DeclarationState(StrEnum):
    """Whether the declaration in errata.yaml and the one in the catalog agree."""

    AGREED = "as declared"
    CHANGED = "changed, not applied"
    NEW = "not applied"
    GONE = "no longer declared"


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The state of one stream."""

    stream: Stream
    declared: DeclarationState
    rows: int = 0
    """Rows that count now: those of base buckets, with revisions applied."""
    base: ArchiveSize = field(default_factory=ArchiveSize)
    overlays: ArchiveSize = field(default_factory=ArchiveSize)
    """Size of the overlays."""
    superseded: tuple[int, int] = (0, 0)
    """Buckets that only readers of earlier commits may need, and their bytes."""
    inline_bytes: int = 0
    stable: int | None = None
    pending: int = 0
    """Pending revisions."""
    quarantined: int = 0
    waiting: int | None = None
    """Files in the landing folder that have not been ingested; None if there is no such folder."""
    set_aside: int = 0
    """Files in the landing folder that are held in quarantine."""
    landing_fault: str | None = None
    """Why the landing folder cannot be listed."""

    @property
    def compaction_due(self) -> bool:
        over = self.overlays
        return self.inline_bytes >= MAX_INLINE_STREAM_BYTES or is_fold_worthwhile(
            over.buckets, over.rows, self.base.rows, self.stream.bucket_rows
        )


class QueryProgress(StrEnum):
    """How far a query is evaluated, compared with its streams."""

    CURRENT = "current"
    BEHIND = "behind"
    HELD = "held"
    """A query that it reads, directly or through others, has stopped."""
    STOPPED = "stopped"
    NEW = "not answered yet"
    EDITED = "edited, not evaluated"
    """The published results are those of its former text."""
    WAITING = "no rows yet"
    """Its streams have no stable point yet."""


DUE_PROGRESS = frozenset({QueryProgress.BEHIND, QueryProgress.NEW, QueryProgress.EDITED})
"""States in which `errata run` would evaluate the query."""


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query: its declaration, and how far it is evaluated."""

    name: str
    declared: DeclarationState
    checked: CheckedQuery | None = None
    """None if it has not been applied."""
    state: QueryProgress | None = None
    timed: bool = True
    """Whether its event time is a timestamp and not a plain number."""
    published: ResultArchive | None = None
    """Its results; those of its former text until an edited query has been evaluated."""
    watermark: int | None = None
    """The instant up to which it could be evaluated."""
    commits: int = 0
    """Commits that appended to its streams since its last evaluation."""
    stopped: StoppedQuery | None = None
    may_resume: bool = False
    """Whether its streams have changed since it stopped, so that the next run tries it again."""
    waits_for: str | None = None
    """The stopped query that it waits for."""
    pending: int = 0
    """Pending revisions of its streams."""
    missing_revisions: Mapping[str, int] = field(default_factory=dict)
    """By stream, the revisions that have been applied and that its results lack. They reach behind the frontier, so
    that only a sweep, and no later evaluation, takes them up."""
    deferred: str | None = None
    """Why `errata run` does not take pending and applied revisions up yet, in words."""
    refused: Sequence[RefusedRevisions] = ()
    """Revisions that its results could not take up, grouped by reason."""
    holder: LeaseHolder | None = None
    """The holder of its lease."""
    blocked: bool = False
    """Whether it has work due and its holder seems to be dead, or has held the lease for long."""

    @property
    def lag(self) -> int | None:
        """How far the streams reach beyond the frontier; None if one of the two is unknown."""
        if self.published is None or self.watermark is None:
            return None
        return max(0, self.watermark - self.published.frontier)


def query_statuses(site: Site) -> list[QueryStatus]:
    """The state of the queries that are declared or recorded, by name. Up to MAX_COMPARED_QUERIES, files are
    compared with what was applied."""
    recorded = queries.recorded_queries(site.catalog)
    checked = {name: each.checked for name, each in recorded.items()}
    both = [name for name in recorded if name in site.project.queries]
    changed = drifted_queries(site.project, checked, both) if len(both) <= MAX_COMPARED_QUERIES else {}
    look = _QueryStatusReader(site, recorded) if recorded else None
    found = []
    for name in sorted({*recorded, *site.project.queries}):
        if name not in recorded or look is None:
            found.append(QueryStatus(name, DeclarationState.NEW))
            continue
        declared = DeclarationState.CHANGED if name in changed else DeclarationState.AGREED
        found.append(look.query_status(name, declared if name in site.project.queries else DeclarationState.GONE))
    return found


class _QueryStatusReader:
    """What the catalog has of all streams and queries, read once for all statuses."""

    def __init__(self, site: Site, recorded: Mapping[str, RecordedQuery]) -> None:
        self._catalog, self._recorded = site.catalog, recorded
        self._reads = {name: each.checked.reads for name, each in recorded.items()}
        self._standings = {each.stream.name: each for each in streams.stream_states(site.catalog)}
        self._sizes = activity.archive_sizes(site.catalog)
        self._published = read_archives(site.catalog)
        self._stopped = stopped_queries(site.catalog)
        self._deferrals, self._refusals = Deferrals(site), refused_revisions(site.catalog)
        self._newest = commits.newest_commit(site.catalog)
        self._holders = {each.name: each for each in leases.list_holders(site.catalog)}
        self._now = site.catalog.clock.now()
        self._batches_since: dict[int, list[tuple[int, int, str]]] = {}
        self._overlays: dict[int, list[Bucket]] = {}

    def query_status(self, name: str, declared: DeclarationState) -> QueryStatus:
        query = self._recorded[name]
        read = transitive_inputs(name, self._reads)
        bases = [self._standings[each] for each in read if each in self._standings]
        until, there = input_watermark(bases), self._published.get(name)
        ours = there is not None and there.query_id == query.query_id
        found = QueryStatus(
            name,
            declared,
            query.checked,
            timed=all(each.stream.timed for each in bases),
            published=there,
            watermark=until,
            commits=self._commits(there, bases) if there is not None else 0,
            stopped=self._stopped.get(query.query_id),
            may_resume=self._may_resume(query, bases),
            waits_for=next((each for each in read if self._has_stopped(each)), None),
            pending=sum(self._pending(each) for each in bases),
            missing_revisions=self._missing_revisions(there, bases) if there is not None and ours else {},
            deferred=self._deferrals.query_waits_for(name) if ours else None,
            refused=merge_refusals(self._refusals.get(there.stream_id, ())) if there is not None and ours else (),
        )
        due = there is None or until is None or self.behind(there, bases, until)
        found = replace(
            found, state=_query_progress(found, ours=ours, due=due), holder=self._holders.get(f"query {name}")
        )
        return replace(found, blocked=self._blocked(found))

    def _blocked(self, found: QueryStatus) -> bool:
        """Whether work is due and the lease's holder may never do it."""
        due = found.state in DUE_PROGRESS or bool(found.pending or found.missing_revisions)
        if found.holder is None or not due:
            return False
        # A living holder renews its lease when two thirds of the term are left.
        silent = found.holder.until - self._now < leases.LEASE_MICROS // 2
        return silent or found.holder.life is Liveness.DEAD or self._now - found.holder.since >= LONG_LEASE_MICROS

    def _may_resume(self, query: RecordedQuery, bases: Sequence[StreamState]) -> bool:
        halt = self._stopped.get(query.query_id)
        return halt is not None and any(each.changed_in > halt.data_commit for each in bases)

    def _has_stopped(self, name: str) -> bool:
        return name in self._recorded and self._recorded[name].query_id in self._stopped

    def _pending(self, standing: StreamState) -> int:
        return self._sizes.get((standing.stream_id, Role.PENDING), ArchiveSize()).rows

    def _commits(self, there: ResultArchive, bases: Sequence[StreamState]) -> int:
        """The number of commits that appended to its streams since."""
        ids = {each.stream_id for each in bases}
        return len({commit for stream_id, commit, _ in self._batches(there) if stream_id in ids})

    def _batches(self, there: ResultArchive) -> list[tuple[int, int, str]]:
        since = there.last.data_commit
        if since not in self._batches_since:
            # Most queries were last evaluated as of the same commit.
            self._batches_since[since] = ledger.appended_batches(self._catalog, since, self._newest)
        return self._batches_since[since]

    def behind(self, there: ResultArchive, bases: Sequence[StreamState], until: int) -> bool:
        """Whether rows or revisions have come that the next evaluation would take up."""
        came = {stream_id for stream_id, _, _ in self._batches(there)}
        return is_behind(there, bases, until, came) or any(
            self._evaluation_takes_revisions(there, each) for each in bases
        )

    def _evaluation_takes_revisions(self, there: ResultArchive, standing: StreamState) -> bool:
        """Whether the next evaluation would take revisions up."""
        known = there.last.revisions.get(standing.stream.name, standing.applied)
        if known >= standing.applied:
            return False
        return revision_to_read(standing, self._all_overlays(standing), known, there.frontier) > known

    def _missing_revisions(self, there: ResultArchive, bases: Sequence[StreamState]) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in bases:
            known = there.last.revisions.get(each.stream.name, each.applied)
            if known < each.applied:
                rows = sum(bucket.rows for bucket in deferred_overlays(self._all_overlays(each), known, there.frontier))
                found |= {each.stream.name: rows} if rows else {}
        return found

    def _all_overlays(self, standing: StreamState) -> list[Bucket]:
        if standing.stream_id not in self._overlays:
            self._overlays[standing.stream_id] = all_overlays(self._catalog, standing.stream_id)
        return self._overlays[standing.stream_id]


def _query_progress(found: QueryStatus, *, ours: bool, due: bool) -> QueryProgress:
    if found.stopped is not None:
        return QueryProgress.STOPPED
    if found.watermark is None and found.published is None:
        return QueryProgress.WAITING
    if found.published is not None and ours:
        held = found.waits_for is not None and bool(found.missing_revisions)
        if found.watermark is None or not (due or held):
            return QueryProgress.CURRENT
        return QueryProgress.BEHIND if found.waits_for is None else QueryProgress.HELD
    if found.waits_for is not None:
        return QueryProgress.HELD
    return QueryProgress.NEW if found.published is None else QueryProgress.EDITED


def stream_statuses(site: Site, names: Sequence[str] = ()) -> list[StreamStatus]:
    """The state of the streams named, or of all that are declared or recorded, by name."""
    recorded = {each.stream.name: each for each in streams.stream_states(site.catalog)}
    there = {*recorded, *site.project.streams}
    for name in names:
        if name not in there:
            raise unknown_name_error("stream", name, there)
    only = [recorded[name].stream_id for name in names if name in recorded]
    sizes, held = activity.archive_sizes(site.catalog, only), quarantine.quarantined_row_counts(site.catalog)
    superseded = activity.superseded_sizes(site.catalog, only)
    found = []
    for name in names or sorted(there):
        standing, declared = recorded.get(name), site.project.streams.get(name)
        if standing is None:
            found.append(StreamStatus(site.project.streams[name], DeclarationState.NEW))
            continue
        pending = sizes.get((standing.stream_id, Role.PENDING), ArchiveSize())
        found.append(
            StreamStatus(
                standing.stream,
                _declaration_state(standing.stream, declared),
                standing.rows,
                sizes.get((standing.stream_id, Role.BASE), ArchiveSize()),
                sizes.get((standing.stream_id, Role.OVERLAY), ArchiveSize()),
                superseded.get(standing.stream_id, (0, 0)),
                standing.inline_bytes,
                standing.stable,
                pending.rows,
                held.get(name, 0),
                *_landing_counts(site, standing),
            )
        )
    return found


def _declaration_state(recorded: Stream, declared: Stream | None) -> DeclarationState:
    if declared is None:
        return DeclarationState.GONE
    return DeclarationState.AGREED if declared == recorded else DeclarationState.CHANGED


def _landing_counts(site: Site, standing: StreamState) -> tuple[int | None, int, str | None]:
    """Files in the landing folder that are not ingested yet, files of it that are held, and why it cannot be listed."""
    if standing.stream.landing is None:
        return None, 0, None
    try:
        folder = inspect_landing(site, standing, standing.stream)
    except ErrataError as error:
        return None, 0, str(error)
    return len(new_files(site, standing, [*folder.ready, *folder.unsettled])), folder.held, None
