"""Builds, shrinks and drops copies and summaries as declared and as readers asked, purges originals, and removes what
no commit within the horizon and no reader needs, and what killed runs left: all streams, in one task.

ERRATA_VACUUM_SCHEDULE is the schedule, every day at 2:15 by default. ERRATA_PROJECT names the project's errata.yaml.
"""

from __future__ import annotations

from airflow.sdk import DAG

from errata_airflow import settings
from errata_airflow.operator import ErrataJob

settings.checked_project()

with DAG(
    dag_id="vacuum",
    description="Keeps smaller versions as readers ask, and removes what nobody needs",
    doc_md=__doc__,
    schedule=settings.schedule_upkeep("vacuum", "15 2 * * *"),
    catchup=False,
    max_active_runs=1,
    tags=["errata", "maintenance"],
):
    ErrataJob(task_id="vacuum", job="vacuum", tells=False)
