"""The transaction that drops aged buckets from the index."""

from __future__ import annotations

from sqlalchemy import Connection, update

from errata.catalog import buckets, commits, streams
from errata.catalog.open import Catalog
from errata.catalog.streams import Standing
from errata.catalog.tables import streams as streams_table
from errata.model import ageing
from errata.model.bucket import Bucket
from errata.model.commit import Cause
from errata.model.interval import LOWEST


def age_out(catalog: Catalog, basis: Standing, cause: Cause) -> tuple[int | None, list[Bucket]]:
    """Drop what is due now: the commit, if there was anything to do, and the buckets dropped."""
    with catalog.reading() as connection:
        if not _due(connection, basis):
            return None, []
    with catalog.writing() as connection:
        # Decided again under the lock: an append, another ageing or another declaration may have come between.
        now = streams.locked_standing(connection, basis.stream_id)
        due = [] if now is None else _due(connection, now)
        if not due:
            return None, []
        rows = sum(bucket.rows for bucket in due)
        summary = {
            "dropped_buckets": len(due),
            "dropped_rows": rows,
            "dropped_bytes": sum(bucket.size for bucket in due),
            "from": min(bucket.vs_min for bucket in due),
            "to": max(bucket.vs_max for bucket in due),
        }
        commit_id = commits.take(connection, catalog.clock.now(), cause, stream_id=basis.stream_id, summary=summary)
        buckets.remove(connection, [bucket.bucket_id for bucket in due], commit_id)
        connection.execute(
            update(streams_table)
            .where(streams_table.c.stream_id == basis.stream_id)
            .values(
                rows=streams_table.c.rows - rows,
                inline_bytes=streams_table.c.inline_bytes - sum(bucket.size for bucket in due if bucket.inline),
                changed_in=commit_id,
            )
        )
        streams.record_position(connection, basis.stream_id, commit_id)
        return commit_id, due


def _due(connection: Connection, standing: Standing) -> list[Bucket]:
    retention = standing.stream.retention
    if retention is None or standing.stable is None:
        return []
    # By span, only what ends behind the retention can be due; by rows, all of it must be counted.
    before = None if retention.span is None else max(standing.stable - retention.span, LOWEST)
    return ageing.due(buckets.live(connection, standing.stream_id, before), standing.stream, standing.stable)
