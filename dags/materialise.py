"""Matches rows with registered queries as they come, and carries on the views of them: what an invocation reads is then
there already. One that comes before is answered as well, by matching on the spot what is not matched yet.

`find` asks the catalog whether there is something to match, and only then does `materialise` start a job. Both follow
the assets of streams and queries, after appends and sweeps, and the clock, for rows that came from elsewhere and for
queries that were registered: ERRATA_MATERIALISE_SCHEDULE, every ten minutes by default. By hand, with a form: one
stream, or all of them. ERRATA_PROJECT names the project's errata.yaml.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task

from errata_airflow import settings
from errata_airflow.events import MOVED
from errata_airflow.operator import ErrataJob, tried
from errata_airflow.reason import airflow_errors

PROJECT = settings.checked_project()

with DAG(
    dag_id="materialise",
    description="Matches rows with registered queries, and carries their views on",
    doc_md=__doc__,
    schedule=settings.schedule_with("materialise", "5-59/10 * * * *", MOVED),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    params={
        "stream": Param(
            None, type=["null", "string"], title="Stream", description="Whose rows; left empty: of all streams"
        ),
    },
    tags=["errata", "streams", "queries"],
):

    @task(task_id="find", **tried())
    def find() -> list[dict[str, Any]]:
        from errata_airflow import work  # noqa: PLC0415 - DAGs are read without it

        context: Any = get_current_context()
        with airflow_errors():
            return work.matching_jobs(PROJECT, context["params"]["stream"])

    ErrataJob.mapped(
        task_id="materialise", job="materialise", tells=False, map_index_template="{{ task.about }}"
    ).expand_kwargs(find())
