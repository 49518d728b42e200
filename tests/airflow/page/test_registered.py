"""The panel of registered queries."""

from __future__ import annotations

import re

from fastapi.testclient import TestClient

from errata.catalog.registered import InvocationCount, record_invocations
from errata.psoup.materialise import materialise
from errata.psoup.register import register
from errata_airflow.page.drawing import sparkline_path
from fixtures.airflow_page import seen
from fixtures.sample_project import Looked

WINDOWED = "SELECT at, who FROM feed WHERE price > {} BEGIN (NOW - 100) END (NOW)"


def test_registered_queries_are_shown_with_owner_window_cost_and_freshness(place: Looked, client: TestClient) -> None:
    place.bring(1, 20, 30)
    register(place.site, [WINDOWED.format(10), WINDOWED.format(25)], owner="ann")
    (asked,) = register(place.site, ["SELECT count(*) FROM feed BEGIN (5) END (NOW)"], owner="bob")
    counted = InvocationCount(asked.number, 3, 6_000_000, place.clock.now())
    record_invocations(place.site.catalog, [counted])
    text = seen(client, "registered")
    assert "ann 2" in text
    assert "bob 1" in text
    assert "feed: the last 100 units" in text
    assert "feed: since 5" in text
    assert "3 of 3 registered queries, of 2 different statements" in text
    assert "1 bucket to match" in text
    assert re.search(r" 3 2 s \d+ days ago", text), "asked three times, each for two seconds"
    assert text.index(asked.handle) < text.index(" ann SELECT"), "what was asked last comes first"
    mine = seen(client, "registered?owner=bob")
    assert asked.handle in mine
    assert WINDOWED.format(10)[:20] not in mine
    assert "carl has no registered queries." in seen(client, "registered?owner=carl")


def test_matched_queries_show_how_many_rows_match_lately(place: Looked, client: TestClient) -> None:
    place.bring(1, 20, 30)
    register(place.site, [WINDOWED.format(10)], owner="<b>ann")
    materialise(place.site)
    answer = client.get("/errata/registered").text
    assert 'aria-label="2 matching rows in the newest buckets"' in answer
    assert f'd="{sparkline_path([2])}"' in answer
    assert "<b>ann" not in answer, "what people name is text"
    assert "to match" not in answer
