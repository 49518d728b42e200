"""Faults of queries that somebody is told of: each once when it begins, and once when it is over.

What is told is what differs between the queries that have stopped and what has been told, so nothing that stops or
mends a query has to think of it. A fault has its id before it is told, and is marked as told after it: whoever is
killed in between tells it again, under the same id.

    stopped ──► row with an id ──► told ──► marked ──► goes on ──► told that it is over ──► row is gone
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Row, delete, insert, select, update

from errata.catalog.open import Catalog
from errata.catalog.tables import faults, queries, told_faults
from errata.model.evaluation import Fault


@dataclass(frozen=True, slots=True)
class ToldFault:
    """A fault of a query, from when it was noticed until it has been told that it is over."""

    fault_id: str
    query_id: int
    query: str
    fault: Fault
    since: int
    """When the query stopped."""
    told: int | None
    """When somebody was told; None: not yet."""


def to_tell(catalog: Catalog) -> tuple[Sequence[ToldFault], Sequence[ToldFault]]:
    """The faults that are to be told, and those of which it is to be told that they are over."""
    with catalog.writing() as connection:
        live = select(queries.c.query_id, queries.c.name).where(queries.c.removed_in.is_(None))
        names = {row.query_id: row.name for row in connection.execute(live)}
        stopped = [row for row in connection.execute(select(faults)) if row.query_id in names]
        known = [_told(row) for row in connection.execute(select(told_faults).order_by(told_faults.c.since))]
        standing = {row.query_id: Fault.of(row.fault).place for row in stopped}
        over = [each for each in known if standing.get(each.query_id) != each.fault.place]
        # Nobody has heard of these.
        unsaid = [each.fault_id for each in over if each.told is None]
        connection.execute(delete(told_faults).where(told_faults.c.fault_id.in_(unsaid)))
        left = {each.query_id for each in known} - {each.query_id for each in over}
        for row in stopped:
            if row.query_id not in left:
                values = {"query_id": row.query_id, "query": names[row.query_id], "fault": row.fault, "since": row.at}
                connection.execute(insert(told_faults).values(values | {"fault_id": uuid.uuid4().hex}))
        rows = connection.execute(select(told_faults).where(told_faults.c.told.is_(None)).order_by(told_faults.c.since))
        return [_told(row) for row in rows], [each for each in over if each.told is not None]


def mark_told(catalog: Catalog, fault: ToldFault) -> None:
    """It has been told that the fault is there."""
    with catalog.writing() as connection:
        same = told_faults.c.fault_id == fault.fault_id
        connection.execute(update(told_faults).where(same).values(told=catalog.clock.now()))


def mark_over(catalog: Catalog, fault: ToldFault) -> None:
    """It has been told that the fault is over."""
    with catalog.writing() as connection:
        connection.execute(delete(told_faults).where(told_faults.c.fault_id == fault.fault_id))


def _told(row: Row[tuple[object, ...]]) -> ToldFault:
    return ToldFault(row.fault_id, row.query_id, row.query, Fault.of(row.fault), row.since, row.told)
