"""Settings of the DAGs, from environment variables. No project or catalog is opened here, so that parsing DAGs is
cheap."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow.sdk import Asset, AssetAlias, AssetAny, AssetOrTimeSchedule, CronTriggerTimetable
from airflow.sdk.exceptions import AirflowException
from croniter import croniter

_PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
"""Airflow's presets as cron expressions."""

_JUST_NOW = timedelta(minutes=1)
"""Age up to which a tick is not skipped: the scheduler may not have seen it when Airflow parses the DAG again."""

_KNOWN = frozenset({*_PRESETS, "@continuous", "@once"})

HOUSE = Path(__file__).resolve().parents[2]


def project_path() -> Path:
    """The project file: the one that ERRATA_PROJECT names, else the one beside the DAG folder."""
    named = Path(os.environ.get("ERRATA_PROJECT") or HOUSE / "errata.yaml").absolute()
    return named / "errata.yaml" if named.is_dir() else named


def checked_project() -> Path:
    """The same; without such a file the DAG is an import error with the reason."""
    found = project_path()
    if not found.is_file():
        raise AirflowException(
            f"Errata has no project to run: there is no file {found}. "
            "Set ERRATA_PROJECT to the project's errata.yaml where Airflow's processes start; `errata init` makes one."
        )
    return found


def schedule(dag_id: str, default: str | None) -> str | None:
    """The schedule of a DAG: ERRATA_<DAG>_SCHEDULE, a cron expression or a preset of Airflow; `none` means manual
    runs only."""
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
    """The same for upkeep, whose first run comes with its first tick. Otherwise a DAG that is new or is unpaused for
    the first time would run the tick before, and all upkeep would begin at once. Such a DAG has no start date."""
    cron = schedule(dag_id, default)
    if cron is None or cron in ("@continuous", "@once"):
        return cron
    return CronTriggerTimetable(_PRESETS.get(cron, cron), timezone="UTC", run_immediately=_JUST_NOW)


def schedule_with(
    dag_id: str, default: str, asset: Asset | AssetAlias
) -> AssetOrTimeSchedule | list[Asset | AssetAlias]:
    """The same for a DAG that an asset can start, too, or any asset of an alias."""
    cron = schedule(dag_id, default)
    if cron is None:
        return [asset]
    return AssetOrTimeSchedule(
        timetable=CronTriggerTimetable(_PRESETS.get(cron, cron), timezone="UTC"), assets=AssetAny(asset)
    )


def connection() -> str:
    """The id of Airflow's Spark connection."""
    return os.environ.get("ERRATA_SPARK_CONNECTION") or "spark_default"


def spark_conf() -> dict[str, str]:
    """Spark settings of every job: ERRATA_SPARK_CONF, a JSON object."""
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
    """The Spark Connect server of jobs, sc://host:port; None if each job is submitted by itself."""
    return os.environ.get("ERRATA_SPARK_REMOTE") or None


def preloads() -> bool:
    """Whether this process loads what its workers' tasks need: ERRATA_PRELOAD."""
    return (os.environ.get("ERRATA_PRELOAD") or "no").lower() == "yes"


def pool() -> str:
    """The pool whose slots limit how many jobs run at once."""
    return os.environ.get("ERRATA_POOL") or "default_pool"


def most_at_once() -> int:
    """The number of jobs among which streams with landed files are divided."""
    said = os.environ.get("ERRATA_APPEND_JOBS") or "2"
    if not said.isdecimal() or int(said) < 1:
        raise AirflowException(f"ERRATA_APPEND_JOBS is {said!r}; write a number of jobs, such as 2")
    return int(said)


def landing_poll() -> float:
    """Seconds between two looks into landing folders."""
    said = os.environ.get("ERRATA_LANDING_SECONDS") or "2"
    if not said.isdecimal() or int(said) < 1:
        raise AirflowException(f"ERRATA_LANDING_SECONDS is {said!r}; write a number of seconds, such as 2")
    return float(said)


def retry_delay() -> timedelta:
    """The delay before a failed job's first retry; it doubles with each, up to ten minutes."""
    said = os.environ.get("ERRATA_RETRY_SECONDS") or "30"
    if not said.isdecimal():
        raise AirflowException(f"ERRATA_RETRY_SECONDS is {said!r}; write a number of seconds, such as 30")
    return timedelta(seconds=int(said))


def on_failure(context: Any) -> None:
    """The function that is called when a task has failed finally: ERRATA_ON_FAILURE, as package.module:function."""
    if call := _called("ERRATA_ON_FAILURE", os.environ.get("ERRATA_ON_FAILURE")):
        call(context)


def on_fault() -> Callable[[Any], object] | None:
    """The function that is called when a query stops and when it goes on: ERRATA_ON_FAULT, as
    package.module:function."""
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
