"""Pins: leases by which readers keep what a commit can see from being removed.

A reader pins first and looks up what it will read behind its pin, never the other way round.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from errata.catalog.database import Catalog
from errata.catalog.tables import head, pins
from errata.errors import ErrataError
from errata.model.time import MINUTE, SECOND

PIN_MICROS = 5 * MINUTE
RENEW_SECONDS = 60.0
JOIN_SECONDS = 0.5


_DELETE_PIN = delete(pins).where(pins.c.pin_id == bindparam("pin")).returning(pins.c.expires_at)


class Pin:
    """A lease on a commit. `check` fails, clearly, once it has been lost."""

    def __init__(self, catalog: Catalog, commit_id: int, holder: str) -> None:
        self._catalog = catalog
        self.commit_id = commit_id
        self.pin_id = uuid.uuid4().hex
        self._lost = threading.Event()
        values = {"pin_id": self.pin_id, "commit_id": commit_id, "holder": holder}
        with catalog.writing() as connection:
            connection.execute(insert(pins).values(values | {"expires_at": catalog.clock.now() + PIN_MICROS}))

    def renew(self) -> bool:
        """Make the lease last from now on; False when it had expired before."""
        now = self._catalog.clock.now()
        alive = (pins.c.pin_id == self.pin_id) & (pins.c.expires_at > now)
        with self._catalog.writing() as connection:
            renewed = connection.execute(update(pins).where(alive).values(expires_at=now + PIN_MICROS)).rowcount
        if not renewed:
            self._lost.set()
        return bool(renewed)

    def check(self) -> None:
        """Raise when the lease ran out while the reader was at work: what it read may have been removed."""
        if self._lost.is_set() or not self.renew():
            raise self.expired

    @property
    def expired(self) -> ErrataError:
        """That what was read may have been removed meanwhile."""
        return ErrataError(
            f"the pin on commit {self.commit_id} has expired",
            why=f"its holder did not renew it within {PIN_MICROS // SECOND} seconds, so its files may be gone",
            how="read again",
        )

    def drop(self) -> bool:
        """Let go of the commit; False when the lease had run out before."""
        with self._catalog.writing() as connection:
            expired = connection.execute(_DELETE_PIN, {"pin": self.pin_id}).scalar()
        return expired is not None and expired > self._catalog.clock.now() and not self._lost.is_set()


@contextmanager
def hold_pin(catalog: Catalog, commit_id: int, holder: str) -> Iterator[Pin]:
    """Keep a commit readable for the time of the block; a thread renews the lease."""
    pin = Pin(catalog, commit_id, holder)
    done = threading.Event()

    def beat() -> None:
        pause = RENEW_SECONDS
        while not done.wait(pause):
            try:
                pin.renew()
                pause = RENEW_SECONDS
            except ErrataError:  # the catalog is away for a moment; the lease lasts longer than that
                pause = RENEW_SECONDS / 10

    heart = threading.Thread(target=beat, name=f"pin-{commit_id}", daemon=True)
    heart.start()
    try:
        try:
            yield pin
        finally:
            done.set()
            # It may be waiting for a catalog that is away, and so would we: the pin then ends by itself.
            heart.join(JOIN_SECONDS)
    except BaseException:
        with suppress(ErrataError):
            pin.drop()
        raise
    if not pin.drop():
        raise pin.expired


def oldest_needed_commit(catalog: Catalog) -> int:
    """The oldest commit that a living pin needs; the newest commit when there is none. Expired pins are cleared."""
    with catalog.writing() as connection:
        oldest = oldest_pinned_locked(connection, catalog.clock.now())
        return int(connection.execute(select(head.c.commit_id)).scalar_one()) if oldest is None else oldest


def drop_expired_pins(catalog: Catalog) -> int:
    """Clear the pins of readers that were killed; how many they were."""
    with catalog.writing() as connection:
        return int(connection.execute(delete(pins).where(pins.c.expires_at <= catalog.clock.now())).rowcount)


def oldest_pinned_commit(connection: Connection, now: int) -> int | None:
    """The oldest commit that a living pin needs, as things are at this moment; None when there is none."""
    return connection.execute(select(func.min(pins.c.commit_id)).where(pins.c.expires_at > now)).scalar()


def oldest_pinned_locked(connection: Connection, now: int) -> int | None:
    """The same, and no pin comes or is renewed before the transaction ends; expired ones are gone for good.

    Whoever removes something in the transaction asks here, after removing and before committing. Then a pin was either
    committed before the lock was had, and is seen; or it comes into being after the commit, and whoever looks up behind
    it sees what was removed. Without the lock PostgreSQL would let a pin commit between our look and our commit, and
    its reader find files in the index that are about to go. SQLite's transactions that write exclude each other anyway.
    A pin that is found expired is deleted, or a holder with a slower clock might renew it.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"LOCK TABLE {pins.name} IN SHARE ROW EXCLUSIVE MODE")
    connection.execute(delete(pins).where(pins.c.expires_at <= now))
    return oldest_pinned_commit(connection, now)
