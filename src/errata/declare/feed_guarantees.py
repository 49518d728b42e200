"""What feeds guarantee that are queries: it follows from their plans and from what their streams guarantee (logical
merge, IV-G). It is recorded with the stream when it is applied, so that the merge need not read plans.

A stream that takes no corrections is ordered and never adjusted for those who read it. One that is merged guarantees
what all its feeds do, if they need no corrections. Of other streams nothing is known: a late row changes any result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from errata.declare.query_feeds import query_feeds
from errata.language.feed_properties import derive_feed_properties
from errata.language.plan import Plan
from errata.model.feed import EmitPolicy, FeedOrder, FeedProperties, what_all_guarantee
from errata.model.stream import RevisionPolicy, Stream


def with_derived(streams: Mapping[str, Stream], plans: Mapping[str, Plan]) -> dict[str, Stream]:
    """The streams, with what their feeds' queries guarantee, as far as `plans` has the plans of these."""
    guarantees = {name: stream_guarantees(stream) for name, stream in streams.items()}
    found = dict(streams)
    for stream, feed, query in query_feeds(streams.values()):
        if query not in plans:
            continue
        derived = derive_feed_properties(plans[query], guarantees)
        # A query that skips what nobody needs lacks rows that do exist.
        derived = replace(derived, complete=derived.complete and not feed.feedback)
        known = found[stream.name].merged
        feeds = tuple(replace(each, derived=derived) if each.name == feed.name else each for each in known.feeds)
        found[stream.name] = replace(found[stream.name], merged=replace(known, feeds=feeds))
    return found


def stream_guarantees(stream: Stream) -> FeedProperties:
    """What a stream guarantees to the queries that read it."""
    if stream.merged.is_empty:
        if stream.on_revision is RevisionPolicy.IGNORE:
            return FeedProperties(FeedOrder.ORDERED, adjusts=False, complete=True)
        return FeedProperties()
    least = what_all_guarantee(feed.properties for feed in stream.merged.feeds)
    plain = stream.merged.policy.emit is EmitPolicy.FIRST and stream.merged.occurrence is None
    is_firm = least.complete and not least.adjusts and least.order is not FeedOrder.NONE and stream.key_has_order
    return least if plain and is_firm else FeedProperties()
