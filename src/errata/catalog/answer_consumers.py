"""Named consumers of answers: how far each has come, and the pin that keeps what it has still to read.

    opened ── acknowledged 12 ── acknowledged 15 ─────────────┤ held until
      pin on the commit it may resume from: moved forward, and its term begun anew, in the same transaction

A consumer resumes from the commit that it acknowledged last. Until its deadline a pin keeps that commit readable, and
vacuum removes nothing that it needs. After the deadline the consumer stays known, and resumes from its commit as long
as that is readable all the same; else it is given the whole answer again.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from errata.catalog.access_tables import answer_consumers
from errata.catalog.commits import CONSUMER_PIN, newest_commit
from errata.catalog.database import Catalog
from errata.catalog.tables import head, pins
from errata.errors import UsageError
from errata.model.access import AnswerConsumer, check_access_name
from errata.model.time import DAY

DEFAULT_HOLD = 14 * DAY
"""Microseconds for which a consumer that does not come back holds past states: twice the horizon unless it is declared
otherwise, so that a week away does no harm."""

MAX_CONSUMERS = 100
"""Consumers that one registered query may have."""


def open_consumer(catalog: Catalog, handle: str, name: str, hold: int = DEFAULT_HOLD) -> AnswerConsumer:
    """The consumer of this name, made if there is none; its term begins anew."""
    check_access_name("consumer", name)
    # The pin comes before anything that is read at the commit: see `catalog/pins.py`.
    newest = newest_commit(catalog)
    now = catalog.clock.now()
    with catalog.writing() as connection:
        row = _find(connection, handle, name)
        if row is None:
            row = _insert(connection, handle, name, now + hold)
        held = row.acknowledged if row.acknowledged is not None else newest
        return _hold(connection, row, held, now + hold, acknowledged=row.acknowledged)


def acknowledge(catalog: Catalog, handle: str, name: str, commit_id: int, hold: int = DEFAULT_HOLD) -> AnswerConsumer:
    """Note that the consumer has stored the change of this commit and all before it. It never goes back."""
    check_access_name("consumer", name)
    now = catalog.clock.now()
    with catalog.writing() as connection:
        row = _find(connection, handle, name)
        if row is None:
            raise UsageError(f"{handle} has no consumer {name}", how="follow the query under this name first")
        last = int(connection.execute(select(head.c.commit_id)).scalar_one())
        if not 0 < commit_id <= last:
            raise UsageError(f"there is no commit {commit_id}", how=f"commits are 1 to {last}")
        reached = max(commit_id, row.acknowledged or 0)
        return _hold(connection, row, reached, now + hold, acknowledged=reached)


def answer_consumers_of(catalog: Catalog, handle: str) -> list[AnswerConsumer]:
    """The consumers of a registered query, by name."""
    query = select(answer_consumers).where(answer_consumers.c.handle == handle).order_by(answer_consumers.c.name)
    with catalog.reading() as connection:
        return [_consumer(row) for row in connection.execute(query)]


def drop_consumers(catalog: Catalog, handle: str, name: str | None = None) -> int:
    """Forget this consumer, or all of the query, and what they held; their number."""
    wanted = answer_consumers.c.handle == handle
    if name is not None:
        wanted &= answer_consumers.c.name == name
    with catalog.writing() as connection:
        gone = connection.execute(delete(answer_consumers).where(wanted).returning(answer_consumers.c.consumer_id))
        held = [_pin_id(consumer_id) for consumer_id in gone.scalars()]
        connection.execute(delete(pins).where(pins.c.pin_id.in_(held)))
    return len(held)


def _find(connection: Connection, handle: str, name: str) -> Row[Any] | None:
    wanted = (answer_consumers.c.handle == handle) & (answer_consumers.c.name == name)
    return connection.execute(select(answer_consumers).where(wanted)).first()


def _insert(connection: Connection, handle: str, name: str, until: int) -> Row[Any]:
    others = connection.execute(select(answer_consumers.c.name).where(answer_consumers.c.handle == handle)).all()
    if len(others) >= MAX_CONSUMERS:
        raise UsageError(
            f"{handle} has {len(others)} consumers, as many as a query may have", how="drop one that is not needed"
        )
    values = {"handle": handle, "name": name, "held_until": until}
    return connection.execute(insert(answer_consumers).values(values).returning(answer_consumers)).one()


def _hold(
    connection: Connection, row: Row[Any], commit_id: int, until: int, acknowledged: int | None
) -> AnswerConsumer:
    """Move the consumer's pin to the commit, and its deadline."""
    change = update(answer_consumers).where(answer_consumers.c.consumer_id == row.consumer_id)
    connection.execute(change.values(held_until=until, acknowledged=acknowledged))
    pin = {"pin_id": _pin_id(row.consumer_id), "commit_id": commit_id, "expires_at": until}
    pin["holder"] = f"consumer {row.name} of {row.handle}"
    connection.execute(delete(pins).where(pins.c.pin_id == pin["pin_id"]))
    connection.execute(insert(pins).values(pin))
    return AnswerConsumer(row.handle, row.name, acknowledged, until)


def _pin_id(consumer_id: int) -> str:
    return f"{CONSUMER_PIN}{consumer_id}"


def _consumer(row: Row[Any]) -> AnswerConsumer:
    return AnswerConsumer(row.handle, row.name, row.acknowledged, row.held_until)
