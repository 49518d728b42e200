"""How the feeds of merged streams stand: who leads, who lags and since when, who is suspect, what they disagree about.

Only the catalog is read, and the feeds' landing folders are listed. A feed is missing if the merged stream is stable
beyond it, and since it was heard there have been as many batches as there are attached feeds: each of the others could
have had its turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from errata.archive.ingest.landing import new_files
from errata.catalog import commits, feeds, streams
from errata.catalog.feed_batches import batches_since
from errata.catalog.feed_commits import check_feed_known
from errata.catalog.feeds import Disagreement, DisagreementFilter, FeedState, MergeRecord
from errata.catalog.streams import StreamState
from errata.declare.site import Site
from errata.errors import ErrataError, count_text, unknown_name_error
from errata.intake.files import list_landed
from errata.merge.choice import AlgorithmChoice, choose_algorithm
from errata.model.commit import Commit
from errata.model.feed import Feed, FeedProperties, what_either_guarantees
from errata.model.stream import Stream
from errata.model.time import LOWEST, format_instant
from errata.read.row_keys import key_table, key_texts
from errata.read.wording import event_time_text

MAX_COUNTED = 1_000
"""Disagreements that are read to count whose values do not count. A feed that has a whole column wrong disagrees about
every row, and reading them all would make a status slow."""


class FeedRole(StrEnum):
    """What a feed is to the merge."""

    LEADS = "leads"
    FOLLOWS = "follows"
    JOINS = "joins later"
    """The merged stream is not where the feed begins yet."""
    SILENT = "not heard yet"
    SUSPECT = "suspect"
    """It has contradicted what it had frozen, and does not lead until a person trusts it again."""
    DETACHED = "detached"


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """One feed, as it stands."""

    feed: Feed
    state: FeedState
    role: FeedRole
    lag: int | None
    """How far its stable point is behind the merged one; None if one of the two is unknown."""
    last: Commit | None
    """The last commit that took in something of it."""
    missing: bool = False
    """Whether others are heard again and again, and the merged stream is stable beyond it."""
    overruled: int = 0
    """Keys about which its value does not count, of the newest MAX_COUNTED disagreements."""
    landed: int | None = None
    """Files in its folder that have not been taken in; None if it has no folder."""
    landing_fault: str | None = None
    """Why its folder cannot be listed."""

    @property
    def name(self) -> str:
        return self.feed.name

    @property
    def guarantees(self) -> FeedProperties:
        """What is declared, and what follows from the plan of its query."""
        derived = self.feed.derived
        return self.feed.properties if derived is None else what_either_guarantees(self.feed.properties, derived)

    @property
    def counts(self) -> bool:
        """Whether its stable point counts for that of the merged stream."""
        return self.role in (FeedRole.LEADS, FeedRole.FOLLOWS)


@dataclass(frozen=True, slots=True)
class MergeStatus:
    """A stream with feeds, and how they are merged."""

    state: StreamState
    merge: MergeRecord | None
    """None before the first batch."""
    choice: AlgorithmChoice
    """The algorithm that what is declared allows."""
    feeds: Sequence[FeedStatus]
    disagreements: int
    """Keys about which feeds disagree now."""

    @property
    def stream(self) -> Stream:
        return self.state.stream

    @property
    def stable(self) -> int | None:
        """The stable point of the merge."""
        return None if self.merge is None or self.merge.stable == LOWEST else self.merge.stable

    @property
    def counting(self) -> int:
        """How many feeds' stable points count."""
        return sum(each.counts for each in self.feeds)

    @property
    def suspects(self) -> list[FeedStatus]:
        return [each for each in self.feeds if each.role is FeedRole.SUSPECT]

    @property
    def missing(self) -> list[FeedStatus]:
        return [each for each in self.feeds if each.missing]

    @property
    def lacks_quorum(self) -> bool:
        """Whether fewer feeds are left than must be stable: the stable point then stands still."""
        left = sum(each.role not in (FeedRole.DETACHED, FeedRole.SUSPECT) for each in self.feeds)
        return left < self.stream.merged.policy.quorum


def merge_statuses(site: Site, names: Sequence[str] = (), *, folders: bool = True) -> list[MergeStatus]:
    """The streams named, which must have feeds, or all that have some, by name. With `folders`, landing folders are
    listed."""
    recorded = {each.stream.name: each for each in streams.stream_states(site.catalog)}
    for name in names:
        if name not in recorded:
            raise unknown_name_error("stream", name, recorded)
        check_feed_known(recorded[name].stream)
    wanted = names or [name for name in sorted(recorded) if not recorded[name].stream.merged.is_empty]
    return [merge_status(site, recorded[name], folders=folders) for name in wanted]


