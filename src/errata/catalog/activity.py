"""Bounded look-ups for overviews: sizes, replays in progress, recent corrections, living pins, timelines.

Each is one statement or two and is bounded, so that neither the archive nor the history makes it slow. No decision is
made on what they return, except that a replay that was killed continues from its progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, case, func, insert, select, update

from errata.catalog import tables as t
from errata.catalog.commits import commits_by_number
from errata.catalog.database import Catalog
from errata.catalog.result_archives import evaluation_from_row
from errata.catalog.tables import buckets, replays
from errata.model.bucket import Role
from errata.model.commit import Commit, Evaluation
from errata.model.time import Interval


@dataclass(frozen=True, slots=True)
class ArchiveSize:
    """The live buckets of one role in a stream."""

    buckets: int = 0
    rows: int = 0
    bytes: int = 0
    inline: int = 0
    """How many of the buckets are stored inline, in the catalog."""
    vs_min: int | None = None
    vs_max: int | None = None


def archive_sizes(catalog: Catalog, only: Sequence[int] = ()) -> dict[tuple[int, Role], ArchiveSize]:
    """The sizes of the archives now, by stream id and role; of all streams or of some."""
    inline = func.sum(case((buckets.c.path.is_(None), 1), else_=0))
    query = (
        select(
            buckets.c.stream_id,
            buckets.c.role,
            func.count(),
            func.sum(buckets.c.rows),
            func.sum(buckets.c.bytes),
            inline,
            func.min(buckets.c.vs_min),
            func.max(buckets.c.vs_max),
        )
        .where(buckets.c.removed_in.is_(None))
        .group_by(buckets.c.stream_id, buckets.c.role)
    )
    if only:
        query = query.where(buckets.c.stream_id.in_(only))
    with catalog.reading() as connection:
        return {
            # Sums are decimals in PostgreSQL.
            (row[0], Role(row[1])): ArchiveSize(row[2], int(row[3]), int(row[4]), int(row[5]), row[6], row[7])
            for row in connection.execute(query)
        }


def superseded_sizes(catalog: Catalog, only: Sequence[int] = ()) -> dict[int, tuple[int, int]]:
    """For each stream the number and the bytes of base buckets that are kept only for readers of old commits; of all
    streams or of some."""
    query = (
        select(buckets.c.stream_id, func.count(), func.sum(buckets.c.bytes))
        .where(buckets.c.removed_in.is_not(None), buckets.c.role == Role.BASE.value)
        .group_by(buckets.c.stream_id)
    )
    if only:
        query = query.where(buckets.c.stream_id.in_(only))
    with catalog.reading() as connection:
        return {row[0]: (row[1], int(row[2])) for row in connection.execute(query)}


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """A range of a query's results that is computed again, and how far that has come."""

    replay_id: int
    stream_id: int
    interval: Interval
    done_to: int
    """Results before this instant are done."""
    results: int
    """The number of results compared so far."""
    changed: int
    """How many of them were different."""
    begun: int
    ended: int | None

    @property
    def left(self) -> Interval:
        """The rest of the range."""
        return Interval(self.done_to, self.interval.end)


def begin_replay(catalog: Catalog, stream_id: int, interval: Interval) -> ReplayProgress:
    """The replay of the range that was begun and has not ended, else a new one."""
    same = (replays.c.stream_id == stream_id, replays.c.since == interval.start, replays.c.until == interval.end)
    with catalog.writing() as connection:
        row = connection.execute(select(replays).where(*same, replays.c.ended.is_(None))).first()
        if row is None:
            values = {
                "stream_id": stream_id,
                "since": interval.start,
                "until": interval.end,
                "done_to": interval.start,
                "results": 0,
                "changed": 0,
                "begun": catalog.clock.now(),
            }
            row = connection.execute(insert(replays).values(values).returning(replays)).one()
        return replay_from_row(row)


def advance_replay(catalog: Catalog, of: ReplayProgress, done_to: int, results: int, changed: int) -> ReplayProgress:
    """Record that a part is done; the last one ends the replay."""
    ended = catalog.clock.now() if done_to >= of.interval.end else None
    told = {"done_to": done_to, "results": of.results + results, "changed": of.changed + changed, "ended": ended}
    with catalog.writing() as connection:
        query = update(replays).where(replays.c.replay_id == of.replay_id).values(told).returning(replays)
        return replay_from_row(connection.execute(query).one())


