"""A reader that counts over a sample again and again, as a process of its own: `python -m bench.reduction_reader
FOLDER STREAM REDUCTION STOP`.

It counts once to warm up and prints `ready`; then it prints the time of each count that it has completed, by the clock
that all processes of a machine share, until the file STOP is there.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.reduction_scan import count_sample
from bench.reduction_workload import open_project

READY = "ready"
PATIENCE = 120.0
"""Seconds that a reader has to end after it was told to."""


def main(folder: str, stream: str, reduction: str, stop: str) -> None:
    """Count until told to stop."""
    site = open_project(Path(folder))
    count_sample(site, float(reduction), stream)
    print(READY, flush=True)
    while not Path(stop).exists():
        count_sample(site, float(reduction), stream)
        print(time.monotonic(), flush=True)


class CountingReaders:
    """Readers that are counting, each a process with a file of what it prints."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._printed: list[Path] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def stop(self) -> Path:
        return self._folder / "stop"

    def start(self, project: Path, stream: str, reduction: float) -> None:
        """Start a reader of a project."""
        printed = self._folder / f"reader-{len(self._printed)}"
        arguments = [str(project), stream, str(reduction), str(self.stop)]
        with printed.open("wb") as out, printed.with_suffix(".err").open("wb") as err:
            command = [sys.executable, "-m", "bench.reduction_reader", *arguments]
            root = Path(__file__).resolve().parents[1]
            self._processes.append(subprocess.Popen(command, stdout=out, stderr=err, cwd=root))
        self._printed.append(printed)

    def wait_until_ready(self) -> None:
        """Wait for the first count of each."""
        for process, printed in zip(self._processes, self._printed, strict=True):
            while not printed.read_text().startswith(READY):
                if process.poll() is not None:
                    raise RuntimeError(f"a reader ended:\n{printed.with_suffix('.err').read_text()[-2_000:]}")
                time.sleep(0.05)

    def end(self) -> None:
        """Tell all to stop, and wait for it."""
        self.stop.touch()
        for process in self._processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise

    def completed(self, began: float, ended: float) -> int:
        """The number of counts that all of them have completed in a stretch of time."""
        lines: Sequence[str] = [line for each in self._printed for line in each.read_text().splitlines()[1:]]
        return sum(began <= float(line) < ended for line in lines)


@contextmanager
def counting_readers(
    folder: Path, projects: Sequence[Path], stream: str, reduction: float
) -> Iterator[CountingReaders]:
    """A reader of each project, ready; they stop when the block ends."""
    folder.mkdir(parents=True)
    readers = CountingReaders(folder)
    try:
        for project in projects:
            readers.start(project, stream, reduction)
        readers.wait_until_ready()
        yield readers
    finally:
        readers.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
