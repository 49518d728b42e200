"""What vacuum takes from the catalog: index rows that nobody needs, and the list of files that are to go with them.

The order is index rows and list in one transaction, then the files, then their entries in the list. Killed anywhere in
between, the list says what is still to be done, and no index row ever names a file that may have gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, delete, func, insert, select, union, update

from errata.catalog import commits, pins, streams
from errata.catalog.open import Catalog
from errata.catalog.tables import bucket_data, buckets, declarations, doomed
from errata.catalog.tables import commits as commits_table
from errata.catalog.tables import streams as streams_table
from errata.model.bucket import Role
from errata.model.commit import Cause
from errata.model.horizon import forgotten, oldest_kept, spent
from errata.model.interval import LOWEST

CHUNK = 500
"""So many values go into one statement."""

T = TypeVar("T")

TRIES = 8
"""So often pins on ever older commits may come while index rows are being removed."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A stream that is or was; or an archive of a query's results."""

    stream_id: int
    name: str
    of_query: bool = False


@dataclass(frozen=True, slots=True)
class Spent:
    """A bucket that nobody needs any more."""

    bucket_id: int
    role: Role
    path: str | None
    """None: it lives in the catalog, and goes with its index row."""
    size: int
    removed_in: int


class _PinnedMeanwhile(Exception):
    """A reader has pinned what was about to go."""


def recorded(catalog: Catalog, names: Sequence[str] = ()) -> list[Recorded]:
    """All streams of these names, or all there are; also those that have been dropped."""
    query = select(streams_table).order_by(streams_table.c.stream_id)
    if names:
        query = query.where(streams_table.c.name.in_(names))
    with catalog.reading() as connection:
        return [Recorded(row.stream_id, row.name, row.query_id is not None) for row in connection.execute(query)]


def oldest_readable(connection: Connection, now: int, horizon: int) -> int:
    """The first commit that is still readable: the last one up to the horizon's edge was the newest beyond it.

    Commits' times never go back, so two look-ups in the index on them say what `model.horizon.readable` says of each.
    """
    at = commits_table.c.at
    edge = select(func.max(at)).where(at <= max(now - horizon, LOWEST)).scalar_subquery()
    last = connection.execute(select(func.max(commits_table.c.commit_id)).where(at == edge)).scalar()
    return 1 if last is None else int(last)


def spent_now(catalog: Catalog, stream_id: int) -> list[Spent]:
    """What could be removed of a stream now."""
    with catalog.reading() as connection:
        stream = connection.execute(select(streams_table).where(streams_table.c.stream_id == stream_id)).one()
        return _spent(connection, stream, kept_whole_from(connection, stream, catalog.clock.now()))


def remove_spent(catalog: Catalog, stream_id: int, cause: Cause) -> tuple[int | None, list[Spent]]:
    """Remove it from the index, and write down the files that are to go: the commit, if there was anything to remove.

    Nothing is removed if readers have kept pinning older commits meanwhile; the next time will do.
    """
    if not spent_now(catalog, stream_id):
        return None, []
    for _ in range(TRIES):
        try:
            return _remove_spent(catalog, stream_id, cause)
        except _PinnedMeanwhile:
            continue
    return None, []


def _remove_spent(catalog: Catalog, stream_id: int, cause: Cause) -> tuple[int | None, list[Spent]]:
    with catalog.writing() as connection:
        stream = streams.lock(connection, stream_id)
        now = catalog.clock.now()
        kept_from = kept_whole_from(connection, stream, now)
        found = _spent(connection, stream, kept_from)
        if not found:
            return None, []
        _remove(connection, found)
        # No commit is the less whole for want of a state.
        if taken_from := max((each.removed_in for each in found if each.role is not Role.STATE), default=0):
            connection.execute(
                update(streams_table)
                .where(streams_table.c.stream_id == stream_id)
                .values(vacuumed=max(taken_from, stream.vacuumed or 0))
            )
        # Pins come last, so that none waits for long: see `pins.oldest_held` for why this look is the one that counts.
        pinned = pins.oldest_held(connection, now)
        if pinned is not None and pinned < kept_from:
            raise _PinnedMeanwhile
        return commits.take(connection, now, cause, stream_id=stream_id, summary=_summary(found)), found


