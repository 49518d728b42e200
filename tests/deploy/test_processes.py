"""Processes are watched, end with all that they have begun, and are found again after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from deploy.processes import Children, ProcessEnded

HOUSE = Path(__file__).resolve().parents[2]
PATIENCE = 90.0
"""Seconds after which something that is to happen by itself has not happened, also on a busy machine."""
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


# Like Airflow's scheduler: workers forked from it that do not mind SIGTERM and write a title over their environment.
# It says its own number and those of its workers.
SCHEDULER = """
import multiprocessing, os, signal, time
import setproctitle
def work():
    signal.signal(signal.SIGTERM, lambda *_: None)
    setproctitle.setproctitle("worker")
    ready.release()
    while True:
        time.sleep(600)
ready = multiprocessing.Semaphore(0)
workers = [multiprocessing.get_context("fork").Process(target=work) for _ in range(3)]
for each in workers:
    each.start()
for each in workers:
    ready.acquire()
print(os.getpid(), *(each.pid for each in workers), flush=True)
time.sleep(600)
"""

# A grandchild in a session of its own, whose parent is gone.
DAEMON = """
import os, signal, subprocess, sys, time
inner = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
outer = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {inner!r}], start_new_session=True)"
subprocess.run([sys.executable, "-c", outer])
time.sleep(600)
"""

# Whoever starts services, as a process that can be killed.
SUPERVISOR = """
import os, sys
from pathlib import Path
from deploy.processes import Children
children = Children(Path(sys.argv[1]))
children.start("scheduler", [sys.executable, "-c", sys.argv[2]], os.environ)
print("started", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    made = Children(tmp_path)
    yield made
    made.stop(*made.running)


def said(children: Children, name: str) -> str:
    """The first line that a process has written."""
    log = children.logs / f"{name}.log"
    children.until(lambda: log.read_text().endswith("\n"), name, patience=PATIENCE)
    return log.read_text().splitlines()[0]


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def kill_with_guard(guard: int, command: int, *others: int) -> None:
    """Kill a command and its guard at one instant. The guard stands still meanwhile: otherwise it would end what is
    left of the command, and its own end would end the command before that is killed."""
    os.kill(guard, signal.SIGSTOP)
    until(lambda: psutil.Process(guard).status() == psutil.STATUS_STOPPED, "the guard stands still")
    for pid in (command, guard, *others):
        kill(pid)


def await_end(*pids: int) -> None:
    """Wait until processes have ended that are not our children."""
    until(lambda: not any(map(alive, pids)), f"{pids} have ended")


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.02)


def guard_of(folder: Path, name: str) -> int:
    return int(json.loads((folder / "running.json").read_text())[name][0])


def test_who_ends_is_told_with_the_end_of_its_log(children: Children) -> None:
    children.start("sleeper", SLEEPING, os.environ)
    children.check()
    children.start("broken", [sys.executable, "-c", "print('no such table'); raise SystemExit(3)"], os.environ)
    with pytest.raises(ProcessEnded) as told:
        children.until(lambda: False, "nothing", patience=PATIENCE)
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


def test_what_a_killed_process_had_begun_ends_although_it_ignores_sigterm(children: Children) -> None:
    children.start("scheduler", [sys.executable, "-c", SCHEDULER], os.environ)
    scheduler, *workers = map(int, said(children, "scheduler").split())
    kill(scheduler)
    await_end(*workers)
    with pytest.raises(ProcessEnded, match="scheduler has ended: killed by SIGKILL"):
        children.until(lambda: False, "nothing", patience=PATIENCE)
    children.stop("scheduler")


def test_orphans_in_sessions_of_their_own_end_as_well(children: Children) -> None:
    children.start("outer", [sys.executable, "-c", DAEMON], os.environ)
    orphan = int(said(children, "outer"))
    assert os.getsid(orphan) == orphan
    children.stop("outer")
    assert not alive(orphan)


def test_nothing_is_left_where_the_guard_was_killed_too(children: Children, tmp_path: Path) -> None:
    children.start("scheduler", [sys.executable, "-c", SCHEDULER], os.environ)
    scheduler, *workers = map(int, said(children, "scheduler").split())
    kill_with_guard(guard_of(tmp_path, "scheduler"), scheduler)
    with pytest.raises(ProcessEnded):
        children.until(lambda: False, "nothing", patience=PATIENCE)
    assert list(children.take_ended()) == ["scheduler"]
    assert [each for each in (scheduler, *workers) if alive(each)] == []
    assert children.running == []


def test_a_killed_guard_takes_its_command_along(children: Children, tmp_path: Path) -> None:
    children.start(
        "outer", [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"], os.environ
    )
    command = int(said(children, "outer"))
    kill(guard_of(tmp_path, "outer"))
    await_end(command)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", SUPERVISOR, str(tmp_path), SCHEDULER]
    with subprocess.Popen(command, cwd=HOUSE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        yield process
        process.kill()


def test_services_end_when_who_started_them_is_killed(tmp_path: Path, supervisor: subprocess.Popen[str]) -> None:
    after = Children(tmp_path)
    services = list(map(int, said(after, "scheduler").split()))
    supervisor.kill()
    await_end(*services, guard_of(tmp_path, "scheduler"))
    assert after.clear_up() == []


def test_the_next_start_ends_workers_whose_guard_was_killed(tmp_path: Path, supervisor: subprocess.Popen[str]) -> None:
    after = Children(tmp_path)
    scheduler, *workers = map(int, said(after, "scheduler").split())
    kill_with_guard(guard_of(tmp_path, "scheduler"), scheduler, supervisor.pid)
    supervisor.wait()
    assert all(map(alive, workers))
    assert after.clear_up() == ["scheduler"]
    assert not any(map(alive, workers))


def test_what_was_stopped_is_started_again_in_the_same_way(children: Children) -> None:
    children.start("outer", [sys.executable, "-c", STUBBORN], os.environ)
    first = said(children, "outer")
    children.stop("outer")
    children.start_again("outer")
    log = children.logs / "outer.log"
    children.until(lambda: len(log.read_text().splitlines()) == 2, "the second", patience=PATIENCE)
    assert alive(int(log.read_text().splitlines()[1]))
    assert log.read_text().splitlines()[0] == first
    assert children.running == ["outer"]


def test_what_cannot_be_started_says_so(children: Children) -> None:
    with pytest.raises(ProcessEnded, match=r"no such program cannot be started: .*No such file"):
        children.step("absent", ["no such program"], os.environ)


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
    (pid, began, _) = json.loads((tmp_path / "running.json").read_text())["left"]
    assert alive(pid)
    assert Children(tmp_path).clear_up() == ["left"]
    assert not alive(pid)
    assert not (tmp_path / "running.json").exists()
    assert began <= time.time()


def test_a_number_that_another_process_has_now_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "running.json").write_text(json.dumps({"scheduler": [os.getpid(), 1.0], "gone": [2**22 + 1, 1.0]}))
    assert Children(tmp_path).clear_up() == []
