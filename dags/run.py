"""Brings queries up to their streams: all that are behind, in one task, which fails when one of them has stopped.

What has landed is taken in by `append`. ERRATA_PROJECT names the project's errata.yaml; ERRATA_RUN_SCHEDULE is the
schedule, every minute by default.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG

from errata_jobs import spark_job

with DAG(
    dag_id="run",
    description="Evaluates the queries that are behind",
    doc_md=__doc__,
    schedule=os.environ.get("ERRATA_RUN_SCHEDULE", "* * * * *"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    # A query that has stopped waits for a person, and whatever else went wrong the next run does.
    default_args={"retries": 0},
    tags=["errata", "queries"],
):
    spark_job("run", "run", ["--no-take"])
