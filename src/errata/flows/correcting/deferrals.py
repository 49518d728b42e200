"""Which corrections are due, as the project and its queries declare; what is not due waits and is not lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from errata.catalog import buckets, commits, queries, streams
from errata.catalog.published import Published, all_published
from errata.catalog.streams import Standing
from errata.flows.answering.due import all_read, left_out
from errata.flows.site import Site
from errata.model.bucket import Role
from errata.model.deferral import Deferral
from errata.revise.revised import Revised


@dataclass(frozen=True, slots=True)
class Waiting:
    """Corrections and late rows that wait: how many, and since which commit the first of them."""

    queue: int = 0
    since: int | None = None

    def __add__(self, other: Waiting) -> Waiting:
        known = [each for each in (self.since, other.since) if each is not None]
        return Waiting(self.queue + other.queue, min(known, default=None))


class Deferrals:
    """What waits of each stream, and whether it is due for each query."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._now = site.catalog.clock.now()
        self._standings = {each.stream.name: each for each in streams.standings(site.catalog)}
        self._recorded = queries.recorded(site.catalog)
        self._pending = {name: _pending(site, each) for name, each in self._standings.items()}

    def of(self, query: str) -> Deferral:
        """When corrections of a query's results are due."""
        return self._recorded[query].checked.query.sweep or self._site.project.sweep

    def due(self, query: str, revised: Iterable[Revised]) -> bool:
        """Whether what has been applied to history is due to reach a query's results."""
        return self._is_due(self.of(query), _together(revised))

    def waits_for(self, query: str, revised: Iterable[Revised]) -> str | None:
        """What the corrections of a query wait for, in words; None where they are due."""
        return self._words(query, _together(revised))

    def standing(self, query: str, published: Mapping[str, Published]) -> str | None:
        """What all that a query's results do not contain waits for, in words; None where it is due, or nothing waits.
        Corrections of queries that it reads are not counted."""
        reads = {name: each.checked.reads for name, each in self._recorded.items()}
        whole = self._waits_for(query, all_read(query, reads), published)
        return self._words(query, whole) if whole.queue else None

    def _words(self, query: str, whole: Waiting) -> str | None:
        deferral = self.of(query)
        if self._is_due(deferral, whole):
            return None
        return deferral.waits_for(whole.queue, self._age(whole), self._now)

    def streams_due(self) -> list[str]:
        """The streams of which what is pending is due to become history: for one of the queries that read them."""
        waits = [name for name, each in self._pending.items() if each.queue]
        if not waits:
            return []
        published = all_published(self._site.catalog)
        reads = {name: each.checked.reads for name, each in self._recorded.items()}
        read = {name: all_read(name, reads) for name in self._recorded}
        return [name for name in waits if self._stream_is_due(name, read, published)]

    def _stream_is_due(self, name: str, read: Mapping[str, Iterable[str]], published: Mapping[str, Published]) -> bool:
        readers = [query for query, names in read.items() if name in names]
        if not readers:
            return self._is_due(self._site.project.sweep, self._pending[name])
        return any(self._is_due(self.of(each), self._waits_for(each, read[each], published)) for each in readers)

    def _waits_for(self, query: str, read: Iterable[str], published: Mapping[str, Published]) -> Waiting:
        """All that the results of a query do not contain."""
        whole, there = Waiting(), published.get(query)
        for name in read:
            if name in self._standings:
                whole += self._pending[name] + _applied(self._site, self._standings[name], there)
        return whole

    def _is_due(self, deferral: Deferral, waiting: Waiting) -> bool:
        return deferral.due(waiting.queue, self._age(waiting), self._now)

    def _age(self, waiting: Waiting) -> int:
        """For how long the first has waited."""
        if waiting.since is None:
            return 0
        came = commits.numbered(self._site.catalog, [waiting.since]).get(waiting.since)
        return 0 if came is None else max(0, self._now - came.at)


def _together(revised: Iterable[Revised]) -> Waiting:
    return sum((Waiting(each.count, each.came) for each in revised), Waiting())


def _pending(site: Site, of: Standing) -> Waiting:
    if of.revisions <= of.applied:
        return Waiting()
    found = buckets.visible(site.catalog, of.stream_id, of.changed_in, role=Role.PENDING)
    return Waiting(sum(each.rows for each in found), min((each.added_in for each in found), default=None))


def _applied(site: Site, of: Standing, there: Published | None) -> Waiting:
    """What has become history and has not reached a query's results."""
    known = of.applied if there is None else there.last.revisions.get(of.stream.name, of.applied)
    if there is None or known >= of.applied:
        return Waiting()
    found = left_out(buckets.overlays_ever(site.catalog, of.stream_id), known, there.frontier)
    return Waiting(sum(each.rows for each in found), min((each.added_in for each in found), default=None))
