"""Workers: processes that carry out commands of `errata` one after the other, as a person gives them, and can be killed
at any instant."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

KILLED = -int(signal.SIGKILL)


class Worker:
    """A process in the project's folder; where it has been killed, the next command begins a new one."""

    def __init__(self, project: Path, log: Path) -> None:
        self._project, self._log = project, log
        self._process: subprocess.Popen[str] | None = None

    def do(self, *command: str) -> int:
        """Carry a command out: its exit code, or KILLED."""
        process = self._process = self._process or self._begin()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        if answer:
            return int(answer)
        code = process.wait()
        self._forget()
        if code != KILLED:
            raise AssertionError(f"{' '.join(command)}: the process ended with {code}; see {self._log}")
        return KILLED

    def kill(self, *, only_engine: bool) -> bool:
        """Kill it, or the JVM or near engine that it works with; whether there was one."""
        process = self._process
        if process is None or process.poll() is not None:
            return False
        if not only_engine:
            process.kill()
            return True
        with suppress(psutil.NoSuchProcess):
            for each in psutil.Process(process.pid).children(recursive=True):
                if each.name() == "java" or any(word.endswith("near_server.py") for word in each.cmdline()):
                    each.kill()
                    while each.status() != psutil.STATUS_ZOMBIE:  # else the next command may find it alive
                        time.sleep(0.01)
                    return True
        return False

    def end(self) -> None:
        """Let it end by itself."""
        process = self._process
        if process is None:
            return
        self._forget()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _forget(self) -> None:
        """Close what it is spoken to by: without that it ends."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what it no longer reads cannot be flushed
                    pipe and pipe.close()

    def _begin(self) -> subprocess.Popen[str]:
        # What it says goes to a file: what outlives it for a moment would keep a pipe open.
        with self._log.open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "chaos.workers"],
                cwd=self._project,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)},
            )


def serve(commands: Sequence[str] | None = None) -> None:
    """Carry out commands, a line of JSON each, and answer each with its exit code."""
    from errata.cli import main  # noqa: PLC0415 - the conductor imports this module, and has no use for all of that

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what commands print belongs to the log
    for line in commands or sys.stdin:
        command = json.loads(line)
        sys.stderr.write(f"\n$ errata {' '.join(command)}\n")
        sys.stderr.flush()
        code = main(command)
        sys.stdout.flush()
        sys.stderr.write(f"exit code {code}\n")
        sys.stderr.flush()
        answers.write(f"{code}\n")
        answers.flush()


if __name__ == "__main__":
    serve()
