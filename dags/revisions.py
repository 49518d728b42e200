"""Lets corrections reach the answers: waits until corrections have come that are due, then works them into history and
corrects the published results that they invalidate, query by query, each in one commit.

One run waits at any time, and while it waits it holds no worker: the sensor is told by the catalog (PostgreSQL), or
looks every few seconds. Corrections that the project or a query defers (`sweep: {when: …}`) wait until they are due.
ERRATA_PROJECT names the project's errata.yaml.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from errata_airflow import settings
from errata_airflow.operator import ErrataJob
from errata_airflow.sensors import RevisionArrivalSensor

settings.checked_project()

with DAG(
    dag_id="revisions",
    description="Corrects the results that corrections invalidate, as soon as they come",
    doc_md=__doc__,
    schedule=settings.schedule("revisions", "@continuous"),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["errata", "corrections", "queries"],
):
    arrival = RevisionArrivalSensor(task_id="arrival", timeout=timedelta(days=1).total_seconds(), soft_fail=True)
    # Wrong corrections and queries that have stopped wait for a person; trying again would not mend them.
    arrival >> ErrataJob(task_id="sweep", job="sweep", arguments=["--due", "--accept-quarantine", "--accept-stopped"])
