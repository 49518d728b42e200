"""Match segments in the catalog: which rows of a bucket satisfy a range of conjunctions.

A segment is a cache of facts that never change, so one that is lost costs work and nothing else, and writers need no
lease: each checks, in its transaction, that the bucket is still there and is covered as far as when it began. A segment
covers every conjunction of its stream from the first number to the last, also those of queries that have been
unregistered, since an equal query that comes later has the same conjunction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, and_, delete, func, insert, select

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


def forget_from(connection: Connection, stream_id: int, conjunction: int) -> None:
    """Delete the segments of a stream that cover a conjunction or later ones, so that these are matched again. The
    caller has locked the head."""
    table = match_segments.c
    own = select(buckets.c.bucket_id).where(buckets.c.stream_id == stream_id)
    query = select(match_segments).where(table.last_conjunction >= conjunction, table.bucket_id.in_(own))
    rows = connection.execute(query).all()
    _delete_segments(connection, [MatchSegment((row.bucket_id, row.added_in), *row[2:]) for row in rows])


def forget_matches(catalog: Catalog) -> int:
    """Delete the segments of buckets that are gone, conjunctions that no query in force has, and segments of nothing
    but these; their files become doomed. The number of segments."""
    with catalog.writing() as connection:
        # Registering locks the head, too: a query cannot take up a conjunction that is being forgotten.
        connection.execute(select(head.c.commit_id).with_for_update())
        dead = _dead_conjunctions(connection)
        gone = _useless_segments(connection, dead)
        for some in _chunks(dead):
            connection.execute(delete(conjunctions).where(conjunctions.c.conjunction_id.in_(some)))
        _delete_segments(connection, gone)
        return len(gone)


def forgettable_matches(catalog: Catalog) -> int:
    """The number of segments that `forget_matches` would delete."""
    with catalog.reading() as connection:
        return len(_useless_segments(connection, _dead_conjunctions(connection)))


def _dead_conjunctions(connection: Connection) -> list[int]:
    listed = select(registered_queries.c.conjunctions).where(registered_queries.c.removed_in.is_(None))
    used = {number for row in connection.execute(listed) for number in row[0]}
    query = select(conjunctions.c.conjunction_id).order_by(conjunctions.c.conjunction_id)
    known = list(connection.execute(query).scalars())
    # The last number stays, or it would be given again.
    return [number for number in known[:-1] if number not in used]


def _useless_segments(connection: Connection, dead: Sequence[int]) -> list[MatchSegment]:
    table = match_segments.c
    gone, query = set(dead), select(conjunctions.c.stream_id, conjunctions.c.conjunction_id)
    living: dict[int, list[int]] = {}
    for row in connection.execute(query.order_by(conjunctions.c.conjunction_id)):
        if row.conjunction_id not in gone:
            living.setdefault(row.stream_id, []).append(row.conjunction_id)
    asked = [column for column in match_segments.c if column is not table.data]
    beside = and_(buckets.c.bucket_id == table.bucket_id, buckets.c.added_in == table.added_in)
    found = select(*asked, buckets.c.stream_id).join(buckets, beside, isouter=True)
    return [
        MatchSegment(
            (row.bucket_id, row.added_in),
            row.first_conjunction,
            row.last_conjunction,
            row.path,
            None,
            row.rows,
            row.bytes,
            row.micros,
        )
        for row in connection.execute(found)
        if not _has_between(living.get(row.stream_id, ()), row.first_conjunction, row.last_conjunction)
    ]


def _has_between(ordered: Sequence[int], low: int, high: int) -> bool:
    place = bisect_left(ordered, low)
    return place < len(ordered) and ordered[place] <= high


def named_paths(connection: Connection, paths: Sequence[str]) -> set[str]:
    """Those of these paths that are files of segments."""
    query = select(match_segments.c.path).where(match_segments.c.path.in_(paths))
    return {path for path in connection.execute(query).scalars() if path is not None}


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), KEYS_PER_STATEMENT):
        yield values[start : start + KEYS_PER_STATEMENT]
