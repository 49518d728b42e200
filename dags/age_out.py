"""Drops the buckets that streams no longer keep: all streams that age on schedule, in one task.

ERRATA_PROJECT names the project's errata.yaml; ERRATA_AGE_OUT_SCHEDULE is the schedule, every hour by default.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from errata_jobs import spark_job

with DAG(
    dag_id="age_out",
    description="Drops whole buckets past their stream's retention",
    doc_md=__doc__,
    schedule=os.environ.get("ERRATA_AGE_OUT_SCHEDULE", "@hourly"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["errata", "maintenance"],
):
    spark_job("age_out", "age_out", [])
