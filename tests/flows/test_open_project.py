"""A project in Python without a session: what the example says, and that it needs no Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import errata
from errata.errors import ErrataError

EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's project, with its quotes taken in and its query answered."""
    folder = tmp_path_factory.mktemp("open") / "notebook"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("errata.db*", "warehouse"))
    with errata.open(folder) as project:
        assert project.apply() is not None
        assert project.apply() is None
        assert project.ingest("quotes", folder / "quotes.csv").counts.appended == 48
        assert [each.name for each in project.run().evaluated] == ["mean"]
        assert project.ingest("quotes", folder / "corrections.csv").counts.pending == 1
        project.run()
    return folder


def test_the_example_runs_where_there_is_no_java(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "n", ignore=shutil.ignore_patterns("errata.db*", "warehouse"))
    environ = {**os.environ, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    program = [sys.executable, str(tmp_path / "n" / "notebook.py")]
    done = subprocess.run(program, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert told[2].endswith("{'mean': 201.25} -> {'mean': 202.71666666666667}")
    assert told[3:6] == ["2 values so far", "inserted 201.2", "replaced 210.0"]
    assert told[-1] == "6 rows"


def test_what_is_read_are_tables_in_order(folder: Path) -> None:
    with errata.open(folder / "errata.yaml") as project:
        rows = project.results("mean")
        assert rows.column_names == ["symbol", "window_start", "mean"]
        assert rows["symbol"].to_pylist() == ["AAPL"] * 3 + ["IBM"] * 3
        asked = project.ask("mean")
        assert asked.drop("mean").to_pylist() == rows.drop("mean").to_pylist()
        assert asked["mean"].to_pylist() == pytest.approx(rows["mean"].to_pylist())
        assert project.results("mean", as_of=4)["mean"].to_pylist()[4] == 201.25
        assert project.changes("mean").num_rows == rows.num_rows + 1
        (change,) = project.changes("mean", since=5).to_pylist()
        assert (change["op"], change["key"]["symbol"]) == ("replace", "IBM")
        assert project.changes("mean", since=change["commit"]).num_rows == 0
        quotes = project.scan("quotes", end="2026-11-18T00:00:20")
        assert quotes["symbol"].to_pylist() == ["AAPL", "IBM"] * 2
        assert project.scan("quotes", groups=[{"symbol": "IBM"}], as_of=2).num_rows == 24


def test_it_can_be_asked_again_after_it_was_closed(folder: Path) -> None:
    project = errata.open(folder)
    first = project.results("mean")
    project.close()
    assert project.results("mean") == first
    project.close()


def test_mistakes_are_told_in_words(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ErrataError, match="there is no file"):
        errata.open(tmp_path)
    with errata.open(folder) as project, pytest.raises(ErrataError, match="'median'"):
        project.results("median")
    with errata.open(folder) as project, pytest.raises(ErrataError, match="cannot be computed for some row"):
        project.ask("SELECT symbol, 1 / (price - price) AS x, time FROM quotes")
