"""What interfaces to registered queries ask of a project: a `Protocol`, so that tests need no archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from errata.clock import Clock
from errata.model.access import AccessUser, AnswerConsumer
from errata.model.registered import RegisteredQuery, ResultStrategy
from errata.psoup.following import Answer


class QuerySource(Protocol):
    """Registered queries and their answers. All but `clock` are called from several threads."""

    @property
    def clock(self) -> Clock: ...

    def find_user(self, token: str) -> AccessUser | None:
        """The user whom a token identifies."""

    def newest_commit(self) -> int: ...

    def register(self, texts: Sequence[str], owner: str, strategy: ResultStrategy) -> list[RegisteredQuery]: ...

    def unregister(self, handle: str, owner: str) -> None: ...

    def count(self, owner: str) -> int:
        """How many queries the owner has registered."""

    def queries(self, owner: str, after: int, limit: int) -> list[RegisteredQuery]:
        """The owner's queries with greater numbers than `after`, by number, with their costs."""

    def find(self, handle: str) -> RegisteredQuery | None: ...

    def with_cost(self, query: RegisteredQuery) -> RegisteredQuery: ...

    def materialise(self, queries: Sequence[RegisteredQuery]) -> None:
        """Match the rows that are there with new queries. It only saves later work."""

    def invoke(self, handle: str, at: str | int | None, as_of: int | None) -> Answer:
        """The answer at an event time as it is written or stored (None: the least stable point), as of a commit (None:
        the newest)."""

    def next_commit(self, handle: str, after: int, up_to: int) -> int | None:
        """The first commit after `after`, up to `up_to`, that has changed a source of the query."""

    def is_readable(self, handle: str, commit_id: int) -> bool:
        """Whether the answer as of the commit can still be read."""

    def open_consumer(self, handle: str, name: str) -> AnswerConsumer: ...

    def acknowledge(self, handle: str, name: str, commit_id: int) -> AnswerConsumer: ...

    def consumers(self, handle: str) -> list[AnswerConsumer]: ...

    def drop_consumer(self, handle: str, name: str) -> int: ...
