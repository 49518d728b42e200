"""The report of one correction: what changed, because of what, and what cannot be told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from errata.catalog import tables
from errata.errors import UsageError
from errata.model.batch import Op
from errata.model.commit import RefusedRevisions
from errata.read import correction_report as module
from errata.read.correction_report import correction_report
from fixtures.layers import key
from fixtures.sample_project import Looked, looked


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Looked]:
    with looked(tmp_path) as found:
        found.bring(5, 60)
        found.answer("dear")
        yield found


def test_each_change_with_its_key_its_span_and_both_values(place: Looked) -> None:
    records = [("delete", "c", 9, 3.0, None), ("replace", "a", 5, 5.0, 99.0), ("insert", "b", 7, None, 1.5)]
    commit = place.sweep("dear", records)
    found = correction_report(place.site, "dear", commit)
    assert [(each.op, each.key, each.begins, each.was, each.now) for each in found.changes] == [
        ("replace", {"who": "a"}, 5, {"price": 5.0}, {"price": 99.0}),
        ("insert", {"who": "b"}, 7, {}, {"price": 1.5}),
        ("delete", {"who": "c"}, 9, {"price": 3.0}, {}),
    ]
    assert [each.differing_columns for each in found.changes] == [["price"]] * 3
    assert [each.ends for each in found.changes] == [None, None, None]
    assert not any(each.end_changed for each in found.changes)
    assert (found.total, found.page, found.pages, found.unreadable_reason) == (3, 1, 1, "")
    assert found.command == f"errata changes dear --since {commit - 1}"


def test_only_what_the_one_correction_changed(place: Looked) -> None:
    first = place.sweep("dear", [("replace", "a", 5, 5.0, 99.0)])
    second = place.sweep("dear", [("replace", "a", 5, 99.0, 5.0)], (1, 2))
    assert [each.now for each in correction_report(place.site, "dear", first).changes] == [{"price": 99.0}]
    assert [each.now for each in correction_report(place.site, "dear", second).changes] == [{"price": 5.0}]


def test_what_the_source_had_said(place: Looked) -> None:
    place.feed.correct((Op.REPLACE, key(5) | {"price": 99.0}, {}), (Op.DELETE, key(60), {}), (Op.DELETE, key(4), {}))
    commit = place.sweep("dear", [], (0, 3), refused=[RefusedRevisions("feed", 3, 3, 1, "aged out")])
    found = correction_report(place.site, "dear", commit)
    (source,) = found.sources
    assert (source.name, source.query, source.first, source.last, source.more) == ("feed", False, 1, 3, False)
    assert [(each.number, each.was.get("price"), each.now.get("price")) for each in source.revised] == [
        (1, 5.0, 99.0),
        (2, 60.0, None),
    ]
    assert all(each.file and each.line for each in source.revised)
    assert found.summary.refused[0].reason == "aged out"


def test_what_another_query_had_corrected(place: Looked) -> None:
    place.sweep("dear", [("replace", "a", 5, 5.0, 99.0)])
    place.answer("most")
    commit = place.sweep("most", [("replace", "a", 5, 5.0, 99.0)], (1, 2), inputs={"dear": 2})
    (source,) = correction_report(place.site, "most", commit).sources
    assert (source.name, source.query, source.revised) == ("dear", True, ())


def test_pages(place: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGES_PER_PAGE", 2)
    commit = place.sweep("dear", [("insert", f"w{at}", at, None, 1.0) for at in range(5)])
    begins = [
        [each.begins for each in correction_report(place.site, "dear", commit, page).changes] for page in (1, 2, 3)
    ]
    assert begins == [[0, 1], [2, 3], [4]]
    assert (
        correction_report(place.site, "dear", commit, 99).page,
        correction_report(place.site, "dear", commit, 0).page,
    ) == (3, 1)


def test_too_much_is_left_to_the_command_line(place: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REPORT_ROWS", 2)
    commit = place.sweep("dear", [("insert", f"w{at}", at, None, 1.0) for at in range(3)])
    found = correction_report(place.site, "dear", commit)
    assert (found.changes, found.readable) == ([], True)
    assert found.unreadable_reason == "These are too many for a page: 3 rows would have to be read."


def test_what_vacuum_has_removed_is_gone(place: Looked) -> None:
    commit = place.sweep("dear", [("replace", "a", 5, 5.0, 99.0)])
    with place.site.catalog.writing() as connection:
        results = tables.streams.c.name == "dear"
        connection.execute(update(tables.streams).where(results).values(vacuumed=commit))
    found = correction_report(place.site, "dear", commit)
    assert (found.changes, found.readable) == ([], False)
    assert "Vacuum" in found.unreadable_reason


def test_a_warehouse_out_of_sight_is_said(place: Looked, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [("insert", f"w{at:05d}", at, None, 1.0) for at in range(9_000)]
    commit = place.sweep("dear", many)
    assert correction_report(place.site, "dear", commit).total == 9_000
    place.feed.house.folder.joinpath("warehouse").rename(place.feed.house.folder / "elsewhere")
    found = correction_report(place.site, "dear", commit)
    assert found.unreadable_reason == "The warehouse cannot be read from here: No such file or directory."
    assert found.summary.changed == 9_000


def test_a_commit_that_corrected_nothing(place: Looked) -> None:
    with pytest.raises(UsageError, match="has corrected no results of query dear"):
        correction_report(place.site, "dear", 1)
