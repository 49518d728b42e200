"""What tasks ask the catalog, and how a job's reason is found."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from hypothesis import given
from hypothesis import strategies as st

from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import load_project
from errata.errors import ErrataError, UsageError
from errata.model.registered import ResultStrategy
from errata.psoup.materialise import materialise
from errata.psoup.register import register, unregister
from errata_airflow import work
from errata_airflow.reason import airflow_errors, reason, reason_of
from fixtures.airflow import PROJECT
from fixtures.sample_project import looked

REPLAY: dict[str, Any] = {"query": None, "since": None, "until": None, "technique": "auto", "dry_run": False}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "errata.yaml").write_text(PROJECT)
    for name in ("trades", "ticks"):
        (tmp_path / "landing" / name).mkdir(parents=True)
    apply_plan(plan_apply(load_project(tmp_path)))
    return tmp_path / "errata.yaml"


def test_streams_with_files_are_put_into_jobs(project: Path) -> None:
    assert work.landed_jobs(project, 2) == []
    (project.parent / "landing" / "trades" / "a.csv").write_text("time,symbol,price\n2026-11-16T09:00:00,IBM,10.5\n")
    assert work.landed_jobs(project, 2) == [
        {"about": "trades", "arguments": ["--landed", "--accept-quarantine", "trades"]}
    ]


def test_a_matching_job_is_started_where_there_is_something_to_match(tmp_path: Path) -> None:
    with looked(tmp_path) as place:
        project = tmp_path / "errata.yaml"
        place.bring(1, 20)
        assert work.matching_jobs(project, None) == [], "nobody has asked for anything"
        text = "SELECT * FROM feed WHERE price > 10 BEGIN (NOW - 100) END (NOW)"
        register(place.site, [text.replace("10", "20", 1)], owner="me", strategy=ResultStrategy.NONE)
        assert work.matching_jobs(project, None) == [], "of what is asked nothing is kept"
        (asked,) = register(place.site, [text], owner="me")
        assert work.matching_jobs(project, None) == [{"about": "feed", "arguments": []}]
        materialise(place.site)
        assert work.matching_jobs(project, None) == []
        place.bring(40)
        assert work.matching_jobs(project, None) == [{"about": "feed", "arguments": []}]
        assert work.matching_jobs(project, "other") == [{"about": "other", "arguments": ["other"]}]
        unregister(place.site, asked.handle)
        assert work.matching_jobs(project, None) == [], "nobody asks any more"
        with pytest.raises(ErrataError, match="fed"):
            work.matching_jobs(project, "fed")


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(1, 50)), st.integers(1, 6))
def test_streams_are_spread_evenly_and_none_is_lost(waiting: dict[str, int], most: int) -> None:
    groups = work.group_streams(waiting, most)
    assert sorted(name for each in groups for name in each) == sorted(waiting)
    assert len(groups) == min(most, len(waiting))
    loads = [sum(waiting[name] for name in each) for each in groups]
    if loads:
        assert max(loads) - min(loads) <= max(waiting.values())


def test_a_job_of_many_streams_is_called_by_the_first_ones() -> None:
    assert work.job_arguments(["a", "b", "c", "d", "e"])["about"] == "a, b, c and 2 more"


def test_a_replay_without_a_range_is_refused_with_what_to_do(project: Path) -> None:
    with pytest.raises(UsageError, match="the range is not told") as refused:
        work.replay_jobs(project, REPLAY, None)
    assert "backfill" in str(refused.value)


def test_a_replay_of_an_unknown_query_is_refused_with_those_there_are(project: Path) -> None:
    wanted = {**REPLAY, "query": "avrg", "since": "2026-11-16", "until": "2026-11-17"}
    with pytest.raises(UsageError, match="avrg"):
        work.replay_jobs(project, wanted, None)


@pytest.mark.parametrize(
    "made", [lambda day: datetime(2026, 11, day, tzinfo=UTC), partial(pendulum.datetime, 2026, 11)]
)
def test_a_run_of_a_backfill_stands_for_its_interval_and_a_run_by_hand_for_none(
    made: Callable[[int], datetime],
) -> None:
    interval = {"data_interval_start": made(16), "data_interval_end": made(17)}
    assert work.interval_of({"dag_run": SimpleNamespace(run_type="backfill"), **interval}) == (
        "2026-11-16T00:00:00.000000",
        "2026-11-17T00:00:00.000000",
    )
    assert work.interval_of({"dag_run": SimpleNamespace(run_type="manual"), **interval}) is None


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (["starting", "all done"], "all done"),
        (
            ["starting", "stream x is not there", "why: it was dropped", "how to mend: name another"],
            "stream x is not there\nwhy: it was dropped\nhow to mend: name another",
        ),
        (["Traceback", "ValueError: no", "", "  "], "ValueError: no"),
        ([], ""),
    ],
)
def test_the_reason_is_the_last_sentence_with_its_details(said: list[str], found: str) -> None:
    assert reason(said) == found


@pytest.mark.parametrize(
    ("code", "said", "first"),
    [
        (1, ["starting", "the catalog is away"], "the catalog is away"),
        (1, [], "jobs/run.py ended with exit code 1"),
        (-9, ["reading", "working"], "jobs/run.py was killed by signal 9; the kernel does so when memory is short"),
        (137, ["working"], "jobs/run.py was killed by signal 9; the kernel does so when memory is short"),
        (143, ["working"], "jobs/run.py was ended by signal 15 (SIGTERM)"),
        (52, ["working"], "jobs/run.py ran out of memory (exit code 52)"),
        (255, ["all is lost"], "all is lost"),
    ],
)
def test_the_reason_of_a_job_that_something_has_ended_is_what_ended_it(code: int, said: list[str], first: str) -> None:
    assert reason_of(code, said, "run").splitlines()[0] == first


def test_what_ran_out_of_memory_is_told_beside_the_signal() -> None:
    said = ["java.lang.OutOfMemoryError: Java heap space", "\tat java.base/java.util.Arrays.copyOf"]
    assert "\nwhy: OutOfMemoryError: Java heap space\n" in reason_of(-6, said, "run")


@pytest.mark.parametrize(
    ("error", "kind"), [(ErrataError("it is away"), AirflowException), (UsageError("no such"), AirflowFailException)]
)
def test_an_error_is_told_without_what_led_to_it_and_tried_again_only_where_that_helps(
    error: ErrataError, kind: type[Exception]
) -> None:
    with pytest.raises(AirflowException) as caught, airflow_errors():
        raise error
    assert type(caught.value) is kind
    assert caught.value.__suppress_context__
