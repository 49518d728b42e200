"""Which corrections are due, as the project and its queries declare; what is not due waits and is not lost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

import pyarrow.compute as pc

from errata.answer.progress import deferred_overlays, transitive_inputs
from errata.answer.source_revisions import SourceRevisions, revisions_of_overlays
from errata.archive.overlays import bucket_sources, read_overlays
from errata.archive.revisions.pending import can_settle_any
from errata.archive.schemas import BATCH
from errata.catalog import buckets, commits, leases, ledger, queries, streams
from errata.catalog.queries import RecordedQuery, StoppedQuery
from errata.catalog.result_archives import ResultArchive, evaluations_of, read_archives
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.errors import unknown_name_error
from errata.model.bucket import Bucket, Role
from errata.model.commit import Evaluation
from errata.model.deferral import DEFAULT_DEFERRAL, Deferral
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

    def __init__(self, site: Site) -> None:
        self._site = site
        self._now = site.catalog.clock.now()
        self._standings = {each.stream.name: each for each in streams.stream_states(site.catalog)}
        self._recorded = queries.recorded_queries(site.catalog)
        self._pending = {name: _pending_backlog(site, each) for name, each in self._standings.items()}

    def of(self, query: str) -> Deferral:
        """When corrections of a query's results are due."""
        return self._recorded[query].checked.query.sweep or self._site.project.sweep

    def due(self, query: str, revised: Iterable[SourceRevisions]) -> bool:
        """Whether what has been applied to history is due to reach a query's results."""
        return self._is_due(self.of(query), _backlog_of_revisions(revised))

    def waits_for(self, query: str, revised: Iterable[SourceRevisions]) -> str | None:
        """What the corrections of a query wait for, in words; None where they are due."""
        return self._words(query, _backlog_of_revisions(revised))

    def standing(self, query: str, published: Mapping[str, ResultArchive]) -> str | None:
        """What all that a query's results do not contain waits for, in words; None where it is due, or nothing waits.
        Corrections of queries that it reads are not counted."""
        reads = {name: each.checked.reads for name, each in self._recorded.items()}
        whole = self._waits_for(query, transitive_inputs(query, reads), published)
        return self._words(query, whole) if whole.queue else None

    def _words(self, query: str, whole: CorrectionBacklog) -> str | None:
        deferral = self.of(query)
        if self._is_due(deferral, whole):
            return None
        return deferral.waits_for(whole.queue, self._age(whole), self._now)

    def streams_due(self) -> list[str]:
        """The streams of which what is pending is due to become history: for one of the queries that read them."""
        waits = [name for name, each in self._pending.items() if each.queue]
        if not waits:
            return []
        published = read_archives(self._site.catalog)
        reads = {name: each.checked.reads for name, each in self._recorded.items()}
        read = {name: transitive_inputs(name, reads) for name in self._recorded}
        return [name for name in waits if self._stream_is_due(name, read, published)]

    def _stream_is_due(
        self, name: str, read: Mapping[str, Iterable[str]], published: Mapping[str, ResultArchive]
    ) -> bool:
        readers = [query for query, names in read.items() if name in names]
        if not readers:
            return self._is_due(self._site.project.sweep, self._pending[name])
        return any(self._is_due(self.of(each), self._waits_for(each, read[each], published)) for each in readers)

    def _waits_for(self, query: str, read: Iterable[str], published: Mapping[str, ResultArchive]) -> CorrectionBacklog:
        """All that the results of a query do not contain."""
        whole, there = CorrectionBacklog(), published.get(query)
        for name in read:
            if name in self._standings:
                whole += self._pending[name] + _applied_backlog(self._site, self._standings[name], there)
        return whole

    def _is_due(self, deferral: Deferral, waiting: CorrectionBacklog) -> bool:
        return deferral.due(waiting.queue, self._age(waiting), self._now)

    def _age(self, waiting: CorrectionBacklog) -> int:
        """For how long the first has waited."""
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


def _applied_backlog(site: Site, of: StreamState, there: ResultArchive | None) -> CorrectionBacklog:
    """What has become history and has not reached a query's results."""
    known = of.applied if there is None else there.last.revisions.get(of.stream.name, of.applied)
    if there is None or known >= of.applied:
        return CorrectionBacklog()
    found = deferred_overlays(buckets.all_overlays(site.catalog, of.stream_id), known, there.frontier)
    return CorrectionBacklog(sum(each.rows for each in found), min((each.added_in for each in found), default=None))