def replays_of(catalog: Catalog, stream_id: int) -> list[ReplayProgress]:
    """All replays of the results in an archive, the oldest first."""
    with catalog.reading() as connection:
        rows = connection.execute(select(replays).where(replays.c.stream_id == stream_id).order_by(replays.c.replay_id))
        return [replay_from_row(row) for row in rows]


def replay_from_row(row: Row[Any]) -> ReplayProgress:
    """The replay in a row of the table."""
    return ReplayProgress(
        row.replay_id,
        row.stream_id,
        Interval(row.since, row.until),
        row.done_to,
        row.results,
        row.changed,
        row.begun,
        row.ended,
    )


COMMITS_LOOKED_AT = 100_000
"""Newest commits among which the last one of each flow is searched: bounds the scan of the commit log."""


@dataclass(frozen=True, slots=True)
class CorrectionRecord:
    """Published results that were corrected in one commit."""

    query: str
    stream_id: int
    ended: bool
    """Whether the archive that it corrected has been replaced since."""
    evaluation: Evaluation
    commit: Commit


@dataclass(frozen=True, slots=True)
class ReplayRecord:
    """A replay of a range of results, with the name of its query."""

    query: str
    replay: ReplayProgress
    timed: bool


@dataclass(frozen=True, slots=True)
class PinRecord:
    """A commit that a reader keeps readable."""

    holder: str
    expires_at: int
    commit_id: int


@dataclass(frozen=True, slots=True)
class TimelineStrip:
    """Buckets that touch the same cells of a timeline."""

    role: Role
    first: int
    """The first cell of the timeline that they touch."""
    last: int
    buckets: int
    rows: int
    masked: int


def last_commits_of_flows(catalog: Catalog) -> dict[str, Commit]:
    """The last commit of each flow."""
    newest = select(t.head.c.commit_id - COMMITS_LOOKED_AT).scalar_subquery()
    query = select(func.max(t.commits.c.commit_id)).where(t.commits.c.commit_id > newest).group_by(t.commits.c.flow)
    with catalog.reading() as connection:
        found = list(connection.execute(query).scalars())
    return {each.cause.flow: each for each in commits_by_number(catalog, found).values()}


def recent_corrections(
    catalog: Catalog, most: int, before: int | None = None, query: str | None = None
) -> list[CorrectionRecord]:
    """The last corrections of published results before an instant, the newest first; of all queries or of one."""
    wanted = select(t.commits.c.commit_id).where(t.commits.c.flow == "sweep")
    if before is not None:
        wanted = wanted.where(t.commits.c.at < before)
    if query is not None:
        of = select(t.evaluations.c.commit_id).join(t.streams, t.streams.c.stream_id == t.evaluations.c.stream_id)
        wanted = wanted.where(t.commits.c.commit_id.in_(of.where(t.streams.c.name == query)))
    return _select_corrections(catalog, wanted.order_by(t.commits.c.commit_id.desc()).limit(most))


def correction_in(catalog: Catalog, query: str, commit_id: int) -> CorrectionRecord | None:
    """The correction of a query's results in a commit."""
    return next((each for each in corrections_in(catalog, [commit_id]) if each.query == query), None)


def corrections_in(catalog: Catalog, commit_ids: Sequence[int]) -> list[CorrectionRecord]:
    """The corrections of published results in these commits, the newest first."""
    return _select_corrections(catalog, select(t.commits.c.commit_id).where(t.commits.c.commit_id.in_(commit_ids)))


def answered_queries(catalog: Catalog) -> set[str]:
    """The names of all queries that have had results."""
    query = select(t.streams.c.name).where(t.streams.c.query_id.is_not(None)).distinct()
    with catalog.reading() as connection:
        return set(connection.execute(query).scalars())


