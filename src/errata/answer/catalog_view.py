"""One state of the catalog, where each look-up is asked once: what steps are derived from, and runs read by.

Light: no Spark and no SQL text, since sensors look again and again. Threads of a run share a view. `published` is the
exception to the one state: a run brings it up to date as it commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TypeVar, cast

import pyarrow.compute as pc

from errata.answer.due_delivery import delivered_up_to, delivery_prefix
from errata.answer.source_revisions import SourceRevisions
from errata.answer.unread_changes import CorrectionBacklog, UnreadRevisions, read_revisions
from errata.archive.overlays import bucket_sources
from errata.archive.revisions.pending import can_settle_any
from errata.catalog import buckets, commits, feeds, ledger, queries, streams
from errata.catalog.queries import RecordedQuery, StoppedQuery
from errata.catalog.result_archives import ResultArchive, evaluations_of, read_archives
from errata.catalog.streams import StreamState
from errata.declare.query_feeds import order_lag, query_feeds
from errata.declare.site import Site
from errata.model.bucket import Bucket, Role
from errata.model.commit import Evaluation
from errata.model.deferral import Deferral
from errata.model.feed import Feed
from errata.model.query import transitive_inputs
from errata.model.results import EVALUATION, VS
from errata.model.stream import Stream
from errata.model.time import LOWEST

T = TypeVar("T")


class CatalogView:
    """The streams as of a commit, or as they are now, and the queries, results and faults that there are."""

    def __init__(self, site: Site, commit_id: int | None = None) -> None:
        self.site, self._catalog = site, site.catalog
        self.now = site.catalog.clock.now()
        self.standings: Mapping[str, StreamState] = {
            each.stream.name: each for each in streams.stream_states(site.catalog, commit_id)
        }
        newest = max((each.changed_in for each in self.standings.values()), default=0)
        self.commit_id = newest if commit_id is None else commit_id
        """The state of the streams."""
        self._known: dict[object, object] = {}
        self._lock = threading.RLock()

    @cached_property
    def queries(self) -> Mapping[str, RecordedQuery]:
        return queries.recorded_queries(self._catalog)

    @cached_property
    def stopped(self) -> Mapping[int, StoppedQuery]:
        return queries.stopped_queries(self._catalog)

    @cached_property
    def published(self) -> dict[str, ResultArchive]:
        """The results of queries that have any."""
        return read_archives(self._catalog)

    @property
    def default_deferral(self) -> Deferral:
        return self.site.project.sweep

    def once(self, key: object, find: Callable[[], T]) -> T:
        """Something that is the same for all queries, computed once."""
        with self._lock:
            if key not in self._known:
                self._known[key] = find()
            return cast("T", self._known[key])

    def overlays(self, of: StreamState) -> Sequence[Bucket]:
        return self.once(("overlays", of.stream_id), partial(buckets.all_overlays, self._catalog, of.stream_id))

    def added_since(self, of: StreamState, commit_id: int) -> Sequence[Bucket]:
        if of.stream_id not in {stream_id for stream_id, _, _ in self.batches_since(commit_id)}:
            return ()

        def find() -> list[Bucket]:
            ends = {"after": commit_id, "up_to": self.commit_id}
            some = buckets.added_between(self._catalog, of.stream_id, (Role.BASE,), **ends)
            return [each for each in some if each.batch_no is not None]

        return self.once(("added", of.stream_id, commit_id), find)

    def evaluations(self, of: ResultArchive) -> Sequence[Evaluation]:
        return evaluations_of(self._catalog, of.stream_id, up_to=of.last.commit_id)

    def batches_since(self, commit_id: int) -> Sequence[tuple[int, int, str]]:
        # Most queries were evaluated as of the same commit.
        find = partial(ledger.appended_batches, self._catalog, commit_id, self.commit_id)
        return self.once(("batches", commit_id), find)

    def pending(self, of: StreamState) -> CorrectionBacklog:
        if of.revisions <= of.applied:
            return CorrectionBacklog()

        def find() -> CorrectionBacklog:
            found = buckets.visible_buckets(self._catalog, of.stream_id, of.changed_in, role=Role.PENDING)
            since = min((each.added_in for each in found), default=None)
            return CorrectionBacklog(sum(each.rows for each in found), since)

        return self.once(("pending", of.stream_id), find)

    def backlog(self, change: UnreadRevisions) -> CorrectionBacklog:
        revised = self.revised(change)
        return CorrectionBacklog(revised.count, revised.came)

    def revised(self, change: UnreadRevisions) -> SourceRevisions:
        """The row versions of unread revisions."""
        key = ("revised", change.state.stream_id, change.known, change.up_to)
        return self.once(key, partial(read_revisions, self.site, change))

    def delivered(self, of: StreamState, feed: Feed) -> int | None:
        known = self.once(("feeds", of.stream_id), partial(feeds.feeds_of, self._catalog, of.stream_id))
        if any(each.name == feed.name and not each.attached for each in known):
            return None
        find = partial(ledger.newest_batch_id, self._catalog, of.stream_id, delivery_prefix(feed))
        return delivered_up_to(feed, self.once(("delivered", of.stream_id, feed.name), find))

    def wanted_from(self, query: str) -> int | None:
        """The instant before which the merged stream that a query feeds has all that it needs, as it is now; None if
        the query gets no feedback."""
        for stream, feed, name in query_feeds(each.stream for each in self.standings.values()):
            of = self.standings[stream.name]
            if name == query and feed.feedback and self.delivered(of, feed) is not None:
                merged = feeds.merge_of(self._catalog, of.stream_id)
                lag = self.once(("lag", query), partial(self._order_lag, query, stream))
                return None if merged is None or merged.stable == LOWEST else merged.stable + lag
        return None

    def _order_lag(self, query: str, stream: Stream) -> int:
        from errata.declare.query_plans import read_plans  # noqa: PLC0415 - SQL is read for feeds with feedback alone

        declared = {name: each.checked.query for name, each in self.queries.items()}
        reads = {name: each.checked.reads for name, each in self.queries.items()}
        some = [name for name in (query, *transitive_inputs([query], reads)) if name in declared]
        plans = read_plans({name: each.stream for name, each in self.standings.items()}, declared, some)
        return order_lag(plans[query], stream)

    def time_of(self, commit_id: int) -> int | None:
        def find() -> int | None:
            made = commits.commits_by_number(self._catalog, [commit_id]).get(commit_id)
            return None if made is None else made.at

        return self.once(("time", commit_id), find)

    def can_settle(self, of: StreamState) -> bool:
        return can_settle_any(self.site, of)

    def reaches(self, of: ResultArchive, corrections: Sequence[Evaluation], frontier: int) -> bool:
        numbers = {each.number for each in corrections}

        def find() -> bool:
            feed = buckets.visible_buckets(self._catalog, of.stream_id, of.last.commit_id, role=Role.FEED)
            since = corrections[0].commit_id
            some = [each for each in feed if each.vs_min <= frontier and each.added_in >= since]
            for each in bucket_sources(self._catalog, some):
                rows = each.read(self.site.warehouse, [VS, EVALUATION])
                begun = rows.filter(pc.less_equal(rows[VS], frontier))
                if not numbers.isdisjoint(pc.unique(begun[EVALUATION]).to_pylist()):
                    return True
            return False

        return self.once(("reaches", of.stream_id, frozenset(numbers), frontier), find)