def merge_status(site: Site, state: StreamState, *, folders: bool = True) -> MergeStatus:
    """How the feeds of a stream stand."""
    merge = feeds.merge_of(site.catalog, state.stream_id)
    found = feeds.standing_feeds(state.stream, feeds.feeds_of(site.catalog, state.stream_id))
    last = commits.commits_by_number(site.catalog, {each.last_commit for each in found if each.last_commit is not None})
    standing = feeds.standing_disagreements(site.catalog, state.stream_id)
    newest = DisagreementFilter(last=MAX_COUNTED)
    disputed = feeds.disagreements_of(site.catalog, state.stream_id, newest) if standing else []
    overruled = Counter(said["feed"] for each in disputed for said in each.values if not said["chosen"])
    reached = LOWEST if merge is None else merge.stable
    attached = sum(each.attached for each in found)
    statuses = []
    for feed, each in zip(state.stream.merged.feeds, found, strict=True):
        role = feed_role(each, merge)
        landed, fault = _landed_files(site, state, feed) if folders else (None, None)
        statuses.append(
            FeedStatus(
                feed,
                each,
                role,
                None if LOWEST in (reached, each.stable) else max(0, reached - each.stable),
                last.get(each.last_commit or 0),
                each.attached
                and each.stable < reached
                and batches_since(site.catalog, state.stream_id, each.last_commit or 0) >= attached,
                overruled[feed.name],
                landed,
                fault,
            )
        )
    return MergeStatus(state, merge, choose_algorithm(state.stream), statuses, standing)


def feed_role(state: FeedState, merge: MergeRecord | None) -> FeedRole:
    """What a feed is to the merge now."""
    if not state.attached:
        return FeedRole.DETACHED
    if state.suspect_in is not None or state.suspect_reason is not None:
        return FeedRole.SUSPECT
    if merge is not None and merge.leader == state.name:
        return FeedRole.LEADS
    if merge is not None and state.joins_at > merge.stable:
        return FeedRole.JOINS
    return FeedRole.SILENT if state.last_commit is None else FeedRole.FOLLOWS


def _landed_files(site: Site, state: StreamState, feed: Feed) -> tuple[int | None, str | None]:
    """Files in a feed's folder that have not been taken in, or why it cannot be listed."""
    if feed.landing is None:
        return None, None
    try:
        return len(new_files(site, state, list(list_landed(feed.landing)))), None
    except ErrataError as error:
        return None, str(error)


# Disagreements.

STANDING = DisagreementFilter()
"""Those that stand."""


@dataclass(frozen=True, slots=True)
class StreamDisagreements:
    """What the feeds of a stream disagree about, oldest first."""

    stream: Stream
    found: Sequence[Disagreement]


def stream_disagreements(
    site: Site, name: str, wanted: DisagreementFilter = STANDING, key: Mapping[str, str] | None = None
) -> StreamDisagreements:
    """The disagreements of a stream, those that stand unless more is wanted; with `key`, which is given as text by
    column, those about it alone."""
    state = streams.stream_state(site.catalog, name)
    check_feed_known(state.stream, wanted.feed)
    if key is not None:
        (typed,) = key_table(state.stream, key).to_pylist()
        wanted = replace(wanted, key=key_texts(state.stream, typed))
    return StreamDisagreements(state.stream, feeds.disagreements_of(site.catalog, state.stream_id, wanted))


def key_disagreements(site: Site, state: StreamState, key: Mapping[str, object]) -> list[Disagreement]:
    """All disagreements that there were about a key, also those that are resolved."""
    if state.stream.merged.is_empty:
        return []
    wanted = DisagreementFilter(resolved=True, key=key_texts(state.stream, key))
    return feeds.disagreements_of(site.catalog, state.stream_id, wanted)


def differing_columns(disagreement: Disagreement) -> list[str]:
    """The columns in which the feeds' rows differ."""
    rows = [said["row"] for said in disagreement.values]
    names = [name for row in rows[:1] for name in row]
    return [name for name in names if any(row.get(name) != rows[0].get(name) for row in rows[1:])]


def value_words(disagreement: Disagreement) -> Iterator[str]:
    """What each feed says, in words: `nyse price=10.5 (counts, nyse.csv:3)`."""
    columns = differing_columns(disagreement)
    for said in disagreement.values:
        row = said["row"]
        told = ", ".join(f"{name}={'NULL' if row.get(name) is None else row[name]}" for name in columns)
        notes = ["counts"] if said["chosen"] else []
        notes += [f"{said['file']}:{said['line']}"] if said.get("file") else []
        yield f"{said['feed']} {told or 'the same'}" + (f" ({', '.join(notes)})" if notes else "")


def disagreement_line(disagreement: Disagreement) -> str:
    """A disagreement in words: who says what, since when, and whose value counts by which policy."""
    since = f"since commit {disagreement.opened_in}"
    if disagreement.resolved_in is not None:
        since = f"from commit {disagreement.opened_in} to {disagreement.resolved_in}"
    verb = "disagree" if disagreement.resolved_in is None else "disagreed"
    said = "; ".join(value_words(disagreement))
    return f"feeds {verb} {since}: {said}; by policy {disagreement.policy}"


