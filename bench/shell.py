"""Commands of Errata in processes of their own, in a project that they work on."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from errata.cli.demo import FILES

_DOOR = "import sys; from errata.cli import main; sys.exit(main())"
_COUNT = (
    "import sys; from errata.cli import main; code = main(); "
    "print(sum(name.partition('.')[0] == 'errata' for name in sys.modules), file=sys.stderr); sys.exit(code)"
)


class Shell:
    """A folder with a project, and commands that are run in it."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self._feed = folder / "feed"
        compiled = {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        self._environ = {
            name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        } | compiled

    def declare(self) -> None:
        """Write the project."""
        for name, text in FILES.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (self.project / "landing").mkdir()

    def prepare(self, rows: int, files: int) -> None:
        """The project with so many files of as many rows taken in and answered; two more wait in the feed."""
        self.declare()
        amount = ("--rows", str(rows * (files + 2)), "--rows-per-file", str(rows))
        self.run("generate", "quotes", *amount, "--out", str(self._feed))
        self.run("apply", "--yes")
        self.run("ingest", "quotes", *map(str, self.feed()[:files]))
        self.run("run")

    def feed(self) -> Sequence[Path]:
        """The files of the feed, in order."""
        return sorted(self._feed.glob("*.csv"))

    def land(self, number: int) -> None:
        """Let a file of the feed land."""
        shutil.copy(self.feed()[number], self.project / "landing")

    def seconds(self, *words: str) -> tuple[float, float]:
        """How long a command takes, from the start of its process to the end, and how much of the processor."""
        began, worked = time.perf_counter(), _worked()
        self.run(*words)
        return time.perf_counter() - began, _worked() - worked

    def modules(self, *words: str) -> int:
        """How many modules of Errata a command loads."""
        return int(self.run(*words, door=_COUNT).splitlines()[-1])

    def run(self, *words: str, door: str = _DOOR) -> str:
        """Run a command; what it says to a person."""
        command = [sys.executable, "-c", door, *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.project, env=self._environ)
        if done.returncode:
            raise RuntimeError(f"errata {' '.join(words)} ended with {done.returncode}:\n{done.stderr[-4_000:]}")
        return done.stderr


def _worked() -> float:
    """Seconds of the processor that processes begun here, and theirs, have taken until they ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
