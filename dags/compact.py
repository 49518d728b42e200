"""Works corrections into the buckets, and merges small buckets, as far as it is worth it: all streams, in one task.

ERRATA_PROJECT names the project's errata.yaml; ERRATA_COMPACT_SCHEDULE is the schedule, at half past by default.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from errata_jobs import spark_job

with DAG(
    dag_id="compact",
    description="Works corrections into buckets and merges small ones",
    doc_md=__doc__,
    schedule=os.environ.get("ERRATA_COMPACT_SCHEDULE", "30 * * * *"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["errata", "maintenance"],
):
    spark_job("compact", "compact", [])