# Corrections that are there to be swept now. What `sweep(due=True)` would do is told from the catalog, without Spark
# and without reading a query's text: so it can be asked again and again by those who wait for it.
#
# It says nothing of what a sweep would leave as it is, or who waits would never come to rest: corrections that are
# deferred, that speak of rows which have not come yet, or that only concern queries which have stopped, wait for one
# that has, or are being worked on.


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
    """Streams whose corrections are to become history, or to reach results."""
    queries: Sequence[str] = ()
    """Queries that they concern: also those whose results may turn out to be right as they are."""
    commit_id: int = 0
    """The newest commit when this was looked up."""
    fingerprint: str = ""
    """Another one when other work is there to be done, and empty where there is none."""

    def __bool__(self) -> bool:
        return bool(self.fingerprint)

    @property
    def told(self) -> dict[str, object]:
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
    look = _DueSearch(site, known, list(names))
    look.take()
    return DueCorrections(dict(sorted(look.streams.items())), sorted(look.queries), commit_id, look.fingerprint)


@dataclass(frozen=True, slots=True)
class _UnreadChange:
    """What has been revised of one source, and a query's results do not contain."""

    source: str
    work: str
    """Tells it from other such work."""
    waits: SourceRevisions | None = None
    """Revisions of a stream, which may be deferred; what came of another query, or late, may not."""
    arrived: DueRevisions | None = None