def kept_whole_from(connection: Connection, stream: Row[Any], now: int) -> int:
    """From which commit on the stream stays whole, by the horizon declared now, or last."""
    horizon = declared_horizon(connection, stream.stream_id) if stream.query_id is None else longest_horizon(connection)
    return oldest_kept(oldest_readable(connection, now, horizon), pins.oldest_living(connection, now))


def declared_horizon(connection: Connection, stream_id: int) -> int:
    """The horizon that is declared for a stream now, or was last."""
    declared = select(declarations.c.declaration).where(declarations.c.stream_id == stream_id)
    record = connection.execute(declared.order_by(declarations.c.added_in.desc()).limit(1)).scalar_one()
    return int(record["horizon"])


def longest_horizon(connection: Connection) -> int:
    """The longest horizon of all streams. The results of queries have it, being read together with their streams."""
    declared = select(streams_table.c.stream_id).where(streams_table.c.query_id.is_(None))
    return max((declared_horizon(connection, each) for each in connection.execute(declared).scalars().all()), default=0)


def _spent(connection: Connection, stream: Row[Any], kept_from: int) -> list[Spent]:
    """Overlays that have been worked into buckets stay as long as the rows that they corrected: they are what
    the history of a row is told from."""
    asked = (buckets.c[name] for name in ("bucket_id", "role", "path", "bytes", "vs_max", "removed_in"))
    # What a query has kept for its next evaluation nobody reads once its archive has ended.
    over = buckets.c.role == Role.STATE.value
    query = select(*asked).where(buckets.c.stream_id == stream.stream_id, over | (buckets.c.removed_in <= kept_from))
    dropped = stream.removed_in is not None
    return [
        Spent(row.bucket_id, Role(row.role), row.path, row.bytes, row.removed_in)
        for row in connection.execute(query.order_by(buckets.c.bucket_id))
        if row.removed_in is not None
        and (row.role == Role.STATE.value or spent(row.removed_in, kept_from))
        and (row.role != Role.OVERLAY.value or forgotten(row.vs_max, stream.aged_to, dropped))
    ]


def _remove(connection: Connection, found: Sequence[Spent]) -> None:
    for some in _chunks(found):
        ids = [each.bucket_id for each in some]
        connection.execute(delete(bucket_data).where(bucket_data.c.bucket_id.in_(ids)))
        connection.execute(delete(buckets).where(buckets.c.bucket_id.in_(ids)))
    sizes = {each.path: each.size for each in found if each.path is not None}
    for paths in _chunks(list(sizes)):
        # A file goes with the last index row that names it.
        named = set(connection.execute(select(buckets.c.path).where(buckets.c.path.in_(paths))).scalars())
        if going := [{"path": path, "bytes": sizes[path]} for path in paths if path not in named]:
            connection.execute(insert(doomed), going)


def _summary(found: Sequence[Spent]) -> dict[str, object]:
    roles = sorted({each.role.value for each in found})
    return {
        "removed_buckets": len(found),
        "removed_files": sum(each.path is not None for each in found),
        "removed_bytes": sum(each.size for each in found),
        "removed": {role: sum(each.role.value == role for each in found) for role in roles},
    }


def doomed_after(catalog: Catalog, path: str = "", limit: int = CHUNK) -> list[tuple[str, int]]:
    """Files that are still to be removed, and their bytes, in the order of their paths; those behind a path."""
    query = select(doomed.c.path, doomed.c.bytes).where(doomed.c.path > path).order_by(doomed.c.path).limit(limit)
    with catalog.reading() as connection:
        return [(row.path, row.bytes) for row in connection.execute(query)]


def settle_doomed(catalog: Catalog, paths: Sequence[str]) -> None:
    """These files are gone."""
    with catalog.writing() as connection:
        for some in _chunks(paths):
            connection.execute(delete(doomed).where(doomed.c.path.in_(some)))


def unnamed(catalog: Catalog, paths: Sequence[str]) -> list[str]:
    """Those that no index row names, live or not, and that are not on their way out already."""
    found: list[str] = []
    with catalog.reading() as connection:
        for some in _chunks(paths):
            query = union(*(select(table.c.path).where(table.c.path.in_(some)) for table in (buckets, doomed)))
            named = set(connection.execute(query).scalars())
            found += [path for path in some if path not in named]
    return found


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]
