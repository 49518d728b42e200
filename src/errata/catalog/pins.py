"""Pins: leases by which a reader keeps the files of a commit from being removed.

A reader first inserts its pin and then looks up what it will read, never the other way round. Vacuum looks at the pins
as its last step, under a lock (`oldest_pinned_locked`), so it sees every pin that came before its commit.
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
"""Microseconds that a pin lasts unless it is renewed: as long a killed reader holds files back."""

RENEW_SECONDS = 60.0
"""Seconds between two renewals; a fifth of the term, so that a short outage of the catalog does no harm."""

JOIN_SECONDS = 0.5
"""Seconds to wait for the renewing thread when the block ends."""

_DELETE_PIN = delete(pins).where(pins.c.pin_id == bindparam("pin")).returning(pins.c.expires_at)


class Pin:
    """A lease on a commit. `check` raises an error once it has been lost."""

    def __init__(self, catalog: Catalog, commit_id: int, holder: str) -> None:
        self._catalog = catalog
        self.commit_id = commit_id
        self.pin_id = uuid.uuid4().hex
        self._lost = threading.Event()
        values = {"pin_id": self.pin_id, "commit_id": commit_id, "holder": holder}
        with catalog.writing(durable=False) as connection:
            connection.execute(insert(pins).values(values | {"expires_at": catalog.clock.now() + PIN_MICROS}))

    def renew(self) -> bool:
        """Extend the lease from now on; False when it had expired before."""
        now = self._catalog.clock.now()
        alive = (pins.c.pin_id == self.pin_id) & (pins.c.expires_at > now)
        with self._catalog.writing(durable=False) as connection:
            renewed = connection.execute(update(pins).where(alive).values(expires_at=now + PIN_MICROS)).rowcount
        if not renewed:
            self._lost.set()
        return bool(renewed)

    def check(self) -> None:
        """Raise if the lease has expired since: files that were read may have been removed."""
        if self._lost.is_set() or not self.renew():
            raise self.expired

    @property
    def expired(self) -> ErrataError:
        """The error that files that were read may have been removed."""
        return ErrataError(
            f"the pin on commit {self.commit_id} has expired",
            why=f"its holder did not renew it within {PIN_MICROS // SECOND} seconds, so its files may be gone",
            how="read again",
        )

    def drop(self) -> bool:
        """Give up the lease; False when it had expired before."""
        with self._catalog.writing(durable=False) as connection:
            expired = connection.execute(_DELETE_PIN, {"pin": self.pin_id}).scalar()
        return expired is not None and expired > self._catalog.clock.now() and not self._lost.is_set()


@contextmanager
def hold_pin(catalog: Catalog, commit_id: int, holder: str) -> Iterator[Pin]:
    """Keep a commit readable until the block ends; a thread renews the lease."""
    pin = Pin(catalog, commit_id, holder)
    done = threading.Event()

    def beat() -> None:
        pause = RENEW_SECONDS
        while not done.wait(pause):
            try:
                pin.renew()
                pause = RENEW_SECONDS
            except ErrataError:  # a short outage of the catalog; the lease lasts longer
                pause = RENEW_SECONDS / 10

    heart = threading.Thread(target=beat, name=f"pin-{commit_id}", daemon=True)
    heart.start()
    try:
        try:
            yield pin
        finally:
            done.set()
            # The thread may wait for a catalog that does not answer; the pin then expires by itself.
            heart.join(JOIN_SECONDS)
    except BaseException:
        with suppress(ErrataError):
            pin.drop()
        raise
    if not pin.drop():
        raise pin.expired


def oldest_needed_commit(catalog: Catalog) -> int:
    """The oldest commit that a living pin needs; the newest commit when there is none. Expired pins are cleared."""
    with catalog.writing(durable=False) as connection:
        oldest = oldest_pinned_locked(connection, catalog.clock.now())
        return int(connection.execute(select(head.c.commit_id)).scalar_one()) if oldest is None else oldest


def drop_expired_pins(catalog: Catalog) -> int:
    """Delete the pins of readers that were killed, and return their number."""
    with catalog.writing(durable=False) as connection:
        return int(connection.execute(delete(pins).where(pins.c.expires_at <= catalog.clock.now())).rowcount)


def oldest_pinned_commit(connection: Connection, now: int) -> int | None:
    """The oldest commit that a living pin needs now; None when there is none."""
    return connection.execute(select(func.min(pins.c.commit_id)).where(pins.c.expires_at > now)).scalar()


def oldest_pinned_locked(connection: Connection, now: int) -> int | None:
    """The same, and no pin is inserted or renewed before the transaction ends; expired pins are deleted.

    A transaction that removes something calls this after removing and before committing. A pin was then either
    committed before the lock was taken, and is seen; or it is inserted after the commit, and its reader sees what was
    removed. Without the lock PostgreSQL would let a pin commit between this look and the commit, and its reader would
    find files in the index that are about to be removed. Writing transactions of SQLite exclude each other anyway.
    Expired pins are deleted here, or a holder with a slower clock might renew one.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"LOCK TABLE {pins.name} IN SHARE ROW EXCLUSIVE MODE")
    connection.execute(delete(pins).where(pins.c.expires_at <= now))
    return oldest_pinned_commit(connection, now)
