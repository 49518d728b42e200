"""What ageing has to leave for queries, told from how far they have been answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from errata.archive.upkeep.ageing import AgeOutReport, age_out, oldest_hold
from errata.archive.upkeep.retention import RetentionHold
from errata.catalog import queries, streams
from errata.catalog.result_archives import EvaluationCommit, commit_evaluation, read_archive
from errata.cli.age_out import age_out_lines
from errata.declare.site import Site, open_site
from errata.model.commit import Cause, EvaluationCost, EvaluationSpan
from errata.model.results import ResultShape, UpdatePattern
from errata.model.time import LOWEST
from fixtures.catalog import NOW
from fixtures.clock import FixedClock
from fixtures.flows import House
from fixtures.layers import Layers
from fixtures.projects import Written

STREAMS = """\
project: p
streams:
  feed: {columns: {at: bigint, who: string, price: double}, key: [at, who], order: at, retention: 10 units}
"""
TEXTS = {
    "dear": "SELECT at, who, price FROM feed WHERE price > 10",
    "recent": "SELECT who, count(*) AS n FROM sliding(feed, 30) GROUP BY who",
    "most": "SELECT who, max(price) AS most FROM feed GROUP BY who",
    "ever": "SELECT DISTINCT who FROM feed",
    "all": "SELECT who FROM feed EXCEPT ALL SELECT who FROM feed WHERE price > 10",
    "above": "SELECT who FROM sliding(dear, 5)",
}


@dataclass
class Place:
    """A project with queries, whose evaluations are only said to have been done."""

    written: Written
    site: Site
    feed: Layers

    def bring(self, *ats: int) -> int:
        return self.feed.bring([{"at": at, "who": "a", "price": 1.0} for at in ats])

    def answer(self, name: str) -> None:
        """An evaluation as far as the feed reaches."""
        catalog = self.site.catalog
        stable = streams.stream_state(catalog, "feed").stable
        assert stable is not None
        step, shape = EvaluationSpan(LOWEST, stable), ResultShape((), UpdatePattern.MONOTONIC, timed=False)
        query_id = queries.recorded_queries(catalog)[name].query_id
        done = EvaluationCommit(
            name,
            query_id,
            shape,
            None,
            step,
            1,
            {},
            {},
            EvaluationCost(),
            LOWEST,
            (),
            replaces=read_archive(catalog, name),
        )
        commit_evaluation(catalog, done, Cause("run"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    written = Written(tmp_path)
    written.apply(TEXTS, streams=STREAMS)
    (tmp_path / "warehouse").mkdir()
    with open_site(tmp_path, clock=FixedClock(NOW)) as site:
        made = Place(written, site, Layers(House(tmp_path, site), site.project.streams["feed"]))
        made.bring(0)
        made.bring(40)
        yield made


@pytest.mark.parametrize(
    ("query", "source", "start"),
    [
        ("dear", "feed", 40),
        ("recent", "feed", 10),
        ("most", "feed", 40),
        ("ever", "feed", 40),
        ("all", "feed", LOWEST),
        ("above", "dear", 40),
        ("ever", "ever", LOWEST),
    ],
)
def test_a_query_holds_what_it_has_still_to_read(place: Place, query: str, source: str, start: int) -> None:
    assert oldest_hold(place.site, source) is None, "what has not been evaluated yet begins where there are rows"
    place.answer(query)
    assert oldest_hold(place.site, source) == RetentionHold(query, start)


def test_only_the_form_that_is_there_holds_and_of_several_the_one_that_reaches_back_furthest(place: Place) -> None:
    place.answer("all")
    place.answer("recent")
    assert oldest_hold(place.site, "feed") == RetentionHold("all", LOWEST)
    place.written.apply({**TEXTS, "all": TEXTS["all"].replace("> 10", "> 11")}, streams=STREAMS)
    assert oldest_hold(place.site, "feed") == RetentionHold("recent", 10)


def test_rows_stay_for_a_query_and_it_is_said_for_which(place: Place) -> None:
    place.answer("all")
    [aged] = age_out(place.site)
    assert (aged.commit_id, aged.rows, aged.hold) == (None, 0, RetentionHold("all", LOWEST))
    place.written.apply({name: text for name, text in TEXTS.items() if name != "all"}, streams=STREAMS)
    place.answer("recent")
    place.bring(80)
    [aged] = age_out(place.site)
    assert (aged.rows, aged.aged_to, aged.hold) == (1, 1, RetentionHold("recent", 10))
    place.answer("recent")
    [aged] = age_out(place.site)
    assert (aged.rows, aged.hold) == (1, None)


@pytest.mark.parametrize(
    ("aged", "lines"),
    [
        (AgeOutReport("feed", None, ()), ["feed: nothing is past the retention"]),
        (
            AgeOutReport("feed", 7, (), 3, 21, timed=False),
            ["feed: no buckets with 3 rows up to 20 dropped in commit 7"],
        ),
        (
            AgeOutReport("feed", 7, (), 3, 21, timed=False, hold=RetentionHold("q", 30)),
            [
                "feed: no buckets with 3 rows up to 20 dropped in commit 7",
                "feed: what is past the retention stays from 30 on: query q has still to read it",
            ],
        ),
        (
            AgeOutReport("feed", None, (), hold=RetentionHold("q", LOWEST)),
            ["feed: what is past the retention stays: query q reads all of it each time"],
        ),
        (
            AgeOutReport("q", None, (), hold=RetentionHold("q", LOWEST)),
            ["q: what is past the retention stays: which values have come is known from it alone"],
        ),
    ],
)
def test_what_is_said_of_ageing(aged: AgeOutReport, lines: list[str]) -> None:
    assert list(age_out_lines(aged)) == lines
