"""Summaries as inputs of one-time queries: the answer is that of the query which the summary means, at every event time
and commit, and it says what it was read from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from errata.archive.revisions.apply import apply_revisions
from errata.catalog import streams
from errata.declare.site import Site
from errata.model.reduction_request import RequestMethod
from errata.read.ask import OneTimeQuery, open_answer
from errata.read.output import fetch_all
from errata.reduce import requests
from fixtures.runs import STREAMS, Answering

SELECT = "select: {n: count(*), total: sum(price), dear: max(price)}"
MEANT = "SELECT window_start AS at, of, count(*) AS n, sum(price) AS total, max(price) AS dear FROM quotes"
MEANT += " GROUP BY of, window(at, 4)"
DECLARED = STREAMS.replace(
    "key: [at, of], order: at}",
    "key: [at, of], order: at, reduce: {summaries: {fours: {window: 4 units, group: [of], SELECT},"
    " lazy: {window: 4 units, group: [of], SELECT, when: read}}}}".replace("SELECT", SELECT),
    1,
)
OUTER = "SELECT of, count(*) AS windows, sum(total) AS total, max(dear) AS dear FROM {} GROUP BY of"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answering]:
    answering = Answering.begin(tmp_path_factory.mktemp("summaries"), {"meant": MEANT}, {}, declared=DECLARED)
    answering.take(quotes=[f"{at},{'abc'[at % 3]},{at % 7}" for at in range(40)])
    answering.take(quotes=["5,c,50;replace", "17,c,;delete"])
    apply_revisions(answering.site)
    answering.take(quotes=["50,a,1"])
    yield answering
    answering.close()


def answer(site: Site, **question: object) -> tuple[list[dict[str, object]], list[str]]:
    with open_answer(site, OneTimeQuery(**question)) as found:  # type: ignore[arg-type]
        rows = fetch_all(found.rows).to_pylist()
        return sorted(rows, key=repr), [each.words for each in found.plan.summaries.readings]


@pytest.mark.parametrize("name", ["fours", "lazy"])
@pytest.mark.parametrize("at", [None, 23, 24])
def test_a_summary_answers_as_the_query_that_it_means(there: Answering, name: str, at: int | None) -> None:
    rows, told = answer(there.site, text=OUTER.format(name), at=at)
    assert rows == answer(there.site, text=OUTER.format("meant"), at=at)[0]
    assert rows
    assert told
    whole, _ = answer(there.site, name=name, at=at)
    assert whole == answer(there.site, name="meant", at=at)[0]


def test_older_commits_are_read_as_they_were(there: Answering) -> None:
    commits = range(2, streams.stream_state(there.site.catalog, "quotes").changed_in + 1)
    for commit in commits:
        rows, _ = answer(there.site, name="fours", as_of=commit)
        assert rows == answer(there.site, name="meant", as_of=commit)[0]


def test_a_summary_is_joined_with_rows_of_its_stream(there: Answering) -> None:
    text = "SELECT q.at, q.of, s.total FROM sliding(quotes, 20) AS q JOIN {} AS s ON q.of = s.of AND s.dear = 50"
    rows, _ = answer(there.site, text=text.format("fours"))
    assert rows == answer(there.site, text=text.format("meant"))[0]
    assert rows


def test_the_answer_says_what_was_read_and_lazy_summaries_are_asked_for(there: Answering) -> None:
    stream_id = streams.stream_state(there.site.catalog, "quotes").stream_id
    _, (told,) = answer(there.site, name="fours")
    assert told.startswith("summary fours: parts of 2 buckets")
    before = sum(each.all_readers for each in requests.pending(there.site.catalog, stream_id, RequestMethod.SUMMARY))
    _, (told,) = answer(there.site, name="lazy")
    assert told.startswith("summary lazy: parts of 2 buckets"), "equal parts are stored once"
    asked = requests.pending(there.site.catalog, stream_id, RequestMethod.SUMMARY)
    assert {each.asked.summary for each in asked} == {"lazy"}
    assert sum(each.all_readers for each in asked) == before + 1
