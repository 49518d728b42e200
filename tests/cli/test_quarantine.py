"""`errata quarantine drop` and `retry`: what is asked, said and left."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.cli import main
from fixtures.commands import Errata

BAD = """{"time": "2026-11-18T02:00:00", "symbol": "IBM", "price": 1, "venue": "N"}
{"time": "2026-11-18T02:00:01", "symbol": "IBM", "price": "x", "venue": "N"}
{"time": "2026-11-18T02:00:02", "price": 1}
"""


@pytest.fixture
def held(project: Path, spark: SparkSession) -> Path:
    """A project with three rows in quarantine: one of them only for a column that is not declared."""
    (project / "bad.jsonl").write_text(BAD)
    assert main(["apply", "--yes"]) == 0
    assert main(["ingest", "quotes", "bad.jsonl", "--batch-id", "monday"]) == 3
    return project


@pytest.fixture
def declared(held: Path) -> Path:
    """The same with the column declared."""
    text = (held / "errata.yaml").read_text().replace("price: double}", "price: double, venue: string}")
    (held / "errata.yaml").write_text(text)
    assert main(["apply", "--yes"]) == 0
    return held


def ls(errata: Errata, *more: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in errata("quarantine", "ls", "--format", "json", *more).out.splitlines()]


def test_retry_tells_what_went_in_and_what_is_held_again(errata: Errata, declared: Path) -> None:
    done = errata("quarantine", "retry", "quotes")
    assert (done.code, done.out) == (3, "")
    first, second, *rows = done.err.splitlines()[:4]
    assert first.startswith("quotes: 1 row appended in commit 4 (batch retry-")
    assert second == "  2 rows in quarantine:"
    assert rows == [
        "    bad.jsonl:2: price: 'x' is not a double",
        "    bad.jsonl:3: symbol: not given, and it is part of the key",
    ]
    held = ls(errata)
    assert [(each["id"], each["line"], each["form"], each["state"]) for each in held] == [
        (4, 2, "json", "held"),
        (5, 3, "json", "held"),
    ]
    assert [each["file"] for each in held] == [str(declared / "bad.jsonl")] * 2
    assert held[0]["text"] == BAD.splitlines()[1]
    everything = ls(errata, "--all")
    assert [(each["state"], each["settled_in"]) for each in everything[:3]] == [("retried", 4)] * 3
    again = errata("quarantine", "retry", "quotes", "--id", "1")
    assert (again.code, again.err.splitlines()) == (
        0,
        ["row 1 was retried before, in commit 4", "quotes: no such rows in quarantine; nothing was done"],
    )
    scanned = errata("archive", "scan", "quotes", "--format", "json")
    assert [json.loads(line)["venue"] for line in scanned.out.splitlines()] == ["N"]
    table = errata("quarantine", "ls", "quotes", "--all").out.splitlines()
    assert table[0].split() == ["id", "batch", "file", "line", "state", "commit", "reason", "text"]
    assert table[1].split()[:6] == ["1", "monday", "bad.jsonl", "1", "retried", "4"]


def test_a_retry_that_leaves_nothing_ends_well(errata: Errata, declared: Path) -> None:
    done = errata("quarantine", "retry", "quotes", "--reason", "venue", "--id", "1", "--batch", "monday")
    assert (done.code, len(ls(errata))) == (0, 2)
    assert "1 row appended" in done.err


def test_retry_says_which_rows_cannot_be_read_again(errata: Errata, held: Path) -> None:
    (held / "latin.csv").write_bytes("time,symbol,price\n2026-11-18T02:00:00,Käse,1\n".encode("latin-1"))
    assert errata("ingest", "quotes", "latin.csv", "--batch-id", "tuesday").code == 3
    done = errata("quarantine", "retry", "quotes", "--batch", "tuesday")
    assert done.code == 3
    assert "1 row left in quarantine" in done.err
    assert "4: latin.csv:2: what is kept of it is not what the file says" in done.err
    assert len(ls(errata)) == 4


def test_drop_asks_first(errata: Errata, held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = errata("quarantine", "drop", "quotes", "--reason", "double")
    assert refused.code == 2
    assert refused.err.splitlines()[0].startswith("2: bad.jsonl:2: ")
    assert "--yes" in refused.err
    for answer, code, left in (("n\n", 1, 3), ("y\n", 0, 2)):
        terminal = io.StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stdin", terminal)
        done = errata("quarantine", "drop", "quotes", "--reason", "double")
        assert (done.code, len(ls(errata))) == (code, left)
        assert "drop 1 row of quotes from quarantine? [y/N]" in done.err
    assert done.err.endswith("quotes: 1 row dropped from quarantine in commit 3\n")
    last = errata("log", "--last", "1").out
    assert "quarantine-drop" in last
    assert "1 row dropped from quarantine" in last


def test_drop_all_of_a_stream(errata: Errata, held: Path) -> None:
    assert errata("quarantine", "drop", "quotes", "--yes").code == 0
    assert errata("quarantine", "ls").err == "nothing in quarantine\n"
    status = json.loads(errata("status", "--format", "json").out)
    assert status["quarantined"] == 0
    again = errata("quarantine", "drop", "quotes", "--yes", "--id", "2", "--id", "3")
    assert (again.code, len(again.err.splitlines())) == (0, 3)
    assert [each["state"] for each in ls(errata, "--all")] == ["dropped"] * 3
    assert len(errata("log", "--format", "json").out.splitlines()) == 3


def test_drop_shows_the_first_of_many(errata: Errata, held: Path) -> None:
    (held / "many.jsonl").write_text("{}\n" * 20)
    assert errata("ingest", "quotes", "many.jsonl").code == 3
    refused = errata("quarantine", "drop", "quotes")
    assert refused.code == 2
    assert "and 13 more" in refused.err


@pytest.mark.parametrize("command", [["drop", "--yes"], ["retry"]])
def test_what_is_named_wrongly(errata: Errata, held: Path, command: list[str]) -> None:
    before = errata("log", "--format", "json").out
    unknown = errata("quarantine", *command, "quots")
    assert unknown.code == 2
    assert "did you mean quotes?" in unknown.err
    for number in ("9", str(2**63 - 1)):
        missing = errata("quarantine", *command, "quotes", "--id", number)
        assert missing.code == 2
        assert f"there is no row {number} in quarantine" in missing.err
        assert "held of quotes: 1, 2, 3" in missing.err
    for number in ("0", "x", str(2**63)):
        assert errata("quarantine", *command, "quotes", "--id", number).code == 2
    nothing = errata("quarantine", *command, "quotes", "--batch", "sunday")
    assert (nothing.code, nothing.err) == (0, "quotes: no such rows in quarantine; nothing was done\n")
    assert errata("log", "--format", "json").out == before


def test_a_retry_of_a_stream_that_is_not_applied_is_refused(errata: Errata, held: Path) -> None:
    text = (held / "errata.yaml").read_text().replace("5 seconds", "6 seconds")
    (held / "errata.yaml").write_text(text)
    done = errata("quarantine", "retry", "quotes")
    assert done.code == 1
    assert "run `errata apply` first" in done.err
