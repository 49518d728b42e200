"""What is read from Airflow's answers, what is held against goals, and the chain that does nothing."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.airflow import AMOUNTS, LABELS, PARTS, SETTINGS, arrival_outcome
from bench.airflow_moments import MOMENTS, Answers, Way, held, moments, moments_grid, waits
from bench.airflow_noop import settings
from bench.airflow_parsing import declare_many, parsing_outcome
from bench.airflow_quotes import ASKED, Quotes
from bench.airflow_rounds import Found
from bench.measure import Metric, Scale
from bench.replay_day import OPEN, Stretch

import bench
from errata.declare.project import load_project

HOUSE = Path(__file__).resolve().parents[2]
LANDED = datetime(2026, 11, 18, 9, tzinfo=UTC).timestamp()


def at(seconds: float) -> str:
    """As Airflow tells a moment."""
    return datetime.fromtimestamp(LANDED + seconds, UTC).isoformat().replace("+00:00", "Z")


def run(name: str, started: float, ended: float | None, state: str = "success") -> dict[str, Any]:
    return {
        "dag_run_id": name,
        "start_date": at(started),
        "end_date": None if ended is None else at(ended),
        "state": state,
    }


def task(of: str, name: str, queued: float | None, started: float, ended: float | None, **more: Any) -> dict[str, Any]:
    return {
        "dag_run_id": of,
        "task_id": name,
        "queued_when": None if queued is None else at(queued),
        "start_date": at(started),
        "end_date": None if ended is None else at(ended),
        **more,
    }


TOLD = Answers(
    events=[{"timestamp": at(31)}, {"timestamp": at(0.8)}, {"timestamp": at(-30)}],
    appends=[run("second", 32, 40), run("first", 1.5, 9), run("before", -29, -20)],
    taken=[
        task("before", "append", -28, -27, -26),
        task("first", "find", 1.6, 1.7, 2.2),
        task("first", "append", 3, 3.1, 5.5),
        task("second", "append", 33, 33.1, 35),
    ],
    swept=[
        task("waiting", "arrival", None, -20, 5.6),
        task("waiting", "sweep", 6, 6.2, 8),
        task("next", "arrival", None, 9, None),
        task("older", "arrival", None, -60, -21),
        task("older", "sweep", -20.5, -20.4, -20.1),
    ],
)


def test_a_correction_s_way_is_told_in_seconds_since_it_landed() -> None:
    found = moments(Way(LANDED, 7.5), TOLD)
    assert tuple(found) == MOMENTS
    expected = [0.8, 1.5, 3, 3.1, 5.5, 5.6, 6, 6.2, 7.5, 8, 9]
    assert list(found.values()) == pytest.approx(expected, abs=1e-3)


def test_what_has_not_happened_yet_is_no_moment() -> None:
    with pytest.raises(AssertionError, match="nothing of start_date has happened"):
        moments(Way(LANDED + 60, 7.5), TOLD)


def test_medians_of_ways_stand_beside_each_other() -> None:
    ways = {
        name: [dict.fromkeys(MOMENTS, float(each)) for each in some]
        for name, some in {"one": (1, 3, 2), "other": (5, 7, 40)}.items()
    }
    grid = moments_grid(ways)
    assert grid.columns == ["one", "other"]
    assert grid.rows == {name: [2, 7] for name in MOMENTS}


def test_slots_are_counted_by_tasks_and_by_pools() -> None:
    free = {"occupied_slots": 0}
    assert held([], [free, free]) == 0
    assert held([{"state": "deferred"}, {"state": "success"}], [free]) == 0
    assert held([{"state": "running"}, {"state": "queued"}], [free]) == 2
    assert held([], [free, {"occupied_slots": 1}]) == 1


@pytest.mark.parametrize("state", ["deferred", "running", "up_for_reschedule"])
def test_a_sensor_waits_wherever_it_is_held(state: str) -> None:
    instances = [
        task("now", "arrival", None, 0, None, state=state),
        task("now", "sweep", None, 0, None, state=None),
        task("before", "arrival", None, -9, -8, state="success"),
    ]
    assert waits([run("now", 0, None, "running"), run("before", -9, -8)], instances)


def test_a_sensor_that_has_not_begun_or_has_ended_does_not_wait() -> None:
    active = [run("now", 0, None, "running")]
    for state in (None, "scheduled", "success"):
        assert not waits(active, [task("now", "arrival", None, 0, None, state=state)])
    assert not waits([], [])
    assert not waits(
        [*active, run("next", 1, None, "queued")], [task("now", "arrival", None, 0, None, state="deferred")]
    )


def found(slots: int = 0, **seconds: list[float]) -> Found:
    ways = {name.replace("_", " "): some for name, some in seconds.items()}
    told: dict[str, list[Mapping[str, float]]] = {
        name: [dict.fromkeys(MOMENTS, each) for each in some] for name, some in ways.items()
    }
    return Found(ways, told, [slots, 0])


def goals(metrics: list[Metric] | tuple[Metric, ...]) -> dict[str, tuple[float, str, bool | None]]:
    return {each.metric: (each.value, each.goal, each.holds) for each in metrics if each.goal is not None}


def test_corrections_are_held_against_what_airflow_takes_for_nothing() -> None:
    connect = Found({}, {}, [])
    connect.seconds = {"corrections": [8.0, 30.0, 7.0], "no-op chain": [5.5, 6.0, 5.0]}
    connect.moments = {name: [dict.fromkeys(MOMENTS, 1.0)] for name in connect.seconds}
    connect.slots = [0, 0]
    told = arrival_outcome({"submit": found(corrections=[14.0, 13.0, 22.0]), "connect": connect})
    assert goals(list(told.metrics)) == {
        "from a correction's arrival to its result, jobs by spark-submit": (14.0, "< 20", True),
        "the same, jobs by Spark Connect, beyond a chain of tasks that do nothing": (2.5, "<= 3", True),
        "slots that are taken while `revisions` waits, the most seen": (0, "<= 0", True),
    }
    (grid,) = told.grids
    assert grid.columns == ["spark-submit", "Spark Connect", "no-op chain"]
    assert list(grid.rows) == list(MOMENTS)


def test_one_slot_that_is_held_misses_the_goal() -> None:
    told = arrival_outcome({"submit": found(slots=1, corrections=[25.0])})
    assert [each.holds for each in told.metrics] == [False, False]


def test_our_share_of_reading_dags_is_what_nobody_s_dags_do_not_take() -> None:
    told = parsing_outcome({"our DAGs": 0.25, "none": 0.05})
    assert [(each.value, each.goal, each.holds) for each in told.metrics] == [(pytest.approx(0.2), "< 0.3", True)]
    assert dict(told.grids[0].rows) == {"our DAGs": [250], "none": [50]}


def test_the_project_whose_dags_are_read_declares_what_is_said(tmp_path: Path) -> None:
    project = load_project(declare_many(tmp_path), {})
    assert (len(project.streams), len(project.texts())) == (100, 500)


def test_quotes_are_a_project_and_every_round_corrects_another_closed_window(tmp_path: Path) -> None:
    stretch = Stretch(0, 140_000)
    quotes = Quotes(tmp_path / "project", stretch, rounds=4)
    quotes.declare()
    project = load_project(quotes.project, {"ERRATA_CATALOG": "sqlite:///errata.db"})
    assert list(project.texts()) == [ASKED.name]
    rows = stretch.picked(4)
    assert len(np.unique(rows)) == 4
    assert rows.max() < stretch.end - OPEN
    lines = [json.loads(each.file.read_text()) for each in quotes.corrections]
    assert len({(line["time"], line["symbol"]) for line in lines}) == 4
    assert all({"price", "_op", "_old_price"} <= line.keys() for line in lines)


def test_a_file_appears_whole(tmp_path: Path) -> None:
    quotes = Quotes(tmp_path / "project", Stretch(0, 140_000), rounds=1)
    quotes.declare()
    file = quotes.corrections[0].file
    quotes.land(file)
    (landed,) = (tmp_path / "project" / "landing" / "quotes").iterdir()
    assert landed.read_bytes() == file.read_bytes()
    assert file.exists(), "the correction is kept, to be compared with"


def test_the_chain_that_does_nothing_has_the_shape_of_ours() -> None:
    """Task for task and edge for edge, so that it takes what Airflow takes."""
    shapes = {}
    for name in ("append", "revisions"):
        ours = (HOUSE / "dags" / f"{name}.py").read_text()
        theirs = (HOUSE / "bench" / "noop" / "dags" / f"noop_{name}.py").read_text()
        shapes[name] = (_tasks(ours), _tasks(theirs))
    assert shapes["append"][0] == shapes["append"][1] == {"find", "append", "taken", "answer"}
    assert shapes["revisions"][0] == shapes["revisions"][1] == {"arrival", "sweep"}


def _tasks(source: str) -> set[str]:
    """What is said to be the name of a task."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    named = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "task_id"]
    return {str(each.value) for each in named if isinstance(each, ast.Constant)}


def test_airflow_is_told_of_the_chain_beside_our_dags(tmp_path: Path) -> None:
    told = settings(tmp_path / "noop")
    bundles = json.loads(told["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"])
    assert [each["name"] for each in bundles] == ["dags-folder", "noop"]
    folder = Path(bundles[1]["kwargs"]["path"])
    assert sorted(each.name for each in folder.glob("*.py")) == ["noop_append.py", "noop_revisions.py"]
    assert (Path(told["PYTHONPATH"].split(":")[0]) / "noop_waiting.py").is_file()
    assert sorted(each.name for each in (tmp_path / "noop").iterdir()) == ["done", "landing", "word"]


def test_parts_and_amounts_are_those_that_can_be_asked_for() -> None:
    assert tuple(bench.PARTS["airflow"]) == PARTS
    assert set(LABELS) < set(PARTS)
    assert set(AMOUNTS) == {Scale.SMALL, Scale.PAPER}
    assert AMOUNTS[Scale.PAPER].arrival.rounds == 10
    assert SETTINGS["ERRATA_LANDING_SECONDS"] == "2"
