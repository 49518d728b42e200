"""Links from Airflow's tasks to Errata's page."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

MOUNT = "/errata"
"""The page's path below the address of Airflow's API server."""

ROUTE = "errata"
"""The page's route in Airflow's own frame: /plugin/<route>."""


def base() -> str:
    """The prefix of every path of Airflow, if it is not at the root of its host."""
    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


def page_path(path: str) -> str:
    """The path of a page within Airflow's frame; `path` begins with a slash."""
    return f"{base()}/plugin/{ROUTE}{base()}{MOUNT}{path}"


def report_path(dag_id: str, run_id: str, task_id: str, map_index: int = -1, try_number: int | None = None) -> str:
    """The page with the commits of a task, or of one try of it. Commits record the task that made them, so the link
    is known before the task runs and stays valid."""
    task = f"{task_id}[{map_index}]" if map_index >= 0 else task_id
    said = {"dag_id": dag_id, "run_id": run_id, "task_id": task}
    if try_number is not None:
        said["try_number"] = str(try_number)
    return page_path(f"/run?{urlencode(said)}")


class ReportLink(BaseOperatorLink):
    """The link from a task to its corrections, reports and batches. Airflow asks for it when a try ends."""

    name = "Errata report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        return report_path(ti_key.dag_id, ti_key.run_id, ti_key.task_id, ti_key.map_index, ti_key.try_number)
