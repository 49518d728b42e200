"""The page of merged feeds: feeds side by side, what is amiss, and what they disagree about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from errata.declare.apply import apply_plan, plan_apply
from errata.declare.project import load_project
from errata_airflow.page.app import admitted, build
from fixtures.merged_feeds import stand_merged, write_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ERRATA_PROJECT", str(tmp_path))
    write_project(tmp_path)
    apply_plan(plan_apply(load_project(tmp_path, {})))
    return tmp_path


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    page = build()
    page.dependency_overrides[admitted] = lambda: None
    around = FastAPI()
    around.mount("/errata", page)
    with TestClient(around) as found:
        yield found


def seen(client: TestClient, path: str = "feeds") -> str:
    answer = client.get(f"/errata/{path}")
    assert answer.status_code == 200, answer.text
    text = re.sub(r"<(script|style|title)\b.*?</\1>", " ", answer.text, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_feeds_that_have_said_nothing_are_shown_as_declared(client: TestClient, project: Path) -> None:
    text = seen(client)
    assert "nothing has been merged yet; R3 will merge; emit first, disagreement leader, quorum 2" in text
    assert "nyse not heard yet order ordered, ties fixed, inserts only not known yet never 0 0 0 0 0" in text
    assert "Disagreement about" not in text


def test_feeds_are_shown_side_by_side_with_what_is_amiss(client: TestClient, project: Path) -> None:
    stand_merged()
    text = seen(client)
    assert "merged by R3 ; nyse leads since commit 6, after 1 switch; stable up to 2026-11-18 12:00:00" in text
    assert "nyse leads order ordered, ties fixed, inserts only 2026-11-18 12:00:00 —" in text
    assert "mirror follows missing no guarantees 2026-11-18 11:00:00 1 h 0 min" in text
    assert "commit 2 50 40 9 1 0 third suspect" in text
    assert "broken quotes: feed nyse broke order: ordered : at 10:04 after 10:07 (nyse.csv:12)" in text
    assert "suspect third since commit 6: quotes.csv:4 adjusts what it had said to be stable." in text
    assert "errata feeds trust quotes third" in text
    assert "symbol IBM at 2026-11-18T11:00:00.000000 nyse price 10.5 leader nyse.csv:3 2 mirror price 10.6" in text
    assert "XYZ" not in text, "they agree again"
    assert "no quorum" not in text


def test_the_axis_is_that_of_the_stable_points(client: TestClient, project: Path) -> None:
    stand_merged()
    page = client.get("/errata/feeds").text
    widths = [int(each) for each in re.findall(r'<path class="bars" d="M0 100V0H(\d+)', page)]
    assert len(widths) == 3
    nyse, mirror, third = widths
    assert nyse == 1000
    # The axis begins a quarter of an hour, a quarter of the distance, before the last feed.
    assert (mirror, third) == (200, 986)
    lines = {float(each) for each in re.findall(r'<line class="stable" x1="([\d.]+)"', page)}
    assert len(lines) == 1
    assert abs(lines.pop() - 1000) < 0.01


def test_the_overview_points_at_the_page(client: TestClient, project: Path) -> None:
    stand_merged()
    text = seen(client, "")
    assert "feed third of quotes is suspect: it has contradicted what it had said to be stable" in text
    assert "feeds of quotes disagree about 1 key" in text


def test_the_pages_of_streams_tell_of_feeds_and_where_their_files_land(client: TestClient, project: Path) -> None:
    text = seen(client, "streams")
    assert f"put files into {project}/landing/nyse, {project}/landing/mirror" in text
    text = seen(client, "streams/quotes")
    assert f"Put files of nyse into {project}/landing/nyse: the append DAG takes them in." in text
    assert "errata ingest quotes --feed FEED FILES" in text
    stand_merged()
    assert "Feeds nyse leads, 2 of 3, quorum 2, third suspect, mirror missing, 1 disputed" in seen(
        client, "streams/quotes"
    )
    assert "Feeds" not in seen(client, "streams/plain").replace("Merged feeds", "")
