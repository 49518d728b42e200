"""Opening a catalog: the engine, its two kinds of transaction, and the version of its tables."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, InternalError, NoSuchModuleError, OperationalError

from errata.clock import SYSTEM, Clock
from errata.errors import ErrataError, UsageError

LOCK_PATIENCE = 60
"""Seconds that a writer waits for another one before it gives up."""

NOTICED: Mapping[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Settings of PostgreSQL's library by which a server that is cut off is noticed within half a minute, and not when the
operating system gives up after a quarter of an hour; what the catalog's URL says of them holds."""


@contextmanager
def answering(engine: Engine) -> Iterator[None]:
    """What the database's driver says when it cannot do its part, as an error for a person."""
    try:
        yield
    except DatabaseError as error:
        if type(error) not in (DatabaseError, OperationalError, InternalError):
            raise  # a statement of ours is wrong, and nothing that a person could mend
        raise ErrataError(
            "the catalog's database does not answer as it should",
            where=engine.url.render_as_string(hide_password=True),
            why=str(error.orig).strip().splitlines()[0],
            how="check that it is up, reachable and writable (`catalog:` in errata.yaml), and run it again",
        ) from None


@dataclass(frozen=True, slots=True)
class Catalog:
    """The commit point. Readers see whole commits; a writer's transaction is one commit or nothing."""

    engine: Engine
    clock: Clock

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that only reads."""
        with answering(self.engine), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction: committed whole when the block ends, nothing of it when the block raises."""
        writer = self.engine.execution_options(errata_writes=True)
        with answering(self.engine), writer.begin() as connection:
            yield connection

    def close(self) -> None:
        self.engine.dispose()


def open_catalog(url: str, clock: Clock = SYSTEM) -> Catalog:
    """The catalog at the URL, whose tables must be of this version of Errata."""
    catalog = Catalog(_engine(url), clock)
    try:
        found, wanted = version(catalog), newest_version()
    except ErrataError:
        catalog.close()
        raise
    if found == wanted:
        return catalog
    catalog.close()
    place = shown(url)
    if found is None:
        raise ErrataError("the catalog has no tables yet", where=place, how="run `errata apply`; it makes them")
    raise ErrataError(
        f"the catalog's tables are of version {found}, this Errata works with {wanted}",
        where=place,
        how="run `errata apply` with the newer of the two; it brings older tables up to date",
    )


def version(catalog: Catalog) -> str | None:
    """The version of the tables there are; None for none."""
    # Not by Alembic's own context, which logs two lines each time it is made: catalogs are opened every few seconds.
    with catalog.reading() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        return found


@cache
def newest_version() -> str:
    """The version that this Errata works with."""
    found = ScriptDirectory.from_config(_migrations()).get_current_head()
    if found is None:
        raise AssertionError("there is at least one migration")
    return found


def prepare_catalog(url: str, clock: Clock = SYSTEM) -> Catalog:
    """The catalog at the URL, its tables made or brought up to date first."""
    if make_url(url).get_backend_name() == "sqlite" and (place := make_url(url).database):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
    catalog = Catalog(_engine(url), clock)
    with catalog.writing() as connection:
        if connection.dialect.name == "postgresql":
            # Two that prepare one catalog at once: the second waits and then finds nothing to do.
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(4551)")
        config = _migrations()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return catalog


def peek(url: str) -> Catalog | None:
    """The catalog if its tables are there and up to date; None where `prepare_catalog` has work to do."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").exists():
        return None
    catalog = Catalog(_engine(url), SYSTEM)
    if version(catalog) == newest_version():
        return catalog
    catalog.close()
    return None


def shown(url: str) -> str:
    """The URL as it may be printed: without its password."""
    return make_url(url).render_as_string(hide_password=True)


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            if not parsed.database or parsed.database == ":memory:":
                raise UsageError(
                    "a catalog in memory would be gone with the process",
                    where=url,
                    how="name a file: sqlite:///errata.db",
                )
            return _sqlite(url)
        if parsed.get_backend_name() == "postgresql":
            options = f"-c timezone=UTC -c lock_timeout={LOCK_PATIENCE}s"
            noticed = {name: value for name, value in NOTICED.items() if name not in parsed.query}
            return create_engine(url, connect_args={"options": options, **noticed}, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError):
        raise UsageError(
            "the catalog's URL cannot be read",
            how="write sqlite:///errata.db or postgresql+psycopg2://user@host:5432/database",
        ) from None
    raise UsageError(
        f"a catalog cannot live in {parsed.get_backend_name()}",
        where=shown(url),
        how="PostgreSQL and SQLite are supported",
    )


def _sqlite(url: str) -> Engine:
    # The driver's own transaction handling begins late and only before changes; we begin ourselves.
    engine = create_engine(url, connect_args={"timeout": LOCK_PATIENCE, "isolation_level": None})

    def configure(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("errata_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", begin)
    return engine


def _migrations() -> Config:
    for base in (Path(__file__).parents[3], Path(sysconfig.get_path("data"), "share", "errata")):
        scripts = base / "sql" / "migrations"
        if (scripts / "env.py").exists():
            config = Config()
            config.set_main_option("script_location", str(scripts))
            return config
    raise ErrataError("the catalog's migrations (sql/migrations) are not installed", how="install errata again")
