"""Corrections that are there to be swept now. What `sweep(due=True)` would do is told from the catalog, without Spark
and without reading a query's text: so it can be asked again and again by those who wait for it.

It says nothing of what a sweep would leave as it is, or who waits would never come to rest: corrections that are
deferred, that speak of rows which have not come yet, or that only concern queries which have stopped, wait for one that
has, or are being worked on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

import pyarrow.compute as pc

from errata.archive.masks import read_overlays, sources
from errata.archive.overlay import BATCH
from errata.catalog import buckets, commits, leases, ledger, queries, stopped, streams
from errata.catalog.published import Published, all_published, evaluations_of
from errata.catalog.queries import RecordedQuery
from errata.catalog.stopped import Stopped
from errata.catalog.streams import Standing
from errata.errors import unknown
from errata.flows.answering.due import all_read, left_out
from errata.flows.correcting.deferrals import Deferrals
from errata.flows.site import Site
from errata.flows.taking.early import any_settles
from errata.model.bucket import Bucket, Role
from errata.model.deferral import ALWAYS
from errata.model.evaluation import Evaluation
from errata.model.results import RUN, VS
from errata.revise.revised import Revised, of_overlays


@dataclass(frozen=True, slots=True)
class Arrived:
    """Corrections of one stream that are due."""

    count: int
    first: int
    """The number of the first of them, and of the last."""
    last: int

    def __or__(self, other: Arrived) -> Arrived:
        first, last = min(self.first, other.first), max(self.last, other.last)
        return Arrived(max(self.count, other.count), first, last)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What a sweep of what is due would find to do; false where that is nothing."""

    streams: Mapping[str, Arrived] = field(default_factory=dict)
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


def arrivals(site: Site, names: Sequence[str] = ()) -> Arrivals:
    """What is due of the queries named, and of those that they read; without names, of all."""
    commit_id = commits.newest(site.catalog)
    known = queries.recorded(site.catalog)
    for name in names:
        if name not in known:
            raise unknown("query", name, list(known))
    look = _Look(site, known, list(names))
    look.take()
    return Arrivals(dict(sorted(look.streams.items())), sorted(look.queries), commit_id, look.fingerprint)


@dataclass(frozen=True, slots=True)
class _Behind:
    """What has been revised of one source, and a query's results do not contain."""

    source: str
    work: str
    """Tells it from other such work."""
    waits: Revised | None = None
    """Revisions of a stream, which may be deferred; what came of another query, or late, may not."""
    arrived: Arrived | None = None


