"""Leases: who is at work on what, so that no two do the same work. A lease is a courtesy: what keeps results right is
that each commit looks whether its basis still stands."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from errata.catalog.open import Catalog
from errata.catalog.tables import leases
from errata.model.instants import MINUTE

TERM = 10 * MINUTE
"""How long a holder that was killed is waited for."""


@contextmanager
def held(catalog: Catalog, name: str) -> Iterator[bool]:
    """Whether the lease could be had; it is given back when the block ends."""
    holder = uuid.uuid4().hex
    had = _taken(catalog, name, holder)
    try:
        yield had
    finally:
        if had:
            with catalog.writing() as connection:
                connection.execute(delete(leases).where(leases.c.name == name, leases.c.holder == holder))


def _taken(catalog: Catalog, name: str, holder: str) -> bool:
    try:
        return _take(catalog, name, holder)
    except IntegrityError:  # somebody else has just taken it
        return False


def _take(catalog: Catalog, name: str, holder: str) -> bool:
    now = catalog.clock.now()
    with catalog.writing() as connection:
        row = connection.execute(select(leases).where(leases.c.name == name).with_for_update()).first()
        if row is None:
            connection.execute(insert(leases).values(name=name, holder=holder, fence=1, expires_at=now + TERM))
            return True
        if row.expires_at > now:
            return False
        renewed = {"holder": holder, "fence": row.fence + 1, "expires_at": now + TERM}
        connection.execute(update(leases).where(leases.c.name == name).values(renewed))
        return True
