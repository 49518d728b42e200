"""What `make test` runs: three pytests beside each other, and a fourth when one of them has ended. Where tests are
named, one pytest runs them.

    all that is left ───────────────┐ (aloud)
    COMPUTING ─────────────┐
    AIRFLOW ───────────────────────────┐
                           └ SERVICES ─────┐

Two have the tests that mostly wait, for Airflow and for other services and processes. The others compute, each with a
Spark session of its own: one has the folders that are named below, the other all that is left, so that no folder is
forgotten. Two compute while the third waits, which keeps two processors busy; whichever ends first makes room for the
fourth.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

HOUSE = Path(__file__).resolve().parent.parent
AIRFLOW = ("tests/airflow",)
SERVICES = ("tests/deploy", "tests/chaos")
COMPUTING = ("tests/answer", "tests/engine")
"""Folders that take about half of the processor time of all that compute."""
AT_ONCE = 3
NOTHING_COLLECTED = 5
COUNT = re.compile(r"(\d+) (passed|failed|errors?)\b")
_TICK = 0.1


def main(arguments: Sequence[str]) -> int:
    pytest = [str(Path(sys.executable).with_name("pytest")), *arguments]
    if any(names_tests(each) for each in arguments):
        return subprocess.run(pytest, cwd=HOUSE, check=False).returncode  # noqa: S603
    if not any(each.partition("=")[0] == "--seed" for each in arguments):
        pytest += ["--seed", str(secrets.randbelow(10**9))]  # one for all, so that one option repeats the run
    rest = tuple(f"--ignore={each}" for each in (*AIRFLOW, *SERVICES, *COMPUTING))
    results = run_all(pytest, [rest, COMPUTING, AIRFLOW, SERVICES])
    passed, failed = (sum(each) for each in zip(*(counted(output) for _, output in results), strict=True))
    print(f"{passed} passed, {failed} failed", flush=True)
    codes = [code for code, _ in results]
    if all(each == NOTHING_COLLECTED for each in codes):
        return NOTHING_COLLECTED
    return next((each for each in codes if each not in (0, NOTHING_COLLECTED)), 0)


def run_all(command: Sequence[str], parts: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """Run a command with the arguments of each part, AT_ONCE at once: how each has ended, and what it has printed. What
    the first prints is passed on as it comes, and that of the others after it."""
    with ExitStack() as stack:
        runs: list[Run] = []
        while len(runs) < len(parts) or any(each.is_running for each in runs):
            if len(runs) < len(parts) and sum(each.is_running for each in runs) < AT_ONCE:
                runs.append(stack.enter_context(Run(command, parts[len(runs)])))
            runs[0].pass_on()
            time.sleep(_TICK)
        runs[0].pass_on()
        for each in runs[1:]:
            print(f"\nBeside them ran {', '.join(each.arguments)}:", flush=True)
            each.pass_on()
        return [each.result for each in runs]


class Run:
    """A command that runs in the background; what it prints is kept."""

    def __init__(self, command: Sequence[str], arguments: Sequence[str]) -> None:
        self.arguments = arguments
        self._printed = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed with the block
        self._passed_on = 0
        self._process = subprocess.Popen(  # noqa: S603
            [*command, *arguments], cwd=HOUSE, stdout=self._printed.fileno(), stderr=subprocess.STDOUT
        )

    def __enter__(self) -> Self:
        return self

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def result(self) -> tuple[int, str]:
        """When it has ended: its exit code, and what it has printed."""
        return self._process.returncode, self._read(0).decode(errors="replace")

    def pass_on(self) -> None:
        """Print what it has printed since the last time."""
        new = self._read(self._passed_on)
        self._passed_on += len(new)
        sys.stdout.buffer.write(new)
        sys.stdout.buffer.flush()

    def _read(self, since: int) -> bytes:
        # The file's own position is where the process writes on.
        return os.pread(self._printed.fileno(), os.fstat(self._printed.fileno()).st_size - since, since)

    def __exit__(self, *_: object) -> None:
        """Where somebody has broken off, end it; it stops the services that it has started."""
        if self.is_running:
            self._process.terminate()
            self._process.wait()
        self._printed.close()


def names_tests(argument: str) -> bool:
    """Whether it is a file or folder of tests, or a test in one."""
    return not argument.startswith("-") and (HOUSE / argument.partition("::")[0]).exists()


def counted(output: str) -> tuple[int, int]:
    """How many passed, and how many failed, by the last line that tells it."""
    lines = [line for line in output.splitlines() if COUNT.search(line) and " in " in line]
    found = dict.fromkeys(("passed", "failed", "error"), 0)
    for number, what in COUNT.findall(lines[-1] if lines else ""):
        found[what.rstrip("s")] += int(number)
    return found["passed"], found["failed"] + found["error"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
