"""Where rows come from: landing folders, and feeds: several physical streams that say the same, merged into one logical
stream (Chandramouli, Maier and Goldstein 2012, below "logical merge").

Each feed is a sequence of elements: it inserts a row, adjusts or withdraws one, or says that it is stable up to a time,
behind which it says nothing more. What a feed guarantees (order, ties, adjusts, completeness) decides which algorithm
merges it: the more the feeds guarantee, the less the merge has to remember. The data is checked against the guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from errata.errors import UsageError
from errata.model.columns import check_name
from errata.model.time import LOWEST

MAX_FEEDS = 64
"""Feeds of one stream at most: each has a column of its own in the merge's state."""


class LandedFileAction(StrEnum):
    """What is done with a landed file that has been taken in."""

    MOVE = "move"
    DELETE = "delete"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class LandingFolder:
    """The folder in which files land."""

    path: str
    settle: int
    then: LandedFileAction


def landing_to_record(landing: LandingFolder | None) -> dict[str, Any] | None:
    """The folder as a JSON object, which `landing_from_record` reads."""
    return None if landing is None else {"path": landing.path, "settle": landing.settle, "then": landing.then.value}


def landing_from_record(record: dict[str, Any] | None) -> LandingFolder | None:
    if record is None:
        return None
    return LandingFolder(record["path"], record["settle"], LandedFileAction(record["then"]))


class FeedOrder(StrEnum):
    """In which order a feed delivers its rows."""

    STRICT = "strict"
    """By strictly increasing order field."""
    ORDERED = "ordered"
    """By order field, with ties."""
    NONE = "none"


class StableRule(StrEnum):
    """How the stable point of a feed is known."""

    ROWS = "rows"
    """The greatest order field of its rows, less the stream's slack; rows behind it are late, and welcome."""
    MARKS = "marks"
    """From its own stable elements and heartbeats alone; what comes behind one contradicts the feed."""


class EmitPolicy(StrEnum):
    """When a row of a feed goes into the merged stream (logical merge, V-A)."""

    FIRST = "first"
    """With the first feed that has it; adjustments wait until the stable point reaches them."""
    EVERY = "every"
    """At once, and every adjustment as well."""
    LEADER = "leader"
    """When the leading feed has it: the one whose stable point is the greatest."""
    HALF_FROZEN = "half_frozen"
    """When the stable point has passed it, so that it is never withdrawn."""
    FRACTION = "fraction"
    """When a fraction of the feeds has it, or the stable point has passed it."""


class DisagreementPolicy(StrEnum):
    """Which value counts when feeds have different values of one key."""

    LEADER = "leader"
    """That of the feed whose stable point is the greatest; among equals the one declared first."""
    MAJORITY = "majority"
    """The one that most feeds have; among equals as `leader`."""
    FIRST = "first"
    """The one that was published first, as long as a feed still has it."""
    LATEST = "latest"
    """The one whose version column is the greatest; among equals as `leader`."""


class MergeAlgorithm(StrEnum):
    """The algorithms of the logical merge, from the most special to the most general."""

    R0 = "R0"
    """Strictly increasing order fields, inserts only: one number is remembered."""
    R1 = "R1"
    """Increasing order fields with ties in one fixed order, inserts only: a count for each feed is remembered."""
    R2 = "R2"
    """Increasing order fields with ties in any order, inserts only: the rows of the last instant are remembered."""
    R3 = "R3"
    """Anything; a key identifies one row. The rows that are not frozen are remembered, once for all feeds."""
    R4 = "R4"
    """Anything, and rows may repeat: the same, with a count for each end of a lifetime."""


@dataclass(frozen=True, slots=True)
class FeedProperties:
    """What a feed guarantees. The default is nothing at all."""

    order: FeedOrder = FeedOrder.NONE
    ties_fixed: bool = False
    """Rows with the same order field come in the same order in every feed."""
    adjusts: bool = True
    """It may adjust and withdraw rows; false: it only inserts."""
    complete: bool = False
    """It has no gaps: a row that it lacks behind its stable point does not exist."""


def what_all_guarantee(some: Iterable[FeedProperties]) -> FeedProperties:
    """Only what each of these says; there is at least one."""
    known, strength = list(some), list(FeedOrder)
    return FeedProperties(
        order=max((each.order for each in known), key=strength.index),
        ties_fixed=all(each.ties_fixed for each in known),
        adjusts=any(each.adjusts for each in known),
        complete=all(each.complete for each in known),
    )


def what_either_guarantees(one: FeedProperties, other: FeedProperties) -> FeedProperties:
    """All that either says: a guarantee holds for whatever reason."""
    strength = list(FeedOrder)
    return FeedProperties(
        order=min(one.order, other.order, key=strength.index),
        ties_fixed=one.ties_fixed or other.ties_fixed,
        adjusts=one.adjusts and other.adjusts,
        complete=one.complete or other.complete,
    )


