"""`errata history` and `errata undo`, as a person and as a program use them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.cli.options import parse_values
from errata.errors import UsageError
from fixtures.commands import Errata, lines

KEY = "time=2026-11-18T02:00:03,symbol=IBM"
CORRECTIONS = (
    'time,symbol,price,_op\n2026-11-18T02:00:03,IBM,7,replace\n2026-11-18T02:00:04,IBM,,delete\n"'
    '2026-11-18T02:00:05","ORCL",3,insert\n'
)


@pytest.fixture
def corrected(project: Path, spark: SparkSession, errata: Errata) -> Path:
    """60 quotes of IBM as batch one, then a change, a deletion and a late row as batch two."""
    (project / "one.csv").write_text(lines(range(60)))
    (project / "two.csv").write_text(CORRECTIONS.replace('"', ""))
    assert errata("apply", "--yes").code == 0
    assert errata("ingest", "quotes", "one.csv", "--batch-id", "one").code == 0
    assert errata("ingest", "quotes", "two.csv", "--batch-id", "two").code == 0
    return project


def rows(errata: Errata) -> str:
    return errata("archive", "scan", "quotes", "--format", "csv").out


def test_a_history_for_persons_and_for_programs(corrected: Path, errata: Errata) -> None:
    done = errata("history", "quotes", KEY)
    assert done.code == 0
    assert done.err == "waiting: replacement, revision 2, two.csv:2, batch two\n"
    assert errata("revise").code == 0
    done = errata("history", "quotes", KEY)
    header, first, second = done.out.splitlines()
    assert " ".join(header.split()) == "version known since until what values from batch by revision"
    assert "inserted" in first
    assert "time=2026-11-18T02:00:03.000000, symbol=IBM, price=100.75" in first
    assert "one.csv:5" in first
    assert "price: 100.75 -> 7" in second
    assert "two.csv:2" in second
    assert done.err == ""
    one, two = (json.loads(line) for line in errata("history", "quotes", KEY, "--format", "json").out.splitlines())
    assert (one["commit"], one["until_commit"], one["revision"], one["before"]) == (2, 4, None, None)
    assert two["values"] == {"time": "2026-11-18T02:00:03.000000", "symbol": "IBM", "price": 7.0}
    assert (two["changed"], two["file"], two["line"], two["batch"]) == (["price"], str(corrected / "two.csv"), 2, "two")
    table = list(csv.DictReader(io.StringIO(errata("history", "quotes", KEY, "--format", "csv").out)))
    assert [each["what"] for each in table] == ["inserted", "replaced"]


@pytest.mark.parametrize(
    ("key", "code", "says"),
    [
        ("time=2026-11-18T02:00:03", 2, "the key says nothing of symbol"),
        (f"{KEY},price=3", 2, "there is time, symbol"),
        ("IBM", 2, "write symbol=IBM,time="),
        ("time=yesterday,symbol=IBM", 2, "'yesterday' is not a timestamp"),
        ("time=2026-11-18T02:00:03,symbol=IMB", 1, "no row of the key time=2026-11-18T02:00:03,symbol=IMB is known"),
    ],
)
def test_keys_that_cannot_be_meant(
    taken: Path, monkeypatch: pytest.MonkeyPatch, errata: Errata, key: str, code: int, says: str
) -> None:
    monkeypatch.chdir(taken)
    done = errata("history", "quotes", key)
    assert (done.code, done.out) == (code, "")
    assert says in done.err


def test_values_with_commas() -> None:
    assert parse_values("name=Doe, Jane,at=3,note=a=b", "key", "x=1") == {"name": "Doe, Jane", "at": "3", "note": "a=b"}
    with pytest.raises(UsageError, match="names at twice"):
        parse_values("at=1,at=2", "key", "x=1")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_undo_shows_asks_and_does(corrected: Path, errata: Errata, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rows(errata)
    assert errata("revise").code == 0
    after = rows(errata)
    done = errata("undo", "quotes", "two", "--plan")
    assert done.code == 0
    assert done.err.splitlines() == [
        "undoing batch two of quotes would",
        "  delete 1 row that it brought",
        "  restore 1 row that it changed",
        "  put back 1 row that it deleted",
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO())
    done = errata("undo", "quotes", "two")
    assert done.code == 2
    assert "--yes" in done.err
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    done = errata("undo", "quotes", "two")
    assert (done.code, done.err.splitlines()[-1]) == (1, "do this? [y/N] nothing was done")
    assert rows(errata) == after
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    done = errata("undo", "quotes", "two")
    assert done.code == 0
    assert "batch two of quotes undone in commit 5, applied in commit 6\n  deleted 1 row that it brought" in done.err
    assert rows(errata) == before
    done = errata("undo", "quotes", "two", "--yes")
    assert (done.code, done.err) == (0, "batch two has been undone already, in commit 5\n")
    log = errata("log", "--last", "2").out
    assert "undoes batch two, 1 to delete, 1 to restore, 1 to put back" in log


def test_an_undo_of_what_others_have_changed_is_refused_before_anything_is_asked(
    corrected: Path, errata: Errata
) -> None:
    assert errata("revise").code == 0
    done = errata("undo", "quotes", "one")
    assert done.code == 1
    assert "2 rows changed since by two: refused, unless --keep-later leaves them" in done.err
    assert "undo two first, or leave these rows as they are with --keep-later" in done.err
    assert errata("undo", "quotes", "one", "--yes", "--keep-later").code == 0
    assert rows(errata).splitlines()[1:] == [
        "2026-11-18T02:00:03.000000,IBM,7",
        "2026-11-18T02:00:05.000000,ORCL,3",
    ]


def test_an_unknown_batch_names_those_there_are(corrected: Path, errata: Errata) -> None:
    done = errata("undo", "quotes", "tow", "--yes")
    assert done.code == 2
    assert "did you mean two? there is two, one" in done.err
