"""Opening the catalog: SQLAlchemy engine, reading and writing transactions, schema version, errors as messages."""

from __future__ import annotations

import shutil
import sqlite3
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, InternalError, NoSuchModuleError, OperationalError

from errata.clock import SYSTEM, Clock
from errata.errors import ErrataError, UsageError, disk_full_error

POSTGRES_DISK_FULL = "53100"
"""PostgreSQL's error code for a full disk."""

SQLITE_FREE_BYTES = 64 * 1024
"""Bytes that SQLite needs to begin: it makes its shared-memory file in pieces of 32 KiB."""

LOCK_TIMEOUT_SECONDS = 60
"""Seconds that a writer waits for the lock of another one before it fails."""

KEEPALIVE_OPTIONS: Mapping[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Options of libpq by which a lost connection to the server is noticed within half a minute instead of a quarter of an
hour. Options in the catalog's URL take precedence."""


@contextmanager
def readable_errors(engine: Engine) -> Iterator[None]:
    """Turn errors of the database's driver that a person can do something about into readable ones."""
    try:
        yield
    except DatabaseError as error:
        if type(error) not in (DatabaseError, OperationalError, InternalError):
            raise  # a wrong statement is a bug in Errata, which the user cannot mend
        if _is_disk_full(engine, error):
            place = engine.url.render_as_string(hide_password=True)
            why = str(error.orig).strip().splitlines()[0]
            raise disk_full_error(place, why, "the disk of the catalog is full") from None
        raise ErrataError(
            "the catalog's database does not answer as it should",
            where=engine.url.render_as_string(hide_password=True),
            why=str(error.orig).strip().splitlines()[0],
            how="check that it is up, reachable and writable (`catalog:` in errata.yaml), and run it again",
        ) from None


def _is_disk_full(engine: Engine, error: DatabaseError) -> bool:
    """Whether the disk of the database is full."""
    told = error.orig
    if isinstance(told, sqlite3.Error):
        code = getattr(told, "sqlite_errorcode", 0)
        if code & 0xFF != sqlite3.SQLITE_IOERR:
            return code == sqlite3.SQLITE_FULL
        # On a full disk SQLite may fail to make its auxiliary files, and reports no more than an I/O error.
        folder = Path(engine.url.database or ".").parent
        return folder.exists() and shutil.disk_usage(folder).free < SQLITE_FREE_BYTES
    return getattr(told, "pgcode", None) == POSTGRES_DISK_FULL


@dataclass(frozen=True, slots=True)
class Catalog:
    """The commit point. Readers see complete commits; a writer's transaction is one commit or nothing."""

    engine: Engine
    clock: Clock

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection that only reads."""
        with readable_errors(self.engine), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[Connection]:
        """One transaction: committed when the block ends, rolled back when it raises. `durable=False` is for rows that
        have no use after the machine stops, as the leases of its processes: SQLite then does not wait for the disk.
        PostgreSQL always does, since its server may stop while those processes go on."""
        writer = self.engine.execution_options(errata_writes=True, errata_durable=durable)
        with readable_errors(self.engine), writer.begin() as connection:
            yield connection

    def close(self) -> None:
        self.engine.dispose()


def open_catalog(url: str, clock: Clock = SYSTEM) -> Catalog:
    """The catalog at the URL, whose tables must be of this version of Errata."""
    catalog = Catalog(make_engine(url), clock)
    try:
        found, wanted = schema_version(catalog), newest_schema_version()
    except ErrataError:
        catalog.close()
        raise
    if found == wanted:
        return catalog
    catalog.close()
    place = url_without_password(url)
    if found is None:
        raise ErrataError("the catalog has no tables yet", where=place, how="run `errata apply`; it makes them")
    raise ErrataError(
        f"the catalog's tables are of version {found}, this Errata works with {wanted}",
        where=place,
        how="run `errata apply` with the newer of the two; it brings older tables up to date",
    )


def schema_version(catalog: Catalog) -> str | None:
    """The version of the tables; None if there are none."""
    # Not read by Alembic, which logs two lines each time; catalogs are opened every few seconds.
    with catalog.reading() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return None
        found: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        return found


@cache
def newest_schema_version() -> str:
    """The version that this Errata needs: the number in the name of the last migration."""
    # Not read by Alembic, whose import takes longer than most commands.
    return max(each.name.partition("_")[0] for each in (migrations_folder() / "versions").glob("[0-9]*_*.py"))


def open_if_current(url: str) -> Catalog | None:
    """The catalog if its tables are up to date; None if `prepare_catalog` has to make or migrate them."""
    catalog = Catalog(make_engine(url), SYSTEM)
    if (file := database_file(url)) is not None and not file.exists():
        return None
    if schema_version(catalog) == newest_schema_version():
        return catalog
    catalog.close()
    return None


def database_file(url: str) -> Path | None:
    """The file of an SQLite catalog; None for another database."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise _invalid_url() from None
    return Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None


def url_without_password(url: str) -> str:
    """The URL without its password, for messages."""
    return make_url(url).render_as_string(hide_password=True)


def make_engine(url: str) -> Engine:
    """The SQLAlchemy engine for the URL, with time zone, timeouts and begin of transactions set up."""
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            if not parsed.database or parsed.database == ":memory:":
                raise UsageError(
                    "a catalog in memory would be gone with the process",
                    where=url,
                    how="name a file: sqlite:///errata.db",
                )
            return _sqlite_engine(url)
        if parsed.get_backend_name() == "postgresql":
            options = f"-c timezone=UTC -c lock_timeout={LOCK_TIMEOUT_SECONDS}s"
            noticed = {name: value for name, value in KEEPALIVE_OPTIONS.items() if name not in parsed.query}
            return create_engine(url, connect_args={"options": options, **noticed}, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ValueError):
        raise _invalid_url() from None
    raise UsageError(
        f"a catalog cannot live in {parsed.get_backend_name()}",
        where=url_without_password(url),
        how="PostgreSQL and SQLite are supported",
    )


def _invalid_url() -> UsageError:
    # The message does not repeat the URL, which may contain a password.
    return UsageError(
        "the catalog's URL cannot be read",
        why="its port is a number, and what is special in a name or a password stands as %XX",
        how="write sqlite:///errata.db or postgresql+psycopg2://user@host:5432/database",
    )


def _sqlite_engine(url: str) -> Engine:
    # The driver would begin a transaction only before a change; it is begun here instead.
    engine = create_engine(url, connect_args={"timeout": LOCK_TIMEOUT_SECONDS, "isolation_level": None})

    def configure(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if options.get("errata_writes", False):
            synchronous = "FULL" if options.get("errata_durable", True) else "NORMAL"
            if connection.info.get("synchronous") != synchronous:
                connection.connection.cursor().execute(f"PRAGMA synchronous={synchronous}")
                connection.info["synchronous"] = synchronous
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            # BEGIN reads no file and cannot fail. Through SQLAlchemy it would take as long as most queries.
            connection.connection.cursor().execute("BEGIN")

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", begin)
    return engine


@cache
def migrations_folder() -> Path:
    """The folder of the catalog's migrations."""
    for base in (Path(__file__).parents[3], Path(sysconfig.get_path("data"), "share", "errata")):
        scripts = base / "sql" / "migrations"
        if (scripts / "env.py").exists():
            return scripts
    raise ErrataError("the catalog's migrations (sql/migrations) are not installed", how="install errata again")
