"""Reads the DAG files of a folder as Airflow's DAG processor does, in a process of its own, and prints as JSON how long
that took and what is there: `python -P bench/airflow_read.py FOLDER`, in the environment of an Airflow.

What any DAG imports of Airflow is imported before the clock starts, so that the rest is ours.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import airflow.providers.apache.spark.operators.spark_submit
import airflow.providers.standard.operators.empty
import airflow.sdk
import airflow.timetables.interval
import airflow.timetables.trigger
import airflow.triggers.base  # noqa: F401
from airflow.dag_processing.dagbag import BundleDagBag
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import TimeRestriction

REPLAY = "replay"
"""The DAG that never runs by itself."""

OURS = ("errata", "pyspark", "sqlglot", "psycopg2")
"""Packages that are not to be imported to read DAGs."""


def read(folder: Path) -> dict[str, Any]:
    """What is in the folder, and how long it took to read."""
    began, began_work = time.perf_counter(), time.process_time()
    bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder")
    seconds, work = time.perf_counter() - began, time.process_time() - began_work
    modules = sorted(name for name in sys.modules if name.partition(".")[0] in OURS)
    found: dict[str, Any] = {"seconds": seconds, "work": work, "errors": bag.import_errors, "modules": modules}
    found["dags"] = {dag.dag_id: _told(dag) for dag in bag.dags.values()}
    found["serialised"] = [len(json.dumps(DagSerialization.to_dict(dag))) for dag in bag.dags.values()]
    if REPLAY in bag.dags:
        replay = DagSerialization.from_dict(DagSerialization.to_dict(bag.dags[REPLAY]))
        found |= {"backfill": _intervals(replay, "2026-11-01", "2026-11-03"), "alone": str(_alone(replay))}
    return found


def _told(dag: Any) -> dict[str, Any]:
    return {
        "tags": sorted(dag.tags),
        "max_active_runs": dag.max_active_runs,
        "catchup": dag.catchup,
        "begins": dag.start_date and dag.start_date.isoformat(),
        "timetable": DagSerialization.to_dict(dag)["dag"]["timetable"],
        "doc": dag.doc_md or "",
        "tasks": {task.task_id: _task(task) for task in dag.tasks},
    }


def _task(task: Any) -> dict[str, Any]:
    known = task.partial_kwargs if task.is_mapped else vars(task)
    kind = task.operator_class if task.is_mapped else type(task)
    return {
        "kind": kind.__name__,
        "job": known.get("job"),
        "arguments": known.get("arguments"),
        "retries": known.get("retries"),
        "pause": getattr(known.get("retry_delay"), "seconds", None),
        "mapped": bool(task.is_mapped),
        "after": sorted(task.upstream_task_ids),
        "pool": task.pool,
        "outlets": [each.name for each in task.outlets],
        "rule": str(getattr(task.trigger_rule, "value", task.trigger_rule)),
    }


def _intervals(dag: Any, first: str, last: str) -> list[list[str]]:
    """For which intervals the runs of a backfill stand."""
    moments = [datetime.fromisoformat(each).replace(tzinfo=UTC) for each in (first, last)]
    return [[str(each) for each in info.data_interval] for info in dag.iter_dagrun_infos_between(*moments)]


def _alone(dag: Any) -> object:
    """The run that the scheduler would make by itself."""
    when = TimeRestriction(dag.start_date, None, catchup=False)
    return dag.timetable.next_dagrun_info(last_automated_data_interval=None, restriction=when)


if __name__ == "__main__":
    sys.stdout.write(f"\n{json.dumps(read(Path(sys.argv[1])))}\n")
