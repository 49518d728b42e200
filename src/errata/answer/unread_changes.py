"""Changes of a query's sources that its published results do not contain: the one list of what is to be corrected.

They are what a step that corrects a query has to take up (`answer.steps`). There are three kinds:

    UnreadRevisions      revisions of a stream or relation, found by the overlays that hold them
    LateVersions         versions of a relation that batches brought behind the frontier of the results
    UpstreamCorrections  evaluations in which the results of another query were corrected

All is told from the catalog, without Spark and without SQL, but for the change records of another query that is
further. `read_revisions` reads the rows of overlays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow.compute as pc

from errata.answer.progress import deferred_overlays
from errata.answer.source_revisions import SourceRevisions, revisions_of_overlays
from errata.archive.overlays import bucket_sources, read_overlays
from errata.archive.schemas import BATCH
from errata.catalog import ledger
from errata.catalog.queries import RecordedQuery
from errata.catalog.result_archives import ResultArchive
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.model.bucket import Bucket
from errata.model.commit import Evaluation


class SourceStates(Protocol):
    """The look-ups that it takes, of streams and results as of one state of the catalog."""

    @property
    def standings(self) -> Mapping[str, StreamState]: ...

    @property
    def published(self) -> Mapping[str, ResultArchive]: ...

    def overlays(self, of: StreamState) -> Sequence[Bucket]:
        """All overlays of a stream, by what they revised first."""

    def added_since(self, of: StreamState, commit_id: int) -> Sequence[Bucket]:
        """The buckets that batches brought to a stream after a commit."""

    def evaluations(self, of: ResultArchive) -> Sequence[Evaluation]:
        """All evaluations of a query's results, in their order."""

    def reaches(self, of: ResultArchive, corrections: Sequence[Evaluation], frontier: int) -> bool:
        """Whether corrections of a query have changed results that begin up to a frontier. Reads change records."""

    def wanted_from(self, query: str) -> int | None:
        """The instant before which what a query would say is not needed; None if all of it is."""

    def batches_since(self, commit_id: int) -> Sequence[tuple[int, int, str]]:
        """Stream, commit and id of the batches that have brought rows after a commit."""


@dataclass(frozen=True, slots=True)
class CorrectionBacklog:
    """Corrections and late rows that wait: how many, and since which commit the first of them."""

    queue: int = 0
    since: int | None = None

    def __add__(self, other: CorrectionBacklog) -> CorrectionBacklog:
        known = [each for each in (self.since, other.since) if each is not None]
        return CorrectionBacklog(self.queue + other.queue, min(known, default=None))


@dataclass(frozen=True, slots=True)
class UnreadRevisions:
    """Revisions of a stream or relation after `known` and up to `up_to`."""

    state: StreamState
    known: int
    up_to: int
    overlays: tuple[Bucket, ...]

    @property
    def source(self) -> str:
        return self.state.stream.name


@dataclass(frozen=True, slots=True)
class LateVersions:
    """Versions of a relation that are valid from before the frontier of results and came after these."""

    state: StreamState
    known: int
    """The revision up to which the results have read the relation."""
    buckets: tuple[Bucket, ...]

    @property
    def source(self) -> str:
        return self.state.stream.name


@dataclass(frozen=True, slots=True)
class UpstreamCorrections:
    """Corrections of another query's results, which have changed some of them: perhaps none that were read."""

    upstream: ResultArchive
    evaluations: tuple[Evaluation, ...]

    @property
    def source(self) -> str:
        return self.upstream.name


UnreadChange = UnreadRevisions | LateVersions | UpstreamCorrections


def current_basis(query: RecordedQuery, reads: Iterable[str], view: SourceStates) -> ResultArchive | None:
    """The results of a query that can be corrected. None where there are none, or where an evaluation replaces them
    all: the query was edited, or results that they were made of have been replaced."""
    there = view.published.get(query.checked.name)
    if there is None or there.query_id != query.query_id:
        return None
    replaced = any(each.added_in > there.last.commit_id for each in upstream_archives(reads, view))
    return None if replaced else there


