"""The bucket index: which buckets can hold rows of an interval, at a commit, without looking at any other.

Intervals have no total order, so a plain index on their ends reads half of it on average. Buckets are therefore
classed by the bit length of their span: one of class k spans less than 2^k, and can meet [start, end) only when its
vs_min lies in (start - 2^k, end). That is one range of the index for each class, 65 of them at most, on any database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Integer,
    Row,
    Select,
    and_,
    bindparam,
    cast,
    column,
    func,
    insert,
    literal_column,
    or_,
    select,
    update,
    values,
)

from errata.catalog.open import Catalog
from errata.catalog.tables import batches, bucket_data, buckets
from errata.model.bucket import Bucket, Groups, NewBucket, Role, prune
from errata.model.interval import EVERYTHING, LOWEST, Interval

CLASSES = 65


def _lowest(number: int) -> str:
    return f"lowest_{number}"


def _moment(name: str) -> Any:
    # PostgreSQL would take -2^63 for a numeric, and then not use the index.
    return cast(bindparam(name, type_=BigInteger), BigInteger)


def _everywhere() -> Select[Any]:
    """All buckets of a stream at a commit."""
    columns = buckets.c
    return (
        select(buckets, batches.c.batch_id)
        .join(batches, batches.c.batch_no == columns.batch_no, isouter=True)
        .where(columns.stream_id == bindparam("stream"), columns.role == bindparam("role_"))
        .where(columns.added_in <= bindparam("commit_"))
        .where(or_(columns.removed_in.is_(None), columns.removed_in > bindparam("commit_")))
    )


def _meeting_by_ranges() -> Select[Any]:
    """Those that meet an interval, as PostgreSQL reads it best: a bitmap of one index range for each class."""
    columns = buckets.c
    ranges = [
        and_(
            columns.span_class == literal_column(str(number)),
            columns.vs_min >= _moment(_lowest(number)),
            columns.vs_min < _moment("end"),
        )
        for number in range(CLASSES)
    ]
    return _everywhere().where(or_(*ranges), columns.vs_max >= _moment("start"))


def _meeting_by_join() -> Select[Any]:
    """The same as SQLite reads it best: a loop over the classes with a look-up in the index for each."""
    columns = buckets.c
    rows = [(number, _moment(_lowest(number))) for number in range(CLASSES)]
    classes = values(column("class_", Integer), column("lowest", BigInteger), name="classes").data(rows).cte()
    return (
        _everywhere()
        .join(classes, and_(columns.span_class == classes.c.class_, columns.vs_min >= classes.c.lowest))
        .where(columns.vs_min < _moment("end"), columns.vs_max >= _moment("start"))
    )


# Built once: each is some hundred parts long.
_EVERYWHERE = _everywhere()
_MEETING = {"postgresql": _meeting_by_ranges(), "sqlite": _meeting_by_join()}


def span_class(vs_min: int, vs_max: int) -> int:
    """The bit length of the span: the span is below 2 to the power of it."""
    return (vs_max - vs_min).bit_length()


def visible(
    catalog: Catalog,
    stream_id: int,
    commit_id: int,
    interval: Interval = EVERYTHING,
    groups: frozenset[tuple[str | None, ...]] | None = None,
    role: Role = Role.BASE,
) -> list[Bucket]:
    """The buckets visible at the commit that can hold rows of the interval and the groups, in stream order."""
    if interval.empty:
        return []
    query = _EVERYWHERE if interval == EVERYTHING else _MEETING[catalog.engine.dialect.name]
    given = {"stream": stream_id, "role_": role.value, "commit_": commit_id}
    if interval != EVERYTHING:
        given |= {"start": interval.start, "end": interval.end}
        given |= {_lowest(number): max(LOWEST, interval.start - (1 << number) + 1) for number in range(CLASSES)}
    with catalog.reading() as connection:
        found = [_bucket(row) for row in connection.execute(query, given)]
    found.sort(key=lambda bucket: (bucket.vs_min, bucket.vs_max, bucket.bucket_id))
    return prune(found, interval, groups)


def live(connection: Connection, stream_id: int, before: int | None = None) -> list[Bucket]:
    """The base buckets that the transaction sees now; only those that begin before a point, if told."""
    query = (
        select(buckets, batches.c.batch_id)
        .join(batches, batches.c.batch_no == buckets.c.batch_no, isouter=True)
        .where(buckets.c.stream_id == stream_id, buckets.c.role == Role.BASE.value)
        .where(buckets.c.removed_in.is_(None))
    )
    if before is not None:
        query = query.where(buckets.c.vs_min < before)
    return [_bucket(row) for row in connection.execute(query)]


def inline_data(catalog: Catalog, bucket_ids: Iterable[int]) -> dict[int, bytes]:
    """The rows of inline buckets, as Arrow streams."""
    wanted = list(bucket_ids)
    found: dict[int, bytes] = {}
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            query = select(bucket_data).where(bucket_data.c.bucket_id.in_(wanted[start : start + 500]))
            found.update({row.bucket_id: bytes(row.data) for row in connection.execute(query)})
    return found


def overlapping_since(connection: Connection, stream_id: int, since: int, low: int, high: int) -> bool:
    """Whether base buckets added after a commit can hold rows from low to high, both included."""
    query = select(func.count()).where(
        buckets.c.stream_id == stream_id,
        buckets.c.role == Role.BASE.value,
        buckets.c.added_in > since,
        buckets.c.vs_min <= high,
        buckets.c.vs_max >= low,
    )
    return bool(connection.execute(query).scalar_one())


def removed_since(connection: Connection, stream_id: int, since: int, low: int) -> bool:
    """Whether base buckets that can hold rows from low on have been removed after a commit."""
    query = select(func.count()).where(
        buckets.c.stream_id == stream_id,
        buckets.c.role == Role.BASE.value,
        buckets.c.removed_in > since,
        buckets.c.vs_max >= low,
    )
    return bool(connection.execute(query).scalar_one())


def add(
    connection: Connection,
    stream_id: int,
    batch_no: int | None,
    commit_id: int,
    written: Sequence[NewBucket],
    revisions: int = 0,
) -> int:
    """Make buckets visible from the commit on, pending ones numbered after `revisions`; the bytes now inline."""
    inline_bytes = 0
    for bucket in written:
        pending = bucket.role is Role.PENDING
        added = connection.execute(
            insert(buckets)
            .values(
                stream_id=stream_id,
                role=bucket.role.value,
                layout="buckets",
                path=bucket.path,
                rows=bucket.rows,
                bytes=bucket.size,
                vs_min=bucket.vs_min,
                vs_max=bucket.vs_max,
                span_class=span_class(bucket.vs_min, bucket.vs_max),
                group_low=bucket.groups.low,
                group_high=bucket.groups.high,
                group_members=bucket.groups.members_json(),
                sampling_rate=1.0,
                checksum=bucket.checksum,
                batch_no=batch_no,
                revision_first=revisions + 1 if pending else None,
                added_in=commit_id,
            )
            .returning(buckets.c.bucket_id)
        ).scalar_one()
        revisions += bucket.rows if pending else 0
        if bucket.data is not None:
            connection.execute(insert(bucket_data).values(bucket_id=added, data=bucket.data))
            inline_bytes += len(bucket.data)
    return inline_bytes


def remove(connection: Connection, bucket_ids: Sequence[int], commit_id: int) -> int:
    """Make buckets invisible from the commit on; how many of them still were visible."""
    removed = 0
    for start in range(0, len(bucket_ids), 500):
        result = connection.execute(
            update(buckets)
            .where(buckets.c.bucket_id.in_(bucket_ids[start : start + 500]), buckets.c.removed_in.is_(None))
            .values(removed_in=commit_id)
        )
        removed += result.rowcount
    return removed


def _bucket(row: Row[Any]) -> Bucket:
    return Bucket(
        row.bucket_id,
        Role(row.role),
        row.path,
        row.rows,
        row.bytes,
        row.vs_min,
        row.vs_max,
        Groups.of(row.group_low, row.group_high, row.group_members),
        row.checksum,
        row.batch_id or "",
        row.added_in,
        row.removed_in,
        row.revision_first,
    )
