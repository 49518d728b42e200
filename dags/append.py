"""Appends what has landed: one task for every declared stream with a landing folder, so a new stream needs no edit.

ERRATA_PROJECT names the project's errata.yaml; ERRATA_APPEND_SCHEDULE is the schedule, every minute by default.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from errata_jobs import declared_streams, spark_job

with DAG(
    dag_id="append",
    description="Takes landed files into the archives",
    doc_md=__doc__,
    schedule=os.environ.get("ERRATA_APPEND_SCHEDULE", "* * * * *"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    tags=["errata", "append"],
):
    for name, stream in declared_streams().items():
        if stream.landing is not None:
            # Rows in quarantine wait for a person; trying again would not mend them, so they are no failure here.
            spark_job("append", f"append.{name}", [name, "--landed", "--accept-quarantine"])
