"""A program beside each service: runs one command, keeps its log, and ends everything that came of it.

    supervisor ──stdin──> guard ──> command ──> workers ──> tasks, Spark
                            ^                      │
                            └── orphans ───────────┘

A process whose parent is killed goes to the nearest ancestor that adopts orphans, which on Linux is the guard
(PR_SET_CHILD_SUBREAPER). So the guard sees everything that the command ever started, also after `kill -9` of that.
Invariant: when the guard has ended, nothing of the command is left, unless the guard itself was killed with -9; then
`left_over` finds the rest.

It ends the command when it is asked to (SIGTERM), and when its standard input closes: then whoever started it is gone,
however that came about. It ends as the command has ended: with its exit code, or by the same signal.

It imports no module of the project, since it runs isolated from everything that its environment says to Python.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

import psutil

MARK = "ERRATA_SERVICE"
"""The variable that names the start a process came of; what that start has left behind is recognised by it."""

LOG_BYTES, LOG_FILES = 10_000_000, 5
"""A log begins anew at this size; so many older ones are kept beside it, as NAME.log.1 (the newest) and so on."""

_REMIND_SECONDS = 5.0
"""After this many seconds of ending everything is asked once more: a task that was just starting its Spark job when it
was asked first has not heard it."""

_LEFT_SECONDS = 2.0
"""What outlives the command is asked to end, and killed after this many seconds."""

_GIVE_UP_SECONDS = 10.0
"""What not even SIGKILL ends after this many seconds hangs in the kernel, and is left to it."""

_TICK = 0.1
_CHUNK = 65_536
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True, slots=True)
class Order:
    """What a guard is to run, and how it is to end it."""

    command: list[str]
    log: str
    cwd: str
    farewell: int
    """The signal that asks the command to end."""
    alone: bool
    """Whether only the command itself is asked, since it tells its own children."""
    grace: float
    """Seconds that the command may take to end by itself."""
    user: int | None = None
    group: int | None = None
    log_bytes: int = LOG_BYTES
    log_files: int = LOG_FILES


class RotatingLog:
    """A file that is appended to, and put aside when it has grown large."""

    def __init__(self, path: Path, size: int, files: int) -> None:
        self._path, self._size, self._files = path, size, files
        self._file = self._path.open("ab", buffering=0)

    def write(self, data: bytes) -> None:
        try:
            if self._file.tell() + len(data) > self._size and self._file.tell():
                head, newline, data = data.partition(b"\n")
                self._file.write(head + newline)
                if newline:  # no line is in two files
                    self._rotate()
            self._file.write(data)
        except OSError:
            return  # the disk is full: the service goes on without these lines

    def _rotate(self) -> None:
        self._file.close()
        for number in range(self._files, 0, -1):
            older = aside(self._path, number - 1)
            if older.exists():
                older.replace(aside(self._path, number))
        self._file = self._path.open("ab", buffering=0)


def aside(log: Path, number: int) -> Path:
    """The name of a log after it has been put aside so many times."""
    return log.with_name(f"{log.name}.{number}") if number else log


class Guard:
    """One command, from its start until nothing of it is left."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._log = RotatingLog(Path(order.log), order.log_bytes, order.log_files)
        self._asked = False
        """Whether the command is to end."""
        self._code: int | None = None
        """How the command has ended."""
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Run the command; its exit code, less than 0 where a signal has ended it."""
        self._listen()
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            self._process = self._start()
        except OSError as error:
            self._log.write(f"{self._order.command[0]} cannot be started: {error}\n".encode())
            return 127
        while self._code is None and not self._asked:
            self._turn(None)
        code = self._end()
        self._clear()
        self._drain()
        return code

    def _start(self) -> subprocess.Popen[bytes]:
        order = self._order
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        try:
            process = subprocess.Popen(  # noqa: S603
                order.command,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                cwd=order.cwd,
                user=order.user,
                group=order.group,
                extra_groups=None if order.user is None else [],
                process_group=0,  # in this session, in a group of its own that can be told at once
                preexec_fn=partial(_die_with, os.getpid(), order.farewell),  # noqa: PLW1509 - there is one thread
            )
        finally:
            os.close(writing)
        self._selector.register(reading, selectors.EVENT_READ, self._copy)
        return process

    def _listen(self) -> None:
        waking, woken = os.pipe()
        for end in (waking, woken):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(woken)
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, self._ask)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it only wakes
        self._selector.register(waking, selectors.EVENT_READ, lambda end: os.read(end, _CHUNK))
        self._selector.register(0, selectors.EVENT_READ, self._hear_supervisor)

    def _hear_supervisor(self, end: int) -> None:
        if not os.read(end, _CHUNK):
            self._selector.unregister(end)
            self._asked = True

    def _copy(self, end: int) -> None:
        if data := os.read(end, _CHUNK):
            self._log.write(data)
        else:
            self._selector.unregister(end)

    def _ask(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._asked = True

    def _turn(self, timeout: float | None) -> None:
        """Wait for something to happen, and see to it."""
        for key, _ in self._selector.select(timeout):
            act: Callable[[int], object] = key.data
            act(key.fd)
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._process.pid:
                self._code = self._process.returncode = os.waitstatus_to_exitcode(status)

    def _end(self) -> int:
        """Bring on the end of the command, if it has not come: ask, remind now and then, and in the end kill."""
        began = reminded = time.monotonic()
        if self._code is None:
            tell = os.kill if self._order.alone else os.killpg
            tell(self._process.pid, self._order.farewell)
        while self._code is None:
            now = time.monotonic()
            if now - began > self._order.grace:
                self._process.kill()
            elif now - reminded > _REMIND_SECONDS:
                reminded = now
                if not self._order.alone:
                    send(family(), signal.SIGTERM)
            self._turn(_TICK)
        return self._code

    def _clear(self) -> None:
        """End what the command has left behind."""
        began = time.monotonic()
        send(family(), signal.SIGTERM)
        while left := family():
            since = time.monotonic() - began
            if since > _LEFT_SECONDS + _GIVE_UP_SECONDS:
                self._log.write(f"cannot be ended: {sorted(each.pid for each in left)}\n".encode())
                return
            if since > _LEFT_SECONDS:
                send(left, signal.SIGKILL)
            self._turn(_TICK)

    def _drain(self) -> None:
        """Copy what the command has said and nobody has read yet."""
        for key in list(self._selector.get_map().values()):
            if key.data == self._copy:
                try:
                    while data := os.read(key.fd, _CHUNK):
                        self._log.write(data)
                except BlockingIOError:
                    continue  # somebody who could not be ended has it still open


def family() -> set[psutil.Process]:
    """All that has come of this process and is alive: its descendants, and its session where it leads one."""
    own, session = os.getpid(), os.getsid(0)
    found = set(psutil.Process().children(recursive=True))
    if session == own:
        found |= {each for each in psutil.process_iter() if each.pid != own and _session(each.pid) == session}
    return {each for each in found if is_alive(each)}


def left_over(pid: int, began: float, token: str) -> set[psutil.Process]:
    """What is left of a guard that has been killed: it had this number, since that moment, and gave this mark.

    A process that carries the mark is certainly one. So is one in the guard's session that has written its title over
    its own environment, as Airflow's workers do, unless that session is a younger one of somebody else.
    """
    if psutil.pid_exists(pid) and abs(psutil.Process(pid).create_time() - began) > 1:
        pid = 0  # the number is somebody else's now, and so is a session of that number
    found = set()
    for process in psutil.process_iter():
        mark = _mark(process)
        if (token and mark == token) or (
            pid and mark is None and _session(process.pid) == pid and process.create_time() >= began - 1
        ):
            found.add(process)
    return {each for each in found if each.pid != os.getpid() and is_alive(each)}


def put_down(find: Callable[[], Iterable[psutil.Process]]) -> None:
    """End what is found: asked first, killed a moment later, and looked for again until nothing is found."""
    began = time.monotonic()
    send(find(), signal.SIGTERM)
    while left := list(find()):
        since = time.monotonic() - began
        if since > _LEFT_SECONDS + _GIVE_UP_SECONDS:
            return
        if since > _LEFT_SECONDS:
            send(left, signal.SIGKILL)
        time.sleep(_TICK)


def send(processes: Iterable[psutil.Process], word: signal.Signals) -> None:
    """Send a signal to those that are still there."""
    for process in processes:
        try:
            process.send_signal(word)
        except psutil.NoSuchProcess:
            continue


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _mark(process: psutil.Process) -> str | None:
    """The mark of a process; empty where it has none, None where its environment cannot be known."""
    try:
        environ = process.environ()
    except (psutil.Error, OSError):
        return None
    return environ.get(MARK, "") if "PATH" in environ or MARK in environ else None


def _die_with(parent: int, farewell: int) -> None:
    """In the command before it begins: it is to end when the guard does, whatever ends that."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, farewell, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), farewell)


def main() -> None:
    """Take the order from standard input, carry it out, and end as the command has ended."""
    if not (line := _line(0)):
        return  # whoever would have given the order is gone
    code = Guard(Order(**json.loads(line))).run()
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _line(end: int) -> bytes:
    """A line from a pipe, and nothing after it: what comes then is waited for elsewhere."""
    data = b""
    while not data.endswith(b"\n") and (more := os.read(end, _CHUNK)):
        data += more
    return data if data.endswith(b"\n") else b""


if __name__ == "__main__":
    main()
