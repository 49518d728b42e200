"""Works a range of a query's results out again from history: started by hand, with a form.

Only what comes out different is published; otherwise the range is verified. A run that was broken off goes on where it
was when it is tried again.

ERRATA_PROJECT names the project's errata.yaml.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param

from errata_jobs import spark_job

with DAG(
    dag_id="replay",
    description="Works a range of results out again",
    doc_md=__doc__,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    params={
        "query": Param(type="string", minLength=1, title="Query", description="Whose results are worked out again"),
        "since": Param(type="string", minLength=1, title="From", description="The first event time of the range"),
        "until": Param(type="string", minLength=1, title="To", description="The event time before which it ends"),
        "technique": Param(
            "auto", enum=["auto", "all", "minimal"], title="Technique", description="Which rows are read"
        ),
        "dry_run": Param(False, type="boolean", title="Dry run", description="Only tell what it would take"),
    },
    tags=["errata", "corrections", "queries"],
):
    spark_job(
        "replay",
        "replay",
        [
            "{{ params.query }}",
            *("--from", "{{ params.since }}"),
            *("--to", "{{ params.until }}"),
            *("--technique", "{{ params.technique }}"),
            "{{ '--dry-run' if params.dry_run else '--technique=' ~ params.technique }}",
        ],
    )
