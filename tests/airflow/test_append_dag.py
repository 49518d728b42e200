"""A real run of the DAG: Airflow runs the task, the task runs spark-submit, the job appends what has landed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

from errata.declare.project import load_project
from errata.flows.apply import apply, plan
from errata.flows.read import table
from fixtures.airflow import HOUSE, PROJECT, airflow_environment

RUN_DAG = """
import sys
from pathlib import Path
from airflow.dag_processing.dagbag import BundleDagBag

folder = Path(sys.argv[1])
bag = BundleDagBag(dag_folder=folder / "append.py", bundle_path=folder, bundle_name="dags-folder")
run = bag.dags["append"].test()
states = {task.task_id: str(task.state) for task in run.get_task_instances()}
print(f"\\n{run.run_id} {run.state} {states}")
sys.exit(0 if run.state == "success" else 1)
"""

LANDED = {
    "monday.csv": "time,symbol,price\n2026-11-16T09:00:00,IBM,10.5\n2026-11-16T09:00:01,SUN,3.25\n",
    "tuesday.csv": "time,symbol,price\n2026-11-17T09:00:00,IBM,11\n",
}


def run(command: list[str], folder: Path, environ: Mapping[str, str]) -> str:
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, f"{command[:3]}\n{done.stdout[-8000:]}\n{done.stderr[-8000:]}"
    return done.stdout


def test_landed_files_are_appended_and_the_commit_names_the_run(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "errata.yaml").write_text(PROJECT)
    landing = tmp_path / "landing" / "trades"
    landing.mkdir(parents=True)
    (tmp_path / "landing" / "ticks").mkdir()
    for name, text in LANDED.items():
        (landing / name).write_text(text)
    environ = airflow_environment(tmp_path)
    apply(plan(load_project(tmp_path)))
    run([str(Path(sys.executable).with_name("airflow")), "db", "migrate"], tmp_path, environ)

    printed = run([sys.executable, "-c", RUN_DAG, str(HOUSE / "dags")], tmp_path, environ)
    run_id = printed.splitlines()[-1].split()[0]

    rows = table(spark, "trades", project=tmp_path).toArrow().select(["symbol", "price"]).to_pylist()
    assert sorted((row["symbol"], row["price"]) for row in rows) == [("IBM", 10.5), ("IBM", 11.0), ("SUN", 3.25)]
    assert not list(landing.glob("*.csv"))
    with closing(sqlite3.connect(tmp_path / "errata.db")) as catalog:
        causes = catalog.execute("SELECT dag_id, run_id, task_id, try_number FROM commits WHERE flow = 'append'")
        assert causes.fetchall() == [("append", run_id, "append.trades", 1)]
