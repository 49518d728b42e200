"""Stories of results: the values that one has had, what gave it each, and the rows behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import select

import errata
from errata.answer.runs import sweep
from errata.archive.revisions.apply import apply_revisions
from errata.archive.revisions.undo import undo_batch
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog.tables import batches
from errata.errors import ErrataError, UsageError
from errata.model.time import DAY, HIGHEST
from errata.read import source_rows as reading
from errata.read.changes import ChangelogReader
from errata.read.provenance import (
    BatchCause,
    ProvenanceCause,
    QueryEditCause,
    ResultProvenance,
    RevisionCause,
    RowFate,
    SourceProvenance,
    UpstreamResultCause,
)
from errata.read.why import explain_result
from fixtures.answers import told
from fixtures.catalog import NOW
from fixtures.runs import FIRST, QUERIES, SECOND, Answering

COURSE = {
    **{name: QUERIES[name] for name in ("dear", "sums", "most", "closed", "named", "kinds")},
    "by_price": "SELECT price, count(*) AS n FROM quotes WHERE at > 5 GROUP BY price",
}
CORRECTIONS = (
    {"quotes": ["3,a,9;replace", "7,a,5;replace"]},
    {"quotes": ["1,b,;delete"]},
    {"quotes": ["2,a,6"]},
    {"names": ["b,gamma,8;replace", "a,early,2"]},
)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Answering]:
    """A project whose past has been corrected four times."""
    project = begun(tmp_path_factory.mktemp("why"), COURSE)
    for each in CORRECTIONS:
        project.take(**each)
        corrected(project)
    yield project
    project.close()


def begun(folder: Path, texts: Mapping[str, str]) -> Answering:
    project = Answering.begin(folder, texts, {})
    project.take(quotes=[*FIRST["quotes"], "6,n,"], ticks=FIRST["ticks"])
    project.run()
    project.take(**SECOND)
    project.run()
    return project


def corrected(project: Answering) -> None:
    report = sweep(project.site)
    assert (report.stopped, report.held, report.busy) == ([], [], [])


def said(story: ResultProvenance) -> list[Any]:
    """The values, and when each began to count."""
    return [(None if each.values is None else dict(each.values), each.vs) for each in story.values]


def causes(story: ResultProvenance) -> list[list[ProvenanceCause]]:
    return [list(each.causes.shown) for each in story.values]


def rows(behind: SourceProvenance) -> list[tuple[str, Any, Any]]:
    return [
        (each.fate.value, each.was and tuple(each.was.values()), each.now and tuple(each.now.values()))
        for each in behind.rows
    ]


def test_each_value_has_its_cause_and_the_rows_are_told_as_they_were_and_are(there: Answering) -> None:
    story = explain_result(there.site, "SUMS", {"of": "a"}, 3)
    assert (story.query, story.key, story.at, story.notes) == ("sums", {"of": "a"}, 3, [])
    assert said(story) == [({"n": 2, "s": 9}, 3), ({"n": 2, "s": 14}, 3), ({"n": 3, "s": 20}, 3)]
    assert [each.ve for each in story.values] == [6, 6, 6]
    (batch,), (changed,), (late,) = causes(story)
    assert isinstance(batch, BatchCause)
    assert (batch.stream, batch.commit_id, batch.brings) == ("quotes", 2, True)
    file = there.written.folder / "quotes-6.csv"
    assert isinstance(changed, RevisionCause)
    assert (changed.stream, changed.revision, changed.file, changed.line) == ("quotes", 1, str(file), 2)
    assert (changed.was, changed.now) == ({"at": 3, "of": "a", "price": 4}, {"at": 3, "of": "a", "price": 9})
    assert isinstance(late, RevisionCause)
    assert (late.revision, late.was, late.now) == (4, None, {"at": 2, "of": "a", "price": 6})
    (behind,) = story.sources
    assert (behind.source, behind.then.rows, behind.now.rows, behind.differing) == ("quotes", 2, 3, 2)
    assert rows(behind) == [
        ("same", (1, "a", 5), (1, "a", 5)),
        ("came", None, (2, "a", 6)),
        ("changed", (3, "a", 4), (3, "a", 9)),
    ]
    published = [each.commit.commit_id for each in story.values]
    told_so = [
        each for each in told(ChangelogReader(there.site, "sums")) if (each["key"], each["vs"]) == ({"of": "a"}, 3)
    ]
    assert [each["commit"] for each in told_so] == published


def test_the_answer_at_an_instant_is_followed_from_one_result_to_another(there: Answering) -> None:
    story = explain_result(there.site, "sums", {"of": "a"}, "2")
    assert said(story) == [({"n": 1, "s": 5}, 1), ({"n": 2, "s": 11}, 2)]
    story = explain_result(there.site, "sums", {"of": "b"}, 3)
    assert said(story) == [({"n": 1, "s": 2}, 1), (None, 1)]
    (gone,) = causes(story)[1]
    assert isinstance(gone, RevisionCause)
    assert (gone.was, gone.now) == ({"at": 1, "of": "b", "price": 2}, None)
    assert rows(story.sources[0]) == [("gone", (1, "b", 2), None)]


def test_a_value_is_published_when_its_instant_is_answered(there: Answering) -> None:
    early, late = (explain_result(there.site, "kinds", {"of": "a"}, at) for at in (1, 12))
    assert [said(each) for each in (early, late)] == [[({}, 1)], [({}, 1)]]
    assert early.values[0].commit.commit_id < late.values[0].commit.commit_id
    assert late.values[0].ve == HIGHEST


def test_a_correction_of_a_query_that_is_read_has_its_own_cause(there: Answering) -> None:
    story = explain_result(there.site, "most", {}, 3)
    assert said(story) == [({"top": 2}, 3), ({"top": 3}, 3)]
    (result,) = causes(story)[1]
    assert isinstance(result, UpstreamResultCause)
    assert (result.query, result.key, result.vs) == ("sums", {"of": "a"}, 3)
    assert (result.was, result.now) == ({"n": 2, "s": 14}, {"n": 3, "s": 20})
    (revision,) = result.causes.shown
    assert isinstance(revision, RevisionCause)
    assert revision.revision == 4
    (behind,) = story.sources
    assert (behind.source, behind.noun) == ("sums", "query")
    assert rows(behind) == [("gone", ("b", 1, 2), None), ("changed", ("a", 2, 9), ("a", 3, 20))] or rows(behind) == [
        ("changed", ("a", 2, 9), ("a", 3, 20)),
        ("gone", ("b", 1, 2), None),
    ]


def test_versions_of_a_relation(there: Answering) -> None:
    story = explain_result(there.site, "named", {"of": "b", "q.at": "8"})
    assert said(story) == [({"price": 6, "name": "beta"}, 8), ({"price": 6, "name": "gamma"}, 8)]
    (version,) = causes(story)[1]
    assert isinstance(version, RevisionCause)
    assert (version.stream, version.was, version.now) == (
        "names",
        {"of": "b", "name": "beta", "since": 8},
        {"of": "b", "name": "gamma", "since": 8},
    )
    assert [each.source for each in story.sources] == ["quotes", "names"]
    assert rows(story.sources[1]) == [("changed", ("b", "beta", 8), ("b", "gamma", 8))]
    story = explain_result(there.site, "named", {"of": "a", "q.at": "3"}, 3)
    (early,) = causes(story)[0]
    assert isinstance(early, RevisionCause)
    assert (early.now, early.file) == (
        {"of": "a", "name": "early", "since": 2},
        str(there.written.folder / "names-9.csv"),
    )


def test_a_part_of_the_key_is_enough_where_it_tells_one_result(there: Answering) -> None:
    assert explain_result(there.site, "dear", {"at": "3"}).key == {"of": "a", "at": 3}
    assert explain_result(there.site, "closed", {"window_start": "2", "of": "a"}).at == 6
    with pytest.raises(UsageError, match="several results have such a key") as raised:
        explain_result(there.site, "dear", {"of": "a"})
    listed = (raised.value.how or "").splitlines()[1:]
    assert "    of=a,at=12 --at 12" in listed
    assert len(listed) == len(
        {each["vs"] for each in told(ChangelogReader(there.site, "dear")) if each["key"]["of"] == "a"}
    )
    with pytest.raises(UsageError, match="the key has had several results") as raised:
        explain_result(there.site, "sums", {"of": "b"})
    assert "    of=b --at 6" in (raised.value.how or "").splitlines()


@pytest.mark.parametrize("query", COURSE)
def test_every_story_ends_with_what_is_published_and_every_correction_has_its_cause(
    there: Answering, query: str
) -> None:
    shape = there.of(query).shape
    shown = {each.name: each.shown for each in shape.columns}
    visible = [name for name in shape.payload if name in shape.visible]
    published = there.rows(query)
    for key, at in sorted({(json.dumps(each["key"]), each["vs"]) for each in told(ChangelogReader(there.site, query))}):
        story = explain_result(there.site, query, json.loads(key), at)
        now = [
            {name: row[name] for name in visible}
            for row in published
            if row["_vs"] <= at < row["_ve"] and {shown[name]: row[name] for name in shape.key} == json.loads(key)
        ]
        assert [story.values[-1].values] == (now or [None]), (key, at)
        commits = [each.commit.commit_id for each in story.values]
        assert commits == sorted(set(commits)), (key, at)
        for each in story.values:
            assert each.causes.shown, (key, at)
            corrected_so = each.commit.cause.flow == "sweep"
            kinds = (RevisionCause, UpstreamResultCause) if corrected_so else (BatchCause,)
            assert all(isinstance(cause, kinds) for cause in each.causes.shown), (key, at, each.causes)


def test_null_is_an_empty_value(there: Answering) -> None:
    story = explain_result(there.site, "by_price", {"price": ""}, 6)
    assert (story.key, said(story)) == ({"price": None}, [({"n": 1}, 6)])
    assert rows(story.sources[0])[-1] == ("same", (6, "n", None), (6, "n", None))
    assert explain_result(there.site, "by_price", {"price": None}, 6).values == story.values


@pytest.mark.parametrize(
    ("query", "key", "at", "kind", "says"),
    [
        ("summs", {}, None, UsageError, "did you mean sums"),
        ("quotes", {}, None, UsageError, "quotes is a stream, and no query"),
        ("sums", {"off": "a"}, None, UsageError, "did you mean of"),
        ("sums", {"s": "9"}, None, UsageError, "it is what the results say"),
        ("most", {"of": "a"}, 3, UsageError, "leave the key out"),
        ("closed", {"window_start": "noon"}, None, UsageError, "'noon' is not a bigint"),
        ("closed", {"window_start": [2]}, None, UsageError, "is not a bigint"),
        ("sums", {"of": "a"}, "noon", UsageError, "'noon' is not a whole number"),
        ("sums", {"of": "a"}, 13, UsageError, "answered up to 12"),
        ("sums", {"of": "z"}, None, ErrataError, "has had no result of the key of=z"),
        ("sums", {"of": "a"}, 0, ErrataError, "has had no result of the key of=a at 0"),
        ("sums", {"of": "b"}, 0, ErrataError, "`errata results sums`"),
    ],
)
def test_what_cannot_be_meant(
    there: Answering, query: str, key: dict[str, object], at: Any, kind: type[ErrataError], says: str
) -> None:
    with pytest.raises(kind) as raised:
        explain_result(there.site, query, key, at)
    assert says in str(raised.value)


def test_many_rows_are_compared_by_the_far_engine(there: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, object], Any]] = [("sums", {"of": "a"}, 3), ("most", {}, 3)]
    before = [explain_result(there.site, *each) for each in asked]
    monkeypatch.setattr(reading, "LOCAL_ROWS", 0)
    monkeypatch.setattr("errata.declare.site.NEAR_MAX_ROWS", 0)
    assert [explain_result(there.site, *each) for each in asked] == before


def test_as_plain_data(there: Answering, spark: SparkSession) -> None:
    found = errata.why(spark, "sums", {"of": "a"}, at=3, project=there.written.folder)
    assert (found["query"], found["key"], found["at"]) == ("sums", {"of": "a"}, "3")
    values: Any = found["values"]
    assert [each["values"]["s"] for each in values] == [9, 14, 20]
    assert values[1]["causes"][0]["is"] == {"at": 3, "of": "a", "price": 9}
    behind: Any = found["behind"]
    assert behind[0]["rows"][0]["is"] == {"at": 1, "of": "a", "price": 5}
    # The clock is ours here, and not the one of the project.
    assert behind[0]["then"]["lost"].startswith("commit 3 lies behind the horizon of stream quotes")


def test_a_course_of_other_events(tmp_path: Path, spark: SparkSession) -> None:
    """What is revised and not swept, undone, edited, vacuumed: in one project, since each takes runs."""
    project = begun(tmp_path, {name: QUERIES[name] for name in ("dear", "sums", "pairs")})
    _revised_and_not_swept(project)
    _undone(project)
    _ahead_of_the_answer(project)
    _edited(project)
    _vacuumed(project)
    project.close()


def _revised_and_not_swept(project: Answering) -> None:
    project.take(quotes=["3,a,9;replace"])
    apply_revisions(project.site)
    story = explain_result(project.site, "sums", {"of": "a"}, 3)
    assert said(story) == [({"n": 2, "s": 9}, 3)]
    assert [each.fate for each in story.sources[0].rows] == [RowFate.SAME, RowFate.SAME], "what the answer is made of"
    corrected(project)
    story = explain_result(project.site, "sums", {"of": "a"}, 3)
    assert said(story)[1:] == [({"n": 2, "s": 14}, 3)]
    assert rows(story.sources[0])[1] == ("changed", (3, "a", 4), (3, "a", 9))


def _undone(project: Answering) -> None:
    (revision,) = causes(explain_result(project.site, "dear", {"at": 3}))[1]
    assert isinstance(revision, RevisionCause)
    undo_batch(project.site, "quotes", revision.batch_id)
    corrected(project)
    story = explain_result(project.site, "dear", {"at": 3})
    assert said(story) == [({"price": 4}, 3), ({"price": 9}, 3), ({"price": 4}, 3)]
    (back,) = causes(story)[2]
    assert isinstance(back, RevisionCause)
    assert (back.undoes, back.file) == (revision.batch_id, "")
    assert story.sources[0].differing == 0


def _ahead_of_the_answer(project: Answering) -> None:
    """A correction that comes before its row is answered is a part of the first value."""
    project.take(quotes=["20,b,4", "21,b,4"])
    project.run()
    project.revise(quotes=["20,b,7;replace"])
    project.take(ticks=["19,b", "30,b"])
    project.run()
    story = explain_result(project.site, "pairs", {"q.at": 20, "at": 19})
    assert said(story) == [({"price": 7}, 20)]
    batches, revisions = [], []
    for each in causes(story)[0]:
        (batches if isinstance(each, BatchCause) else revisions).append(each)
    assert {each.stream for each in batches} >= {"ticks"}
    assert [(each.was and each.was["price"], each.now and each.now["price"]) for each in revisions] == [(4, 7)]


def _edited(project: Answering) -> None:
    """The same key goes on; of another key nothing is told of before."""
    texts = {**project.texts, "sums": QUERIES["sums"].replace("sum(price)", "max(price)")}
    project.edit(texts)
    project.run()
    story = explain_result(project.site, "sums", {"of": "a"}, 3)
    assert said(story) == [
        *(({"n": 2, "s": s}, 3) for s in (9, 14, 9)),
        ({"n": 2, "s": 5}, 3),
    ]
    assert causes(story)[-1] == [QueryEditCause()]
    assert rows(story.sources[0]) == [("same", (1, "a", 5), (1, "a", 5)), ("same", (3, "a", 4), (3, "a", 4))]
    project.edit({**texts, "sums": "SELECT price, count(*) AS n FROM sliding(quotes, 5) GROUP BY price"})
    project.run()
    story = explain_result(project.site, "sums", {"price": 4}, 3)
    assert (said(story), causes(story)) == ([({"n": 1}, 3)], [[QueryEditCause()]])
    assert story.notes == ["sums has had another key, too: what it said then is left out"]


def _vacuumed(project: Answering) -> None:
    before = explain_result(project.site, "dear", {"at": 3})
    project.at(NOW + 60 * DAY)
    project.take(quotes=["40,a,9"])
    project.run()
    assert run_vacuum(project.site).freed
    story = explain_result(project.site, "dear", {"at": 3})
    assert said(story) == said(before)[-1:]
    assert story.values[0].truncated
    (behind,) = story.sources
    assert behind.then.rows is None or behind.then.lost
    assert behind.now.rows == 1


def test_of_several_batches_the_one_is_named_that_decided(tmp_path: Path, spark: SparkSession) -> None:
    project = Answering.begin(tmp_path, {"closed": QUERIES["closed"]}, {})
    try:
        # Three editions before the first run: the first brings the rows, each corrects one of them.
        first, *_ = project.take(quotes=["1,a,5", "2,a,1", "9,a,1"])
        project.take(quotes=["1,a,6;replace", "2,a,7;replace"])
        (last,) = project.take(quotes=["1,a,8;replace"])
        project.run()
        (told_first,) = causes(explain_result(project.site, "closed", {"of": "a", "window_start": "0"}))
        assert [(each.batch_id, each.was, each.now) for each in told_first if isinstance(each, RevisionCause)] == [
            (project_batch(project, 2), {"at": 2, "of": "a", "price": 1}, {"at": 2, "of": "a", "price": 7}),
            (last, {"at": 1, "of": "a", "price": 5}, {"at": 1, "of": "a", "price": 8}),
        ]
        assert not [each for each in told_first if isinstance(each, BatchCause)], f"{first} brought what was replaced"
        # And three before a sweep: one row comes back to what it was, so nobody has changed it.
        project.take(quotes=["1,a,9;replace", "2,a,3;replace"])
        project.take(quotes=["1,a,2;replace"])
        (last,) = project.take(quotes=["1,a,4;replace", "2,a,7;replace"])
        sweep(project.site)
        *_, (cause,) = causes(explain_result(project.site, "closed", {"of": "a", "window_start": "0"}))
        assert isinstance(cause, RevisionCause)
        assert (cause.batch_id, cause.was, cause.now) == (
            last,
            {"at": 1, "of": "a", "price": 8},
            {"at": 1, "of": "a", "price": 4},
        )
        project.check()
    finally:
        project.close()


def project_batch(project: Answering, number: int) -> str:
    """The id of the batch that was taken in as the nth."""
    with project.site.catalog.reading() as connection:
        return str(connection.execute(select(batches.c.batch_id).where(batches.c.batch_no == number)).scalar_one())
