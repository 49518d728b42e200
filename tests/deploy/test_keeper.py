"""Services that end are started again, within bounds, and it is told. Processes are real, moments are passed in."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deploy.keeper import AWAY_SECONDS, SOON_SECONDS, TRIES, Keeper
from deploy.processes import Children, ProcessEnded

SLEEPING = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"]
BROKEN = [sys.executable, "-c", "raise SystemExit('no such table')"]


class Watched:
    """A keeper, with its clock and its database in hand, and what it has said."""

    def __init__(self, folder: Path) -> None:
        self.children, self.said = Children(folder), list[str]()
        self.time, self.answers = 1000.0, True
        self.keeper = Keeper(self.children, lambda: self.answers, self.said.append, lambda: self.time)

    def pids(self, name: str) -> list[int]:
        return [int(line) for line in (self.children.logs / f"{name}.log").read_text().splitlines()]

    def kept_until(self, ready: Callable[[], object]) -> None:
        """Keep until something is so. Seconds pass only where nothing runs: how long a process takes to start and to
        end does not matter."""
        end = time.monotonic() + 120
        while not ready():
            assert time.monotonic() < end, self.said
            self.keeper.keep()
            if not self.children.running:
                self.time += 1
            time.sleep(0.02)

    def kill(self, name: str, number: int) -> None:
        """Kill what has been started for the nth time, as soon as it is there."""
        self.kept_until(lambda: len(self.pids(name)) == number)
        os.kill(self.pids(name)[-1], signal.SIGKILL)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.children.stop(*made.children.running)


def test_a_service_that_is_killed_is_started_again(watched: Watched) -> None:
    watched.children.start("scheduler", SLEEPING, os.environ)
    watched.kill("scheduler", 1)
    watched.kept_until(lambda: len(watched.pids("scheduler")) == 2)
    assert watched.said == [
        "scheduler has ended: killed by SIGKILL; it is started again in 1 s",
        "scheduler is started again",
    ]


def test_one_that_ends_again_and_again_is_given_up_with_its_reason(watched: Watched) -> None:
    watched.children.start("scheduler", BROKEN, os.environ)
    with pytest.raises(ProcessEnded) as told:
        watched.kept_until(lambda: False)
    assert f"scheduler ends again and again, {TRIES} times" in str(told.value)
    assert "| no such table" in str(told.value)
    pauses = [line.split("again in ")[1] for line in watched.said if "again in" in line]
    assert pauses == ["1 s", "2 s", "4 s", "8 s", "16 s"]


def test_one_that_was_well_for_a_while_has_all_its_tries_again(watched: Watched) -> None:
    watched.children.start("scheduler", SLEEPING, os.environ)
    for number in range(1, TRIES + 3):
        watched.kill("scheduler", number)
        watched.time += SOON_SECONDS
    watched.kept_until(lambda: len(watched.pids("scheduler")) == TRIES + 3)
    assert {line for line in watched.said if "again in" in line} == {
        "scheduler has ended: killed by SIGKILL; it is started again in 1 s"
    }


def test_while_the_database_is_away_nothing_is_tried_and_nothing_counts(watched: Watched) -> None:
    watched.children.start("scheduler", SLEEPING, os.environ)
    for number in range(1, TRIES + 3):
        watched.kept_until(lambda: len(watched.pids("scheduler")) == number)  # noqa: B023 - called at once
        watched.answers = False
        watched.kill("scheduler", number)
        watched.kept_until(lambda: watched.children.running == [])
        for _ in range(20):
            watched.keeper.keep()
            watched.time += 1
        assert watched.children.running == []
        watched.answers = True
    watched.kept_until(lambda: len(watched.pids("scheduler")) == TRIES + 3)
    assert watched.said[:2] == [
        "PostgreSQL does not answer",
        "scheduler has ended: killed by SIGKILL; it is started again when PostgreSQL answers",
    ]
    assert watched.said[2].startswith("PostgreSQL answers again, after 2")
    assert watched.said[3] == "scheduler is started again"


def test_the_database_itself_is_started_again(watched: Watched) -> None:
    watched.children.start("postgresql", SLEEPING, os.environ)
    watched.kill("postgresql", 1)
    watched.answers = False
    watched.kept_until(lambda: len(watched.pids("postgresql")) == 2)


def test_a_database_that_stays_away_ends_all(watched: Watched) -> None:
    watched.children.start("scheduler", SLEEPING, os.environ)
    watched.answers = False
    watched.kill("scheduler", 1)
    watched.kept_until(lambda: watched.children.running == [])
    watched.time += AWAY_SECONDS
    with pytest.raises(ProcessEnded, match="PostgreSQL has not answered for 10 minutes"):
        watched.keeper.keep()


def test_what_somebody_stops_stays_away(watched: Watched) -> None:
    watched.children.start("triggerer", SLEEPING, os.environ)
    watched.children.stop("triggerer")
    watched.time += 100
    watched.keeper.keep()
    assert (watched.said, watched.children.running) == ([], [])
