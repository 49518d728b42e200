"""`errata why`, as a person and as a program use it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from errata.cli import main
from errata.cli.options import parse_values
from fixtures.commands import YAML, Errata, lines

QUERIES = {
    "minutes": "SELECT symbol, window_start, sum(price) AS total, count(*) AS n FROM quotes"
    " WHERE symbol = 'IBM' GROUP BY symbol, window(time, '10 seconds')",
    "highest": "SELECT symbol, max(price) AS high FROM quotes GROUP BY symbol",
    "fresh": "SELECT symbol FROM quotes",
}
CORRECTION = "time,symbol,price,_op\n2026-11-18T02:00:03,IBM,7,replace\n"
KEY = "symbol=IBM,window_start=2026-11-18T02:00:00"


@pytest.fixture(scope="module")
def corrected(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Path]:
    """60 quotes as batch one, answered; then one of them changed by batch two, and swept."""
    folder = tmp_path_factory.mktemp("corrected")
    (folder / "queries").mkdir()
    for name, text in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(text)
    declared = [f"  {name}: queries/{name}.sql" for name in QUERIES]
    (folder / "errata.yaml").write_text("\n".join([f"{YAML}queries:", *declared, ""]))
    (folder / "one.csv").write_text(lines(range(60)))
    (folder / "two.csv").write_text(CORRECTION)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ERRATA_PROJECT", raising=False)
        assert main(["apply", "--yes"]) == 0
        assert main(["ingest", "quotes", "one.csv", "--batch-id", "one"]) == 0
        assert main(["run", "minutes", "highest", "--no-take"]) == 0
        assert main(["ingest", "quotes", "two.csv", "--batch-id", "two"]) == 0
        assert main(["sweep", "minutes"]) == 0
    return folder


@pytest.fixture
def there(corrected: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(corrected)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    return corrected


def test_a_story_in_words(errata: Errata, there: Path) -> None:
    done = errata("why", "minutes", KEY)
    assert (done.code, done.err) == (0, "")
    title, first, second, behind = done.out.rstrip("\n").split("\n\n")
    assert title == ("minutes, symbol=IBM, window_start=2026-11-18T02:00:00.000000, at 2026-11-18T02:00:10.000")
    value, published, because = first.splitlines()
    assert value == "1. total=1011.25, n=10, from 2026-11-18T02:00:10.000"
    assert re.fullmatch(r"   published in commit [34] at [-0-9T:]{19}, by .+", published)
    assert because == "   because batch one of quotes came in commit 2"
    value, _, because, row = second.splitlines()
    assert value == "2. total=917.5, n=10 (total: 1011.25 -> 917.5), from 2026-11-18T02:00:10.000"
    assert because == "   because revision 1 of quotes, two.csv:2, batch two changed a row"
    assert row == "      ~ time=2026-11-18T02:00:03.000000, symbol=IBM, price: 100.75 -> 7"
    header, *rows = behind.splitlines()
    assert header == "10 rows of quotes behind it now, 10 as of commit 2; 1 differs"
    assert rows[0] == "   time=2026-11-18T02:00:00.000000, symbol=IBM, price=100"
    assert rows[3] == " ~ time=2026-11-18T02:00:03.000000, symbol=IBM, price: 100.75 -> 7"
    assert len(rows) == 10


def test_more_rows_than_are_shown_are_counted(errata: Errata, there: Path) -> None:
    done = errata("why", "highest", "symbol=IBM", "--at", "2026-11-18T02:00:40")
    assert done.code == 0
    header, *rows = done.out.rstrip("\n").split("\n\n")[-1].splitlines()
    assert header == "41 rows of quotes behind it now, 41 as of commit 2, the same"
    assert (len(rows), rows[-1]) == (21, "   and 21 more")


def test_a_story_for_programs(errata: Errata, there: Path) -> None:
    done = errata("why", "minutes", KEY, "--format", "json")
    assert (done.code, done.err) == (0, "")
    story = json.loads(done.out)
    assert list(story) == ["query", "key", "at", "values", "behind", "notes"]
    assert story["key"] == {"symbol": "IBM", "window_start": "2026-11-18T02:00:00.000000"}
    assert [each["values"] for each in story["values"]] == [{"total": 1011.25, "n": 10}, {"total": 917.5, "n": 10}]
    (cause,) = story["values"][1]["causes"]
    assert (cause["type"], cause["revision"], cause["file"], cause["line"]) == (
        "revision",
        1,
        str(there / "two.csv"),
        2,
    )
    assert (cause["was"]["price"], cause["is"]["price"]) == (100.75, 7.0)
    assert story["behind"][0]["differing"] == 1
    table = list(csv.DictReader(io.StringIO(errata("why", "minutes", KEY, "--format", "csv").out)))
    assert [json.loads(each["values"])["total"] for each in table] == [1011.25, 917.5]
    assert [json.loads(each["causes"])[0]["type"] for each in table] == ["batch", "revision"]


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (["minuets", KEY], 2, "did you mean minutes?"),
        (["fresh", "time=2026-11-18T02:00:00"], 1, "query fresh has not been evaluated yet"),
        (["minutes", "IBM"], 2, "write symbol=IBM,window_start=2026-11-18T02:00:00"),
        (["minutes", "symbl=IBM"], 2, "did you mean symbol?"),
        (["minutes", "total=7"], 2, "it is what the results say, and may change"),
        (["minutes", "window_start=noon"], 2, "'noon' is not a date and time"),
        (
            ["minutes", "symbol=IBM"],
            2,
            "    symbol=IBM,window_start=2026-11-18T02:00:00.000000 --at 2026-11-18T02:00:10",
        ),
        (["highest", "symbol=IBM"], 2, "the key has had several results"),
        (["highest", "symbol=IBM", "--at", "2026-11-19"], 2, "answered up to 2026-11-18T02:00:54"),
        (["minutes", KEY.replace("IBM", "SAP")], 1, "`errata results minutes` shows those that there are"),
    ],
)
def test_what_is_wrong(errata: Errata, there: Path, argv: list[str], code: int, told: str) -> None:
    done = errata("why", *argv)
    assert (done.code, done.out) == (code, "")
    assert told in done.err


def test_candidates_are_the_newest_of_many(errata: Errata, there: Path) -> None:
    listed = errata("why", "highest", "symbol=IBM").err.splitlines()[2:]
    assert listed[0] == "    symbol=IBM --at 2026-11-18T02:00:54.000000"
    assert (len(listed), listed[-1]) == (21, "    and 35 more")


def test_columns_of_what_is_joined_are_named_with_their_source() -> None:
    assert parse_values("of=a,b,q.at=6", "key", "x=1") == {"of": "a,b", "q.at": "6"}
