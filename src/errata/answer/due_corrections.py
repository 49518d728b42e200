"""Which corrections are due, by the deferral that the project and its queries declare. What is not due waits.

`Deferrals` tells of one query or stream whether what waits is due; run, sweep, `sweep --plan` and status ask it.
`find_due_corrections` tells what `sweep(due=True)` would find to do. The sensor asks it again and again, so that it
reads the catalog alone, without Spark and without a query's text. It leaves out what such a sweep would leave as it
is, or the sensor would never come to rest: corrections that are deferred, that speak of rows which have not come yet,
or that only concern queries which have stopped, wait for one that has, or are being worked on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import pyarrow.compute as pc

from errata.answer.progress import evaluation_order, transitive_inputs
from errata.answer.source_revisions import SourceRevisions
from errata.answer.unread_changes import (
    LateVersions,
    NewestCatalog,
    UnreadChange,
    UnreadRevisions,
    UpstreamCorrections,
    current_basis,
    has_newer_rows,
    read_revisions,
    unread_changes,
    unread_revisions,
)
from errata.archive.overlays import bucket_sources
from errata.archive.revisions.pending import can_settle_any
from errata.catalog import buckets, commits, leases, queries
from errata.catalog.queries import RecordedQuery, StoppedQuery
from errata.catalog.result_archives import ResultArchive
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.errors import unknown_name_error
from errata.model.bucket import Role
from errata.model.deferral import DEFAULT_DEFERRAL, AlwaysRule, Deferral, NeverRule
from errata.model.results import EVALUATION, VS


@dataclass(frozen=True, slots=True)
class CorrectionBacklog:
    """Corrections and late rows that wait: how many, and since which commit the first of them."""

    queue: int = 0
    since: int | None = None

    def __add__(self, other: CorrectionBacklog) -> CorrectionBacklog:
        known = [each for each in (self.since, other.since) if each is not None]
        return CorrectionBacklog(self.queue + other.queue, min(known, default=None))


class Deferrals:
    """What waits of each stream, and whether it is due for each query."""

    def __init__(self, site: Site, view: NewestCatalog | None = None) -> None:
        self._site = site
        self._now = site.catalog.clock.now()
        self._view = view or NewestCatalog(site)
        self._recorded = queries.recorded_queries(site.catalog)
        self._reads = {name: each.checked.reads for name, each in self._recorded.items()}
        self._pending = {name: _pending_backlog(site, each) for name, each in self._view.standings.items()}

    def of(self, query: str) -> Deferral:
        """When corrections of a query's results are due."""
        return self._recorded[query].checked.query.sweep or self._site.project.sweep

    def due(self, query: str, revised: Iterable[SourceRevisions]) -> bool:
        """Whether applied revisions are due to reach a query's results."""
        return self._is_due(self.of(query), _backlog_of_revisions(revised))

    def waits_for(self, query: str, revised: Iterable[SourceRevisions]) -> str | None:
        """What the corrections of a query wait for, in words; None where they are due."""
        return self._words(query, _backlog_of_revisions(revised))

    def query_waits_for(self, query: str) -> str | None:
        """What the changes that a query's results lack wait for, in words. None where these are due or there are none.
        Corrections of queries that it reads are not counted."""
        whole = self._query_backlog(query, transitive_inputs(query, self._reads))
        return self._words(query, whole) if whole.queue else None

    def _words(self, query: str, whole: CorrectionBacklog) -> str | None:
        deferral = self.of(query)
        if self._is_due(deferral, whole):
            return None
        return deferral.waits_for(whole.queue, self._age(whole), self._now)

    def streams_due(self) -> list[str]:
        """The streams whose pending corrections are due to be applied: due for one of the queries that read them."""
        waits = [name for name, each in self._pending.items() if each.queue]
        if not waits:
            return []
        read = {name: transitive_inputs(name, self._reads) for name in self._recorded}
        return [name for name in waits if self._stream_is_due(name, read)]

    def _stream_is_due(self, name: str, read: Mapping[str, Iterable[str]]) -> bool:
        readers = [query for query, names in read.items() if name in names]
        if not readers:
            return self._is_due(self._site.project.sweep, self._pending[name])
        return any(self._is_due(self.of(each), self._query_backlog(each, read[each])) for each in readers)

    def _query_backlog(self, query: str, read: Iterable[str]) -> CorrectionBacklog:
        """Pending corrections of the streams that a query reads, and applied ones that its results lack."""
        whole, basis = CorrectionBacklog(), self._view.published.get(query)
        for name in read:
            if (state := self._view.standings.get(name)) is not None:
                whole += self._pending[name]
                whole += CorrectionBacklog() if basis is None else self._applied_backlog(query, state, basis)
        return whole

    def _applied_backlog(self, query: str, state: StreamState, basis: ResultArchive) -> CorrectionBacklog:
        """Applied corrections of a stream that a query's results lack and do not take up by going on."""
        change = unread_revisions(state, basis, self._view, state.applied, basis.frontier)
        if change is None:
            return CorrectionBacklog()
        if isinstance(self.of(query).rule, AlwaysRule | NeverRule):
            # How many wait, and for how long, decides nothing: their rows need not be read.
            return CorrectionBacklog(sum(each.rows for each in change.overlays))
        return _backlog_of_revisions([read_revisions(self._site, change)])

    def _is_due(self, deferral: Deferral, waiting: CorrectionBacklog) -> bool:
        return deferral.due(waiting.queue, self._age(waiting), self._now)

    def _age(self, waiting: CorrectionBacklog) -> int:
        """For how long the first has waited, in microseconds."""
        if waiting.since is None:
            return 0
        came = commits.commits_by_number(self._site.catalog, [waiting.since]).get(waiting.since)
        return 0 if came is None else max(0, self._now - came.at)


