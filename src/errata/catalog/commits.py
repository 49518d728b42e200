"""Commits: taken last in a transaction, from one locked row, so that they become visible in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import BigInteger, Connection, Row, Select, bindparam, func, insert, select, update

from errata.catalog import notices
from errata.catalog.open import Catalog
from errata.catalog.tables import commits, head, positions, streams
from errata.errors import ErrataError, UsageError
from errata.model.commit import Cause, Commit
from errata.model.horizon import readable
from errata.model.instants import format_duration, format_instant, parse_instant
from errata.model.numbers import whole

# Built once: to put them together takes longer than SQLite to carry them out.
_NEXT = {
    dialect: update(head)
    .values(commit_id=head.c.commit_id + 1, at=greatest(head.c.at, bindparam("now", type_=BigInteger)))
    .returning(head.c.commit_id, head.c.at)
    for dialect, greatest in (("postgresql", func.greatest), ("sqlite", func.max))
}
_COMMIT = insert(commits)


def take(
    connection: Connection,
    now: int,
    cause: Cause,
    *,
    stream_id: int | None = None,
    batch_id: str | None = None,
    summary: Mapping[str, Any],
) -> int:
    """The next commit's number. It locks the head row until the transaction ends: call it when little is left to do."""
    # A clock that was set back must not make a later commit look older than an earlier one. The column itself and not a
    # subquery: PostgreSQL looks at it again after it has waited for the row, but not at what it selected before.
    latest = connection.execute(_NEXT[connection.dialect.name], {"now": now}).one()
    values = {
        "commit_id": latest.commit_id,
        "at": latest.at,
        "flow": cause.flow,
        "stream_id": stream_id,
        "batch_id": batch_id,
        "user_name": cause.user,
        "host": cause.host,
        "dag_id": cause.dag_id,
        "run_id": cause.run_id,
        "task_id": cause.task_id,
        "try_number": cause.try_number,
        "spark_app": cause.spark_app,
        "summary": dict(summary),
    }
    connection.execute(_COMMIT, values)
    notices.tell(connection, str(latest.commit_id))
    return int(latest.commit_id)


def newest(catalog: Catalog) -> int:
    """The number of the newest commit; 0 before the first."""
    with catalog.reading() as connection:
        return int(connection.execute(select(head.c.commit_id)).scalar_one())


def listed(catalog: Catalog, *, stream: str | None = None, since: int = 0, last: int | None = None) -> list[Commit]:
    """Commits after `since`, oldest first; of one stream if named; only the last so many if told."""
    query = _with_names().where(commits.c.commit_id > since)
    if stream is not None:
        query = query.where(streams.c.name == stream)
    query = query.order_by(commits.c.commit_id.desc())
    if last is not None:
        query = query.limit(last)
    with catalog.reading() as connection:
        return [_commit(row) for row in reversed(connection.execute(query).all())]


def numbered(catalog: Catalog, commit_ids: Iterable[int]) -> dict[int, Commit]:
    """Commits by their numbers, in their order."""
    wanted = sorted(set(commit_ids))
    found: dict[int, Commit] = {}
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            query = _with_names().where(commits.c.commit_id.in_(wanted[start : start + 500]))
            rows = connection.execute(query.order_by(commits.c.commit_id))
            found.update({row.commit_id: _commit(row) for row in rows})
    return found


def find(catalog: Catalog, as_of: str | int | None) -> int:
    """The commit that --as-of means: a number, or the newest one at a moment. None: the newest."""
    if as_of is None:
        return newest(catalog)
    if isinstance(as_of, int) or as_of.strip().isdecimal():
        wanted = as_of if isinstance(as_of, int) else whole(as_of.strip())
        last = newest(catalog)
        if not 0 < wanted <= last:
            there = f"commits are 1 to {last}" if last else "there is none yet"
            raise UsageError(f"there is no commit {wanted}", how=f"{there}; `errata log` lists them")
        return wanted
    moment = parse_instant(as_of)
    if moment > catalog.clock.now():
        raise UsageError(
            f"{format_instant(moment)} is yet to come",
            why="what is known then cannot be told now",
            how="leave --as-of out for what is known now",
        )
    query = select(commits.c.commit_id).where(commits.c.at <= moment).order_by(commits.c.at.desc())
    with catalog.reading() as connection:
        found = connection.execute(query.order_by(commits.c.commit_id.desc()).limit(1)).scalar()
    if found is None:
        raise UsageError(
            f"nothing was known yet at {format_instant(moment)}",
            how="`errata log` lists the commits and their times",
        )
    return int(found)


def check_readable(catalog: Catalog, commit_id: int, horizon: int, stream: str, noun: str = "stream") -> None:
    """Refuse a commit whose state of the stream, or of the results of a query, lies behind the horizon."""
    following = select(commits.c.at).where(commits.c.commit_id > commit_id).order_by(commits.c.commit_id)
    with catalog.reading() as connection:
        superseded_at = connection.execute(following.limit(1)).scalar()
    if not readable(superseded_at, catalog.clock.now(), horizon):
        raise ErrataError(
            f"commit {commit_id} lies behind the horizon of {noun} {stream}",
            why=f"past states are kept readable for {format_duration(horizon)}",
            how="read a later commit, or declare a longer `horizon` for the time to come",
        )
    check_whole(catalog, commit_id, stream, noun)


def check_whole(catalog: Catalog, commit_id: int, stream: str, noun: str = "stream") -> None:
    """Refuse a commit that vacuum has taken from: no longer horizon, nor another machine's clock, brings that back."""
    gone = streams.c.removed_in
    then = select(streams.c.vacuumed).where(
        streams.c.name == stream, streams.c.added_in <= commit_id, gone.is_(None) | (gone > commit_id)
    )
    with catalog.reading() as connection:
        vacuumed = connection.execute(then).scalar()
    if vacuumed is not None and commit_id < vacuumed:
        raise ErrataError(
            f"commit {commit_id} of {noun} {stream} is no longer whole",
            why=f"vacuum has removed what only commits before {vacuumed} needed",
            how=f"read commit {vacuumed} or a later one",
        )


def whole_from(catalog: Catalog, name: str) -> int:
    """The first commit since which vacuum has taken nothing from the archives of this name; 0 if it never has."""
    query = select(func.max(streams.c.vacuumed)).where(streams.c.name == name)
    with catalog.reading() as connection:
        return int(connection.execute(query).scalar() or 0)


def first_moving(catalog: Catalog, names: Iterable[str], *, after: int, up_to: int) -> int | None:
    """The first commit after one, and up to another one, that has moved one of these streams; None if none has."""
    query = select(func.min(positions.c.commit_id)).join(streams, streams.c.stream_id == positions.c.stream_id)
    query = query.where(streams.c.name.in_(list(names)), streams.c.query_id.is_(None))
    query = query.where(positions.c.commit_id > after, positions.c.commit_id <= up_to)
    with catalog.reading() as connection:
        found = connection.execute(query).scalar()
    return None if found is None else int(found)


def _with_names() -> Select[Any]:
    return select(commits, streams.c.name).join(streams, streams.c.stream_id == commits.c.stream_id, isouter=True)


def _commit(row: Row[Any]) -> Commit:
    cause = Cause(row.flow, row.user_name, row.host, row.dag_id, row.run_id, row.task_id, row.try_number, row.spark_app)
    return Commit(row.commit_id, row.at, cause, row.name, row.batch_id, row.summary)
