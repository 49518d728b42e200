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
"""Where the page is mounted, behind the address of Airflow's API server."""

ROUTE = "errata"
"""Airflow shows the page in its own frame at /plugin/<route>."""


def base() -> str:
    """What stands before every path of Airflow, where it does not live at the root of its host."""
    return urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")


def page_path(path: str) -> str:
    """A page of Errata's within Airflow's frame; the path as the page has it, beginning with a slash."""
    return f"{base()}/plugin/{ROUTE}{base()}{MOUNT}{path}"


def report_path(dag_id: str, run_id: str, task_id: str, map_index: int = -1, try_number: int | None = None) -> str:
    """The page of what a task has done, or one try of it. It is found by what commits say of who made them, so the link
    can be told before the task has run, and holds whatever becomes of it."""
    task = f"{task_id}[{map_index}]" if map_index >= 0 else task_id
    said = {"dag_id": dag_id, "run_id": run_id, "task_id": task}
    if try_number is not None:
        said["try_number"] = str(try_number)
    return page_path(f"/run?{urlencode(said)}")


class ReportLink(BaseOperatorLink):
    """What a task has done: corrections, their reports, batches. Airflow asks for it when a try ends."""

    name = "Errata report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        return report_path(ti_key.dag_id, ti_key.run_id, ti_key.task_id, ti_key.map_index, ti_key.try_number)
