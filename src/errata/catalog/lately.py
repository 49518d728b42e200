"""What happened of late and what is held now: for those who look, and never for those who decide.

Each look is one statement or two, and bounded: neither the archive nor the history makes it slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, func, select

from errata.catalog import tables as t
from errata.catalog.commits import numbered
from errata.catalog.open import Catalog
from errata.catalog.published import as_evaluation
from errata.catalog.replays import Replay, as_replay
from errata.model.bucket import Role
from errata.model.commit import Commit
from errata.model.evaluation import Evaluation

REMEMBERED = 100_000
"""Among so many of the newest commits the last one of each flow is looked for."""


@dataclass(frozen=True, slots=True)
class Corrected:
    """Published results that were corrected in one commit."""

    query: str
    stream_id: int
    ended: bool
    """Whether the archive that it corrected has been replaced since."""
    evaluation: Evaluation
    commit: Commit


@dataclass(frozen=True, slots=True)
class Replayed:
    """A range of results that a person has had worked out again."""

    query: str
    replay: Replay
    timed: bool


@dataclass(frozen=True, slots=True)
class Pinned:
    """A commit that somebody keeps readable."""

    holder: str
    expires_at: int
    commit_id: int


@dataclass(frozen=True, slots=True)
class Strip:
    """Buckets that lie at the same place of a timeline."""

    role: Role
    first: int
    """The first of the timeline's cells that they touch."""
    last: int
    buckets: int
    rows: int
    masked: int


def last_of_flows(catalog: Catalog) -> dict[str, Commit]:
    """The last commit of each flow."""
    newest = select(t.head.c.commit_id - REMEMBERED).scalar_subquery()
    query = select(func.max(t.commits.c.commit_id)).where(t.commits.c.commit_id > newest).group_by(t.commits.c.flow)
    with catalog.reading() as connection:
        found = list(connection.execute(query).scalars())
    return {each.cause.flow: each for each in numbered(catalog, found).values()}


def corrected(catalog: Catalog, most: int, before: int | None = None, query: str | None = None) -> list[Corrected]:
    """The corrections of published results before a moment, the newest first; only those of one query, if told."""
    wanted = select(t.commits.c.commit_id).where(t.commits.c.flow == "sweep")
    if before is not None:
        wanted = wanted.where(t.commits.c.at < before)
    if query is not None:
        of = select(t.evaluations.c.commit_id).join(t.streams, t.streams.c.stream_id == t.evaluations.c.stream_id)
        wanted = wanted.where(t.commits.c.commit_id.in_(of.where(t.streams.c.name == query)))
    return _corrected(catalog, wanted.order_by(t.commits.c.commit_id.desc()).limit(most))


def corrected_in(catalog: Catalog, query: str, commit_id: int) -> Corrected | None:
    """How a commit has corrected a query's results."""
    return next((each for each in corrected_by(catalog, [commit_id]) if each.query == query), None)


def corrected_by(catalog: Catalog, commit_ids: Sequence[int]) -> list[Corrected]:
    """The corrections of published results that these commits are, the newest first."""
    return _corrected(catalog, select(t.commits.c.commit_id).where(t.commits.c.commit_id.in_(commit_ids)))


def ever_answered(catalog: Catalog) -> set[str]:
    """The names of all queries that have had results."""
    query = select(t.streams.c.name).where(t.streams.c.query_id.is_not(None)).distinct()
    with catalog.reading() as connection:
        return set(connection.execute(query).scalars())


def replayed(catalog: Catalog, most: int, before: int | None = None, query: str | None = None) -> list[Replayed]:
    """The replays that persons have begun before a moment, the newest first; only those of one query, if told."""
    wanted = _with_names()
    if before is not None:
        wanted = wanted.where(t.replays.c.begun < before)
    if query is not None:
        wanted = wanted.where(t.streams.c.name == query)
    with catalog.reading() as connection:
        rows = connection.execute(wanted.order_by(t.replays.c.replay_id.desc()).limit(most))
        return [_replayed(row) for row in rows]


def replay_numbered(catalog: Catalog, replay_id: int) -> Replayed | None:
    """One replay."""
    with catalog.reading() as connection:
        row = connection.execute(_with_names().where(t.replays.c.replay_id == replay_id)).first()
    return None if row is None else _replayed(row)


def made_by(
    catalog: Catalog, dag_id: str, run_id: str, task_id: str, try_number: int | None, most: int
) -> list[Commit]:
    """The commits that a task of Airflow has made, or one try of it, the oldest first."""
    c = t.commits.c
    query = select(c.commit_id).where(c.dag_id == dag_id, c.run_id == run_id, c.task_id == task_id)
    if try_number is not None:
        query = query.where(c.try_number == try_number)
    with catalog.reading() as connection:
        found = list(connection.execute(query.order_by(c.commit_id).limit(most)).scalars())
    known = numbered(catalog, found)
    return [known[each] for each in found]


def pinned(catalog: Catalog) -> list[Pinned]:
    """The pins that are held now."""
    pins = select(t.pins).where(t.pins.c.expires_at > catalog.clock.now()).order_by(t.pins.c.commit_id)
    with catalog.reading() as connection:
        return [Pinned(row.holder, row.expires_at, row.commit_id) for row in connection.execute(pins)]


def strips(
    catalog: Catalog,
    stream_id: int,
    low: int,
    width: int,
    roles: Iterable[Role] = (Role.BASE, Role.OVERLAY, Role.PENDING),
) -> list[Strip]:
    """A stream's live buckets over event time, those together that touch the same cells. A cell is `width` wide, and
    the first begins at `low`."""
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
            Strip(Role(row[0]), int(row[1]), int(row[2]), row[3], int(row[4]), int(row[5]))
            for row in connection.execute(query)
        ]


def _corrected(catalog: Catalog, wanted: Select[Any]) -> list[Corrected]:
    # The index of evaluations begins with the archive, so those of a few commits are found by way of all archives.
    with catalog.reading() as connection:
        ids = list(connection.execute(wanted).scalars())
        query = (
            select(t.evaluations, t.streams.c.name, t.streams.c.removed_in)
            .join(t.streams, t.streams.c.stream_id == t.evaluations.c.stream_id)
            .where(t.evaluations.c.commit_id.in_(ids), t.evaluations.c.stream_id.in_(select(t.shapes.c.stream_id)))
            .order_by(t.evaluations.c.commit_id.desc())
        )
        rows = connection.execute(query).all() if ids else []
    known = numbered(catalog, ids)
    return [
        Corrected(row.name, row.stream_id, row.removed_in is not None, evaluation, known[row.commit_id])
        for row in rows
        if (evaluation := as_evaluation(row)).swept is not None
    ]


def _with_names() -> Select[Any]:
    of = t.streams.c.stream_id == t.replays.c.stream_id
    query = select(t.replays, t.streams.c.name, t.shapes.c.shape).join(t.streams, of)
    return query.join(t.shapes, t.shapes.c.stream_id == t.streams.c.stream_id)


def _replayed(row: Row[Any]) -> Replayed:
    return Replayed(row.name, as_replay(row), bool(row.shape["timed"]))
