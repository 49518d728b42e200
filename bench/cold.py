"""Commands from a cold shell: each in a fresh process, with no server or session left from before, files cached.

The project is that of `errata demo`: quotes of a made-up exchange and three queries. Modules of Python are compiled, as
an installer leaves them. A start is measured from the outside, by the clock that a person has. What it takes of the
processor is told beside that: it says more where others are at work on the machine.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from bench.measure import Metric, Outcome, Scale, talk
from bench.shell import Shell

ROWS = 10_000
"""Rows of a file, one of which lands before each run."""
BEFORE = 6
"""Files that have been taken in, and answered, before."""
STARTS = {Scale.SMALL: 5, Scale.PAPER: 15}
"""Starts of each command, of which the median is told."""

RESULTS_GOAL = "<= 1"
RUN_GOAL = "<= 3"


def measure(scale: Scale, folder: Path) -> Outcome:
    """Seconds of a start, and how many modules of Errata it loads."""
    shell = Shell(folder)
    kept = folder / "kept"
    shell.prepare(ROWS, BEFORE)
    shutil.copytree(shell.project, kept)
    seconds: dict[str, list[float]] = {"results": [], "run": []}
    busy: dict[str, list[float]] = {"results": [], "run": []}
    for number in range(1 + STARTS[scale]):
        # A project knows its own place, so that each run begins in the same folder, brought back to what it was.
        shutil.rmtree(shell.project)
        shutil.copytree(kept, shell.project)
        shell.land(BEFORE)
        took = {"results": shell.seconds("results", "lately"), "run": shell.seconds("run")}
        if number:  # the first start is the one that compiles
            for name, (passed, worked) in took.items():
                seconds[name].append(passed)
                busy[name].append(worked)
        talk.print(f"start {number}: " + ", ".join(f"{name} {passed:.2f} s" for name, (passed, _) in took.items()))
    last = shell.feed()[BEFORE + 1]
    return Outcome(
        [
            Metric("errata results", statistics.median(seconds["results"]), "s", RESULTS_GOAL),
            Metric(f"errata run: {ROWS:,} new rows, three queries", statistics.median(seconds["run"]), "s", RUN_GOAL),
            Metric("processor time of errata results", statistics.median(busy["results"]), "s"),
            Metric("processor time of errata run", statistics.median(busy["run"]), "s"),
            Metric("modules of Errata that results loads", shell.modules("results", "lately"), "modules"),
            Metric("modules of Errata that ingest loads", shell.modules("ingest", "quotes", str(last)), "modules"),
        ]
    )
