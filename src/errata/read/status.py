"""The state of each stream and query: rows, pending revisions, quarantine, and what is due. Only the catalog is
read, and landing folders are listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from errata.answer.catalog_view import CatalogView
from errata.answer.progress import input_watermark
from errata.answer.steps import StepKind, StepList
from errata.archive.ingest.landing import inspect_landing, new_files
from errata.catalog import activity, leases, quarantine, streams
from errata.catalog.activity import ArchiveSize
from errata.catalog.leases import LeaseHolder
from errata.catalog.processes import Liveness
from errata.catalog.queries import StoppedQuery
from errata.catalog.result_archives import ResultArchive, refused_revisions
from errata.catalog.streams import StreamState
from errata.declare.changes import drifted_queries
from errata.declare.site import Site
from errata.errors import ErrataError, unknown_name_error
from errata.model.bucket import MAX_INLINE_STREAM_BYTES, Role
from errata.model.commit import RefusedRevisions, merge_refusals
from errata.model.compaction import is_fold_worthwhile
from errata.model.query import CheckedQuery, transitive_inputs
from errata.model.stream import Stream
from errata.model.time import MINUTE

if TYPE_CHECKING:
    from errata.read.feeds import MergeStatus

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
    copies: ArchiveSize = field(default_factory=ArchiveSize)
    """Size of the copies at reduced rates, and of what purging has left."""
    summaries: ArchiveSize = field(default_factory=ArchiveSize)
    """Size of the parts of summaries."""
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
    merged: MergeStatus | None = None
    """How its feeds stand, if it has some."""

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
    """Its streams have no stable point yet, or none that it answers."""


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query: its declaration, and how far it is evaluated."""

    name: str
    declared: DeclarationState
    checked: CheckedQuery | None = None
    """None if it has not been applied."""
    state: QueryProgress | None = None
    due: bool = False
    """Whether `errata run` would evaluate it."""
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
    view = CatalogView(site)
    checked = {name: each.checked for name, each in view.queries.items()}
    both = [name for name in checked if name in site.project.queries]
    changed = drifted_queries(site.project, checked, both) if len(both) <= MAX_COMPARED_QUERIES else {}
    look = _QueryStatusReader(view) if checked else None
    found = []
    for name in sorted({*checked, *site.project.queries}):
        if name not in checked or look is None:
            found.append(QueryStatus(name, DeclarationState.NEW))
            continue
        declared = DeclarationState.CHANGED if name in changed else DeclarationState.AGREED
        found.append(look.query_status(name, declared if name in site.project.queries else DeclarationState.GONE))
    return found


class _QueryStatusReader:
    """The steps that are due, and what the catalog has of all queries, read once for all statuses."""

    def __init__(self, view: CatalogView) -> None:
        self._view, self._due, catalog = view, StepList(view), view.site.catalog
        self._steps = {(each.kind, each.name): each for each in self._due.steps()}
        self._reads = {name: each.checked.reads for name, each in view.queries.items()}
        self._refusals = refused_revisions(catalog)
        self._holders = {each.name: each for each in leases.list_holders(catalog)}

    def query_status(self, name: str, declared: DeclarationState) -> QueryStatus:
        view, query = self._view, self._view.queries[name]
        read, bases = transitive_inputs([name], self._reads), list(self._due.bases(name).values())
        there = view.published.get(name)
        ours = there is not None and there.query_id == query.query_id
        pending, missing = sum(view.pending(each).queue for each in bases), self._due.missing(name)
        correction = self._steps.get((StepKind.CORRECT, name))
        found = QueryStatus(
            name,
            declared,
            query.checked,
            timed=all(each.stream.timed for each in bases),
            published=there,
            watermark=input_watermark(bases),
            commits=self._commits(there, bases) if there is not None else 0,
            stopped=view.stopped.get(query.query_id),
            may_resume=self._due.may_resume(name),
            waits_for=next((each for each in read if self._has_stopped(each)), None),
            pending=pending,
            missing_revisions=missing,
            deferred=correction.waits if correction is not None and (pending or missing) else None,
            refused=merge_refusals(self._refusals.get(there.stream_id, ())) if there is not None and ours else (),
            holder=self._holders.get(f"query {name}"),
        )
        state = _query_progress(found, ours=ours, behind=(StepKind.EVALUATE, name) in self._steps)
        due = (StepKind.EVALUATE, name) in self._steps and state not in (QueryProgress.STOPPED, QueryProgress.HELD)
        found = replace(found, state=state, due=due)
        return replace(found, blocked=self._blocked(found))

    def _blocked(self, found: QueryStatus) -> bool:
        """Whether work is due and the lease's holder may never do it."""
        if found.holder is None or not (found.due or found.pending or found.missing_revisions):
            return False
        now = self._view.now
        # A living holder renews its lease when two thirds of the term are left.
        silent = found.holder.until - now < leases.LEASE_MICROS // 2
        return silent or found.holder.life is Liveness.DEAD or now - found.holder.since >= LONG_LEASE_MICROS

    def _has_stopped(self, name: str) -> bool:
        return name in self._reads and self._view.queries[name].query_id in self._view.stopped

    def _commits(self, there: ResultArchive, bases: Sequence[StreamState]) -> int:
        """The number of commits that appended to its streams since."""
        ids = {each.stream_id for each in bases}
        return len({commit for stream, commit, _ in self._view.batches_since(there.last.data_commit) if stream in ids})


def _query_progress(found: QueryStatus, *, ours: bool, behind: bool) -> QueryProgress:
    """`behind`: whether an evaluation is due, or would be if no query had stopped."""
    if found.stopped is not None:
        return QueryProgress.STOPPED
    if found.watermark is None and found.published is None:
        return QueryProgress.WAITING
    if found.published is not None and ours:
        held = found.waits_for is not None and bool(found.missing_revisions)
        if found.watermark is None or not (behind or held):
            return QueryProgress.CURRENT
        return QueryProgress.BEHIND if found.waits_for is None else QueryProgress.HELD
    if found.waits_for is not None:
        return QueryProgress.HELD
    fresh = QueryProgress.NEW if behind else QueryProgress.WAITING
    return fresh if found.published is None else QueryProgress.EDITED


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
                sizes.get((standing.stream_id, Role.COPY), ArchiveSize()),
                sizes.get((standing.stream_id, Role.SUMMARY), ArchiveSize()),
                superseded.get(standing.stream_id, (0, 0)),
                standing.inline_bytes,
                standing.stable,
                pending.rows,
                held.get(name, 0),
                *_landing_counts(site, standing),
                _merged_feeds(site, standing),
            )
        )
    return found


def _declaration_state(recorded: Stream, declared: Stream | None) -> DeclarationState:
    if declared is None:
        return DeclarationState.GONE
    return DeclarationState.AGREED if declared == recorded else DeclarationState.CHANGED


def _merged_feeds(site: Site, standing: StreamState) -> MergeStatus | None:
    if standing.stream.merged.is_empty:
        return None
    from errata.read.feeds import merge_status  # noqa: PLC0415 - most streams have none

    return merge_status(site, standing)


def _landing_counts(site: Site, standing: StreamState) -> tuple[int | None, int, str | None]:
    """Files in the landing folder that are not ingested yet, files of it that are held, and why it cannot be listed."""
    if not standing.stream.folders:
        return None, 0, None
    try:
        folder = inspect_landing(site, standing, standing.stream)
    except ErrataError as error:
        return None, 0, str(error)
    return len(new_files(site, standing, [*folder.ready, *folder.unsettled])), folder.held, None
