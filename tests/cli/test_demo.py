"""The demo plays to its end, shows what it promises, and says the same each time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from errata.cli import bench as bench_command
from errata.cli import demo
from errata.cli.demo import DemoStep
from errata.declare.project import load_project
from fixtures.commands import Done, Errata

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "quotes"


def test_the_demo_from_end_to_end(errata: Errata, tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "kept"
    done = errata("demo", "--keep", str(folder))
    assert done.code == 0
    told = done.out + done.err
    assert re.findall(r"^(\d+)/17  ", done.out, re.MULTILINE) == [str(number) for number in range(1, 18)]
    assert "wrote 300,000 quotes, 10 late rows" in told
    assert "99,995 rows appended in commit 2" in told
    assert "price: '202.x68' is not a decimal(10,2)" in told
    assert "5 rows late or correcting earlier ones" in told
    assert "was taken in before, in commit 6; nothing was changed" in told
    assert "nothing is due: 3 queries are answered as far as the streams reach" in told
    assert "quotes: 5 corrections applied in commit 7" in told
    assert "quotes: 2 corrections applied in commit 15" in told
    assert "price is said to have been 999.99, and it is 203.47" in told
    assert "203.44 -> 203.40" in done.out.split("$ errata history")[1]
    assert "past the retention" in done.out.split("$ errata log")[1]
    assert f"Everything is in {folder}" in done.out
    _check_answers(done)


def _check_answers(done: Done) -> None:
    """They move with what comes, are put right, and are those of the query as edited."""
    first, second = _after(done, "results lately")
    assert (first.split()[3:6], second.split()[3:6]) == (["GE", "60", "310.936"], ["GE", "60", "309.272"])
    swings = [re.findall(r"^[A-Z]+  .* \d\.\d\d$", part, re.MULTILINE) for part in _after(done, "results swings")]
    assert [len(each) for each in swings] == [3, 6, 7, 4]
    assert "2026-11-18 00:15:00.000000|60|203.839\n" in done.out
    assert "swings was edited in commit 27 and is still answered in its former form" in done.err
    earlier, now = _after(done, "ask")
    assert ("    60  203.4365" in earlier, "    59  203.4363" in now) == (True, True)
    put_right, followed, withdrawn = map(_records, _after(done, "changes"))
    assert [each["key"]["symbol"] for each in put_right] == ["IBM"]
    assert (put_right[-1]["old"]["mean"], put_right[-1]["new"]["mean"]) == (203.437, 203.436)
    assert put_right[-1]["cause"] == {"type": "revisions", "id": "quotes 6 to 8"}
    (story,) = _after(done, "why")
    assert "because revision 6 of quotes, corrections.csv:2" in story
    assert "~ time=2026-11-18T00:05:01.552137, symbol=IBM, price: 203.44 -> 203.40" in story
    assert "because revision 7 of quotes, corrections.csv:3" in story
    (verified,) = re.findall(r"^minutes from .*$", done.err, re.MULTILINE)
    assert verified.endswith("verified, 1,800 results came out as published")
    assert [(each["op"], each["commit"]) for each in followed] == [("insert", 26)]
    assert [(each["op"], each["old"]["percent"]) for each in withdrawn] == [("delete", x) for x in (0.88, 0.87, 0.87)]


def _after(done: Done, command: str) -> list[str]:
    """What each such command printed, and what follows until the next step's number."""
    return [re.split(r"^\d+/\d+  ", part, flags=re.MULTILINE)[0] for part in done.out.split(f"$ errata {command}")[1:]]


def _records(part: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in part.splitlines() if line.startswith("{")]


def test_the_demo_overwrites_nothing(errata: Errata, project: Path) -> None:
    done = errata("demo", "--keep", str(project))
    assert done.code == 1
    assert "is not an empty folder" in done.err


def test_the_demo_ends_where_a_step_fails(errata: Errata, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = (DemoStep("A title", "Words.", ["errata archive ls absent"]), DemoStep("Never", "Never."))
    monkeypatch.setattr(demo, "STEPS", steps)
    done = errata("demo")
    assert done.code == 1
    assert "`errata archive ls absent` ended with exit code 1" in done.err
    assert "Never" not in done.out


@pytest.mark.parametrize(
    ("patience", "what"), [(0.001, "has told nothing for 0.001 seconds"), (60, "ended with exit code")]
)
def test_the_demo_ends_where_the_other_window_fails(
    errata: Errata, monkeypatch: pytest.MonkeyPatch, patience: float, what: str
) -> None:
    monkeypatch.setattr(demo, "STEPS", (DemoStep("A title", "Words.", beside="errata changes absent"),))
    monkeypatch.setattr(demo, "WAIT_SECONDS", patience)
    done = errata("demo")
    assert done.code == 1
    assert f"the demo ends here: `errata changes absent` {what}" in done.err


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
