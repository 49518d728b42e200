"""`errata archive vacuum`, its job, and what they say."""

from __future__ import annotations

import csv
import io
import json
import os
import runpy
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from errata.archive.upkeep.vacuum import DEFAULT_GRACE, VacuumReport
from errata.catalog import bucket_writes, commits, streams
from errata.catalog.bucket_writes import BucketAddition
from errata.catalog.vacuum import RecordCounts
from errata.cli.vacuum import vacuum_lines
from errata.declare.site import open_site
from errata.model.commit import Cause
from errata.model.time import DAY, SECOND
from fixtures.catalog import a_bucket
from fixtures.commands import Errata

HOUSE = Path(__file__).resolve().parents[2]
HEX = "0123456789abcdef" * 2


@pytest.fixture
def littered(errata: Errata, project: Path) -> Path:
    """A project in which one file and one inline bucket are spent, and three files lie about."""
    declared = project / "errata.yaml"
    declared.write_text(declared.read_text().replace("retention: 1 minute", "horizon: 0 seconds"))
    assert errata("apply", "--yes").code == 0
    with open_site() as site:
        paths = [site.warehouse.new_name(site.project.streams["quotes"], number * DAY) for number in range(3)]
        for path in paths:
            site.warehouse.write(path, b"1234567")
        inline = a_bucket(0, 9, path=None, data=b"123", size=3)
        for add, remove in (([*(a_bucket(0, 9, path=path, size=7) for path in paths[:2]), inline], []), ([], [1, 3])):
            with site.catalog.writing() as connection:
                streams.lock_stream(connection, 1)
                commit_id = commits.record_commit(
                    connection, site.catalog.clock.now(), Cause("test"), stream_id=1, summary={}
                )
                bucket_writes.add_buckets(connection, 1, commit_id, BucketAddition(add))
                bucket_writes.remove_buckets(connection, remove, commit_id)
        old = time.time() - 2 * DAY / SECOND
        os.utime(site.warehouse.path(paths[2]), (old, old))
        site.warehouse.write(f"quotes/base/all/{HEX}.parquet", b"young")
        site.warehouse.write("quotes/mine.txt", b"mine")
    return project


def files(project: Path) -> int:
    return sum(path.is_file() for path in (project / "warehouse").rglob("*"))


STAYS = (
    "left alone: 1 file younger than 1 day that no index row names\n"
    "left alone: 1 file in the warehouse that is not Errata's\n"
)


def test_the_plan_and_then_the_deed(errata: Errata, littered: Path) -> None:
    planned = errata("archive", "vacuum", "--plan")
    table = [
        "stream  what        kind  buckets  files  size",
        "quotes  orphaned    base        0      1   7 B",
        "quotes  superseded  base        2      1  10 B",
    ]
    assert (planned.code, planned.out.splitlines()) == (0, table)
    assert planned.err == (f"would free 2 buckets and 2 files, 17 B\n2 empty folders would be removed\n{STAYS}")
    assert files(littered) == 5
    done = errata("archive", "vacuum")
    assert (done.code, done.out.splitlines()) == (0, table)
    assert done.err == f"freed 2 buckets and 2 files, 17 B in commit 4\n2 empty folders removed\n{STAYS}"
    assert files(littered) == 3
    again = errata("archive", "vacuum")
    assert (again.code, again.out, again.err) == (0, "", f"nothing to free\n{STAYS}")
    log = json.loads(errata("log", "quotes", "--last", "1", "--format", "json").out)
    assert (log["commit"], log["flow"]) == (4, "vacuum")
    assert log["did"] == "2 buckets in 1 file removed for good, 10 B"
    gone = errata("archive", "ls", "quotes", "--as-of", "2")
    assert (gone.code, "no longer whole" in gone.err) == (1, True)
    assert errata("archive", "ls", "quotes", "--as-of", "3").code == 0


def test_for_programs(errata: Errata, littered: Path) -> None:
    found = [json.loads(line) for line in errata("archive", "vacuum", "--plan", "--format", "json").out.splitlines()]
    assert found == [
        {"stream": "quotes", "what": "orphaned", "kind": "base", "buckets": 0, "files": 1, "bytes": 7},
        {"stream": "quotes", "what": "superseded", "kind": "base", "buckets": 2, "files": 1, "bytes": 10},
    ]
    done = errata("archive", "vacuum", "quotes", "--grace", "3 days", "--format", "csv")
    assert [row["what"] for row in csv.DictReader(io.StringIO(done.out))] == ["superseded"]
    assert "left alone: 2 files younger than 3 days that no index row names" in done.err
    assert errata("archive", "vacuum", "--format", "json").out.count("\n") == 1
    assert errata("archive", "vacuum", "--format", "csv").out == "stream,what,kind,buckets,files,bytes\n"


@pytest.mark.parametrize(
    ("argv", "told"), [(["quots"], "did you mean quotes?"), (["--grace", "soon"], "'soon' is not a duration")]
)
def test_what_cannot_be_meant(errata: Errata, littered: Path, argv: list[str], told: str) -> None:
    done = errata("archive", "vacuum", *argv)
    assert (done.code, told in done.err) == (2, True)
    assert files(littered) == 5


def test_a_file_that_cannot_be_removed_is_named(
    errata: Errata, littered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_: object, path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("errata.declare.warehouse.Warehouse.remove", refuses)
    done = errata("archive", "vacuum")
    assert done.code == 1
    assert done.err.count("cannot be removed: quotes/base/") == 2
    assert done.err.count(".parquet: Permission denied\n") == 2
    assert files(littered) == 5


def test_the_job_does_the_same(
    littered: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["vacuum.py", "--project", str(littered), "--dag-id", "vacuum", "--run-id", "r", "--grace", "1 hour"]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(HOUSE / "jobs" / "vacuum.py"), run_name="__main__")
    assert left.value.code == 0
    assert capsys.readouterr().err == (
        "quotes: 0 buckets and 1 files, 7 bytes freed, orphaned base\n"
        "quotes: 2 buckets and 1 files, 10 bytes freed, superseded base\n"
    )
    assert files(littered) == 3
    with open_site(littered) as site:
        [commit] = commits.list_commits(site.catalog, last=1)
    assert (commit.cause.flow, commit.cause.dag_id, commit.cause.run_id) == ("vacuum", "vacuum", "r")


def test_records_and_pins_are_told_apart() -> None:
    done = VacuumReport([], [], 0, 0, 0, RecordCounts(pins=1, evaluations=1, positions=1_200), [])
    assert list(vacuum_lines(done, plan=False, grace=DEFAULT_GRACE)) == [
        "nothing to free",
        "removed records behind the horizon: 1 evaluation, 1,200 positions",
        "dropped 1 expired pin",
    ]
    assert list(vacuum_lines(replace(done, forgotten=RecordCounts(pins=2)), plan=True, grace=DEFAULT_GRACE)) == [
        "nothing to free",
        "would drop 2 expired pins",
    ]
