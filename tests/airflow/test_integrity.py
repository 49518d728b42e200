"""The DAG files as Airflow reads them: in a process of their own, with a home of their own, and no catalog in reach."""

from __future__ import annotations

import runpy
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import airflow.timetables.trigger
import pendulum
import pytest
from airflow.serialization.decoders import decode_timetable
from airflow.timetables.base import TimeRestriction
from bench.airflow_parsing import declare_many
from bench.airflow_parsing import read_dags as read_in_a_process

from fixtures.airflow import HOUSE, PROJECT, airflow_environment

MAINTENANCE = ("age_out", "compact", "doctor", "vacuum")
MIDNIGHT = pendulum.datetime(2026, 11, 19)


def read_dags(folder: Path, **environ: str) -> dict[str, Any]:
    return read_in_a_process(HOUSE / "dags", {**airflow_environment(folder), **environ}, folder)


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("airflow")
    declare_many(folder)
    answer = read_dags(folder, ERRATA_CATALOG="postgresql+psycopg2://nobody@127.0.0.1:9/none", ERRATA_POOL="drivers")
    answer["files"] = sorted(path.name for path in folder.iterdir())
    return answer


def test_every_dag_file_is_read_without_an_error_and_can_be_stored(dags: dict[str, Any]) -> None:
    assert dags["errors"] == {}
    assert set(dags["dags"]) == {"append", "feeds", "revisions", "replay", "materialise", *MAINTENANCE}
    assert len(dags["serialised"]) == len(dags["dags"])


def test_every_dag_is_told_in_its_own_words_and_bears_the_tag(dags: dict[str, Any]) -> None:
    for name, dag in dags["dags"].items():
        assert "errata" in dag["tags"], name
        assert "ERRATA_PROJECT" in dag["doc"], name
        assert dag["catchup"] is False, name


@pytest.mark.parametrize("name", MAINTENANCE)
def test_maintenance_has_one_task_for_all_streams(dags: dict[str, Any], name: str) -> None:
    dag = dags["dags"][name]
    assert dag["max_active_runs"] == 1
    assert set(dag["tasks"]) == {name}
    assert dag["tasks"][name] | {"arguments": []} == {
        "pause": 30,
        "pool": "drivers",
        "outlets": [],
        "kind": "ErrataJob",
        "job": name,
        "arguments": [],
        "retries": 3,
        "mapped": False,
        "after": [],
        "rule": "all_success",
    }


