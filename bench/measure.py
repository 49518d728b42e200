"""Measuring fairly: contenders take turns, ratios are of the same round, medians are told."""

from __future__ import annotations

import operator
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COMPARE = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt}
_GOAL = re.compile(r"(<=|<|>=|>) (-?\d+(?:\.\d+)?)")
_TOLD_VERSIONS = ("errata", "pyspark", "pyarrow", "numpy", "sqlalchemy")

talk = Console(stderr=True)
"""What is going on; results go to stdout."""


class Scale(StrEnum):
    """How much is measured: enough to see in minutes that nothing broke, or the paper's amounts."""

    SMALL = "small"
    PAPER = "paper"
    TEN = "ten"
    """Ten times the paper's archive, for those benchmarks that say so."""


USUAL = (Scale.SMALL, Scale.PAPER)
"""The scales of every benchmark."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure and, where there is one, the goal it is held against, such as `<= 1.3`."""

    metric: str
    value: float
    unit: str
    goal: str | None = None

    def __post_init__(self) -> None:
        if self.goal is not None and not _GOAL.fullmatch(self.goal):
            raise ValueError(f"{self.goal!r} is not a goal; write one such as '<= 1.3'")

    @property
    def holds(self) -> bool | None:
        """Whether the goal is met; None where there is none. Nothing that is not a number meets a goal."""
        if self.goal is None:
            return None
        comparison, bound = self.goal.split(" ")
        return bool(_COMPARE[comparison](self.value, float(bound)))

    def record(self) -> dict[str, object]:
        return {
            "metric": self.metric,
            "value": self.value,
            "unit": self.unit,
            "goal": self.goal,
            "holds": self.holds,
        }


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing of some figures: `draw` is given the axes; several stand side by side on one scale."""

    name: str
    title: str
    draw: Callable[[Axes], None] | Sequence[Callable[[Axes], None]]


@dataclass(frozen=True, slots=True)
class Grid:
    """Figures of one kind by row and column."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a benchmark found."""

    metrics: Sequence[Metric]
    pictures: Sequence[Picture] = ()
    grids: Sequence[Grid] = ()


@dataclass(frozen=True, slots=True)
class Timings:
    """The seconds of each contender, round by round."""

    seconds: Mapping[str, Sequence[float]]

    def median(self, contender: str) -> float:
        return statistics.median(self.seconds[contender])

    def percentile(self, contender: str, share: float) -> float:
        ordered = sorted(self.seconds[contender])
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def ratio(self, contender: str, beside: str) -> float:
        """The median of the rounds' ratios: what slows a whole round down does not count."""
        rounds = zip(self.seconds[contender], self.seconds[beside], strict=True)
        return statistics.median(ours / theirs for ours, theirs in rounds)

    def beside_sum(self, contender: str, parts: Mapping[str, float]) -> float:
        """The same beside the sum of several contenders, each so many times."""
        rounds = range(len(self.seconds[contender]))
        sums = [sum(times * self.seconds[name][number] for name, times in parts.items()) for number in rounds]
        return Timings({**self.seconds, "sum": sums}).ratio(contender, "sum")


def interleaved(repeats: int, *, warm_up: int = 1, **contenders: Callable[[int], object]) -> Timings:
    """Run the contenders in turn, each given the number of the round; who goes first changes from round to round."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(warm_up + repeats):
        turn = list(contenders.items())
        for name, contender in turn if number % 2 == 0 else reversed(turn):
            began = time.perf_counter()
            contender(number)
            took = time.perf_counter() - began
            if number >= warm_up:
                seconds[name].append(took)
    return Timings(seconds)


def peak_memory(module: str, *arguments: str) -> int:
    """The most bytes of memory that `python -m module arguments` held, without its child processes."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "peak")
        command = [sys.executable, "-m", "bench.peak", str(told), module, *arguments]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4_000:]}")
        return int(told.read_text())


def environment() -> dict[str, object]:
    """What the figures were measured on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
        "python": ".".join(map(str, sys.version_info[:3])),
        "versions": {name: version(name) for name in _TOLD_VERSIONS},
    }


def environment_line(told: Mapping[str, object]) -> str:
    versions = told["versions"]
    named = " ".join(f"{name} {number}" for name, number in versions.items()) if isinstance(versions, dict) else ""
    return f"{told['cores']} cores, {told['memory_gib']} GiB, {told['system']}, Python {told['python']}, {named}"