class _Look:
    """One look at the catalog."""

    def __init__(self, site: Site, known: Mapping[str, RecordedQuery], names: Sequence[str]) -> None:
        self._site, self._known = site, known
        self._reads = {name: each.checked.reads for name, each in known.items()}
        wanted = {other for name in names for other in (name, *all_read(name, self._reads))}
        self._wanted = [name for name in known if not names or name in wanted]
        self._deferrals = Deferrals(site)
        self._standings = {each.stream.name: each for each in streams.standings(site.catalog)}
        self._published = all_published(site.catalog)
        self._stopped = stopped.all_stopped(site.catalog)
        self._leases = leases.living(site.catalog)
        self._overlays: dict[str, list[Bucket]] = {}
        # Of history what these queries read, or of all where none is named.
        self._sources = {name for name in self._standings if not names or name in wanted}
        self._blocked: set[str] = set()
        self._works: list[str] = []
        self.streams: dict[str, Arrived] = {}
        self.queries: set[str] = set()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("\n".join(self._works).encode()).hexdigest()[:16] if self._works else ""

    def take(self) -> None:
        """Find what is due: first what is to become history, then what is to reach results."""
        for name in self._deferrals.streams_due():
            of = self._standings.get(name)
            if of is not None and name in self._sources and any_settles(self._site, of):
                self._note(name, Arrived(of.revisions - of.applied, of.applied + 1, of.revisions))
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

    def _note(self, name: str, arrived: Arrived) -> None:
        known = self.streams.get(name)
        self.streams[name] = arrived if known is None else known | arrived

    def _cannot_move(self, name: str, pending: set[str]) -> bool:
        """Whether a sweep would pass a query over: it is being worked on, or has stopped."""
        if f"query {name}" in self._leases:
            return True
        halt = self._stopped.get(self._known[name].query_id)
        return halt is not None and not self._has_changed(name, halt, pending)

    def _has_changed(self, name: str, halt: Stopped, pending: set[str]) -> bool:
        """Whether anything has come since that may let a stopped query go on."""
        read = [each for each in all_read(name, self._reads) if each in self._standings]
        return any(each in pending or self._standings[each].changed_in > halt.data_commit for each in read)

    def _due(self, name: str) -> list[_Behind]:
        """What a query has to take up now."""
        basis = self._published[name]
        below = [self._published[other] for other in self._reads[name] if other in self._published]
        replaced = any(each.added_in > basis.last.commit_id for each in below)
        if basis.query_id != self._known[name].query_id or replaced:
            return []
        found = list(self._behind(name, basis, below))
        deferral = self._deferrals.of(name)
        if not found or deferral == ALWAYS or any(each.waits is None for each in found):
            return found
        revised = [each.waits for each in found if each.waits is not None]
        return found if self._deferrals.due(name, revised) else []

    def _behind(self, name: str, basis: Published, below: Sequence[Published]) -> Iterator[_Behind]:
        for source in self._reads[name]:
            if source in self._standings:
                of = self._standings[source]
                yield from self._of_stream(of, basis, self._known_to(source, below), self._deferrals.of(name) == ALWAYS)
                if of.stream.relation is not None:
                    yield from self._of_versions(of, basis)
            elif source in self._published:
                yield from self._of_query(self._published[source], basis)

    def _known_to(self, source: str, below: Sequence[Published]) -> int:
        """Up to which revision a stream is read: no further than by the queries that are read."""
        told = [each.last.revisions[source] for each in below if source in each.last.revisions]
        return min([self._standings[source].applied, *told])

    def _of_stream(self, of: Standing, basis: Published, up_to: int, always: bool) -> Iterator[_Behind]:
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
        if not left_out(found, known, basis.frontier + 1):
            return
        revised = None if always else self._read(of, found, known, up_to)
        count = sum(each.rows for each in found) if revised is None else revised.count
        ends = [(each.revision_first or 0, each.revision_last or 0) for each in found]
        arrived = Arrived(count, max(known + 1, min(ends)[0]), min(up_to, max(last for _, last in ends)))
        yield _Behind(name, f"{name} {known} {up_to}", revised, arrived)

    def _overlays_of(self, of: Standing) -> list[Bucket]:
        name = of.stream.name
        if name not in self._overlays:
            self._overlays[name] = buckets.overlays_ever(self._site.catalog, of.stream_id)
        return self._overlays[name]

    def _read(self, of: Standing, found: Sequence[Bucket], known: int, up_to: int) -> Revised:
        overlays = read_overlays(of.stream, self._site.warehouse, sources(self._site.catalog, found))
        came = ledger.came_in(self._site.catalog, pc.unique(overlays[BATCH]).drop_null().to_pylist())
        return of_overlays(of.stream, overlays, known, up_to, min([*came.values(), *(each.added_in for each in found)]))

    def _of_versions(self, of: Standing, basis: Published) -> Iterator[_Behind]:
        """Versions of a relation that have come behind what has been answered. A sweep that leaves it to the next
        evaluation to have read them does not take them up twice."""
        last, since = basis.last, basis.last.data_commit
        if last.swept is not None and self._more_has_come(basis):
            since = max(since, last.commit_id)
        came = [each for each in self._added(of.stream_id, since) if each.vs_min < basis.frontier]
        if came:
            yield _Behind(of.stream.name, f"{of.stream.name} late {max(each.added_in for each in came)}")

    def _more_has_come(self, basis: Published) -> bool:
        """Whether rows of the last instant have come that the answer does not contain."""
        read = [self._standings[name] for name in basis.last.revisions if name in self._standings]
        came = (each for of in read for each in self._added(of.stream_id, basis.last.data_commit))
        return any(each.vs_min <= basis.frontier <= each.vs_max for each in came)

    def _added(self, stream_id: int, after: int) -> list[Bucket]:
        up_to = max(each.changed_in for each in self._standings.values())
        added = buckets.added(self._site.catalog, stream_id, (Role.BASE,), after=after, up_to=up_to)
        return [each for each in added if each.batch_no is not None]

    def _of_query(self, of: Published, basis: Published) -> Iterator[_Behind]:
        """Corrections of another query's results that have changed some which this one has read."""
        later = self._corrections(of, basis)
        if later and (of.frontier <= basis.frontier or self._reaches(of, later, basis.frontier)):
            yield _Behind(of.name, f"{of.name} {later[-1].number}")

    def _corrections(self, of: Published, basis: Published) -> list[Evaluation]:
        known = basis.last.inputs.get(of.name)
        if known == of.last.number:
            return []
        told = evaluations_of(self._site.catalog, of.stream_id, up_to=of.last.commit_id)
        if known is None:
            known = max((each.number for each in told if each.commit_id < basis.last.commit_id), default=0)
        return [each for each in told if each.number > known and each.swept is not None and each.swept.changed]

    def _reaches(self, of: Published, later: Sequence[Evaluation], frontier: int) -> bool:
        """Whether corrections have changed results that begin before a query's own end."""
        site, numbers = self._site, {each.number for each in later}
        feed = buckets.visible(site.catalog, of.stream_id, of.last.commit_id, role=Role.FEED)
        for each in sources(site.catalog, [each for each in feed if each.vs_min <= frontier]):
            rows = each.read(site.warehouse, [VS, RUN])
            begun = rows.filter(pc.less_equal(rows[VS], frontier))
            if not numbers.isdisjoint(pc.unique(begun[RUN]).to_pylist()):
                return True
        return False