def recent_replays(
    catalog: Catalog, most: int, before: int | None = None, query: str | None = None
) -> list[ReplayRecord]:
    """The last replays that were begun before an instant, the newest first; of all queries or of one."""
    wanted = _select_replays()
    if before is not None:
        wanted = wanted.where(t.replays.c.begun < before)
    if query is not None:
        wanted = wanted.where(t.streams.c.name == query)
    with catalog.reading() as connection:
        rows = connection.execute(wanted.order_by(t.replays.c.replay_id.desc()).limit(most))
        return [_replay_record(row) for row in rows]


def find_replay(catalog: Catalog, replay_id: int) -> ReplayRecord | None:
    """The replay with this number."""
    with catalog.reading() as connection:
        row = connection.execute(_select_replays().where(t.replays.c.replay_id == replay_id)).first()
    return None if row is None else _replay_record(row)


def commits_of_task(
    catalog: Catalog, dag_id: str, run_id: str, task_id: str, try_number: int | None, most: int
) -> list[Commit]:
    """The commits of an Airflow task, or of one try of it, the oldest first."""
    c = t.commits.c
    query = select(c.commit_id).where(c.dag_id == dag_id, c.run_id == run_id, c.task_id == task_id)
    if try_number is not None:
        query = query.where(c.try_number == try_number)
    with catalog.reading() as connection:
        found = list(connection.execute(query.order_by(c.commit_id).limit(most)).scalars())
    known = commits_by_number(catalog, found)
    return [known[each] for each in found]


def living_pins(catalog: Catalog) -> list[PinRecord]:
    """The pins that have not expired."""
    pins = select(t.pins).where(t.pins.c.expires_at > catalog.clock.now()).order_by(t.pins.c.commit_id)
    with catalog.reading() as connection:
        return [PinRecord(row.holder, row.expires_at, row.commit_id) for row in connection.execute(pins)]


def timeline_strips(
    catalog: Catalog,
    stream_id: int,
    low: int,
    width: int,
    roles: Iterable[Role] = (Role.BASE, Role.OVERLAY, Role.PENDING),
) -> list[TimelineStrip]:
    """A stream's live buckets over event time, summed by the cells that they touch. A cell is `width` wide, and the
    first begins at `low`."""
    c = t.buckets.c
    first, last = ((c.vs_min - low) // width).label("first"), ((c.vs_max - low) // width).label("last")
    query = (
        select(c.role, first, last, func.count(), func.sum(c.rows), func.sum(c.masked))
        .where(c.stream_id == stream_id, c.role.in_([each.value for each in roles]), c.removed_in.is_(None))
        .group_by(c.role, first, last)
        .order_by(first, last)
    )
    with catalog.reading() as connection:
        return [
            TimelineStrip(Role(row[0]), int(row[1]), int(row[2]), row[3], int(row[4]), int(row[5]))
            for row in connection.execute(query)
        ]


def _select_corrections(catalog: Catalog, wanted: Select[Any]) -> list[CorrectionRecord]:
    # The primary key of evaluations begins with the archive, so a look-up by commit names all archives.
    with catalog.reading() as connection:
        ids = list(connection.execute(wanted).scalars())
        query = (
            select(t.evaluations, t.streams.c.name, t.streams.c.removed_in)
            .join(t.streams, t.streams.c.stream_id == t.evaluations.c.stream_id)
            .where(t.evaluations.c.commit_id.in_(ids), t.evaluations.c.stream_id.in_(select(t.shapes.c.stream_id)))
            .order_by(t.evaluations.c.commit_id.desc())
        )
        rows = connection.execute(query).all() if ids else []
    known = commits_by_number(catalog, ids)
    return [
        CorrectionRecord(row.name, row.stream_id, row.removed_in is not None, evaluation, known[row.commit_id])
        for row in rows
        if (evaluation := evaluation_from_row(row)).correction is not None
    ]


def _select_replays() -> Select[Any]:
    of = t.streams.c.stream_id == t.replays.c.stream_id
    query = select(t.replays, t.streams.c.name, t.shapes.c.shape).join(t.streams, of)
    return query.join(t.shapes, t.shapes.c.stream_id == t.streams.c.stream_id)


def _replay_record(row: Row[Any]) -> ReplayRecord:
    return ReplayRecord(row.name, replay_from_row(row), bool(row.shape["timed"]))
