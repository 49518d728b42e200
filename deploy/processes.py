"""Child processes: each in a session of its own with its own log, watched, and ended with all that it has begun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from errata.errors import ErrataError

Wait = Callable[[float], None]
"""Sleeps for so many seconds. Whoever is to be interrupted while things start raises from it."""

GRACE = 4.0
"""Seconds that a process may take to end by itself, unless it is given more."""

LONG = 30.0
"""The same for what has something to bring to an end, such as PostgreSQL, and Airflow's tasks."""

_REMINDED = 5.0
"""After so many seconds what a process has begun is asked once more: a task that was just starting its Spark job when
it was asked first has not heard it."""

_LAST_LINES = 12
_TICK = 0.1


class ProcessEnded(ErrataError):
    """Something that is to keep running has ended."""


@dataclass(frozen=True, slots=True)
class Account:
    """Another user of the machine, by whom a process is run."""

    user: int
    group: int


@dataclass(frozen=True, slots=True)
class Child:
    """A process that is to keep running, or a step that is to end well."""

    name: str
    log: Path
    process: subprocess.Popen[bytes]
    farewell: signal.Signals
    alone: bool
    """Whether only the process itself is told to end, since it tells its own children."""
    lasting: bool
    """Whether it is to keep running; a step ends."""
    grace: float
    """Seconds that it may take to end by itself."""


class Children:
    """The processes of one folder. What runs is written down there, so that nothing is left behind by a kill."""

    def __init__(self, folder: Path, wait: Wait = time.sleep) -> None:
        self._folder, self.wait = folder, wait
        self._noted = folder / "running.json"
        self._running: dict[str, Child] = {}
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)

    def start(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        account: Account | None = None,
        cwd: Path | None = None,
        farewell: signal.Signals = signal.SIGTERM,
        alone: bool = False,
        lasting: bool = True,
        grace: float = GRACE,
    ) -> None:
        """Start a process that goes on until it is stopped; one that is not lasting is waited for with `finish`."""
        log = self.logs / f"{name}.log"
        with log.open("ab") as out:
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=dict(environ),
                cwd=cwd or self._folder,
                user=None if account is None else account.user,
                group=None if account is None else account.group,
                extra_groups=None if account is None else [],
                start_new_session=True,  # Ctrl-C at the terminal reaches only who started all this
            )
        self._running[name] = Child(name, log, process, farewell, alone, lasting, grace)
        self._note()

    def step(
        self,
        name: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        account: Account | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Run something that ends, and fail with its last lines if it does not end well."""
        self.start(name, command, environ, account=account, cwd=cwd, lasting=False)
        self.finish(name)

    def finish(self, name: str, patience: float = 120) -> None:
        """Wait until a step has ended."""
        child, end = self._running[name], time.monotonic() + patience
        while (code := child.process.poll()) is None:
            self.check()
            if time.monotonic() > end:
                self.stop(name)
                raise ProcessEnded(f"{name} has not ended after {patience:.0f} seconds{last_lines(child.log)}")
            self.wait(_TICK)
        self._forget(name)
        if code != 0:
            raise _ended(child, code)

    def until(self, ready: Callable[[], bool], what: str, patience: float = 120) -> None:
        """Wait until something is so, as long as all that is to run does run."""
        end = time.monotonic() + patience
        while not ready():
            self.check()
            if time.monotonic() > end:
                raise ProcessEnded(f"{what} is not ready after {patience:.0f} seconds", how=f"see {self.logs}")
            self.wait(_TICK)

    def check(self) -> None:
        """Fail if one of the processes has ended that should not have, with its reason."""
        for child in self._running.values():
            code = child.process.poll()
            if code is not None and (child.lasting or code != 0):
                raise _ended(child, code)

    @property
    def running(self) -> list[str]:
        """What has been started and not stopped, in the order of starting."""
        return list(self._running)

    def stop(self, *names: str) -> None:
        """End some of the processes at once, with all that they have begun; those that are gone already are no loss."""
        ending = [self._running[name] for name in names if name in self._running]
        families = {child.name: _family(child.process.pid) for child in ending}
        for child in ending:
            _tell(child)
        began = reminded = time.monotonic()
        while ending:
            now = time.monotonic()
            if remind := now - reminded > _REMINDED:
                reminded = now
            for child in list(ending):
                families[child.name] |= _family(child.process.pid)
                if child.process.poll() is not None or now - began > child.grace:
                    child.process.kill()  # nothing, where it has ended
                    _put_down(families[child.name])
                    child.process.wait()
                    self._forget(child.name)
                    ending.remove(child)
                elif remind and not child.alone:
                    _send(families[child.name], psutil.Process.terminate)
            time.sleep(_TICK)

    def clear_up(self) -> list[str]:
        """End what a former run here has left behind because it was killed; the names of what was still there."""
        found = []
        for name, (pid, began) in self._read_notes().items():
            try:
                process = psutil.Process(pid)
                if abs(process.create_time() - began) > 1:
                    continue  # the number has gone to somebody else
                family = [process, *process.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
            found.append(name)
            process.send_signal(signal.SIGINT if name == "postgresql" else signal.SIGTERM)
            psutil.wait_procs([process], timeout=LONG)
            _put_down(family)
        self._noted.unlink(missing_ok=True)
        return found

    def _forget(self, name: str) -> None:
        del self._running[name]
        self._note()

    def _note(self) -> None:
        notes = {}
        for name, child in self._running.items():
            try:
                notes[name] = (child.process.pid, psutil.Process(child.process.pid).create_time())
            except psutil.NoSuchProcess:
                continue  # it has ended already, so there is nothing of it to be left behind
        writing = self._noted.with_suffix(".tmp")
        writing.write_text(json.dumps(notes))
        writing.replace(self._noted)

    def _read_notes(self) -> dict[str, tuple[int, float]]:
        if not self._noted.exists():
            return {}
        read: dict[str, tuple[int, float]] = json.loads(self._noted.read_text())
        return read


def last_lines(log: Path) -> str:
    """What a log ends with, to be put under an error."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:] if log.exists() else []
    return "".join(f"\n  | {line}" for line in lines) + f"\n  all of it: {log}"


def _ended(child: Child, code: int) -> ProcessEnded:
    return ProcessEnded(f"{child.name} has ended: {_ending(code)}{last_lines(child.log)}")


def _ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _family(pid: int) -> set[psutil.Process]:
    """The processes that one has begun, and theirs: Airflow's tasks are in groups of their own."""
    try:
        return set(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def _tell(child: Child) -> None:
    try:
        if child.alone:
            child.process.send_signal(child.farewell)
        else:
            os.killpg(child.process.pid, child.farewell)
    except ProcessLookupError:
        return  # it has just ended


def _put_down(processes: Iterable[psutil.Process]) -> None:
    """End what is still there: asked first, a moment later killed."""
    left = [process for process in processes if process.is_running()]
    for word in (psutil.Process.terminate, psutil.Process.kill):
        _send(left, word)
        _, left = psutil.wait_procs(left, timeout=2)


def _send(processes: Iterable[psutil.Process], word: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        try:
            word(process)
        except psutil.NoSuchProcess:
            continue
