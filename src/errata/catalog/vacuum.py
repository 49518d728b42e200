"""What vacuum removes from the catalog: index rows, the list of doomed files, and records of the past.

One transaction deletes index rows and lists their files as doomed; then the files are removed, and then their entries
in the list. After a kill at any point the list says what is left to do, and no index row names a file that is gone.
Evaluations, positions and expired pins behind the horizon are deleted in one transaction that holds the lock on pins
from its beginning, so that no reader can begin to need them; `model/horizon.py` says which stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, delete, func, insert, select, union, update

from errata.catalog import match_segments, pins, streams
from errata.catalog.database import Catalog
from errata.catalog.tables import bucket_data, buckets, declarations, doomed, evaluations, positions
from errata.catalog.tables import commits as commits_table
from errata.catalog.tables import pins as pins_table
from errata.catalog.tables import streams as streams_table
from errata.catalog.transaction import Conflict, Transaction, optimistic
from errata.model.bucket import Role
from errata.model.commit import Cause
from errata.model.horizon import (
    PastEvaluation,
    PastPosition,
    first_kept_evaluation,
    forgettable_evaluations,
    forgettable_positions,
    is_forgotten,
    is_spent,
    oldest_kept_commit,
)
from errata.model.time import LOWEST

VALUES_PER_STATEMENT = 500
"""Values in one statement, below the limits of the databases on parameters."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """A stream or an archive of results, live or ended."""

    stream_id: int
    name: str
    of_query: bool = False


@dataclass(frozen=True, slots=True)
class SpentBucket:
    """A bucket that no reader needs any more."""

    bucket_id: int
    role: Role
    path: str | None
    """None for an inline bucket, which is deleted with its index row."""
    size: int
    removed_in: int


class _PinConflict(Conflict):
    """A reader has pinned what was about to be removed."""


def all_archives(catalog: Catalog, names: Sequence[str] = ()) -> list[ArchiveEntry]:
    """All archives with these names, or all; also those that have ended."""
    query = select(streams_table).order_by(streams_table.c.stream_id)
    if names:
        query = query.where(streams_table.c.name.in_(names))
    with catalog.reading() as connection:
        return [ArchiveEntry(row.stream_id, row.name, row.query_id is not None) for row in connection.execute(query)]


def oldest_readable(connection: Connection, now: int, horizon: int) -> int:
    """The first commit that is still readable: the last one at or before the edge of the horizon.

    Times of commits never go back, so two look-ups in their index give what `model.horizon.is_readable` gives for each.
    """
    at = commits_table.c.at
    edge = select(func.max(at)).where(at <= max(now - horizon, LOWEST)).scalar_subquery()
    last = connection.execute(select(func.max(commits_table.c.commit_id)).where(at == edge)).scalar()
    return 1 if last is None else int(last)


def spent_buckets(catalog: Catalog, stream_id: int) -> list[SpentBucket]:
    """The buckets of an archive that could be removed now."""
    with catalog.reading() as connection:
        stream = connection.execute(select(streams_table).where(streams_table.c.stream_id == stream_id)).one()
        return _select_spent(connection, stream, oldest_whole_commit(connection, stream, catalog.clock.now()))


def remove_spent(catalog: Catalog, stream_id: int, cause: Cause) -> tuple[int | None, list[SpentBucket]]:
    """Remove them from the index and list their files as doomed; the commit, if there was anything to remove.

    Nothing is removed if readers keep pinning older commits meanwhile; the next vacuum will do it.
    """
    if not spent_buckets(catalog, stream_id):
        return None, []
    return optimistic(lambda _: _remove_spent(catalog, stream_id, cause), lambda: (None, []), on=_PinConflict)


def _remove_spent(catalog: Catalog, stream_id: int, cause: Cause) -> tuple[int | None, list[SpentBucket]]:
    with catalog.writing() as connection:
        stream = streams.lock_stream(connection, stream_id)
        now = catalog.clock.now()
        kept_from = oldest_whole_commit(connection, stream, now)
        found = _select_spent(connection, stream, kept_from)
        if not found:
            return None, []
        _delete_spent(connection, found)
        # No reader of an older commit needs a state, so commits stay complete without it.
        if taken_from := max((each.removed_in for each in found if each.role is not Role.STATE), default=0):
            connection.execute(
                update(streams_table)
                .where(streams_table.c.stream_id == stream_id)
                .values(vacuumed=max(taken_from, stream.vacuumed or 0))
            )
        # Pins are locked last, so that no reader waits for long: see `pins.oldest_pinned_locked`.
        pinned = pins.oldest_pinned_locked(connection, now)
        if pinned is not None and pinned < kept_from:
            raise _PinConflict
        removal = Transaction(cause=cause, summary=_vacuum_summary(found), archive=stream)
        return removal.commit(connection, now), found


def oldest_whole_commit(connection: Connection, stream: Row[Any], now: int) -> int:
    """The first commit that stays complete, by the horizon that is declared now, or was last."""
    horizon = declared_horizon(connection, stream.stream_id) if stream.query_id is None else longest_horizon(connection)
    return oldest_kept_commit(oldest_readable(connection, now, horizon), pins.oldest_pinned_commit(connection, now))


def declared_horizon(connection: Connection, stream_id: int) -> int:
    """The horizon that is declared for a stream now, or was last."""
    declared = select(declarations.c.declaration).where(declarations.c.stream_id == stream_id)
    record = connection.execute(declared.order_by(declarations.c.added_in.desc()).limit(1)).scalar_one()
    return int(record["horizon"])


def longest_horizon(connection: Connection) -> int:
    """The longest horizon of all streams. Results have it too, since they are read together with their streams."""
    declared = select(streams_table.c.stream_id).where(streams_table.c.query_id.is_(None))
    return max((declared_horizon(connection, each) for each in connection.execute(declared).scalars().all()), default=0)


def _select_spent(connection: Connection, stream: Row[Any], kept_from: int) -> list[SpentBucket]:
    """Overlays that have been folded stay as long as the rows that they corrected: they are the rows' history."""
    asked = (buckets.c[name] for name in ("bucket_id", "role", "path", "bytes", "vs_max", "removed_in"))
    # The state that a query kept for its next evaluation is not read once its archive has ended.
    over = buckets.c.role == Role.STATE.value
    query = select(*asked).where(buckets.c.stream_id == stream.stream_id, over | (buckets.c.removed_in <= kept_from))
    dropped = stream.removed_in is not None
    return [
        SpentBucket(row.bucket_id, Role(row.role), row.path, row.bytes, row.removed_in)
        for row in connection.execute(query.order_by(buckets.c.bucket_id))
        if row.removed_in is not None
        and (row.role == Role.STATE.value or is_spent(row.removed_in, kept_from))
        and (row.role != Role.OVERLAY.value or is_forgotten(row.vs_max, stream.aged_to, dropped))
    ]


