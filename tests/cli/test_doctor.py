"""`errata doctor`, its job, and what they say."""

from __future__ import annotations

import csv
import io
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import insert, update

from errata.archive.bucket_files import POS
from errata.archive.bucket_writer import BucketWriter
from errata.catalog import commits, streams
from errata.catalog import tables as t
from errata.catalog.stream_commits import commit_append
from errata.declare.site import open_site
from errata.errors import EXIT_DECISION
from errata.intake.types import arrow_schema
from errata.model.bucket import Role
from errata.model.commit import Cause
from fixtures.catalog import a_batch
from fixtures.commands import Errata

HOUSE = Path(__file__).resolve().parents[2]
HEALTHY = "quotes: 1 bucket, no overlays, no findings\n"


@pytest.fixture
def archive(errata: Errata, project: Path) -> Path:
    """A project with three quotes in one file."""
    assert errata("apply", "--yes").code == 0
    with open_site() as site:
        stream = site.project.streams["quotes"]
        schema = pa.schema([*arrow_schema(stream), pa.field(POS, pa.int64())])
        rows = [{"time": second * 1_000_000, "symbol": "IBM", "price": 1.0, POS: second} for second in range(3)]
        written = BucketWriter(stream, site.warehouse, inline=False)
        bucket = written.write(pa.Table.from_pylist(rows, schema=schema), Role.BASE)
        commit_append(
            site.catalog, streams.stream_state(site.catalog, "quotes"), a_batch("one", [bucket]), Cause("append")
        )
    return project


def note(statement: Any) -> None:
    with open_site() as site, site.catalog.writing() as connection:
        connection.execute(statement)


def the_file(project: Path) -> Path:
    (found,) = (project / "warehouse").rglob("*.parquet")
    return found


@pytest.mark.parametrize("how", [[], ["--quick"], ["--fix"], ["quotes"], ["--deep", "--grace", "0 seconds"]])
def test_a_healthy_archive_takes_a_line(errata: Errata, archive: Path, how: list[str]) -> None:
    done = errata("doctor", *how)
    assert (done.code, done.out, done.err) == (0, "", HEALTHY)


def test_what_is_lost_is_told_with_what_to_do(errata: Errata, archive: Path) -> None:
    file = the_file(archive)
    path = file.relative_to(archive / "warehouse")
    file.unlink()
    done = errata("doctor")
    assert done.code == 1
    assert done.err == "quotes: 1 bucket, no overlays, 1 finding\n"
    for told in ("damage", "missing", f"restore {path}", "take batch one's files in again"):
        assert told in done.out
    assert errata("doctor", "--fix").code == 1
    assert errata("doctor", "--quick").code == 1


def test_what_can_be_mended_is_mended(errata: Errata, archive: Path) -> None:
    note(update(t.streams).values(rows=7))
    done = errata("doctor", "--format", "json")
    assert done.code == 1
    assert done.err == ("quotes: 1 bucket, no overlays, 1 finding\nsome of it can be mended: errata doctor --fix\n")
    found = json.loads(done.out)
    assert found["what"] == "rows is 7 and should be 3"
    assert (found["stream"], found["severity"], found["kind"]) == ("quotes", "wrong", "counter")
    assert (found["mendable"], found["state"]) == (True, "left")
    done = errata("doctor", "--fix", "--format", "csv")
    assert (done.code, done.err) == (0, "quotes: 1 bucket, no overlays, no findings, 1 mended in commit 3\n")
    (row,) = csv.DictReader(io.StringIO(done.out))
    assert (row["kind"], row["mendable"], row["state"]) == ("counter", "true", "mended")
    assert errata("doctor").err == HEALTHY
    with open_site() as site:
        (commit,) = commits.list_commits(site.catalog, last=1)
    assert (commit.cause.flow, commit.stream, commit.summary) == ("doctor", "quotes", {"counters": 1})
    assert "doctor" in errata("log").out


def test_what_no_stream_owns_is_told_beside_them(errata: Errata, archive: Path) -> None:
    note(insert(t.pins).values(pin_id="x", commit_id=1, holder="scan", expires_at=1))
    done = errata("doctor")
    assert done.code == 1
    assert done.err.splitlines()[1:] == [
        "commits and files: 1 finding",
        "some of it can be mended: errata doctor --fix",
    ]
    assert "pin of scan on commit 1" in done.out
    assert errata("doctor", "--fix").err == f"{HEALTHY}commits and files: no findings, 1 mended in commit 3\n"


def test_quickly_no_file_is_opened(errata: Errata, archive: Path) -> None:
    file = the_file(archive)
    file.write_bytes(b"x" * file.stat().st_size)
    assert errata("doctor", "--quick").code == 0
    assert errata("doctor").code == 1


def test_an_unknown_stream_is_a_question_of_usage(errata: Errata, archive: Path) -> None:
    done = errata("doctor", "quote")
    assert done.code == 2
    assert "did you mean quotes?" in done.err


def job(monkeypatch: pytest.MonkeyPatch, *argv: str) -> object:
    monkeypatch.setattr(sys, "argv", ["doctor.py", *argv])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(HOUSE / "jobs" / "doctor.py"), run_name="__main__")
    return left.value.code


def test_the_job_does_the_same(
    errata: Errata, archive: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    note(update(t.streams).values(inline_bytes=7))
    argv = ["--project", str(archive), "--dag-id", "doctor", "--run-id", "r"]
    assert job(monkeypatch, *argv, "--quick") == EXIT_DECISION, "to look again would find the same"
    told = capsys.readouterr().err
    assert "quotes: wrong: the stream's own row: inline_bytes is 7 and should be 0; how to mend: " in told
    assert "quotes: 1 findings, 0 mended\n" in told
    assert job(monkeypatch, *argv, "--fix", "quotes") == 0
    assert "quotes: 0 findings, 1 mended\n" in capsys.readouterr().err
    with open_site(archive) as site:
        (commit,) = commits.list_commits(site.catalog, last=1)
    assert (commit.cause.flow, commit.cause.dag_id, commit.cause.run_id) == ("doctor", "doctor", "r")
