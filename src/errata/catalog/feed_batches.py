"""Which feeds delivered what commits have taken in: the files of a batch say by which feed they came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import func, select

from errata.catalog.database import Catalog
from errata.catalog.tables import batch_files, batches


@dataclass(frozen=True, slots=True)
class FeedDelivery:
    """What one feed delivered for one commit."""

    commit_id: int
    feed: str
    files: int
    bytes: int


def deliveries_of(catalog: Catalog, commit_ids: Iterable[int]) -> list[FeedDelivery]:
    """What feeds delivered for these commits, by commit and feed; none for streams without feeds."""
    wanted = sorted(set(commit_ids))
    if not wanted:
        return []
    query = (
        select(batches.c.commit_id, batch_files.c.feed, func.count(), func.sum(batch_files.c.bytes))
        .join(batch_files, batch_files.c.batch_no == batches.c.batch_no)
        .where(batches.c.commit_id.in_(wanted), batch_files.c.feed.is_not(None))
        .group_by(batches.c.commit_id, batch_files.c.feed)
        .order_by(batches.c.commit_id, batch_files.c.feed)
    )
    with catalog.reading() as connection:
        return [FeedDelivery(commit, feed, files, int(size)) for commit, feed, files, size in connection.execute(query)]


def batches_since(catalog: Catalog, stream_id: int, commit_id: int) -> int:
    """How many batches a stream has taken in after a commit."""
    query = select(func.count()).where(batches.c.stream_id == stream_id, batches.c.commit_id > commit_id)
    with catalog.reading() as connection:
        return int(connection.execute(query).scalar_one())
