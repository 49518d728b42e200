"""Queries that have stopped, and why."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, insert, select

from errata.catalog.open import Catalog
from errata.catalog.tables import faults
from errata.model.evaluation import Fault


@dataclass(frozen=True, slots=True)
class Stopped:
    """Where a query stopped."""

    query_id: int
    data_commit: int
    """The state of the streams that it could not take in."""
    since: int
    """The instant up to which it has been answered; LOWEST if it never was."""
    at: int
    """When that was found."""
    fault: Fault


def all_stopped(catalog: Catalog) -> dict[int, Stopped]:
    """All that have stopped, by the ids of the queries."""
    with catalog.reading() as connection:
        rows = connection.execute(select(faults)).all()
    return {
        row.query_id: Stopped(row.query_id, row.data_commit, row.since, row.at, Fault.of(row.fault)) for row in rows
    }


def note(catalog: Catalog, query_id: int, data_commit: int, since: int, fault: Fault) -> None:
    """A query has stopped; it goes on when what stopped it has been mended, and a fault of before is forgotten."""
    values = {"query_id": query_id, "data_commit": data_commit, "since": since, "fault": fault.record()}
    with catalog.writing() as connection:
        connection.execute(delete(faults).where(faults.c.query_id == query_id))
        connection.execute(insert(faults).values(values | {"at": catalog.clock.now()}))
