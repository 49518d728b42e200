"""Changes of the bucket index: entries added, made invisible, masked and deleted, inside a transaction of the caller.

An entry is visible from the commit in `added_in` until the commit in `removed_in`; a removed one stays in the index for
readers of older commits, until vacuum deletes it. The rows of an inline bucket are in `bucket_data`, beside its entry.
Only `catalog.transaction` and vacuum change the index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from errata.catalog.tables import bucket_data, buckets, doomed
from errata.model.bucket import Bucket, NewBucket, Resolution, Role

IDS_PER_STATEMENT = 500
"""Bucket ids in one statement: SQLite's limit on parameters is 999 in old builds."""

# Built once: SQLAlchemy takes longer to build a statement than SQLite to execute it.
_INSERT_BUCKETS = insert(buckets).returning(buckets.c.bucket_id, buckets.c.path, buckets.c.checksum)
_INSERT_DATA = insert(bucket_data)


@dataclass(frozen=True, slots=True)
class BucketAddition:
    """Written buckets that become visible together."""

    buckets: Sequence[NewBucket]
    batch_no: int | None = None
    """The batch that brought all of their rows; None when they are of several."""
    masked: Sequence[int] = ()
    """For each bucket the number of its rows that are superseded from the beginning; without it, what the bucket
    says."""
    originals: Sequence[int] = ()
    """Of copies and summaries that are added later: for each the id of the bucket that it was made from."""

    @property
    def pending(self) -> int:
        """The number of pending revisions."""
        return sum(bucket.rows for bucket in self.buckets if bucket.role is Role.PENDING)


def span_class(vs_min: int, vs_max: int) -> int:
    """The bit length of the span: the span is below 2 to the power of it."""
    return (vs_max - vs_min).bit_length()


def add_buckets(
    connection: Connection,
    stream_id: int,
    commit_id: int,
    addition: BucketAddition,
    revisions: int = 0,
    applied: int = 0,
) -> int:
    """Make buckets visible from the commit on, with what was made from them, and return the bytes that are stored
    inline. Pending revisions are numbered after `revisions`. No revision up to `applied` concerns the rows of a base
    bucket without a floor."""
    added = _add_entries(connection, stream_id, commit_id, addition, revisions, applied)
    inline = _insert_inline(connection, addition.buckets, added)
    if any(bucket.reduced for bucket in addition.buckets):
        reduced = _reduced_addition(addition, added)
        entries = _add_entries(connection, stream_id, commit_id, reduced, 0, 0)
        inline += _insert_inline(connection, reduced.buckets, entries)
    return inline


def _add_entries(
    connection: Connection, stream_id: int, commit_id: int, addition: BucketAddition, revisions: int, applied: int
) -> Sequence[Row[Any]]:
    """Add entries to the index, and return their ids, paths and checksums."""
    rows = []
    for number, bucket in enumerate(addition.buckets):
        numbers = bucket.revisions
        if bucket.role is Role.PENDING:
            numbers = (revisions + 1, revisions + bucket.rows)
            revisions += bucket.rows
        rows.append(
            _index_values(bucket)
            | dict(zip(("revision_first", "revision_last"), numbers or (None, None), strict=True))
            | {
                "stream_id": stream_id,
                "batch_no": addition.batch_no,
                "floor": _floor(bucket, applied),
                "masked": addition.masked[number] if addition.masked else bucket.masked,
                "added_in": commit_id,
                "original": addition.originals[number] if addition.originals else None,
            }
        )
    return connection.execute(_INSERT_BUCKETS, rows).all() if rows else []


def _insert_inline(connection: Connection, some: Sequence[NewBucket], added: Sequence[Row[Any]]) -> int:
    """Store the rows of inline buckets beside their entries, and return their bytes."""
    # The database returns the entries in any order; those with the same checksum have the same bytes.
    data = {each.checksum: each.data for each in some if each.data is not None}
    inline = [{"bucket_id": each.bucket_id, "data": data[each.checksum]} for each in added if each.path is None]
    if inline:
        connection.execute(_INSERT_DATA, inline)
    return sum(len(each["data"]) for each in inline)


def _reduced_addition(addition: BucketAddition, added: Sequence[Row[Any]]) -> BucketAddition:
    """The copies and summaries that come with buckets, whose entries these are."""
    # Inline buckets with the same checksum have the same rows, so each may have the copies of the other.
    ids: defaultdict[str, list[int]] = defaultdict(list)
    for entry in added:
        ids[entry.path or entry.checksum].append(entry.bucket_id)
    found = [
        (reduced, original)
        for bucket in addition.buckets
        for original in (ids[bucket.path or bucket.checksum].pop(),)
        for reduced in bucket.reduced
    ]
    return BucketAddition(
        [reduced for reduced, _ in found], addition.batch_no, originals=[original for _, original in found]
    )


