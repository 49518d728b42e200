"""Feeds that are the results of queries: which queries fit, what of a result is in a row, and in which order everything
is brought up to date.

    result of the query             row of the merged stream
    its visible columns             the columns of the same names
    when it begins                  the order field, unless the query has a visible column of that name
    when it ends, NULL if open      the column with the end of the lifetime, likewise

A result is known by its key and by when it begins, so that the stream's key has to be these. Where the query has a
column with the name of the order field, it must tell when the result begins: it is that time, or an equal span before
it for all results, as the beginning of a window is. Pure: plans and declarations in, decisions and errors out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from errata.errors import UsageError, unknown_name_error
from errata.language.plan import Plan
from errata.language.plan_text import has_timestamps
from errata.language.times import row_times
from errata.model.feed import Feed
from errata.model.query import Query, transitive_inputs
from errata.model.stream import Stream


def order_lag(plan: Plan, stream: Stream) -> int:
    """How much later a result begins than its row's order field says."""
    if stream.order not in {each.name for each in plan.visible}:
        return 0
    times = row_times(plan)
    lag = times.columns.get(stream.order) if times.happened else None
    if lag is None:
        raise UsageError(
            f"the results of the query have a column {stream.order} that does not tell when they begin",
            why=f"{stream.order} is the order field of stream {stream.name}",
            how=f"name the column otherwise, or leave it out: {stream.order} is then when the result begins",
        )
    return lag


def check_query_feed(stream: Stream, plan: Plan) -> None:
    """Refuse a query whose results are no rows of the stream."""
    visible = {each.name: each.type for each in plan.visible}
    if has_timestamps(plan) != stream.timed:
        raise UsageError(
            "the event time of the query is not that of the stream",
            why=f"{stream.order} is a {stream.order_type}",
            how="declare the order field with the type that the query's streams have",
        )
    order_lag(plan, stream)
    made = {stream.order, stream.merged.end, stream.merged.occurrence}
    for column in stream.columns:
        if column.name in visible:
            if visible[column.name] != column.type:
                raise UsageError(
                    f"column {column.name} of the query is a {visible[column.name]}",
                    why=f"in stream {stream.name} it is a {column.type}",
                    how=f"write CAST({column.name} AS …) in the SELECT list, or declare the column with that type",
                )
        elif column.name not in made:
            how = f"add it to the SELECT list; it has {', '.join(visible)}"
            raise UsageError(f"the query has no column {column.name}", why=f"stream {stream.name} has one", how=how)
    _check_key(stream, plan)


def _check_key(stream: Stream, plan: Plan) -> None:
    visible = {each.name for each in plan.visible}
    hidden = [name for name in plan.key if name not in visible]
    if hidden:
        raise UsageError(
            f"results of the query are told apart by {', '.join(hidden)}, which is not among its columns",
            why="a feed has to say which row it speaks of",
            how="add it to the SELECT list and to the columns and the key of the stream",
        )
    ours, theirs = {*plan.key, stream.order}, set(stream.key) - {stream.merged.occurrence}
    if ours != theirs:
        raise UsageError(
            f"the key of stream {stream.name} is not that of the query's results",
            why=f"these are told apart by {', '.join(sorted(ours))}",
            how=f"declare key: [{', '.join(sorted(ours))}]",
        )


def query_feeds(streams: Iterable[Stream]) -> Iterator[tuple[Stream, Feed, str]]:
    """The feeds that queries make, each with its stream and the name of the query."""
    for stream in streams:
        for feed in stream.merged.feeds:
            if feed.query is not None:
                yield stream, feed, feed.query


def check_query_feeds(
    streams: Mapping[str, Stream],
    queries: Mapping[str, Query],
    plans: Mapping[str, Plan],
    reads: Mapping[str, Sequence[str]],
) -> list[UsageError]:
    """All mistakes in feeds that queries make. `reads`: what each query reads directly."""
    found = []
    for stream, feed, name in query_feeds(streams.values()):
        where = f"feed {feed.name} of stream {stream.name}"
        try:
            if name not in queries:
                raise unknown_name_error("query", name, list(queries))
            _check_cycle(stream, name, streams, reads)
            check_query_feed(stream, plans[name])
            if feed.feedback:
                _check_feedback(feed, name, streams, queries, reads)
        except UsageError as error:
            found.append(UsageError(error.what, where=where, why=error.why, how=error.how))
    return found


def _check_cycle(stream: Stream, name: str, streams: Mapping[str, Stream], reads: Mapping[str, Sequence[str]]) -> None:
    if stream.name in transitive_inputs([name], with_feeds(streams.values(), reads)):
        raise UsageError(
            f"query {name} reads stream {stream.name}, which it feeds",
            why="each would wait for the other",
            how="let another query make the feed, or read what the feeds are made of",
        )


def _check_feedback(
    feed: Feed,
    name: str,
    streams: Mapping[str, Stream],
    queries: Mapping[str, Query],
    reads: Mapping[str, Sequence[str]],
) -> None:
    readers = [f"query {other}" for other, read in reads.items() if name in read]
    fed = [each for _, each, query in query_feeds(streams.values()) if query == name]
    readers += [f"feed {each.name}" for each in fed if each is not feed]
    readers += [f"its result table {queries[name].serve}"] if queries[name].serve is not None else []
    if readers:
        raise UsageError(
            f"feedback lets query {name} skip results, and {readers[0]} has them, too",
            why="only a query that is nothing but a feed may leave out what the merged stream has from others",
            how="leave feedback out, or make a query of its own for the feed",
        )


def with_feeds(streams: Iterable[Stream], reads: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """What each query reads, and each merged stream through feeds that are queries."""
    found = {name: list(some) for name, some in reads.items()}
    for stream, _, query in query_feeds(streams):
        found.setdefault(stream.name, []).append(query)
    return found


# The order in which queries and the streams that they feed are brought up to date.


@dataclass(frozen=True, slots=True)
class FeedStage:
    """What is done at once: queries are evaluated, then what they feed takes their results in."""

    queries: tuple[str, ...]
    feeds: tuple[tuple[str, str, str], ...] = ()
    """Streams with their feeds and the queries that make them."""

    def restricted_to(self, queries: Collection[str]) -> FeedStage:
        """The stage of these queries alone."""
        return FeedStage(tuple(queries), tuple(each for each in self.feeds if each[2] in queries))


def feed_stages(
    streams: Iterable[Stream], reads: Mapping[str, Sequence[str]], names: Sequence[str] = ()
) -> list[FeedStage]:
    """The stages for some queries and all that they read, also through feeds; for all, if none is named. A query comes
    in the stage after those that feed what it reads."""
    merged = list(streams)
    inputs = with_feeds(merged, reads)
    wanted = {*names, *transitive_inputs(names, inputs)} if names else set(reads)
    depth: dict[str, int] = {}

    def depth_of(name: str) -> int:
        if name not in depth:
            below = [depth_of(other) for other in inputs.get(name, ())]
            depth[name] = max(below, default=0) + (name not in reads and bool(below))
        return depth[name]

    levels: dict[int, list[str]] = {}
    for name in reads:
        if name in wanted:
            levels.setdefault(depth_of(name), []).append(name)
    fed = [(stream.name, feed.name, query) for stream, feed, query in query_feeds(merged) if query in wanted]
    return [
        FeedStage(tuple(levels[at]), tuple(each for each in fed if depth_of(each[2]) == at)) for at in sorted(levels)
    ]
