"""The bucket index: which buckets can hold rows of an interval at a commit, found without reading the others.

Intervals have no total order, so an index on their ends reads half of its entries on average. Buckets are therefore
classed by the bit length of their span: a bucket of class k spans less than 2^k, and can meet [start, end) only if its
vs_min is in (start - 2^k, end). That is one range of the index for each class, 65 at most, on any database.
`catalog.bucket_writes` changes the index.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    and_,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    or_,
    select,
)

from errata.catalog.database import Catalog
from errata.catalog.tables import batches, bucket_data, buckets, streams
from errata.model.bucket import Bounds, Bucket, Groups, Layout, Resolution, Role, prune_buckets
from errata.model.time import EVERYTHING, LOWEST, Interval, hull

SPAN_CLASSES = 65
"""Bit lengths of a span of 64-bit integers, from 0 to 64."""

_CLASSES_PARAMETER = "classes_"


def _lowest_parameter(number: int) -> str:
    return f"lowest_{number}"


def _bigint_parameter(name: str) -> Any:
    # PostgreSQL would read -2^63 as a numeric, and then not use the index.
    return cast(bindparam(name, type_=BigInteger), BigInteger)


def _select_visible(is_wanted: ColumnElement[bool] | None = None) -> Select[Any]:
    """All buckets of a stream at a commit, of one role or with another condition."""
    columns = buckets.c
    return (
        select(buckets, batches.c.batch_id)
        .join(batches, batches.c.batch_no == columns.batch_no, isouter=True)
        .where(columns.stream_id == bindparam("stream"))
        .where(columns.role == bindparam("role_") if is_wanted is None else is_wanted)
        .where(columns.added_in <= bindparam("commit_"))
        .where(or_(columns.removed_in.is_(None), columns.removed_in > bindparam("commit_")))
    )


def _overlapping_by_ranges() -> Select[Any]:
    """Buckets that meet an interval, for PostgreSQL: a bitmap of one index range for each class."""
    columns = buckets.c
    ranges = [
        and_(
            columns.span_class == literal_column(str(number)),
            columns.vs_min >= _bigint_parameter(_lowest_parameter(number)),
            columns.vs_min < _bigint_parameter("end"),
        )
        for number in range(SPAN_CLASSES)
    ]
    return _select_visible().where(or_(*ranges), columns.vs_max >= _bigint_parameter("start"))


def _overlapping_by_join() -> Select[Any]:
    """The same for SQLite: a loop over the classes with a look-up in the index for each."""
    columns = buckets.c
    # One JSON text instead of a parameter for each class: SQLAlchemy cannot cache a statement with VALUES.
    told = func.json_each(bindparam(_CLASSES_PARAMETER)).table_valued(
        column("key", Integer), column("value", BigInteger), name="told"
    )
    # The limit keeps this a subquery of its own, or SQLite loops over all buckets, and over the classes for each.
    classes = select(told.c.key, told.c.value).limit(SPAN_CLASSES).cte("classes")
    return (
        _select_visible()
        .join(classes, and_(columns.span_class == classes.c.key, columns.vs_min >= classes.c.value))
        .where(columns.vs_min < _bigint_parameter("end"), columns.vs_max >= _bigint_parameter("start"))
    )


# Built once: each consists of hundreds of elements.
_SELECT_VISIBLE = _select_visible()
_SELECT_OVERLAPPING = {"postgresql": _overlapping_by_ranges(), "sqlite": _overlapping_by_join()}
_SELECT_ROLES = _select_visible(buckets.c.role.in_(bindparam("roles", expanding=True)))
_SELECT_WITHIN = {
    last.name: _SELECT_ROLES.where(
        buckets.c.vs_min < _bigint_parameter("end"), last >= _bigint_parameter("start")
    ).limit(bindparam("most"))
    for last in (buckets.c.vs_max, buckets.c.ve_max)
}
_SELECT_VALID = _select_visible().where(
    buckets.c.ve_max > _bigint_parameter("start"), buckets.c.vs_min < _bigint_parameter("end")
)
_SELECT_DATA = select(bucket_data).where(bucket_data.c.bucket_id.in_(bindparam("ids", expanding=True)))


def visible_buckets(
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
    dialect = catalog.engine.dialect.name
    query = _SELECT_VISIBLE if interval == EVERYTHING else _SELECT_OVERLAPPING[dialect]
    given: dict[str, object] = {"stream": stream_id, "role_": role.value, "commit_": commit_id}
    if interval != EVERYTHING:
        lowest = [max(LOWEST, interval.start - (1 << number) + 1) for number in range(SPAN_CLASSES)]
        given |= {"start": interval.start, "end": interval.end}
        by_class = {_lowest_parameter(number): each for number, each in enumerate(lowest)}
        given |= {_CLASSES_PARAMETER: json.dumps(lowest)} if dialect == "sqlite" else by_class
    with catalog.reading() as connection:
        found = [_bucket_from_row(row) for row in connection.execute(query, given)]
    return prune_buckets(_in_stream_order(found), interval, groups)


MAX_JOINT_LOOKUP = 2_000
"""Buckets between the first and the last of several intervals up to which one query reads them all. With more, each
interval has a query of its own."""


def overlapping_buckets(
    catalog: Catalog, stream_id: int, commit_id: int, intervals: Sequence[Interval], roles: Sequence[Role]
) -> list[Bucket]:
    """The buckets of these roles, visible at the commit, that can hold rows which begin in one of the intervals, in
    stream order. Mostly with a single query, however many intervals there are."""

    def meets(bucket: Bucket, one: Interval) -> bool:
        return one.meets(bucket.vs_min, bucket.vs_max)

    return _meeting_any((catalog, stream_id, commit_id), intervals, roles, buckets.c.vs_max, meets, visible_buckets)


def valid_result_buckets(
    catalog: Catalog, stream_id: int, commit_id: int, intervals: Sequence[Interval], roles: Sequence[Role]
) -> list[Bucket]:
    """The same for buckets of results that can hold some that are valid at an instant of one of the intervals."""

    def meets(bucket: Bucket, one: Interval) -> bool:
        return bucket.ends is not None and bucket.vs_min < one.end and bucket.ends[1] > one.start

    return _meeting_any((catalog, stream_id, commit_id), intervals, roles, buckets.c.ve_max, meets, result_buckets_at)


def _meeting_any(
    at: tuple[Catalog, int, int],
    intervals: Sequence[Interval],
    roles: Sequence[Role],
    last: Column[int],
    meets: Callable[[Bucket, Interval], bool],
    of_one: Callable[..., list[Bucket]],
) -> list[Bucket]:
    """The buckets that meet one of the intervals, chosen from all between the first and the last if those are few."""
    asked = [each for each in intervals if not each.empty]
    whole = hull(asked)
    catalog, stream_id, commit_id = at
    given = {"stream": stream_id, "roles": [each.value for each in roles], "commit_": commit_id}
    with catalog.reading() as connection:
        rows = connection.execute(
            _SELECT_WITHIN[last.name], {**given, "start": whole.start, "end": whole.end, "most": MAX_JOINT_LOOKUP + 1}
        )
        found = [_bucket_from_row(row) for row in rows]
    if len(found) > MAX_JOINT_LOOKUP:
        found = [each for interval in asked for role in roles for each in of_one(*at, interval, role=role)]
        found = list({each.bucket_id: each for each in found}.values())
    return _in_stream_order(each for each in found if any(meets(each, one) for one in asked))


def buckets_of_roles(catalog: Catalog, stream_id: int, commit_id: int, roles: Sequence[Role]) -> list[Bucket]:
    """All buckets of some roles that are visible at the commit, in stream order."""
    given = {"stream": stream_id, "roles": [each.value for each in roles], "commit_": commit_id}
    with catalog.reading() as connection:
        return _in_stream_order(_bucket_from_row(row) for row in connection.execute(_SELECT_ROLES, given))


def _in_stream_order(some: Iterable[Bucket]) -> list[Bucket]:
    return sorted(some, key=lambda bucket: (bucket.vs_min, bucket.vs_max, bucket.bucket_id))


def result_buckets_at(
    catalog: Catalog, stream_id: int, commit_id: int, instants: Interval, role: Role = Role.BASE
) -> list[Bucket]:
    """The buckets of results, visible at the commit, that can hold some valid at an instant of the interval."""
    if instants.empty:
        return []
    given = {"stream": stream_id, "role_": role.value, "commit_": commit_id}
    with catalog.reading() as connection:
        rows = connection.execute(_SELECT_VALID, {**given, "start": instants.start, "end": instants.end})
        found = [_bucket_from_row(row) for row in rows]
    return _in_stream_order(found)


def all_overlays(catalog: Catalog, stream_id: int, interval: Interval = EVERYTHING, since: int = 0) -> list[Bucket]:
    """All overlays that can concern rows of the interval and were added after a commit, by their first revision: also
    folded ones, which stay as long as the rows that they corrected."""
    query = (
        select(buckets, batches.c.batch_id)
        .join(batches, batches.c.batch_no == buckets.c.batch_no, isouter=True)
        .where(buckets.c.stream_id == stream_id, buckets.c.role == Role.OVERLAY.value, buckets.c.added_in > since)
        .where(buckets.c.vs_min < interval.end, buckets.c.vs_max >= interval.start)
        .order_by(buckets.c.revision_first, buckets.c.bucket_id)
    )
    with catalog.reading() as connection:
        return [_bucket_from_row(row) for row in connection.execute(query)]


def added_between(catalog: Catalog, stream_id: int, roles: Iterable[Role], *, after: int, up_to: int) -> list[Bucket]:
    """The buckets of some roles that were added after one commit, up to another, in that order: also those that have
    been removed since, until vacuum deletes them."""
    query = (
        select(buckets, batches.c.batch_id)
        .join(batches, batches.c.batch_no == buckets.c.batch_no, isouter=True)
        .where(buckets.c.stream_id == stream_id, buckets.c.role.in_([each.value for each in roles]))
        .where(buckets.c.added_in > after, buckets.c.added_in <= up_to)
        .order_by(buckets.c.added_in, buckets.c.bucket_id)
    )
    with catalog.reading() as connection:
        return [_bucket_from_row(row) for row in connection.execute(query)]


def all_buckets(connection: Connection, stream_id: int) -> list[Bucket]:
    """All buckets of a stream in the index, live or not, as the transaction sees them."""
    query = (
        select(buckets, batches.c.batch_id)
        .join(batches, batches.c.batch_no == buckets.c.batch_no, isouter=True)
        .where(buckets.c.stream_id == stream_id)
        .order_by(buckets.c.bucket_id)
    )
    return [_bucket_from_row(row) for row in connection.execute(query)]


def live_buckets(connection: Connection, stream_id: int, *roles: Role, before: int | None = None) -> list[Bucket]:
    """The live buckets of some roles, as the transaction sees them; with `before` only those that begin before it."""
    query = (
        select(buckets, batches.c.batch_id)
        .join(batches, batches.c.batch_no == buckets.c.batch_no, isouter=True)
        .where(buckets.c.stream_id == stream_id, buckets.c.role.in_([each.value for each in roles]))
        .where(buckets.c.removed_in.is_(None))
        .order_by(buckets.c.bucket_id)
    )
    if before is not None:
        query = query.where(buckets.c.vs_min < before)
    return [_bucket_from_row(row) for row in connection.execute(query)]


def inline_data(catalog: Catalog, bucket_ids: Iterable[int]) -> dict[int, bytes]:
    """The rows of inline buckets, as Arrow streams."""
    wanted = list(bucket_ids)
    found: dict[int, bytes] = {}
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            rows = connection.execute(_SELECT_DATA, {"ids": wanted[start : start + 500]})
            found.update({row.bucket_id: bytes(row.data) for row in rows})
    return found


def is_added_since(connection: Connection, stream_id: int, since: int, low: int, high: int) -> bool:
    """Whether buckets or overlays added after a commit can have rows from low to high, both included."""
    query = select(func.count()).where(
        buckets.c.stream_id == stream_id,
        buckets.c.role.in_([Role.BASE.value, Role.OVERLAY.value]),
        buckets.c.added_in > since,
        buckets.c.vs_min <= high,
        buckets.c.vs_max >= low,
    )
    return bool(connection.execute(query).scalar_one())


def is_removed_since(connection: Connection, stream_id: int, since: int, low: int) -> bool:
    """Whether base buckets that can hold rows from low on have been removed after a commit."""
    query = select(func.count()).where(
        buckets.c.stream_id == stream_id,
        buckets.c.role == Role.BASE.value,
        buckets.c.removed_in > since,
        buckets.c.vs_max >= low,
    )
    # The span of buckets that vacuum has deleted since is not known any more.
    vacuumed = select(streams.c.vacuumed > since).where(streams.c.stream_id == stream_id)
    return bool(connection.execute(query).scalar_one() or connection.execute(vacuumed).scalar())


def _bucket_from_row(row: Row[Any]) -> Bucket:
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
        row.revision_last,
        row.batch_no,
        Layout(row.layout),
        _bounds(row.mask_min, row.mask_max),
        _bounds(row.content_min, row.content_max),
        row.floor,
        row.folded,
        row.masked,
        _bounds(row.ve_min, row.ve_max),
        Resolution(row.sampling_rate, Interval(row.hash_low, row.hash_high)),
        row.original,
    )


def _bounds(low: int | None, high: int | None) -> Bounds | None:
    return None if low is None or high is None else (low, high)
