"""Match segments in the catalog: which rows of a bucket satisfy a range of conjunctions.

A segment is a cache of facts that never change, so one that is lost costs work and nothing else, and writers need no
lease: each checks, in its transaction, that the bucket is still there and is covered as far as when it began. A segment
covers every conjunction of its stream from the first number to the last, also those of queries that have been
unregistered, since an equal query that comes later has the same conjunction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, and_, delete, exists, func, insert, or_, select

from errata.catalog.database import Catalog
from errata.catalog.registered_tables import conjunctions, match_segments, registered_queries
from errata.catalog.tables import buckets, doomed, head
from errata.model.bucket import Bucket

KEYS_PER_STATEMENT = 400
"""Buckets in one statement, below the limits of the databases on parameters."""

T = TypeVar("T")

BucketKey = tuple[int, int]
"""A bucket's id and the commit that added it: SQLite gives the id of a deleted row again."""


def bucket_key(bucket: Bucket) -> BucketKey:
    return bucket.bucket_id, bucket.added_in


@dataclass(frozen=True, slots=True)
class MatchSegment:
    """A match segment as it is in the catalog."""

    bucket: BucketKey
    first: int
    last: int
    path: str | None
    data: bytes | None
    rows: int
    size: int
    micros: int


@dataclass(frozen=True, slots=True)
class NewMatchSegment:
    """A match segment that has been written and is not yet in the catalog."""

    bucket: BucketKey
    first: int
    last: int
    path: str | None
    data: bytes | None
    rows: int
    size: int
    micros: int
    covered_to: int
    """The last conjunction that the bucket's segments covered when it was planned."""
    replaces: Sequence[MatchSegment] = ()
    """Segments of the bucket that are contained in this one."""


def covered_to(catalog: Catalog, wanted: Sequence[BucketKey]) -> dict[BucketKey, tuple[int, int]]:
    """Up to which conjunction each of these buckets is covered, and by how many segments; those that are not covered at
    all are left out."""
    table = match_segments.c
    found: dict[BucketKey, tuple[int, int]] = {}
    with catalog.reading() as connection:
        for some in _chunks(wanted):
            query = select(table.bucket_id, table.added_in, func.max(table.last_conjunction), func.count())
            query = query.where(table.bucket_id.in_([bucket_id for bucket_id, _ in some]))
            rows = connection.execute(query.group_by(table.bucket_id, table.added_in))
            found.update({(row[0], row[1]): (row[2], row[3]) for row in rows})
    return {key: found[key] for key in wanted if key in found}


def find_segments(
    catalog: Catalog, wanted: Sequence[BucketKey], conjunction: int | None = None
) -> dict[BucketKey, list[MatchSegment]]:
    """The segments of these buckets in the order of their ranges: all, or those that cover a conjunction."""
    table = match_segments.c
    found: dict[BucketKey, list[MatchSegment]] = {key: [] for key in wanted}
    with catalog.reading() as connection:
        for some in _chunks(wanted):
            query = select(match_segments).where(table.bucket_id.in_([bucket_id for bucket_id, _ in some]))
            if conjunction is not None:
                query = query.where(table.first_conjunction <= conjunction, table.last_conjunction >= conjunction)
            for row in connection.execute(query.order_by(table.bucket_id, table.first_conjunction)):
                if (segments := found.get((row.bucket_id, row.added_in))) is not None:
                    segments.append(MatchSegment((row.bucket_id, row.added_in), *row[2:]))
    return found


def record_segments(catalog: Catalog, written: Sequence[NewMatchSegment]) -> list[NewMatchSegment]:
    """Record segments; those whose bucket is gone or has been covered further by another writer are not, and are
    returned: their files are of no use."""
    left: list[NewMatchSegment] = []
    with catalog.writing() as connection:
        for each in written:
            if not _is_due(connection, each):
                left.append(each)
                continue
            if each.replaces:
                _delete_segments(connection, each.replaces)
            values = {
                "bucket_id": each.bucket[0],
                "added_in": each.bucket[1],
                "first_conjunction": each.first,
                "last_conjunction": each.last,
                "path": each.path,
                "data": each.data,
                "rows": each.rows,
                "bytes": each.size,
                "micros": each.micros,
            }
            connection.execute(insert(match_segments).values(values))
    return left


def _is_due(connection: Connection, each: NewMatchSegment) -> bool:
    # Locked, so that of two writers for one bucket, and of a writer and vacuum, one is first.
    bucket_id, added_in = each.bucket
    alive = select(buckets.c.bucket_id).where(buckets.c.bucket_id == bucket_id, buckets.c.added_in == added_in)
    if connection.execute(alive.with_for_update()).first() is None:
        return False
    table = match_segments.c
    covered = select(func.max(table.last_conjunction), func.count())
    covered = covered.where(table.bucket_id == bucket_id, table.added_in == added_in)
    last, count = connection.execute(covered).one()
    return (last or 0) == each.covered_to and (not each.replaces or count == len(each.replaces))


def _delete_segments(connection: Connection, segments: Sequence[MatchSegment]) -> None:
    table = match_segments.c
    for each in segments:
        one = and_(
            table.bucket_id == each.bucket[0],
            table.added_in == each.bucket[1],
            table.first_conjunction == each.first,
        )
        connection.execute(delete(match_segments).where(one))
    if files := [{"path": each.path, "bytes": each.size} for each in segments if each.path is not None]:
        connection.execute(insert(doomed), files)


def forget_matches(catalog: Catalog) -> int:
    """Delete segments whose bucket is gone or whose conjunctions no query in force has, and such conjunctions; their
    files become doomed. The number of segments."""
    table, own = match_segments.c, conjunctions.c
    with catalog.writing() as connection:
        # Registering locks the head, too: a query cannot take up a conjunction that is being forgotten.
        connection.execute(select(head.c.commit_id).with_for_update())
        listed = select(registered_queries.c.conjunctions).where(registered_queries.c.removed_in.is_(None))
        used = {number for row in connection.execute(listed) for number in row[0]}
        known = list(connection.execute(select(own.conjunction_id).order_by(own.conjunction_id)).scalars())
        # The last number stays, or it would be given again.
        dead = [number for number in known[:-1] if number not in used]
        for some in _chunks(dead):
            connection.execute(delete(conjunctions).where(own.conjunction_id.in_(some)))
        alive = exists().where(buckets.c.bucket_id == table.bucket_id, buckets.c.added_in == table.added_in)
        needed = exists().where(
            conjunctions.c.stream_id
            == select(buckets.c.stream_id).where(buckets.c.bucket_id == table.bucket_id).scalar_subquery(),
            own.conjunction_id >= table.first_conjunction,
            own.conjunction_id <= table.last_conjunction,
        )
        gone = [
            MatchSegment((row.bucket_id, row.added_in), *row[2:])
            for row in connection.execute(select(match_segments).where(or_(~alive, ~needed)))
        ]
        _delete_segments(connection, gone)
        return len(gone)


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), KEYS_PER_STATEMENT):
        yield values[start : start + KEYS_PER_STATEMENT]