@pytest.mark.parametrize("minutes", range(0, 1440, 60))
def test_a_first_start_leaves_upkeep_to_its_ticks(
    dags: dict[str, Any], monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    for minute in range(minutes, minutes + 60):
        now = MIDNIGHT.add(minutes=minute, seconds=30)
        monkeypatch.setattr(airflow.timetables.trigger, "utcnow", lambda now=now: now)
        at_once = {name for name in MAINTENANCE if first_run(dags["dags"][name]) <= now}
        assert len(at_once) <= 1, f"at {now} all of {at_once} begin together"
        assert all(first_run(dags["dags"][name]) > now.subtract(minutes=1) for name in at_once)


def first_run(dag: dict[str, Any]) -> datetime:
    """When a DAG runs for the first time that Airflow has just read."""
    begins = dag["begins"] and pendulum.instance(datetime.fromisoformat(dag["begins"]))
    found = decode_timetable(dag["timetable"]).next_dagrun_info(
        last_automated_data_interval=None, restriction=TimeRestriction(begins, None, catchup=False)
    )
    assert found is not None
    return found.run_after


def test_what_has_landed_is_taken_in_by_mapped_tasks_and_then_answered(dags: dict[str, Any]) -> None:
    append = dags["dags"]["append"]
    assert append["max_active_runs"] == 1
    tasks = append["tasks"]
    assert {name: each["after"] for name, each in tasks.items()} == {
        "find": [],
        "append": ["find"],
        "taken": ["append"],
        "answer": ["append"],
    }
    assert (tasks["append"]["mapped"], tasks["append"]["job"]) == (True, "append")
    accepted = ["--accept-stopped", "--accept-quarantine"]
    assert (tasks["answer"]["job"], tasks["answer"]["arguments"]) == ("run", ["--no-take", *accepted])
    assert tasks["answer"]["rule"] == "all_done", "one stream that fails holds up no query over others"
    assert tasks["taken"]["rule"] == "none_failed", "but its run counts as failed"


def test_every_job_waits_for_a_slot_of_the_pool_and_those_that_move_something_tell_it(dags: dict[str, Any]) -> None:
    jobs = {
        name: task
        for dag in dags["dags"].values()
        for name, task in dag["tasks"].items()
        if task["kind"] == "ErrataJob"
    }
    assert set(jobs) == {"append", "answer", "sweep", "replay", "materialise", *MAINTENANCE}
    assert {each["pool"] for each in jobs.values()} == {"drivers"}
    assert {each["pause"] for each in jobs.values()} == {30}
    assert {each["retries"] for each in jobs.values()} == {3}, "what may pass is no failure"
    asking = {name: dags["dags"][dag]["tasks"][name] for dag, name in (("append", "find"), ("replay", "ranges"))}
    asking["materialise"] = dags["dags"]["materialise"]["tasks"]["find"]
    assert {each["retries"] for each in asking.values()} == {3}
    telling = {name for name, each in jobs.items() if each["outlets"] == ["errata"]}
    assert telling == {"append", "answer", "sweep", "replay"}, "mapped or not"


def test_corrections_are_waited_for_and_then_swept(dags: dict[str, Any]) -> None:
    revisions = dags["dags"]["revisions"]
    assert revisions["max_active_runs"] == 1
    tasks = revisions["tasks"]
    assert tasks["arrival"]["kind"] == "RevisionArrivalSensor"
    assert tasks["sweep"]["after"] == ["arrival"]
    accepted = ["--accept-quarantine", "--accept-stopped"]
    assert (tasks["sweep"]["job"], tasks["sweep"]["arguments"]) == ("sweep", ["--due", *accepted])


def test_rows_are_matched_with_registered_queries_after_commits_by_the_clock_and_by_hand(dags: dict[str, Any]) -> None:
    materialise = dags["dags"]["materialise"]
    assert materialise["max_active_runs"] == 1
    tasks = materialise["tasks"]
    assert {name: each["after"] for name, each in tasks.items()} == {"find": [], "materialise": ["find"]}
    assert (tasks["materialise"]["job"], tasks["materialise"]["mapped"]) == ("materialise", True)
    assert tasks["materialise"]["outlets"] == [], "what is matched is no change of a stream or a query"
    assert "AssetOrTimeSchedule" in str(materialise["timetable"])
    assert '"errata"' in str(materialise["timetable"]).replace("'", '"'), "the alias of all events"


def test_a_backfill_of_the_replay_stands_for_one_interval_a_run(dags: dict[str, Any]) -> None:
    days = [["2026-11-01", "2026-11-02"], ["2026-11-02", "2026-11-03"], ["2026-11-03", "2026-11-04"]]
    assert [[each[:10] for each in interval] for interval in dags["backfill"]] == days
    assert dags["alone"] == "None", "by itself it never runs"
    assert dags["dags"]["replay"]["max_active_runs"] == 3


def test_feeds_are_changed_by_hand_alone(dags: dict[str, Any]) -> None:
    feeds = dags["dags"]["feeds"]
    assert feeds["max_active_runs"] == 1
    assert {name: each["kind"] == "ErrataJob" for name, each in feeds["tasks"].items()} == {"change": False}
    assert feeds["tasks"]["change"]["retries"] == 3
    assert "NullTimetable" in str(feeds["timetable"])


def test_reading_dags_touches_no_catalog_no_spark_and_no_declarations(dags: dict[str, Any]) -> None:
    # The project's catalog is at a port where nobody listens: opening it would have been an error above.
    assert dags["modules"] == []
    assert "errata.db" not in dags["files"]


def test_our_share_of_reading_dags_is_small_and_does_not_grow_with_the_project(dags: dict[str, Any]) -> None:
    # Seconds of a processor, whoever else wants one. The goal is 0.3; the project here declares 100 streams and 500
    # queries.
    assert dags["work"] < 1.5


def test_without_a_project_the_reason_is_an_import_error(tmp_path: Path) -> None:
    answer = read_dags(tmp_path)
    assert answer["dags"] == {}
    for error in answer["errors"].values():
        assert f"there is no file {tmp_path / 'errata.yaml'}" in error
        assert "ERRATA_PROJECT" in error


def test_a_schedule_can_be_taken_away_and_one_that_cannot_be_read_is_an_import_error(tmp_path: Path) -> None:
    (tmp_path / "errata.yaml").write_text(PROJECT)
    schedules = {"ERRATA_COMPACT_SCHEDULE": "every now and then", "ERRATA_VACUUM_SCHEDULE": "@fortnightly"}
    answer = read_dags(tmp_path, ERRATA_DOCTOR_SCHEDULE="none", ERRATA_APPEND_SCHEDULE="none", **schedules)
    assert {Path(name).name for name in answer["errors"]} == {"compact.py", "vacuum.py"}
    for name, value in schedules.items():
        assert any(name in each and value in each for each in answer["errors"].values())


@pytest.mark.parametrize(
    "job", ["append", "age_out", "compact", "doctor", "materialise", "replay", "revise", "run", "sweep", "vacuum"]
)
def test_a_job_takes_what_its_dag_gives_it(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(HOUSE / "jobs" / f"{job}.py"))["main"]
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    for option in ("--project", "--dag-id", "--run-id", "--task-id", "--try-number"):
        assert option in printed


def test_a_job_that_fails_ends_with_the_reason_and_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, str(HOUSE / "jobs" / "append.py"), "trades", "--project", str(tmp_path / "none.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("there is no file")
    assert "Traceback" not in done.stderr
