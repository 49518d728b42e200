"""Takes what has landed into the archives, and then brings the queries that read them up to it.

`find` looks which streams have files in their landing folders; `append` has a task for each of a few groups of them,
so that a new stream needs no edit here; `answer` evaluates the queries that are behind. It is started at once by files
that land, and by the clock, since files may land while nobody watches: ERRATA_APPEND_SCHEDULE, every ten minutes by
default. ERRATA_APPEND_JOBS, 2 by default, is the number of groups. ERRATA_PROJECT names the project's errata.yaml.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher, task

from errata_airflow import settings
from errata_airflow.operator import ErrataJob, tried
from errata_airflow.reason import airflow_errors
from errata_airflow.triggers import LandedTrigger

PROJECT = settings.checked_project()
LANDED = Asset(
    name="errata.landed",
    uri="errata://landed",
    group="errata",
    watchers=[AssetWatcher(name="landed", trigger=LandedTrigger(str(PROJECT), poll=settings.landing_poll()))],
)

with DAG(
    dag_id="append",
    description="Takes landed files into the archives, and answers the queries that read them",
    doc_md=__doc__,
    schedule=settings.schedule_with("append", "*/10 * * * *", LANDED),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["errata", "streams", "queries"],
):

    @task(task_id="find", **tried())
    def find() -> list[dict[str, Any]]:
        from errata_airflow import work  # noqa: PLC0415 - DAGs are read without it

        with airflow_errors():
            return work.landed_jobs(PROJECT, settings.most_at_once())

    # Rows in quarantine wait for a person; trying again would not mend them, so they are no failure here.
    append = ErrataJob.mapped(task_id="append", job="append", map_index_template="{{ task.about }}").expand_kwargs(
        find()
    )
    # One stream that cannot be taken in does not keep queries over others waiting, but the run then counts as failed.
    append >> EmptyOperator(task_id="taken", trigger_rule="none_failed")
    # A query that has stopped waits for a person, who is told of it once, by ERRATA_ON_FAULT: it is no failure either.
    append >> ErrataJob(
        task_id="answer",
        job="run",
        arguments=["--no-take", "--accept-stopped", "--accept-quarantine"],
        if_behind=True,
        trigger_rule="all_done",
    )
