"""Our share of reading the DAGs: what Airflow's DAG processor spends on our files beyond what it spends on none."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.environment import HOUSE, base_environment

from bench.measure import Grid, Metric, Outcome, talk

STREAMS, QUERIES = 100, 500
"""What the project declares."""

READER = Path(__file__).with_name("airflow_read.py")


@dataclass(frozen=True, slots=True)
class ParsingAmounts:
    """How often it is measured, each time in a new process."""

    rounds: int
    warm_up: int = 1


def parsing_figures(amounts: ParsingAmounts, folder: Path) -> Outcome:
    """Seconds of reading our DAGs, less those of reading a folder without any."""
    talk.print(f"reading the DAGs of {STREAMS} streams and {QUERIES} queries …")
    empty = folder / "empty"
    empty.mkdir(parents=True)
    environ = _environment(folder, declare_many(folder))
    seconds: dict[str, list[float]] = {"our DAGs": [], "none": []}
    for number in range(amounts.warm_up + amounts.rounds):
        for name, dags in (("our DAGs", HOUSE / "dags"), ("none", empty)):
            told = read_dags(dags, environ, folder)
            if told["errors"]:
                raise AssertionError(f"DAGs cannot be read: {told['errors']}")
            if number >= amounts.warm_up:
                seconds[name].append(told["seconds"])
    return parsing_outcome({name: statistics.median(some) for name, some in seconds.items()})


def parsing_outcome(medians: Mapping[str, float]) -> Outcome:
    """The goal, and what it is made of."""
    share = medians["our DAGs"] - medians["none"]
    about = f"reading all DAGs, {STREAMS} streams and {QUERIES} queries, beyond reading none"
    rows = {name: [1_000 * each] for name, each in medians.items()}
    return Outcome(
        [Metric(about, share, "s", "< 0.3")], grids=[Grid("parsing", "Reading a folder of DAGs", ["ms"], rows)]
    )


def read_dags(dags: Path, environ: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """What a new process reads in a folder of DAGs, and how long that took. `folder`: where it runs."""
    done = subprocess.run(
        # Without the script's own folder on the path: there, a module is called like Airflow.
        [sys.executable, "-P", str(READER), str(dags)],
        env=dict(environ),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"{READER.name} ended with {done.returncode}:\n{done.stderr[-4_000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def declare_many(folder: Path) -> Path:
    """Declare a project of 100 streams and 500 queries in a folder; its errata.yaml."""
    stream = "  s{0}:\n    columns: {{n: bigint, value: double}}\n    key: [n]\n    order: n\n"
    streams = "".join(stream.format(number) for number in range(STREAMS))
    queries = "".join(f"  q{number}: {{sql: queries/q{number}.sql}}\n" for number in range(QUERIES))
    (folder / "queries").mkdir()
    for number in range(QUERIES):
        (folder / "queries" / f"q{number}.sql").write_text(f"SELECT value FROM s{number % STREAMS}\n")
    file = folder / "errata.yaml"
    file.write_text(f"project: wide\nstreams:\n{streams}queries:\n{queries}")
    return file


def _environment(folder: Path, project: Path) -> dict[str, str]:
    """An Airflow of its own, with a project whose catalog nobody has made: nothing may ask for it."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "ERRATA"))}
    return base_environment(own, folder) | {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(HOUSE / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(HOUSE / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "ERRATA_PROJECT": str(project),
    }
