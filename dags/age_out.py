"""Drops the buckets that streams no longer keep: all streams that age on schedule, in one task.

ERRATA_AGE_OUT_SCHEDULE is the schedule, every hour by default. ERRATA_PROJECT names the project's errata.yaml.
"""

from __future__ import annotations

from airflow.sdk import DAG

from errata_airflow import settings
from errata_airflow.operator import ErrataJob

settings.checked_project()

with DAG(
    dag_id="age_out",
    description="Drops whole buckets past their stream's retention",
    doc_md=__doc__,
    schedule=settings.schedule_upkeep("age_out", "@hourly"),
    catchup=False,
    max_active_runs=1,
    tags=["errata", "maintenance"],
):
    ErrataJob(task_id="age_out", job="age_out", tells=False)
