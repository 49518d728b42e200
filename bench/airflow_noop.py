"""The chain of tasks that do nothing (bench/noop), under the same Airflow: as many DAG runs, tasks, starts by an asset
and ends of waiting sensors as a correction sets going, so that what it takes is Airflow's own."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from deploy.services import Here

from bench.airflow_moments import Way
from bench.airflow_rounds import awaited

_SOURCE = Path(__file__).parent / "noop"
_FOLDERS = ("landing", "word", "done")
_TICK = 0.005


@dataclass
class Noop:
    """The chain under an Airflow that runs with its settings."""

    folder: Path
    here: Here
    name: str = "no-op chain"
    append: str = "noop_append"
    revisions: str = "noop_revisions"
    asset: str = "noop.landed"

    def land(self, number: int) -> Way:
        coming, done = self.folder / str(number), self.folder / "done" / str(number)
        coming.touch()
        landed, began = time.time(), time.perf_counter()
        coming.rename(self.folder / "landing" / coming.name)
        while not done.exists():
            awaited(self.here, began, "the last task has begun")
            time.sleep(_TICK)
        return Way(landed, time.perf_counter() - began)


def settings(folder: Path) -> dict[str, str]:
    """Make the chain's folders; what Airflow's processes need to run it beside Errata's DAGs."""
    for name in _FOLDERS:
        (folder / name).mkdir(parents=True)
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = {"dags-folder": {}, "noop": {"path": str(_SOURCE / "dags")}}
    return {
        "ERRATA_BENCH_NOOP": str(folder),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_SOURCE), os.environ.get("PYTHONPATH")))),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(
            [{"name": name, "classpath": local, "kwargs": kwargs} for name, kwargs in bundles.items()]
        ),
    }
