"""Sensors in each of their modes: on the triggerer from beginning to end, deferred by a worker, looking themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.models.trigger import Trigger
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowRescheduleException, AirflowSensorTimeout, TaskDeferred
from airflow.sdk.module_loading import import_string
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.base import StartTriggerArgs

from errata.errors import UsageError
from errata_airflow.sensors import CatalogSensor, RevisionArrivalSensor, StreamStableSensor
from errata_airflow.triggers import RevisionArrivalTrigger, StreamStableTrigger
from fixtures.airflow import airflow_environment
from fixtures.postgres import FreshDatabase
from fixtures.waiting import CORRECTION, Place

COME = {"streams": {"quotes": {"count": 1, "first": 1, "last": 1}}, "queries": []}


@pytest.fixture
def place(tmp_path: Path, fresh_database: FreshDatabase) -> Place:
    there = Place(tmp_path, fresh_database("sqlite"))
    there.take("1,a,5,insert", "20,b,7,insert")
    return there


def of_arrivals(place: Place, **how: Any) -> RevisionArrivalSensor:
    return RevisionArrivalSensor(task_id="arrival", project=str(place.file), **how)


def told(text: str) -> dict[str, Any]:
    answer = json.loads(text)
    return {name: answer[name] for name in COME}


def as_stored(sensor: CatalogSensor) -> Any:
    """The sensor as the scheduler knows it."""
    with DAG("waiting", schedule=None) as dag:
        dag.add_task(sensor)
    stored = json.loads(json.dumps(DagSerialization.to_dict(dag)))
    return DagSerialization.from_dict(stored).get_task(sensor.task_id)


def as_triggerer(given: StartTriggerArgs) -> Any:
    """The trigger as it is made of what the scheduler stores."""
    row = Trigger(given.trigger_cls, given.trigger_kwargs or {})
    return import_string(row.classpath)(**row.kwargs)


def test_a_deferrable_one_starts_and_ends_on_the_triggerer(place: Place) -> None:
    there = as_stored(of_arrivals(place, names=["one"], poll=7.0, timeout=3600))
    assert there.start_from_trigger
    given = there.start_trigger_args
    trigger = as_triggerer(given)
    assert isinstance(trigger, RevisionArrivalTrigger)
    assert (trigger.project, trigger.names, trigger.poll) == (str(place.file), ["one"], 7.0)
    assert (trigger.once, trigger.ends) == (True, True)
    assert given.timeout == timedelta(hours=1)
    assert given.next_method == "execute_complete"


def test_the_time_that_is_waited_for_is_a_template(place: Place) -> None:
    sensor = StreamStableSensor(
        task_id="stable", project=str(place.file), stream="quotes", until="{{ params.until }}", poll=1.0
    )
    there = as_stored(sensor)
    trigger = as_triggerer(there.start_trigger_args)
    assert isinstance(trigger, StreamStableTrigger)
    # What the triggerer does with the fields that the task and the trigger have in common.
    trigger.template_fields = ("stream", "until")
    trigger.render_template_fields({"params": {"until": 15}})
    assert trigger.arguments() == {"stream": "quotes", "until": "15"}
    sensor.render_template_fields({"params": {"until": 15}})
    assert sensor.waits_for().arguments() == {"stream": "quotes", "until": "15"}


def test_without_a_start_on_the_triggerer_it_defers(place: Place) -> None:
    sensor = of_arrivals(place, poll=3.0, timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({})
    path, kwargs = deferred.value.trigger.serialize()
    assert path == "errata_airflow.triggers.RevisionArrivalTrigger"
    assert kwargs == {"project": str(place.file), "names": [], "poll": 3.0, "once": True, "ends": False}
    assert deferred.value.timeout == timedelta(seconds=60)
    assert getattr(sensor, deferred.value.method_name)({}, event=COME) == json.dumps(COME)
    place.take(CORRECTION)
    assert told(sensor.execute({})) == COME


def test_a_poking_one_looks_until_it_is_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = of_arrivals(place, deferrable=False, poll=5.0)
    assert not as_stored(of_arrivals(place, deferrable=False)).start_from_trigger
    looks: list[int] = []

    def passed(_sensor: object, _started: object, _running: object, poke_count: int) -> float:
        looks.append(poke_count)
        if poke_count == 2:
            place.take(CORRECTION)
        return 0.0

    assert (sensor.poke_interval, sensor.mode) == (5.0, "poke")
    monkeypatch.setattr(RevisionArrivalSensor, "_get_next_poke_interval", passed)
    assert told(sensor.execute({})) == COME
    assert looks == [1, 2]


def test_one_that_is_rescheduled_gives_its_worker_back(place: Place) -> None:
    class Task:
        @staticmethod
        def get_first_reschedule_date(_context: object) -> None:
            return None

    sensor = of_arrivals(place, deferrable=False, mode="reschedule")
    with pytest.raises(AirflowRescheduleException):
        sensor.execute({"ti": Task()})
    place.take(CORRECTION)
    assert told(sensor.execute({"ti": Task()})) == COME


def test_it_does_not_wait_for_ever(place: Place) -> None:
    with pytest.raises(AirflowSensorTimeout):
        of_arrivals(place, deferrable=False, timeout=0).execute({})


def test_a_catalog_that_is_away_is_asked_again(place: Place) -> None:
    database = Path(place.url.removeprefix("sqlite:///"))
    place.take(CORRECTION)
    sensor = of_arrivals(place, deferrable=False)
    database.rename(database.with_suffix(".away"))
    assert not sensor.poke({})
    database.unlink()
    database.with_suffix(".away").rename(database)
    assert sensor.poke({})


def test_what_cannot_be_meant_is_said(place: Place) -> None:
    with pytest.raises(UsageError, match="unknown query 'none'"):
        of_arrivals(place, names=["none"]).poke({})
    sensor = StreamStableSensor(task_id="stable", project=str(place.file), stream="quotes", until="noon")
    with pytest.raises(UsageError, match="'noon' is no whole number"):
        sensor.poke({})


def test_a_stream_that_is_stable(place: Place) -> None:
    def stable(until: str) -> Any:
        return StreamStableSensor(task_id="stable", project=str(place.file), stream="quotes", until=until).poke({})

    assert not stable("16")
    found = stable("15")
    assert found
    assert json.loads(found.xcom_value)["stable"] == 15


def test_dags_that_wait_are_read_without_errata(tmp_path: Path) -> None:
    """And the project is the one that Airflow's environment names."""
    code = """
import sys
from errata_airflow import sensors, triggers
sensor = sensors.RevisionArrivalSensor(task_id="arrival")
sensors.StreamStableSensor(task_id="stable", stream="quotes", until="{{ ds }}")
triggers.LandedTrigger(sensor.project)
print(sensor.project, [name for name in sys.modules if name.partition(".")[0] in ("errata", "pyspark", "psycopg2")])
"""
    environ = airflow_environment(tmp_path)
    environ["PYTHONPATH"] = environ["AIRFLOW__CORE__PLUGINS_FOLDER"]
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"{environ['ERRATA_PROJECT']} []"
