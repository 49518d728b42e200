"""The commit log: numbering commits, finding them by number, time or task, and waiting for new ones.

The number of the newest commit is in one row, the head. A transaction locks it last, so commits become visible in the
order of their numbers, and their times never go back. PostgreSQL notifies listeners of each commit; with SQLite the
head is read again and again. A notice may be lost, and may be about a commit that does not matter to the listener: it
looks at the catalog after a notice, and from time to time without one.
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
from errata.catalog.tables import buckets, commits, head, pins, positions, streams
from errata.errors import ErrataError, UsageError
from errata.model.bucket import Role
from errata.model.columns import parse_digits
from errata.model.commit import Cause, Commit
from errata.model.time import Interval, format_duration, format_instant, parse_instant

NOTICE_CHANNEL = "errata_commits"
"""The PostgreSQL channel for the number of each commit, and for an empty text when a lease is given up."""

CONSUMER_PIN = "consumer-"
"""What the ids of pins begin with that named consumers of answers hold; those of other readers are random."""

NOTICE_POLL_SECONDS = 0.5
"""Seconds between two reads of the head, where the database sends no notices. It bounds the delay of waiting jobs."""


class CommitNotices(Protocol):
    """Notices of commits."""

    def fileno(self) -> int | None:
        """The file descriptor that an event loop can wait on; None where `heard` has to be polled."""

    def heard(self) -> bool:
        """Whether a notice has come since the last call. It does not wait."""

    def wait(self, seconds: float) -> bool:
        """Wait for a notice, at most this long; whether one came."""


def notify(connection: Connection, word: str) -> None:
    """Send a notice when the transaction commits, where the database can."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_notify(NOTICE_CHANNEL, word)))


@contextmanager
def listen(catalog: Catalog) -> Iterator[CommitNotices]:
    """Notices of commits from now on. They take a connection of their own, where the database sends them."""
    if catalog.engine.dialect.name != "postgresql":
        yield _PolledNotices(catalog)
        return
    with catalog.reading() as connection:
        # LISTEN takes effect when committed; after it the driver's connection is waited on outside of transactions.
        connection.exec_driver_sql(f"LISTEN {NOTICE_CHANNEL}")
        connection.commit()
        driver: Any = connection.connection.driver_connection
        try:
            yield _PostgresNotices(driver)
        finally:
            # The next user of the pooled connection must not receive these notices.
            connection.invalidate()


class _PostgresNotices:
    """Notices that PostgreSQL sends."""

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
        # The socket may be readable without a notice: a server that shuts down says so, and then closes the connection.
        while not self.heard():
            left = end - time.monotonic()
            if left <= 0:
                return False
            system.select([self._driver], [], [], left)
        return True


class _PolledNotices:
    """The head of a database that sends no notices, polled."""

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


# Built once: SQLAlchemy takes longer to build a statement than SQLite to execute it.
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
    """Record a commit and return its number. It locks the head until the transaction ends: call it when little is left
    to do."""
    # A clock that was set back must not make a later commit look older than an earlier one. The expression uses the
    # column and not a subquery: after waiting for the row's lock PostgreSQL reads the column again, but no subquery.
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
    """Commits after `since`, oldest first; those of one stream if named; at most the last `last`."""
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
    """The commit that --as-of names: by number, or the newest one at an instant. None: the newest of all."""
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
    from errata.model.horizon import is_readable  # noqa: PLC0415 - only reading as of a former commit needs it

    following = select(commits.c.at).where(commits.c.commit_id > commit_id).order_by(commits.c.commit_id)
    now = catalog.clock.now()
    with catalog.reading() as connection:
        superseded_at = connection.execute(following.limit(1)).scalar()
        readable = is_readable(superseded_at, now, horizon) or _is_held(connection, commit_id, now)
    if not readable:
        raise ErrataError(
            f"commit {commit_id} lies behind the horizon of {noun} {stream}",
            why=f"past states are kept readable for {format_duration(horizon)}",
            how="read a later commit, or declare a longer `horizon` for the time to come",
        )
    check_not_vacuumed(catalog, commit_id, stream, noun)


def _is_held(connection: Connection, commit_id: int, now: int) -> bool:
    """Whether a named consumer holds the horizon back up to this commit: see `catalog/answer_consumers.py`."""
    held = pins.c.pin_id.startswith(CONSUMER_PIN) & (pins.c.commit_id <= commit_id) & (pins.c.expires_at > now)
    return connection.execute(select(pins.c.pin_id).where(held).limit(1)).first() is not None


def check_not_vacuumed(catalog: Catalog, commit_id: int, stream: str, noun: str = "stream") -> None:
    """Refuse a commit of which vacuum has removed a part: neither a longer horizon nor another clock brings it back."""
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
    """The first commit from which the archives of this name are complete; 0 if vacuum has removed nothing of them."""
    query = select(func.max(streams.c.vacuumed)).where(streams.c.name == name)
    with catalog.reading() as connection:
        return int(connection.execute(query).scalar() or 0)


def first_commit_changing(catalog: Catalog, names: Iterable[str], *, after: int, up_to: int) -> int | None:
    """The first commit after `after`, up to `up_to`, that has changed one of these streams; None if none has."""
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


_REPORTED_ROLES = tuple(each.value for each in (Role.BASE, Role.PENDING, Role.OVERLAY, Role.OPEN, Role.TIP, Role.FEED))
"""Roles of buckets with rows, corrections or results. What a strategy keeps for itself is not reported."""


def commits_of_try(catalog: Catalog, dag_id: str, run_id: str, task_id: str, try_number: int) -> list[Commit]:
    """The commits of one try of an Airflow task, oldest first."""
    query = (
        select(commits.c.commit_id)
        .where(commits.c.run_id == run_id, commits.c.dag_id == dag_id, commits.c.task_id == task_id)
        .where(commits.c.try_number == try_number)
    )
    with catalog.reading() as connection:
        found = list(connection.execute(query).scalars())
    return sorted(commits_by_number(catalog, found).values(), key=lambda each: each.commit_id)


def event_spans(catalog: Catalog, commit_ids: Iterable[int]) -> dict[int, Interval]:
    """For each of these commits that brought rows, the event times from the first to just after the last."""
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