class _DueSearch:
    """One look at the catalog."""

    def __init__(self, site: Site, known: Mapping[str, RecordedQuery], names: Sequence[str]) -> None:
        self._site, self._known = site, known
        self._reads = {name: each.checked.reads for name, each in known.items()}
        wanted = {other for name in names for other in (name, *transitive_inputs(name, self._reads))}
        self._wanted = [name for name in known if not names or name in wanted]
        self._deferrals = Deferrals(site)
        self._standings = {each.stream.name: each for each in streams.stream_states(site.catalog)}
        self._published = read_archives(site.catalog)
        self._stopped = queries.stopped_queries(site.catalog)
        self._leases = leases.living_lease_names(site.catalog)
        self._overlays: dict[str, list[Bucket]] = {}
        # Of history what these queries read, or of all where none is named.
        self._sources = {name for name in self._standings if not names or name in wanted}
        self._blocked: set[str] = set()
        self._works: list[str] = []
        self.streams: dict[str, DueRevisions] = {}
        self.queries: set[str] = set()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(self._works).encode()).hexdigest()[:16] if self._works else ""

    def take(self) -> None:
        """Find what is due: first what is to become history, then what is to reach results."""
        for name in self._deferrals.streams_due():
            of = self._standings.get(name)
            if of is not None and name in self._sources and can_settle_any(self._site, of):
                self._note(name, DueRevisions(of.revisions - of.applied, of.applied + 1, of.revisions))
                self._works.append(f"stream {name} {of.revisions}")
        pending = set(self.streams)
        reads = {name: [other for other in self._reads[name] if other in self._known] for name in self._wanted}
        for name in TopologicalSorter(reads).static_order():
            self._take(name, pending)

    def _take(self, name: str, pending: set[str]) -> None:
        """Find what is due of a query, if it can move."""
        if not self._blocked.isdisjoint(self._reads[name]):
            self._blocked.add(name)
            return
        found = self._due(name) if name in self._published else []
        if not found and (pending | self.queries).isdisjoint(self._reads[name]):
            return
        if self._cannot_move(name, pending):
            self._blocked.add(name)
            return
        for each in found:
            if each.arrived is not None:
                self._note(each.source, each.arrived)
        if found:
            number = self._published[name].last.number
            self._works.append(" ".join([f"query {name} {number}", *(each.work for each in found)]))
        if name in self._published:
            self.queries.add(name)

    def _note(self, name: str, arrived: DueRevisions) -> None:
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
        read = [each for each in transitive_inputs(name, self._reads) if each in self._standings]
        return any(each in pending or self._standings[each].changed_in > halt.data_commit for each in read)

    def _due(self, name: str) -> list[_UnreadChange]:
        """What a query has to take up now."""
        basis = self._published[name]
        below = [self._published[other] for other in self._reads[name] if other in self._published]
        replaced = any(each.added_in > basis.last.commit_id for each in below)
        if basis.query_id != self._known[name].query_id or replaced:
            return []
        found = list(self._behind(name, basis, below))
        deferral = self._deferrals.of(name)
        if not found or deferral == DEFAULT_DEFERRAL or any(each.waits is None for each in found):
            return found
        revised = [each.waits for each in found if each.waits is not None]
        return found if self._deferrals.due(name, revised) else []

    def _behind(self, name: str, basis: ResultArchive, below: Sequence[ResultArchive]) -> Iterator[_UnreadChange]:
        for source in self._reads[name]:
            if source in self._standings:
                of = self._standings[source]
                yield from self._of_stream(
                    of, basis, self._known_to(source, below), self._deferrals.of(name) == DEFAULT_DEFERRAL
                )
                if of.stream.relation is not None:
                    yield from self._of_versions(of, basis)
            elif source in self._published:
                yield from self._of_query(self._published[source], basis)

    def _known_to(self, source: str, below: Sequence[ResultArchive]) -> int:
        """Up to which revision a stream is read: no further than by the queries that are read."""
        told = [each.last.revisions[source] for each in below if source in each.last.revisions]
        return min([self._standings[source].applied, *told])

    def _of_stream(self, of: StreamState, basis: ResultArchive, up_to: int, always: bool) -> Iterator[_UnreadChange]:
        """What has been revised behind what has been answered; read only where it matters how much that is."""
        name = of.stream.name
        known = basis.last.revisions.get(name, of.applied)
        if up_to <= known:
            return
        found = [
            each
            for each in self._overlays_of(of)
            if (each.revision_last or 0) > known and (each.revision_first or 0) <= up_to
        ]
        if not deferred_overlays(found, known, basis.frontier + 1):
            return
        revised = None if always else self._read(of, found, known, up_to)
        count = sum(each.rows for each in found) if revised is None else revised.count
        ends = [(each.revision_first or 0, each.revision_last or 0) for each in found]
        arrived = DueRevisions(count, max(known + 1, min(ends)[0]), min(up_to, max(last for _, last in ends)))
        yield _UnreadChange(name, f"{name} {known} {up_to}", revised, arrived)

    def _overlays_of(self, of: StreamState) -> list[Bucket]:
        name = of.stream.name
        if name not in self._overlays:
            self._overlays[name] = buckets.all_overlays(self._site.catalog, of.stream_id)
        return self._overlays[name]

    def _read(self, of: StreamState, found: Sequence[Bucket], known: int, up_to: int) -> SourceRevisions:
        overlays = read_overlays(of.stream, self._site.warehouse, bucket_sources(self._site.catalog, found))
        came = ledger.commits_of_batches(self._site.catalog, pc.unique(overlays[BATCH]).drop_null().to_pylist())
        return revisions_of_overlays(
            of.stream, overlays, known, up_to, min([*came.values(), *(each.added_in for each in found)])
        )

    def _of_versions(self, of: StreamState, basis: ResultArchive) -> Iterator[_UnreadChange]:
        """Versions of a relation that have come behind what has been answered. A sweep that leaves it to the next
        evaluation to have read them does not take them up twice."""
        last, since = basis.last, basis.last.data_commit
        if last.swept is not None and self._more_has_come(basis):
            since = max(since, last.commit_id)
        came = [each for each in self._added(of.stream_id, since) if each.vs_min < basis.frontier]
        if came:
            yield _UnreadChange(of.stream.name, f"{of.stream.name} late {max(each.added_in for each in came)}")

    def _more_has_come(self, basis: ResultArchive) -> bool:
        """Whether rows of the last instant have come that the answer does not contain."""
        read = [self._standings[name] for name in basis.last.revisions if name in self._standings]
        came = (each for of in read for each in self._added(of.stream_id, basis.last.data_commit))
        return any(each.vs_min <= basis.frontier <= each.vs_max for each in came)

    def _added(self, stream_id: int, after: int) -> list[Bucket]:
        up_to = max(each.changed_in for each in self._standings.values())
        added = buckets.added_between(self._site.catalog, stream_id, (Role.BASE,), after=after, up_to=up_to)
        return [each for each in added if each.batch_no is not None]

    def _of_query(self, of: ResultArchive, basis: ResultArchive) -> Iterator[_UnreadChange]:
        """Corrections of another query's results that have changed some which this one has read."""
        later = self._corrections(of, basis)
        if later and (of.frontier <= basis.frontier or self._reaches(of, later, basis.frontier)):
            yield _UnreadChange(of.name, f"{of.name} {later[-1].number}")

    def _corrections(self, of: ResultArchive, basis: ResultArchive) -> list[Evaluation]:
        known = basis.last.inputs.get(of.name)
        if known == of.last.number:
            return []
        told = evaluations_of(self._site.catalog, of.stream_id, up_to=of.last.commit_id)
        if known is None:
            known = max((each.number for each in told if each.commit_id < basis.last.commit_id), default=0)
        return [each for each in told if each.number > known and each.swept is not None and each.swept.changed]

    def _reaches(self, of: ResultArchive, later: Sequence[Evaluation], frontier: int) -> bool:
        """Whether corrections have changed results that begin before a query's own end."""
        site, numbers = self._site, {each.number for each in later}
        feed = buckets.visible_buckets(site.catalog, of.stream_id, of.last.commit_id, role=Role.FEED)
        for each in bucket_sources(site.catalog, [each for each in feed if each.vs_min <= frontier]):
            rows = each.read(site.warehouse, [VS, EVALUATION])
            begun = rows.filter(pc.less_equal(rows[VS], frontier))
            if not numbers.isdisjoint(pc.unique(begun[EVALUATION]).to_pylist()):
                return True
        return False
