"""Whether results of a query have to be delivered to a merged stream that they feed: an evaluation has been committed
since the last delivery. Told from the catalog; how it is done is in `answer.feed_deliveries`.

Where the last delivery ended is told by the id of its batch, `FEED/QUERY:FROM-TO`, the newest of its kind in the
ledger. An undone batch counts: what a person has undone does not come again by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from errata.catalog.result_archives import ResultArchive
from errata.catalog.streams import StreamState
from errata.declare.query_feeds import query_feeds
from errata.model.feed import Feed
from errata.model.stream import Stream

_RANGE = re.compile(r"(\d+)-(\d+)(\+\d+)?")
"""What a batch's id has behind the names; the last part is that of a take after an undo."""


@dataclass(frozen=True, slots=True)
class QueryDelivery:
    """Results that a stream has not taken in yet."""

    stream: Stream
    feed: Feed
    results: ResultArchive
    after: int
    """The commit up to which they have been delivered; 0 if nothing was."""

    @property
    def up_to(self) -> int:
        return self.results.last.commit_id

    @property
    def batch_id(self) -> str:
        return f"{delivery_prefix(self.feed)}{self.after}-{self.up_to}"

    @property
    def file(self) -> str:
        """The name of its file within the warehouse."""
        return f"{delivery_folder(self.stream, self.feed)}/{self.after}-{self.up_to}.parquet"


def delivery_prefix(feed: Feed) -> str:
    """How the ids of a feed's batches begin."""
    return f"{feed.name}/{feed.query}:"


def delivery_folder(stream: Stream, feed: Feed) -> str:
    """The folder of a feed's files within the warehouse."""
    return f"{stream.name}/delivered/{feed.name}"


def delivered_up_to(feed: Feed, batch_id: str | None) -> int:
    """The commit up to which a batch has delivered a feed's results; 0 if there is none."""
    found = None if batch_id is None else _RANGE.fullmatch(batch_id.removeprefix(delivery_prefix(feed)))
    return 0 if found is None else int(found[2])


class DeliveryStates(Protocol):
    """The look-ups that it takes."""

    @property
    def standings(self) -> Mapping[str, StreamState]: ...

    @property
    def published(self) -> Mapping[str, ResultArchive]: ...

    def delivered(self, of: StreamState, feed: Feed) -> int | None:
        """The commit up to which results have been delivered to a feed, 0 if none have; None if it is detached."""


def due_deliveries(view: DeliveryStates) -> Iterator[QueryDelivery]:
    """The deliveries that are due, in the order in which feeds are declared."""
    for stream, feed, query in query_feeds(each.stream for each in view.standings.values()):
        results = view.published.get(query)
        after = view.delivered(view.standings[stream.name], feed)
        if results is not None and after is not None and results.last.commit_id > after:
            yield QueryDelivery(stream, feed, results, after)
