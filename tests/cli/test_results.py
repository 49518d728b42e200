"""Commands that read what is published: results and changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from errata.answer.runs import run
from errata.archive.ingest.batch import IngestRequest, ingest_batch
from errata.cli import main
from errata.cli import results as command
from errata.declare.site import open_site
from fixtures.commands import YAML, Errata, lines

QUERIES = {
    "dear": "SELECT symbol, price, time FROM quotes WHERE price > 112",
    "highest": "SELECT symbol, max(price) AS high FROM quotes GROUP BY symbol",
    "fresh": "SELECT symbol FROM quotes",
}
FRONTIER = "2026-11-18T02:00:54.000000"


def declare(folder: Path) -> None:
    (folder / "queries").mkdir()
    declared = [f"  {name}: queries/{name}.sql" for name in QUERIES]
    for name, text in QUERIES.items():
        (folder / "queries" / f"{name}.sql").write_text(text)
    (folder / "errata.yaml").write_text("\n".join([f"{YAML}queries:", *declared, ""]))
    (folder / "one.csv").write_text(lines(range(60)))


def evaluated(*names: str) -> None:
    with open_site() as site:
        run(site, names)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A project with a minute of quotes, of which two queries are answered and a third is not."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("ERRATA_PROJECT", raising=False)
        declare(folder)
        assert main(["apply", "--yes"]) == 0
        assert main(["ingest", "quotes", "one.csv"]) == 0
        evaluated("dear", "highest")
    return folder


@pytest.fixture
def there(published: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(published)
    monkeypatch.delenv("ERRATA_PROJECT", raising=False)
    return published


def test_a_table(errata: Errata, there: Path) -> None:
    done = errata("results", "HIGHEST")
    assert (done.code, done.out.split()) == (0, ["symbol", "high", "IBM", "113.5"])
    assert done.err.startswith(f"the answer at {FRONTIER}, as of commit ")
    assert errata("results", "dear", "--limit", "2").err.startswith("more rows; a greater --limit shows them")


def test_small_results_are_read_without_an_engine_and_without_pandas(there: Path) -> None:
    heavy = {"pandas", "alembic", "grpc", "sqlglot"}
    text = f"""import sys
from errata.cli import main
assert main(["results", "dear", "--format", "csv"]) == 0
print(sorted({heavy} & sys.modules.keys()), file=sys.stderr)
import pandas, pyarrow
print(pyarrow.table({{"a": [1]}}).to_pandas()["a"].tolist(), file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", text], cwd=there, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[1] == "IBM,112.25,2026-11-18T02:00:49.000000"
    assert done.stderr.splitlines()[-2:] == ["[]", "[1]"]


def test_the_engine_is_told(errata: Errata, there: Path) -> None:
    assert errata("results", "highest", "--verbose").err.startswith("no engine: ")
    for words in (("changes", "highest"), ("ask", "highest"), ("archive", "scan", "quotes")):
        done = errata(*words, "--verbose")
        assert (done.code, done.err.partition(":")[0]) == (0, "near")
        assert "near" not in errata(*words).err


def test_near_can_be_turned_off(errata: Errata, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERRATA_NEAR", "off")
    assert errata("--verbose", "archive", "scan", "quotes").err.startswith("far: near is off\n")


def test_files_and_lines(errata: Errata, there: Path) -> None:
    done = errata("results", "dear", "--at", "2026-11-18T02:00:50", "--format", "csv")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "symbol,price,time",
        "IBM,112.25,2026-11-18T02:00:49.000000",
        "IBM,112.5,2026-11-18T02:00:50.000000",
    ]
    found = [
        json.loads(line) for line in errata("results", "dear", "--format", "json", "--limit", "1").out.splitlines()
    ]
    assert found == [{"symbol": "IBM", "price": 112.25, "time": "2026-11-18T02:00:49.000000"}]
    done = errata("results", "highest", "--format", "parquet", "--out", "high.parquet")
    assert done.err.startswith(f"wrote high.parquet, the answer at {FRONTIER}, as of commit ")
    assert pq.read_table("high.parquet").to_pydict() == {"symbol": ["IBM"], "high": [113.5]}


def test_aligned(errata: Errata, there: Path) -> None:
    done = errata("results", "highest", "--aligned", "dear", "--limit", "1")
    assert [line.split() for line in done.out.splitlines()] == [
        ["highest"],
        ["symbol", "high"],
        ["IBM", "113.5"],
        [],
        ["dear"],
        ["symbol", "price", "time"],
        ["IBM", "112.25", "2026-11-18T02:00:49.000000"],
    ]
    assert f"the answers at {FRONTIER}, of the streams as of commit " in done.err
    done = errata("results", "highest", "--aligned", "dear,highest", "--format", "json")
    first, second = [json.loads(line) for line in done.out.splitlines()]
    assert (first["query"], first["at"], first["rows"]) == ("highest", FRONTIER, [{"symbol": "IBM", "high": 113.5}])
    assert (second["query"], len(second["rows"])) == ("dear", 6)
    assert first["data_commit"] == second["data_commit"]
    done = errata("results", "highest", "--aligned", "dear", "--format", "csv")
    assert (done.code, done.out) == (2, "")
    assert "--format json" in done.err


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (["results", "deer"], 2, "did you mean dear?"),
        (["results", "quotes"], 2, "quotes is a stream, and no query"),
        (["results", "fresh"], 1, "query fresh has not been evaluated yet"),
        (["results", "dear", "--at", "2026-11-18T02:00:55"], 2, f"answered up to {FRONTIER}"),
        (["results", "dear", "--format", "parquet"], 2, "Parquet goes into files only"),
        (["changes", "deer"], 2, "did you mean dear?"),
        (["changes", "fresh"], 1, "query fresh has not been evaluated yet"),
        (["changes", "dear", "--since", "99"], 2, "there is no commit 99"),
    ],
)
def test_what_is_wrong(errata: Errata, there: Path, argv: list[str], code: int, told: str) -> None:
    done = errata(*argv)
    assert (done.code, done.out) == (code, "")
    assert told in done.err


