"""Removes what no commit within the horizon and no reader needs, and what killed runs left: all streams, in one task.

ERRATA_PROJECT names the project's errata.yaml; ERRATA_VACUUM_SCHEDULE is the schedule, every day by default.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from errata_jobs import spark_job

with DAG(
    dag_id="vacuum",
    description="Removes superseded buckets and files that nobody names",
    doc_md=__doc__,
    schedule=os.environ.get("ERRATA_VACUUM_SCHEDULE", "@daily"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["errata", "maintenance"],
):
    spark_job("vacuum", "vacuum", [])
