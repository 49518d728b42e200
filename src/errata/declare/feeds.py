"""The feeds of a stream, as `feeds:`, `merge:`, `end:` and `occurrence:` below the stream declare them.

feeds:
  nyse: {landing: ./landing/nyse, order: ordered, ties: any, adjusts: no, complete: no, stable: rows}
  mirror: {landing: {path: ./landing/mirror, settle: 5 seconds}, stable: marks, from: 2026-01-01}
  old_plan: {query: quotes_v1}
merge: {emit: fraction 50%, disagreement: latest version, quorum: 2}

A feed of which nothing more is said guarantees nothing, and the most general algorithm merges it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

from errata.declare.section import YamlPlace, YamlSection, parse_whole_number
from errata.declare.streams import FEED_KEYS
from errata.errors import UsageError, candidates_text, unknown_name_error
from errata.model.columns import parse_digits
from errata.model.feed import (
    NO_FEEDS,
    DisagreementPolicy,
    EmitPolicy,
    Feed,
    FeedOrder,
    FeedProperties,
    LandingFolder,
    MergedFeeds,
    MergePolicy,
    StableRule,
)
from errata.model.reduction import parse_rate
from errata.model.stream import Stream
from errata.model.time import LOWEST, parse_instant

ReadLanding = Callable[[YamlSection], LandingFolder | None]
"""Reads the section of a landing folder."""

_FEED_EXAMPLE = "feeds: {nyse: {landing: ./landing/nyse}, mirror: {landing: ./landing/mirror}}"


class TieRule(StrEnum):
    """In which order rows with the same order field come, as it is declared."""

    FIXED = "fixed"
    ANY = "any"


def check_no_feeds(section: YamlSection) -> None:
    """Note what the section of a relation says of feeds."""
    for name in FEED_KEYS:
        # Only what is there is asked for: it then does not count as unknown as well.
        if name in section.names() and section.has(name):
            why = "feeds are merged as rows of events; the versions of a thing are not"
            section.mistake(name, UsageError(f"a relation has no {name}", why=why, how=f"leave {name} out"))


def read_feeds(section: YamlSection, *, timed: bool, read_landing: ReadLanding) -> MergedFeeds:
    """The feeds that the section of a stream declares; mistakes are noted."""
    declared = section.section("feeds")
    end, occurrence = section.text("end"), section.text("occurrence")
    policy = _read_policy(section.section("merge"))
    if declared is None or not declared.names():
        _note_missing_feeds(section, declared is not None)
        return NO_FEEDS
    feeds: list[Feed] = []
    before = len(section.problems)
    folded: dict[str, str] = {}
    for name in declared.names():
        if (other := folded.setdefault(name.lower(), name)) != name:
            what = f"feeds {other!r} and {name!r} differ only in upper and lower case"
            declared.mistake(name, UsageError(what, how="name one of them otherwise"))
        below = declared.section(name)
        if below is not None and (feed := _read_feed(name, below, declared.where(name), timed, read_landing)):
            feeds.append(feed)
    if len(section.problems) > before:
        # What depends on their number would only repeat the mistakes of the feeds that are missing here.
        return NO_FEEDS
    return _checked_feeds(section, tuple(feeds), policy, end, occurrence)


def _note_missing_feeds(section: YamlSection, empty: bool) -> None:
    if empty:
        section.mistake("feeds", UsageError("feeds names no feed", how=f"write {_FEED_EXAMPLE}, or leave feeds out"))
        return
    for name in FEED_KEYS[1:]:
        if section.has(name):
            how = f"write {_FEED_EXAMPLE}, or leave {name} out"
            section.mistake(name, UsageError(f"{name} is declared without feeds", how=how))


def _checked_feeds(
    section: YamlSection, feeds: tuple[Feed, ...], policy: MergePolicy, end: str | None, occurrence: str | None
) -> MergedFeeds:
    try:
        return MergedFeeds(feeds, policy, end, occurrence)
    except UsageError as error:
        place = "merge" if policy.quorum > len(feeds) else "feeds"
        section.mistake(place, error)
        return NO_FEEDS


def _read_feed(
    name: str, section: YamlSection, place: YamlPlace, timed: bool, read_landing: ReadLanding
) -> Feed | None:
    before = len(section.problems)
    query = section.text("query")
    below = section.section("landing", "path")
    landing = None if below is None else read_landing(below)
    if query is not None and landing is not None:
        how = "keep query if a query makes the feed, else landing"
        section.mistake("landing", UsageError(f"feed {name} has a landing folder and a query", how=how))
    order = section.choice("order", FeedOrder) or FeedOrder.NONE
    ties = section.choice("ties", TieRule)
    if ties is TieRule.FIXED and order is FeedOrder.NONE:
        why = "in a feed that is not ordered, rows of one time may come far apart"
        error = UsageError(f"feed {name} has fixed ties and no order", why=why, how="add order: ordered")
        section.mistake("ties", error)
    adjusts, complete = section.read("adjusts", parse_yes), section.read("complete", parse_yes)
    properties = FeedProperties(
        order=order,
        ties_fixed=ties is TieRule.FIXED,
        adjusts=True if adjusts is None else adjusts,
        complete=bool(complete),
    )
    stable = section.choice("stable", StableRule) or StableRule.ROWS
    joins_at = section.read("from", lambda text: parse_joining(text, timed))
    feedback = section.read("feedback", parse_yes)
    section.finish()
    if len(section.problems) > before:
        return None
    try:
        return Feed(name, landing, query, properties, stable, LOWEST if joins_at is None else joins_at, bool(feedback))
    except UsageError as error:
        section.problems.add(place, error)
        return None


def parse_yes(text: str) -> bool:
    """Whether a text says yes."""
    words = {"yes": True, "true": True, "no": False, "false": False}
    if text.lower() not in words:
        raise UsageError(f"{text!r} is neither yes nor no", how="write yes or no")
    return words[text.lower()]


def parse_joining(text: str, timed: bool) -> int:
    """The time from which on a feed has everything: an instant, or a whole number of a bigint order field."""
    if timed:
        return parse_instant(text)
    digits = text.removeprefix("-").replace("_", "")
    if not (digits.isascii() and digits.isdecimal()):
        raise UsageError(
            f"{text!r} is not a whole number", why="the stream is ordered by a bigint", how="write one, such as 1000"
        )
    return -parse_digits(digits) if text.startswith("-") else parse_digits(digits)


def _read_policy(section: YamlSection | None) -> MergePolicy:
    if section is None:
        return MergePolicy()
    emit, fraction = section.read("emit", parse_emit) or (EmitPolicy.FIRST, MergePolicy().fraction)
    disagreement, version = section.read("disagreement", parse_disagreement) or (DisagreementPolicy.LEADER, None)
    quorum = section.read("quorum", parse_whole_number)
    section.finish()
    return MergePolicy(emit, fraction, disagreement, version, quorum or 1)


def parse_emit(text: str) -> tuple[EmitPolicy, float]:
    """When rows are published: one word, or `fraction` and a share."""
    word, _, share = text.partition(" ")
    known = [each.value for each in EmitPolicy]
    if word not in known:
        how = candidates_text(word, [*known[:-1], "fraction 0.5"])
        raise UsageError(f"{text!r} does not say when a row is published", how=how)
    emit = EmitPolicy(word)
    if not share.strip():
        return emit, MergePolicy().fraction
    if emit is not EmitPolicy.FRACTION:
        raise UsageError(f"emit {word} stands alone, and {share.strip()!r} follows it", how=f"write emit: {word}")
    try:
        return emit, parse_rate(share.strip())
    except UsageError:
        what, how = f"{share.strip()!r} is no share of the feeds", "write emit: fraction 0.5, or fraction 50%"
        raise UsageError(what, why="it is more than nothing, and all of them at most", how=how) from None


def parse_disagreement(text: str) -> tuple[DisagreementPolicy, str | None]:
    """Which value counts: one word, or `latest` and the column of the version."""
    word, _, column = text.partition(" ")
    known = [each.value for each in DisagreementPolicy]
    if word not in known:
        how = candidates_text(word, [*known[:-1], "latest COLUMN"])
        raise UsageError(f"{text!r} does not say which value counts", how=how)
    policy = DisagreementPolicy(word)
    if policy is DisagreementPolicy.LATEST and not column.strip():
        why = "the latest is the value with the greatest version"
        raise UsageError("disagreement latest names no column", why=why, how="write disagreement: latest COLUMN")
    if policy is not DisagreementPolicy.LATEST and column.strip():
        how = f"write disagreement: {word}"
        raise UsageError(f"disagreement {word} stands alone, and {column.strip()!r} follows it", how=how)
    return policy, column.strip() or None


def check_feed_queries(section: YamlSection | None, streams: Mapping[str, Stream], queries: Collection[str]) -> None:
    """Note the feeds whose queries are not declared; `section` is that of the streams."""
    for stream in streams.values():
        within = section
        for key in (stream.name, "feeds"):
            within = None if within is None else within.section(key)
        if within is None:
            continue
        for feed in stream.merged.feeds:
            below = within.section(feed.name) if feed.query is not None and feed.query not in queries else None
            if below is not None and feed.query is not None:
                below.mistake("query", unknown_name_error("query", feed.query, queries))
