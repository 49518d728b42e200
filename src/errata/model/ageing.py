"""Ageing: which buckets a stream's retention lets go. Only whole buckets are dropped (replay-revisions-2008, 4.1)."""

from __future__ import annotations

from collections.abc import Sequence

from errata.model.bucket import Bucket, Role
from errata.model.stream import Stream


def due(buckets: Sequence[Bucket], stream: Stream, stable: int | None) -> list[Bucket]:
    """The base buckets that can be dropped whole, oldest first.

    A bucket that only partly reaches behind the retention stays until all of it does.
    """
    if stream.retention is None:
        return []
    base = sorted((bucket for bucket in buckets if bucket.role is Role.BASE), key=_age)
    if stream.retention.rows is not None:
        return _beyond_rows(base, stream.retention.rows)
    if stream.retention.span is None or stable is None:
        return []
    return [bucket for bucket in base if bucket.vs_max < stable - stream.retention.span]


def _age(bucket: Bucket) -> tuple[int, int]:
    return bucket.vs_max, bucket.bucket_id


def _beyond_rows(oldest_first: Sequence[Bucket], keep: int) -> list[Bucket]:
    """The longest run of oldest buckets without which at least `keep` rows remain."""
    remaining = sum(bucket.rows for bucket in oldest_first)
    dropped = []
    for bucket in oldest_first:
        remaining -= bucket.rows
        if remaining < keep:
            break
        dropped.append(bucket)
    return dropped
