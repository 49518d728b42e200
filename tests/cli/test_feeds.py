"""`errata feeds`: what it shows of feeds, and what it does to them, and what is said of mistakes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from unittest.mock import ANY

import pytest

from errata.catalog.feeds import FeedChange, FeedState, MergeRecord
from errata.declare.site import open_site
from errata.model.feed import MergeAlgorithm
from errata.model.time import HOUR
from errata.read import feeds
from errata.read.overview import project_overview
from fixtures.commands import Done, Errata
from fixtures.merged_feeds import NOON, disagreement, stand, stand_merged, take_in_batches, write_project


@pytest.fixture
def declared(errata: Errata, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with feeds of which nothing has come."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    write_project(tmp_path)
    done = errata("apply", "--yes")
    assert done.code == 0
    assert "    feed third: files that are named, no guarantees, from 2026-11-18T05:00:00.000000" in done.err
    assert "    merged: emit first, disagreement leader, quorum 2" in done.err
    return tmp_path


@pytest.fixture
def merged(declared: Path) -> Path:
    """The same with feeds that have been merged: see `stand_merged`."""
    stand_merged()
    return declared


def rows(done: Done) -> list[dict[str, str]]:
    assert done.code == 0
    return list(csv.DictReader(done.out.splitlines()))


def records(done: Done) -> list[dict[str, object]]:
    assert done.code == 0
    return [json.loads(line) for line in done.out.splitlines()]


def test_feeds_are_shown_side_by_side(errata: Errata, merged: Path) -> None:
    found = {str(each["feed"]): each for each in records(errata("feeds", "ls", "--format", "json"))}
    assert [(name, each["role"], each["missing"]) for name, each in found.items()] == [
        ("nyse", "leads", False),
        ("mirror", "follows", True),
        ("third", "suspect", False),
    ]
    mirror = found["mirror"]
    assert [mirror[name] for name in ("lag", "repeats", "filled", "late", "overruled")] == [3_600_000_000, 40, 9, 2, 1]
    assert (found["third"]["suspect_in"], found["third"]["refused"]) == (6, 1)
    assert found["nyse"]["stable"] == "2026-11-18T12:00:00.000000"
    assert found["nyse"]["guarantees"] == ["order ordered", "ties fixed", "inserts only"]
    told = rows(errata("feeds", "ls", "quotes", "--format", "csv"))
    assert [(each["feed"], each["role"]) for each in told] == [
        (name, str(each["role"])) for name, each in found.items()
    ]


def test_the_table_says_below_how_feeds_are_merged_and_what_to_do(errata: Errata, merged: Path) -> None:
    (merged / "landing" / "mirror").mkdir(parents=True)
    (merged / "landing" / "mirror" / "new.csv").write_text("symbol,at,price\n")
    done = errata("feeds", "ls")
    assert done.code == 0
    mirror = next(line for line in done.out.splitlines() if "mirror" in line)
    assert "01:00:00" in mirror
    assert mirror.split()[-3:] == ["1", "no", "guarantees"]
    assert done.err.splitlines() == [
        "quotes: merged by R3 since commit 2: feed mirror may adjust rows",
        "quotes: nyse leads since commit 6, 1 switch so far; quorum 2 of 3 feeds",
        "quotes: feed nyse broke `order: ordered`: at 10:04 after 10:07 (nyse.csv:12); it is merged without it "
        "until it is declared anew",
        "feed third of quotes is suspect: quotes.csv:4 adjusts what it had said to be stable: errata feeds trust "
        "quotes third",
        "feed mirror of quotes is missing since commit 2: errata feeds ls quotes",
        "feeds of quotes disagree about 1 key: errata feeds disagreements quotes",
    ]


def test_the_status_tells_who_leads_and_what_is_amiss(errata: Errata, merged: Path) -> None:
    found = {str(each["stream"]): each["feeds"] for each in records(errata("status", "--format", "json"))}
    assert found["plain"] is None
    assert found["quotes"] == {
        "algorithm": "R3",
        "reason": "feed mirror may adjust rows",
        "stable": "2026-11-18T12:00:00.000000",
        "leader": "nyse",
        "leader_since": 6,
        "switches": 1,
        "quorum": 2,
        "counting": 2,
        "lag": {"nyse": 0, "mirror": 3_600_000_000, "third": 60_000_000},
        "suspects": ["third"],
        "missing": {"mirror": ANY},
        "detached": [],
        "filled": 9,
        "refused": 1,
        "disagreements": 1,
    }
    table = errata("status")
    cells = " ".join(table.out.split())
    assert "nyse leads, 2 of 3" in cells
    assert "feeds of quotes disagree about 1 key: errata feeds disagreements quotes" in table.err.splitlines()
    with open_site() as site:
        points = project_overview(site).points
    assert [each.words for each in points if each.panel == "feeds"] == [
        "feed third of quotes is suspect: it has contradicted what it had said to be stable",
        "quotes goes on without mirror",
        "feeds of quotes disagree about 1 key",
    ]


def test_a_feed_is_missing_once_each_other_could_have_had_its_turn(errata: Errata, declared: Path) -> None:
    heard = [FeedState(name, number, stable=NOON, last_commit=2) for number, name in enumerate(("nyse", "third"))]
    behind = FeedState("mirror", 1, stable=NOON - HOUR, last_commit=2)
    stand(FeedChange([*heard, behind], MergeRecord(MergeAlgorithm.R3, "gaps", NOON, "nyse")))

    def missing() -> list[str]:
        found = records(errata("feeds", "ls", "--format", "json"))
        return [str(each["feed"]) for each in found if each["missing"]]

    for number in range(3):
        assert missing() == [], number
        take_in_batches(1, f"batch {number}")
    assert missing() == ["mirror"]
    assert errata("feeds", "detach", "quotes", "mirror").code == 0
    assert missing() == []


def test_many_disagreements_are_counted_without_reading_them_all(
    errata: Errata, declared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MAX_COUNTED", 3)
    merge = MergeRecord(MergeAlgorithm.R3, "gaps", NOON, "nyse")
    stand(FeedChange([], merge, [disagreement(f"S{number}", "10.6") for number in range(7)]))
    found = {str(each["feed"]): each["overruled"] for each in records(errata("feeds", "ls", "--format", "json"))}
    assert found == {"nyse": 0, "mirror": 3, "third": 0}
    assert "feeds of quotes disagree about 7 keys" in errata("feeds", "ls").err


def test_nothing_has_been_merged_yet(errata: Errata, declared: Path) -> None:
    found = records(errata("feeds", "ls", "--format", "json"))
    assert [each["role"] for each in found] == ["not heard yet"] * 3
    assert [each["stable"] for each in found] == [None, None, None]
    assert errata("feeds", "ls", "quotes").err.startswith("quotes: nothing merged yet; R3 will merge: ")


def test_what_feeds_say_differently_is_shown_with_its_place(errata: Errata, merged: Path) -> None:
    done = errata("feeds", "disagreements", "quotes")
    assert [" ".join(line.split()) for line in done.out.splitlines()[-2:]] == [
        "symbol=IBM, at=2026-11-18T11:00:00.000000 nyse price=10.5 leader nyse.csv:3 2",
        "mirror price=10.6 mirror.csv:7",
    ]
    [first, second] = records(errata("feeds", "disagreements", "quotes", "--format", "json"))
    assert (first["chosen"], second["chosen"]) == (True, False)
    assert second["row"] == {"symbol": "IBM", "at": "2026-11-18T11:00:00.000000", "price": "10.6"}
    assert (second["differs"], second["file"], second["line"]) == (["price"], "mirror.csv", 7)
    every = rows(errata("feeds", "disagreements", "quotes", "--all", "--format", "csv"))
    assert [(each["feed"], each["resolved_in"]) for each in every] == [
        ("nyse", ""),
        ("mirror", ""),
        ("nyse", "6"),
        ("mirror", "6"),
    ]


def test_disagreements_of_a_key_and_of_a_feed(errata: Errata, merged: Path) -> None:
    def count(*options: str) -> int:
        return len(records(errata("feeds", "disagreements", "quotes", "--format", "json", *options)))

    assert count("--feed", "mirror") == 2
    assert count("--feed", "nyse") == 0
    assert count("--key", "symbol=IBM,at=2026-11-18T11:00:00") == 2
    assert count("--key", "symbol=XYZ,at=2026-11-18T11:00:00") == 0
    assert count("--key", "symbol=XYZ,at=2026-11-18T11:00:00", "--all") == 2
    assert count("--all", "--limit", "1") == 2
    nothing = errata("feeds", "disagreements", "quotes", "--feed", "third")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "quotes: its feeds disagree about nothing now\n")


def test_explain_tells_the_algorithm_and_why(errata: Errata, declared: Path) -> None:
    assert errata("explain", "QUOTES").out.splitlines() == [
        "stream quotes: 3 feeds, merged by symbol, at",
        "",
        "algorithm R3: remembers the rows that are not frozen, each once, with a number for each feed",
        "  why: feeds nyse, mirror, third may have gaps; feeds mirror, third may adjust rows; feeds mirror, third may "
        "come in any order",
        "",
        "policy: emit first, disagreement leader, quorum 2",
        "  a row is published when the first feed has it",
        "  of different values that of the leading feed counts",
        "  it is stable up to where 2 feeds are",
        "",
        f"feed nyse: {declared}/landing/nyse (settle 0 seconds, then move), order ordered, ties fixed, inserts only",
        f"feed mirror: {declared}/landing/mirror (settle 0 seconds, then move), no guarantees",
        "feed third: files that are named, no guarantees, from 2026-11-18T05:00:00.000000",
    ]
    drawn = errata("explain", "quotes", "--svg", "plan.svg")
    assert (drawn.code, drawn.out) == (2, "")
    assert "leave --svg out" in drawn.err


def test_explain_tells_what_the_data_has_broken(errata: Errata, merged: Path) -> None:
    (merged / "errata.yaml").write_text(
        (merged / "errata.yaml")
        .read_text()
        .replace("mirror: {", "mirror: {adjusts: no, order: ordered, complete: yes, ")
        .replace("third: {", "third: {adjusts: no, order: ordered, complete: yes, ")
        .replace("adjusts: no}", "adjusts: no, complete: yes}")
    )
    told = errata("explain", "quotes").out.splitlines()
    assert told[2].startswith("algorithm R2: ")
    assert told[4] == "  but since commit 2 by R3: feed mirror may adjust rows"
    assert told[5].startswith("  quotes: feed nyse broke `order: ordered`: at 10:04 after 10:07 (nyse.csv:12)")


def test_a_key_is_told_with_what_feeds_said_differently_about_it(errata: Errata, merged: Path) -> None:
    def notes(symbol: str) -> list[str]:
        done = errata("history", "quotes", f"symbol={symbol},at=2026-11-18T11:00:00")
        assert (done.code, done.out) == (0, "")
        return done.err.splitlines()

    assert notes("IBM") == [
        "feeds disagree since commit 2: nyse price=10.5 (counts, nyse.csv:3); mirror price=10.6 (mirror.csv:7); by "
        "policy leader"
    ]
    assert notes("XYZ") == [
        "feeds disagreed from commit 2 to 6: nyse price=10.5 (counts, nyse.csv:3); mirror price=11.0 (mirror.csv:7); "
        "by policy leader"
    ]
    assert errata("history", "quotes", "symbol=ABC,at=2026-11-18T11:00:00").code != 0


def test_feeds_are_detached_attached_and_trusted_once(errata: Errata, merged: Path) -> None:
    said = [
        errata("feeds", *words).err.splitlines()
        for words in (
            ("detach", "quotes", "mirror"),
            ("detach", "quotes", "mirror"),
            ("trust", "quotes", "third"),
            ("trust", "quotes", "third"),
            ("attach", "quotes", "mirror", "--from", "2026-11-18T13:00"),
            ("attach", "quotes", "mirror"),
        )
    ]
    assert said == [
        [
            "quotes: feed mirror detached in commit 7",
            "quotes needs 2 feeds that are attached and trusted: its stable point stands still",
        ],
        ["quotes: feed mirror is detached already; nothing was changed", said[0][1]],
        ["quotes: feed third trusted in commit 8"],
        ["quotes: feed third is trusted already; nothing was changed"],
        ["quotes: feed mirror attached in commit 9"],
        ["quotes: feed mirror is attached already; nothing was changed"],
    ]
    found = {str(each["feed"]): each for each in records(errata("feeds", "ls", "--format", "json"))}
    assert found["mirror"]["role"] == "joins later"
    assert found["mirror"]["joins_at"] == "2026-11-18T13:00:00.000000"
    assert found["third"]["role"] == "follows"
    log = errata("log", "quotes").out
    assert [log.count(f"feed {done}") for done in ("mirror attached", "third trusted", "mirror detached")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ls", "quots"), "unknown stream 'quots'"),
        (("ls", "plain"), "stream plain has no feeds"),
        (("attach", "quotes", "nise"), "unknown feed 'nise'"),
        (("attach", "quotes", "nyse", "--from", "soon"), "'soon' is not a date and time"),
        (("detach", "plain", "nyse"), "stream plain has no feeds"),
        (("trust", "nothing", "nyse"), "unknown stream 'nothing'"),
        (("disagreements", "quotes", "--feed", "x"), "unknown feed 'x'"),
        (("disagreements", "quotes", "--key", "symbol=IBM"), "the key says nothing of at"),
        (("disagreements", "plain"), "stream plain has no feeds"),
    ],
)
def test_mistakes_are_told_with_a_way_to_mend_them(
    errata: Errata, declared: Path, words: tuple[str, ...], said: str
) -> None:
    done = errata("feeds", *words)
    assert done.code == 2
    assert said in done.err
    assert "how to mend: " in done.err
