"""A catalog that an earlier version of Errata made is opened, brought up to date, read and carried on.

`tests/catalog/earlier/` holds it as SQL text, of tables of version 0009, with everything in the catalog itself: two
batches, two queries answered twice, three corrections applied and swept, and one correction that is still pending.
"""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from fixtures.commands import Errata

EARLIER = Path(__file__).parent.parent / "catalog" / "earlier"


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EARLIER, tmp_path, dirs_exist_ok=True)
    with sqlite3.connect(tmp_path / "errata.db") as connection:
        connection.executescript((EARLIER / "catalog.sql").read_text())
    connection.close()
    (tmp_path / "warehouse").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    return tmp_path


def test_what_was_published_is_read_as_of_then_and_now(earlier: Path, errata: Errata) -> None:
    assert errata("apply", "--yes").code == 0
    for name, as_of in (("averages.csv", ()), ("averages_as_of_7.csv", ("--as-of", "7"))):
        found = errata("results", "averages", "--format", "csv", *as_of)
        assert (found.code, found.out) == (0, (earlier / name).read_text())
    changed = errata("changes", "averages", "--since", "7", "--format", "json")
    assert changed.out.count('"op":"replace"') == 3
    traced = errata("why", "averages", "symbol=IBM,window_start=2026-03-02T09:00:00")
    assert traced.code == 0
    assert "28.774000" in traced.out
    assert "31.658000" in traced.out


def test_what_waited_is_swept_and_the_archives_are_whole(earlier: Path, errata: Errata) -> None:
    assert errata("apply", "--yes").code == 0
    assert errata("sweep").code == 0
    before = (earlier / "averages.csv").read_text().splitlines()
    after = errata("results", "averages", "--format", "csv").out.splitlines()
    # The quote of 09:12 is 20.00 now.
    changed = [line for line in after if line not in before]
    assert [line.rpartition(",")[0].rpartition(",")[0] for line in changed] == ["IBM,2026-03-02T09:15:00.000000"]
    at = "2026-03-02T09:39:00"
    asked = errata("ask", "averages", "--at", at, "--format", "csv")
    assert sorted(asked.out.splitlines()) == sorted(after)
    assert errata("doctor").code == 0


def test_new_rows_are_taken_in_and_answered(earlier: Path, errata: Errata) -> None:
    (earlier / "three.csv").write_text("time,symbol,price,size\n2026-03-02T09:45:00,IBM,31.00,100\n")
    assert errata("apply", "--yes").code == 0
    assert errata("ingest", "quotes", "three.csv").code == 0
    assert errata("run").code == 0
    assert "IBM,2026-03-02T09:40:00.000000" in errata("results", "averages", "--format", "csv").out
