"""What the HTTP interface does, without HTTP: users' own queries, their answers page by page, each worked out once.

    request ─ newest commit ─ page of (query, event time, commit, rows, form)? ── kept: sent as it is
                                    │ not kept
                                    └─ answer of (query, event time, commit)? ── not kept: invoked, once for all who
                                                                                 ask for it at the same time

An answer as of a commit never changes, so what is kept is never wrong, and is given up only for room. Work that waits
for the catalog or computes is done by threads: a few for look-ups, a few for answers, one that registers, so that
quotas hold however many registrations come at once, and one that matches new queries with old rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from typing import TypeVar

from errata.errors import ErrataError, UsageError
from errata.model.access import AccessUser
from errata.model.registered import HANDLE, RegisteredQuery, ResultStrategy
from errata.psoup.byte_cache import ByteCache
from errata.psoup.following import Answer
from errata.psoup.http.access import AccessControl
from errata.psoup.http.commit_watch import CommitWatch
from errata.psoup.http.limits import ServiceLimits
from errata.psoup.http.pages import AnswerPage, PageRequest, write_page
from errata.psoup.http.problems import RequestError
from errata.psoup.query_source import QuerySource

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

AnswerKey = tuple[str, str | int | None, int]
"""A query, the event time as it was asked for, and the commit."""

LOOKING_THREADS = 4
REMEMBERED_OWNERS = 100_000
REMEMBERED_COMMITS = 1_000

PAGE_OVERHEAD = 1_000
"""Bytes that a page or an answer that is kept takes besides its text or rows, about."""


class QueryService:
    """Registered queries for users. Its coroutines belong to one event loop."""

    def __init__(self, source: QuerySource, limits: ServiceLimits | None = None) -> None:
        self.source = source
        self.limits = limits or ServiceLimits()
        self._looking = ThreadPoolExecutor(LOOKING_THREADS, "look-up")
        self._invoking = ThreadPoolExecutor(self.limits.invoking_threads, "answer")
        self._registering = ThreadPoolExecutor(1, "register")
        self._matching = ThreadPoolExecutor(1, "match")
        self.commits = CommitWatch(lambda: self.look(source.newest_commit))
        self.access = AccessControl(source.clock, lambda token: self.look(lambda: source.find_user(token)))
        self._owners: dict[str, tuple[str, int]] = {}
        """Of each query that was asked for, its owner, and the commit as of which it was seen in force."""
        self._answers: ByteCache[AnswerKey, Answer] = ByteCache(self.limits.cache_bytes)
        self._pages: ByteCache[PageRequest, AnswerPage] = ByteCache(self.limits.cache_bytes)
        self._latest: ByteCache[PageRequest, AnswerPage] = ByteCache(self.limits.cache_bytes)
        self._newest = 0
        self._superseded: dict[int, float] = {}
        """When commits were seen to be no longer the newest, by the clock of the event loop."""
        self._under_way: dict[PageRequest, asyncio.Task[AnswerPage]] = {}

    def close(self) -> None:
        """End the threads, when they have done what they have begun."""
        for each in (self._looking, self._invoking, self._registering, self._matching):
            each.shutdown(wait=True, cancel_futures=True)

    async def look(self, work: Callable[[], T]) -> T:
        """Do what waits for the catalog by a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._looking, work)

    async def compute(self, work: Callable[[], T]) -> T:
        """Do what computes by a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._invoking, work)

    # Queries of a user.

    async def register(self, user: AccessUser, texts: Sequence[str], strategy: ResultStrategy) -> list[RegisteredQuery]:
        """Register queries for the user: all of them or none."""
        self._check_texts(texts)

        def work() -> list[RegisteredQuery]:
            there = self.source.count(user.name)
            if there + len(texts) > user.quota.queries:
                raise RequestError(
                    HTTPStatus.CONFLICT,
                    f"{user.name} has {there:,} registered queries and would have {there + len(texts):,}",
                    why=f"the user's quota is {user.quota.queries:,}",
                    how="unregister some, or ask for a token with a higher quota",
                )
            return self.source.register(texts, user.name, strategy)

        return await asyncio.get_running_loop().run_in_executor(self._registering, work)

    def materialise(self, queries: Sequence[RegisteredQuery]) -> None:
        """Have the rows that are there matched with new queries, behind the response."""
        self._matching.submit(self.source.materialise, queries).add_done_callback(_tell_unmatched)

    def _check_texts(self, texts: Sequence[str]) -> None:
        if len(texts) > self.limits.texts:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"{len(texts):,} queries at once",
                where="body.sql",
                how=f"send {self.limits.texts:,} at most in one request",
            )
        for place, text in enumerate(texts):
            if len(text) > self.limits.text_letters:
                raise RequestError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"the text has {len(text):,} letters",
                    where=f"body.sql.{place}",
                    how=f"a query has {self.limits.text_letters:,} at most",
                )
            if "\0" in text:
                raise UsageError("the text has the letter NUL", where=f"body.sql.{place}", how="leave it out")

    async def unregister(self, user: AccessUser, handle: str) -> None:
        await self.own(user, handle)
        await asyncio.get_running_loop().run_in_executor(
            self._registering, lambda: self.source.unregister(handle, user.name)
        )
        self._owners.pop(handle, None)

    async def own(self, user: AccessUser, handle: str) -> RegisteredQuery:
        """The user's query of this handle. Another user's is as unknown as one that does not exist."""
        query = await self.look(lambda: self.source.find(handle)) if HANDLE.fullmatch(handle) else None
        if query is None or query.owner != user.name:
            raise unknown_handle(handle)
        return query

    async def check_own(self, user: AccessUser, handle: str, seen_at: int) -> None:
        """Raise unless the query is the user's; by what was seen as of this commit or a later one."""
        owner, seen = self._owners.get(handle, ("", -1))
        if seen < seen_at:
            owner = (await self.own(user, handle)).owner
            if len(self._owners) >= REMEMBERED_OWNERS:
                self._owners.clear()
            self._owners[handle] = (owner, seen_at)
        if owner != user.name:
            raise unknown_handle(handle)

    # Answers.

    async def page(self, user: AccessUser, asked: PageRequest, *, fresh: bool = False) -> AnswerPage:
        """A page of the answer of the user's query. Unless it has to be `fresh`, an answer that was the newest a moment
        ago is sent while the newest is worked out; it says which commit it is as of."""
        newest = await self.commits.current()
        self._note_newest(newest)
        # As of the newest commit there is no answer of a query that is gone; as of an earlier one there is.
        await self.check_own(user, asked.handle, 0 if asked.as_of is None else newest)
        wanted = replace(asked, as_of=newest) if asked.as_of is None else asked
        if (kept := self._pages.get(wanted)) is not None:
            return kept
        task = self._begin_page(wanted)
        former = None if fresh or asked.as_of is not None else self._latest.get(asked)
        if former is not None and self._is_recent(former):
            return former
        return await asyncio.shield(task)

    def _begin_page(self, wanted: PageRequest) -> asyncio.Task[AnswerPage]:
        """The work on a page, which is begun unless it is under way."""
        if (task := self._under_way.get(wanted)) is not None:
            return task
        task = asyncio.create_task(self.compute(lambda: self._write_page(wanted)))
        self._under_way[wanted] = task

        def end(done: asyncio.Task[AnswerPage]) -> None:
            self._under_way.pop(wanted, None)
            if not done.cancelled() and done.exception() is None:  # an error is told to those who wait, if any
                self._latest.put(replace(wanted, as_of=None), done.result(), len(done.result().body) + PAGE_OVERHEAD)

        task.add_done_callback(end)
        return task

    def _note_newest(self, newest: int) -> None:
        """Note when a commit was seen to be no longer the newest."""
        if newest > self._newest:
            self._superseded[self._newest] = asyncio.get_running_loop().time()
            self._newest = newest
            if len(self._superseded) > REMEMBERED_COMMITS:
                del self._superseded[next(iter(self._superseded))]

    def _is_recent(self, page: AnswerPage) -> bool:
        since = self._superseded.get(page.commit_id)
        return since is not None and asyncio.get_running_loop().time() - since < self.limits.stale_seconds

    def _write_page(self, asked: PageRequest) -> AnswerPage:
        page = write_page(self._answer(asked.handle, asked.at, asked.as_of), asked)
        self._pages.put(asked, page, len(page.body) + PAGE_OVERHEAD)
        return page

    def followed_answer(self, handle: str, commit_id: int) -> Answer:
        """The answer as of a commit, at the stable point then; for those who follow it."""
        return self._answer(handle, None, commit_id)

    def _answer(self, handle: str, at: str | int | None, commit_id: int | None) -> Answer:
        if commit_id is not None and (kept := self._answers.get((handle, at, commit_id))) is not None:
            return kept
        try:
            answer = self.source.invoke(handle, at, commit_id)
        except ErrataError:
            if self.source.find(handle) is None:
                raise unknown_handle(handle) from None
            raise
        for each in {at, answer.now}:  # under its own event time, too, which cursors name
            self._answers.put((handle, each, answer.commit_id), answer, answer.rows.nbytes + PAGE_OVERHEAD)
        return answer


def _tell_unmatched(done: Future[None]) -> None:
    """Log why new queries are not matched yet. It would have saved work only; the next run of the job does it."""
    if not done.cancelled() and (error := done.exception()) is not None:
        _LOG.warning("new queries are not matched yet: %s", error, exc_info=error)


def unknown_handle(handle: str) -> RequestError:
    """The error for a handle that is unknown, gone or another user's."""
    return RequestError(
        HTTPStatus.NOT_FOUND, f"there is no query {handle[:40]!r}", how="GET /v1/queries lists your queries"
    )
