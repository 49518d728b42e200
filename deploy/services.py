"""Airflow for Errata on this machine: PostgreSQL, Airflow's four services, Spark Connect and a feed, as one thing.

with airflow_here(folder, project=folder / "errata.yaml") as here:
    here.api("GET", "/dags")
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from deploy import connect as spark_connect
from deploy.database import NAME as DATABASE
from deploy.database import Database, forget_database, start_database
from deploy.environment import (
    CATALOG,
    HOUSE,
    METADATA,
    POOL,
    PRELOADED,
    USER,
    airflow_environment,
    base_environment,
    write_shell_environment,
)
from deploy.keeper import Keeper
from deploy.kept import Secrets, kept_password, kept_secrets
from deploy.ports import wanted_port
from deploy.processes import GRACE, LONG, Children, Wait
from deploy.project import example_project
from deploy.rest import NotAnswering, request
from errata.errors import RefusedError

SERVICES = ("api-server", "dag-processor", "triggerer", "scheduler")
FEED = "feed"

_STOPPED = (FEED, "scheduler", "triggerer", "dag-processor"), ("api-server",), (spark_connect.NAME,), (DATABASE,)
"""What is stopped together, in this order: tasks that are broken off stop their Spark jobs and tell the API server."""

_HEALTH = {"scheduler": "scheduler", "dag-processor": "dag_processor", "triggerer": "triggerer"}
"""The services by Airflow's names in its report of health; the API server gives that report."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Here:
    """What runs, and how to speak to it."""

    url: str
    user: str
    password: str
    project: Path
    catalog_url: str | None
    """The embedded database's; None where the project says itself which catalog it has."""
    metadata_url: str
    environ: Mapping[str, str]
    """For processes that are to see what Airflow sees: `airflow …` and `errata …`."""
    children: Children
    keeper: Keeper

    def token(self) -> str:
        """A token for the REST API."""
        made = request(f"{self.url}/auth/token", "POST", {"username": self.user, "password": self.password})
        return str(made["access_token"])

    def api(self, method: str, path: str, body: object = None) -> Any:
        """What the REST API answers, for instance `api("GET", "/dags")`."""
        return request(f"{self.url}/api/v2{path}", method, body, self.token())

    def check(self) -> None:
        """Start again what has ended, and fail when that is of no use: call it every now and then."""
        self.keeper.keep()

    def stop(self, name: str) -> None:
        """Stop one of the services, for instance "triggerer" or "postgresql"; it stays away."""
        self.keeper.forget(name)
        self.children.stop(name)

    def start(self, name: str) -> None:
        """Start one of the services again that has been stopped."""
        self.keeper.forget(name)
        self.children.start_again(name)

    def healthy(self) -> set[str]:
        """The services that are well: the API server answers, the others have lately said that they are alive."""
        try:
            told = request(f"{self.url}/api/v2/monitor/health", "GET")
        except NotAnswering:
            return set()
        return {"api-server"} | {name for name, key in _HEALTH.items() if told[key]["status"] == "healthy"}


