"""Corrections of a merged stream by a person: they do not go through the merge, and settle what feeds disagree about.

A correction of a key about which feeds disagree is the last word about it, until a feed says something new of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from errata.archive.schemas import unpack_table
from errata.catalog.database import Catalog
from errata.catalog.feeds import FeedChange, disagreements_of, key_digest, standing_disagreements
from errata.catalog.streams import StreamState
from errata.declare.warehouse import Warehouse
from errata.intake.encoding import plain_text
from errata.model.batch import Batch
from errata.model.bucket import NewBucket, Role


def settled_disagreements(
    catalog: Catalog, warehouse: Warehouse, stood: StreamState, batch: Batch
) -> FeedChange | None:
    """What a batch of corrections settles; None if nothing."""
    if not standing_disagreements(catalog, stood.stream_id):
        return None
    standing = {each.digest: each.key for each in disagreements_of(catalog, stood.stream_id)}
    corrected = {
        digest
        for table in _pending_tables(warehouse, batch.buckets)
        for digest in _key_digests(table, stood.stream.key)
    }
    agreed = [key for digest, key in standing.items() if digest in corrected]
    return FeedChange(agreed=agreed) if agreed else None


def _pending_tables(warehouse: Warehouse, buckets: Iterable[NewBucket]) -> Iterator[pa.Table]:
    for bucket in buckets:
        if bucket.role is Role.PENDING:
            yield unpack_table(bucket.data) if bucket.data is not None else warehouse.read_table(bucket.path or "")


def _key_digests(rows: pa.Table, key: Sequence[str]) -> Iterator[str]:
    """The digests of the keys of these rows, spelled as those of disagreements."""
    columns = [plain_text(rows[name].combine_chunks()).to_pylist() for name in key]
    return (key_digest(dict(zip(key, values, strict=True))) for values in zip(*columns, strict=True))
