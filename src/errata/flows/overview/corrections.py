"""Corrections of published results: those that sweeps made and those that persons had worked out again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from errata.catalog import lately, queries
from errata.catalog.lately import Corrected, Replayed
from errata.errors import UsageError, unknown
from errata.flows.site import Site
from errata.model.commit import Commit
from errata.model.evaluation import Refusal

PAGE = 50
"""So many corrections are told on a page."""

TRY = 500
"""So many commits of one task are looked at."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One correction of one query's results, or a replay that has found nothing wrong."""

    at: int
    query: str
    by_hand: bool
    revisions: Mapping[str, tuple[int, int]]
    """Of each source the first and the last revision that was taken up; of late versions both are 0."""
    technique: str
    compared: int
    changed: int
    micros: int
    """How long it took."""
    commit: Commit | None = None
    """None of a replay that has changed nothing."""
    refused: Sequence[Refusal] = ()
    replay: Replayed | None = None
    queries: frozenset[str] = frozenset()
    """The sources that are queries: their revisions are their own corrections."""

    @property
    def under_way(self) -> bool:
        """Whether it is a replay that goes on, or was broken off."""
        return self.replay is not None and self.replay.replay.ended is None

    @property
    def verified(self) -> bool:
        """Whether all that was looked at was found to be right."""
        return not self.under_way and self.changed == 0


@dataclass(frozen=True, slots=True)
class Course:
    """Corrections, the newest first."""

    entries: Sequence[Entry]
    older: int | None = None
    """The moment before which there are more; None: these are the last."""


@dataclass(frozen=True, slots=True)
class Deeds:
    """What a task of Airflow has done."""

    commits: Sequence[Commit]
    corrections: Mapping[int, Entry]
    """By commit."""


def course(site: Site, before: int | None = None, query: str | None = None, most: int = PAGE) -> Course:
    """The corrections before a moment; only those of a query, if told."""
    if query is not None:
        check_query(site, query)
    swept = lately.corrected(site.catalog, most, before, query)
    replays = lately.replayed(site.catalog, most, before, query)
    # What a replay has changed is told by its commits.
    found = [*map(_corrected, swept), *(_replayed(each) for each in replays if not _told_by_commits(each))]
    found.sort(key=lambda each: each.at, reverse=True)
    ends = ([each.commit.at for each in swept], [each.replay.begun for each in replays])
    # Of what lies before the older end of a full page nobody knows whether it is whole.
    since = max((moments[-1] for moments in ends if len(moments) == most), default=None)
    return Course([each for each in found if since is None or each.at >= since], since)


def correction(site: Site, query: str, commit_id: int) -> tuple[Corrected, Entry]:
    """One correction, by the query and the commit."""
    found = lately.corrected_in(site.catalog, query, commit_id)
    if found is None:
        check_query(site, query)
        raise UsageError(
            f"commit {commit_id} has corrected no results of query {query}", how="look in the list of corrections"
        )
    return found, _corrected(found)


def replay(site: Site, replay_id: int) -> Entry:
    """One replay by its number."""
    found = lately.replay_numbered(site.catalog, replay_id)
    if found is None:
        raise UsageError(f"there is no replay {replay_id}", how="look in the list of corrections")
    return _replayed(found)


def deeds(site: Site, dag_id: str, run_id: str, task_id: str, try_number: int | None = None) -> Deeds:
    """What a task of Airflow, or one try of it, has committed."""
    made = lately.made_by(site.catalog, dag_id, run_id, task_id, try_number, TRY)
    sweeps = [each for each in made if each.cause.flow == "sweep"]
    corrected = lately.corrected_by(site.catalog, [each.commit_id for each in sweeps])
    return Deeds(made, {each.commit.commit_id: _corrected(each) for each in corrected})


def check_query(site: Site, name: str) -> None:
    """Refuse a name that no query has or has had."""
    there = {*queries.recorded(site.catalog), *site.project.queries, *lately.ever_answered(site.catalog)}
    if name not in there:
        raise unknown("query", name, there)


def _corrected(each: Corrected) -> Entry:
    swept = each.evaluation.swept
    if swept is None:
        raise AssertionError("only of an evaluation that corrects")
    cause = each.evaluation.cause
    return Entry(
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


def _replayed(each: Replayed) -> Entry:
    of = each.replay
    lasted = (of.ended if of.ended is not None else of.begun) - of.begun
    return Entry(of.begun, each.query, True, {}, "", of.results, of.changed, lasted, replay=each)


def _told_by_commits(each: Replayed) -> bool:
    return each.replay.ended is not None and each.replay.changed > 0
