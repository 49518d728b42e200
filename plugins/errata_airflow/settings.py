"""What the environment says to DAGs. Nothing here opens a project or a catalog, so that reading DAGs costs nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetOrTimeSchedule, CronTriggerTimetable
from airflow.sdk.exceptions import AirflowException
from croniter import croniter

_PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
"""Airflow's names for schedules, as cron expressions."""

_JUST_NOW = timedelta(minutes=1)
"""A tick that is not older is not over: the scheduler may not have seen it yet when Airflow reads the DAG again."""

_KNOWN = frozenset({*_PRESETS, "@continuous", "@once"})

HOUSE = Path(__file__).resolve().parents[2]


def project_path() -> Path:
    """The project that ERRATA_PROJECT names, else the one beside the folder of DAGs; its file."""
    named = Path(os.environ.get("ERRATA_PROJECT") or HOUSE / "errata.yaml").absolute()
    return named / "errata.yaml" if named.is_dir() else named


def checked_project() -> Path:
    """The same; without such a file the DAG shows as an import error, with the reason."""
    found = project_path()
    if not found.is_file():
        raise AirflowException(
            f"Errata has no project to run: there is no file {found}. "
            "Set ERRATA_PROJECT to the project's errata.yaml where Airflow's processes start; `errata init` makes one."
        )
    return found


def schedule(dag_id: str, default: str | None) -> str | None:
    """When a DAG runs: ERRATA_<DAG>_SCHEDULE, a cron expression or a preset of Airflow; `none` means only by hand."""
    variable = f"ERRATA_{dag_id.upper()}_SCHEDULE"
    said = os.environ.get(variable) or default
    if said is None or said.lower() == "none":
        return None
    if said not in _KNOWN and not croniter.is_valid(said):
        raise AirflowException(
            f"{variable} is {said!r}; write a cron expression such as '30 * * * *', a preset such as @hourly, or none"
        )
    return said


def schedule_upkeep(dag_id: str, default: str) -> CronTriggerTimetable | str | None:
    """The same for upkeep, whose first run comes with its first tick. A DAG that is new, or is unpaused for the first
    time, would otherwise make up for the tick before, and all upkeep begin at once. Such a DAG has no start date."""
    cron = schedule(dag_id, default)
    if cron is None or cron in ("@continuous", "@once"):
        return cron
    return CronTriggerTimetable(_PRESETS.get(cron, cron), timezone="UTC", run_immediately=_JUST_NOW)


def schedule_with(dag_id: str, default: str, asset: Asset) -> AssetOrTimeSchedule | list[Asset]:
    """The same for a DAG that an asset starts, too."""
    cron = schedule(dag_id, default)
    if cron is None:
        return [asset]
    return AssetOrTimeSchedule(timetable=CronTriggerTimetable(_PRESETS.get(cron, cron), timezone="UTC"), assets=[asset])


def connection() -> str:
    """Airflow's connection to Spark."""
    return os.environ.get("ERRATA_SPARK_CONNECTION") or "spark_default"


def spark_conf() -> dict[str, str]:
    """Settings of Spark for every job: ERRATA_SPARK_CONF, a JSON object."""
    said = os.environ.get("ERRATA_SPARK_CONF")
    if not said:
        return {}
    try:
        found = json.loads(said)
    except ValueError as error:
        raise AirflowException(f"ERRATA_SPARK_CONF is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise AirflowException('ERRATA_SPARK_CONF is no JSON object; write {"spark.executor.memory": "4g"}')
    return {str(name): str(value) for name, value in found.items()}


def remote() -> str | None:
    """The Spark Connect server that jobs are to use, sc://host:port; None: each job is submitted by itself."""
    return os.environ.get("ERRATA_SPARK_REMOTE") or None


def preloads() -> bool:
    """Whether this process is to load what its workers' tasks need: ERRATA_PRELOAD."""
    return (os.environ.get("ERRATA_PRELOAD") or "no").lower() == "yes"


def pool() -> str:
    """The pool whose slots bound how many jobs run at once."""
    return os.environ.get("ERRATA_POOL") or "default_pool"


def most_at_once() -> int:
    """Into how many jobs streams are put together that are to be taken in at the same time."""
    said = os.environ.get("ERRATA_APPEND_JOBS") or "2"
    if not said.isdecimal() or int(said) < 1:
        raise AirflowException(f"ERRATA_APPEND_JOBS is {said!r}; write a number of jobs, such as 2")
    return int(said)


def landing_poll() -> float:
    """How often landing folders are looked at for new files, in seconds."""
    said = os.environ.get("ERRATA_LANDING_SECONDS") or "2"
    if not said.isdecimal() or int(said) < 1:
        raise AirflowException(f"ERRATA_LANDING_SECONDS is {said!r}; write a number of seconds, such as 2")
    return float(said)


def retry_delay() -> timedelta:
    """How long a job that failed waits before its first retry; each next one waits twice as long, up to ten minutes."""
    said = os.environ.get("ERRATA_RETRY_SECONDS") or "30"
    if not said.isdecimal():
        raise AirflowException(f"ERRATA_RETRY_SECONDS is {said!r}; write a number of seconds, such as 30")
    return timedelta(seconds=int(said))


def on_failure(context: Any) -> None:
    """What is called when a task has failed for good: ERRATA_ON_FAILURE, as package.module:function."""
    if call := _called("ERRATA_ON_FAILURE", os.environ.get("ERRATA_ON_FAILURE")):
        call(context)


def on_fault() -> Callable[[Any], object] | None:
    """What is called when a query stops and when that is over: ERRATA_ON_FAULT, as package.module:function."""
    return _called("ERRATA_ON_FAULT", os.environ.get("ERRATA_ON_FAULT"))


def _called(variable: str, said: str | None) -> Callable[[Any], object] | None:
    if not said:
        return None
    module, _, name = said.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise AirflowException(f"{variable} is {said!r}, which cannot be found: {error}") from None
    if not callable(found):
        raise AirflowException(f"{variable} is {said!r}, which is no function")
    return found  # type: ignore[no-any-return]
