"""Queries that are added, edited, dropped and worked out anew between runs and during one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from errata.answer.runs import run
from errata.catalog import commits
from errata.catalog.result_archives import EvaluationCommit, commit_evaluation
from errata.read.changes import ChangelogReader
from fixtures.answers import Reader, told
from fixtures.runs import DEAR, FIRST, MOST, QUERIES, SECOND, SUMS, UNSWEPT, Answering

TEXTS = {"dear": DEAR, "sums": SUMS, "most": MOST}
SHORTER = SUMS.replace("5", "3")
CHEAPEST = "SELECT of, min(price) AS low FROM quotes GROUP BY of"


@pytest.fixture
def there(tmp_path: Path, spark: SparkSession) -> Iterator[Answering]:
    """Answered once."""
    there = Answering.begin(tmp_path, TEXTS)
    there.take(quotes=FIRST["quotes"])
    there.run()
    yield there
    there.close()


def test_between_runs(there: Answering) -> None:
    first = commits.newest_commit(there.site.catalog)
    rows = {name: there.rows(name) for name in TEXTS}
    feeds = {name: ChangelogReader(there.site, name) for name in TEXTS}
    readers = {name: Reader() for name in TEXTS}
    for name in TEXTS:
        readers[name].take(told(feeds[name]))
    there.take(quotes=SECOND["quotes"])
    # The first with another key, the second with the same; the third follows what it reads.
    there.edit({"dear": CHEAPEST, "sums": SHORTER, "most": MOST, "kinds": QUERIES["kinds"]})
    assert {name: there.rows(name) for name in TEXTS} == rows, (
        "the former form is the answer until the new one is there"
    )
    there.run()
    there.check()
    for name in TEXTS:
        assert there.rows(name, first) == rows[name]
        readers[name].take(told(feeds[name]))
        assert readers[name].at(12) == there.visible(name)

    second = commits.newest_commit(there.site.catalog)
    there.edit({"sums": SHORTER, "dear": CHEAPEST})
    last = there.rows("most", second)
    there.take(quotes=["14,a,2"])
    there.run()
    there.check()
    assert there.rows("most", second) == last
    readers["most"].take(told(feeds["most"]))
    assert (feeds["most"].ended, readers["most"].held) == (True, {})


def test_during_a_run(there: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {name: there.rows(name) for name in TEXTS}
    there.take(quotes=SECOND["quotes"])
    changed: list[str] = []

    def meanwhile(catalog: Any, done: EvaluationCommit, cause: Any) -> Any:
        if done.query == "sums" and not changed:
            changed.append(done.query)
            there.edit({"sums": SHORTER, "most": MOST})
        return commit_evaluation(catalog, done, cause)

    with monkeypatch.context() as patched:
        patched.setattr("errata.catalog.result_archives.commit_evaluation", meanwhile)
        report = there.run()
    assert (report.busy, report.held) == (["sums"], [("most", "sums")])
    assert there.rows("sums") == rows["sums"], "what a form says that is no more is not published"
    assert {each.name for each in there.run().evaluated} == {"sums", "most"}
    there.check()


def test_what_is_worked_out_anew_takes_others_along(tmp_path: Path, spark: SparkSession) -> None:
    there = Answering.begin(tmp_path, TEXTS, declared=UNSWEPT)
    there.take(quotes=FIRST["quotes"])
    there.run()
    there.revise(quotes=["3,a,;delete"])
    there.take(quotes=SECOND["quotes"])
    there.run()
    assert there.of("most").last.revisions == {"quotes": 0}
    run(there.site, ["sums"], anew=True)
    there.check("sums")
    there.run()
    assert there.of("most").last.revisions == {"quotes": 1}
    there.check()
    there.close()


def test_a_new_form_that_does_not_reach_as_far(there: Answering) -> None:
    there.take(quotes=["12,a,8"], ticks=["10,b"])
    there.run()
    there.check()
    # Its second stream is stable up to 8 only; what was said of 12 is withdrawn, and comes again.
    of_two = f"{DEAR} EXCEPT ALL SELECT of, 9, at FROM ticks"
    there.edit({"dear": of_two})
    there.run()
    there.check()
    assert there.of("dear").frontier == 8
    there.take(ticks=["15,b"])
    there.run()
    there.check()
    assert there.of("dear").frontier == 12


def test_what_reads_a_query_with_a_beginning_begins_with_it(tmp_path: Path, spark: SparkSession) -> None:
    texts = {"sums": SUMS, "most": MOST, "few": "SELECT of, n, s FROM sums WHERE n < 3"}
    there = Answering.begin(tmp_path, texts, {"sums": "since: 7"})
    there.take(quotes=FIRST["quotes"])
    assert there.run().evaluated == []
    there.take(quotes=SECOND["quotes"])
    assert len(there.run().evaluated) == len(texts)
    assert {there.of(name).last.begins for name in texts} == {7}
    there.check()
    there.close()