def test_a_query_that_has_changed_in_its_file(errata: Errata, there: Path) -> None:
    file = there / "queries" / "dear.sql"
    try:
        file.write_text("SELECT symbol FROM quotes")
        done = errata("results", "dear", "--format", "csv")
    finally:
        file.write_text(QUERIES["dear"])
    assert done.err == "queries/dear.sql has changed since it was applied; `errata apply` makes it count\n"


def test_changes_are_json_where_nobody_looks_on(errata: Errata, there: Path) -> None:
    done = errata("changes", "dear")
    assert (done.code, done.err) == (0, "")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert len(found) == 6
    assert list(found[0]) == ["op", "key", "vs", "ve", "old", "new", "old_ve", "cause", "commit"]
    assert found[0]["key"] == {"symbol": "IBM", "time": "2026-11-18T02:00:49.000000"}
    assert (found[0]["new"], found[0]["ve"]) == ({"price": 112.25}, None)
    assert errata("changes", "dear", "--since", str(found[0]["commit"])).out == ""


def test_changes_as_csv_and_as_a_table(errata: Errata, there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header, first, *_ = errata("changes", "dear", "--format", "csv").out.splitlines()
    assert header == "op,key,vs,ve,old,new,old_ve,cause,commit"
    assert first.startswith('insert,"{""symbol"":""IBM"",""time"":""2026-11-18T02:00:49.000000""}",2026-11-18T02:00:49')
    monkeypatch.setattr(command, "MAX_SHOWN_CHANGES", 2)
    done = errata("changes", "dear", "--format", "table")
    head, *rows = done.out.splitlines()
    assert head.split() == ["commit", "change", "key", "from", "until", "was", "is", "cause"]
    assert len(rows) == 2
    assert "symbol=IBM, time=2026-11-18T02:00:54" in rows[1]
    assert "price=113.5" in rows[1]
    assert done.err.startswith("earlier changes are left out")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is heard, also where the tests run behind a shell that has them pass over it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_following_until_ctrl_c(
    errata: Errata, project: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    declare(project)
    (project / "two.csv").write_text(lines(range(30), minute=1))
    assert errata("apply", "--yes").code == 0
    told: list[bytes] = []
    put = command._write_block
    monkeypatch.setattr(command, "_write_block", lambda block: (told.append(block), put(block)))
    failures: list[BaseException] = []

    def works() -> None:
        try:
            for number, file in enumerate(["one.csv", "two.csv"], 1):
                with open_site(project) as site:
                    ingest_batch(site, IngestRequest("quotes", [str(project / file)]))
                    run(site, ["highest"])
                seen.acquire(timeout=60)
                assert len(told) == number
        except BaseException as error:  # noqa: BLE001 - told by the test
            failures.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    seen = threading.Semaphore(0)
    monkeypatch.setattr(command, "_write_block", lambda block: (told.append(block), put(block), seen.release()))
    worker = threading.Thread(target=works)
    worker.start()
    done = errata("changes", "highest", "--follow")
    worker.join()
    assert failures == []
    assert done.code == 0
    assert done.err.startswith("query highest has not been evaluated yet; waiting for its first results\n")
    found = [json.loads(line) for line in done.out.splitlines()]
    once = errata("changes", "highest").out.splitlines()
    assert done.out.splitlines() == once
    assert {change["op"] for change in found} >= {"insert"}
    assert len({change["commit"] for change in found}) == 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
