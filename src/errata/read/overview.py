"""Whether the project is healthy, and if not, what a person should look at first. Only the catalog is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from errata.catalog import commits
from errata.declare.site import Site
from errata.errors import count_text
from errata.model.commit import Commit, Fault
from errata.read.status import (
    DeclarationState,
    QueryProgress,
    QueryStatus,
    StreamStatus,
    query_statuses,
    stream_statuses,
)

MAX_NAMED = 10
"""Queries or streams that are named in a sentence; the rest are counted."""


class HealthLevel(StrEnum):
    """How urgently the project needs a person."""

    EMPTY = "empty"
    WELL = "well"
    LOOK = "look"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class AttentionPoint:
    """Something that a person should know or do."""

    words: str
    how: str = ""
    """What to do, as a sentence or a command."""
    command: bool = False
    panel: str = ""
    """The panel with details."""
    grave: bool = False
    """Whether something has stopped because of it."""


@dataclass(frozen=True, slots=True)
class WaitingCorrections:
    """Revisions that the results of some queries lack, with one reason."""

    queries: Sequence[str]
    count: int
    """The largest number among these queries."""
    why: str


@dataclass(frozen=True, slots=True)
class ProjectOverview:
    """The content of the overview."""

    level: HealthLevel
    line: str
    points: Sequence[AttentionPoint]
    streams: Sequence[StreamStatus]
    queries: Sequence[QueryStatus]
    waiting: Sequence[WaitingCorrections]
    last: Commit | None

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.streams)

    @property
    def pending(self) -> int:
        return sum(each.pending for each in self.streams)

    @property
    def quarantined(self) -> int:
        return sum(each.quarantined for each in self.streams)

    @property
    def set_aside(self) -> int:
        return sum(each.set_aside for each in self.streams)

    @property
    def stopped(self) -> Sequence[QueryStatus]:
        return [each for each in self.queries if each.stopped is not None]

    @property
    def behind(self) -> int:
        """The number of queries with work due."""
        return sum(each.due for each in self.queries)


def project_overview(site: Site) -> ProjectOverview:
    """The state of the project."""
    streams, queries = stream_statuses(site), query_statuses(site)
    points = list(attention_points(streams, queries))
    level, line = health_line(streams, queries, points)
    last = commits.list_commits(site.catalog, last=1)
    return ProjectOverview(
        level, line, points, streams, queries, waiting_corrections(queries), last[0] if last else None
    )


def health_line(
    streams: Sequence[StreamStatus], queries: Sequence[QueryStatus], points: Sequence[AttentionPoint]
) -> tuple[HealthLevel, str]:
    """How urgently the project needs a person, and one line that says why."""
    if not streams and not queries:
        return HealthLevel.EMPTY, "Nothing is declared yet."
    stopped = [each for each in queries if each.stopped is not None]
    if stopped:
        held = sum(each.state is QueryProgress.HELD for each in queries)
        more = f", and {count_text(held, 'other waits', 'others wait')} for {'it' if len(stopped) == 1 else 'them'}"
        of = "The only query" if len(queries) == 1 else f"{len(stopped)} of {len(queries)} queries"
        return HealthLevel.STOPPED, f"{of} {'has' if len(stopped) == 1 else 'have'} stopped{more if held else ''}."
    if points:
        return HealthLevel.LOOK, f"{count_text(len(points), 'thing needs', 'things need')} a look; all else is well."
    if not any(each.rows for each in streams):
        return HealthLevel.EMPTY, "All is set up, and no rows have come yet."
    return HealthLevel.WELL, f"All is well{_progress_text(queries)}."


def _progress_text(queries: Sequence[QueryStatus]) -> str:
    """How far the queries are evaluated, if nothing is wrong."""
    late = sum(each.due for each in queries)
    if late:
        return f": {count_text(late, 'query has', 'queries have')} new rows to take up"
    return ": every query is answered as far as its streams reach" if queries else ""


def attention_points(streams: Sequence[StreamStatus], queries: Sequence[QueryStatus]) -> Iterator[AttentionPoint]:
    """What does not resolve by itself."""
    yield from _stopped_points(queries)
    held = [each for each in streams if each.quarantined]
    if held:
        total, of = sum(each.quarantined for each in held), name_list(each.stream.name for each in held)
        words = f"{count_text(total, 'row is', 'rows are')} in quarantine, of {of}"
        how = "Correct and retry them, or drop them; the page Quarantine tells how."
        yield AttentionPoint(words, how, panel="quarantine")
    yield from _landing_points(streams)
    yield from _blocked_points(queries)
    yield from _feed_points(streams)
    differ = [each.stream.name for each in streams if each.declared is not DeclarationState.AGREED]
    differ += [each.name for each in queries if each.declared is not DeclarationState.AGREED]
    if differ:
        words = f"errata.yaml and the catalog differ in {name_list(differ)}"
        yield AttentionPoint(words, "errata apply", command=True)
    refused = [each for each in queries if each.refused]
    if refused:
        total = sum(refusal.count for each in refused for refusal in each.refused)
        words = f"{count_text(total, 'correction')} could not reach {name_list(each.name for each in refused)}"
        yield AttentionPoint(words, "These results stay as they were; the queries' pages tell why.", panel="queries")


def _landing_points(streams: Sequence[StreamStatus]) -> Iterator[AttentionPoint]:
    """Files held in landing folders, and landing folders that cannot be listed."""
    held = [each for each in streams if each.set_aside]
    if held:
        total, of = sum(each.set_aside for each in held), name_list(each.stream.name for each in held)
        words = f"{count_text(total, 'landed file', 'landed files')} of {of} could not be taken in"
        yield AttentionPoint(
            words, "Correct and land them anew, retry or drop them; the page Quarantine tells how.", panel="quarantine"
        )
    for each in streams:
        if each.landing_fault is not None:
            words = f"nobody can look into the landing folder of {each.stream.name}"
            yield AttentionPoint(words, each.landing_fault, panel="streams")


def _feed_points(streams: Sequence[StreamStatus]) -> Iterator[AttentionPoint]:
    """Feeds that are suspect or missing, and what feeds disagree about."""
    for merged in [each.merged for each in streams if each.merged is not None]:
        name = merged.stream.name
        for each in merged.suspects:
            words = f"feed {each.name} of {name} is suspect: it has contradicted what it had said to be stable"
            yield AttentionPoint(words, f"errata feeds trust {name} {each.name}", command=True, panel="feeds")
        if merged.missing:
            words = f"{name} goes on without {name_list(each.name for each in merged.missing)}"
            yield AttentionPoint(
                words, "See where these feeds have stopped; the others fill their gaps.", panel="feeds"
            )
        if merged.lacks_quorum:
            words = f"too few feeds of {name} are attached and trusted: its stable point stands still"
            yield AttentionPoint(words, "Attach feeds, trust them, or declare a smaller quorum.", panel="feeds")
        if merged.disagreements:
            words = f"feeds of {name} disagree about {count_text(merged.disagreements, 'key')}"
            yield AttentionPoint(words, f"errata feeds disagreements {name}", command=True, panel="feeds")


def waiting_corrections(queries: Iterable[QueryStatus]) -> list[WaitingCorrections]:
    """The revisions that queries' results lack, and why, grouped by reason."""
    found: dict[str, list[tuple[str, int]]] = {}
    for each in queries:
        count = each.pending + sum(each.missing_revisions.values())
        if count:
            found.setdefault(waiting_reason(each), []).append((each.name, count))
    return [
        WaitingCorrections([name for name, _ in some], max(count for _, count in some), why)
        for why, some in found.items()
    ]


