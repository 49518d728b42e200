"""Word of what is committed, for those who wait for it: PostgreSQL sends it, of SQLite the newest commit is asked.

Word may be lost, and may come of what matters to nobody: who is woken looks, and also looks now and then unwoken.
"""

from __future__ import annotations

import select as system
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import psycopg2
from sqlalchemy import Connection, func, select

from errata.catalog.open import Catalog
from errata.catalog.tables import head
from errata.errors import ErrataError

CHANNEL = "errata_commits"
"""On which PostgreSQL sends the number of each commit, and an empty word when work is given up."""

PAUSE = 0.5
"""Seconds between two looks at the newest commit, where nobody sends word."""


class Notices(Protocol):
    """Word of commits."""

    def fileno(self) -> int | None:
        """What an event loop can wait on; None where there is nothing but to ask `heard` again and again."""

    def heard(self) -> bool:
        """Whether word has come since this was last asked. It does not wait."""

    def wait(self, seconds: float) -> bool:
        """Wait for word, so long at most; whether it came."""


def tell(connection: Connection, word: str) -> None:
    """Send word with the transaction's commit, where the database can."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_notify(CHANNEL, word)))


@contextmanager
def listening(catalog: Catalog) -> Iterator[Notices]:
    """Word of what is committed from now on. It takes a connection of its own, where the database sends word."""
    if catalog.engine.dialect.name != "postgresql":
        yield _Asked(catalog)
        return
    with catalog.reading() as connection:
        # LISTEN holds from its commit on; after it the driver's own connection is waited on, outside of transactions.
        connection.exec_driver_sql(f"LISTEN {CHANNEL}")
        connection.commit()
        driver: Any = connection.connection.driver_connection
        try:
            yield _Sent(driver)
        finally:
            # Whoever gets the connection next is to hear nothing.
            connection.invalidate()


class _Sent:
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


class _Asked:
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
            time.sleep(min(PAUSE, left))
        return True

    def _newest(self) -> int:
        with self._catalog.reading() as connection:
            return int(connection.execute(select(head.c.commit_id)).scalar_one())
