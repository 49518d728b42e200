"""Distances, places, ways and links in words."""

from __future__ import annotations

from errata.language.route import RouteKind
from errata.model.commit import Cause
from errata.model.technique import Technique
from errata_airflow.links import ReportLink
from errata_airflow.page.words import ROUTES, ago, lasting, span, task_path, ticks, where


def test_words() -> None:
    second = 1_000_000
    assert [ago(0, at * second) for at in (0, 1, 59, 60, 7200, 86400 * 3)] == [
        "just now",
        "1 second ago",
        "59 seconds ago",
        "1 minute ago",
        "2 hours ago",
        "3 days ago",
    ]
    assert ago(90 * second, 0) == "in 1 minute"
    assert [lasting(round(at * second)) for at in (0, 0.0004, 0.123, 12, 75, 3700, 180_000)] == [
        "0 s",
        "under 0.01 s",
        "0.12 s",
        "12 s",
        "1 min 15 s",
        "1 h 1 min",
        "2 days 2 h",
    ]
    nine = 1_762_000_000 * second  # at 12:26:40
    assert [where(nine + micros, timed=True) for micros in (0, 1_500, 250_000)] == [
        "2025-11-01 12:26:40",
        "2025-11-01 12:26:40.001",
        "2025-11-01 12:26:40.250",
    ]
    assert where(7, timed=False) == "7"
    assert [span(75 * second, timed=True), span(3, timed=False)] == ["1 min 15 s", "3 units"]
    assert str(ticks("a `b<` c")) == "a <code>b&lt;</code> c"


def test_every_way_to_an_answer_has_its_sentence() -> None:
    ways = {*RouteKind, *Technique} - {Technique.AUTO, Technique.NONE}
    assert set(ROUTES) == ways


def test_a_commit_leads_to_its_task() -> None:
    assert task_path(Cause("run", dag_id="d", run_id="a+b", task_id="t[3]", try_number=2)) == (
        "/dags/d/runs/a%2Bb/tasks/t/mapped/3?try_number=2"
    )
    assert task_path(Cause("run", dag_id="d", run_id="r", task_id="t")) == "/dags/d/runs/r/tasks/t"


def test_a_link_names_the_task_as_commits_do() -> None:
    class Key:
        dag_id, run_id, task_id, map_index, try_number = "append", "r+1", "append", 3, 2

    said = ReportLink().get_link(None, ti_key=Key())  # type: ignore[arg-type]
    assert said == "/plugin/errata/errata/run?dag_id=append&run_id=r%2B1&task_id=append%5B3%5D&try_number=2"
