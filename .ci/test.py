"""What `make test` runs: the tests that mostly wait, for services, processes and a browser, in a pytest of their own
beside those that compute. Where tests are named, one pytest runs them."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

HOUSE = Path(__file__).resolve().parent.parent
WAITING = ("tests/airflow", "tests/deploy", "tests/chaos")
NOTHING_COLLECTED = 5
COUNT = re.compile(r"(\d+) (passed|failed|errors?)\b")


def main(arguments: Sequence[str]) -> int:
    pytest = [str(Path(sys.executable).with_name("pytest")), *arguments]
    if any(names_tests(each) for each in arguments):
        return subprocess.run(pytest, cwd=HOUSE, check=False).returncode  # noqa: S603
    if not any(each.partition("=")[0] == "--seed" for each in arguments):
        pytest += ["--seed", str(secrets.randbelow(10**9))]  # one for both, so that one option repeats the run
    computing = [*pytest, *(f"--ignore={each}" for each in WAITING)]
    with tempfile.TemporaryFile("w+") as said:
        waiting = subprocess.Popen([*pytest, *WAITING], cwd=HOUSE, stdout=said, stderr=subprocess.STDOUT)  # noqa: S603
        try:
            code, told = run_aloud(computing)
            print(f"\nBeside them ran {', '.join(WAITING)}:", flush=True)
            codes = [code, waiting.wait()]
        finally:
            # Where somebody has broken off; it stops the services that it has started.
            if waiting.poll() is None:
                waiting.terminate()
                waiting.wait()
            told_beside = everything(said)
            sys.stdout.write(told_beside)
    passed, failed = (sum(each) for each in zip(counted(told), counted(told_beside), strict=True))
    print(f"{passed} passed, {failed} failed", flush=True)
    if all(each == NOTHING_COLLECTED for each in codes):
        return NOTHING_COLLECTED
    return next((each for each in codes if each not in (0, NOTHING_COLLECTED)), 0)


def names_tests(argument: str) -> bool:
    """Whether it is a file or folder of tests, or a test in one."""
    return not argument.startswith("-") and (HOUSE / argument.partition("::")[0]).exists()


def run_aloud(command: Sequence[str]) -> tuple[int, str]:
    """Run it and pass on what it says: its exit code, and the end of that."""
    told = b""
    with subprocess.Popen(command, cwd=HOUSE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:  # noqa: S603
        while process.stdout and (some := os.read(process.stdout.fileno(), 65536)):  # dots come one by one
            sys.stdout.buffer.write(some)
            sys.stdout.buffer.flush()
            told = (told + some)[-4000:]
    return process.returncode, told.decode(errors="replace")


def everything(said: IO[str]) -> str:
    said.seek(0)
    return said.read()


def counted(told: str) -> tuple[int, int]:
    """How many passed, and how many failed, by the last line that tells it."""
    lines = [line for line in told.splitlines() if COUNT.search(line) and " in " in line]
    found = dict.fromkeys(("passed", "failed", "error"), 0)
    for number, what in COUNT.findall(lines[-1] if lines else ""):
        found[what.rstrip("s")] += int(number)
    return found["passed"], found["failed"] + found["error"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
