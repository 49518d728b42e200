"""Child processes: each under a guard, in a session of its own and with a log of its own, watched, and ended with all
that it has begun."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from deploy import guard
from errata.errors import ErrataError

Wait = Callable[[float], None]
"""Sleeps for so many seconds. Whoever is to be interrupted while things start raises from it."""

GRACE = 4.0
"""Seconds that a process may take to end by itself, unless it is given more."""

LONG = 30.0
"""The same for what has something to bring to an end, such as PostgreSQL, and Airflow's tasks."""

_GUARDS_GRACE = 20.0
"""Seconds that a guard may take in addition, to end what its command has left behind."""

PATIENCE = 300.0
"""Seconds after which something is not ready that should be: a machine that has much else to do takes several times as
long as an idle one, and what ends meanwhile is noticed at once."""

_LAST_LINES = 12
_TICK = 0.1


class ProcessEnded(ErrataError):
    """Something that is to keep running has ended, or does not become ready."""


@dataclass(frozen=True, slots=True)
class Account:
    """Another user of the machine, by whom a process is run."""

    user: int
    group: int


@dataclass(frozen=True, slots=True)
class Child:
    """A process that is to keep running, or a step that is to end well."""

    name: str
    order: guard.Order
    environ: Mapping[str, str]
    lasting: bool
    """Whether it is to keep running; a step ends."""
    process: subprocess.Popen[bytes]
    """Its guard."""
    began: float
    mark: str

    @property
    def log(self) -> Path:
        return Path(self.order.log)

    def left_over(self) -> set[psutil.Process]:
        """What is left of it although its guard has ended."""
        return guard.left_over(self.process.pid, self.began, self.mark)


class Children:
    """The processes of one folder. What runs is written down there, so that nothing is left behind by a kill."""

    def __init__(self, folder: Path, wait: Wait = time.sleep) -> None:
        self._folder, self.wait = folder, wait
        self._noted = folder / "running.json"
        self._running: dict[str, Child] = {}
        self._known: dict[str, Child] = {}
        """What has ever been started, by its last start."""
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
        """Start a process that goes on until it is stopped; one that is not lasting is waited for with `finish`.

        `farewell` asks it to end; `alone` says that it alone is asked, since it tells its own children.
        """
        order = guard.Order(
            command=list(command),
            log=str(self.logs / f"{name}.log"),
            cwd=str(cwd or self._folder),
            farewell=farewell,
            alone=alone,
            grace=grace,
            user=None if account is None else account.user,
            group=None if account is None else account.group,
        )
        self._launch(name, order, environ, lasting=lasting)

    def start_again(self, name: str) -> None:
        """Start what has been stopped, or has ended, in the same way as the last time."""
        known = self._known[name]
        self._launch(name, known.order, known.environ, lasting=known.lasting)

    def _launch(self, name: str, order: guard.Order, environ: Mapping[str, str], *, lasting: bool) -> None:
        mark = f"{name}-{secrets.token_hex(8)}"
        with Path(order.log).open("ab") as out:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", guard.__file__, name],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**environ, guard.MARK: mark},
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C at the terminal reaches only who started all this
            )
        child = Child(name, order, environ, lasting, process, _began(process.pid), mark)
        self._running[name] = self._known[name] = child
        self._note()
        if process.stdin is not None:
            process.stdin.write(f"{json.dumps(asdict(order))}\n".encode())
            process.stdin.flush()

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

    def finish(self, name: str, patience: float = PATIENCE) -> None:
        """Wait until a step has ended."""
        child, end = self._running[name], time.monotonic() + patience
        while (code := child.process.poll()) is None:
            self.check()
            if time.monotonic() > end:
                self.stop(name)
                raise ProcessEnded(f"{name} has not ended after {patience:.0f} seconds{last_lines(child.log)}")
            self.wait(_TICK)
        self._forget(child)
        if code != 0:
            raise _ended(child, code)

    def until(self, ready: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
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

    def take_ended(self) -> dict[str, ProcessEnded]:
        """The lasting processes that have ended, with their reasons. They are no longer watched, and nothing is left of
        them."""
        ended = [child for child in self._running.values() if child.lasting and child.process.poll() is not None]
        for child in ended:
            guard.put_down(child.left_over)
            self._forget(child)
        return {child.name: _ended(child, child.process.returncode) for child in ended}

    @property
    def running(self) -> list[str]:
        """What has been started and not stopped, in the order of starting."""
        return list(self._running)

    def stop(self, *names: str) -> None:
        """End some of the processes at once, with all that they have begun; those that are gone already are no loss."""
        ending = [self._running[name] for name in names if name in self._running]
        for child in ending:
            child.process.terminate()
        began = time.monotonic()
        for child in ending:
            patience = child.order.grace + _GUARDS_GRACE - (time.monotonic() - began)
            try:
                child.process.wait(max(patience, _TICK))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            guard.put_down(child.left_over)
            self._forget(child)

    def clear_up(self) -> list[str]:
        """End what a former run here has left behind because it was killed; the names of what was still there."""
        found = []
        for name, (pid, began, *mark) in self._read_notes().items():
            left = partial(guard.left_over, pid, began, *(mark or [""]))
            guards = _still_there(pid, began)
            if not guards and not left():
                continue
            found.append(name)
            guard.send(guards, signal.SIGTERM)
            psutil.wait_procs(guards, timeout=LONG + _GUARDS_GRACE)
            guard.put_down(lambda: [*_still_there(pid, began), *left()])  # noqa: B023 - it is called at once
        self._noted.unlink(missing_ok=True)
        return found

    def _forget(self, child: Child) -> None:
        if child.process.stdin is not None:
            child.process.stdin.close()
        del self._running[child.name]
        self._note()

    def _note(self) -> None:
        notes = {name: (child.process.pid, child.began, child.mark) for name, child in self._running.items()}
        writing = self._noted.with_suffix(".tmp")
        writing.write_text(json.dumps(notes))
        writing.replace(self._noted)

    def _read_notes(self) -> dict[str, Any]:
        if not self._noted.exists():
            return {}
        read: dict[str, Any] = json.loads(self._noted.read_text())
        return read


def last_lines(log: Path) -> str:
    """What a log ends with, to be put under an error."""
    parts = [part for part in (guard.aside(log, 1), log) if part.exists()]
    lines = [line for part in parts for line in part.read_text(encoding="utf-8", errors="replace").splitlines()]
    return "".join(f"\n  | {line}" for line in lines[-_LAST_LINES:]) + f"\n  all of it: {log}"


def _ended(child: Child, code: int) -> ProcessEnded:
    return ProcessEnded(f"{child.name} has ended: {_ending(code)}{last_lines(child.log)}")


def _ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _began(pid: int) -> float:
    """When a process of ours has begun; it is not waited for yet, so its number is known."""
    began: float = psutil.Process(pid).create_time()
    return began


def _still_there(pid: int, began: float) -> list[psutil.Process]:
    """The process of that number, if it began at that moment: otherwise the number has gone to somebody else."""
    try:
        process = psutil.Process(pid)
        return [process] if abs(process.create_time() - began) <= 1 and guard.is_alive(process) else []
    except psutil.NoSuchProcess:
        return []
