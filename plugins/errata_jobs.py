"""What DAGs share: where the project is, and one function that turns a job into an operator.

Airflow puts this folder on the path of every process that reads DAGs. Nothing here opens the catalog.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from errata.declare.project import load_project
from errata.errors import ErrataError
from errata.model.stream import Stream

HOUSE = Path(__file__).resolve().parent.parent

CAUSE = (
    *("--dag-id", "{{ dag.dag_id }}"),
    *("--run-id", "{{ run_id }}"),
    *("--task-id", "{{ ti.task_id }}"),
    *("--try-number", "{{ ti.try_number }}"),
)
"""Who runs a job, for its commits: as arguments, since no environment variable reaches a driver on a cluster."""


def project_path() -> Path:
    """The project that ERRATA_PROJECT names, else the one beside the folder of DAGs."""
    return Path(os.environ.get("ERRATA_PROJECT") or HOUSE / "errata.yaml").absolute()


def declared_streams() -> Mapping[str, Stream]:
    """The project's streams.

    Without a readable project this fails, so that the DAG shows as an import error with the reason: a list of DAGs
    that is merely shorter would look as if all were well.
    """
    try:
        return load_project(project_path()).streams
    except ErrataError as error:
        raise AirflowException(f"Errata has no project to run: {error}") from None


def spark_job(job: str, task_id: str, arguments: Sequence[str]) -> SparkSubmitOperator:
    """A task that submits jobs/<job>.py for the project to the Spark of connection `spark_default`."""
    return SparkSubmitOperator(
        task_id=task_id,
        application=str(HOUSE / "jobs" / f"{job}.py"),
        application_args=["--project", str(project_path()), *arguments, *CAUSE],
        conn_id="spark_default",
        name=f"errata {task_id}",
        conf={"spark.log.level": "ERROR"},  # so that the last line in a failed task's log is the job's own reason
    )
