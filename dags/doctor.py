"""Looks whether all archives are whole, row by row: all streams, in one task, which fails when something is wrong.

ERRATA_PROJECT names the project's errata.yaml; ERRATA_DOCTOR_SCHEDULE is the schedule, every day by default.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from errata_jobs import spark_job

with DAG(
    dag_id="doctor",
    description="Compares archives with what the catalog says of them",
    doc_md=__doc__,
    schedule=os.environ.get("ERRATA_DOCTOR_SCHEDULE", "@daily"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    # What is wrong stays wrong: looking again would only take as long once more.
    default_args={"retries": 0},
    tags=["errata", "maintenance"],
):
    spark_job("doctor", "doctor", [])
