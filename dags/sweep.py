"""Lets corrections reach the answers: what is pending becomes part of history, and the published results that it
invalidates are corrected, query by query, each in one commit.

Corrections that the project or a query defers (`sweep: {when: …}`) wait until they are due. ERRATA_PROJECT names the
project's errata.yaml; ERRATA_SWEEP_SCHEDULE is the schedule, every five minutes by default.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from errata_jobs import spark_job

with DAG(
    dag_id="sweep",
    description="Corrects the results that corrections invalidate",
    doc_md=__doc__,
    schedule=os.environ.get("ERRATA_SWEEP_SCHEDULE", "*/5 * * * *"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["errata", "corrections", "queries"],
):
    # Wrong corrections wait in quarantine for a person; trying again would not mend them.
    spark_job("sweep", "sweep", ["--due", "--accept-quarantine"])