def _backlog_of_revisions(revised: Iterable[SourceRevisions]) -> CorrectionBacklog:
    return sum((CorrectionBacklog(each.count, each.came) for each in revised), CorrectionBacklog())


def _pending_backlog(site: Site, of: StreamState) -> CorrectionBacklog:
    if of.revisions <= of.applied:
        return CorrectionBacklog()
    found = buckets.visible_buckets(site.catalog, of.stream_id, of.changed_in, role=Role.PENDING)
    return CorrectionBacklog(sum(each.rows for each in found), min((each.added_in for each in found), default=None))


# Corrections that a sweep of what is due would find.


@dataclass(frozen=True, slots=True)
class DueRevisions:
    """Corrections of one stream that are due."""

    count: int
    first: int
    """The number of the first of them, and of the last."""
    last: int

    def __or__(self, other: DueRevisions) -> DueRevisions:
        first, last = min(self.first, other.first), max(self.last, other.last)
        return DueRevisions(max(self.count, other.count), first, last)


@dataclass(frozen=True, slots=True)
class DueCorrections:
    """What a sweep of what is due would find to do; false where that is nothing."""

    streams: Mapping[str, DueRevisions] = field(default_factory=dict)
    """Streams whose corrections are to be applied, or to reach results."""
    queries: Sequence[str] = ()
    """Queries that they concern, also those whose results may prove to be right already."""
    commit_id: int = 0
    """The newest commit when this was looked up."""
    fingerprint: str = ""
    """Identifies the work that is due; empty where there is none."""

    def __bool__(self) -> bool:
        return bool(self.fingerprint)

    @property
    def record(self) -> dict[str, object]:
        """As JSON can hold it."""
        found = {
            name: {"count": each.count, "first": each.first, "last": each.last} for name, each in self.streams.items()
        }
        return {
            "streams": found,
            "queries": list(self.queries),
            "commit": self.commit_id,
            "fingerprint": self.fingerprint,
        }


def find_due_corrections(site: Site, names: Sequence[str] = ()) -> DueCorrections:
    """What is due of the queries named, and of those that they read; without names, of all."""
    commit_id = commits.newest_commit(site.catalog)
    known = queries.recorded_queries(site.catalog)
    for name in names:
        if name not in known:
            raise unknown_name_error("query", name, list(known))
    search = _DueSearch(site, known, list(names))
    search.run()
    return DueCorrections(dict(sorted(search.streams.items())), sorted(search.queries), commit_id, search.fingerprint)


@dataclass(frozen=True, slots=True)
class _DueChange:
    """A change that a query's results lack, as far as it decides what is due."""

    source: str
    work: str
    """Identifies it in the fingerprint."""
    revised: SourceRevisions | None = None
    """Of revisions whose deferral depends on them: their rows."""
    deferrable: bool = False
    """Whether it may wait: revisions of a stream may, corrections of another query and late versions may not."""
    arrived: DueRevisions | None = None


