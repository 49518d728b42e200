"""What may pass and what waits for a person, under a real Airflow: the catalog's database away in the middle of an
answer, Spark killed, two replays at once, and a query that stops. Nobody lends a hand, and each is told as often as it
should be."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from errata.errors import ErrataError
from fixtures.airflow_up import Exchange, Key, trades, tried_for

INVERSE = "SELECT symbol, time, 1 / (price - 99) AS r FROM trades"
ONE = datetime(2026, 11, 19, 13, 0, 5, tzinfo=UTC)
"""Later than all trades of the files before, and no later than today."""
AWAY = 8.0
"""Seconds that the catalog's database is away: longer than until the first retry, shorter than all of them."""
OUTAGE, CURRENT = 60.0, 90.0
"""Seconds that PostgreSQL is away, with Airflow's own database, and after which all has to be current again."""
WORK = 25.0
"""Seconds that it takes from landing to the corrected answer: an outage begins at any moment of them."""
MOMENTS = 20


@pytest.fixture(scope="module", autouse=True)
def inverse(up: Exchange) -> None:
    """A query that can stop."""
    up.declare("inverse", INVERSE)


@dataclass
class Ear:
    """Whom the environment names; what was told before is left out."""

    file: Path
    known: int = 0

    @property
    def heard(self) -> list[tuple[str, dict[str, Any]]]:
        return self._all[self.known :]

    def forget(self) -> None:
        self.known = len(self._all)

    @property
    def _all(self) -> list[tuple[str, dict[str, Any]]]:
        return [tuple(json.loads(line)) for line in self.file.read_text().splitlines()] if self.file.exists() else []


@pytest.fixture(scope="module")
def ear(up: Exchange) -> Ear:
    found = Ear(Path(up.here.environ["HEARD_IN"]))
    found.forget()
    return found


def server(up: Exchange, *statements: str) -> None:
    """Ask the server, by way of a database that is not the catalog's."""
    url = up.catalog.engine.url.set(drivername="postgresql", database="postgres").render_as_string(hide_password=False)
    with closing(psycopg2.connect(url)) as connection:
        connection.autocommit = True
        for each in statements:
            with connection.cursor() as cursor:
                cursor.execute(each)


