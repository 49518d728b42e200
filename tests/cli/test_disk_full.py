"""No room to write: told as that, nothing is committed, and the same command goes on when there is room."""

from __future__ import annotations

import base64
import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.commands import Errata

YAML = """\
project: p
streams:
  notes:
    columns: {at: bigint, note: string}
    key: [at]
    order: at
    landing: {path: ./landing, settle: 0 seconds}
"""
ROWS = 900
COMMAND = "import sys; from errata.cli import main; sys.exit(main())"


@pytest.fixture
def applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errata: Errata) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    (tmp_path / "errata.yaml").write_text(YAML)
    assert errata("apply", "--yes").code == 0
    # What nothing can compress, and more than the catalog holds.
    lines = [f"{number},{base64.b64encode(os.urandom(740)).decode()}\n" for number in range(ROWS)]
    (tmp_path / "notes.csv").write_text("at,note\n" + "".join(lines))
    return tmp_path


def taken_when_there_is_room(folder: Path, errata: Errata) -> None:
    assert len(errata("log", "--format", "json").out.splitlines()) == 1, "nothing was committed"
    done = errata("ingest", "notes", "notes.csv")
    assert (done.code, f"{ROWS} rows appended" in done.err) == (0, True)


def test_no_room_for_a_bucket(applied: Path, errata: Errata) -> None:
    """The files of a process may not grow as long as a bucket: the system refuses to write, as on a full disk."""
    most = sum(path.stat().st_size for path in applied.glob("errata.db*")) + 100_000
    assert most < 600_000
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "ingest", "notes", "notes.csv"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert done.returncode == 1
    assert "the disk is full" in done.stderr
    assert "File too large" in done.stderr
    assert "make room there" in done.stderr
    assert "unexpectedly" not in done.stderr
    assert [path for path in (applied / "warehouse").rglob("*") if path.is_file()] == []
    taken_when_there_is_room(applied, errata)


def test_no_room_for_the_catalog(applied: Path, errata: Errata, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite says of a database that may have no more pages what it says of a full disk."""
    connect = sqlite3.dbapi2.connect

    def small(*given: object, **named: object) -> sqlite3.Connection:
        connection = connect(*given, **named)  # type: ignore[arg-type]
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3.dbapi2, "connect", small)
        lines = "".join(f"{number},x\n" for number in range(60_000))
        (applied / "bad.csv").write_text("at,note\n" + lines.replace(",x", ',"x'))
        done = errata("ingest", "notes", "bad.csv")
    assert done.code == 1
    assert "the disk of the catalog is full" in done.err
    assert "database or disk is full" in done.err
    assert "make room there" in done.err
    taken_when_there_is_room(applied, errata)