@dataclass(frozen=True, slots=True)
class Feed:
    """The declaration of one feed."""

    name: str
    landing: LandingFolder | None = None
    """None if its files are named (`errata ingest --feed`), or if a query makes it."""
    query: str | None = None
    """The query of Errata whose results are the feed."""
    properties: FeedProperties = FeedProperties()
    stable: StableRule = StableRule.ROWS
    joins_at: int = LOWEST
    """The time from which on it has everything (logical merge, V-B): it does not lead before the merge is there."""
    feedback: bool = False
    """Whether its query skips what the merged stream no longer needs (logical merge, V-D)."""
    derived: FeedProperties | None = field(default=None, compare=False)
    """What its query's plan guarantees, beside what is declared; `errata apply` finds it out."""

    def __post_init__(self) -> None:
        check_name("feed", self.name)
        if self.feedback and self.query is None:
            raise UsageError(
                f"feed {self.name} is told what matters no more, and no query makes it",
                how="leave feedback out, or name the query that makes it (query: NAME)",
            )
        if self.feedback and self.properties.complete:
            raise UsageError(
                f"feed {self.name} is complete, and skips what other feeds have said",
                why="what a complete feed lacks does not exist",
                how="leave complete out, or feedback",
            )


@dataclass(frozen=True, slots=True)
class MergePolicy:
    """How rows of several feeds become rows of one."""

    emit: EmitPolicy = EmitPolicy.FIRST
    fraction: float = 0.5
    """Of `EmitPolicy.FRACTION`: the share of the attached feeds that must have a row."""
    disagreement: DisagreementPolicy = DisagreementPolicy.LEADER
    version: str | None = None
    """Of `DisagreementPolicy.LATEST`: the column whose greatest value counts."""
    quorum: int = 1
    """How many feeds must be stable up to a time before the merged stream is: 1 is as early as the earliest."""


@dataclass(frozen=True, slots=True)
class MergedFeeds:
    """The feeds of a stream, in the order in which they are declared, and how they are merged."""

    feeds: tuple[Feed, ...] = ()
    policy: MergePolicy = field(default_factory=MergePolicy)
    end: str | None = None
    """The column that has the end of a row's lifetime (NULL: open), of the order field's type. None: rows are point
    events."""
    occurrence: str | None = None
    """The bigint column, part of the key, by which Errata numbers equal rows, from 0 (R4). None: rows do not
    repeat."""

    def __post_init__(self) -> None:
        names = [feed.name.lower() for feed in self.feeds]
        twice = sorted({feed.name for feed in self.feeds if names.count(feed.name.lower()) > 1})
        if twice:
            raise UsageError(f"feed {twice[0]} is declared twice", how="give each feed a name of its own")
        if len(self.feeds) > MAX_FEEDS:
            raise UsageError(f"{len(self.feeds)} feeds of one stream", why=f"{MAX_FEEDS} can be merged")
        if not 0 < self.policy.fraction <= 1:
            raise UsageError(f"a fraction of {self.policy.fraction:g} of the feeds", how="give a share such as 0.5")
        if self.feeds and not 1 <= self.policy.quorum <= len(self.feeds):
            raise UsageError(
                f"a quorum of {self.policy.quorum} of {len(self.feeds)} feeds", how="give 1 up to the number of feeds"
            )

    @property
    def is_empty(self) -> bool:
        return not self.feeds

    def feed(self, name: str) -> Feed:
        return next(each for each in self.feeds if each.name == name)


NO_FEEDS = MergedFeeds()


def feeds_to_record(merged: MergedFeeds) -> dict[str, Any]:
    """The feeds as a JSON object, which `feeds_from_record` reads."""
    policy = merged.policy
    return {
        "feeds": [_feed_to_record(feed) for feed in merged.feeds],
        "emit": policy.emit.value,
        "fraction": policy.fraction,
        "disagreement": policy.disagreement.value,
        "version": policy.version,
        "quorum": policy.quorum,
        "end": merged.end,
        "occurrence": merged.occurrence,
    }


def _feed_to_record(feed: Feed) -> dict[str, Any]:
    return {
        "name": feed.name,
        "landing": landing_to_record(feed.landing),
        "query": feed.query,
        **properties_to_record(feed.properties),
        "stable": feed.stable.value,
        "joins_at": feed.joins_at,
        **({"feedback": True} if feed.feedback else {}),
        **({} if feed.derived is None else {"derived": properties_to_record(feed.derived)}),
    }


def properties_to_record(properties: FeedProperties) -> dict[str, Any]:
    """What a feed guarantees as a JSON object, which `properties_from_record` reads."""
    return {
        "order": properties.order.value,
        "ties_fixed": properties.ties_fixed,
        "adjusts": properties.adjusts,
        "complete": properties.complete,
    }


def properties_from_record(record: dict[str, Any]) -> FeedProperties:
    return FeedProperties(FeedOrder(record["order"]), record["ties_fixed"], record["adjusts"], record["complete"])


def feeds_from_record(record: dict[str, Any] | None) -> MergedFeeds:
    """The feeds in a record of `feeds_to_record`."""
    if record is None:
        return NO_FEEDS
    policy = MergePolicy(
        EmitPolicy(record["emit"]),
        record["fraction"],
        DisagreementPolicy(record["disagreement"]),
        record["version"],
        record["quorum"],
    )
    feeds = tuple(_feed_from_record(each) for each in record["feeds"])
    return MergedFeeds(feeds, policy, record["end"], record["occurrence"])


def _feed_from_record(record: dict[str, Any]) -> Feed:
    return Feed(
        record["name"],
        landing_from_record(record["landing"]),
        record["query"],
        properties_from_record(record),
        StableRule(record["stable"]),
        record["joins_at"],
        record.get("feedback", False),
        properties_from_record(record["derived"]) if "derived" in record else None,
    )
