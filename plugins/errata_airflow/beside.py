"""A job as a process beside its task, whose session is on the Spark Connect server: no JVM is started for it.

To load what a job imports takes longer than most jobs. Where the process that workers are forked from has loaded it
(`load`), so has each task, and the job is a fork of the task; elsewhere it is a Python of its own.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

JOB = ("errata.flows.jobs", "pyspark.sql.connect.session")
"""What every job imports, and those against a Connect server."""

TASK = ("errata_airflow.operator", "errata_airflow.work")
"""What tasks import."""

_OPEN_FILES = Path("/proc/self/fd")
_OUT, _ERR = 1, 2


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs: what it says, line by line, and how it is ended and waited for."""

    said: Iterable[str]
    terminate: Callable[[], None]
    wait: Callable[[], int]
    """Its exit code; less than 0 where a signal has ended it."""


def load() -> None:
    """Import all of it."""
    for name in (*TASK, *JOB):
        import_module(name)


def start(script: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Job:
    """Start a job."""
    if all(name in sys.modules for name in JOB) and _OPEN_FILES.is_dir():
        return _forked(script, arguments, environ)
    return _begun(script, arguments, environ)


def _begun(script: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Job:
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, script, *arguments],
        env=dict(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return Job(process.stdout or (), process.terminate, process.wait)


def _forked(script: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Job:
    reading, writing = os.pipe()
    process = multiprocessing.get_context("fork").Process(target=_job, args=(script, arguments, environ, writing))
    process.start()
    os.close(writing)

    def wait() -> int:
        process.join()
        return process.exitcode or 0

    return Job(os.fdopen(reading, encoding="utf-8", errors="replace"), process.terminate, wait)


def _job(script: str, arguments: Sequence[str], environ: Mapping[str, str], out: int) -> None:
    """Be the job: nothing of the task is left but what it has loaded."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    _speak_by(out)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s", force=True)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


def _speak_by(out: int) -> None:
    """Let go of the task's files and sockets, on whose end others wait, and say everything there. Objects that are left
    may close their numbers later: these stay taken, and 1 and 2 are given away when nobody has them any more."""
    with Path(os.devnull).open("w") as nothing:
        sys.stdout = sys.stderr = nothing
        gc.collect()
        for each in [int(name) for name in os.listdir(_OPEN_FILES)]:  # noqa: PTH208 - they are numbers
            if each not in (out, nothing.fileno()):
                os.dup2(nothing.fileno(), each)
        for number in (_OUT, _ERR):
            os.dup2(out, number)
        os.close(out)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (_OUT, _ERR))
