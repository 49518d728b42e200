"""Landed files: taken when they have settled, and cleared once their rows are committed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.catalog import commits
from errata.errors import UsageError
from errata.model.feed import LandedFileAction, LandingFolder
from errata.model.time import SECOND
from fixtures.catalog import NOW
from fixtures.flows import Builder, House, a_feed
from fixtures.sources import Line, Source


def lines(*seconds: int) -> list[Line]:
    return [Line({"at": NOW - (100 - second) * SECOND, "who": "a", "price": 1.0, "note": None}) for second in seconds]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "landing"


def landing_house(a_house: Builder, folder: Path, then: LandedFileAction = LandedFileAction.MOVE) -> House:
    return a_house(a_feed(landing=LandingFolder(str(folder), 10 * SECOND, then)))


def land(house: House, folder: Path, source: Source, ago: int = 60) -> Path:
    """A file that landed so many seconds ago."""
    path = house.write(source, folder=str(folder))
    moment = house.clock.now() // SECOND - ago
    os.utime(path, (moment, moment))
    return path


def take(house: House) -> IngestReport:
    return ingest_batch(house.site, IngestRequest("feed", landed=True))


def there(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_files_are_taken_when_they_have_settled_and_moved(a_house: Builder, folder: Path) -> None:
    house = landing_house(a_house, folder)
    assert take(house).commit_id is None
    land(house, folder, Source("1.csv", lines(1)))
    land(house, folder, Source("2.csv", lines(2)), ago=9)
    land(house, folder, Source(".hidden.csv", lines(3)))
    land(house, folder, Source("3.csv.tmp", lines(3)))
    report = take(house)
    assert (report.files, report.counts.appended) == (1, 1)
    assert there(folder) == [".hidden.csv", "2.csv", "3.csv.tmp", "taken/1.csv"]
    assert take(house).commit_id is None
    house.clock.advance(SECOND)
    assert take(house).files == 1
    assert there(folder) == [".hidden.csv", "3.csv.tmp", "taken/1.csv", "taken/2.csv"]
    assert len(house.rows()) == 2


def test_names_that_clash_are_told_apart(a_house: Builder, folder: Path) -> None:
    house = landing_house(a_house, folder)
    for second in (1, 2, 3):
        land(house, folder, Source("same.csv", lines(second)))
        take(house)
    names = there(folder)
    assert len(names) == 3
    assert names[-1] == "taken/same.csv"
    assert all(name.startswith("taken/") and name.endswith("same.csv") for name in names)
    assert len(house.rows()) == 3


def test_a_file_that_a_killed_run_left_is_cleared_and_not_taken_twice(a_house: Builder, folder: Path) -> None:
    house = landing_house(a_house, folder)
    land(house, folder, Source("1.csv", lines(1)))
    take(house)
    newest = commits.newest_commit(house.catalog)
    (folder / "taken" / "1.csv").rename(folder / "1.csv")  # as it lay before it was moved
    assert take(house).commit_id is None
    assert commits.newest_commit(house.catalog) == newest
    (folder / "taken" / "1.csv").rename(folder / "1.csv")
    land(house, folder, Source("new.csv", lines(2)))
    report = take(house)
    assert (report.files, report.counts.read) == (1, 1)
    assert there(folder) == ["taken/1.csv", "taken/new.csv"]
    assert len(house.rows()) == 2


def test_an_equal_file_is_another_delivery_whose_rows_are_there(a_house: Builder, folder: Path) -> None:
    house = landing_house(a_house, folder)
    land(house, folder, Source("1.csv", lines(1)))
    take(house)
    land(house, folder, Source("1.csv", lines(1)), ago=50)
    land(house, folder, Source("2.csv", lines(1)))
    report = take(house)
    assert (report.files, report.counts.read, report.counts.dropped) == (2, 2, 2)
    assert len(house.rows()) == 1
    assert [each.name for each in report.repeated] == [str(folder / "1.csv")]
    assert len(there(folder)) == 3


def test_files_can_be_deleted(a_house: Builder, folder: Path) -> None:
    house = landing_house(a_house, folder, LandedFileAction.DELETE)
    land(house, folder, Source("1.csv", lines(1)))
    land(house, folder, Source("2.csv", lines(2)))
    assert take(house).files == 2
    assert there(folder) == []
    assert len(house.rows()) == 2


def test_files_can_be_kept_and_are_taken_once(a_house: Builder, folder: Path) -> None:
    house = landing_house(a_house, folder, LandedFileAction.KEEP)
    land(house, folder, Source("1.csv", lines(1)))
    assert take(house).files == 1
    assert take(house).commit_id is None
    land(house, folder, Source("2.csv", lines(2)))
    assert take(house).files == 1
    assert there(folder) == ["1.csv", "2.csv"]
    assert len(house.rows()) == 2


def test_a_stream_without_a_landing_folder_has_nothing_landed(a_house: Builder) -> None:
    house = a_house(a_feed())
    with pytest.raises(UsageError, match="has no landing folder"):
        take(house)
    with pytest.raises(UsageError, match="one of the two"):
        ingest_batch(house.site, IngestRequest("feed", ["x.csv"], landed=True))
