"""`errata run --plan`: the steps that a run would carry out, and that it carries out when it is let."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fixtures.commands import YAML, Done, Errata, lines

TEXTS = {
    "dear": "SELECT symbol, price, time FROM quotes WHERE price > 111",
    "highest": "SELECT symbol, max(price) AS high FROM dear GROUP BY symbol",
    "inverse": "SELECT symbol, 1 / (price - 110) AS r, time FROM quotes",
    "later": "SELECT symbol, time FROM inverse WHERE r > 0",
}


@pytest.fixture
def there(tmp_path: Path, errata: Errata, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queries").mkdir()
    (tmp_path / "landing").mkdir()
    declared = ["\nqueries:\n"]
    for name, text in TEXTS.items():
        (tmp_path / "queries" / f"{name}.sql").write_text(text)
        declared.append(f"  {name}: queries/{name}.sql\n")
    (tmp_path / "errata.yaml").write_text(YAML + "".join(declared))
    assert errata("apply", "--yes").code == 0
    return tmp_path


def planned(done: Done) -> list[tuple[str, str]]:
    assert done.code == 0, done.err
    return [(each["step"], each["name"]) for each in map(json.loads, done.out.splitlines())]


def test_the_plan_is_what_the_run_then_does(errata: Errata, there: Path) -> None:
    empty = errata("run", "--plan")
    assert (empty.code, empty.out, empty.err) == (0, "", "nothing is due\n")

    (there / "landing" / "one.csv").write_text(lines(range(60)))
    landed = errata("run", "--plan")
    assert "quotes: 1 file has landed and would be taken in first" in landed.err
    assert (there / "landing" / "one.csv").exists(), "nothing is taken in"
    assert errata("run", "--plan", "--no-take").err == "nothing is due\n"
    assert errata("ingest", "quotes", "landing/one.csv").code == 0

    assert planned(errata("run", "--plan", "--no-take", "--format", "json")) == [
        ("evaluate", each) for each in ("dear", "inverse", "highest", "later")
    ]
    assert planned(errata("run", "--plan", "--no-take", "--format", "json", "highest")) == [
        ("evaluate", each) for each in ("dear", "highest")
    ]
    stopped = errata("run", "--no-take")
    assert stopped.code == 1
    assert "query inverse stopped" in stopped.err

    held = [json.loads(each) for each in errata("run", "--plan", "--no-take", "--format", "json").out.splitlines()]
    assert {each["name"]: each["waits"] for each in held} == {
        "inverse": "has stopped, and waits to be mended",
        "later": "waits for query inverse",
    }
    assert "nothing is due: all that is left waits" in errata("run", "--plan", "--no-take").err

    # The price that divides by zero is corrected: the correction comes first, and the stopped queries go on.
    (there / "mend.csv").write_text("_op,time,symbol,price\nreplace,2026-11-18T02:00:40,IBM,130\n")
    assert errata("ingest", "quotes", "mend.csv").code == 0
    assert planned(errata("run", "--plan", "--no-take", "--format", "json")) == [
        ("apply", "quotes"),
        ("correct", "dear"),
        ("evaluate", "inverse"),
        ("correct", "highest"),
        ("evaluate", "later"),
    ]
    assert ("apply", "quotes") in planned(errata("run", "--plan", "--no-take", "--format", "json", "later"))
    table = errata("run", "--plan", "--no-take").out.splitlines()
    assert table[0].split() == ["step", "stream", "or", "query", "why", "corrections", "up", "to", "errata", "run"]
    assert "revisions 1 to 1 are pending" in table[1]
    assert errata("run", "--no-take").code == 0
    assert errata("run", "--plan", "--no-take").err == "nothing is due\n"


def test_queries_that_are_to_be_worked_out_anew_are_in_the_plan(errata: Errata, there: Path) -> None:
    (there / "landing" / "one.csv").write_text(lines(range(30)))
    assert errata("run").code == 0
    assert planned(errata("run", "--plan", "--anew", "dear", "--format", "json")) == [("evaluate", "dear")]
    refused = errata("run", "--plan", "--anew")
    assert (refused.code, refused.out) == (2, "")
    assert "name it: errata run --anew QUERY" in refused.err