def _delete_spent(connection: Connection, found: Sequence[SpentBucket]) -> None:
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


def _vacuum_summary(found: Sequence[SpentBucket]) -> dict[str, object]:
    roles = sorted({each.role.value for each in found})
    return {
        "removed_buckets": len(found),
        "removed_files": sum(each.path is not None for each in found),
        "removed_bytes": sum(each.size for each in found),
        "removed": {role: sum(each.role.value == role for each in found) for role in roles},
    }


def doomed_files(catalog: Catalog, path: str = "", limit: int = VALUES_PER_STATEMENT) -> list[tuple[str, int]]:
    """Doomed files after a path, and their bytes, in the order of their paths."""
    query = select(doomed.c.path, doomed.c.bytes).where(doomed.c.path > path).order_by(doomed.c.path).limit(limit)
    with catalog.reading() as connection:
        return [(row.path, row.bytes) for row in connection.execute(query)]


def drop_doomed(catalog: Catalog, paths: Sequence[str]) -> None:
    """Delete the entries of files that have been removed."""
    with catalog.writing() as connection:
        for some in _chunks(paths):
            connection.execute(delete(doomed).where(doomed.c.path.in_(some)))


def unreferenced_paths(catalog: Catalog, paths: Sequence[str]) -> list[str]:
    """The paths that no index row names, live or not, and that are not doomed either."""
    found: list[str] = []
    with catalog.reading() as connection:
        for some in _chunks(paths):
            query = union(*(select(table.c.path).where(table.c.path.in_(some)) for table in (buckets, doomed)))
            named = set(connection.execute(query).scalars()) | match_segments.named_paths(connection, some)
            found += [path for path in some if path not in named]
    return found


def _chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), VALUES_PER_STATEMENT):
        yield values[start : start + VALUES_PER_STATEMENT]


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """The number of records of each kind that were removed, or would be."""

    pins: int = 0
    evaluations: int = 0
    positions: int = 0
    segments: int = 0
    """Match segments of registered queries: their buckets are gone, or no query in force asks for them."""


