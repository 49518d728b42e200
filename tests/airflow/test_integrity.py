"""The DAG files as Airflow reads them: in a process of their own, with a home of their own, and no catalog in reach."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fixtures.airflow import HOUSE, PROJECT, airflow_environment

READ_DAGS = """
import json, sys, time
from airflow.dag_processing.dagbag import BundleDagBag
from pathlib import Path

began = time.monotonic()
folder = Path(sys.argv[1])
bag = BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder")
print("\\n" + json.dumps({
    "seconds": time.monotonic() - began,
    "errors": bag.import_errors,
    "dags": {
        dag.dag_id: {
            "tags": sorted(dag.tags),
            "max_active_runs": dag.max_active_runs,
            "catchup": dag.catchup,
            "tasks": {
                task.task_id: {
                    "application": task.application,
                    "arguments": list(task.application_args),
                    "connection": task._conn_id,
                    "retries": task.retries,
                } for task in dag.tasks
            },
        } for dag in bag.dags.values()
    },
    "modules": sorted(name for name in sys.modules if name.startswith(("errata.", "pyspark"))),
}))
"""


def read_dags(folder: Path, **environ: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", READ_DAGS, str(HOUSE / "dags")],
        env={**airflow_environment(folder), **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "errata.yaml").write_text(PROJECT)
    answer = read_dags(folder, ERRATA_CATALOG="postgresql+psycopg2://nobody@127.0.0.1:9/none")
    answer["files"] = sorted(path.name for path in folder.iterdir())
    answer["project"] = str(folder / "errata.yaml")
    return answer


def test_every_dag_file_is_read_without_an_error(dags: dict[str, Any]) -> None:
    assert dags["errors"] == {}
    assert set(dags["dags"]) == {"append", "age_out", "compact", "doctor", "replay", "run", "sweep", "vacuum"}


def test_ageing_has_one_task_for_all_streams(dags: dict[str, Any]) -> None:
    ageing = dags["dags"]["age_out"]
    assert (ageing["max_active_runs"], ageing["catchup"]) == (1, False)
    task = ageing["tasks"]["age_out"]
    assert task["application"].endswith("jobs/age_out.py")
    assert task["arguments"][:2] == ["--project", dags["project"]]


def test_compaction_has_one_task_for_all_streams(dags: dict[str, Any]) -> None:
    compaction = dags["dags"]["compact"]
    assert (compaction["max_active_runs"], compaction["catchup"]) == (1, False)
    task = compaction["tasks"]["compact"]
    assert task["application"].endswith("jobs/compact.py")
    assert task["arguments"][:3] == ["--project", dags["project"], "--dag-id"]


def test_vacuum_has_one_task_for_all_streams(dags: dict[str, Any]) -> None:
    vacuum = dags["dags"]["vacuum"]
    assert (vacuum["max_active_runs"], vacuum["catchup"]) == (1, False)
    task = vacuum["tasks"]["vacuum"]
    assert task["application"].endswith("jobs/vacuum.py")
    assert task["arguments"][:3] == ["--project", dags["project"], "--dag-id"]


def test_the_doctor_has_one_task_for_all_streams(dags: dict[str, Any]) -> None:
    doctor = dags["dags"]["doctor"]
    assert (doctor["max_active_runs"], doctor["catchup"]) == (1, False)
    task = doctor["tasks"]["doctor"]
    assert task["application"].endswith("jobs/doctor.py")
    assert task["arguments"][:3] == ["--project", dags["project"], "--dag-id"]


def test_queries_are_evaluated_in_one_task_that_takes_nothing_in(dags: dict[str, Any]) -> None:
    running = dags["dags"]["run"]
    assert (running["max_active_runs"], running["catchup"]) == (1, False)
    (task,) = running["tasks"].values()
    assert task["application"].endswith("jobs/run.py")
    assert task["arguments"][:4] == ["--project", dags["project"], "--no-take", "--dag-id"]
    assert task["retries"] == 0, "the next run is a minute away, and a query that has stopped waits for a person"


def test_corrections_that_are_due_are_swept_in_one_task(dags: dict[str, Any]) -> None:
    sweeping = dags["dags"]["sweep"]
    assert (sweeping["max_active_runs"], sweeping["catchup"]) == (1, False)
    (task,) = sweeping["tasks"].values()
    assert task["application"].endswith("jobs/sweep.py")
    assert task["arguments"][:5] == ["--project", dags["project"], "--due", "--accept-quarantine", "--dag-id"]


def test_a_replay_takes_its_range_from_a_form(dags: dict[str, Any]) -> None:
    replaying = dags["dags"]["replay"]
    assert (replaying["max_active_runs"], replaying["catchup"]) == (1, False)
    (task,) = replaying["tasks"].values()
    assert task["application"].endswith("jobs/replay.py")
    wanted = ["{{ params.query }}", "--from", "{{ params.since }}", "--to", "{{ params.until }}"]
    assert task["arguments"][2:7] == wanted


def test_a_stream_with_a_landing_folder_has_a_task(dags: dict[str, Any]) -> None:
    append = dags["dags"]["append"]
    assert set(append["tasks"]) == {"append.trades", "append.ticks"}
    assert (append["max_active_runs"], append["catchup"]) == (1, False)
    assert "errata" in append["tags"]
    task = append["tasks"]["append.trades"]
    assert task["connection"] == "spark_default"
    assert task["retries"] > 0
    assert Path(task["application"]) == HOUSE / "jobs" / "append.py"
    assert task["arguments"][:4] == ["--project", dags["project"], "trades", "--landed"]
    assert {"--dag-id", "--run-id", "--task-id", "--try-number"} <= set(task["arguments"])


def test_reading_dags_touches_no_catalog_and_starts_no_spark(dags: dict[str, Any]) -> None:
    # The project's catalog is at a port where nobody listens: opening it would have been an error above.
    assert [name for name in dags["modules"] if name.startswith("errata.catalog")] == []
    assert not any(name.startswith("pyspark") for name in dags["modules"])
    assert "errata.db" not in dags["files"]


def test_reading_dags_is_quick(dags: dict[str, Any]) -> None:
    assert dags["seconds"] < 10  # Airflow itself gives up on a file after 30


def test_without_a_project_the_reason_is_an_import_error(tmp_path: Path) -> None:
    answer = read_dags(tmp_path)
    assert "append" not in answer["dags"]
    (error,) = answer["errors"].values()
    assert f"there is no file {tmp_path / 'errata.yaml'}" in error


@pytest.mark.parametrize(
    "job", ["append", "age_out", "compact", "doctor", "replay", "revise", "run", "sweep", "vacuum"]
)
def test_a_job_takes_what_its_dag_gives_it(job: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HOUSE / "jobs" / f"{job}.py"), "--help"], capture_output=True, text=True, check=True
    )
    for option in ("--project", "--dag-id", "--run-id", "--task-id", "--try-number"):
        assert option in done.stdout


def test_a_job_that_fails_ends_with_the_reason_and_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, str(HOUSE / "jobs" / "append.py"), "trades", "--project", str(tmp_path / "none.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("there is no file")
    assert "Traceback" not in done.stderr
