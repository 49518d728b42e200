"""Works corrections into the buckets, and merges small buckets, as far as it is worth it: all streams, in one task.

ERRATA_COMPACT_SCHEDULE is the schedule, at half past every hour by default. ERRATA_PROJECT names the project's
errata.yaml.
"""

from __future__ import annotations

from airflow.sdk import DAG

from errata_airflow import settings
from errata_airflow.operator import ErrataJob

settings.checked_project()

with DAG(
    dag_id="compact",
    description="Works corrections into buckets and merges small ones",
    doc_md=__doc__,
    schedule=settings.schedule_upkeep("compact", "30 * * * *"),
    catchup=False,
    max_active_runs=1,
    tags=["errata", "maintenance"],
):
    ErrataJob(task_id="compact", job="compact", tells=False)
