"""The adviser recommends what costs least by the observed rates, says why, and says when it does not know yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from errata.model.registered import ResultStrategy
from errata.model.time import DAY
from errata.psoup.advice import ObservedRates, advise, advised
from errata.psoup.materialise import materialise
from errata.psoup.reader import RegisteredReader
from errata.psoup.register import register, registered_queries
from errata.psoup.segments import with_costs
from fixtures.registered.archives import History

NONE, PARTIAL, COMPLETE = ResultStrategy.NONE, ResultStrategy.PARTIAL, ResultStrategy.COMPLETE

USUAL = ObservedRates(
    hours=100.0,
    invocations=1_000,
    invocation_micros=2_000_000,
    commits=1_000,
    arrived=1_000_000,
    matching_micros=1_000_000,
    rows=10_000_000,
    reach=1_000_000,
    matches=10_000,
    size=20_000,
)


@pytest.mark.parametrize(
    ("observed", "expected", "words"),
    [
        (USUAL, PARTIAL, "no other costs much less"),
        (replace(USUAL, invocations=100_000, invocation_micros=200_000_000), COMPLETE, "more often than it changes"),
        (
            replace(USUAL, invocations=1, invocation_micros=2_000, arrived=100_000_000, matching_micros=10**9),
            NONE,
            "cheaper than matching every row beforehand",
        ),
        (replace(USUAL, invocations=0, invocation_micros=0), NONE, "in 4 days; 20,000 bytes are kept for nobody"),
        (replace(USUAL, invocations=0, invocation_micros=0, hours=3), PARTIAL, "not a day old"),
        (replace(USUAL, invocations=3, hours=0.1), PARTIAL, "too little has been observed"),
        (
            replace(USUAL, invocations=100_000, invocation_micros=200_000_000, matches=50_000_000),
            PARTIAL,
            "no other costs much less",
        ),
    ],
)
def test_the_cheapest_is_recommended_and_the_reason_told(
    observed: ObservedRates, expected: ResultStrategy, words: str
) -> None:
    advice = advise(PARTIAL, observed)
    assert advice.strategy is expected
    assert words in advice.reason


@pytest.mark.parametrize("present", [NONE, COMPLETE])
def test_a_query_that_costs_much_by_its_strategy_is_told_to_change(present: ResultStrategy) -> None:
    """Many large scans, and an answer for each of many commits that nobody asks for."""
    observed = replace(USUAL, commits=100_000) if present is COMPLETE else replace(USUAL, invocation_micros=60_000_000)
    advice = advise(present, observed)
    assert advice.strategy is PARTIAL
    assert f"times less than {present.value}" in advice.reason


def test_what_is_observed_comes_from_the_catalog(tmp_path: Path) -> None:
    history = History.begin(tmp_path, f"sqlite:///{tmp_path}/errata.db", Random(3))
    site = history.house.site
    history.arrive("ticks")
    text = "SELECT seq FROM ticks WHERE sensor >= 0 BEGIN (NOW - 50) END (NOW)"
    register(site, [text, text.replace("50", "100")], owner="me", strategy=PARTIAL)
    history.arrive("ticks")
    materialise(site)
    asked, quiet = registered_queries(site)
    with RegisteredReader(site) as reader:
        for _ in range(20):
            reader.invoke(asked.handle)
    history.house.clock.advance(2 * DAY)
    first, second = advised(site, with_costs(site, registered_queries(site)))
    assert first.strategy is COMPLETE
    assert "at 0.42 invocations and 0.0" in first.reason
    assert second.strategy is NONE
    assert "nobody has invoked it in 2 days" in second.reason
    assert quiet.handle != asked.handle
    site.catalog.close()
