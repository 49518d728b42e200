"""Merged feeds by commands alone, from their files to what a person is told of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fixtures.commands import Done, Errata

YAML = """
project: exchange
catalog: sqlite:///errata.db
warehouse: ./warehouse
streams:
  quotes:
    columns: {symbol: string, at: timestamp, price: double}
    key: [symbol, at]
    order: at
    feeds:
      nyse: {landing: {path: ./landing/nyse, settle: 0 seconds}, stable: marks}
      mirror: {landing: {path: ./landing/mirror, settle: 0 seconds}}
"""


@pytest.fixture
def project(errata: Errata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    (tmp_path / "errata.yaml").write_text(YAML)
    assert errata("apply", "--yes").code == 0
    return tmp_path


def land(folder: Path, feed: str, name: str, *rows: str) -> None:
    """Seconds, symbols and prices of a feed."""
    path = folder / "landing" / feed / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{symbol},2026-11-18T10:00:{int(second):02d},{price}" for second, symbol, price in map(split, rows)]
    path.write_text("\n".join(["symbol,at,price", *lines, ""]))


def split(row: str) -> tuple[str, str, str]:
    second, symbol, price = row.split()
    return second, symbol, price


def records(done: Done) -> list[dict[str, Any]]:
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def feeds(errata: Errata) -> dict[str, dict[str, Any]]:
    return {each["feed"]: each for each in records(errata("feeds", "ls", "--format", "json"))}


def prices(errata: Errata) -> dict[tuple[str, int], float]:
    """The merged stream, by symbol and second."""
    rows = records(errata("archive", "scan", "quotes", "--format", "json"))
    return {(row["symbol"], int(row["at"][17:19])): row["price"] for row in rows}


def test_two_feeds_are_merged_compared_and_told(errata: Errata, project: Path) -> None:
    land(project, "nyse", "a", "0 IBM 10", "1 IBM 11", "1 XYZ 5")
    land(project, "mirror", "a", "0 IBM 10", "1 IBM 11.5", "2 ABC 7")
    assert [each["landed"] for each in feeds(errata).values()] == [1, 1]
    assert errata("ingest", "quotes", "--landed").code == 0
    assert prices(errata) == {("IBM", 0): 10, ("IBM", 1): 11.5, ("XYZ", 1): 5, ("ABC", 2): 7}
    found = feeds(errata)
    assert [(each["rows"], each["landed"]) for each in found.values()] == [(3, 0), (3, 0)]
    assert (found["mirror"]["role"], found["nyse"]["overruled"]) == ("leads", 1)
    assert "1 disagreed about" in errata("log", "quotes").out
    key = "symbol=IBM,at=2026-11-18T10:00:01"
    said = records(errata("feeds", "disagreements", "quotes", "--key", key, "--format", "json"))
    assert {each["feed"]: (each["row"]["price"], each["chosen"], each["line"]) for each in said} == {
        "nyse": ("11", False, 3),
        "mirror": ("11.5", True, 3),
    }
    history = errata("history", "quotes", key)
    assert "feeds disagree since commit 2: nyse price=11" in history.err
    (version,) = records(errata("history", "quotes", key, "--format", "json"))
    (disputed,) = version["disagreements"]
    assert (disputed["since"], disputed["resolved"], disputed["chosen"]) == (2, None, "mirror")
    assert [(each["feed"], each["row"]["price"]) for each in disputed["values"]] == [("nyse", "11"), ("mirror", "11.5")]
    (other,) = records(errata("history", "quotes", "symbol=ABC,at=2026-11-18T10:00:02", "--format", "json"))
    assert "disagreements" not in other


def test_feeds_that_agree_again_settle_a_disagreement(errata: Errata, project: Path) -> None:
    land(project, "nyse", "a", "1 IBM 11", "1 XYZ 5")
    land(project, "mirror", "a", "1 IBM 11.5")
    assert errata("ingest", "quotes", "--landed").code == 0
    land(project, "nyse", "b", "1 IBM 11.5")
    assert errata("ingest", "quotes", "--landed").code == 0
    assert errata("feeds", "disagreements", "quotes").out == ""
    (first, _) = records(errata("feeds", "disagreements", "quotes", "--all", "--format", "json"))
    assert (first["opened_in"], first["resolved_in"]) == (2, 3)
    assert "1 agreed about again" in errata("log", "quotes").out
    assert prices(errata) == {("IBM", 1): 11.5, ("XYZ", 1): 5}
    told = errata("history", "quotes", "symbol=IBM,at=2026-11-18T10:00:01").err
    assert "feeds disagreed from commit 2 to 3: " in told


def test_a_heartbeat_moves_a_quiet_feed(errata: Errata, project: Path) -> None:
    land(project, "nyse", "a", "0 IBM 10")
    land(project, "mirror", "a", "0 IBM 10", "2 ABC 7")
    assert errata("ingest", "quotes", "--landed").code == 0
    assert feeds(errata)["nyse"]["stable"] is None
    beat = ("heartbeat", "quotes", "--feed", "nyse", "--at", "2026-11-18T10:00:05")
    first, second = errata(*beat), errata(*beat)
    assert first.code == second.code == 0
    assert "stable point 2026-11-18T10:00:05.000000" in first.err
    assert "nothing was changed" in second.err
    found = feeds(errata)
    assert (found["nyse"]["role"], found["nyse"]["stable"]) == ("leads", "2026-11-18T10:00:05.000000")
    (merged,) = (each["feeds"] for each in records(errata("status", "--format", "json")))
    assert (merged["leader"], merged["switches"], merged["stable"]) == ("nyse", 1, "2026-11-18T10:00:05.000000")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--feed", "nise", "--at", "2026-11-18"), "unknown feed 'nise'"),
        (("--feed", "nyse", "--at", "soon"), "'soon' is not a date and time"),
        (("--feed", "nyse"), "--at"),
    ],
)
def test_a_heartbeat_that_says_nothing_is_a_mistake(
    errata: Errata, project: Path, words: tuple[str, ...], said: str
) -> None:
    done = errata("heartbeat", "quotes", *words)
    assert done.code == 2
    assert said in done.err


def test_what_a_detached_feed_delivers_waits_until_it_is_attached(errata: Errata, project: Path) -> None:
    land(project, "nyse", "a", "0 IBM 10")
    land(project, "mirror", "a", "0 IBM 10", "1 ABC 7")
    assert errata("feeds", "detach", "quotes", "mirror").code == 0
    assert errata("ingest", "quotes", "--landed").code == 0
    assert prices(errata) == {("IBM", 0): 10}
    refused = errata("heartbeat", "quotes", "--feed", "mirror", "--at", "2026-11-18T10:00:05")
    assert refused.code == 1
    assert "errata feeds attach quotes mirror" in refused.err
    assert errata("feeds", "attach", "quotes", "mirror").code == 0
    assert errata("ingest", "quotes", "--landed").code == 0
    assert prices(errata) == {("IBM", 0): 10, ("ABC", 1): 7}
    assert feeds(errata)["mirror"]["role"] == "leads"


def test_a_feed_that_contradicts_itself_is_suspect_until_it_is_trusted(errata: Errata, project: Path) -> None:
    (project / "errata.yaml").write_text(YAML + "    merge: {quorum: 2}\n")
    assert "quorum 1 -> emit first, disagreement leader, quorum 2" in errata("apply", "--yes").err
    land(project, "nyse", "a", "0 IBM 10", "3 IBM 11")
    land(project, "mirror", "a", "0 IBM 10", "3 IBM 11")
    assert errata("ingest", "quotes", "--landed").code == 0
    assert errata("heartbeat", "quotes", "--feed", "nyse", "--at", "2026-11-18T10:00:05").code == 0
    land(project, "nyse", "b", "4 XYZ 10")
    assert errata("ingest", "quotes", "--landed").code == 3
    found = feeds(errata)["nyse"]
    assert (found["role"], found["refused"], found["suspect_in"]) == ("suspect", 1, 5)
    assert "b.csv:2" in found["suspect"]
    assert "feed nyse of quotes is suspect" in errata("status").err
    assert errata("feeds", "trust", "quotes", "nyse").code == 0
    assert feeds(errata)["nyse"]["role"] in ("leads", "follows")


def test_a_leader_that_contradicts_itself_leads_no_more(errata: Errata, project: Path) -> None:
    land(project, "nyse", "a", "0 IBM 10", "3 IBM 11")
    assert errata("ingest", "quotes", "--landed").code == 0
    assert errata("heartbeat", "quotes", "--feed", "nyse", "--at", "2026-11-18T10:00:05").code == 0
    land(project, "nyse", "b", "3 IBM 11", "4 XYZ 10", "6 XYZ 12")
    assert errata("ingest", "quotes", "--landed").code == 3
    assert prices(errata) == {("IBM", 0): 10, ("IBM", 3): 11, ("XYZ", 6): 12}
    found = feeds(errata)["nyse"]
    assert (found["role"], found["refused"], found["repeats"]) == ("suspect", 1, 1)
    land(project, "mirror", "a", "6 XYZ 12", "7 ABC 1")
    assert errata("ingest", "quotes", "--landed").code == 0
    assert feeds(errata)["mirror"]["role"] == "leads"


def test_a_feed_that_is_added_and_one_that_is_removed_lose_nothing(errata: Errata, project: Path) -> None:
    land(project, "nyse", "a", "0 IBM 10")
    land(project, "mirror", "a", "0 IBM 10", "2 ABC 7")
    assert errata("ingest", "quotes", "--landed").code == 0
    declared = (project / "errata.yaml").read_text()
    line = next(each for each in declared.splitlines() if "nyse:" in each)
    new = line.replace("nyse", "london").replace(", stable: marks", "")
    (project / "errata.yaml").write_text(declared.replace(line, new))
    done = errata("apply", "--yes")
    assert done.code == 0
    assert "feed london added: " in done.err
    assert "attached from the stable point on" in done.err
    assert "feed nyse detached; what it has said stays" in done.err
    found = feeds(errata)
    assert list(found) == ["london", "mirror"]
    assert found["london"]["joins_at"] == "2026-11-18T10:00:02.000000"
    land(project, "london", "a", "2 ABC 7", "3 XYZ 9")
    assert errata("ingest", "quotes", "--landed").code == 0
    assert prices(errata) == {("IBM", 0): 10, ("ABC", 2): 7, ("XYZ", 3): 9}
    assert feeds(errata)["london"]["role"] == "leads"
