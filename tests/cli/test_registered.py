"""`errata query` and `errata invoke`: what they print, in what order, and what they refuse in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from errata.psoup.register import split_texts
from fixtures.commands import Errata

YAML = """
project: exchange
catalog: sqlite:///errata.db
warehouse: ./warehouse
streams:
  quotes:
    columns: {time: timestamp, symbol: string, price: double}
    key: [time, symbol]
    order: time
    retention: 1 hour
    bucket_rows: 10
  counts:
    columns: {seq: bigint, name: string}
    key: [seq]
    order: seq
    retention: 1000 rows
relations:
  names: {kind: retroactive, columns: {symbol: string, name: string, since: timestamp}, key: [symbol], order: since}
"""
DEAR = "SELECT time, symbol, price FROM quotes WHERE price >= 120 BEGIN (NOW - '10 minutes') END (NOW)"


@pytest.fixture
def exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errata: Errata) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    (tmp_path / "errata.yaml").write_text(YAML)
    rows = [f"2026-11-18T02:{minute:02d}:00,IBM,{100 + minute}" for minute in range(30)]
    (tmp_path / "quotes.csv").write_text("\n".join(["time,symbol,price", *rows, ""]))
    assert errata("apply", "--yes").code == 0
    assert errata("ingest", "quotes", "quotes.csv").code == 0
    return tmp_path


def registered(errata: Errata, *argv: str) -> list[str]:
    done = errata("query", "register", *argv)
    assert done.code == 0, done.err
    return done.out.split()


def test_pages_of_an_answer_fit_together(exchange: Path, errata: Errata) -> None:
    (handle,) = registered(errata, DEAR)
    whole = errata("invoke", handle, "--format", "json").out.splitlines()
    assert len(whole) == 10
    paged = [
        line
        for offset in range(0, 12, 3)
        for line in errata(
            "invoke", handle, "--format", "json", "--limit", "3", "--offset", str(offset)
        ).out.splitlines()
    ]
    assert paged == whole
    shown = errata("invoke", handle, "--limit", "4")
    assert len(shown.out.splitlines()) == 5
    assert "--offset goes on" in shown.err
    assert "the answer at 2026-11-18T02:29:00.000000, as of commit" in shown.err
    assert errata("invoke", handle, "--format", "csv", "--offset", "10").out == "time,symbol,price\n"


def test_many_are_registered_from_a_file_all_or_none(exchange: Path, errata: Errata) -> None:
    texts = [DEAR.replace("120", str(120 + number)) for number in range(5)]
    file = exchange / "many.sql"
    file.write_text("-- the dear ones; all of them\n" + ";\n".join(texts) + ";\n\n")
    handles = registered(errata, "--file", str(file), "--later")
    assert len(set(handles)) == 5
    counts = [len(errata("invoke", handle, "--format", "json").out.splitlines()) for handle in handles]
    assert counts == [10, 9, 8, 7, 6]
    listed = errata("query", "list", "--format", "json").out.splitlines()
    assert [json.loads(line)["handle"] for line in listed] == handles
    file.write_text(";\n".join([*texts, "SELECT nothing FROM quotes BEGIN (NOW - '1 minute') END (NOW)"]))
    refused = errata("query", "register", "--file", str(file))
    assert refused.code == 2
    assert refused.out == ""
    assert "query 6:1:8: unknown column 'nothing'" in refused.err
    assert len(errata("query", "list", "--format", "json").out.splitlines()) == 5


def test_semicolons_within_a_text_do_not_end_it() -> None:
    assert split_texts("a ';' b; /* ; */ c -- ;\n d ;\n\n-- only this;\n;") == ["a ';' b", "/* ; */ c -- ;\n d"]
    assert split_texts("x 'it\\'s;'; y `;` z \"q;\"") == ["x 'it\\'s;'", 'y `;` z "q;"']
    assert split_texts(" ;; \n") == []


def test_the_dearest_is_listed_first(exchange: Path, errata: Errata) -> None:
    cheap, dear = registered(errata, DEAR), registered(errata, DEAR.replace("120", "100"))
    for _ in range(5):
        assert errata("invoke", dear[0]).code == 0
    listed = [json.loads(line) for line in errata("query", "list", "--by", "cost", "--format", "json").out.splitlines()]
    assert [each["handle"] for each in listed] == [dear[0], cheap[0]]
    assert [(each["rows"], each["invocations"]) for each in listed] == [(30, 5), (10, 0)]
    assert listed[0]["last_asked"] is not None
    shown = json.loads(errata("query", "show", dear[0], "--format", "json").out)
    assert shown["text"] == DEAR.replace("120", "100")
    assert "quotes.price >= ?" in shown["statement"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT price FROM quotes WHERE", "the query:1:"),
        ("SELECT price FROM quote BEGIN (NOW - '1 minute') END (NOW)", "did you mean quotes?"),
        ("SELECT prices FROM quotes BEGIN (NOW - '1 minute') END (NOW)", "did you mean price?"),
        ("SELECT price FROM quotes", "BEGIN (NOW"),
        ("SELECT price FROM quotes BEGIN (NOW - '2 hours') END (NOW)", "reaches back 2 hours, and 1 hour are kept"),
        (
            "SELECT name FROM counts BEGIN (NOW - 1001 ROWS) END (NOW)",
            "reaches back 1,001 rows, and 1,000 rows are kept",
        ),
        ("SELECT price FROM quotes, names BEGIN (NOW - '1 minute') END (NOW)", "names is a relation"),
        ("SELECT price FROM quotes, counts BEGIN (NOW - 5 ROWS) END (NOW)", "cannot be read together"),
    ],
)
def test_what_cannot_be_registered_is_refused_in_words(exchange: Path, errata: Errata, text: str, words: str) -> None:
    refused = errata("query", "register", text)
    assert refused.code == 2
    assert words in refused.err
    assert "how to mend:" in refused.err
    assert errata("query", "list", "--format", "json").out == ""


def test_what_cannot_be_answered_is_refused_in_words(exchange: Path, errata: Errata) -> None:
    handle, landmark = [
        registered(errata, text)[0] for text in (DEAR, DEAR.replace("NOW - '10 minutes'", "'2026-11-18T02:00:00'"))
    ]
    cases = [
        (("invoke", "nobody"), 2, "is not a handle"),
        (("invoke", "a" * 16), 2, "no query has handle"),
        (("invoke", handle, "--at", "2026-11-18T03:00:00"), 2, "is stable only up to 2026-11-18T02:29:00"),
        (("invoke", handle, "--at", "noon"), 2, "noon"),
        (("invoke", handle, "--as-of", "99"), 2, "there is no commit 99"),
        (("invoke", handle, "--as-of", "1"), 1, "has no rows as of commit 1"),
    ]
    for argv, code, words in cases:
        done = errata(*argv)
        assert (done.code, done.out) == (code, ""), argv
        assert words in done.err, argv
    (exchange / "later.csv").write_text("time,symbol,price\n2026-11-18T04:00:00,IBM,150\n")
    assert errata("ingest", "quotes", "later.csv").code == 0
    assert errata("archive", "age-out", "quotes").code == 0
    assert errata("invoke", handle, "--format", "json").out.count("\n") == 1
    aged = errata("invoke", landmark)
    assert aged.code == 1
    assert "have been aged out" in aged.err
    assert errata("query", "unregister", handle).code == 0
    for argv in (("invoke", handle), ("query", "show", handle), ("query", "unregister", handle)):
        gone = errata(*argv)
        assert (gone.code, gone.out) == (2, "")
        assert "was unregistered in commit" in gone.err