@contextmanager
def airflow_here(
    folder: Path,
    *,
    project: Path | None = None,
    port: int = 0,
    feed: bool = False,
    connect: bool = False,
    unpause: bool = True,
    embedded_catalog: bool = True,
    lasting: bool = True,
    environ: Mapping[str, str] | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    say: Say = lambda _: None,
    wait: Wait = time.sleep,
) -> Iterator[Here]:
    """Everything in one folder, up and healthy; stopped again afterwards, the data kept if it is `lasting`.

    Without a project it is the example, copied into the folder. Where the catalog is not embedded the project's own
    declaration holds. What is not `lasting` is made in haste, and its databases are gone afterwards. `settings` are
    variables that Airflow's processes get whatever else is said. `wait` may raise, to break off the start.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with _alone_in(folder):
        children = Children(folder, wait)
        for name in children.clear_up():
            say(f"{name} was left over from a run that was killed, and has been ended")
        try:
            port = wanted_port(port)
            declared = example_project(folder) if project is None else _declared(project)
            base = base_environment(os.environ if environ is None else environ, folder)
            yield _bring_up(
                folder, declared, base, port, children, say,
                feed=feed, connect=connect, unpause=unpause, embedded=embedded_catalog, lasting=lasting,
                settings=settings,
            )  # fmt: skip
        finally:
            _stop_all(children, say)
            if not lasting:
                forget_database(folder)


def _bring_up(
    folder: Path,
    declared: Path,
    base: dict[str, str],
    port: int,
    children: Children,
    say: Say,
    *,
    feed: bool,
    connect: bool,
    unpause: bool,
    embedded: bool,
    lasting: bool,
    settings: Mapping[str, str],
) -> Here:
    secrets = kept_secrets(folder)
    passwords = folder / "passwords.json"
    password = kept_password(passwords, USER)
    database = start_database(children, folder, secrets.database, base, lasting=lasting)
    for name in (CATALOG, METADATA):
        database.make(name)
    say(f"PostgreSQL answers on port {database.port}")
    base["ERRATA_PROJECT"] = str(declared)
    if embedded:
        base["ERRATA_CATALOG"] = database.url(CATALOG)
    connect_port = _begin_connect(children, base, secrets, folder) if connect else None
    environ = airflow_environment(base, folder, database, secrets, passwords, port, unpause=unpause)
    environ |= settings
    _prepare(children, folder, environ, database, say)
    if feed:
        children.start(FEED, [sys.executable, "-m", "deploy.feed", str(declared.parent)], environ, cwd=HOUSE)
    for name in SERVICES[:-1]:
        _start_service(children, name, environ)
    say("Airflow's services are starting")
    here = Here(
        url=f"http://127.0.0.1:{port}",
        user=USER,
        password=password,
        project=declared,
        catalog_url=database.url(CATALOG) if embedded else None,
        metadata_url=database.url(METADATA),
        environ=environ,
        children=children,
        keeper=Keeper(children, lambda: database.answers(METADATA), say),
    )
    children.until(lambda: "api-server" in here.healthy(), "Airflow's API server")
    _make_pool(here)
    if connect_port is not None:
        spark_connect.await_connect(children, connect_port)
        say(f"Spark Connect answers on port {connect_port}")
    _start_service(children, SERVICES[-1], environ)  # last: the first task that it starts speaks to all others
    _await_health(here, say)
    return here


def _begin_connect(children: Children, base: dict[str, str], secrets: Secrets, folder: Path) -> int:
    base[spark_connect.TOKEN] = secrets.spark
    base["ERRATA_SPARK_REMOTE"], port = spark_connect.begin_connect(children, base, folder)
    return port


def _prepare(children: Children, folder: Path, environ: Mapping[str, str], database: Database, say: Say) -> None:
    """The tables of Airflow and the project's declarations, both at once: each is mostly the loading of programs."""
    migrated = folder / "migrated"
    installed = version("apache-airflow")
    known = migrated.exists() and migrated.read_text() == installed and database.has_table(METADATA, "alembic_version")
    if not known:
        say("making Airflow's tables")
        children.start("airflow-db-migrate", ["airflow", "db", "migrate"], environ, lasting=False)
    command = ["errata", "--project", environ["ERRATA_PROJECT"], "apply", "--yes"]
    children.step("errata-apply", command, environ)
    say(f"the project is applied: {environ['ERRATA_PROJECT']}")
    if not known:
        children.finish("airflow-db-migrate")
        migrated.write_text(installed)
    write_shell_environment(folder, environ, database)


def _start_service(children: Children, name: str, environ: Mapping[str, str]) -> None:
    # Logs are read from the disk that all of them share: nobody needs to serve them.
    alone = ["--skip-serve-logs"] if name in ("scheduler", "triggerer") else []
    if name == "scheduler":
        environ = {**PRELOADED, **environ}
    children.start(name, ["airflow", name, *alone], environ, grace=LONG if name == "scheduler" else GRACE)


def _await_health(here: Here, say: Say) -> None:
    """Wait until all services are well, and tell of each. Those of a run that was killed count for half a minute."""
    well: set[str] = set()

    def all_well() -> bool:
        for name in sorted(here.healthy() - well):
            say(f"{name} is well")
            well.add(name)
        return well == set(SERVICES)

    here.children.until(all_well, "Airflow")


def _make_pool(here: Here) -> None:
    """Slots for Spark's jobs: each is a driver with memory of its own. A pool that is there stays as it was made."""
    slots = max(2, (os.cpu_count() or 2) // 2)
    pool = {"name": POOL, "slots": slots, "description": "Spark jobs of Errata that run at once"}
    known = {each["name"] for each in here.api("GET", "/pools")["pools"]}
    if POOL not in known:
        here.api("POST", "/pools", pool)


def _stop_all(children: Children, say: Say) -> None:
    for together in _STOPPED:
        names = [name for name in together if name in children.running]
        if names:
            say(f"stopping {', '.join(names)}")
            children.stop(*names)
    children.stop(*children.running)


def _declared(project: Path) -> Path:
    found = project / "errata.yaml" if project.is_dir() else project
    if not found.is_file():
        raise RefusedError(
            f"there is no project at {project}",
            how="name the project's errata.yaml: make airflow ERRATA_PROJECT=/path/to/errata.yaml",
        )
    return found.absolute()


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(
                f"Airflow is already running in {folder}", how="use that one, or stop it with Ctrl-C"
            ) from None
        yield
