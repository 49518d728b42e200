"""What goes wrong before any work is done for it: told in words, soon, and with nothing changed."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from errata.cli import main
from fixtures.commands import Errata, lines

FILES: dict[str, tuple[bytes, str]] = {
    "array.json": (b'[\n{"time": "2026-11-18T02:00:00", "symbol": "IBM", "price": 1}\n]\n', "one JSON array"),
    "pretty.json": (b'{\n  "time": "2026-11-18T02:00:00"\n}\n', "a JSON object over several lines"),
    "semicolons.csv": (b"time;symbol;price\n", "separated by commas, and this file's seem to be by ';'"),
    "headless.csv": (b"2026-11-18T02:00:00,IBM,1\n", "the first line of a CSV file names its columns"),
    "upper.csv": (b"Time,symbol,price\n", "did you mean time?"),
    "zipped.csv": (gzip.compress(lines([1]).encode()), "name it zipped.csv.gz"),
    "zipped.jsonl": (gzip.compress(b"{}\n"), "name it zipped.jsonl.gz"),
    "empty.csv": (b"", "the file is empty"),
    "cut.csv.gz": (gzip.compress(lines(range(9)).encode())[:20], "gzip"),
    "not.parquet": (b"PAR0" * 9, "get it again"),
    "incomplete.csv": (b"time,price\n", "add it to the file, which has time, price"),
}


@pytest.fixture
def applied(project: Path) -> Path:
    assert main(["apply", "--yes"]) == 0
    return project


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_taken_is_refused_without_spark(
    applied: Path, errata: Errata, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def no_session(*_: object) -> None:
        raise AssertionError("Spark is not needed to refuse this")

    monkeypatch.setattr("errata.engine.session.open_session", no_session)
    content, says = FILES[name]
    (applied / name).write_bytes(content)
    done = errata("ingest", "quotes", name)
    assert done.code == 1
    assert says in done.err
    assert name in done.err.splitlines()[0]
    assert "how to mend" in done.err
    assert len(errata("log", "--format", "json").out.splitlines()) == 1, "nothing was committed"


def test_a_warehouse_that_cannot_be_made_is_named(project: Path, errata: Errata) -> None:
    (project / "file").write_text("in the way")
    declared = (project / "errata.yaml").read_text().replace("./warehouse", "./file/warehouse")
    (project / "errata.yaml").write_text(declared)
    refused = errata("apply", "--yes")
    assert (refused.code, "(warehouse): the warehouse cannot be at" in refused.err) == (2, True)
    assert "file is no folder" in refused.err
    # One that was there when it was applied.
    (project / "file").unlink()
    assert errata("apply", "--yes").code == 0
    (project / "file").write_text("in the way")
    (project / "one.csv").write_text(lines([1]))
    done = errata("ingest", "quotes", "one.csv")
    assert done.code == 1
    assert "the warehouse cannot be written" in done.err
    assert "`warehouse:` in errata.yaml" in done.err


def test_a_catalog_that_is_no_database_is_named(project: Path, errata: Errata) -> None:
    (project / "errata.db").write_bytes(b"this is not a database, and long enough to look like one" * 20)
    done = errata("status")
    assert done.code == 1
    assert "errata.db" in done.err
    assert "how to mend" in done.err


def test_an_interval_that_ends_before_it_begins_is_refused(applied: Path, errata: Errata) -> None:
    times = ["--from", "2026-11-18T02:00:09", "--to", "2026-11-18T02:00:01"]
    done = errata("archive", "scan", "quotes", *times)
    assert (done.code, done.out) == (2, "")
    assert "the end comes after the start" in done.err


def test_only_a_stream_that_there_was_can_be_dropped(applied: Path, errata: Errata) -> None:
    done = errata("apply", "--yes", "--drop", "quots")
    assert done.code == 2
    assert "did you mean quotes?" in done.err


def test_what_a_dropped_stream_did_can_still_be_listed(applied: Path, errata: Errata) -> None:
    declared = (applied / "errata.yaml").read_text()
    (applied / "errata.yaml").write_text(declared[: declared.index("streams:")])
    assert errata("apply", "--yes").code == 0
    assert errata("log", "quotes").code == 0
    assert errata("quarantine", "ls", "quotes").code == 0
    assert "did you mean quotes?" in errata("log", "quots").err


def test_a_feed_is_not_written_below_a_file(project: Path, errata: Errata) -> None:
    (project / "file").write_text("in the way")
    done = errata("generate", "quotes", "--rows", "10", "--out", "file/feed")
    assert done.code == 1
    assert "cannot write to file/feed" in done.err


def test_letters_that_the_terminal_lacks_are_escaped(applied: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from errata.cli import main; raise SystemExit(main(['log', '--format', 'json']))"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        cwd=applied,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert '"flow":"apply"' in done.stdout