def forget_records(catalog: Catalog) -> RecordCounts:
    """Delete records behind the horizon, and expired pins."""
    with catalog.writing() as connection:
        pins.oldest_pinned_locked(connection, catalog.clock.now())
        plan = _ForgetPlan(connection, catalog.clock.now())
        for archive, numbers in plan.evaluations.items():
            _delete_records(connection, evaluations.c.stream_id == archive, evaluations.c.number, numbers)
        for stream, commits in plan.positions.items():
            _delete_records(connection, positions.c.stream_id == stream, positions.c.commit_id, commits)
        for stream, commit_id in plan.whole_from.items():
            whole = func.coalesce(streams_table.c.vacuumed, 0) < commit_id
            mark = update(streams_table).where(streams_table.c.stream_id == stream, whole)
            connection.execute(mark.values(vacuumed=commit_id))
        return plan.counted(0)


def forgettable_records(catalog: Catalog) -> RecordCounts:
    """The number of records that `forget_records` would delete."""
    with catalog.reading() as connection:
        now = catalog.clock.now()
        return _ForgetPlan(connection, now).counted(_count_expired_pins(connection, now))


def _count_expired_pins(connection: Connection, now: int) -> int:
    count = select(func.count()).select_from(pins_table).where(pins_table.c.expires_at <= now)
    return int(connection.execute(count).scalar_one())


def _delete_records(connection: Connection, of: Any, column: Any, values: Sequence[int]) -> None:
    table = column.table
    for some in _chunks(values):
        connection.execute(delete(table).where(of, column.in_(some)))


class _ForgetPlan:
    """The records that can be deleted, of all streams and all archives of results."""

    def __init__(self, connection: Connection, now: int) -> None:
        self._connection = connection
        self.evaluations: dict[int, list[int]] = {}
        self.positions: dict[int, list[int]] = {}
        self.whole_from: dict[int, int] = {}
        """By archive, the first commit of which all records stay."""
        every = connection.execute(select(streams_table)).all()
        kept_from = {each.stream_id: oldest_whole_commit(connection, each, now) for each in every}
        archives = [each for each in every if each.query_id is not None]
        past = {each.stream_id: list(self._past(each, kept_from[each.stream_id])) for each in archives}
        begun = self._begun([each.stream_id for each in archives if each.removed_in is None])
        # Queries that are read together are read at one state of the streams: the earliest that any has reached.
        stand_at = [past[of][-1].data_commit if past[of] else at for of, at in begun.items()]
        read_from = dict(begun)
        for each in archives:
            first = self._of_archive(each, past[each.stream_id], min(stand_at, default=0))
            if first is not None and each.removed_in is None:
                read_from[each.stream_id] = first.data_commit
        for each in every:
            self._of_stream(each, min([kept_from[each.stream_id], *read_from.values()]), set(begun.values()))

    def counted(self, expired: int) -> RecordCounts:
        """The number of records of each kind."""
        return RecordCounts(expired, *(sum(map(len, some.values())) for some in (self.evaluations, self.positions)))

    def _past(self, archive: Row[Any], kept_from: int) -> Iterator[PastEvaluation]:
        known = evaluations.c
        query = select(known.number, known.commit_id, known.data_commit, known.swept, known.cause, known.refused)
        query = query.where(known.stream_id == archive.stream_id, known.commit_id <= kept_from).order_by(known.number)
        for row in self._connection.execute(query):
            goes_on = row.swept is None and not row.cause.get("part")
            yield PastEvaluation(row.number, row.commit_id, row.data_commit, goes_on, row.refused is not None)

    def _begun(self, archives: Sequence[int]) -> dict[int, int]:
        """By archive, the commit of the streams that its first evaluation read."""
        known = evaluations.c
        query = select(known.stream_id, known.data_commit).where(known.number == 1, known.stream_id.in_(archives))
        return {row.stream_id: row.data_commit for row in self._connection.execute(query)}

    def _of_archive(self, archive: Row[Any], past: Sequence[PastEvaluation], together: int) -> PastEvaluation | None:
        """Note which of its evaluations can be deleted; the first one that stays, or None where all do."""
        first = first_kept_evaluation(past, together) if archive.removed_in is None else (past[-1] if past else None)
        if first is not None and (numbers := forgettable_evaluations(past, first)):
            self.evaluations[archive.stream_id] = numbers
            self.whole_from[archive.stream_id] = first.commit_id
        return first

    def _of_stream(self, stream: Row[Any], kept_from: int, looked_at: set[int]) -> None:
        known = positions.c
        query = select(known.commit_id, known.applied, known.aged_to)
        query = query.where(known.stream_id == stream.stream_id, known.commit_id <= kept_from)
        past = [PastPosition(*row) for row in self._connection.execute(query.order_by(known.commit_id))]
        if commits := forgettable_positions(past, looked_at):
            self.positions[stream.stream_id] = commits
            self.whole_from[stream.stream_id] = max(past[-1].commit_id, self.whole_from.get(stream.stream_id, 0))
