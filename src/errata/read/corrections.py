"""Corrections of published results, by sweeps and by replays; and what one task of a scheduler committed.

Only the catalog is read. The lists are paged by time: a page names the moment before which the next one begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from errata.catalog import activity, queries, streams
from errata.catalog import commits as catalog_commits
from errata.catalog.activity import CorrectionRecord, ReplayRecord
from errata.catalog.feed_batches import FeedDelivery, deliveries_of
from errata.catalog.result_archives import read_archives
from errata.declare.site import Site
from errata.errors import UsageError, unknown_name_error
from errata.model.commit import Commit, RefusedRevisions
from errata.model.time import Interval, format_instant

CORRECTIONS_PER_PAGE = 50
"""Corrections on a page."""

MAX_TASK_COMMITS = 500
"""Commits of one task that are returned at most."""


@dataclass(frozen=True, slots=True)
class CorrectionSummary:
    """One correction of one query's results, or a replay that changed nothing."""

    at: int
    query: str
    by_hand: bool
    revisions: Mapping[str, tuple[int, int]]
    """By source, the first and the last revision that was taken up; both are 0 for late versions of a relation."""
    technique: str
    compared: int
    changed: int
    micros: int
    """Its duration in microseconds."""
    commit: Commit | None = None
    """None for a replay that changed nothing."""
    refused: Sequence[RefusedRevisions] = ()
    replay: ReplayRecord | None = None
    queries: frozenset[str] = frozenset()
    """The sources that are queries; their revisions are their own corrections."""

    @property
    def under_way(self) -> bool:
        """Whether it is a replay that is running or was interrupted."""
        return self.replay is not None and self.replay.replay.ended is None

    @property
    def verified(self) -> bool:
        """Whether every result that was compared was right."""
        return not self.under_way and self.changed == 0


@dataclass(frozen=True, slots=True)
class CorrectionPage:
    """A page of corrections, the newest first."""

    entries: Sequence[CorrectionSummary]
    older: int | None = None
    """The time before which there are more; None on the last page."""


@dataclass(frozen=True, slots=True)
class TaskCommits:
    """The commits of a task of Airflow."""

    commits: Sequence[Commit]
    corrections: Mapping[int, CorrectionSummary]
    """Corrections by commit."""


def correction_page(
    site: Site, before: int | None = None, query: str | None = None, most: int = CORRECTIONS_PER_PAGE
) -> CorrectionPage:
    """The corrections before a time, of all queries or of one."""
    if query is not None:
        check_query_name(site, query)
    swept = activity.recent_corrections(site.catalog, most, before, query)
    replays = activity.recent_replays(site.catalog, most, before, query)
    # The changes of a replay are reported by its commits.
    found = [*map(_correction_summary, swept), *(_replay_summary(each) for each in replays if not _has_commits(each))]
    found.sort(key=lambda each: each.at, reverse=True)
    ends = ([each.commit.at for each in swept], [each.replay.begun for each in replays])
    # Before the older end of a full page, the list may be incomplete.
    since = max((moments[-1] for moments in ends if len(moments) == most), default=None)
    return CorrectionPage([each for each in found if since is None or each.at >= since], since)


def find_correction(site: Site, query: str, commit_id: int) -> tuple[CorrectionRecord, CorrectionSummary]:
    """The correction of a query that a commit made."""
    found = activity.correction_in(site.catalog, query, commit_id)
    if found is None:
        check_query_name(site, query)
        raise UsageError(
            f"commit {commit_id} has corrected no results of query {query}", how="look in the list of corrections"
        )
    return found, _correction_summary(found)


def find_replay(site: Site, replay_id: int) -> CorrectionSummary:
    """One replay by its number."""
    found = activity.find_replay(site.catalog, replay_id)
    if found is None:
        raise UsageError(f"there is no replay {replay_id}", how="look in the list of corrections")
    return _replay_summary(found)


def task_commits(site: Site, dag_id: str, run_id: str, task_id: str, try_number: int | None = None) -> TaskCommits:
    """The commits of a task of Airflow, or of one try of it."""
    made = activity.commits_of_task(site.catalog, dag_id, run_id, task_id, try_number, MAX_TASK_COMMITS)
    sweeps = [each for each in made if each.cause.flow == "sweep"]
    corrected = activity.corrections_in(site.catalog, [each.commit_id for each in sweeps])
    return TaskCommits(made, {each.commit.commit_id: _correction_summary(each) for each in corrected})


