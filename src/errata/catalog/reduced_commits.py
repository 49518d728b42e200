"""The transaction by which copies and summaries of buckets that are there already become visible, or leave.

They are facts of their originals, so all that has to hold at commit is that these are still visible: if a compaction or
an ageing has removed one in the meantime, nothing is committed, and the work is planned anew. Readers of older commits
go on without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.database import Catalog
from errata.catalog.transaction import Transaction, lock_basis
from errata.model.bucket import Bucket, NewBucket
from errata.model.commit import Cause


def commit_reduced(
    catalog: Catalog,
    stream_id: int,
    added: Sequence[tuple[NewBucket, int]],
    removed: Sequence[Bucket],
    cause: Cause,
    summary: Mapping[str, object],
) -> int:
    """Make copies and summaries visible, each with the id of its original, and others invisible; the commit. A
    `BasisConflict` if an original, or one that is removed, is no longer visible."""
    with catalog.writing() as connection:
        now = lock_basis(connection, stream_id)
        addition = BucketAddition([each for each, _ in added], originals=[original for _, original in added])
        return Transaction(
            cause=cause,
            summary=summary,
            archive=now,
            removes=removed,
            adds=[addition] if added else [],
            state={},
        ).commit(connection, catalog.clock.now())
