"""Feeds that are attached, detached, trusted again and declared anew: changes of their standing, each in one commit.

They change what the next batch of the stream is merged by; no row comes or goes with them. Each can be done twice: what
is so already is not committed again. A feed that is attached has everything from a place on (logical merge, V-B): the
one that is given, or else where the merged stream is. It may then repeat what it said before, so its own stable point
begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from errata.catalog import streams
from errata.catalog.database import Catalog
from errata.catalog.feeds import THIS_COMMIT, FeedChange, FeedState, commit_feeds, feeds_within, merge_of, merge_within
from errata.catalog.streams import StreamState
from errata.catalog.transaction import give_up, optimistic
from errata.errors import RefusedError, UsageError, unknown_name_error
from errata.model.commit import Cause
from errata.model.feed import Feed
from errata.model.stream import Stream
from errata.model.time import LOWEST


class _AlreadySo(Exception):
    """Nothing is to be changed."""


def attach_feed(catalog: Catalog, name: str, feed: str, cause: Cause, starts_at: int | None = None) -> int | None:
    """Attach a feed that was detached; the commit, or None if it is attached. With `starts_at` it has everything from
    there on, which an attached feed may also say anew."""
    state = _known_feed(catalog, name, feed)
    merge = merge_of(catalog, state.stream_id)
    reached = LOWEST if merge is None else merge.stable
    joins_at = reached if starts_at is None else starts_at

    def change(found: FeedState) -> FeedState:
        if found.attached and (starts_at is None or found.joins_at == starts_at):
            raise _AlreadySo
        if found.attached:
            return replace(found, joins_at=joins_at)
        return attached_feed(found, joins_at)

    return _change_feed(catalog, state, feed, change, cause, "attached")


def detach_feed(catalog: Catalog, name: str, feed: str, cause: Cause) -> int | None:
    """Detach a feed: nothing waits for it, and it does not lead. The commit, or None if it is detached."""

    def change(found: FeedState) -> FeedState:
        if not found.attached:
            raise _AlreadySo
        return replace(found, attached=False)

    return _change_feed(catalog, _known_feed(catalog, name, feed), feed, change, cause, "detached")


def trust_feed(catalog: Catalog, name: str, feed: str, cause: Cause) -> int | None:
    """Trust a feed that is suspect; the commit, or None if it is not."""

    def change(found: FeedState) -> FeedState:
        if found.suspect_in is None and found.suspect_reason is None:
            raise _AlreadySo
        return replace(found, suspect_reason=None, suspect_in=None)

    return _change_feed(catalog, _known_feed(catalog, name, feed), feed, change, cause, "trusted")


def attached_feed(found: FeedState, joins_at: int) -> FeedState:
    """A feed that is attached, or comes back, and has everything from a place on."""
    begun = replace(found, attached=True, joins_at=joins_at, stable=LOWEST, top_order=LOWEST, top_rows=0)
    return begun if found.attached else replace(begun, attached_in=THIS_COMMIT)


def check_attached_feed(state: FeedState, stream: Stream) -> None:
    """Refuse what a feed says while it is detached."""
    if not state.attached:
        raise RefusedError(
            f"feed {state.name} is detached",
            where=f"stream {stream.name}",
            why="what it says is not merged",
            how=f"attach it first: errata feeds attach {stream.name} {state.name}",
        )


def redeclared_feeds(
    before: Stream | None, after: Stream, known: Sequence[FeedState], merged_stable: int
) -> FeedChange | None:
    """What a new declaration changes of the feeds' standing; None if nothing. `before` is the former declaration, and
    `known` what the catalog knows of its feeds. Feeds of a stream that had none before stand as they are declared."""
    old = {} if before is None else {feed.name: feed for feed in before.merged.feeds}
    there = {state.name: state for state in known}
    written = []
    for number, feed in enumerate(after.merged.feeds):
        found = there.get(feed.name) or FeedState(feed.name, number, joins_at=feed.joins_at)
        now = _redeclared_feed(old, feed, found, merged_stable)
        if now != found:
            written.append(replace(now, number=number))
    kept = {feed.name for feed in after.merged.feeds}
    removed = [name for name in old if name not in kept]
    written += [replace(there[name], attached=False) for name in removed if name in there]
    return FeedChange(written) if written else None


def _redeclared_feed(old: dict[str, Feed], feed: Feed, state: FeedState, merged_stable: int) -> FeedState:
    if feed.name not in old:
        # Also a feed that comes back after it had been taken out of the declaration.
        starts_at = feed.joins_at if feed.joins_at != LOWEST or not old else merged_stable
        return _believed(attached_feed(state, starts_at))
    was = old[feed.name]
    if feed.joins_at not in (was.joins_at, LOWEST):
        state = replace(state, joins_at=feed.joins_at)
    return state if was.properties == feed.properties else _believed(state)


def _believed(state: FeedState) -> FeedState:
    """A feed whose guarantees have been declared anew, and count again until it breaks them."""
    return replace(state, broken=()) if state.broken else state


def record_redeclared(
    connection: Connection, stream_id: int, commit_id: int, before: StreamState | None, after: Stream
) -> None:
    """Write what a new declaration changes of the feeds, within its transaction."""
    was = None if before is None else before.stream
    if after.merged.is_empty and (was is None or was.merged.is_empty):
        return
    merge = merge_within(connection, stream_id)
    reached = LOWEST if merge is None else merge.stable
    change = redeclared_feeds(was, after, feeds_within(connection, stream_id), reached)
    if change is not None:
        change.record(connection, stream_id, commit_id)


def _known_feed(catalog: Catalog, name: str, feed: str) -> StreamState:
    """The state of the stream, which has the feed."""
    state = streams.stream_state(catalog, name)
    check_feed_known(state.stream, feed)
    return state


def check_feed_known(stream: Stream, feed: str | None = None) -> None:
    """Raise an error for a feed that the stream does not have, if one is named, or for a stream without feeds."""
    if stream.merged.is_empty:
        raise UsageError(
            f"{stream.noun} {stream.name} has no feeds",
            why="only what is merged from several has feeds",
            how="leave the feed out, or declare `feeds:` below the stream and run `errata apply`",
        )
    names = [each.name for each in stream.merged.feeds]
    if feed is not None and feed not in names:
        raise unknown_name_error("feed", feed, names, f"stream {stream.name}")


def _change_feed(
    catalog: Catalog,
    state: StreamState,
    feed: str,
    change: Callable[[FeedState], FeedState],
    cause: Cause,
    done: str,
) -> int | None:
    def changed(stream: Stream, found: list[FeedState]) -> FeedChange:
        check_feed_known(stream, feed)
        return FeedChange([change(next(each for each in found if each.name == feed))])

    def attempt(_: int) -> int | None:
        try:
            return commit_feeds(catalog, state.stream_id, changed, cause, {done: [feed]})
        except _AlreadySo:
            return None

    return optimistic(attempt, give_up(f"commit of {state.stream.name} came first", "run it again"))
