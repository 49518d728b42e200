"""Runs a job as a process beside its task, with a session on the Spark Connect server, so that no JVM is started for
it.

Importing what a job needs takes longer than most jobs. If the process that workers are forked from has imported it
(`load`), the job is a fork of the task; otherwise it is a new Python process.
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
"""Modules that every job imports, and those that a job on a Connect server does."""

TASK = ("errata_airflow.operator", "errata_airflow.work")
"""Modules that tasks import."""

_OPEN_FILES = Path("/proc/self/fd")
_OUT, _ERR = 1, 2


@dataclass(frozen=True, slots=True)
class Job:
    """A running job: its output by line, and how to end it and wait for it."""

    said: Iterable[str]
    terminate: Callable[[], None]
    wait: Callable[[], int]
    """Wait for the exit code, which is negative if a signal ended the job."""


def load() -> None:
    """Import these modules."""
    for name in (*TASK, *JOB):
        import_module(name)


def start(script: str, arguments: Sequence[str], environ: Mapping[str, str]) -> Job:
    """Start a job, as a fork if everything is loaded."""
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
    """Run the job in the forked process, which keeps nothing of the task but the loaded modules."""
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
    """Close the task's files and sockets, on whose end others wait, and write all output to `out`. Objects that are
    still alive may close their descriptors later, so these stay taken; 1 and 2 are replaced when nothing owns them
    any more."""
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