def waiting_reason(each: QueryStatus) -> str:
    """Why the results of a query lack revisions, as the continuation of a sentence."""
    if each.stopped is not None:
        return "wait until the query has been mended"
    if each.waits_for is not None:
        return f"wait for query {each.waits_for}, which has stopped"
    if each.deferred is not None:
        return each.deferred.replace("waits", "wait", 1)
    return "are due: the next sweep takes them up"


def repair_hint(fault: Fault, query: str) -> str:
    """What a person can do about a query that has stopped."""
    if not fault.expression:
        return f"Mend the cause, then start the next run. `errata run {query}` tells all that is known."
    row = "Correct the row at its source, or drop it"
    return f"{row}; or let the query give NULL there (try_divide, try_cast, nullif) and `errata apply`."


def name_list(names: Iterable[str]) -> str:
    """Names in a sentence; of many the first ones and a count."""
    every = list(names)
    shown, more = every[:MAX_NAMED], len(every) - MAX_NAMED
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)


def _blocked_points(queries: Sequence[QueryStatus]) -> Iterator[AttentionPoint]:
    """Queries with work due whose lease keeps others from it."""
    blocked = [each for each in queries if each.blocked]
    for each in blocked[:MAX_NAMED]:
        if each.holder is not None:
            words = f"{each.name} waits for {each.holder.description}"
            yield AttentionPoint(words, f"errata leases release {each.name}", command=True, panel="health")
    if len(blocked) > MAX_NAMED:
        yield AttentionPoint(f"{len(blocked) - MAX_NAMED} more queries wait for who is at work on them", panel="health")


def _stopped_points(queries: Sequence[QueryStatus]) -> Iterator[AttentionPoint]:
    stopped = [each for each in queries if each.stopped is not None]
    for each in stopped[:MAX_NAMED]:
        if each.stopped is not None:
            fault = each.stopped.fault
            at = f"at {fault.expression}: " if fault.expression else ""
            reason = fault.reason.splitlines()[0].rstrip(".")
            words = f"{each.name} has stopped {at}{reason}"
            yield AttentionPoint(words, repair_hint(fault, each.name), panel=f"queries/{each.name}", grave=True)
    if len(stopped) > MAX_NAMED:
        yield AttentionPoint(f"{len(stopped) - MAX_NAMED} more queries have stopped", panel="queries", grave=True)
