"""Matches rows with registered queries as they come, and carries on the views of them: what an invocation reads is then
there already. One that comes before is answered as well, by matching what is not matched yet on the spot.

It is started by the assets of streams and queries, after appends and sweeps, and by the clock, for rows that came from
elsewhere and for queries that were registered: ERRATA_MATERIALISE_SCHEDULE, every ten minutes by default. By hand, with
a form: one stream, or all of them. ERRATA_PROJECT names the project's errata.yaml.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from errata_airflow import settings
from errata_airflow.events import MOVED
from errata_airflow.operator import ErrataJob

settings.checked_project()

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
    ErrataJob(task_id="materialise", job="materialise", arguments=["{{ params.stream or '' }}"], tells=False)
