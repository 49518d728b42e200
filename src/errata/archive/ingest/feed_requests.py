"""Which feed a batch is of: what may be asked of a stream with feeds, and stable points that come without a file."""

from __future__ import annotations

import json

from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.catalog import feeds, streams
from errata.catalog.feed_commits import check_attached_feed, check_feed_known
from errata.declare.site import ProgressCallback, Site
from errata.errors import UsageError
from errata.intake.feed_rows import STABLE
from errata.intake.layout import OP
from errata.model.batch import Op
from errata.model.stream import Stream
from errata.model.time import format_instant


def check_feed(site: Site, stream: Stream, request: IngestRequest) -> None:
    """Refuse a request that names no feed where one is needed, or one that cannot say anything."""
    if request.landed:
        if request.feed is not None:
            raise UsageError(
                "--landed takes what all feeds have delivered, each from its own folder",
                how="leave --feed out, or name the feed's files",
            )
        return
    if request.feed is None:
        if request.default_op is Op.REPLACE:
            return  # a person's corrections of what is archived, whatever the feeds say
        names = [each.name for each in stream.merged.feeds]
        raise UsageError(
            f"stream {stream.name} has feeds, and these files are of none",
            why="what several feeds say is merged, so that it has to be known who says it",
            how=f"name the feed with --feed, one of {', '.join(names)}; corrections by a person go in by errata revise",
        )
    check_feed_known(stream, request.feed)
    standing = streams.stream_state(site.catalog, stream.name)
    found = feeds.standing_feeds(stream, feeds.feeds_of(site.catalog, standing.stream_id))
    check_attached_feed(next(each for each in found if each.name == request.feed), stream)


def mark_stable(site: Site, name: str, feed: str, at: int, on_step: ProgressCallback = lambda _: None) -> IngestReport:
    """Say that a feed is stable up to a place (a heartbeat). It is a batch of one stable element, so that it releases
    and freezes what the same element in a file would; said twice, it changes nothing."""
    stream = site.declared(name)
    check_feed_known(stream, feed)
    moment = format_instant(at) if stream.timed else at
    path = f"{stream.name}/heartbeats/{feed}/{at}.jsonl"
    site.warehouse.check()
    site.warehouse.write(path, (json.dumps({OP: STABLE, stream.order: moment}) + "\n").encode())
    return ingest_batch(site, IngestRequest(name, [site.warehouse.path(path)], feed=feed), on_step)
