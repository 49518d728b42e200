"""The reader of registered queries: a long-lived object that answers invocations, from memory where it can.

    handle ─► query (kept until a commit may have changed it)
    commit ─► a snapshot of each source (kept for the newest commit, and some earlier ones)
    window ─► selected rows (kept by bucket) ─► joined, projected, aggregated

Answers are those of one commit: all sources are read as of it, whatever is committed meanwhile. What the match segments
say only saves work. An invocation that has all it needs in memory writes nothing; else the commit is pinned while the
missing buckets are read. Threads may share a reader.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from errata.catalog import commits, registered, streams
from errata.catalog.registered import InvocationCount
from errata.catalog.transaction import give_up, optimistic
from errata.declare.site import Site
from errata.errors import ErrataError
from errata.model.registered import RegisteredQuery, ResultStrategy
from errata.psoup.invoke import Invocation, StrategyAnswer
from errata.psoup.register import check_handle, unknown_handle_error
from errata.psoup.snapshot import SnapshotCache, SnapshotConflict, StreamSnapshot, stream_snapshot
from errata.psoup.strategies import AskedQuery, Strategies
from errata.psoup.windows import resolve_now

_LOG = logging.getLogger(__name__)

KEPT_COMMITS = 8
"""Commits whose snapshots are kept."""

MAX_KNOWN_QUERIES = 20_000
"""Queries whose plans are kept."""

MAINTAIN_SECONDS = 0.1
"""Seconds between two looks for a new commit by which complete answers are to be carried on."""

FLUSH_SECONDS = 5.0
"""Seconds after which invocations are added to the costs in the catalog."""


@dataclass
class _Knowledge:
    """What is known as of the newest commit that has been seen."""

    head: int = -1
    queries: OrderedDict[str, RegisteredQuery] = field(default_factory=OrderedDict)


class RegisteredReader:
    """Answers invocations of registered queries."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._cache = SnapshotCache(site)
        self._strategies = Strategies(site)
        self._lock = threading.Lock()
        self._known = _Knowledge()
        self._snapshots: OrderedDict[tuple[str, int], StreamSnapshot] = OrderedDict()
        self._counts: dict[int, InvocationCount] = {}
        self._flushed = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Record what has not been recorded yet of the costs."""
        self._flush(0.0)

    def query(self, handle: str) -> RegisteredQuery:
        """The query in force with a handle."""
        return self._query(check_handle(handle), commits.newest_commit(self.site.catalog))

    def invoke(self, handle: str, *, at: str | int | None = None, as_of: str | int | None = None) -> Invocation:
        """The answer of a query at an event time (else the least stable point of its sources), as of a commit (else the
        newest)."""
        begun = time.perf_counter()
        query, found = self._answer(check_handle(handle), at, as_of)
        micros = int((time.perf_counter() - begun) * 1_000_000)
        self._count(query, micros)
        return replace(found, micros=micros)

    def invoke_all(
        self, handles: Sequence[str], *, at: str | int | None = None, as_of: str | int | None = None
    ) -> list[Invocation]:
        """The answers of several queries, all as of one commit. Joins alike are made as one."""
        begun = time.perf_counter()
        given = [check_handle(each) for each in handles]
        answered = optimistic(
            lambda _: self._answer_all(given, at, as_of),
            give_up("run has removed old buckets before they were read", "invoke them again"),
            on=SnapshotConflict,
        )
        micros = int((time.perf_counter() - begun) * 1_000_000) // max(1, len(answered))
        for query, _ in answered:
            self._count(query, micros)
        return [replace(found, micros=micros) for _, found in answered]

    def maintain(self) -> dict[str, ErrataError]:
        """Carry the complete answers on to the newest commit, so that who asks next only takes them. Returns why some
        queries, by handle, have no answer at present: nothing has come yet, or their windows reach behind what is
        kept."""
        failed = {}
        for each in registered.live_registrations(self.site.catalog, strategy=ResultStrategy.COMPLETE):
            try:
                self._answer(each.handle, None, None)
            except ErrataError as error:
                failed[each.handle] = error
        return failed

    @contextmanager
    def maintained(self, seconds: float = MAINTAIN_SECONDS) -> Iterator[None]:
        """Within it a thread carries the complete answers on whenever a commit has come, which it looks for so
        often."""
        ended = threading.Event()
        thread = threading.Thread(target=self._maintain_until, args=(ended, seconds), name="complete answers")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _maintain_until(self, ended: threading.Event, seconds: float) -> None:
        seen = -1
        while not ended.wait(seconds):
            try:
                newest = commits.newest_commit(self.site.catalog)
                if newest != seen:
                    self.maintain()
                    seen = newest
            except ErrataError as error:  # they are carried on when they are asked for, or the next time
                _LOG.warning("complete answers are not carried on: %s", error)

    def _answer(self, handle: str, at: str | int | None, as_of: str | int | None) -> tuple[RegisteredQuery, Invocation]:
        (answered,) = optimistic(
            lambda _: self._answer_all([handle], at, as_of),
            give_up("run has removed old buckets before they were read", "invoke it again"),
            on=SnapshotConflict,
        )
        return answered

    def _answer_all(
        self, handles: Sequence[str], at: str | int | None, as_of: str | int | None
    ) -> list[tuple[RegisteredQuery, Invocation]]:
        newest = commits.newest_commit(self.site.catalog)
        commit_id = newest if as_of is None else commits.resolve_as_of(self.site.catalog, as_of)
        asked = []
        for handle in handles:
            query = self._query(handle, newest)
            snapshots = self._query_snapshots(query, commit_id, newest)
            now = resolve_now([each.state for each in snapshots], at, commit_id)
            asked.append(AskedQuery(query, snapshots, now))
        found = self._strategies.answer_all(asked, present=at is None and commit_id == newest)
        return [(each.query, _invocation(each, answer)) for each, answer in zip(asked, found, strict=True)]

    def _query(self, handle: str, newest: int) -> RegisteredQuery:
        with self._lock:
            known = self._known
            if known.head != newest:
                changed = registered.changed_between(self.site.catalog, known.head, newest)
                known = self._known = _Knowledge(newest, OrderedDict() if changed else known.queries)
            if (found := known.queries.get(handle)) is not None:
                return found
        looked_up = registered.registration(self.site.catalog, handle)
        if looked_up is None:
            raise unknown_handle_error(self.site, handle)
        with self._lock:
            known.queries[handle] = looked_up
            while len(known.queries) > MAX_KNOWN_QUERIES:
                known.queries.popitem(last=False)
        return looked_up

    def _query_snapshots(self, query: RegisteredQuery, commit_id: int, newest: int) -> list[StreamSnapshot]:
        names = [each.stream for each in query.plan.sources]
        found = {name: self._snapshot(name, commit_id) for name in dict.fromkeys(names)}
        if commit_id != newest:
            live = {each.stream_id: each.stream for each in streams.stream_states(self.site.catalog)}
            for name, each in found.items():
                horizon = live.get(each.state.stream_id, each.state.stream).horizon
                commits.check_readable(self.site.catalog, commit_id, horizon, name)
        for name, stream_id in zip(names, query.streams, strict=True):
            if found[name].state.stream_id != stream_id:
                raise ErrataError(
                    f"stream {name} is another one than when query {query.handle} was registered",
                    why="it was dropped and declared again; which of its rows match has never been asked",
                    how="register the query again",
                )
        return [found[name] for name in names]

    def _snapshot(self, name: str, commit_id: int) -> StreamSnapshot:
        with self._lock:
            if (known := self._snapshots.get((name, commit_id))) is not None:
                self._snapshots.move_to_end((name, commit_id))
                return known
        made = stream_snapshot(self._cache, name, commit_id)
        with self._lock:
            self._snapshots[name, commit_id] = made
            names = {each for each, _ in self._snapshots}
            while len(self._snapshots) > KEPT_COMMITS * len(names):
                self._snapshots.popitem(last=False)
        return made

    def _count(self, query: RegisteredQuery, micros: int) -> None:
        """Count an invocation; from time to time the counts go to the catalog."""
        now = self.site.catalog.clock.now()
        with self._lock:
            before = self._counts.get(query.number, InvocationCount(query.number, 0, 0, now))
            self._counts[query.number] = InvocationCount(
                query.number, before.invocations + 1, before.micros + micros, now
            )
        self._flush(FLUSH_SECONDS)

    def _flush(self, pause: float) -> None:
        with self._lock:
            if time.monotonic() - self._flushed < pause or not self._counts:
                return
            counts, self._counts = self._counts, {}
            self._flushed = time.monotonic()
        registered.record_invocations(self.site.catalog, counts.values())


def _invocation(asked: AskedQuery, found: StrategyAnswer) -> Invocation:
    snapshot = asked.snapshots[0]
    return Invocation(
        asked.query.handle,
        snapshot.commit_id,
        asked.now,
        snapshot.state.stream.timed,
        found.windows,
        found.matched,
        found.rows,
        found.route,
    )
