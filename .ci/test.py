"""What `make test` runs: three pytests beside each other. Where tests are named, one pytest runs them.

One has the tests that mostly wait for services, processes and a browser. The others compute, each with a Spark session
of its own: one has the folders that are named below, the other all that is left, so that no folder is forgotten. Two
compute while the third waits, which keeps two processors busy.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Self

HOUSE = Path(__file__).resolve().parent.parent
WAITING = ("tests/airflow", "tests/chaos", "tests/deploy")
"""Folders of tests that mostly wait."""
COMPUTING = ("tests/answer", "tests/engine")
"""Folders that take about half of the processor time of all that compute."""
NOTHING_COLLECTED = 5
COUNT = re.compile(r"(\d+) (passed|failed|errors?)\b")


def main(arguments: Sequence[str]) -> int:
    pytest = [str(Path(sys.executable).with_name("pytest")), *arguments]
    if any(names_tests(each) for each in arguments):
        return subprocess.run(pytest, cwd=HOUSE, check=False).returncode  # noqa: S603
    if not any(each.partition("=")[0] == "--seed" for each in arguments):
        pytest += ["--seed", str(secrets.randbelow(10**9))]  # one for all, so that one option repeats the run
    with ExitStack() as stack:
        beside = [stack.enter_context(Beside(pytest, folders)) for folders in (WAITING, COMPUTING)]
        results = [run_aloud([*pytest, *(f"--ignore={each}" for each in (*WAITING, *COMPUTING))])]
        results += [each.result() for each in beside]
    passed, failed = (sum(each) for each in zip(*(counted(output) for _, output in results), strict=True))
    print(f"{passed} passed, {failed} failed", flush=True)
    codes = [code for code, _ in results]
    if all(each == NOTHING_COLLECTED for each in codes):
        return NOTHING_COLLECTED
    return next((each for each in codes if each not in (0, NOTHING_COLLECTED)), 0)


class Beside:
    """A pytest that runs some folders in the background; what it prints is kept until it is asked for."""

    def __init__(self, pytest: Sequence[str], folders: Sequence[str]) -> None:
        self.folders = folders
        self._printed: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the block
        command = [*pytest, *folders]
        self._process = subprocess.Popen(command, cwd=HOUSE, stdout=self._printed, stderr=subprocess.STDOUT)  # noqa: S603

    def __enter__(self) -> Self:
        return self

    def result(self) -> tuple[int, str]:
        """Wait for its end, and print what it has printed: its exit code, and that."""
        code = self._process.wait()
        self._printed.seek(0)
        output = self._printed.read()
        print(f"\nBeside them ran {', '.join(self.folders)}:\n{output}", end="", flush=True)
        return code, output

    def __exit__(self, *_: object) -> None:
        """Where somebody has broken off, end it; it stops the services that it has started."""
        if self._process.poll() is None:
            self._process.terminate()
            self.result()
        self._printed.close()


def names_tests(argument: str) -> bool:
    """Whether it is a file or folder of tests, or a test in one."""
    return not argument.startswith("-") and (HOUSE / argument.partition("::")[0]).exists()


def run_aloud(command: Sequence[str]) -> tuple[int, str]:
    """Run it and pass on what it prints: its exit code, and the end of that."""
    printed = b""
    with subprocess.Popen(command, cwd=HOUSE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:  # noqa: S603
        while process.stdout and (some := os.read(process.stdout.fileno(), 65536)):  # dots come one by one
            sys.stdout.buffer.write(some)
            sys.stdout.buffer.flush()
            printed = (printed + some)[-4000:]
    return process.returncode, printed.decode(errors="replace")


def counted(output: str) -> tuple[int, int]:
    """How many passed, and how many failed, by the last line that tells it."""
    lines = [line for line in output.splitlines() if COUNT.search(line) and " in " in line]
    found = dict.fromkeys(("passed", "failed", "error"), 0)
    for number, what in COUNT.findall(lines[-1] if lines else ""):
        found[what.rstrip("s")] += int(number)
    return found["passed"], found["failed"] + found["error"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