def check_query_name(site: Site, name: str) -> None:
    """Raise an error for a name that no query has or has had."""
    there = {*queries.recorded_queries(site.catalog), *site.project.queries, *activity.answered_queries(site.catalog)}
    if name not in there:
        raise unknown_name_error("query", name, there)


def _correction_summary(each: CorrectionRecord) -> CorrectionSummary:
    swept = each.evaluation.correction
    if swept is None:
        raise AssertionError("only of an evaluation that corrects")
    cause = each.evaluation.cause
    return CorrectionSummary(
        each.commit.at,
        each.query,
        cause.get("type") == "replay",
        {name: (ends[0] + 1, ends[1]) if ends[1] > ends[0] else (0, 0) for name, ends in swept.revisions.items()},
        swept.technique,
        swept.compared,
        swept.changed,
        each.evaluation.measures.micros,
        each.commit,
        swept.refused,
        queries=frozenset(each.evaluation.inputs),
    )


def _replay_summary(each: ReplayRecord) -> CorrectionSummary:
    of = each.replay
    lasted = (of.ended if of.ended is not None else of.begun) - of.begun
    return CorrectionSummary(of.begun, each.query, True, {}, "", of.results, of.changed, lasted, replay=each)


def _has_commits(each: ReplayRecord) -> bool:
    return each.replay.ended is not None and each.replay.changed > 0


# Asset changes: the streams and queries that a task's commits changed, and in which event times.

FEED_KIND = "feeds"

_ROW_COUNTS = ("appended", "inserted", "changed", "results")
"""The keys of a commit's summary that count rows brought or changed; the first that is present is used."""


@dataclass(frozen=True, slots=True)
class AssetChange:
    """One commit, as a scheduler reports it to readers of the stream or query."""

    kind: str
    """`streams`, `queries` or `feeds`."""
    name: str
    """Of a feed also the stream's: `quotes.nyse`."""
    commit_id: int
    rows: int
    """Of a feed the files that it delivered: what became of its rows, the merge decides."""
    span: Interval | None
    """The event times that it concerns; None if it brought no rows."""
    timed: bool = True
    reads: tuple[str, ...] = ()
    """The inputs of a query, or the feeds of a stream, each as kind and name: `streams/trades`."""

    @property
    def to_json(self) -> Mapping[str, object]:
        """The change as JSON values."""
        counted = "files" if self.kind == FEED_KIND else "rows"
        found: dict[str, object] = {"commit": self.commit_id, counted: self.rows}
        if self.span is not None:
            found |= {"from": self._shown(self.span.start), "to": self._shown(self.span.end)}
        return found

    def _shown(self, moment: int) -> object:
        return format_instant(moment) if self.timed else moment


def task_asset_changes(site: Site, dag_id: str, run_id: str, task_id: str, try_number: int) -> list[AssetChange]:
    """The changes that the commits of one try of a task made, in their order."""
    commits = catalog_commits.commits_of_try(site.catalog, dag_id, run_id, task_id, try_number)
    if not commits:
        return []
    spans = catalog_commits.event_spans(site.catalog, [each.commit_id for each in commits])
    timed = {each.stream.name: each.stream.timed for each in streams.stream_states(site.catalog)}
    timed |= {name: each.shape.timed for name, each in read_archives(site.catalog).items()}
    reads = {name: each.checked.reads for name, each in queries.recorded_queries(site.catalog).items()}
    delivered: dict[int, list[FeedDelivery]] = {}
    for delivery in deliveries_of(site.catalog, [each.commit_id for each in commits]):
        delivered.setdefault(delivery.commit_id, []).append(delivery)
    found = []
    for each in commits:
        query = each.summary.get("query")
        name = each.stream if query is None else str(query)
        if name is None:  # a repair, or applied declarations: no change of rows
            continue
        rows = next((int(str(each.summary[key])) for key in _ROW_COUNTS if key in each.summary), 0)
        kind = "streams" if query is None else "queries"
        read = (
            ()
            if query is None
            else tuple(f"{'queries' if of in reads else 'streams'}/{of}" for of in reads.get(name, ()))
        )
        span = spans.get(each.commit_id)
        feeds = delivered.get(each.commit_id, [])
        found += [AssetChange(FEED_KIND, f"{name}.{of.feed}", of.commit_id, of.files, None) for of in feeds]
        read = (*read, *(f"{FEED_KIND}/{name}.{of.feed}" for of in feeds))
        found.append(AssetChange(kind, name, each.commit_id, rows, span, timed.get(name, True), read))
    return found