class _DueSearch:
    """One look at the catalog."""

    def __init__(self, site: Site, known: Mapping[str, RecordedQuery], names: Sequence[str]) -> None:
        self._site, self._known = site, known
        self._reads = {name: each.checked.reads for name, each in known.items()}
        wanted = {other for name in names for other in (name, *transitive_inputs(name, self._reads))}
        self._wanted = [name for name in known if not names or name in wanted]
        self._view = NewestCatalog(site)
        self._deferrals = Deferrals(site, self._view)
        self._stopped = queries.stopped_queries(site.catalog)
        self._leases = leases.living_lease_names(site.catalog)
        # The streams that these queries read, or all where none is named.
        self._sources = {name for name in self._view.standings if not names or name in wanted}
        self._blocked: set[str] = set()
        self._fingerprint_parts: list[str] = []
        self.streams: dict[str, DueRevisions] = {}
        self.queries: set[str] = set()

    @property
    def fingerprint(self) -> str:
        if not self._fingerprint_parts:
            return ""
        return hashlib.sha256("\n".join(self._fingerprint_parts).encode()).hexdigest()[:16]

    def run(self) -> None:
        """Find what is due: first what is to be applied to history, then what is to reach results."""
        for name in self._deferrals.streams_due():
            of = self._view.standings[name]
            if name in self._sources and can_settle_any(self._site, of):
                self._add_stream(name, DueRevisions(of.revisions - of.applied, of.applied + 1, of.revisions))
                self._fingerprint_parts.append(f"stream {name} {of.revisions}")
        pending = set(self.streams)
        for name in evaluation_order({name: self._reads[name] for name in self._wanted}):
            self._add_query(name, pending)

    def _add_query(self, name: str, pending: set[str]) -> None:
        """Find what is due of a query, if it can move."""
        if not self._blocked.isdisjoint(self._reads[name]):
            self._blocked.add(name)
            return
        published = self._view.published
        found = self._due_changes(name)
        if not found and (pending | self.queries).isdisjoint(self._reads[name]):
            return
        if self._cannot_move(name, pending):
            self._blocked.add(name)
            return
        for each in found:
            if each.arrived is not None:
                self._add_stream(each.source, each.arrived)
        if found:
            number = published[name].last.number
            self._fingerprint_parts.append(" ".join([f"query {name} {number}", *(each.work for each in found)]))
        if name in published:
            self.queries.add(name)

    def _add_stream(self, name: str, arrived: DueRevisions) -> None:
        known = self.streams.get(name)
        self.streams[name] = arrived if known is None else known | arrived

    def _cannot_move(self, name: str, pending: set[str]) -> bool:
        """Whether a sweep would pass a query over: it is being worked on, or has stopped."""
        if f"query {name}" in self._leases:
            return True
        halt = self._stopped.get(self._known[name].query_id)
        return halt is not None and not self._has_changed(name, halt, pending)

    def _has_changed(self, name: str, halt: StoppedQuery, pending: set[str]) -> bool:
        """Whether anything has come since that may let a stopped query go on."""
        read = [each for each in transitive_inputs(name, self._reads) if each in self._view.standings]
        return any(each in pending or self._view.standings[each].changed_in > halt.data_commit for each in read)

    def _due_changes(self, name: str) -> list[_DueChange]:
        """What a query's results have to take up now."""
        basis = current_basis(self._known[name], self._reads[name], self._view)
        if basis is None:
            return []
        deferral = self._deferrals.of(name)
        changes = unread_changes(self._reads[name], basis, self._view)
        found = [due for each in changes for due in self._described(each, basis, deferral)]
        if deferral == DEFAULT_DEFERRAL or any(not each.deferrable for each in found):
            return found
        revised = [each.revised for each in found if each.revised is not None]
        return found if found and self._deferrals.due(name, revised) else []

    def _described(self, change: UnreadChange, basis: ResultArchive, deferral: Deferral) -> Iterator[_DueChange]:
        """A change, unless a sweep would find nothing to do for it."""
        match change:
            case UnreadRevisions():
                yield self._of_revisions(change, deferral)
            case LateVersions():
                yield from self._of_versions(change, basis)
            case UpstreamCorrections():
                if change.upstream.frontier <= basis.frontier or self._reaches(change, basis.frontier):
                    yield _DueChange(change.source, f"{change.source} {change.evaluations[-1].number}")
            case _:
                assert_never(change)

    def _of_revisions(self, change: UnreadRevisions, deferral: Deferral) -> _DueChange:
        """Revisions of a stream; their rows are read only where it matters how many there are."""
        name, known, up_to = change.source, change.known, change.up_to
        revised = None if deferral == DEFAULT_DEFERRAL else read_revisions(self._site, change)
        count = sum(each.rows for each in change.overlays) if revised is None else revised.count
        ends = [(each.revision_first or 0, each.revision_last or 0) for each in change.overlays]
        arrived = DueRevisions(count, max(known + 1, min(ends)[0]), min(up_to, max(last for _, last in ends)))
        return _DueChange(name, f"{name} {known} {up_to}", revised, True, arrived)

    def _of_versions(self, change: LateVersions, basis: ResultArchive) -> Iterator[_DueChange]:
        """Late versions. Where rows at the frontier have come, too, a sweep leaves it to the next evaluation to record
        what was read. Until then each sweep takes the same versions up again, which changes nothing: not due."""
        since = basis.last.data_commit
        if basis.last.correction is not None and has_newer_rows(basis, self._view):
            since = max(since, basis.last.commit_id)
        came = [each.added_in for each in change.buckets if each.added_in > since]
        if came:
            yield _DueChange(change.source, f"{change.source} late {max(came)}")

    def _reaches(self, change: UpstreamCorrections, frontier: int) -> bool:
        """Whether corrections of another query have changed results that begin before a query's own frontier."""
        site, of, numbers = self._site, change.upstream, {each.number for each in change.evaluations}
        feed = buckets.visible_buckets(site.catalog, of.stream_id, of.last.commit_id, role=Role.FEED)
        for each in bucket_sources(site.catalog, [each for each in feed if each.vs_min <= frontier]):
            rows = each.read(site.warehouse, [VS, EVALUATION])
            begun = rows.filter(pc.less_equal(rows[VS], frontier))
            if not numbers.isdisjoint(pc.unique(begun[EVALUATION]).to_pylist()):
                return True
        return False
