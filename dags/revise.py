"""Applies pending corrections: late rows, and rows with `_op`, become part of history; all streams in one task.

ERRATA_PROJECT names the project's errata.yaml; ERRATA_REVISE_SCHEDULE is the schedule, every five minutes by default.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from errata_jobs import spark_job

with DAG(
    dag_id="revise",
    description="Applies pending corrections to history",
    doc_md=__doc__,
    schedule=os.environ.get("ERRATA_REVISE_SCHEDULE", "*/5 * * * *"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["errata", "corrections"],
):
    # Wrong corrections wait in quarantine for a person; trying again would not mend them.
    spark_job("revise", "revise", ["--accept-quarantine"])
