"""Leases: who is at work on what, so that no two do the same work. A lease is a courtesy: what keeps results right is
that each commit looks whether its basis still stands."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import ColumnElement, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from errata.catalog import notices
from errata.catalog.open import Catalog
from errata.catalog.tables import leases
from errata.errors import ErrataError
from errata.model.instants import MINUTE, SECOND

TERM = 10 * MINUTE
"""How long a holder that was killed is waited for. Who is at work renews the lease three times as often."""


@contextmanager
def held(catalog: Catalog, name: str, owner: str = "") -> Iterator[bool]:
    """Whether the lease could be had; it is given back when the block ends, and renewed until then. `owner`: the task
    for which it is held, `Cause.owner`."""
    holder = uuid.uuid4().hex
    if not _taken(catalog, name, holder, owner):
        yield False
        return
    done = threading.Event()
    heart = threading.Thread(target=_beat, args=(catalog, name, holder, done), name=f"lease {name}", daemon=True)
    heart.start()
    try:
        yield True
    finally:
        done.set()
        heart.join()
        _give_back(catalog, (leases.c.name == name) & (leases.c.holder == holder))


def release(catalog: Catalog, owner: str) -> list[str]:
    """Give back all that is held for a task that has been killed; what nobody told the owner of stays. The names of the
    leases."""
    return [] if not owner else _give_back(catalog, leases.c.owner == owner)


def living(catalog: Catalog) -> set[str]:
    """The names of the leases that are held now."""
    with catalog.reading() as connection:
        query = select(leases.c.name).where(leases.c.expires_at > catalog.clock.now())
        return set(connection.execute(query).scalars())


def _give_back(catalog: Catalog, which: ColumnElement[bool]) -> list[str]:
    with catalog.writing() as connection:
        gone = connection.execute(delete(leases).where(which).returning(leases.c.name)).scalars().all()
        if gone:
            # Who waits for the work that they kept others from.
            notices.tell(connection, "")
        return sorted(gone)


def _beat(catalog: Catalog, name: str, holder: str, done: threading.Event) -> None:
    """Renew a lease while it is held; it is not taken again once somebody else has it."""
    usual = pause = TERM / SECOND / 3
    while not done.wait(pause):
        try:
            if not _renewed(catalog, name, holder):
                return
            pause = usual
        except ErrataError:  # the catalog is away for a moment; the lease lasts longer than that
            pause = usual / 10


def _renewed(catalog: Catalog, name: str, holder: str) -> bool:
    mine = (leases.c.name == name) & (leases.c.holder == holder)
    with catalog.writing() as connection:
        later = update(leases).where(mine).values(expires_at=catalog.clock.now() + TERM)
        return bool(connection.execute(later).rowcount)


def _taken(catalog: Catalog, name: str, holder: str, owner: str) -> bool:
    try:
        return _take(catalog, name, holder, owner)
    except IntegrityError:  # somebody else has just taken it
        return False


def _take(catalog: Catalog, name: str, holder: str, owner: str) -> bool:
    now = catalog.clock.now()
    values = {"holder": holder, "expires_at": now + TERM, "owner": owner}
    with catalog.writing() as connection:
        row = connection.execute(select(leases).where(leases.c.name == name).with_for_update()).first()
        if row is None:
            connection.execute(insert(leases).values(values | {"name": name, "fence": 1}))
            return True
        if row.expires_at > now:
            return False
        connection.execute(update(leases).where(leases.c.name == name).values(values | {"fence": row.fence + 1}))
        return True