def upstream_archives(reads: Iterable[str], view: SourceStates) -> list[ResultArchive]:
    """The results of the queries among some sources."""
    return [view.published[name] for name in reads if name not in view.standings and name in view.published]


def unread_changes(reads: Sequence[str], basis: ResultArchive, view: SourceStates) -> Iterator[UnreadChange]:
    """What results lack of the sources that their query reads itself."""
    below = upstream_archives(reads, view)
    for name in reads:
        if name in view.standings:
            of = view.standings[name]
            # A revision of an instant at the frontier is corrected, too, though the next evaluation would read it.
            revisions = unread_revisions(of, basis, view, readable_revision(of, below), basis.frontier + 1)
            if revisions is not None:
                yield revisions
            if of.stream.relation is not None and (versions := late_versions(of, basis, view)) is not None:
                yield versions
        elif name in view.published:
            upstream = view.published[name]
            if corrections := unread_corrections(upstream, basis, view):
                yield UpstreamCorrections(upstream, tuple(corrections))


def readable_revision(of: StreamState, below: Iterable[ResultArchive]) -> int:
    """Up to which revision a query reads a stream: no further than the queries that it reads, or two pasts would be
    mixed."""
    name = of.stream.name
    return min([of.applied, *(each.last.revisions[name] for each in below if name in each.last.revisions)])


def unread_revisions(
    of: StreamState, basis: ResultArchive, view: SourceStates, up_to: int, answered: int
) -> UnreadRevisions | None:
    """The revisions of a stream that results lack, if any of them concerns rows before `answered`: others are read by
    the next evaluation."""
    known = basis.last.revisions.get(of.stream.name, of.applied)
    if up_to <= known:
        return None
    found = [
        each for each in view.overlays(of) if (each.revision_last or 0) > known and (each.revision_first or 0) <= up_to
    ]
    return UnreadRevisions(of, known, up_to, tuple(found)) if deferred_overlays(found, known, answered) else None


def late_versions(of: StreamState, basis: ResultArchive, view: SourceStates) -> LateVersions | None:
    """The versions of a relation that came late for results."""
    came = [each for each in view.added_since(of, basis.last.data_commit) if each.vs_min < basis.frontier]
    known = basis.last.revisions.get(of.stream.name, of.applied)
    return LateVersions(of, known, tuple(came)) if came else None


def unread_corrections(of: ResultArchive, basis: ResultArchive, view: SourceStates) -> list[Evaluation]:
    """Corrections of a query's results that others, made of them, have not taken up, if any has changed results that
    begin up to the frontier of these: others are read by the next evaluation."""
    known = basis.last.inputs.get(of.name)
    if known == of.last.number:
        return []
    history = view.evaluations(of)
    if known is None:
        known = max((each.number for each in history if each.commit_id < basis.last.commit_id), default=0)
    found = [
        each for each in history if each.number > known and each.correction is not None and each.correction.changed
    ]
    behind = found and (of.frontier <= basis.frontier or view.reaches(of, found, basis.frontier))
    return found if behind else []


def has_newer_rows(basis: ResultArchive, view: SourceStates) -> bool:
    """Whether rows of the instant at the frontier have come that the results lack: the next evaluation reads them."""
    read = [view.standings[name] for name in basis.last.revisions if name in view.standings]
    came = (each for of in read for each in view.added_since(of, basis.last.data_commit))
    return any(each.vs_min <= basis.frontier <= each.vs_max for each in came)


def read_revisions(site: Site, change: UnreadRevisions) -> SourceRevisions:
    """The row versions of unread revisions. They have waited since their batches came, not since they were applied."""
    overlays = read_overlays(change.state.stream, site.warehouse, bucket_sources(site.catalog, change.overlays))
    came = ledger.commits_of_batches(site.catalog, pc.unique(overlays[BATCH]).drop_null().to_pylist())
    first = min([*came.values(), *(each.added_in for each in change.overlays)])
    return revisions_of_overlays(change.state.stream, overlays, change.known, change.up_to, first)
