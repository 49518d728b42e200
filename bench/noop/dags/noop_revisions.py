"""The DAG `revisions` with a task that does nothing but say that it was begun."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, task
from noop_waiting import DONE, WORD, FolderSensor, handed_on

with DAG(
    dag_id="noop_revisions",
    schedule="@continuous",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):

    @task(task_id="sweep", retries=3)
    def sweep() -> None:
        for name in os.listdir(WORD):  # noqa: PTH208 - names
            handed_on(name, WORD, DONE)

    FolderSensor(task_id="arrival", folder=WORD) >> sweep()
