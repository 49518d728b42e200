"""What the panels show of a project: health, streams, corrections, queries, quarantine, and what a task has done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from errata.catalog import quarantine, streams
from errata.catalog.database import Catalog
from errata.catalog.leases import LEASE_MICROS
from errata.catalog.quarantine import QuarantineFile
from errata.clock import SYSTEM
from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import load_project
from errata.model.commit import RefusedRevisions
from errata_airflow.links import report_path
from errata_airflow.page.panel import all_panels
from fixtures.airflow_page import PATHS, TABS, seen
from fixtures.catalog import NOW
from fixtures.lease_cases import left_elsewhere
from fixtures.sample_project import Looked


def test_the_panels_register_themselves() -> None:
    assert [each.page.title for each in all_panels()] == TABS
    assert [each.slug for each in all_panels()] == PATHS
    for panel in all_panels():
        assert panel.page.plain.endswith(".")


@pytest.mark.parametrize("path", PATHS)
def test_an_empty_project_is_friendly(client: TestClient, place: Looked, path: str) -> None:
    text = seen(client, path)
    assert all(tab in text for tab in TABS)
    expected = {
        "": "no rows have come yet. Put files into a stream&rsquo;s landing folder",
        "streams": "feed no rows nothing has come yet",
        "corrections": "No published result has been corrected yet.",
        "queries": "no rows yet",
        "registered": "There are no registered queries.",
        "feeds": "No stream has feeds.",
        "reduced": "No stream has smaller versions.",
        "quarantine": "Nothing is in quarantine.",
        "health": "Nothing: no stream has enough corrections",
    }
    assert expected[path] in text


def test_a_project_without_streams_tells_the_next_step(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "errata.yaml").write_text("project: p\n")
    monkeypatch.setenv("ERRATA_PROJECT", str(tmp_path))
    assert "the catalog has no tables yet" in seen(client, "", 503)
    apply_plan(plan_apply(load_project(tmp_path, {})))
    assert "This project has no streams yet." in seen(client, "")
    assert "There are no queries yet." in seen(client, "queries")


def test_the_overview_tells_health_numbers_and_who_was_last(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    place.answer("most")
    place.sweep("dear", [("replace", "a", 5, 5.0, 99.0)])
    place.pend(20, 7.0)
    text = seen(client, "")
    assert "All is well" in text
    assert "2 streams, 2 rows" in text
    assert "Corrections that wait" in text
    assert "dear , most up to 1 correction are due: the next sweep takes them up" in text
    place.sweep("dear", [], (1, 1))
    answer = client.get("/errata/").text
    assert 'href="/dags/revisions/runs/by%20hand/tasks/sweep?try_number=2"' in answer
    assert "data-airflow" in answer


def test_a_stopped_query_is_seen_everywhere(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.stop("dear")
    assert "1 of 2 queries has stopped, and 1 other waits for it." in seen(client, "")
    assert "stopped at 1 / price : [DIVIDE_BY_ZERO] Use try_divide ." in seen(client, "queries")
    text = seen(client, "queries/dear")
    for part in (
        "at 7 of stream feed",
        "price 0",
        "errata run dear",
        "SELECT at, who, price FROM feed WHERE price &gt; 10",
    ):
        assert part in text


def test_a_query_that_waits_for_a_silent_holder_is_amber_everywhere(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    owner = "append/scheduled__1/answer/1"
    left_elsewhere(Catalog(place.site.catalog.engine, SYSTEM), "query dear", owner, lasts=LEASE_MICROS // 3)
    text = seen(client, "")
    assert f"dear waits for {owner} (process 4711 of " in text
    assert "errata leases release dear" in text
    assert 'class="sheet health look"' in client.get("/errata/").text
    for page in ("queries", "queries/dear"):
        assert f"waits for {owner} (process 4711 of " in seen(client, page)
        assert "look" in client.get(f"/errata/{page}").text.partition("waits for append")[0].rpartition("<span")[2]
    assert f"work on query dear {owner}, process 4711 of " in seen(client, "health")


def test_streams_have_a_timeline(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.correct(5, 99.0)
    place.pend(60, 7.0)
    page = client.get("/errata/streams").text
    for part in ('class="bars"', 'class="corrected"', 'class="pending"', 'class="stable"'):
        assert part in page
    assert 'class="aged"' not in page.replace('<i class="aged">', "")
    assert "1 waiting" in seen(client, "streams")
    text = seen(client, "streams/feed")
    for part in ("2 in 1 bucket", "Read by dear", "revise feed revision 1: 1 changed", "1 correction or late row"):
        assert part in text


def test_corrections_and_their_reports(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    place.correct(5, 99.0)
    records: list[Any] = [("replace", "a", 5, 5.0, 99.0), ("delete", "c", 9, 3.0, None)]
    refused = [RefusedRevisions("feed", 4, 5, 2, "rows of it have been aged out")]
    commit = place.sweep("dear", records, (0, 1), refused=refused)
    place.replayed("dear", 0)
    text = seen(client, "corrections")
    assert "dear revision 1 of feed 2 results changed 2 refused 7 minimal 1.5 s revisions / sweep try 2" in text
    assert "dear by hand verified 12 — 3 s" in text
    assert f'href="/errata/corrections/dear/{commit}"' in client.get("/errata/corrections").text
    text = seen(client, f"corrections/dear/{commit}")
    for part in (
        "minimal — it reads least",
        "feed 4–5 2 rows of it have been aged out",
        "who a 5 open price 5 99 revision 1 of feed",
        "who c 9 open gone price 3",
        "What feed said anew",
        f"errata changes dear --since {commit - 1}",
    ):
        assert part in text
    assert "12 results looked at" in seen(client, "replays/1")
    assert "verified" in seen(client, "replays/1")


def test_quarantine_tells_why_and_how(client: TestClient, place: Looked) -> None:
    place.hold(2)
    text = seen(client, "quarantine?stream=feed")
    for part in ("price: 'x' is not a double", "x1", "bad.csv , line 3", "errata quarantine retry feed"):
        assert part in text.replace("&#39;", "'")
    assert "2 rows are in quarantine, of feed" in seen(client, "")
    assert "Nothing of other is in quarantine." in seen(client, "quarantine?stream=other")


def test_files_that_were_set_aside_are_told_with_the_way_out(client: TestClient, place: Looked) -> None:
    catalog = place.site.catalog
    file = QuarantineFile(
        "other", "landing/other/cut.csv.gz", 10, 5, "the gzip file ends too early", "send it anew", NOW
    )
    quarantine.quarantine_files(catalog, streams.stream_state(catalog, "other").stream_id, [file])
    text = seen(client, "quarantine")
    for part in ("cut.csv.gz", "the gzip file ends too early", "send it anew", "errata quarantine retry other"):
        assert part in text
    place.hold(2)
    assert "Landed files" in seen(client, "quarantine")
    assert "cut.csv.gz" not in seen(client, "quarantine?stream=feed")


def test_what_rows_say_is_never_taken_for_a_page(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    commit = place.sweep("dear", [("insert", "<script>alert(1)</script>", 5, None, 1.0)])
    page = client.get(f"/errata/corrections/dear/{commit}").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_what_a_task_has_done(client: TestClient, place: Looked) -> None:
    place.bring(5, 60)
    place.answer("dear")
    place.sweep("dear", [("replace", "a", 5, 5.0, 99.0)])
    path = report_path("revisions", "by hand", "sweep", try_number=2)
    assert path == "/plugin/errata/errata/run?dag_id=revisions&run_id=by+hand&task_id=sweep&try_number=2"
    inner = path.removeprefix("/plugin/errata/errata/")
    assert "dear corrected because of revision 1 of feed 1 result changed" in seen(client, inner)
    assert "This try has committed nothing." in seen(client, inner.replace("=2", "=1"))
    assert "This task has committed nothing." in seen(client, "run?dag_id=a&run_id=b&task_id=c")
