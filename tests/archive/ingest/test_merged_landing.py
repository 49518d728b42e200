"""What lands of feeds is one batch; detached feeds wait; heartbeats, rows tried again, the doctor and vacuum."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from errata.archive.ingest.batch import IngestReport, IngestRequest, ingest_batch
from errata.archive.ingest.feed_requests import mark_stable
from errata.archive.ingest.landing import find_landed
from errata.archive.ingest.quarantine import QuarantineSelection, select_items
from errata.archive.ingest.retry import retry_items
from errata.archive.upkeep.doctor import DoctorOptions, run_doctor
from errata.archive.upkeep.vacuum import run_vacuum
from errata.catalog import streams
from errata.catalog.feed_commits import attach_feed, detach_feed
from errata.errors import RefusedError, UsageError
from errata.model.bucket import Role
from errata.model.commit import Cause
from errata.model.feed import EmitPolicy, Feed, LandedFileAction, LandingFolder, MergePolicy, StableRule
from fixtures.flows import Builder, House
from fixtures.quotes import quotes, record, row, rows, say, stable, stable_point, standing, write

CAUSE = Cause("feeds")


@pytest.fixture
def house(a_house: Builder, tmp_path: Path) -> House:
    declared = [
        Feed(name, LandingFolder(str(tmp_path / name), 0, then), stable=StableRule.MARKS)
        for name, then in (("a", LandedFileAction.MOVE), ("b", LandedFileAction.KEEP))
    ]
    return a_house(quotes(*declared))


def land(folder: Path, name: str, *lines: dict[str, Any]) -> None:
    os.utime(write(folder / name, lines), (1, 1))


def take(house: House, **how: Any) -> IngestReport:
    return ingest_batch(house.site, IngestRequest("quotes", landed=True, **how))


def test_what_has_landed_of_all_feeds_is_one_batch(house: House, tmp_path: Path) -> None:
    land(tmp_path / "a", "1.jsonl", row(1), row(2))
    land(tmp_path / "b", "1.jsonl", row(2), row(3), stable(2))
    land(tmp_path / "b", "2.jsonl", {"nonsense": 1})
    (tmp_path / "b" / "3.csv").write_text("")
    os.utime(tmp_path / "b" / "3.csv", (1, 1))
    assert [len(files) for files in find_landed(house.site).files.values()] == [4]
    report = take(house)
    assert (report.files, report.counts.read, report.counts.appended, report.counts.dropped) == (3, 5, 3, 1)
    assert [Path(each.name).name for each in report.held_files] == ["3.csv"]
    assert [each[1] for each in rows(house)] == [1, 2, 3]
    assert sorted(str(path.relative_to(tmp_path / "a")) for path in (tmp_path / "a").rglob("*.jsonl")) == [
        "taken/1.jsonl"
    ]
    assert (tmp_path / "b" / "1.jsonl").exists()
    assert not find_landed(house.site)
    assert take(house).commit_id is None
    land(tmp_path / "b", "4.jsonl", row(3))
    assert find_landed(house.site)
    assert take(house).counts.dropped == 1
    assert (standing(house)["a"].rows, standing(house)["b"].rows, standing(house)["b"].repeats) == (2, 3, 2)


def test_what_lands_of_a_detached_feed_waits(house: House, tmp_path: Path) -> None:
    detach_feed(house.catalog, "quotes", "a", CAUSE)
    land(tmp_path / "a", "1.jsonl", row(1))
    assert not find_landed(house.site)
    assert take(house).commit_id is None
    with pytest.raises(RefusedError, match="detached"):
        say(house, "a", row(1))
    attach_feed(house.catalog, "quotes", "a", CAUSE)
    assert find_landed(house.site)
    assert take(house).counts.appended == 1


def test_a_heartbeat_releases_and_freezes(a_house: Builder) -> None:
    house = a_house(quotes(policy=MergePolicy(emit=EmitPolicy.HALF_FROZEN)))
    say(house, "a", row(1), row(2))
    report = mark_stable(house.site, "quotes", "a", 2)
    assert (report.counts.read, report.counts.appended) == (0, 1)
    assert (stable_point(house), record(house).leader, standing(house)["a"].stable) == (2, "a", 2)
    assert mark_stable(house.site, "quotes", "a", 2).already_ingested
    with pytest.raises(UsageError, match="unknown feed"):
        mark_stable(house.site, "quotes", "c", 2)


def test_rows_in_quarantine_are_tried_again_as_their_feeds(a_house: Builder, tmp_path: Path) -> None:
    house = a_house(quotes())
    first = say(house, "a", {"who": "x", "at": "one"}, row(2, price="much"), row(3), stable(4))
    assert (first.counts.read, first.counts.quarantined) == (3, 2)
    held = select_items(house.site, QuarantineSelection("quotes"))
    assert [each.feed for each in held.rows] == ["a", "a"]
    report = retry_items(house.site, held)
    assert [each.counts.quarantined for each in report.batches] == [2]
    assert standing(house)["a"].suspect_in is None


def test_what_contradicts_its_own_feed_makes_it_suspect(a_house: Builder) -> None:
    house = a_house(quotes())
    say(house, "a", row(1), row(5))
    say(house, "b", row(1), row(5), stable(4))
    report = say(house, "b", {"_op": "delete", "who": "x", "at": 1}, row(6), stable(9))
    assert report.counts.quarantined == 1
    [bad] = report.bad
    assert (Path(bad.file).name, bad.line) == ("2.jsonl", 1)
    suspect = standing(house)["b"]
    assert suspect.suspect_in == report.commit_id
    assert suspect.suspect_reason is not None
    assert "2.jsonl:1" in suspect.suspect_reason
    assert stable_point(house) == 9
    say(house, "b", stable(20))
    assert stable_point(house) == 9
    say(house, "a", stable(10))
    assert (stable_point(house), record(house).leader, record(house).switches) == (10, "a", 2)


def test_the_doctor_finds_nothing_and_vacuum_removes_former_states(a_house: Builder) -> None:
    house = a_house(quotes(policy=MergePolicy(emit=EmitPolicy.HALF_FROZEN)))
    big = "w" * 2_000
    for number in range(4):
        say(house, "a", *(row(10 * number + at, who=f"{big}{at}") for at in range(9)))
        say(house, "b", row(10 * number + 9), stable(10 * number))
    rows(house)
    state = house.stored("quotes", role=Role.MERGE)
    deep = DoctorOptions(deep=True)
    assert [each for report in run_doctor(house.site, (), deep) for each in report.findings] == []
    report = run_vacuum(house.site, grace=0)
    assert report is not None
    assert house.stored("quotes", role=Role.MERGE) == state
    assert {each.path for each in state if each.path} <= house.files()
    assert len([path for path in house.files() if "/merge/" in path]) == sum(1 for each in state if each.path)
    say(house, "b", stable(100))
    assert len(rows(house)) == 40
    assert [each for report in run_doctor(house.site, (), deep) for each in report.findings] == []


def test_a_damaged_state_is_made_anew_from_the_archive(a_house: Builder) -> None:
    house = a_house(quotes(end=None))
    say(house, "a", row(1), row(2), row(3))
    [state] = house.stored("quotes", role=Role.MERGE)
    with house.catalog.writing() as connection:
        wiped = f"UPDATE bucket_data SET data = zeroblob({state.size}) WHERE bucket_id = {state.bucket_id}"
        connection.exec_driver_sql(wiped)
    found = [each for report in run_doctor(house.site, (), DoctorOptions()) for each in report.findings]
    assert [each.mendable for each in found] == [True], found
    run_doctor(house.site, (), DoctorOptions(fix=True))
    assert house.stored("quotes", role=Role.MERGE) == []
    report = say(house, "b", row(2), row(4))
    assert (report.counts.dropped, report.counts.appended) == (1, 1)
    assert [each[1] for each in rows(house)] == [1, 2, 3, 4]
    assert streams.stream_state(house.catalog, "quotes").rows == 4