def cut_off(up: Exchange, seconds: float) -> None:
    """The catalog's database ends all connections and refuses new ones for so long."""
    name = up.catalog.engine.url.database
    ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    server(up, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false', ended)
    time.sleep(seconds)
    server(up, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


def awaited(what: Callable[[], bool], words: str) -> None:
    tried_for(lambda: what() or None, words)


@contextmanager
def at_work(up: Exchange, rows: dict[Key, float]) -> Iterator[str]:
    """Rows land, and the answer to them stands still in the middle of its commit: for which run."""
    with up.standing_still("evaluations") as stands:
        up.land(rows)
        stands()
        held = up.rows("SELECT owner FROM leases WHERE owner LIKE 'append/%/answer/%' AND name LIKE 'query %'")
        yield held[0].owner.split("/")[1]


def last_lines(up: Exchange, dag_id: str, run_id: str, task_id: str) -> list[str]:
    """Of each try of a task what its log says last, without Airflow's own marks of where groups begin and end."""
    folder = Path(up.here.environ["AIRFLOW__LOGGING__BASE_LOG_FOLDER"])
    found = []
    for log in sorted(folder.rglob("*.log")):
        if f"dag_id={dag_id}" in str(log) and run_id in str(log) and f"task_id={task_id}" in str(log):
            events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
            said = [each["event"] for each in events if not each["event"].startswith("::")]
            found.append(said[-1])
    return found


def test_a_catalog_that_is_away_in_the_middle_of_an_answer_needs_no_hand_and_no_message(up: Exchange, ear: Ear) -> None:
    with at_work(up, trades(19, range(120, 124))):
        cut_off(up, AWAY)
    up.await_answer()
    awaited(lambda: not up.rows("SELECT 1 FROM leases"), "no lease is left")
    assert ear.heard == []


def test_spark_that_is_killed_is_told_as_that_in_the_last_line_and_tried_again(up: Exchange, ear: Ear) -> None:
    with at_work(up, trades(19, range(180, 183))) as run_id:
        for process in up.jobs("run"):
            if "java" in process.name():
                process.kill()
    up.await_answer()
    killed = "jobs/run.py was killed by signal 9; the kernel does so when memory is short"

    def first() -> str:
        return last_lines(up, "append", run_id, "answer")[0].splitlines()[0]

    # What works without the JVM may have answered before the try that has lost it says its last word.
    awaited(lambda: first() == killed, killed)
    assert ear.heard == []


def test_replays_of_one_query_wait_for_each_other(up: Exchange) -> None:
    conf = {"query": "by_minute", "since": "2026-11-19T11:00", "until": "2026-11-19T11:03"}
    runs = [up.start("replay", conf | {"since": f"2026-11-19T11:0{at}"}) for at in range(2)]
    for run_id in runs:
        up.await_run("replay", run_id)
    tries = {row.try_number for row in up.rows("SELECT try_number FROM commits WHERE dag_id = 'replay'")}
    assert tries <= {1}
    assert [len(last_lines(up, "replay", run_id, "replay")) for run_id in runs] == [1, 1], "none was tried again"


def test_a_query_that_stops_is_told_once_and_fails_no_run(up: Exchange, ear: Ear) -> None:
    up.land({("IBM", ONE): 99.0, ("SUN", ONE.replace(second=20)): 10.0})
    awaited(lambda: len(ear.heard) == 1, "the fault is told")
    kind, told = ear.heard[0]
    assert (kind, told["event"], told["query"]) == ("fault", "stopped", "inverse")
    assert "cannot be computed for the row" in told["words"]
    up.land(trades(19, [241]))
    up.await_answer()
    ended = [run["state"] for run in up.runs("append") if run["state"] in ("success", "failed")]
    assert set(ended) == {"success"}
    assert len(ear.heard) == 1, "and not again"
    up.land({("IBM", ONE): 11.0}, corrections=True)
    awaited(lambda: len(ear.heard) == 2, "it is told that the fault is over")
    over = ear.heard[1][1]
    assert (over["event"], over["fault_id"]) == ("over", told["fault_id"])
    up.await_answer()
    assert len(ear.heard) == 2


def next_trades(up: Exchange) -> dict[Key, float]:
    """Trades of some minutes later that nothing is known of yet."""
    last = max((moment for _, moment in up.trades), default=ONE)
    moment = last.replace(second=0) + timedelta(minutes=10)
    times = [moment + timedelta(minutes=minute) for minute in range(3)]
    return {(symbol, each): 7.0 + each.minute for symbol in ("IBM", "SUN") for each in times}


def answers(up: Exchange) -> bool:
    try:
        return bool(up.rows("SELECT 1"))
    except ErrataError:
        return False


@pytest.mark.long
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_an_outage_at_any_moment_needs_no_hand(up: Exchange, ear: Ear, chance: random.Random, moment: int) -> None:
    before = len(ear.heard)
    up.land(next_trades(up))
    up.await_answer()
    up.land(next_trades(up))
    up.land({chance.choice(sorted(up.trades)): chance.randrange(100, 200) / 2}, corrections=True)
    time.sleep(chance.uniform(0, WORK))
    up.here.stop("postgresql")
    up.land(next_trades(up))  # sources do not know of it
    end = time.monotonic() + OUTAGE
    while time.monotonic() < end:
        up.here.check()
        time.sleep(1)
    up.here.start("postgresql")
    began = time.monotonic()
    awaited(lambda: answers(up), "PostgreSQL answers again")
    up.await_answer()
    print(f"current {time.monotonic() - began:.0f} seconds after the outage's end")
    assert time.monotonic() - began < CURRENT
    assert len(ear.heard) <= before + 1, f"one fault is told once: {ear.heard[before:]}"


def test_nothing_is_left(up: Exchange) -> None:
    awaited(lambda: not up.rows("SELECT 1 FROM leases"), "no lease is left")
    awaited(lambda: not up.jobs("run"), "no job is left")


def test_no_secret_is_in_any_log(up: Exchange) -> None:
    folder = Path(up.here.environ["AIRFLOW__LOGGING__BASE_LOG_FOLDER"])
    secrets = [up.here.password, up.here.environ["AIRFLOW__API_AUTH__JWT_SECRET"], up.here.catalog_url or ""]
    secrets.append(up.catalog.engine.url.password or "")
    for log in folder.rglob("*.log"):
        said = log.read_text(errors="replace")
        assert not [each for each in secrets if each and each in said], log
