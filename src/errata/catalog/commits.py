"""Word of what is committed, for those who wait for it: PostgreSQL sends it, of SQLite the newest commit is asked.

Word may be lost, and may come of what matters to nobody: who is woken looks, and also looks now and then unwoken.
"""

from __future__ import annotations

import select as system
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg2
from sqlalchemy import BigInteger, Connection, Row, Select, bindparam, func, insert, select, update

from errata.catalog.database import Catalog
from errata.catalog.tables import buckets, commits, head, positions, streams
from errata.errors import ErrataError, UsageError
from errata.model.bucket import Role
from errata.model.columns import parse_digits
from errata.model.commit import Cause, Commit
from errata.model.horizon import is_readable
from errata.model.time import Interval, format_duration, format_instant, parse_instant

NOTICE_CHANNEL = "errata_commits"
"""On which PostgreSQL sends the number of each commit, and an empty word when work is given up."""

NOTICE_POLL_SECONDS = 0.5
"""Seconds between two looks at the newest commit, where nobody sends word."""


class CommitNotices(Protocol):
    """Word of commits."""

    def fileno(self) -> int | None:
        """What an event loop can wait on; None where there is nothing but to ask `heard` again and again."""

    def heard(self) -> bool:
        """Whether word has come since this was last asked. It does not wait."""

    def wait(self, seconds: float) -> bool:
        """Wait for word, so long at most; whether it came."""


