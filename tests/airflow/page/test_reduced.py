"""The panel of reduced archives."""

from __future__ import annotations

import re
from dataclasses import replace

from fastapi.testclient import TestClient

from errata.model.reduction import OnReadCopies, ReducedArchives, uniform_rates
from errata.model.time import Interval
from errata.reduce import requests
from errata.reduce.copies import vacuum_copies
from fixtures.airflow_page import seen
from fixtures.sample_project import Looked


def test_reduced_archives_are_shown_with_their_rates_readers_and_what_vacuum_does(
    place: Looked, client: TestClient
) -> None:
    place.feed.stream = replace(place.feed.stream, reduced=ReducedArchives((0.5,), OnReadCopies()))
    place.feed.house.declare(place.feed.stream)
    place.bring(*range(100))
    stream_id = place.feed.standing.stream_id
    for _ in range(2):
        requests.record(place.site, stream_id, uniform_rates(0.1), Interval(0, 50), 10, 0)
    text = seen(client, "reduced")
    assert "copies written with every append; copies follow what readers ask for; layout buckets" in text
    assert re.search(r"originals 1 100 \S+ KB 100\.0% copies at 50% 1 \d\d ", text), text
    assert "uniform(0.1) 2 2 20 B 0 B" in text
    assert "Vacuum has done nothing for it yet. The next one: feed: would build 1 copy at 10%" in text
    vacuum_copies(place.site, "feed")
    text = seen(client, "reduced")
    assert re.search(r"copies at 50% .* copies at 10% 1 ", text), text
    assert re.search(r"Vacuum last worked \d+ days ago, in commit \d+: .*built", text), text
    assert "readers were spared about" in text
    assert "The next one has nothing to do here." in text
