"""Works ranges of queries' results out again from history. Only what comes out different is published; otherwise the
range is verified. It goes on where it was when it is tried again, and twice has the same effect as once.

By hand, with a form: the query (or all of them), the range, the technique. By backfill, for a stretch of days:

    airflow backfill create --dag-id replay --from-date 2026-11-01 --to-date 2026-11-07 \\
        --dag-run-conf '{"query": "Q"}' --reprocess-behavior completed

where the run of logical date d stands for [d, d + one interval); ERRATA_REPLAY_SCHEDULE, a cron expression, says how
long an interval is, a day by default. It never runs by itself, and catches nothing up by itself. Up to three run at
once. ERRATA_PROJECT names the project's errata.yaml.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task

from errata_airflow import settings
from errata_airflow.operator import ErrataJob, tried
from errata_airflow.reason import airflow_errors
from errata_airflow.timetable import OnDemand

PROJECT = settings.checked_project()

with DAG(
    dag_id="replay",
    description="Works a range of results out again: by hand, or by backfill",
    doc_md=__doc__,
    schedule=OnDemand(settings.schedule("replay", "0 0 * * *") or "0 0 * * *", "UTC"),
    start_date=datetime(2000, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=3,
    params={
        "query": Param(
            None, type=["null", "string"], title="Query", description="Whose results; left empty: all queries"
        ),
        "since": Param(
            None,
            type=["null", "string"],
            title="From",
            description="The first event time (UTC) of the range, such as 2026-11-16T09:00; a backfill has its own",
        ),
        "until": Param(
            None,
            type=["null", "string"],
            title="To",
            description="The event time before which it ends, such as 2026-11-16T10:00; a backfill has its own",
        ),
        "technique": Param(
            "auto",
            enum=["auto", "all", "minimal"],
            title="Technique",
            description="Which rows are read; auto: whatever is expected to cost least",
        ),
        "dry_run": Param(False, type="boolean", title="Dry run", description="Only tell in the log what it would take"),
    },
    tags=["errata", "corrections", "queries"],
):

    @task(task_id="ranges", **tried())
    def ranges() -> list[dict[str, Any]]:
        from errata_airflow import work  # noqa: PLC0415 - DAGs are read without it

        context: Any = get_current_context()
        with airflow_errors():
            return work.replay_jobs(PROJECT, context["params"], work.interval_of(context))

    # Of one query one works at a time, and the others wait for it.
    ErrataJob.mapped(task_id="replay", job="replay", map_index_template="{{ task.about }}").expand_kwargs(ranges())
