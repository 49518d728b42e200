"""What a new declaration of a stream's feeds changes, in words, and which changes are refused.

A feed that is added is attached where the merged stream is, one that is removed is detached: neither loses a row. What
tells rows apart, and what their state is kept by, stays as it is once there are rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from errata.model.feed import DisagreementPolicy, EmitPolicy, Feed, FeedProperties, MergePolicy, StableRule
from errata.model.reduction import rate_text
from errata.model.stream import Stream
from errata.model.time import LOWEST, format_duration, format_instant


@dataclass(frozen=True, slots=True)
class FeedLoss:
    """A change of feeds that would lose or confuse rows."""

    what: str
    why: str
    how: str


def refused_feed_losses(before: Stream, after: Stream) -> Iterator[FeedLoss]:
    """The changes of feeds that a stream with rows cannot have."""
    was, now = before.merged, after.merged
    if was.is_empty:
        return
    if now.is_empty:
        yield FeedLoss(
            "none of its feeds is declared any more",
            "rows that feeds have said and that are not published yet would be lost",
            "keep one feed: a merge of one feed is that feed; and detach it if it has ended",
        )
        return
    for role, old, new in (("end", was.end, now.end), ("occurrence", was.occurrence, now.occurrence)):
        if old != new:
            back = f"declare {role}: {old} again" if old else f"leave {role} out"
            yield FeedLoss(
                f"{role} would change from {old or 'none'} to {new or 'none'}",
                "what the feeds have said so far is remembered by it, and the archive's rows are told apart by it",
                f"{back}, or declare a new stream under another name and take the files in again",
            )


def describe_feeds(stream: Stream) -> tuple[str, ...]:
    """The feeds of a new stream, in words; empty if it has none."""
    if stream.merged.is_empty:
        return ()
    lifetimes = [
        f"{role} {name}"
        for role, name in (("end", stream.merged.end), ("occurrence", stream.merged.occurrence))
        if name
    ]
    return (
        *(f"feed {feed.name}: {feed_text(feed, stream)}" for feed in stream.merged.feeds),
        ", ".join([f"merged: {policy_text(stream.merged.policy)}", *lifetimes]),
    )


def feed_changes(before: Stream, after: Stream) -> tuple[str, ...]:
    """Every difference between the feeds of two declarations, in words."""
    was, now = ({feed.name: feed for feed in stream.merged.feeds} for stream in (before, after))
    details = []
    for name, feed in now.items():
        if name not in was:
            starts = "" if feed.joins_at != LOWEST or not was else ", attached from the stable point on"
            details.append(f"feed {name} added: {feed_text(feed, after)}{starts}")
        elif feed != was[name]:
            details.append(f"feed {name}: {feed_text(was[name], before)} -> {feed_text(feed, after)}")
        if name in was and was[name].derived != feed.derived and feed.derived is not None:
            words = ", ".join(guarantee_words(feed.derived)).replace("no guarantees", "nothing")
            details.append(f"feed {name}: the plan of query {feed.query} guarantees {words}")
    details += [f"feed {name} detached; what it has said stays" for name in was if name not in now]
    if [name for name in was if name in now] != [name for name in now if name in was]:
        details.append(f"feeds ordered {', '.join(now)}")
    if was and now:
        for role, old, new in (
            ("merge", policy_text(before.merged.policy), policy_text(after.merged.policy)),
            ("end", before.merged.end or "none", after.merged.end or "none"),
            ("occurrence", before.merged.occurrence or "none", after.merged.occurrence or "none"),
        ):
            details += [f"{role} {old} -> {new}"] if old != new else []
    return tuple(details)


def same_guarantees(before: Stream, after: Stream) -> bool:
    """Whether what follows from the plans of feeds' queries is the same."""
    return [each.derived for each in before.merged.feeds] == [each.derived for each in after.merged.feeds]


def feed_text(feed: Feed, stream: Stream) -> str:
    """A feed in words: where it comes from, what it guarantees, and how its stable point is known."""
    parts = [_source_text(feed), *guarantee_words(feed.properties)]
    if feed.stable is StableRule.MARKS:
        parts.append("stable by marks")
    if feed.joins_at != LOWEST:
        parts.append(f"from {format_instant(feed.joins_at) if stream.timed else feed.joins_at}")
    return ", ".join(parts)


def _source_text(feed: Feed) -> str:
    if feed.query is not None:
        return f"query {feed.query}"
    if feed.landing is None:
        return "files that are named"
    return f"{feed.landing.path} (settle {format_duration(feed.landing.settle)}, then {feed.landing.then.value})"


def guarantee_words(properties: FeedProperties) -> list[str]:
    """What a feed guarantees; one word of warning if it is nothing."""
    words = [f"order {properties.order.value}"] if properties.order.value != "none" else []
    words += ["ties fixed"] if properties.ties_fixed else []
    words += [] if properties.adjusts else ["inserts only"]
    words += ["complete"] if properties.complete else []
    return words or ["no guarantees"]


def policy_text(policy: MergePolicy) -> str:
    """How rows of several feeds become rows of one, in words."""
    emit = policy.emit.value
    if policy.emit is EmitPolicy.FRACTION:
        emit = f"fraction {rate_text(policy.fraction)}"
    disagreement = policy.disagreement.value
    if policy.disagreement is DisagreementPolicy.LATEST:
        disagreement = f"latest {policy.version}"
    return f"emit {emit}, disagreement {disagreement}, quorum {policy.quorum}"
