"""Looks whether all archives are whole, row by row: all streams, in one task, which fails when something is wrong.

ERRATA_DOCTOR_SCHEDULE is the schedule, every day at 2:45 by default. ERRATA_PROJECT names the project's errata.yaml.
"""

from __future__ import annotations

from airflow.sdk import DAG

from errata_airflow import settings
from errata_airflow.operator import ErrataJob

settings.checked_project()

with DAG(
    dag_id="doctor",
    description="Compares archives with what the catalog says of them",
    doc_md=__doc__,
    schedule=settings.schedule_upkeep("doctor", "45 2 * * *"),
    catchup=False,
    max_active_runs=1,
    tags=["errata", "maintenance"],
):
    # What is found wrong stays wrong, and is not looked for again.
    ErrataJob(task_id="doctor", job="doctor", tells=False)
