"""A project as interfaces to registered queries ask for it: its catalog, and one long-lived reader."""

from __future__ import annotations

from collections.abc import Sequence

from errata.catalog import answer_consumers, commits, registered, streams, tokens
from errata.clock import Clock
from errata.declare.site import Site
from errata.errors import ErrataError
from errata.model.access import AccessUser, AnswerConsumer
from errata.model.registered import RegisteredQuery, ResultStrategy
from errata.psoup.following import Answer
from errata.psoup.materialise import materialise
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import register, registered_queries, unregister
from errata.psoup.segments import with_costs


class SiteSource:
    """The queries of a project. Threads share it."""

    def __init__(self, site: Site, reader: RegisteredReader) -> None:
        self._site = site
        self._reader = reader

    @property
    def clock(self) -> Clock:
        return self._site.catalog.clock

    def find_user(self, token: str) -> AccessUser | None:
        return tokens.find_user(self._site.catalog, token)

    def newest_commit(self) -> int:
        return commits.newest_commit(self._site.catalog)

    def register(self, texts: Sequence[str], owner: str, strategy: ResultStrategy) -> list[RegisteredQuery]:
        return register(self._site, texts, owner=owner, strategy=strategy)

    def unregister(self, handle: str, owner: str) -> None:
        unregister(self._site, handle, owner)

    def count(self, owner: str) -> int:
        return registered.count_registrations(self._site.catalog, owner)

    def queries(self, owner: str, after: int, limit: int) -> list[RegisteredQuery]:
        mine = [each for each in registered_queries(self._site, owner) if each.number > after]
        return with_costs(self._site, mine[:limit])

    def find(self, handle: str) -> RegisteredQuery | None:
        return registered.registration(self._site.catalog, handle)

    def with_cost(self, query: RegisteredQuery) -> RegisteredQuery:
        return with_costs(self._site, [query])[0]

    def materialise(self, queries: Sequence[RegisteredQuery]) -> None:
        materialise(self._site, sorted({source.stream for each in queries for source in each.plan.sources}))

    def invoke(self, handle: str, at: str | int | None, as_of: int | None) -> Answer:
        found = self._reader.invoke(handle, at=at, as_of=as_of)
        return Answer(found.handle, found.commit_id, found.now, found.timed, found.rows)

    def next_commit(self, handle: str, after: int, up_to: int) -> int | None:
        names = self._streams(handle)
        return commits.first_commit_changing(self._site.catalog, names, after=after, up_to=up_to) if names else None

    def is_readable(self, handle: str, commit_id: int) -> bool:
        if commit_id < 1:
            return False
        horizons = {each.stream.name: each.stream.horizon for each in streams.stream_states(self._site.catalog)}
        try:
            for name in self._streams(handle):
                commits.check_readable(self._site.catalog, commit_id, horizons.get(name, 0), name)
        except ErrataError:
            return False
        return True

    def _streams(self, handle: str) -> list[str]:
        query = self.find(handle)
        return [] if query is None else sorted({each.stream for each in query.plan.sources})

    def open_consumer(self, handle: str, name: str) -> AnswerConsumer:
        return answer_consumers.open_consumer(self._site.catalog, handle, name)

    def acknowledge(self, handle: str, name: str, commit_id: int) -> AnswerConsumer:
        return answer_consumers.acknowledge(self._site.catalog, handle, name, commit_id)

    def consumers(self, handle: str) -> list[AnswerConsumer]:
        return answer_consumers.answer_consumers_of(self._site.catalog, handle)

    def drop_consumer(self, handle: str, name: str) -> int:
        return answer_consumers.drop_consumers(self._site.catalog, handle, name)