def notify(connection: Connection, word: str) -> None:
    """Send word with the transaction's commit, where the database can."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_notify(NOTICE_CHANNEL, word)))


@contextmanager
def listen(catalog: Catalog) -> Iterator[CommitNotices]:
    """Word of what is committed from now on. It takes a connection of its own, where the database sends word."""
    if catalog.engine.dialect.name != "postgresql":
        yield _PolledNotices(catalog)
        return
    with catalog.reading() as connection:
        # LISTEN holds from its commit on; after it the driver's own connection is waited on, outside of transactions.
        connection.exec_driver_sql(f"LISTEN {NOTICE_CHANNEL}")
        connection.commit()
        driver: Any = connection.connection.driver_connection
        try:
            yield _PostgresNotices(driver)
        finally:
            # Whoever gets the connection next is to hear nothing.
            connection.invalidate()


class _PostgresNotices:
    """PostgreSQL's word."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def fileno(self) -> int:
        return int(self._driver.fileno())

    def heard(self) -> bool:
        try:
            self._driver.poll()
        except psycopg2.Error as error:
            raise ErrataError(
                "the catalog's database sends no more word of commits",
                why=str(error).strip().splitlines()[0] if str(error).strip() else "the connection is closed",
                how="listen to it again",
            ) from None
        came = bool(self._driver.notifies)
        self._driver.notifies.clear()
        return came

    def wait(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        # What wakes us may be no word: a server that is ended says so first, and closes the connection then.
        while not self.heard():
            left = end - time.monotonic()
            if left <= 0:
                return False
            system.select([self._driver], [], [], left)
        return True


class _PolledNotices:
    """The newest commit of a database that sends no word."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known = self._newest()

    def fileno(self) -> None:
        return None

    def heard(self) -> bool:
        known, self._known = self._known, self._newest()
        return self._known != known

    def wait(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not self.heard():
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(NOTICE_POLL_SECONDS, left))
        return True

    def _newest(self) -> int:
        with self._catalog.reading() as connection:
            return int(connection.execute(select(head.c.commit_id)).scalar_one())


# Commits: taken last in a transaction, from one locked row, so that they become visible in order.

# Built once: to put them together takes longer than SQLite to carry them out.
_ADVANCE_HEAD = {
    dialect: update(head)
    .values(commit_id=head.c.commit_id + 1, at=greatest(head.c.at, bindparam("now", type_=BigInteger)))
    .returning(head.c.commit_id, head.c.at)
    for dialect, greatest in (("postgresql", func.greatest), ("sqlite", func.max))
}
_INSERT_COMMIT = insert(commits)


def record_commit(
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
    latest = connection.execute(_ADVANCE_HEAD[connection.dialect.name], {"now": now}).one()
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
    connection.execute(_INSERT_COMMIT, values)
    notify(connection, str(latest.commit_id))
    return int(latest.commit_id)


def newest_commit(catalog: Catalog) -> int:
    """The number of the newest commit; 0 before the first."""
    with catalog.reading() as connection:
        return int(connection.execute(select(head.c.commit_id)).scalar_one())


def list_commits(
    catalog: Catalog, *, stream: str | None = None, since: int = 0, last: int | None = None
) -> list[Commit]:
    """Commits after `since`, oldest first; of one stream if named; only the last so many if told."""
    query = _select_commits().where(commits.c.commit_id > since)
    if stream is not None:
        query = query.where(streams.c.name == stream)
    query = query.order_by(commits.c.commit_id.desc())
    if last is not None:
        query = query.limit(last)
    with catalog.reading() as connection:
        return [_commit_from_row(row) for row in reversed(connection.execute(query).all())]


def commits_by_number(catalog: Catalog, commit_ids: Iterable[int]) -> dict[int, Commit]:
    """Commits by their numbers, in their order."""
    wanted = sorted(set(commit_ids))
    found: dict[int, Commit] = {}
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            query = _select_commits().where(commits.c.commit_id.in_(wanted[start : start + 500]))
            rows = connection.execute(query.order_by(commits.c.commit_id))
            found.update({row.commit_id: _commit_from_row(row) for row in rows})
    return found


def resolve_as_of(catalog: Catalog, as_of: str | int | None) -> int:
    """The commit that --as-of means: a number, or the newest one at a moment. None: the newest."""
    if as_of is None:
        return newest_commit(catalog)
    if isinstance(as_of, int) or as_of.strip().isdecimal():
        wanted = as_of if isinstance(as_of, int) else parse_digits(as_of.strip())
        last = newest_commit(catalog)
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
    if not is_readable(superseded_at, catalog.clock.now(), horizon):
        raise ErrataError(
            f"commit {commit_id} lies behind the horizon of {noun} {stream}",
            why=f"past states are kept readable for {format_duration(horizon)}",
            how="read a later commit, or declare a longer `horizon` for the time to come",
        )
    check_not_vacuumed(catalog, commit_id, stream, noun)


def check_not_vacuumed(catalog: Catalog, commit_id: int, stream: str, noun: str = "stream") -> None:
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


def whole_since(catalog: Catalog, name: str) -> int:
    """The first commit since which vacuum has taken nothing from the archives of this name; 0 if it never has."""
    query = select(func.max(streams.c.vacuumed)).where(streams.c.name == name)
    with catalog.reading() as connection:
        return int(connection.execute(query).scalar() or 0)


def first_commit_changing(catalog: Catalog, names: Iterable[str], *, after: int, up_to: int) -> int | None:
    """The first commit after one, and up to another one, that has moved one of these streams; None if none has."""
    query = select(func.min(positions.c.commit_id)).join(streams, streams.c.stream_id == positions.c.stream_id)
    query = query.where(streams.c.name.in_(list(names)), streams.c.query_id.is_(None))
    query = query.where(positions.c.commit_id > after, positions.c.commit_id <= up_to)
    with catalog.reading() as connection:
        found = connection.execute(query).scalar()
    return None if found is None else int(found)


def _select_commits() -> Select[Any]:
    return select(commits, streams.c.name).join(streams, streams.c.stream_id == commits.c.stream_id, isouter=True)


def _commit_from_row(row: Row[Any]) -> Commit:
    cause = Cause(row.flow, row.user_name, row.host, row.dag_id, row.run_id, row.task_id, row.try_number, row.spark_app)
    return Commit(row.commit_id, row.at, cause, row.name, row.batch_id, row.summary)


# What was made by whom: the commits of one try of a scheduler's task, and the event times that they concern.

_REPORTED_ROLES = tuple(each.value for each in (Role.BASE, Role.PENDING, Role.OVERLAY, Role.OPEN, Role.TIP, Role.FEED))
"""Buckets of rows, of corrections and of results; what a strategy keeps for itself is no news."""


def commits_of_try(catalog: Catalog, dag_id: str, run_id: str, task_id: str, try_number: int) -> list[Commit]:
    """The commits of one try of a task, oldest first."""
    query = (
        select(commits.c.commit_id)
        .where(commits.c.run_id == run_id, commits.c.dag_id == dag_id, commits.c.task_id == task_id)
        .where(commits.c.try_number == try_number)
    )
    with catalog.reading() as connection:
        found = list(connection.execute(query).scalars())
    return sorted(commits_by_number(catalog, found).values(), key=lambda each: each.commit_id)


def event_spans(catalog: Catalog, commit_ids: Iterable[int]) -> dict[int, Interval]:
    """Of commits that brought rows, the event times from the first to just after the last."""
    wanted = sorted(set(commit_ids))
    found: dict[int, Interval] = {}
    with catalog.reading() as connection:
        for start in range(0, len(wanted), 500):
            query = (
                select(buckets.c.added_in, func.min(buckets.c.vs_min), func.max(buckets.c.vs_max))
                .where(buckets.c.added_in.in_(wanted[start : start + 500]), buckets.c.role.in_(_REPORTED_ROLES))
                .group_by(buckets.c.added_in)
            )
            found.update({number: Interval(low, high + 1) for number, low, high in connection.execute(query)})
    return found