# How feeds are merged, in words.


def merge_lines(of: MergeStatus) -> Iterator[str]:
    """How the feeds of a stream are merged now, in words."""
    name, quorum = of.stream.name, of.stream.merged.policy.quorum
    if of.merge is None:
        yield f"{name}: nothing merged yet; {of.choice.algorithm.value} will merge: {of.choice.reason}"
    else:
        yield (f"{name}: merged by {of.merge.algorithm.value} since commit {of.merge.since_commit}: {of.merge.reason}")
        leader = "no feed leads" if of.merge.leader is None else f"{of.merge.leader} leads"
        since = "" if of.merge.leader_since is None else f" since commit {of.merge.leader_since}"
        switches = f", {count_text(of.merge.switches, 'switch', 'switches')} so far" if of.merge.switches else ""
        yield f"{name}: {leader}{since}{switches}; quorum {quorum} of {count_text(len(of.feeds), 'feed')}"
    yield from broken_lines(of.stream, [each.state for each in of.feeds])


FEED_CHANGES: Mapping[str, str] = {"attach": "attached", "detach": "detached", "trust": "trusted"}
"""What can be done to a feed, and what it then is."""


def change_text(stream: str, feed: str, done: str, commit_id: int | None) -> str:
    """What was done to a feed, in words; None: it was so already."""
    if commit_id is None:
        return f"{stream}: feed {feed} is {done} already; nothing was changed"
    return f"{stream}: feed {feed} {done} in commit {commit_id}"


def merge_words(of: MergeStatus) -> str:
    """How the feeds of a stream stand, in a few words: `nyse leads, 2 of 3, quorum 2`."""
    leader = of.merge.leader if of.merge is not None else None
    words = [f"{leader} leads" if leader is not None else "none leads", f"{of.counting} of {len(of.feeds)}"]
    words += [f"quorum {of.stream.merged.policy.quorum}"] if of.stream.merged.policy.quorum > 1 else []
    words += [f"{each.name} {each.role.value}" for each in of.suspects]
    words += [f"{each.name} missing" for each in of.missing]
    words += [f"{of.disagreements:,} disputed"] if of.disagreements else []
    return ", ".join(words)


def merge_record(of: MergeStatus) -> dict[str, object]:
    """The same for programs."""
    merge = of.merge
    return {
        "algorithm": (of.choice.algorithm if merge is None else merge.algorithm).value,
        "reason": of.choice.reason if merge is None else merge.reason,
        "stable": event_time_text(of.stable, of.stream.timed) or None,
        "leader": None if merge is None else merge.leader,
        "leader_since": None if merge is None else merge.leader_since,
        "switches": 0 if merge is None else merge.switches,
        "quorum": of.stream.merged.policy.quorum,
        "counting": of.counting,
        "lag": {each.name: each.lag for each in of.feeds},
        "suspects": [each.name for each in of.suspects],
        "missing": {each.name: None if each.last is None else format_instant(each.last.at) for each in of.missing},
        "detached": [each.name for each in of.feeds if each.role is FeedRole.DETACHED],
        "filled": sum(each.state.filled for each in of.feeds),
        "refused": sum(each.state.refused for each in of.feeds),
        "disagreements": of.disagreements,
    }


def broken_lines(stream: Stream, states: Iterable[FeedState]) -> Iterator[str]:
    """The guarantees that feeds have broken, in words."""
    for state in states:
        for each in state.broken:
            where = f" ({each['file']}:{each['line']})" if each.get("file") else ""
            yield (
                f"{stream.name}: feed {state.name} broke `{each.get('guarantee', '')}`: {each.get('what', '')}{where}; "
                "it is merged without it until it is declared anew"
            )


def merge_hints(found: Sequence[MergeStatus]) -> Iterator[str]:
    """What a person can do about feeds that need attention."""
    for of in found:
        name = of.stream.name
        for each in of.suspects:
            why = f": {each.state.suspect_reason}" if each.state.suspect_reason else ""
            yield f"feed {each.name} of {name} is suspect{why}: errata feeds trust {name} {each.name}"
        for each in of.missing:
            since = "" if each.last is None else f" since commit {each.last.commit_id}"
            yield f"feed {each.name} of {name} is missing{since}: errata feeds ls {name}"
        yield from quorum_hint(of)
        if of.disagreements:
            keys = count_text(of.disagreements, "key")
            yield f"feeds of {name} disagree about {keys}: errata feeds disagreements {name}"
        for each in of.feeds:
            if each.landing_fault is not None:
                yield f"what has landed of feed {each.name} of {name} cannot be looked at: {each.landing_fault}"


def quorum_hint(of: MergeStatus) -> Iterator[str]:
    """Whether so few feeds are left that the stream's stable point stands still, in words."""
    if of.lacks_quorum:
        name, quorum = of.stream.name, of.stream.merged.policy.quorum
        yield f"{name} needs {count_text(quorum, 'feed')} that are attached and trusted: its stable point stands still"
