"""Processes are watched, end with all that they have begun, and are found again after a kill."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from deploy.processes import Children, ProcessEnded

SLEEPING = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]

# Like a task of Airflow: a grandchild in a process group of its own, that does not mind SIGTERM.
STUBBORN = """
import signal, subprocess, sys, time
inner = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", inner], process_group=0, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    made = Children(tmp_path)
    yield made
    made.stop(*made.running)


def said(children: Children, name: str) -> str:
    """The first line that a process has written."""
    log = children.logs / f"{name}.log"
    children.until(lambda: log.read_text().endswith("\n"), name, patience=20)
    return log.read_text().splitlines()[0]


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_who_ends_is_told_with_the_end_of_its_log(children: Children) -> None:
    children.start("sleeper", SLEEPING, os.environ)
    children.check()
    children.start("broken", [sys.executable, "-c", "print('no such table'); raise SystemExit(3)"], os.environ)
    with pytest.raises(ProcessEnded) as told:
        children.until(lambda: False, "nothing", patience=20)
    assert "broken has ended: exit code 3" in str(told.value)
    assert "| no such table" in str(told.value)
    assert "broken.log" in str(told.value)


def test_a_step_ends_and_is_no_longer_watched(children: Children) -> None:
    children.start("first", [sys.executable, "-c", "pass"], os.environ, lasting=False)
    children.step("second", [sys.executable, "-c", "pass"], os.environ)
    children.finish("first")
    assert children.running == []
    with pytest.raises(ProcessEnded, match="third has ended: exit code 1"):
        children.step("third", [sys.executable, "-c", "raise SystemExit(1)"], os.environ)


def test_what_takes_too_long_is_ended(children: Children) -> None:
    children.start("slow", SLEEPING, os.environ, lasting=False)
    with pytest.raises(ProcessEnded, match="slow has not ended after 0 seconds"):
        children.finish("slow", patience=0)
    assert children.running == []


def test_what_was_begun_by_it_ends_with_it(children: Children) -> None:
    children.start("outer", [sys.executable, "-c", STUBBORN], os.environ)
    inner = int(said(children, "outer"))
    assert alive(inner)
    children.stop("outer")
    assert not alive(inner)
    assert children.running == []


def test_an_interruption_while_waiting_reaches_who_waits(tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    def wait(seconds: float) -> None:
        raise Broken

    children = Children(tmp_path, wait)
    children.start("slow", SLEEPING, os.environ, lasting=False)
    with pytest.raises(Broken):
        children.finish("slow")
    children.stop("slow")


def test_what_a_killed_run_left_is_ended_by_the_next(children: Children, tmp_path: Path) -> None:
    children.start("left", SLEEPING, os.environ)
    said(children, "left")
    (pid, began) = json.loads((tmp_path / "running.json").read_text())["left"]
    assert alive(pid)
    assert Children(tmp_path).clear_up() == ["left"]
    assert not alive(pid)
    assert not (tmp_path / "running.json").exists()
    assert began <= time.time()


def test_a_number_that_another_process_has_now_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "running.json").write_text(json.dumps({"scheduler": [os.getpid(), 1.0], "gone": [2**22 + 1, 1.0]}))
    assert Children(tmp_path).clear_up() == []
