"""Which changes of declarations make another form of a query, so that it is worked out anew, and which do not; and what
is named as the cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import update

from errata.answer.runs import run
from errata.catalog import queries
from errata.catalog.tables import queries as queries_table
from errata.declare.apply import apply_plan, plan_apply
from errata.read.changes import ChangelogReader
from errata.read.provenance import ProvenanceCause, QueryEditCause, RevisionCause, StreamEditCause
from errata.read.why import explain_result
from fixtures.answers import told
from fixtures.runs import FIRST, SUMS, Answering

TEXTS = {"sums": SUMS, "most": "SELECT max(n) AS top FROM sums", "all": "SELECT * FROM quotes"}
VENUE = ("price: int}", "price: int, venue: string}")
"""A column more of quotes."""
CORRECTION = ["3,a,9;replace"]


@pytest.fixture
def there(tmp_path: Path, spark: SparkSession) -> Iterator[Answering]:
    """Answered once."""
    there = Answering.begin(tmp_path, TEXTS)
    there.take(**FIRST)
    there.run()
    yield there
    there.close()


def forms(there: Answering) -> dict[str, int]:
    return {name: each.query_id for name, each in queries.recorded_queries(there.site.catalog).items()}


def redeclare(there: Answering, *changes: tuple[str, str]) -> None:
    """Apply the same queries over streams that are declared otherwise."""
    for was, now in changes:
        assert was in there.declared
        there.declared = there.declared.replace(was, now)
    there.edit(there.texts)


def last_causes(there: Answering, query: str, instant: int, **key: Any) -> list[ProvenanceCause]:
    """Of the last value that the answer has had at an instant."""
    return list(explain_result(there.site, query, key, instant).values[-1].causes.shown)


def test_a_correction_after_a_column_was_added_is_a_correction(there: Answering) -> None:
    before = forms(there)
    redeclare(there, VENUE)
    assert there.run().evaluated[0].name == "all", "only what lists all columns means something else"
    there.take(quotes=CORRECTION)
    report = there.run()
    corrected = {each.name: each.swept is not None for each in report.evaluated}
    assert corrected == dict.fromkeys(TEXTS, True)
    there.check("sums", "most")
    assert {name for name, each in forms(there).items() if each != before[name]} == {"all"}
    changes = told(ChangelogReader(there.site, "sums"))
    assert changes[-1]["cause"] == {"type": "revisions", "id": "quotes 1"}
    (cause,) = last_causes(there, "sums", 6, of="a")
    assert isinstance(cause, RevisionCause)


@pytest.mark.parametrize(
    "change",
    [
        ("order: at}\n  ticks", "order: at, horizon: 2 days}\n  ticks"),
        ("order: at}\n  ticks", "order: at, slack: 1}\n  ticks"),
        ("order: at}\n  ticks", "order: at, bucket_rows: 10}\n  ticks"),
        ("order: at}\n  ticks", "order: at, group: [], layout: clustered}\n  ticks"),
        ("order: at}\n  ticks", "order: at, retention: 100 units}\n  ticks"),
        ("order: at}\n  ticks", "order: at, on_duplicate: replace}\n  ticks"),
        ("order: at}\n  ticks", "order: at, landing: {path: landing}}\n  ticks"),
        ("{at: bigint, of: string, price: int}", "{price: int, at: bigint, of: string}"),
        ("relations:", "  others: {columns: {at: bigint, of: string}, key: [at, of], order: at}\nrelations:"),
        ("project: p\n", "project: p\nsweep: {when: never}\n"),
    ],
)
def test_what_a_stream_may_have_without_another_form(there: Answering, change: tuple[str, str]) -> None:
    there.edit({name: TEXTS[name] for name in ("sums", "most")})
    before, commit_id = forms(there), there.of("sums").last.commit_id
    redeclare(there, change)
    assert forms(there) == before
    assert there.run().evaluated == []
    assert there.of("sums").last.commit_id == commit_id


def test_what_a_query_may_have_without_another_form(there: Answering) -> None:
    before = forms(there)
    reworded = {
        "sums": f"-- sums\n{SUMS.replace(' FROM', chr(10) + '  from /* the stream */')}",
        "most": "SELECT max(sums.n) AS top\nFROM sums -- of all",
        "all": "SELECT at, of, price FROM quotes",
    }
    for options in (
        {"sums": "serve: {table: other}", "most": "retention: 100 units"},
        {"sums": "sweep: {when: queue >= 10}", "most": "retention: 5 rows"},
        {},
    ):
        project = there.written.write(reworded, options, there.declared)
        apply_plan(plan_apply(project))
        there.site = replace(there.site, project=project)
        assert {name for name, each in forms(there).items() if each != before[name]} == set()
    recorded = queries.recorded_queries(there.site.catalog)
    assert {name: recorded[name].checked.query.text for name in reworded} == reworded
    assert there.run().evaluated == []
    there.take(quotes=CORRECTION)
    there.run()
    there.check()


def test_what_was_recorded_by_an_older_version_stays(there: Answering) -> None:
    before = forms(there)
    with there.site.catalog.writing() as connection:
        connection.execute(update(queries_table).values(fingerprint=""))
    there.edit(there.texts)
    redeclare(there, VENUE)
    assert {name for name, each in forms(there).items() if each != before[name]} == {"all"}
    there.edit(TEXTS | {"sums": SUMS.replace("5", "3")})
    assert {name for name, each in forms(there).items() if each == before[name]} == set()


def test_the_cause_is_what_has_changed(there: Answering) -> None:
    redeclare(there, VENUE)
    there.take(quotes=["14,a,2"])
    there.run()
    assert there.of("all").last.cause["type"] == "stream"
    assert there.of("all").last.cause["id"] == "quotes"
    (cause,) = last_causes(there, "all", 14, at=14, of="a")
    assert cause == StreamEditCause("quotes")

    there.edit(TEXTS | {"sums": SUMS.replace("5", "9")})
    there.run()
    assert last_causes(there, "sums", 14, of="a") == [QueryEditCause()]
    assert [each["cause"]["id"] for each in told(ChangelogReader(there.site, "most"))][-1] == "sums"
    assert last_causes(there, "most", 14) == [QueryEditCause(reads="sums")]

    there.revise(quotes=["14,a,7;replace"])
    run(there.site, ["sums"], anew=True)
    assert last_causes(there, "sums", 14, of="a") == [QueryEditCause(anew=True)]
    # Of what reads it, too: nobody has edited that one.
    there.run()
    assert there.of("most").last.cause["id"] == "sums"