def _floor(bucket: NewBucket, applied: int) -> int:
    if bucket.floor is not None:
        return bucket.floor
    return applied if bucket.role is Role.BASE else 0


def _index_values(bucket: NewBucket) -> dict[str, Any]:
    """The columns that follow from the bucket alone."""
    masks, content = bucket.masks or (None, None), bucket.content or (None, None)
    ends = bucket.ends or (None, None)
    return {
        "role": bucket.role.value,
        "layout": bucket.layout.value,
        "path": bucket.path,
        "rows": bucket.rows,
        "bytes": bucket.size,
        "vs_min": bucket.vs_min,
        "vs_max": bucket.vs_max,
        "ve_min": ends[0],
        "ve_max": ends[1],
        "span_class": span_class(bucket.vs_min, bucket.vs_max),
        "group_low": bucket.groups.low,
        "group_high": bucket.groups.high,
        "group_members": bucket.groups.members_json(),
        **resolution_columns(bucket.resolution),
        "checksum": bucket.checksum,
        "mask_min": masks[0],
        "mask_max": masks[1],
        "content_min": content[0],
        "content_max": content[1],
        "folded": bucket.folded,
    }


def resolution_columns(resolution: Resolution) -> dict[str, Any]:
    """The columns of a resolution."""
    hashes = resolution.hashes
    return {"sampling_rate": resolution.rate, "hash_low": hashes.start, "hash_high": hashes.end}


def remove_buckets(connection: Connection, bucket_ids: Sequence[int], commit_id: int) -> int:
    """Make buckets invisible from the commit on, and return how many of them were visible until then."""
    removed = 0
    for start in range(0, len(bucket_ids), IDS_PER_STATEMENT):
        result = connection.execute(
            update(buckets)
            .where(
                buckets.c.bucket_id.in_(bucket_ids[start : start + IDS_PER_STATEMENT]), buckets.c.removed_in.is_(None)
            )
            .values(removed_in=commit_id)
        )
        removed += result.rowcount
    return removed


def remove_reduced(connection: Connection, bucket_ids: Sequence[int], commit_id: int) -> int:
    """Make what was made from some buckets invisible with them, and return the bytes of it that are stored inline."""
    inline = 0
    for start in range(0, len(bucket_ids), IDS_PER_STATEMENT):
        gone = connection.execute(
            update(buckets)
            .where(
                buckets.c.original.in_(bucket_ids[start : start + IDS_PER_STATEMENT]), buckets.c.removed_in.is_(None)
            )
            .values(removed_in=commit_id)
            .returning(buckets.c.path, buckets.c.bytes)
        )
        inline += sum(each.bytes for each in gone if each.path is None)
    return inline


def are_visible(connection: Connection, bucket_ids: Collection[int]) -> bool:
    """Whether all of some buckets are visible now."""
    wanted = sorted(bucket_ids)
    found = 0
    for start in range(0, len(wanted), IDS_PER_STATEMENT):
        some = buckets.c.bucket_id.in_(wanted[start : start + IDS_PER_STATEMENT])
        found += connection.execute(select(func.count()).where(some, buckets.c.removed_in.is_(None))).scalar_one()
    return found == len(wanted)


def count_masked(connection: Connection, masked: Mapping[int, int]) -> None:
    """Add to the numbers of superseded rows, by bucket."""
    for bucket_id, count in masked.items():
        connection.execute(
            update(buckets).where(buckets.c.bucket_id == bucket_id).values(masked=buckets.c.masked + count)
        )


def delete_buckets(connection: Connection, some: Iterable[Bucket]) -> None:
    """Delete entries for good, for buckets that no reader of an older commit needs. Vacuum removes their files."""
    gone = list(some)
    for start in range(0, len(gone), IDS_PER_STATEMENT):
        wanted = [each.bucket_id for each in gone[start : start + IDS_PER_STATEMENT]]
        connection.execute(delete(bucket_data).where(bucket_data.c.bucket_id.in_(wanted)))
        connection.execute(delete(buckets).where(buckets.c.bucket_id.in_(wanted)))
    files = [{"path": each.path, "bytes": each.size} for each in gone if each.path is not None]
    if files:
        connection.execute(insert(doomed), files)
