"""What a page shows of the registered queries: whose they are, their windows, costs, how fresh their matches are, and
how many rows match lately.

Nothing of the archive is read: buckets and what is matched of them are in the catalog and in the match segments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from errata.archive.scan_plan import ArchiveScan, candidate_buckets
from errata.catalog import commits, match_segments, registered_views, streams
from errata.catalog.match_segments import bucket_key
from errata.declare.site import Site
from errata.model.bucket import Bucket
from errata.model.registered import Bound, RegisteredQuery, RegisteredWindow, ResultStrategy
from errata.model.stream import Stream
from errata.psoup.register import registered_queries
from errata.psoup.segments import MatchStore, with_costs
from errata.psoup.windows import order_text

MOST_SHOWN = 100
"""Queries that are shown, those that were asked last first: a person reads no more of them."""

MARKS = 24
"""Buckets of a stream, the newest, whose matching rows are shown for each query."""


@dataclass(frozen=True, slots=True)
class RegisteredLine:
    """What is shown of one query."""

    query: RegisteredQuery
    windows: Sequence[str]
    """In words, of each source."""
    viewed: bool
    """Whether it is a view of the database, too."""
    unmatched: int
    """Buckets that have not been matched with it yet; an invocation matches them on the spot."""
    marks: Sequence[int]
    """Rows that match in the newest buckets of its first source, the oldest first."""

    @property
    def keeps_matches(self) -> bool:
        return self.query.strategy is not ResultStrategy.NONE


@dataclass(frozen=True, slots=True)
class RegisteredOverview:
    """The queries that are shown, and how many there are."""

    lines: Sequence[RegisteredLine]
    total: int
    owners: Mapping[str, int]
    """Queries of each owner."""
    statements: int
    """Different statements, which are planned once each."""


def registered_overview(site: Site, owner: str | None = None) -> RegisteredOverview:
    """The registered queries, of one owner if given; those that were asked last come first."""
    found = registered_queries(site)
    owners: dict[str, int] = {}
    for each in found:
        owners[each.owner] = owners.get(each.owner, 0) + 1
    mine = [each for each in found if owner is None or each.owner == owner]
    mine.sort(key=lambda each: (-(each.cost.last_asked or 0), -each.number))
    shown = with_costs(site, mine[:MOST_SHOWN])
    described = _Describing(site, {source.stream for each in shown for source in each.plan.sources})
    lines = [described.line(each) for each in shown]
    return RegisteredOverview(lines, len(mine), owners, len({each.statement_id for each in mine}))


@dataclass(frozen=True)
class _StreamBuckets:
    """The buckets of a stream that have rows, and up to which conjunction each has been matched."""

    stream: Stream
    buckets: Sequence[Bucket] = ()
    covered: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def unmatched(self, conjunction: int) -> int:
        """The buckets that have not been matched with a conjunction."""
        return sum(self.covered.get(bucket_key(each), (0, 0))[0] < conjunction for each in self.buckets)


class _Describing:
    def __init__(self, site: Site, names: set[str]) -> None:
        self._store = MatchStore(site)
        self._views = registered_views.viewed_numbers(site.catalog)
        self._streams: dict[str, _StreamBuckets] = {}
        commit_id = commits.newest_commit(site.catalog)
        for state in streams.stream_states(site.catalog, commit_id):
            if state.stream.name in names:
                found = [
                    each for each in candidate_buckets(site.catalog, ArchiveScan(state, commit_id)).all if each.rows
                ]
                found.sort(key=lambda each: (each.vs_min, each.bucket_id))
                covered = match_segments.covered_to(site.catalog, list(map(bucket_key, found)))
                self._streams[state.stream.name] = _StreamBuckets(state.stream, found, covered)

    def line(self, query: RegisteredQuery) -> RegisteredLine:
        """What is shown of a query."""
        plan = query.plan
        sources = [self._streams[each.stream] for each in plan.sources]
        windows = [window_text(each.stream, window) for each, window in zip(sources, plan.windows, strict=True)]
        kept = query.strategy is not ResultStrategy.NONE
        unmatched = sum(
            each.unmatched(number) for each, number in zip(sources, query.conjunctions, strict=True) if kept
        )
        marks = self._marks(sources[0], query.conjunctions[0], everything=not plan.conjunctions[0]) if kept else []
        return RegisteredLine(query, windows, query.number in self._views, unmatched, marks)

    def _marks(self, source: _StreamBuckets, conjunction: int, *, everything: bool) -> list[int]:
        newest = source.buckets[-MARKS:]
        if everything:
            return [each.rows for each in newest]
        known = self._store.find(newest, conjunction)
        found = [known.get(bucket_key(each)) for each in newest]
        return [0 if each is None else each.count for each in found]


def window_text(stream: Stream, window: RegisteredWindow) -> str:
    """A window in words: 'the last 10 minutes', 'since …', 'from … to …', 'the last 100 rows'."""
    end = "" if window.end == Bound(relative=True, value=0) else _end_text(stream, window.end)
    if window.rows is not None:
        return f"the last {window.rows:,} rows{end}"
    begin = window.begin
    if begin is None:
        raise ValueError("a window has a begin, or counts rows")
    if begin.relative:
        return f"the last {stream.span_text(begin.value)}{end}"
    since = order_text(stream, begin.value)
    return f"since {since}" if not end else f"from {since}{end}"


def _end_text(stream: Stream, end: Bound) -> str:
    return f" up to {stream.span_text(end.value)} ago" if end.relative else f" to {order_text(stream, end.value)}"
