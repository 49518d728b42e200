"""The demo plays to its end, shows what it promises, and says the same each time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.cli import bench as bench_command
from errata.cli import demo
from errata.declare.project import load_project
from fixtures.commands import Errata

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "quotes"


def test_the_demo_from_end_to_end(errata: Errata, tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "kept"
    done = errata("demo", "--keep", str(folder))
    assert done.code == 0
    told = done.out + done.err
    assert re.findall(r"^(\d+)/17  ", done.out, re.MULTILINE) == [str(number) for number in range(1, 18)]
    assert "wrote 300,000 quotes, 200 late rows" in told
    assert "149,800 rows appended in commit 2" in told
    assert "price: '167.x73' is not a double" in told
    assert "200 rows late or correcting earlier ones" in told
    assert "was taken in before, in commit 3; nothing was changed" in told
    assert "as of commit 2; 1 bucket opened" in told
    assert "as of commit 3; 2 buckets opened" in told
    assert "200 corrections applied in commit 4" in told
    assert "price is said to have been 999.99, and it is 203.47" in told
    before, after = done.out.split("$ errata history")[1:]
    assert ("203.44 -> 203.4" in before, "203.44 -> 203.4" in after) == (False, True)
    assert "dropped in commit 8" in told
    assert done.out.count(" IBM  ") == 3 + 6 + 3 + 2
    assert "MON: results are only ever added" in told
    earlier, now = done.out.split("$ errata ask")[1:]
    assert "T00:05:00.000000      60  203.4365" in earlier
    assert "T00:05:00.000000      59  203.4363" in now
    assert "past the retention" in done.out.split("$ errata log")[1]
    assert (folder / "errata.db").exists()
    assert f"Everything is in {folder}" in done.out


def test_the_demo_overwrites_nothing(errata: Errata, project: Path) -> None:
    done = errata("demo", "--keep", str(project))
    assert done.code == 1
    assert "is not an empty folder" in done.err


def test_the_demo_ends_where_a_step_fails(errata: Errata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (demo.Step("A title", "Words.", [["archive", "ls", "absent"]]), demo.Step("Never", "Never."))
    monkeypatch.setattr(demo, "STEPS", steps)
    done = errata("demo")
    assert done.code == 1
    assert "`errata archive ls absent` ended with exit code 1" in done.err
    assert "Never" not in done.out


def test_the_example_is_a_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ERRATA_CATALOG", raising=False)
    project = load_project(EXAMPLE)
    assert (project.name, list(project.streams)) == ("quotes", ["quotes"])
    assert sorted(path.name for path in EXAMPLE.iterdir()) == [
        ".gitignore",
        "README.md",
        "corrections.csv",
        "errata.yaml",
        "queries",
    ]
    assert list(project.texts()) == ["avg_5m", "moving_avg", "signals"]


def test_a_benchmark_that_there_is_not(errata: Errata) -> None:
    done = errata("bench", "ingets")
    assert done.code == 2
    assert "did you mean ingest?" in done.err


def test_benchmarks_are_part_of_a_checkout(errata: Errata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_command.errata, "__file__", str(tmp_path / "a" / "b" / "errata" / "__init__.py"))
    done = errata("bench", "ingest")
    assert done.code == 1
    assert "there are no benchmarks here" in done.err
