"""The DAG `append` with tasks that do nothing: a file lands, is found, and handed on."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher, task
from noop_waiting import LANDING, POLL, WORD, FolderTrigger, handed_on

LANDED = Asset(
    name="noop.landed",
    uri="noop://landed",
    watchers=[AssetWatcher(name="landed", trigger=FolderTrigger(str(LANDING), POLL))],
)

with DAG(
    dag_id="noop_append",
    schedule=[LANDED],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
):

    @task(task_id="find")
    def find() -> list[str]:
        return sorted(os.listdir(LANDING))  # noqa: PTH208 - names

    @task(task_id="append", retries=2)
    def append(name: str) -> None:
        handed_on(name, LANDING, WORD)

    @task(task_id="answer", trigger_rule="all_done")
    def answer() -> None:
        return None

    appended = append.expand(name=find())
    appended >> EmptyOperator(task_id="taken", trigger_rule="none_failed")
    appended >> answer()
