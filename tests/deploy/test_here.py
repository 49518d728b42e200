"""`make airflow` as a person has it: the process itself, with the example, through what goes wrong on a machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg2
import pytest
from deploy.database import forget_database
from deploy.rest import NotAnswering, request

from errata.errors import ErrataError

HOUSE = Path(__file__).resolve().parents[2]
UPKEEP = ("age_out", "compact", "doctor", "vacuum")
PATIENCE = 300.0
"""Seconds after which something that is to happen by itself has not happened, also on a busy machine."""


@dataclass
class Running:
    """A `make airflow` that runs in a folder."""

    folder: Path
    process: subprocess.Popen[bytes]
    began: datetime

    @property
    def said(self) -> str:
        return (self.folder.parent / "said").read_text()

    def awaited(self, ready: Callable[[], object], what: str) -> Any:
        """Look until there is something. Where the API server does not answer there is nothing yet."""

        def look() -> object:
            try:
                return ready()
            except NotAnswering:
                return None

        end = time.monotonic() + PATIENCE
        while not (found := look()):
            assert self.process.poll() is None, f"it has ended\n{self.said}"
            assert time.monotonic() < end, f"still not: {what}\n{self.said}"
            time.sleep(0.1)
        return found

    def shell(self, command: str) -> str:
        """What a command prints in a shell that has nothing but the file that is to be sourced."""
        home = self.folder.parent / "home"
        home.mkdir(exist_ok=True)
        done = subprocess.run(
            ["/bin/sh", "-c", f". {self.folder}/environment && {command}"],
            env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
            cwd=home,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def variable(self, name: str) -> str:
        found = re.search(rf"^export {name}=(.*)$", (self.folder / "environment").read_text(), re.MULTILINE)
        assert found is not None, name
        return found[1].strip("'")

    def api(self, path: str) -> Any:
        url = self.variable("AIRFLOW__API__BASE_URL")
        user, password = next(iter(json.loads((self.folder / "passwords.json").read_text()).items()))
        token = request(f"{url}/auth/token", "POST", {"username": user, "password": password})["access_token"]
        return request(f"{url}/api/v2{path}", "GET", token=token)

    def is_well(self) -> bool:
        health = self.api("/monitor/health")
        names = ("metadatabase", "scheduler", "dag_processor", "triggerer")
        return all(health[name]["status"] == "healthy" for name in names)

    def service(self, name: str) -> psutil.Process:
        """The process of a service, below its guard."""
        guard = json.loads((self.folder / "running.json").read_text())[name][0]
        return self.awaited(lambda: psutil.Process(guard).children(), name)[0]

    def database(self) -> psycopg2.extensions.connection:
        url, _, _ = self.variable("ERRATA_CATALOG").replace("+psycopg2", "").rpartition("/")
        connection = psycopg2.connect(f"{url}/postgres")
        connection.autocommit = True
        return connection


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = tmp_path_factory.mktemp("here")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "ERRATA"))}
    command = [sys.executable, "-m", "deploy.here", "--folder", str(place / "airflow")]
    with (place / "said").open("wb") as out:
        process = subprocess.Popen(command, cwd=HOUSE, env=environ | {"PORT": "0"}, stderr=out, start_new_session=True)
    found = Running(place / "airflow", process, datetime.now(UTC))
    try:
        found.awaited(lambda: re.search(r"\d+ DAGs are read", found.said), "it is up")
        yield found
    finally:
        process.terminate()
        process.wait(PATIENCE)
        forget_database(found.folder)


def test_a_shell_that_sources_the_environment_has_airflow_and_its_database(running: Running) -> None:
    listed = json.loads(running.shell("airflow dags list --output json").splitlines()[-1])
    assert {"append", "replay"} <= {each["dag_id"] for each in listed}
    assert running.shell("airflow config get-value database sql_alchemy_conn").strip().endswith("/airflow")
    assert not (running.folder.parent / "home" / "airflow").exists()
    assert "quotes" in running.shell("errata status")
    modes = {name: (running.folder / name).stat().st_mode & 0o777 for name in ("environment", "pgpass")}
    assert set(modes.values()) == {0o600}, modes


def test_the_documented_dump_is_that_of_the_servers_own_version(running: Running) -> None:
    (line,) = re.findall(r'^    (pg_dump .*?"\$CATALOG")', (HOUSE / "docs" / "operations.md").read_text(), re.MULTILINE)
    saved = running.shell(f"{line} && pg_restore --list errata.dump")
    assert re.search(r"TABLE DATA public commits ", saved)
    assert running.shell("pg_dump --version").split()[-1] == running.shell("postgres --version").split()[-1]


def test_a_token_that_is_not_valid_is_told_with_how_to_get_another(running: Running) -> None:
    with pytest.raises(ErrataError, match="the token is not valid or has expired") as told:
        request(f"{running.variable('AIRFLOW__API__BASE_URL')}/api/v2/dags", "GET", token="no.such.token")
    assert "POST /auth/token" in str(told.value)


def test_a_wrong_password_is_told_with_where_the_right_one_is(running: Running) -> None:
    guess = {"username": "admin", "password": "a guess"}
    with pytest.raises(ErrataError, match="the user or the password is wrong") as told:
        request(f"{running.variable('AIRFLOW__API__BASE_URL')}/auth/token", "POST", guess)
    assert "passwords.json" in str(told.value)


def test_a_first_start_leaves_upkeep_to_its_hours(running: Running) -> None:
    running.awaited(lambda: running.api("/dags/append/dagRuns")["dag_runs"], "what lands starts `append`")
    runs = [run for name in UPKEEP for run in running.api(f"/dags/{name}/dagRuns")["dag_runs"]]
    # A tick that is less than a minute old, or comes while this runs, is no matter of starting.
    assert [
        run for run in runs if datetime.fromisoformat(run["run_after"]) < running.began - timedelta(minutes=1)
    ] == []


def test_a_killed_scheduler_leaves_no_worker_and_is_started_again(running: Running) -> None:
    scheduler = running.service("scheduler")
    workers = running.awaited(lambda: scheduler.children(recursive=True), "its workers")
    scheduler.kill()
    gone, left = psutil.wait_procs(workers, timeout=PATIENCE)
    assert (len(gone), left) == (len(workers), [])
    running.awaited(lambda: "scheduler is started again" in running.said, "the scheduler is started again")
    assert "scheduler has ended: killed by SIGKILL; it is started again in 1 s" in running.said
    running.awaited(lambda: running.service("scheduler").children(), "the new one has workers")


def test_twenty_seconds_without_postgresql_end_nothing(running: Running) -> None:
    running.awaited(running.is_well, "all is well before")
    with closing(running.database()) as connection, connection.cursor() as cursor:
        cursor.execute("ALTER DATABASE airflow ALLOW_CONNECTIONS false")
        end = time.monotonic() + 20

        def away_for_long() -> bool:
            cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'airflow'")
            return time.monotonic() > end and "PostgreSQL does not answer" in running.said

        running.awaited(away_for_long, "somebody has noticed")
        cursor.execute("ALTER DATABASE airflow ALLOW_CONNECTIONS true")
    restored = datetime.now(UTC)
    running.awaited(running.is_well, "all is well again")

    def beats() -> bool:
        health = running.api("/monitor/health")
        kinds = ("scheduler", "dag_processor", "triggerer")
        return all(datetime.fromisoformat(health[each][f"latest_{each}_heartbeat"]) > restored for each in kinds)

    running.awaited(beats, "all services have told that they live")
    words = "PostgreSQL answers again"
    running.awaited(lambda: re.search(rf"{words}, after \d+ s", running.said), words)


def test_a_killed_postgresql_is_started_again_with_its_data(running: Running) -> None:
    said = len(running.said)
    running.service("postgresql").kill()
    running.awaited(lambda: "postgresql is started again" in running.said[said:], "PostgreSQL is started again")
    running.awaited(running.is_well, "all is well again")
    assert running.api("/dags/append/dagRuns")["dag_runs"]


def test_ctrl_c_stops_all_of_it(running: Running) -> None:
    came_of_it = psutil.Process(running.process.pid).children(recursive=True)
    running.process.send_signal(signal.SIGINT)
    assert running.process.wait(PATIENCE) == 0
    assert [each for each in came_of_it if each.is_running()] == []
    assert "all is stopped" in running.said
    assert "Traceback" not in running.said
