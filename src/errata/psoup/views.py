"""Registered queries as views of the catalog's database: the rows that match are put beside it, and kept as they are.

    buckets visible at commit c ─ digest as recorded? ─ no ─► live rows that a viewed conjunction holds of ─► tables
                                 └ gone ─► taken out                                      one transaction for all

A bucket's digest is of what decides its rows: the overlays that can mask some, what has been aged out, and which
conjunctions are viewed. So an update costs what has changed since the last one, whatever was missed in between, and may
be killed or repeated at any time. Matches come from the match segments, and are worked out on the spot where those are
not there yet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from errata.catalog import commits, pins, registered_views
from errata.catalog.match_segments import bucket_key
from errata.catalog.registered_views import CountedWindow, ViewUpdate, updating_views
from errata.catalog.transaction import give_up, optimistic
from errata.catalog.view_tables import BucketMatches
from errata.declare.site import Site
from errata.errors import count_text
from errata.model.bucket import Bucket
from errata.model.registered import Conjunction, RegisteredQuery, ResultStrategy
from errata.psoup.index.predicate_index import PredicateIndex
from errata.psoup.register import find_query
from errata.psoup.segments import MatchStore
from errata.psoup.selection import factor_columns, youngest_rows
from errata.psoup.snapshot import SnapshotCache, SnapshotConflict, StreamSnapshot, stream_snapshot

READ_CACHE_BYTES = 64 * 1024 * 1024
"""Bytes of columns that are kept between buckets: those of overlays, which many buckets share."""


@dataclass(frozen=True, slots=True)
class ViewReport:
    """What an update of the views has done."""

    views: int = 0
    buckets: int = 0
    """Buckets whose rows were put in, or put in again."""
    rows: int = 0
    """Matching rows of these."""

    def __str__(self) -> str:
        put_in = f"{count_text(self.rows, 'matching row')} of {count_text(self.buckets, 'bucket')} put in"
        return f"{count_text(self.views, 'view')}; {put_in}"


def view_queries(site: Site, handles: Sequence[str]) -> list[RegisteredQuery]:
    """Make registered queries views, too; they can be read after the next update."""
    queries = [find_query(site, each) for each in handles]
    registered_views.record_views(site.catalog, queries)
    return queries


def update_views(site: Site) -> ViewReport:
    """Carry all views on to the newest commit; makes those that are not there yet, and takes away those whose query has
    been unregistered."""
    if not registered_views.has_views(site.catalog) or not registered_views.views_in_use(site.catalog):
        return ViewReport()
    return optimistic(
        lambda _: _update_views(site),
        give_up("run has removed old buckets before they were read", "run it again"),
        on=SnapshotConflict,
    )


def _update_views(site: Site) -> ViewReport:
    queries = registered_views.viewed_queries(site.catalog)
    wanted: dict[str, dict[int, Conjunction]] = {}
    kept: set[int] = set()
    for query in queries:
        # Of a query of which nothing is kept, a segment need not have the matches.
        kept |= set() if query.strategy is ResultStrategy.NONE else set(query.conjunctions)
        for source, number, conjunction in zip(
            query.plan.sources, query.conjunctions, query.plan.conjunctions, strict=True
        ):
            wanted.setdefault(source.stream, {})[number] = conjunction
    cache = SnapshotCache(site, READ_CACHE_BYTES)
    with pins.hold_pin(site.catalog, commits.newest_commit(site.catalog), "views of registered queries") as pin:
        snapshots = {name: stream_snapshot(cache, name, pin.commit_id) for name in wanted}
        with updating_views(site.catalog, pin.commit_id) as update:
            if update.is_outdated():
                return ViewReport(views=len(queries))
            written = [
                _StreamUpdate(MatchStore(site), update, snapshots[name], conjunctions, kept).run()
                for name, conjunctions in wanted.items()
            ]
            update.set_row_windows([window for each in queries for window in _row_windows(each, snapshots)])
            update.drop_other_streams([each.state.stream_id for each in snapshots.values()])
            tables = {name: update.tables(each.state) for name, each in snapshots.items()}
            update.set_views(queries, tables)
    return ViewReport(len(queries), sum(buckets for buckets, _ in written), sum(rows for _, rows in written))


def _row_windows(query: RegisteredQuery, snapshots: Mapping[str, StreamSnapshot]) -> Iterator[CountedWindow]:
    """Where the windows of a query begin that count rows, as of the snapshots; nothing while there is no NOW."""
    sources = [snapshots[each.stream] for each in query.plan.sources]
    stable = [each.state.stable for each in sources]
    if any(each is None for each in stable):
        return
    now = min(each for each in stable if each is not None)
    for at, (snapshot, window) in enumerate(zip(sources, query.plan.windows, strict=True)):
        if window.rows is None:
            continue
        found, complete = youngest_rows(snapshot, window.rows, window.interval(now).end)
        aged_to = snapshot.state.aged_to
        kept = aged_to is None or found.interval.empty or (complete and found.interval.start >= aged_to)
        keys = {each.bucket_id: bucket_key(each) for each in (*snapshot.base, *snapshot.overlays)}
        excluded = {keys[bucket_id]: places.tolist() for bucket_id, places in found.excluded.items()}
        yield CountedWindow(query.number, at, found.interval.start, not kept, excluded)


class _StreamUpdate:
    """The update of one stream's tables."""

    def __init__(
        self,
        store: MatchStore,
        update: ViewUpdate,
        snapshot: StreamSnapshot,
        conjunctions: Mapping[int, Conjunction],
        kept: AbstractSet[int],
    ) -> None:
        """`kept`: the conjunctions whose matches are in the store wherever it covers them."""
        self._update = update
        self._snapshot = snapshot
        self._conjunctions = conjunctions
        self._store = store
        self._kept = kept
        self._tables = update.tables(snapshot.state)

    def run(self) -> tuple[int, int]:
        """Bring the tables to the snapshot; how many buckets were put in, with how many rows."""
        snapshot, update = self._snapshot, self._update
        found = {bucket_key(each): each for each in (*snapshot.base, *snapshot.overlays) if each.rows}
        digests = {key: self._digest(each) for key, each in found.items()}
        known = update.known_buckets(snapshot.state.stream_id)
        for key, digest in known.items():
            if digests.get(key) != digest:
                update.remove_bucket(self._tables, key)
        due = [found[key] for key, digest in digests.items() if known.get(key) != digest]
        rows = 0
        for each in self._matches(due):
            update.add_bucket(self._tables, each, digests[each.bucket])
            rows += each.rows.num_rows
        update.set_stream(snapshot.state)
        return len(due), rows

    def _digest(self, bucket: Bucket) -> str:
        """The digest of what decides which rows of a bucket the tables hold."""
        decides = [self._snapshot.live_key(bucket), sorted(self._conjunctions)]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()

    def _matches(self, due: Sequence[Bucket]) -> Iterator[BucketMatches]:
        for bucket in due:
            positions = dict(self._positions(bucket))
            together = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *positions.values()]))
            (stored,) = self._snapshot.rows([bucket], self._snapshot.state.stream.names)
            yield BucketMatches(
                bucket_key(bucket),
                together,
                stored.take(pa.array(together)),
                self._snapshot.order(bucket)[together],
                {number: np.searchsorted(together, each) for number, each in positions.items()},
            )

    def _positions(self, bucket: Bucket) -> Iterator[tuple[int, np.ndarray]]:
        """By conjunction, the live rows of a bucket that it holds of."""
        snapshot, live = self._snapshot, self._snapshot.live(bucket)
        unknown: dict[int, Conjunction] = {}
        for number, conjunction in self._conjunctions.items():
            if not conjunction:
                yield number, np.arange(bucket.rows) if live is None else np.flatnonzero(live)
                continue
            known = self._store.find([bucket], number) if number in self._kept else {}
            if bucket_key(bucket) not in known:
                unknown[number] = conjunction
            elif (rows := known[bucket_key(bucket)]) is not None:
                yield number, _only_live(rows.positions, live)
        if unknown:
            names = list(dict.fromkeys(name for each in unknown.values() for name in factor_columns(each)))
            (table,) = snapshot.rows([bucket], names)
            for number, rows in PredicateIndex(snapshot.state.stream, unknown).match(table).items():
                yield number, _only_live(rows.positions, live)


def _only_live(positions: np.ndarray, live: np.ndarray | None) -> np.ndarray:
    return positions if live is None else positions[live[positions]]
