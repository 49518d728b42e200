"""Attaches a feed of a merged stream, detaches it, or trusts it again: by hand, with a form. It never runs by itself.

A feed that is attached is merged from the stream's stable point on, or from the time that is given; one that is
detached is not taken in and nobody waits for it, and what it has said stays; one that is suspect does not lead until it
is trusted. Each is one commit, and done twice it is done once. ERRATA_PROJECT names the project's errata.yaml.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task

from errata_airflow import settings
from errata_airflow.operator import tried
from errata_airflow.reason import airflow_errors

PROJECT = settings.checked_project()

with DAG(
    dag_id="feeds",
    description="Attaches, detaches or trusts a feed of a merged stream: by hand",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    params={
        "stream": Param("", type="string", minLength=1, title="Stream", description="The stream that has the feed"),
        "feed": Param("", type="string", minLength=1, title="Feed", description="Which of its feeds"),
        "what": Param("attach", enum=["attach", "detach", "trust"], title="What", description="What to do with it"),
        "since": Param(
            None,
            type=["null", "string"],
            title="From",
            description="To attach it: from here on it has everything, such as 2026-11-16T09:00 (UTC); left empty: "
            "from the stable point of the merged stream on",
        ),
    },
    tags=["errata", "streams"],
):

    @task(task_id="change", **tried())
    def change() -> str:
        from errata_airflow import work  # noqa: PLC0415 - DAGs are read without it

        context: Any = get_current_context()
        with airflow_errors():
            return work.change_feed(PROJECT, context["params"], work.cause_of(context))

    change()
