"""Where the seconds go between a file that lands and the result that it corrects, from what Airflow tells of its tasks.

Nothing here speaks to Airflow: what its REST API answered is read.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bench.measure import Grid

Told = Mapping[str, Any]
"""A DAG run, a task instance or an asset event, as the REST API tells it."""

SEEN = "the file is seen"
BEGUN = "run of append begun"
QUEUED = "task append queued"
STARTED = "task append started"
ENDED = "task append ended"
WOKEN = "the sensor has ended"
SWEEP_QUEUED = "task sweep queued"
SWEEP_STARTED = "task sweep started"
VISIBLE = "corrected result visible"
SWEEP_ENDED = "task sweep ended"
ALL_ENDED = "run of append ended"

MOMENTS = (
    SEEN,
    BEGUN,
    QUEUED,
    STARTED,
    ENDED,
    WOKEN,
    SWEEP_QUEUED,
    SWEEP_STARTED,
    VISIBLE,
    SWEEP_ENDED,
    ALL_ENDED,
)
"""In the order of a correction's way. The commit of `append`, within its task, is what wakes the sensor."""


@dataclass(frozen=True, slots=True)
class Way:
    """One correction's way: when it landed, as a clock says, and after how many seconds its result was visible."""

    landed: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Answers:
    """What the REST API has told after a correction's way."""

    events: Sequence[Told]
    """Of the asset that stands for landed files."""
    appends: Sequence[Told]
    """Runs of the first DAG."""
    taken: Sequence[Told]
    """Its task instances."""
    swept: Sequence[Told]
    """Task instances of the second DAG."""


def moments(way: Way, told: Answers) -> dict[str, float]:
    """When each thing happened, in seconds since the correction landed."""
    run = _first(told.appends, "start_date", way)
    mine = [each for each in told.taken if each["dag_run_id"] == run["dag_run_id"]]
    append = _first([each for each in mine if each["task_id"] == "append"], "start_date", way)
    arrival = _first([each for each in told.swept if each["task_id"] == "arrival"], "end_date", way)
    sweep = _first([each for each in told.swept if each["task_id"] == "sweep"], "start_date", way)
    at = {
        SEEN: _first(told.events, "timestamp", way)["timestamp"],
        BEGUN: run["start_date"],
        QUEUED: append["queued_when"],
        STARTED: append["start_date"],
        ENDED: append["end_date"],
        WOKEN: arrival["end_date"],
        SWEEP_QUEUED: sweep["queued_when"],
        SWEEP_STARTED: sweep["start_date"],
        SWEEP_ENDED: sweep["end_date"],
        ALL_ENDED: run["end_date"],
    }
    since = {name: _clock(moment) - way.landed for name, moment in at.items()} | {VISIBLE: way.seconds}
    return {name: since[name] for name in MOMENTS}


def moments_grid(found: Mapping[str, Sequence[Mapping[str, float]]]) -> Grid:
    """The medians of several corrections' ways, beside each other."""
    rows = {
        name: [statistics.median(each[name] for each in ways) for ways in found.values()]
        for name in MOMENTS
        if all(found.values())
    }
    return Grid("moments", "Seconds since a correction has landed, medians", list(found), rows)


def held(instances: Iterable[Told], pools: Iterable[Told]) -> int:
    """How many slots are taken: by task instances that run or are about to, or that pools count."""
    running = sum(each["state"] in ("queued", "running", "restarting") for each in instances)
    return max(running, sum(each["occupied_slots"] for each in pools))


def waits(runs: Iterable[Told], instances: Iterable[Told]) -> bool:
    """Whether the second DAG has one run, whose sensor has begun, wherever that may be."""
    active = [each["dag_run_id"] for each in runs if each["state"] in ("queued", "running")]
    state = {each["task_id"]: each["state"] for each in instances if each["dag_run_id"] in active}
    return len(active) == 1 and state.get("arrival") in ("running", "deferred", "up_for_reschedule")


def _first(some: Sequence[Told], by: str, way: Way) -> Told:
    """The first that happened after the correction had landed."""
    after = [each for each in some if each[by] is not None and _clock(each[by]) >= way.landed]
    if not after:
        raise AssertionError(f"nothing of {by} has happened since the correction landed, in {list(some)}")
    return min(after, key=lambda each: _clock(each[by]))


def _clock(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
